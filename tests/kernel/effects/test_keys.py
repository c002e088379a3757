"""Idempotency keys: no two stores share one, and a call has the same one in every life of its store."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lyra import Effect
from lyra.kernel import Kernel
from lyra.store.memory import MemoryStore
from lyra.store.space import Space
from lyra.store.sqlite import SqliteStore
from lyra.testing import SimClock
from tests.kernel.conftest import run
from tests.store.conftest import postgres_server, postgres_url  # noqa: F401 - fixtures

GENERATION, DIGEST = re.compile(r"[.]\w{8}:"), re.compile(r":[0-9a-f]{24}$")


class Charges:
    """A service that honours keys: the second request under a key gets the receipt of the first."""

    def __init__(self) -> None:
        self.receipts: dict[str, int] = {}
        self.keys: list[str] = []

    async def charge(self, amount: int, idempotency_key: str) -> int:
        self.keys.append(idempotency_key)
        return self.receipts.setdefault(idempotency_key, amount)


def _program(service: Charges):
    charge = Effect(service.charge, name="charge", idempotent=True)

    async def pays(ctx, amount):
        return await ctx.do(charge, amount)

    return pays


def _two_targets(kind: str, tmp_path, request: pytest.FixtureRequest):
    if kind == "sqlite":
        return [str(tmp_path / name) for name in ("a.db", "b.db")]
    if kind == "spaces":
        return [Space(tmp_path / "runs.db", name) for name in ("a", "b")]
    if kind == "postgres":
        url = request.getfixturevalue("postgres_url")
        return [url, f"{url}_b"]
    return [MemoryStore(), MemoryStore()] if kind == "memory store" else ["memory", "memory"]


@pytest.mark.parametrize("kind", ["sqlite", "spaces", "postgres", "memory store", "memory"])
def test_two_stores_have_no_key_in_common(kind, tmp_path, request):
    """The first process of each of two stores charges: each gets a receipt of its own, also from seeded kernels."""
    service = Charges()
    targets = _two_targets(kind, tmp_path, request)

    async def main():
        for target, amount in zip(targets, (5, 70), strict=True):
            async with Kernel(target, seed=1) as kernel:
                assert await kernel.run(_program(service), amount) == amount

    run(main())
    for target in targets:
        if isinstance(target, Space):
            target.close()


def test_a_deleted_store_leaves_no_keys_behind(path, tmp_path):
    """A store that is made anew at the same path is another store."""
    service = Charges()

    async def main():
        for amount in (5, 70):
            async with Kernel(path) as kernel:
                assert await kernel.run(_program(service), amount) == amount
            for file in tmp_path.glob("run.db*"):
                file.unlink()

    run(main())


def test_a_call_has_one_key_in_all_lives(path):
    """In flight at a crash, made again by the next kernel: the same key."""
    seen: list[str] = []
    state = {"ends": False}

    async def act(idempotency_key):
        seen.append(idempotency_key)
        while not state["ends"]:
            await asyncio.sleep(0.005)

    async def program(ctx):
        await ctx.do(Effect(act, name="act", idempotent=True))

    async def main():
        first = Kernel(path, programs=[program])
        await first.start()
        await first.spawn(program, pid="main")
        while not seen:
            await asyncio.sleep(0.005)
        await first.close(drain_s=0.0)
        state["ends"] = True
        async with Kernel(path, programs=[program]) as second:
            await second.process("main").wait()

    run(main())
    assert len(seen) == 2
    assert seen[0] == seen[1]


def make_unnamed(path: str) -> None:
    """Take the store back to before stores had ids."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("DROP TABLE identity")
    connection.execute("DROP TABLE signatures")
    connection.execute("ALTER TABLE journal DROP COLUMN signature")
    connection.execute("DELETE FROM migrations WHERE number > 2")
    connection.execute("PRAGMA user_version=2")
    connection.close()


