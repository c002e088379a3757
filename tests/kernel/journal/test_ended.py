"""Ended processes that are put away: what a snapshot still reads, what callers still learn, and what a kill leaves."""

from __future__ import annotations

import threading

import msgspec
import pytest

from lyra.core.faultpoint import SimulatedCrash, intercept
from lyra.core.naming import PORTION
from lyra.errors import Corrupt, StoreError
from lyra.kernel import Kernel
from lyra.kernel.journal import rows, snapshots
from lyra.kernel.journal.history import Fold, encode_state
from lyra.store.ended import ENDED, Segment, SegmentList, encode_entry, leaves_of, load_all, segment_of
from lyra.store.protocol import Record
from lyra.store.sqlite import SqliteStore
from lyra.testing.clock import SimClock
from tests.kernel.conftest import Crash, crash, run, settle

CALLS: list[int] = []


async def act():
    return 1


async def works(ctx, number):
    CALLS.append(number)
    await ctx.do(act, cost="$0.01")
    return number


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Slices and segments of a size that a test can fill."""
    CALLS.clear()
    sizes = {"_ROWS_A_SLICE": 20, "_STATES_A_SLICE": 10, "_ENDED_KEPT": 5, "_SEGMENTS_A_LIST": 4}
    for name, size in sizes.items():
        monkeypatch.setattr(snapshots, name, size, raising=False)


async def ended(kernel, count):
    """Run as many processes to their end; every third has a pid that its caller chose."""
    for number in range(count):
        await kernel.run(works, number, **({"pid": f"job-{number}"} if number % 3 == 0 else {}))


def test_the_work_of_a_snapshot_does_not_grow_with_what_has_ended(path, monkeypatch):
    """However many processes have ended, a snapshot reads a few of their states, and no slice takes more than its
    share; a kernel that opens the store holds a few."""
    taken = []
    monkeypatch.setattr(Fold, "take_in", _counting(Fold.take_in, taken))
    monkeypatch.setattr(Fold, "add_all", _counting(Fold.add_all, taken))

    async def main():
        async with Kernel(path, programs=[works]) as kernel:
            sizes = []
            for _ in range(6):
                await ended(Counted(kernel, len(CALLS)), 40)
                await kernel._snapshots.write()
                states = kernel.journal.store.load_snapshots().states
                sizes.append(len([pid for pid in states if pid[0] != "~"]))
        assert max(sizes) <= 5 + 1
        assert max(taken) <= 20
        async with Kernel(path, programs=[works]) as kernel:
            assert len(kernel.processes) <= 5 + 1
            assert str(kernel.budget.used()) == "$2.40"
            assert len([pid for pid in load_all(kernel.journal.store).states if pid[0] != "~"]) == 240

    run(main())


def test_no_step_grows_with_the_segments(path, monkeypatch):
    """With four times as many ended processes a snapshot reads, signs, writes and looks through as many entries at once
    as before, but for one more level of lists."""
    touched = []

    def noted(store, seq, states, epoch, **options):
        touched.append(len(states))
        save(store, seq, states, epoch, **options)

    def loaded(store):
        snapshot = load(store)
        touched.append(len(snapshot.states))
        return snapshot

    save, load = SqliteStore.save_snapshots, SqliteStore.load_snapshots
    monkeypatch.setattr(SqliteStore, "save_snapshots", noted)
    monkeypatch.setattr(SqliteStore, "load_snapshots", loaded)

    async def main():
        async with Kernel(path, programs=[works]) as kernel:
            most = []
            for rounds in (4, 12):
                touched.clear()
                for _ in range(rounds):
                    await ended(Counted(kernel, len(CALLS)), 50)
                    await kernel._snapshots.write()
                    touched.append(len(kernel._snapshots.ended.segments))
                most.append(max(touched))
        assert len(CALLS) == 800
        assert most[1] <= most[0] + 4

    run(main())


def test_loose_segments_of_an_older_version_are_joined_some_at_a_time(path, monkeypatch):
    """A version that knew no lists left sixty segments: no snapshot rewrites more entries than its share, and a few
    snapshots later a few are left."""
    written = []
    save = SqliteStore.save_snapshots

    def noted(store, seq, states, epoch, **options):
        written.append(len([key for key in states if key.startswith(ENDED)]))
        save(store, seq, states, epoch, **options)

    async def main():
        with monkeypatch.context() as older:
            older.setattr(snapshots, "_SEGMENTS_A_LIST", 1_000)
            async with Kernel(path, programs=[works]) as kernel:
                await ended(kernel, 600)
                await kernel._snapshots.write()
        monkeypatch.setattr(SqliteStore, "save_snapshots", noted)
        monkeypatch.setattr(snapshots, "_ENTRIES_REMOVED_MAX", 20)
        async with Kernel(path, programs=[works]) as kernel:
            assert len(kernel._snapshots.ended.segments) >= 59
            for _ in range(10):
                await ended(Counted(kernel, len(CALLS)), 100)
                await kernel._snapshots.write()
            assert max(written) <= 40
            assert len(kernel._snapshots.ended.segments) <= 20
            assert (await kernel.process("job-300").wait()).result == 300

    run(main())


def test_an_old_process_is_found_through_few_blobs(path, monkeypatch):
    """Among eighty segments: one blob for each list on the way, and one with its state; none for a pid that was never
    used, chosen or given. In this life and in the next."""
    read = []
    get_blob = SqliteStore.get_blob

    def noted(store, digest):
        read.append(digest)
        return get_blob(store, digest)

    def asks(kernel, pid):
        states = kernel._snapshots.ended
        states._lists.clear()
        states._states.clear()
        read.clear()
        return states.find(pid) is not None, len(read)

    async def main():
        for life in range(2):
            async with Kernel(path, programs=[works]) as kernel:
                if life == 0:
                    await ended(kernel, 800)
                    await kernel._snapshots.write()
                    monkeypatch.setattr(SqliteStore, "get_blob", noted)
                assert max(segment.level for segment in kernel._snapshots.ended.segments.values()) == 3
                assert asks(kernel, "job-3") == (True, 2)
                assert asks(kernel, "job-5") == asks(kernel, "p999999999") == (False, 0)
                pids = sorted(load_all(kernel.journal.store).states, key=lambda pid: (len(pid), pid))
                found, blobs = asks(kernel, next(pid for pid in pids if pid[0] == "p"))
                assert found
                assert blobs <= 3 + 1
                assert (await kernel.process("job-300").wait()).result == 300

    run(main())


class Counted:
    """A kernel whose processes go on with the numbers of the last ones."""

    def __init__(self, kernel, first):
        self.kernel, self.first = kernel, first

    async def run(self, program, number, **options):
        if "pid" in options:
            options["pid"] = f"job-{self.first + number}"
        await self.kernel.run(program, self.first + number, **options)


def _counting(method, sizes):
    def counted(self, items):
        items = list(items)
        sizes.append(len(items))
        return method(self, items)

    return counted


def test_how_an_old_process_ended_is_read_from_the_store(path):
    """By a pid that the kernel gave or the caller chose, in this life and the next: the result, and no second run."""

    async def main():
        async with Kernel(path, programs=[works]) as kernel:
            pids = [handle.pid for handle in [kernel.spawn(works, number) for number in range(60)]]
            await kernel.run(works, 777, pid="chosen")
            await kernel.run(works, 1)
            await settle(kernel)
            await kernel._snapshots.write()
        del CALLS[:]
        async with Kernel(path, programs=[works]) as kernel:
            assert dict.get(kernel.processes, pids[3]) is None
            assert (await kernel.process(pids[3]).wait()).result == 3
            assert (await kernel.spawn(works, 778, pid="chosen").wait()).result == 777
            assert "nobody" not in kernel.processes
            assert kernel.processes[pids[3]].spent.usd == 10_000
            assert not CALLS

    run(main())


def test_asking_for_an_old_process_does_not_change_the_table(path):
    """A caller that goes through all processes may ask for others meanwhile, and gets one process for one pid."""

    async def main():
        async with Kernel(path, programs=[works]) as kernel:
            await ended(kernel, 30)
            await kernel._snapshots.write()
        async with Kernel(path, programs=[works]) as kernel:
            count = len(kernel.processes)
            for pid in kernel.processes:
                assert pid in kernel.processes
                assert kernel.processes["job-0"] is kernel.processes.get("job-0")
            assert len(kernel.processes) == count

    run(main())


@pytest.mark.parametrize(
    ("place", "visit"),
    [("snapshot.segment", 1), ("snapshot.segment", 4), ("snapshot.before", 0), ("snapshot.after", 0)],
)
def test_a_kill_between_two_slices_leaves_a_store_that_opens(path, place, visit):
    """Wherever the kernel dies while it writes a snapshot: every process is there once, and what was spent is spent."""

    async def main():
        kernel = Kernel(path, programs=[works])
        await kernel.start()
        await ended(kernel, 50)
        await kernel._snapshots.write()
        await ended(Counted(kernel, 50), 50)
        visits = iter(range(10))

        def die(name):
            if name == place and next(visits) == visit:
                raise SimulatedCrash(name)

        with intercept(die), pytest.raises(SimulatedCrash):
            await kernel._snapshots.write()
        crash(kernel)
        async with Crash(Kernel(path, programs=[works])) as kernel:
            assert str(kernel.budget.used()) == "$1.00"
            await kernel._snapshots.write()
            assert kernel.journal.store.check() == []
        async with Kernel(path, programs=[works]) as kernel:
            assert str(kernel.budget.used()) == "$1.00"
            assert (await kernel.process("job-53").wait()).result == 53
            assert len([pid for pid in load_all(kernel.journal.store).states if pid[0] != "~"]) == 100

    run(main())


def test_a_store_with_a_thread_of_its_own_is_read_in_that_thread(path, monkeypatch):
    """After a restart, too, a caller that asks how a process ended does not use the store beside its writer."""
    threads = []
    get_blob = SqliteStore.get_blob

    def noted(store, digest):
        threads.append(threading.current_thread())
        return get_blob(store, digest)

    async def main():
        async with Kernel(path, programs=[works], durability="power") as kernel:
            await ended(kernel, 30)
            await kernel._snapshots.write()
        monkeypatch.setattr(SqliteStore, "get_blob", noted)
        async with Kernel(path, programs=[works], durability="power") as kernel:
            assert (await kernel.process("job-3").wait()).result == 3

    run(main())
    assert threads
    assert threading.main_thread() not in threads


def test_segments_are_dropped_with_their_blobs_after_the_retention(path):
    """The pids that were chosen are free again, and the store does not grow."""

    async def main():
        clock = SimClock(1000.0)
        async with Kernel(path, clock, programs=[works], retention_s=10) as kernel:
            await ended(kernel, 60)
            await kernel._snapshots.write()
            store = kernel.journal.store
            assert [key for key in store.load_snapshots().states if key.startswith(ENDED)]
            assert store._ask("SELECT count(*) FROM blobs")[0][0] > 0
            clock.advance(60)
            await settle(kernel)
            await kernel._snapshots.write()
            assert store.load_snapshots().states.keys() == {"~root"}
            assert store._ask("SELECT count(*) FROM blobs") == [(0,)]
            assert "job-0" not in kernel.processes
            assert str(kernel.budget.used()) == "$0.60"

    run(main())


def test_lists_lose_their_old_segments_a_few_at_a_time(path, monkeypatch):
    """Half of the processes are older than the retention: they are gone with their blobs, no transaction drops many,
    and each of the others is found, in this life and in the next."""
    dropped = []
    save = SqliteStore.save_snapshots

    def noted(store, seq, states, epoch, **options):
        dropped.append(len(options.get("unneeded_blobs", ())))
        save(store, seq, states, epoch, **options)

    monkeypatch.setattr(SqliteStore, "save_snapshots", noted)

    async def main():
        clock = SimClock(1000.0)
        async with Kernel(path, clock, programs=[works], retention_s=100) as kernel:
            await ended(kernel, 204)
            await kernel._snapshots.write()
            clock.advance(60)
            await settle(kernel)
            await ended(Counted(kernel, 204), 204)
            await kernel._snapshots.write()
            clock.advance(60)
            await settle(kernel)
            await kernel._snapshots.write()
            assert max(dropped) <= 4 + 3  # and the lists above them
            assert sum(dropped) >= 20
            assert {pid for pid in ("job-0", "job-150", "job-207", "job-300") if pid in kernel.processes} == {
                "job-207",
                "job-300",
            }
        async with Kernel(path, clock, programs=[works], retention_s=100) as kernel:
            store = kernel.journal.store
            left = load_all(store).states
            assert len([pid for pid in left if pid[0] != "~"]) == 204 + 5
            assert (await kernel.process("job-207").wait()).result == 207
            assert "job-150" not in kernel.processes
            assert store.check() == []
            assert str(kernel.budget.used()) == "$4.08"
            clock.advance(200)
            await settle(kernel)
            await kernel._snapshots.write()
            assert store.load_snapshots().states.keys() == {"~root"}
            assert store._ask("SELECT count(*) FROM blobs") == [(0,)]

    run(main())


def test_a_kill_while_old_segments_are_dropped_leaves_the_others(path):
    """It dies with a shorter list that the snapshot does not name yet: all is there, and dropped by the next one."""

    async def main():
        clock = SimClock(1000.0)
        kernel = Kernel(path, clock, programs=[works], retention_s=100)
        await kernel.start()
        await ended(kernel, 60)
        clock.advance(60)
        await settle(kernel)
        await ended(Counted(kernel, 60), 120)
        await kernel._snapshots.write()
        clock.advance(60)
        await settle(kernel)

        def die(name):
            if name == "snapshot.segment":
                raise SimulatedCrash(name)

        with intercept(die), pytest.raises(SimulatedCrash):
            await kernel._snapshots.write()
        crash(kernel)
        async with Crash(Kernel(path, clock, programs=[works], retention_s=100)) as kernel:
            assert kernel._snapshots.ended.find("job-0") is not None
            await kernel._snapshots.write()
            assert kernel._snapshots.ended.find("job-0") is None
            assert (await kernel.process("job-63").wait()).result == 63
            assert kernel.journal.store.check() == []

    run(main())


def test_a_list_that_is_none_is_damage(path):
    """Levels have to go down: a list that says otherwise is refused, however deep it claims to be."""
    store = SqliteStore(path)
    segment = Segment.describe("0" * 64, ["p1"], ended_at=1.0)
    content = SegmentList.from_segments([segment])
    entry = content.entry(store.put_blob(content.pack()))
    assert [leaf.digest for leaf in leaves_of(store.get_blob, entry)] == ["0" * 64]
    with pytest.raises(Corrupt, match="not of level 2"):
        list(leaves_of(store.get_blob, msgspec.structs.replace(entry, level=2)))
    with pytest.raises(Corrupt, match="cannot be read"):
        segment_of(encode_entry(msgspec.structs.replace(entry, level=10)))
    with pytest.raises(Corrupt, match="cannot be read"):
        list(leaves_of(store.get_blob, msgspec.structs.replace(entry, digest=store.put_blob(b"none"))))
    store.close()


async def pays(ctx):
    await ctx.sleep(10)
    await ctx.do(act, cost="$0.40")


async def leaves_one_behind(ctx):
    await ctx.spawn(pays)


async def has_a_budget(ctx):
    await ctx.spawn(leaves_one_behind)
    await ctx.checkpoint(None)
    await ctx.sleep(1_000)


def test_a_budget_keeps_what_was_spent_below_a_process_that_ended_first(path):
    """The process in between was the first to end, and its states are put away: the budget above them is as used after
    a restart as before it."""

    async def main():
        clock, programs = SimClock(1000.0), [works, pays, leaves_one_behind, has_a_budget]
        async with Kernel(path, clock, programs=programs) as kernel:
            top = kernel.spawn(has_a_budget, budget="$1", pid="top")
            await settle(kernel)
            await ended(kernel, 3)
            clock.advance(20)
            await settle(kernel)
            await ended(Counted(kernel, 3), 3)
            assert str(top.budget.used()) == "$0.40"
            await kernel._snapshots.write()
        async with Kernel(path, clock, programs=programs) as kernel:
            assert str(kernel.process("top").budget.used()) == "$0.40"

    run(main())


def _created(seq, pid, **fields):
    return Record(seq, 1.0, pid, "process.created", rows.encode(rows.Created("p", **fields)))


def _ended(seq, pid):
    return Record(seq, 2.0, pid, "process.terminated", rows.encode(rows.Terminated("normal")))


def _paid(seq, pid, usd):
    return Record(seq, 1.5, pid, "effect.finished", rows.encode(rows.Finished(seq, usage={"usd": usd}, name="act")))


def test_what_those_below_spent_counts_for_the_living_above_them():
    """A child and a grandchild end and are put away together: their spending counts for the process that lives."""
    fold = Fold()
    fold.add_all([_created(1, "top"), _created(2, "mid", parent="top"), _created(3, "low", parent="mid")])
    fold.add_all([_paid(4, "low", 7), _paid(5, "mid", 2), _ended(6, "low"), _ended(7, "mid")])
    assert set(fold.put_away(keep=0)) == {"low", "mid"}
    assert fold.processes["top"].spent == {"usd": 9}
    assert fold.spent == {}


def _family():
    """A living process, its child and a grandchild, which end in this order, and one that nothing is above."""
    return [
        *(_created(1, "top"), _created(2, "mid", parent="top"), _created(3, "low", parent="mid"), _created(4, "alone")),
        *(_paid(5, "top", 1), _paid(6, "mid", 2), _paid(7, "low", 4), _paid(8, "alone", 8)),
        *(_ended(9, "mid"), _ended(10, "low"), _ended(11, "alone")),
    ]


def test_a_snapshot_with_what_was_put_away_is_the_fold_of_its_rows():
    """A reader of all of it finds each process as its rows tell it: what it spent is its own, and counts once."""
    whole = Fold()
    whole.add_all(_family())
    fold = Fold()
    fold.add_all(_family())
    away = fold.put_away(keep=0)
    assert set(away) == {"mid", "low", "alone"}
    states = {pid: data for pid, data in fold.dump().items() if data is not None}
    kept = Fold.load(fold.seq, states)
    assert (kept.processes["top"].spent, kept.spent) == ({"usd": 7}, {"usd": 8})
    everything = Fold.load(fold.seq, states | {pid: encode_state(state) for pid, state in away.items()})
    assert everything.processes == whole.processes
    assert everything.spent == whole.spent == {}


def test_what_a_process_lent_moves_with_what_it_spent():
    """To the one above when it is put away, also of a row that comes later, and back in a reader of all of it."""
    lent = [
        record._replace(data=rows.encode(rows.Finished(f"aside:{record.seq}", usage={"usd": 4}, name=PORTION)))
        for record in (_paid(7, "low", 0), _paid(12, "mid", 0))
    ]
    fold = Fold()
    fold.add_all([*_family()[:6], lent[0], *_family()[8:]])
    away = fold.put_away(keep=0)
    fold.find_ended = away.get
    fold.add(lent[1])
    assert (fold.processes["top"].spent, fold.processes["top"].lent) == ({"usd": 11}, {"usd": 8})
    states = {pid: data for pid, data in fold.dump().items() if data is not None}
    everything = Fold.load(fold.seq, states | {pid: encode_state(state) for pid, state in away.items()}).processes
    assert {pid: (state.spent, state.lent or {}) for pid, state in everything.items()} == {
        "top": ({"usd": 5}, {"usd": 4}),
        "mid": ({"usd": 2}, {}),
        "low": ({"usd": 4}, {"usd": 4}),
        "alone": ({}, {}),
    }


def test_a_process_stays_as_long_as_one_below_it():
    """One that ended before its child is neither put away nor forgotten first: what the child spent counts in the
    budgets above both."""
    fold = Fold()
    fold.add_all(_family()[:-1])
    assert fold.put_away(keep=1) == {}
    assert set(fold.put_away(keep=0)) == {"mid", "low"}
    assert fold.processes["top"].spent == {"usd": 7}
    fold = Fold()
    late = _ended(10, "low")._replace(time=50.0)
    fold.add_all([*_family()[:9], late])
    list(fold.dump_in_slices(10, forget_before=10.0))
    assert set(fold.processes) == {"top", "mid", "low", "alone"}
    list(fold.dump_in_slices(10, forget_before=60.0))
    assert (set(fold.processes), fold.processes["top"].spent) == ({"top", "alone"}, {"usd": 7})


def test_a_late_effect_counts_for_the_nearest_process_that_is_left():
    """Its process was put away, and the one above it too: the row is paid for by the one above both."""
    fold = Fold()
    fold.add_all(_family())
    fold.find_ended = fold.put_away(keep=0).get
    fold.add(_paid(12, "low", 16))
    assert (fold.processes["top"].spent, fold.spent) == ({"usd": 23}, {"usd": 8})


def test_an_effect_that_ends_after_its_process_was_put_away_is_paid_for():
    """Its row counts for the process above it, or for the kernel; a row about a process that never was is damage."""
    fold = Fold()
    fold.add_all([_created(1, "x"), _ended(2, "x")])
    away = fold.put_away(keep=0)
    fold.find_ended = away.get
    fold.add(_paid(3, "x", 5))
    assert fold.spent == {"usd": 5}
    assert "x" not in fold.dump()
    with pytest.raises(Corrupt, match="never created"):
        fold.add(_paid(4, "y", 5))


def test_segments_of_a_newer_lyra_are_told_as_such(path):
    """A part of a snapshot under a name that this version does not write is no damage: the error says to upgrade."""
    store = SqliteStore(path)
    lease = store.acquire("other", now=1.0, ttl_s=1.0)
    store.append([Record(1, 1.0, "p1", "process.created", rows.encode(rows.Created("p")))], lease.epoch)
    store.save_snapshots(1, {"~ended2/00000001": b"\x93\x01\x02\x03"}, lease.epoch)
    store.release(lease)
    store.close()

    async def main():
        with pytest.raises(StoreError, match="written by a newer Lyra") as caught:
            async with Kernel(path):
                pass
        assert not isinstance(caught.value, Corrupt)
        assert "upgrade" in (caught.value.hint or "")

    run(main())
