"""When the store fails: the named error, nothing acknowledged lost, nothing half done."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import time
from typing import Any

import pytest

from lyra.core.effect import effect
from lyra.core.policies.retry import Retry
from lyra.errors import ConfigError, Corrupt, StoreError, StoreFull
from lyra.kernel import Kernel
from lyra.store.memory import MemoryStore
from lyra.store.sqlite import SqliteStore
from tests.kernel.conftest import pass_time, run, settle


class Failing(MemoryStore):
    """A store that refuses to append while `error` is set."""

    error: StoreError | None = None

    def append(self, records, epoch):
        if self.error is not None:
            raise self.error
        super().append(records, epoch)


async def act(value):
    return value


async def adds(ctx):
    total = 0
    while True:
        message = await ctx.receive()
        if message is None:
            return total
        total += await ctx.do(act, message)


def test_a_full_disk_holds_everything_and_loses_nothing(clock):
    """Full: callers get StoreFull, processes stand still. Room again: everything goes on where it was."""
    store = Failing()

    async def main():
        seen = []
        async with Kernel(store, clock) as kernel:
            kernel.on_event(lambda event: seen.append(event.kind))
            handle = await kernel.spawn(adds)
            await kernel.send(handle, 1)
            store.error = StoreFull("no room")
            with pytest.raises(StoreFull):
                await kernel.send(handle, 2)
            with pytest.raises(StoreFull):
                await kernel.send(handle, 3)
            rows = store.last_seq()
            steps = kernel.scheduler.steps
            await pass_time(kernel, clock, 5)
            assert store.last_seq() == rows
            assert kernel.scheduler.steps == steps
            assert "store.full" in seen
            store.error = None
            await pass_time(kernel, clock, 2)
            await kernel.send(handle, None)
            assert (await handle.wait()).result == 6

    run(main())


def test_a_really_full_database(path, clock):
    """The same with SQLite's own limit on pages: StoreFull, then on."""

    async def main():
        async with Kernel(path, clock) as kernel:
            handle = await kernel.spawn(adds)
            connection = kernel.journal.store._connection
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            connection.execute(f"PRAGMA max_page_count = {pages}")
            with pytest.raises(StoreFull):
                for number in range(10_000):
                    await kernel.send(handle, number)
                    await settle(kernel)
            connection.execute("PRAGMA max_page_count = 1000000")
            await pass_time(kernel, clock, 2)
            await kernel.send(handle, None)
            ended = await handle.wait()
            assert ended.result > 0
            assert kernel.journal.store.check() == []

    run(main())


def test_a_call_that_found_no_room_stands_and_says_so(path, clock):
    """On a full SQLite file `spawn`, `send` and `kill` raise StoreFull that says that the call stands and how to ask:
    awaited again, the same handle and acknowledgement tell when it is stored, and each call was carried out once."""
    letters = []

    @effect(idempotent=True)
    async def post(letter):
        letters.append(letter)

    async def mail(ctx):
        while True:
            await ctx.do(post, await ctx.receive())

    async def main():
        async with Kernel(path, clock) as kernel:
            first = await kernel.spawn(mail)
            connection = kernel.journal.store._connection
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            connection.execute(f"PRAGMA max_page_count = {pages}")
            calls: list[Any] = [
                kernel.send(first, "a" * 40_000),
                kernel.spawn(mail, pid="second"),
                kernel.send("second", "b"),
            ]
            for call in (*calls, kernel.durable()):
                with pytest.raises(StoreFull, match="not stored yet, and is carried out when there is room") as full:
                    await call
                assert full.value.stands
                assert "do not repeat" in str(full.value.hint)
                assert not Retry.of(3).should_retry(full.value, 1)
                assert "nothing was written" not in str(full.value)
            connection.execute("PRAGMA max_page_count = 1000000")
            await pass_time(kernel, clock, 2)
            for call in calls:
                await call
            await settle(kernel)
            assert sorted(letter[:1] for letter in letters) == ["a", "b"]

    run(main())


