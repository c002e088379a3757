"""One simulated cluster: shards in a database, hosts that come and go, a network between them, and trouble.

Hosts are the real `Host` with real kernels, each on a loop of its own (`loops`). The world draws from its seed what
befalls them (`TROUBLE`): crashes at named points and at moments, pauses beyond the lease, partitions from each other
and from the database, hosts that join, drain and leave, clocks that jump. Then everything is well again, and the world
waits until all programs have ended. `books` judges rows as they become durable; acts are judged when they happen.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import Callable
from contextlib import ExitStack, suppress
from hashlib import blake2b
from typing import Any, Final
from unittest.mock import patch

from lyra.cluster.client import Cluster
from lyra.cluster.directory import DRAINING, UP, MemoryDirectory
from lyra.cluster.host import Host
from lyra.core.event import Event
from lyra.core.faultpoint import SimulatedCrash, intercept
from lyra.core.ids import ProcessRandom, make_random
from lyra.errors import InvalidTransition, LyraError, NoSuchInterrupt, Overloaded
from lyra.kernel import Kernel
from lyra.kernel.seams import Seams
from lyra.store.protocol import Record
from lyra.testing.clock import SimClock
from lyra.testing.loop import Deadlock
from verify.crash.workload import call_of
from verify.simulation import invariants
from verify.simulation.cluster import programs
from verify.simulation.cluster.books import Books
from verify.simulation.cluster.database import Shard, ShardStore
from verify.simulation.cluster.loops import HostLoop, run_until
from verify.simulation.cluster.network import DATABASE, Network, NoPulse, SimCarrier, SimWriter
from verify.simulation.cluster.shared import Shared
from verify.simulation.ledger import Violation

LEASE_S: Final = 3.0
_SETTLE_S: Final = 400.0  # virtual, after the last trouble
_VIOLATIONS_MAX: Final = 10
_CLIENT: Final = "client"
POINTS: Final = (
    "remote.taken", "remote.delivered", "journal.before_commit", "journal.after_commit", "fact.written",
    "process.spawned", "process.exiting", "mailbox.delivered", "door.started", "door.performed", "door.finished",
    "snapshot.before", "snapshot.after", "recovery.loaded", "recovery.done", "lease.acquired", "interrupt.ended",
)  # fmt: skip
# Complaints that are no findings: what the world does itself.
_EXPECTED: Final = ("SimulatedCrash", "has errored out but its parent task", "PlannedFailure")


# Why a snapshot may fail: the database cannot be reached, or the shard has another owner.
_NO_SNAPSHOT: Final = ("cannot be reached", "connection to the database is lost", "fenced", "epoch")


class SimHost:
    """One start of a host, from joining to its end."""

    def __init__(self, world: ClusterWorld, name: str, number: int) -> None:
        self.world = world
        self.name = name
        self.number = number
        self.rng: ProcessRandom = make_random(world.seed * 1_000 + number)
        self.loop = HostLoop(world.clock, name, ahead_s=world.ahead_of(name))
        self.machine = f"{name}#{number}"
        self.host: Host | None = None
        self.opened: list[tuple[ShardStore, Kernel]] = []  # all that it ever opened, or tried to
        self.is_leaving = False
        self.has_joined = False
        self.loop.create_task(self._live())

    async def _live(self) -> None:
        world = self.world
        self.host = Host(
            world.directory,
            SimCarrier(world.network, self.name),
            name=self.name,
            address=self.name,
            setup=world.shared.set_up,
            make_kernel=self._make_kernel,
            resources={"cpu": 1.0, "gpu": 0.0},
            drain_s=4.0,
            clock=self.loop.host_clock,
        )
        while True:
            try:
                await self.host.start()
                self.has_joined = True
                break
            except LyraError:  # an earlier start of that name is still in the directory, or it cannot be reached
                if self.host._writer is not None:
                    self.host._writer.close()
                await asyncio.sleep(0.7)
        await world.shared.use(self)

    def epochs_at_work(self, shard: str) -> list[int]:
        """Return the epochs of the kernels of a shard that perform something here."""
        return [store.epoch for store, kernel in self.opened if store.shard == shard and kernel.core.in_flight]

    def _make_kernel(self, _shard: str, store: Any, seams: Seams) -> Kernel:
        world = self.world
        connection = ShardStore(world, self, store)
        kernel = Kernel(
            connection,
            clock=self.loop.host_clock,
            programs=programs.PROGRAMS,
            seed=self.rng.getrandbits(32),
            lease_s=LEASE_S,
            lease_wait_s=LEASE_S + 1.0,
            snapshot_every_events=world.snapshot_every,
            mailbox_messages_max=world.mailbox_max,
            seams=seams,
        )
        for other, owner in self.opened:
            if other.shard == store.name and owner.started and not owner.stopping and owner.failure is None:
                world.violate("shards_open", f"{self.name} opens {store.name}, which it has open or is opening")
        self.opened.append((connection, kernel))
        kernel.on_event(self._heard)
        kernel.scheduler.order = self._order
        return kernel

    def _order(self, batch: list[Any]) -> list[Any]:
        if len(batch) > 1:
            self.rng.shuffle(batch)
        return batch

    def _heard(self, event: Event) -> None:
        if event.kind == "process.diverged":
            self.world.violate("never_again", f"{event.pid} on {self.name} diverged: {event.data['message']}")
        elif event.kind == "snapshot.failed" and not any(word in event.data["message"] for word in _NO_SNAPSHOT):
            self.world.violate("contained", f"{self.name} writes no snapshot: {event.data['message']}")

    def answer_doubts(self) -> None:
        """Decide about effects in doubt, as a person would."""
        for _, kernel in self.opened:
            if kernel.stopping or kernel.failure is not None or not kernel.started or kernel.journal is None:
                continue
            for interrupt in kernel.interrupts.pending():
                if interrupt.kind != "in_doubt":
                    continue
                decision = self.rng.choice(["retry", "fail"])
                with suppress(InvalidTransition, NoSuchInterrupt):
                    kernel.resolve_interrupt(interrupt.id, {"text": "", "approved": True, "decision": decision})

    def leave(self) -> None:
        """Leave the cluster in order."""

        async def go() -> None:
            if self.host is not None:
                await self.host.close()
            self.loop.call_soon(self.bury)

        self.is_leaving = True
        self.loop.create_task(go())

    def crash(self) -> None:
        """Nothing of it runs after this."""
        self.loop.halt()

    def bury(self) -> None:
        """Let go of everything without letting any of it run on as if the host still lived."""
        self.world.complaints(self)
        self.loop.halt()
        for _, kernel in self.opened:
            kernel.scheduler.stopped = True
            kernel.core.stopping = True
            kernel.listeners.clear()
            if kernel.journal is not None:
                kernel.journal.frozen = True
            for process in kernel.processes.values():
                if process.coroutine is not None:
                    with suppress(BaseException):
                        process.coroutine.close()
        _drop_tasks(self.loop)


_CLEANUPS_MAX: Final = 50  # awaits of one task that is let go


def _drop_tasks(loop: HostLoop) -> None:
    """Let go of the tasks of a loop that runs no more."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of what a task held and had no time to await
        asyncio.events._set_running_loop(loop)  # time-outs inside ask for the loop when they are left
        try:
            for task in asyncio.all_tasks(loop):
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # it was killed; that is meant
                for _ in range(_CLEANUPS_MAX):  # what tidies up may await again, which it is not given either
                    try:
                        task.get_coro().close()
                    except RuntimeError:
                        continue
                    except BaseException:  # noqa: BLE001 - whatever it ends with, it has ended
                        break
                    break
        finally:
            asyncio.events._set_running_loop(None)
    loop._ready.clear()
    loop._scheduled.clear()
    if not loop.is_running():
        loop.close()