@pytest.mark.parametrize("kept", ["memory", "sqlite"])
def test_a_pid_that_is_used_again_has_new_keys(tmp_path, kept):
    """A process whose pid was chosen, is forgotten, and is started again, pays again."""
    service = Charges()
    pays = _program(service)
    clock = SimClock(1_800_000_000.0)
    target = "memory" if kept == "memory" else str(tmp_path / "run.db")

    async def main():
        async with Kernel(target, clock, programs=[pays], retention_s=0.0) as kernel:
            for amount in (5, 70):
                process = await kernel.spawn(pays, amount, pid="daily")
                assert (await process.wait()).result == amount
                clock.advance(1.0)
                kernel.cleanup_process("daily")
                if kept == "sqlite":
                    await kernel._snapshots.write()

    run(main())
    assert len(set(service.keys)) == 2


def test_a_process_of_an_earlier_version_keeps_its_keys(path, monkeypatch):
    """A call in flight when the store was upgraded is made again under the key that the outside has seen; so are the
    calls after it, in every later life. A process that begins after the upgrade has the store's id in its keys."""
    monkeypatch.setenv("HOME", "")  # an earlier version signed nothing
    seen: dict[str, list[str]] = {}
    gate = {"open": False}

    def program():
        async def act(idempotency_key):
            key = GENERATION.sub(":", DIGEST.sub("", idempotency_key), count=1)
            seen.setdefault(key.rpartition(":")[0], []).append(key.rpartition(":")[2])
            while not gate["open"]:
                await asyncio.sleep(0.005)

        async def acts(ctx, times):
            for _ in range(times):
                await ctx.do(Effect(act, name="act", idempotent=True))

        acts.__qualname__ = "acts"
        return acts

    async def life(*, spawns: str = "", ends: bool = False) -> str:
        kernel = Kernel(path, programs=[(acts := program())])
        await kernel.start()
        gate["open"] = ends
        if spawns:
            await kernel.spawn(acts, 2, pid=spawns)
        await asyncio.sleep(0.1)
        if ends:
            for pid in ("old", "new"):
                await kernel.process(pid).wait()
        await kernel.close(drain_s=0.0)
        return kernel.core.store_id

    async def main():
        await life(spawns="old")
        make_unnamed(path)
        (first_key,) = seen
        seen.clear()
        store_id = await life(spawns="new")
        assert seen == {"old": ["0"], f"{store_id}:new~5": ["0"]}
        assert first_key.endswith(":old~1")
        seen.clear()
        assert await life(ends=True) == store_id
        assert seen == {"old": ["0", "1"], f"{store_id}:new~5": ["0", "1"]}

    run(main())


def test_an_upgraded_store_says_since_when_it_has_an_id(path):
    """Rows up to `since` are from before; opening it again changes neither."""
    from lyra.testing.conformance import records

    store = SqliteStore(path)
    store.append(records(1, 5), 0)
    store.close()
    make_unnamed(path)
    store = SqliteStore(path)
    identity = store.identity()
    store.append(records(6, 2), 0)
    store.close()
    assert identity.since == 5
    again = SqliteStore(path)
    assert again.identity() == identity
    again.close()


PAYER = """
import asyncio, os, signal, sqlite3, sys
from pathlib import Path
from lyra import Kernel, effect

ledger = Path(sys.argv[2])


@effect(name="charge", idempotent=True)
async def charge(amount: int, *, idempotency_key: str) -> int:
    paid = dict(line.split() for line in ledger.read_text().splitlines())
    if idempotency_key not in paid:
        with ledger.open("a") as file:
            file.write(f"{idempotency_key} {amount}\\n")
    if sys.argv[4] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    return int(paid.get(idempotency_key, amount))


async def payer(ctx):
    while True:
        amount = await ctx.receive()
        await ctx.do(charge, amount)


async def main():
    async with Kernel(sys.argv[1], programs=[payer]) as kernel:
        await kernel.spawn(payer, pid="payer")
        await kernel.send("payer", int(sys.argv[3]))
        await asyncio.sleep(0.02)
        if sys.argv[4].endswith(".db"):
            with sqlite3.connect(sys.argv[1]) as source, sqlite3.connect(sys.argv[4]) as copy:
                source.backup(copy)
            source.close(), copy.close()


asyncio.run(main())
"""