def test_a_large_result_that_finds_no_room_is_no_failure(path, clock):
    """An effect that was performed has its value, however large, once there is room: the program does not see an error
    after which it would pay again."""
    paid, room = [], []

    async def pay():
        paid.append(1)
        room[0].execute("PRAGMA max_page_count = 1")  # SQLite takes the pages that there are
        return "r" * 200_000

    async def program(ctx):
        receipt = await ctx.do(pay)
        await ctx.checkpoint({"receipt": receipt})
        return len(receipt)

    async def main():
        async with Kernel(path, clock) as kernel:
            room.append(kernel.journal.store._connection)
            handle = kernel.spawn(program)
            await settle(kernel)
            assert paid == [1]
            room[0].execute("PRAGMA max_page_count = 1000000")
            await pass_time(kernel, clock, 2)
            ended = await handle.wait()
            assert (ended.error, ended.result, paid) == (None, 200_000, [1])

    run(main())


def test_any_other_store_error_ends_the_kernel(clock):
    """A damaged or lost store: the kernel stops at once and everybody who waits is told."""
    store = Failing()

    async def main():
        kernel = Kernel(store, clock)
        await kernel.start()
        handle = await kernel.spawn(adds)
        waiting = asyncio.ensure_future(handle.wait())
        await settle(kernel)
        store.error = Corrupt("bits fell out")
        with pytest.raises(Corrupt):
            await kernel.send(handle, 1)
        with pytest.raises(Corrupt):
            await waiting
        with pytest.raises(Corrupt):
            kernel.send(handle, 2)
        with pytest.raises(Corrupt):
            kernel.kill(handle)
        with pytest.raises(Corrupt):
            kernel.spawn(adds)
        await kernel.close()
        store.error = None
        async with Kernel(store, clock, programs=[adds]) as again:
            await again.send(handle.pid, None)
            assert (await again.process(handle.pid).wait()).result == 0

    run(main())


def test_foreign_and_damaged_files(tmp_path):
    """A file that is not ours is refused with a hint and left as it was."""
    text = tmp_path / "notes.txt"
    text.write_text("not a database\n" * 100)
    other = tmp_path / "other.db"
    with contextlib.closing(sqlite3.connect(other)) as connection, connection:
        connection.execute("CREATE TABLE t (a)")
    connection.close()
    folder = tmp_path / "folder"
    folder.mkdir()

    async def main():
        for path in (text, other, folder):
            before = path.read_bytes() if path.is_file() else None
            with pytest.raises(StoreError) as refused:
                async with Kernel(str(path)):
                    pass
            assert refused.value.hint
            assert before is None or path.read_bytes() == before

    run(main())


def test_unknown_targets():
    """A URL of an unknown scheme and a durability that does not exist are configuration errors."""

    async def main():
        with pytest.raises(ConfigError, match="redis"):
            await Kernel("redis://localhost").start()
        with pytest.raises(ConfigError, match="durability"):
            await Kernel("x.db", durability="forever").start()

    run(main())


@pytest.mark.parametrize("durability", ["process", "power"])
def test_both_durabilities_do_the_same(path, durability):
    """`power` commits in the writer's thread and waits for the disk; programs see no difference."""

    async def program(ctx):
        results = await asyncio.gather(*(ctx.do(act, number) for number in range(20)))
        await ctx.checkpoint("x" * 100_000)
        return results

    async def main():
        async with Kernel(path, durability=durability, snapshot_every_events=20) as kernel:
            handles = [kernel.spawn(program) for _ in range(5)]
            for handle in handles:
                assert (await handle.wait()).result == list(range(20))
            with pytest.raises(StoreError):
                await Kernel(path, durability=durability).start()
        async with Kernel(path, durability=durability) as kernel:
            assert kernel.live == 0
            assert kernel.journal.store.check() == []

    run(main())


def test_a_store_is_given_back_after_the_call_that_still_uses_it(path):
    """A call that was given up goes on in the writer's thread: the lease is released after it, not beside it."""
    order = []

    class SlowStore(SqliteStore):
        def load_snapshots(self):
            snapshot = super().load_snapshots()
            if order:
                entered.set()
                time.sleep(0.3)
                order.append("read")
            return snapshot

        def release(self, lease):
            order.append("released")
            super().release(lease)

    entered = threading.Event()
    store = SlowStore(path, durability="power")

    async def main():
        kernel = Kernel(store)
        await kernel.start()
        order.append("opened")
        reading = asyncio.ensure_future(kernel.core.call(store.load_snapshots))
        while not entered.is_set():
            await asyncio.sleep(0.01)
        reading.cancel()
        await kernel.close(snapshot=False)

    run(main())
    store.close()
    assert order == ["opened", "read", "released"]