class ClusterWorld:
    """Everything that follows from one seed."""

    def __init__(self, seed: int, *, verbose: bool = False) -> None:
        self.seed = seed
        self.verbose = verbose
        self.rng: ProcessRandom = make_random(seed)
        rng = self.rng
        self.clock = SimClock(1_700_000_000.0)
        self.violations: list[Violation] = []
        self.shards = {f"s{number}": Shard(f"s{number}") for number in range(1, rng.randint(2, 5) + 1)}
        names = list(self.shards)
        self.directory = MemoryDirectory(names, self.clock.now, lease_s=LEASE_S, stores=self.shards)
        self.network = Network(
            self.clock,
            make_random(rng.getrandbits(32)),
            loss=rng.choice([0.0, 0.02, 0.2]),
            repeats=rng.choice([0.0, 0.05, 0.3]),
            late=rng.choice([0.0, 0.05, 0.2]),
        )
        self.mailbox_max = rng.choice([1, 3, 20, 1_000])
        self.books = Books(names, has_room=self.mailbox_max == 1_000)
        self.snapshot_every = rng.choice([15, 60, 100_000])
        self.horizon_s = rng.choice([5.0, 20.0, 45.0])
        self._ahead = {0: rng.choice([0.0, 200.0]), 1: rng.choice([0.0, -300.0]), 2: rng.choice([0.0, 60.0])}
        self.hosts: list[SimHost] = []
        self.ended = 0  # starts of hosts that are over
        self.troubles: dict[str, int] = {}
        self.points_visited: dict[str, int] = dict.fromkeys(POINTS, 0)
        self._point: tuple[str, int] | None = None
        self._dead: list[SimHost] = []
        self.is_well = False
        self.provider = programs.Provider(make_random(rng.getrandbits(32)))
        self.provider.on_perform = self._judge
        self.client_loop = HostLoop(self.clock, _CLIENT)
        # The same pids on several shards: what tells processes apart must be their addresses.
        roots = sorted({f"{rng.choice(names)}/a{rng.randrange(3)}" for _ in range(rng.randint(2, 6))})
        generator = programs.Generator(make_random(rng.getrandbits(32)), names, roots)
        self.roots: dict[str, tuple[Any, tuple[Any, ...]]] = {
            address: (programs.actor, (generator.spec(),)) for address in roots
        }
        if rng.random() < 0.5:  # twins: all that they have in common but their shard must not be taken for one
            spec = generator.twin(rng.choice(roots))
            self.roots |= {f"{shard}/a9": (programs.actor, (spec,)) for shard in names[:2]}
        self.cell = ""
        if rng.random() < 0.6:
            self.cell = f"{rng.choice(names)}/cell"
            self.roots[self.cell] = (programs.cell, ())
            for number in range(3):
                address = f"{rng.choice(names)}/asker{number}"
                self.roots[address] = (programs.asker, (self.cell, generator.questions()))
        # Of some roots, in millionths of a dollar: theirs and of all that they spawn, wherever that is.
        self.limits = {address: rng.choice([10, 30, 60]) for address in self.roots if rng.random() < 0.5}
        self.has_board = rng.random() < 0.4
        self.jobs: dict[str, Any] = {
            f"job{number}": {
                "every_s": rng.choice([3.0, 7.0, 30.0]),
                "missed": rng.choice(["once", "skip"]),
                "shard": rng.choice([None, *names]),
            }
            for number in range(rng.choice([0, 0, 1, 3]))
        }
        self._ids = 0
        self.is_done = False
        self.shared = Shared(self)
        self.roots |= self.shared.roots
        self.well_s = 0.0  # when all trouble was over

    # ------------------------------------------------------------------ findings

    def violate(self, name: str, detail: str) -> None:
        if len(self.violations) < _VIOLATIONS_MAX:
            self.violations.append(Violation(name, f"at {self.clock.monotonic():.3f} s: {detail}"))

    def say(self, text: str) -> None:
        if self.verbose:
            import sys

            print(f"[{self.clock.monotonic():10.3f}] {text}", file=sys.stderr)

    def complaints(self, host: SimHost) -> None:
        for text in host.loop.complaints:
            if not any(expected in text for expected in _EXPECTED):
                self.violate("contained", f"{host.name}: {text}")
        host.loop.complaints.clear()

    def on_append(self, shard: Shard, host: SimHost, epoch: int, records: list[Record]) -> None:
        for record in records if self.verbose else ():
            self.say(f"{host.name} {shard.name} {record.seq} {record.pid} {record.kind} {record.data[:120]!r}")
        for violation in self.books.add(shard.name, epoch, records):
            self.violate(*violation)

    def _judge(self, key: str, kind: str, count: int) -> None:
        """An act happens: may it, and on this host?"""
        loop = asyncio.get_running_loop()
        host = next(host for host in self.hosts if host.loop is loop)
        name = key.partition(".")[0].partition(":")[0]
        shard = self.shards[name]
        lease, epochs = shard.disk._lease, host.epochs_at_work(name)
        if lease.epoch not in epochs:
            self.violate("after_lease", f"{key} was performed on {host.machine} in epoch {epochs} of {name}: {lease}")
        elif not 0.0 < self.clock.now() <= lease.expires_at:
            self.violate("after_lease", f"{key} was performed on {host.name} after its lease on {name}")
        if kind == "call":
            self.shared.calls.append(self.clock.monotonic())
        request = {"kind": kind}
        ledger = self.books.ledgers[name]
        found = ledger.judge_act(
            call_of(key), request, count, idempotent=kind != "pay", tries=2 if kind == "read" else 1
        )
        for violation in found:
            self.violate(violation.name, f"{host.name}, {name}: {violation.detail}")

    def hash(self) -> str:
        """Of every row that ever was, times included: equal seeds give equal runs."""
        digest = blake2b(digest_size=16)
        for ledger in self.books.ledgers.values():
            for row in ledger.rows:
                digest.update(repr(tuple(row)).encode())
        return digest.hexdigest()

    # ------------------------------------------------------------------ what hosts are given

    def ahead_of(self, name: str) -> float:
        return self._ahead.get(sum(map(ord, name)) % 3, 0.0)

    def make_id(self) -> str:
        self._ids += 1
        return f"id{self._ids:06d}"

    def add_host(self, name: str) -> SimHost:
        host = SimHost(self, name, len(self.hosts) + 1 + self.ended)
        self.hosts.append(host)
        self.network.hosts[name] = host
        self.say(f"host {name} starts")
        return host

    # ------------------------------------------------------------------ running

    def run(self) -> None:
        def machine() -> str:
            loop = asyncio._get_running_loop()
            return next((host.machine for host in self.hosts if host.loop is loop), "nowhere")

        with ExitStack() as stack:
            for module in ("lyra.cluster.host", "lyra.cluster.client", "lyra.kernel.base.core"):
                stack.enter_context(patch(f"{module}.Writer", SimWriter))
            stack.enter_context(patch("lyra.cluster.host.Pulse", NoPulse))
            for module in ("lyra.cluster.host", "lyra.cluster.client"):
                stack.enter_context(patch(f"{module}.unique_id", self.make_id))
            stack.enter_context(patch("lyra.kernel.journal.lease._machine", machine))
            stack.enter_context(intercept(self._visit))
            stack.enter_context(patch.object(logging.getLogger("lyra"), "disabled", True))
            stack.enter_context(patch.object(logging.getLogger("lyra.kernel"), "disabled", True))
            stack.enter_context(patch.object(logging.getLogger("lyra.cluster"), "disabled", True))
            SimWriter.network = self.network
            programs.Outside.provider = self.provider
            self._run()

    def _run(self) -> None:
        rng = self.rng
        for number in range(rng.randint(2, 4)):
            self.add_host(f"h{number}")
        client = self.client_loop.create_task(self._use())
        for _ in range(rng.randint(2, 9)):
            self._at(rng.uniform(0.5, self.horizon_s), self._trouble)
        self._at(self.horizon_s, self._make_well)
        self._every(1.0, self._answer_doubts)
        try:
            run_until(self.clock, self._loops, rng, lambda: self.is_done or len(self.violations) > 5, self._idle)
        except Deadlock as stuck:
            self.violate("ends", str(stuck))
        if client.done() and not client.cancelled() and client.exception() is not None:
            self.violate("acknowledged", f"the client failed: {client.exception()!r}")
        if not self.violations:
            self._at_rest()
        for host in self.hosts:
            host.bury()
        _drop_tasks(self.client_loop)  # after a violation the client is cut off

    def _loops(self) -> list[HostLoop]:
        return [self.client_loop, *[host.loop for host in self.hosts]]

    def _at(self, when_s: float, action: Callable[[], None]) -> None:
        self.clock.call_at(max(when_s, self.clock.monotonic()), action)

    def _in(self, seconds: float, action: Callable[[], None]) -> None:
        self._at(self.clock.monotonic() + seconds, action)

    def _every(self, seconds: float, action: Callable[[], None]) -> None:
        def again() -> None:
            action()
            self._in(seconds, again)

        self._in(seconds, again)

    def _answer_doubts(self) -> None:
        for host in self.hosts:
            if host.loop.runs:
                host.loop.call_soon(host.answer_doubts)
        if self.is_well and self.clock.monotonic() > self.horizon_s + _SETTLE_S:
            self.is_done = True
            for shard in self.shards:
                if not self._is_placed(shard):
                    told = self.directory.view().shards[shard]
                    self.violate("shards_open", f"{shard} is open on {self._open_on(shard)}, the directory says {told}")
            for violation in self.books.at_rest():
                self.violate(*violation)
            if not self.violations:
                self.violate("ends", f"after {_SETTLE_S:g} s of peace: {self._unfinished()}")

    def _idle(self) -> None:
        """No host has anything to do at this moment."""
        if self._dead:
            dead, self._dead = self._dead, []
            for host in dead:
                self._end(host)
        if self.rng.random() < 0.02:
            for host in self.hosts:
                for kernel in host.host.kernels.values() if host.host is not None and host.loop.runs else ():
                    for violation in invariants.inspect_idle(kernel):
                        self.violate(violation.name, f"{host.name}: {violation.detail}")

    def _visit(self, name: str) -> None:
        """A named point was reached on the host that runs."""
        loop = asyncio._get_running_loop()
        if name in self.points_visited and isinstance(loop, HostLoop) and not loop.is_dead:
            self.points_visited[name] += 1
            if self._point is not None and self._point[0] == name:
                left = self._point[1] - 1
                self._point = (name, left) if left > 0 else None
                if left <= 0:
                    for host in self.hosts:
                        if host.loop is loop:
                            self._crash(host, f"at {name}")
                            raise SimulatedCrash(name)

    # ------------------------------------------------------------------ trouble

    def _running(self) -> list[SimHost]:
        return [host for host in self.hosts if host.loop.runs and not host.is_leaving]

    def _trouble(self) -> None:
        if self.is_well:
            return
        word = self.rng.choices(list(TROUBLE), [weight for weight, _ in TROUBLE.values()])[0]
        self.troubles[word] = self.troubles.get(word, 0) + 1
        TROUBLE[word][1](self)

    def _crash(self, host: SimHost, why: str) -> None:
        self.say(f"host {host.name} crashes {why}")
        host.crash()
        self._dead.append(host)
        if self.rng.random() < 0.85 or len(self._running()) < 1:
            self._in(self.rng.choice([0.3, 2.0, 15.0]) * self.rng.random(), lambda: self._start_again(host.name))

    def _start_again(self, name: str) -> None:
        if not any(host.name == name and not host.loop.is_dead for host in self.hosts):
            self.add_host(name)

    def _end(self, host: SimHost) -> None:
        if host in self.hosts:
            self.hosts.remove(host)
            self.ended += 1
        host.bury()

    def _crash_now(self) -> None:
        if self._running():
            self._crash(self.rng.choice(self._running()), "at a moment")

    def _crash_at_point(self) -> None:
        self._point = (self.rng.choice(POINTS), self.rng.choice([1, 1, 2, 3, 8]))

    def _pause(self) -> None:
        if not self._running():
            return
        host = self.rng.choice(self._running())
        seconds = LEASE_S * self.rng.choice([0.2, 1.0, 1.3, 3.0])
        self.say(f"host {host.name} is held still for {seconds:g} s")
        host.loop.is_paused = True
        self._in(seconds, lambda: setattr(host.loop, "is_paused", False))

    def _part(self) -> None:
        names = sorted({host.name for host in self.hosts} | {_CLIENT})
        if len(names) < 2:
            return
        left, right = self.rng.sample(names, 2)
        self._cut(left, right)

    def _part_from_database(self) -> None:
        if self._running():
            self._cut(self.rng.choice(self._running()).name, DATABASE)

    def _isolate(self) -> None:
        if self._running():
            name = self.rng.choice(self._running()).name
            for other in [DATABASE, _CLIENT, *sorted({host.name for host in self.hosts} - {name})]:
                self._cut(name, other, both=True)

    def _cut(self, left: str, right: str, *, both: bool | None = None) -> None:
        if both is None:
            both = self.rng.random() < 0.6
            if self.rng.random() < 0.5:
                left, right = right, left
        seconds = self.rng.choice([0.5, 2.0, 6.0, 14.0]) * self.rng.random()
        self.say(f"{left} and {right} are parted for {seconds:.1f} s{'' if both else ', one way'}")
        self._in(seconds, self.network.cut(left, right, both=both))

    def _join(self) -> None:
        if len(self.hosts) < 6:
            self.add_host(f"h{len(self.hosts) + self.ended + 10}")

    def _drain(self) -> None:
        if len(self._running()) > 1:
            host = self.rng.choice(self._running())
            self.say(f"host {host.name} is told to drain")
            self.directory.set_state(host.name, DRAINING)
            self._in(self.rng.uniform(1.0, 12.0), lambda: self._take_up(host.name))

    def _take_up(self, name: str) -> None:
        self.directory.set_state(name, UP)

    def _leave(self) -> None:
        joined = [host for host in self._running() if host.has_joined]
        if len(joined) > 1:
            host = self.rng.choice(joined)
            self.say(f"host {host.name} leaves")
            host.leave()
            self._in(15.0, lambda: self._start_again(host.name))

    def _jump(self) -> None:
        if self._running():
            self.rng.choice(self._running()).loop.host_clock.ahead_s += self.rng.choice([-3600.0, -20.0, 20.0, 3600.0])

    def _make_well(self) -> None:
        """End all trouble; wait for the ends from here on."""
        self.say("all is well from here on")
        self.is_well = True
        self.well_s = self.clock.monotonic()
        self._point = None
        self.network.heal_all()
        for host in self.hosts:
            host.loop.is_paused = False
        for number in range(2):
            self._start_again(f"h{number}")
        for name in list(self.directory._hosts):
            self._take_up(name)

    # ------------------------------------------------------------------ the client

    async def _use(self) -> None:
        """Start the programs from outside, send some messages, wait for all ends."""
        cluster = Cluster(self.directory, SimCarrier(self.network, _CLIENT), patience_s=200.0)
        hasty = Cluster(self.directory, SimCarrier(self.network, _CLIENT), patience_s=self.rng.choice([0.0, 2.0]))
        async with cluster, hasty, asyncio.TaskGroup() as group:
            spawns = [group.create_task(self._start(cluster, address)) for address in self.roots]
            senders = [group.create_task(self._send(hasty, number)) for number in range(3)]
            senders.append(group.create_task(self._kill(hasty)))
            senders += [group.create_task(self.shared.answer(some)) for some in (cluster, hasty)]
            for name, when in self.jobs.items():
                await cluster.schedule(name, programs.actor, {"steps": [["do", "read", 1]], "traps": False}, **when)
            for task in spawns:
                await task
            while not self.is_well:  # noqa: ASYNC110 - virtual time costs nothing
                await asyncio.sleep(1.0)
            for name in self.jobs:
                await cluster.unschedule(name)
            await self.shared.finish(cluster)
            for address in self.roots:
                if address.endswith("/cell"):
                    continue
                await self._wait(cluster, address)
            for task in senders:
                await task
            if self.cell:
                while self.books.lives(*self.cell.split("/")):
                    with suppress(Overloaded):  # its mailbox is full
                        await cluster.send(self.cell, programs.STOP)
                    await asyncio.sleep(1.0)
                await self._wait(cluster, self.cell)
            while not self._all_over():  # noqa: ASYNC110 - virtual time costs nothing
                await asyncio.sleep(2.0)
            self.is_done = True

    async def _start(self, cluster: Cluster, address: str) -> None:
        await asyncio.sleep(self.rng.choice([0.0, 3.0]) * self.rng.random())
        shard, pid = address.split("/")
        program, args = self.roots[address]
        limit = self.limits.get(address)
        budget = None if limit is None else {"usd": limit}
        await cluster.spawn(program, *args, shard=shard, pid=pid, name=f"called-{pid}", budget=budget)
        if pid not in self.books.ledgers[shard].processes:
            self.violate("acknowledged", f"{address} was acknowledged as started and is not in the journal")

    async def _send(self, cluster: Cluster, number: int) -> None:
        """Send messages from outside, one after the other. What an error was told of may have arrived or not."""
        receiver = self.rng.choice([address for address in self.roots if "/a" in address])
        shard, pid = receiver.split("/")
        for count in range(1, self.rng.randint(1, 8)):
            sender = f"client{number}.{count}"
            await asyncio.sleep(self.rng.uniform(0.0, self.horizon_s / 6))
            lived = self.books.lives(shard, pid)
            try:
                await cluster.send(receiver, {"from": sender, "n": 1, "for": receiver})
            except LyraError:
                continue
            known = (sender, receiver, 1) in self.books.received
            if lived and not known and self.books.lives(shard, pid):
                self.violate("acknowledged", f"message {count} of {sender} for {receiver} was acknowledged and is lost")

    async def _kill(self, cluster: Cluster) -> None:
        """Kill a root now and then; what an error was told of may be stopped or not."""
        for _ in range(self.rng.choice([0, 0, 1, 2])):
            await asyncio.sleep(self.rng.uniform(0.0, self.horizon_s / 2))
            address = self.rng.choice([address for address in self.roots if "/a" in address])
            shard, pid = address.split("/")
            try:
                await cluster.process(address).kill()
            except LyraError:
                continue
            if not self.books.ledgers[shard].processes[pid].stopping:
                self.violate("acknowledged", f"the kill of {address} was acknowledged and is not in the journal")

    async def _wait(self, cluster: Cluster, address: str) -> None:
        shard, pid = address.split("/")
        await cluster.process(address).wait()
        if self.books.lives(shard, pid):
            self.violate("acknowledged", f"a client was told that {address} has ended, and the journal says it lives")

    # ------------------------------------------------------------------ rest

    def _unfinished(self) -> str:
        living = [
            f"{shard}/{pid}"
            for shard, ledger in self.books.ledgers.items()
            for pid, books in ledger.processes.items()
            if not books.ended
        ]
        waiting = [
            f"{shard}→{to}: {self.books.acknowledged.get((shard, to), 0)} of {len(posts)}"
            for (shard, to), posts in self.books.posted.items()
            if self.books.acknowledged.get((shard, to), 0) != len(posts)
        ]
        never = [address for address in self.roots if address.split("/")[1] not in self._processes(address)]
        return f"alive {living}; posts {waiting}; never begun {never}"

    def _processes(self, address: str) -> Any:
        return self.books.ledgers[address.partition("/")[0]].processes

    def _open_on(self, shard: str) -> list[str]:
        """Return the names of the hosts on which a shard is open."""
        hosts = [host for host in self.hosts if host.host is not None and not host.loop.is_dead]
        return [host.name for host in hosts if host.host is not None and shard in host.host.kernels]

    def _is_placed(self, shard: str) -> bool:
        """Return whether a shard is open on one living host, and the directory names that one."""
        view = self.directory.view()
        owner = view.shards[shard].host
        return self._open_on(shard) == [owner] and view.is_alive(owner)

    def _all_over(self) -> bool:
        if not self.is_well or not all(self._is_placed(shard) for shard in self.shards) or not self.shared.is_over:
            return False
        for ledger in self.books.ledgers.values():
            if any(not books.ended for books in ledger.processes.values()):
                return False
        return all(
            self.books.acknowledged.get(pair, 0) == len(posts) for pair, posts in self.books.posted.items()
        ) and all((shard, pid) in self.books.refused or pid in self.books.ledgers[shard].processes
                  for shard, pid in self.books.spawned)  # fmt: skip

    def _at_rest(self) -> None:
        for violation in (*self.books.at_rest(), *self.shared.at_rest()):
            self.violate(*violation)
        for address, limit in self.limits.items():
            spent = self.books.spent_below(address)
            if spent > limit:
                self.violate("spent_within_limit", f"{address} and all below it spent {spent} of {limit}")


Cause = Callable[[ClusterWorld], None]
# What may befall a cluster, and how often.
TROUBLE: Final[dict[str, tuple[int, Cause]]] = {
    "crash": (4, ClusterWorld._crash_now),
    "point": (4, ClusterWorld._crash_at_point),
    "pause": (4, ClusterWorld._pause),
    "part": (3, ClusterWorld._part),
    "part from database": (3, ClusterWorld._part_from_database),
    "isolate": (2, ClusterWorld._isolate),
    "join": (1, ClusterWorld._join),
    "drain": (1, ClusterWorld._drain),
    "leave": (1, ClusterWorld._leave),
    "jump": (1, ClusterWorld._jump),
}
