"""Partitions and kills of real hosts, and what clients saw of them.

`run` starts hosts in namespaces and lets clients ask a register, send messages, pay and schedule while trouble goes on;
then all is joined again, and everything must come to its end. Each client notes what it asked, when, and what it was
told; an answer that did not come in time is unknown. `Outcome.failures` says what cannot have been.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess  # noqa: TID251 - hosts are processes of their own
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from lyra.cluster.client import Cluster
from lyra.cluster.directory import PostgresDirectory
from lyra.cluster.peers import GrpcCarrier
from lyra.core.clock import SystemClock
from lyra.core.ids import ProcessRandom, make_random
from lyra.errors import LyraError
from lyra.store import open_keyed
from verify.histories import Op, check, check_received, drop_unseen, once, register
from verify.partitions import programs
from verify.partitions.namespaces import DATABASE, Namespaces
from verify.servers import PostgresServer

LEASE_S: Final = 1.5
_SHARDS: Final = 4
_HOSTS: Final = ("h1", "h2", "h3")
_SOURCE: Final = Path(__file__).parents[2]
_END_S: Final = 120.0  # for all to come to its end, once all is well
_now = SystemClock().monotonic


class Outcome:
    """What was seen in one run."""

    def __init__(self) -> None:
        self.questions: list[Op] = []
        self.messages: list[Op] = []
        self.received: list[tuple[str, int]] = []  # sender and number
        self.fired: list[Op] = []
        self.failures: list[str] = []
        self.troubles: list[str] = []
        self.payments = self.doubts = 0

    @property
    def unknown(self) -> int:
        return sum(op.ended is None for op in (*self.questions, *self.messages))

    def judge(self) -> None:
        for model, ops in ((register(), drop_unseen(self.questions)), (once(), self.fired)):
            self.failures += [str(fault) for fault in check(model, ops)]
        for sender in {op.key for op in self.messages}:
            sent = [op for op in self.messages if op.key == sender]
            received = [number for name, number in self.received if name == sender]
            self.failures += [f"{sender}: {fault}" for fault in check_received(sent, received)]


class _Run:
    def __init__(self, folder: Path, seed: int, outcome: Outcome) -> None:
        self.folder = folder
        self.rng: ProcessRandom = make_random(seed)
        self.outcome = outcome
        self.hosts: dict[str, subprocess.Popen[bytes]] = {}
        self.is_over = False
        self.doubted: set[str] = set()

    # ------------------------------------------------------------------ hosts

    def start(self, net: Namespaces, name: str, url: str) -> None:
        env = {
            **os.environ,
            "HOME": str(self.folder),
            "PYTHONPATH": os.pathsep.join((str(_SOURCE / "src"), str(_SOURCE))),
            programs.ACTS: str(self.folder / "acts"),
        }
        words = (sys.executable, "-m", "verify.partitions.host", name, net.address(name), url)
        with (self.folder / f"{name}.log").open("ab") as log:
            self.hosts[name] = subprocess.Popen(  # noqa: S603 - our own words, no shell
                net.command(name, *words), env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def kill(self, name: str) -> None:
        self.hosts[name].kill()
        self.hosts[name].wait()

    def close(self) -> None:
        for process in self.hosts.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()

    # ------------------------------------------------------------------ clients

    async def _note(self, ops: list[Op], op: Op, act: Callable[[], Awaitable[Any]], within_s: float) -> Any:
        """Do something, and note when it began, when it ended and what came of it."""
        at = len(ops)
        ops.append(op._replace(began=_now(), ended=None))
        try:
            async with asyncio.timeout(within_s):
                answer = await act()
        except (LyraError, TimeoutError):
            return None
        ops[at] = ops[at]._replace(answer=answer, ended=_now())
        return answer

    async def ask(self, cluster: Cluster, number: int, cell: str) -> None:
        rng, count = make_random(self.rng.getrandbits(32)), 0
        shards = sorted(cluster.view.shards)
        while not self.is_over:
            what = rng.choice(["read", "write", "swap", "swap"])
            new = 1_000 * (number + 1) + (count := count + 1)
            args = {"read": [], "write": [new], "swap": [self._last(), new]}[what]

            async def act(what: str = what, args: list[int] = args) -> Any:
                handle = await cluster.spawn(programs.ask, cell, what, args, shard=rng.choice(shards))
                return (await handle.wait()).result

            op = Op("cell", what, tuple(args), None, 0.0, None, f"asker{number}")
            await self._note(self.outcome.questions, op, act, rng.choice([1.5, 4.0, 30.0]))
            await asyncio.sleep(0.05 * rng.random())

    def _last(self) -> int:
        told = [op for op in self.outcome.questions[-6:] if op.ended is not None]
        return int(told[-1].args[-1] if told[-1].what == "write" else told[-1].answer) if told else 0

    async def send(self, cluster: Cluster, number: int, receiver: str) -> None:
        count = 0
        while not self.is_over:
            message = [f"sender{number}", count := count + 1]
            key = f"sender{number}"
            op = Op(key, "send", (message[1],), None, 0.0, None, key)

            async def act(message: list[Any] = message) -> None:
                await cluster.send(receiver, message)

            await self._note(self.outcome.messages, op, act, self.rng.choice([1.0, 5.0, 40.0]))
            await asyncio.sleep(0.05)

    async def pay(self, cluster: Cluster) -> None:
        while not self.is_over:
            with suppress(LyraError, TimeoutError):
                async with asyncio.timeout(20.0):
                    await cluster.spawn(programs.pay)
            await asyncio.sleep(0.05)

    # ------------------------------------------------------------------ the end

    async def finish(self, cluster: Cluster, cell: str, receiver: str) -> None:
        """Let all come to its end, and look at what is left."""
        outcome, began = self.outcome, _now()
        await cluster.send(receiver, programs.STOP)
        kept = (await cluster.process(receiver).wait()).result
        outcome.received = [(name, number) for name, number in kept]
        await cluster.send(cell, programs.STOP)
        await cluster.process(cell).wait()
        while living := [row["address"] for row in await cluster.processes()]:
            for row in await cluster.interrupts():
                self.doubted.add(row["id"])
                await cluster.resolve_interrupt(row["id"], {"text": "", "approved": True, "decision": "fail"})
            if _now() - began > _END_S:
                outcome.failures.append(f"processes that do not end: {living[:10]}")
                return
            await asyncio.sleep(0.3)

    def read_stores(self, directory: PostgresDirectory) -> None:
        """Read all journals: what was begun, and how often."""
        outcome = self.outcome
        for shard in directory.view().shards:
            store = open_keyed(directory.store_of(shard))
            try:
                for row in store.read(kind="process.created"):
                    if row.pid.startswith("job@"):
                        outcome.fired.append(Op(row.pid, "fire", (), True, row.time, row.time, shard))
            finally:
                store.close()
        acts = self.folder / "acts"
        paid = acts.read_text().split("\n") if acts.exists() else []
        outcome.payments, outcome.doubts = len(paid) - 1, len(self.doubted)
        outcome.failures += [f"{line} was performed twice" for line in set(paid) if line and paid.count(line) > 1]


Trouble = Callable[[_Run, Namespaces, str], Awaitable[None]]


async def _part_from_database(run: _Run, net: Namespaces, _url: str) -> None:
    host = run.rng.choice(_HOSTS)
    run.outcome.troubles.append(f"{host} | database")
    net.cut(host, DATABASE)
    await asyncio.sleep(LEASE_S * run.rng.choice([0.5, 2.0, 3.0]))
    net.heal()


async def _part_hosts(run: _Run, net: Namespaces, _url: str) -> None:
    left, right = run.rng.sample(_HOSTS, 2)
    both = run.rng.random() < 0.6
    run.outcome.troubles.append(f"{left} | {right}" if both else f"{left} > {right}")
    net.cut(left, right, both=both)
    await asyncio.sleep(run.rng.choice([1.0, 3.0]))
    net.heal()


async def _isolate(run: _Run, net: Namespaces, _url: str) -> None:
    host = run.rng.choice(_HOSTS)
    run.outcome.troubles.append(f"{host} alone")
    for other in (DATABASE, *(name for name in _HOSTS if name != host)):
        net.cut(host, other)
    await asyncio.sleep(LEASE_S * 2)
    net.heal()


async def _kill(run: _Run, net: Namespaces, url: str) -> None:
    host = run.rng.choice(_HOSTS)
    run.outcome.troubles.append(f"{host} killed")
    run.kill(host)
    await asyncio.sleep(run.rng.choice([0.2, 2.0]) + LEASE_S)
    run.start(net, host, url)
    await asyncio.sleep(2.0)


async def _freeze(run: _Run, _net: Namespaces, _url: str) -> None:
    host = run.rng.choice(_HOSTS)
    run.outcome.troubles.append(f"{host} frozen")
    run.hosts[host].send_signal(signal.SIGSTOP)
    await asyncio.sleep(LEASE_S * 2)
    run.hosts[host].send_signal(signal.SIGCONT)


TROUBLES: Final[tuple[Trouble, ...]] = (_part_from_database, _part_hosts, _isolate, _kill, _freeze)


def run(folder: Path, *, seed: int = 1, troubles: int = 3) -> Outcome:
    """Run hosts and clients in a network that is cut so many times."""
    outcome = Outcome()
    with Namespaces(*_HOSTS) as net, PostgresServer(listen=net.address(DATABASE)) as server:
        PostgresDirectory(server.url_at, shards=_SHARDS, lease_s=LEASE_S).close()
        this = _Run(folder, seed, outcome)
        try:
            asyncio.run(_drive(this, net, server.url_at, troubles))
        finally:
            this.close()
        directory = PostgresDirectory(server.url_at, make=False)
        this.read_stores(directory)
        directory.close()
    outcome.judge()
    return outcome


async def _drive(this: _Run, net: Namespaces, url: str, troubles: int) -> None:
    for name in _HOSTS:
        this.start(net, name, url)
    directory = PostgresDirectory(url, make=False)
    async with Cluster(directory, GrpcCarrier(directory.secret), patience_s=60.0) as cluster:
        cell = (await cluster.spawn(programs.cell, shard="s1", pid="cell")).address
        receiver = (await cluster.spawn(programs.keep, shard="s2", pid="keep")).address
        await cluster.schedule("job", programs.job, every_s=1.0)
        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(this.ask(cluster, number, cell))
            for number in range(2):
                group.create_task(this.send(cluster, number, receiver))
            group.create_task(this.pay(cluster))
            for number in range(troubles):
                await asyncio.sleep(1.0)
                chosen = TROUBLES[number % len(TROUBLES)] if troubles <= len(TROUBLES) else this.rng.choice(TROUBLES)
                await chosen(this, net, url)
            net.heal()
            await asyncio.sleep(2.0)
            this.is_over = True
        await cluster.unschedule("job")
        await this.finish(cluster, cell, receiver)
    for process in this.hosts.values():
        process.terminate()
    for process in this.hosts.values():
        await asyncio.to_thread(process.wait)