class Ledger:
    """Lives of a kernel in processes of their own, and the service that they pay by, which honours keys."""

    def __init__(self, path: str, tmp_path: Path) -> None:
        self.path = path
        self.file = tmp_path / "ledger"
        self.file.touch()

    def life(self, amount: int, *, killed: bool = False, backup: Path | None = None) -> None:
        words = [self.path, str(self.file), str(amount), "killed" if killed else str(backup)]
        done = subprocess.run(
            [sys.executable, "-c", PAYER, *words], capture_output=True, text=True, timeout=30, check=False
        )
        assert done.returncode == (-signal.SIGKILL if killed else 0), done.stderr

    @property
    def paid(self) -> list[int]:
        return [int(line.split()[1]) for line in self.file.read_text().splitlines()]


def test_a_key_is_not_used_for_another_request_after_a_kill(path, tmp_path):
    """Killed inside `ctx.do(charge, 1)` before the message that asked for it was acknowledged; the next life sends 70.
    The 70 are paid: the key has what is asked."""
    ledger = Ledger(path, tmp_path)
    ledger.life(1, killed=True)
    ledger.life(70)
    assert ledger.paid == [1, 70]


def test_a_call_that_was_killed_before_its_row_was_written_keeps_its_key(path, tmp_path):
    """The same request in the next life has the same key, so that it is paid once over three lives."""
    ledger = Ledger(path, tmp_path)
    for killed in (True, True, False):
        ledger.life(5, killed=killed)
    assert ledger.paid == [5]


@pytest.mark.parametrize("how", ["stopped", "running"])
def test_a_restored_backup_reuses_no_key(path, tmp_path, how):
    """A store that was copied while it was stopped, or by SQLite's backup beside a kernel that ran, and put back after
    the original had gone on: the next payment of the same amount has a key of its own."""
    ledger = Ledger(path, tmp_path)
    backup = tmp_path / "backup.db"
    ledger.life(1, backup=backup if how == "running" else None)
    if how == "stopped":
        shutil.copy(path, backup)
    ledger.life(5)
    for file in Path(path).parent.glob("run.db*"):
        file.unlink()
    shutil.copy(backup, path)
    ledger.life(5)
    assert ledger.paid == [1, 5, 5]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_each_opening_after_a_close_is_a_generation_of_its_own(kind, path, request):
    """After a kill the next kernel goes on in the generation of the killed one; after `close` it begins another."""
    target = path if kind == "sqlite" else request.getfixturevalue("postgres_url")

    async def main():
        seen, left = [], []
        for ends in ("killed", "killed", "closed", "closed"):
            kernel = Kernel(target)
            await kernel.start()
            seen.append(kernel.core.generation)
            if ends == "killed":  # neither the lease nor the log is put in order
                kernel._opening.ownership.stop()
                lease: Any = kernel._opening.ownership.lease
                kernel.journal.store.renew(lease, now=0.0, ttl_s=0.001)
                kernel.core.scheduler.stopped = True
                left.append(kernel.journal.store)
            else:
                await kernel.close()
        assert seen[0] == seen[1] == seen[2]
        assert seen[3] not in seen[:3]
        for store in left:
            store.close()

    run(main())


def test_a_call_of_a_version_whose_keys_had_no_generation_keeps_its_key(path):
    """In flight when Lyra was upgraded: made again under the key that the outside has seen, in every later life."""
    seen: list[str] = []
    gate = {"open": False}

    async def act(amount, idempotency_key):
        seen.append(idempotency_key)
        while not gate["open"]:
            await asyncio.sleep(0.005)

    async def acts(ctx):
        await ctx.do(Effect(act, name="act", idempotent=True), 1)
        await ctx.do(Effect(act, name="act", idempotent=True), 2)

    async def life(*, upgraded: bool, ends: bool = False) -> str:
        kernel = Kernel(path, programs=[acts])
        await kernel.start()
        if not upgraded:
            kernel.core.generation = ""
        gate["open"] = ends
        kernel.spawn(acts, pid="main")
        await asyncio.sleep(0.05)
        if ends:
            await kernel.process("main").wait()
        await kernel.close(drain_s=0.0)
        return kernel.core.store_id

    async def main():
        store_id = await life(upgraded=False)
        await life(upgraded=True)
        await life(upgraded=True, ends=True)
        assert seen[:3] == [f"{store_id}:main~1:0"] * 3
        assert seen[3].startswith(f"{store_id}.")
        assert len(seen) == 4

    run(main())
