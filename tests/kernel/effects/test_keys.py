"""Idempotency keys: no two stores share one, and a call has the same one in every life of its store."""

from __future__ import annotations

import asyncio
import sqlite3

import pytest

from lyra import Effect
from lyra.kernel import Kernel
from lyra.store.memory import MemoryStore
from lyra.store.space import Space
from lyra.store.sqlite import SqliteStore
from lyra.testing import SimClock
from tests.kernel.conftest import run
from tests.store.conftest import postgres_server, postgres_url  # noqa: F401 - fixtures


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
            seen.setdefault(idempotency_key.rpartition(":")[0], []).append(idempotency_key.rpartition(":")[2])
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
