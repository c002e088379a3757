"""What every Store has to do, as a test class for people who write one.

    import pytest
    from lyra.testing.conformance import StoreConformance

    class TestMyStore(StoreConformance):
        @pytest.fixture(autouse=True)
        def place(self, tmp_path):
            self.path = tmp_path / "my.store"

        def make_store(self):
            return MyStore(self.path)

        def another(self, store):
            return MyStore(self.path)

Each test's docstring is the promise it shows. `make_store` gives an empty store and is called once a test; `another`
opens the same place a second time beside it; `reopen` closes and opens it (override it where that needs more).
Nothing here imports pytest: any runner that calls `setup_method`, the `test_…` methods and `teardown_method` will do.
The promises in words are in `lyra.store.protocol`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from lyra.errors import Conflict, LyraError, StoreError
from lyra.store.protocol import Lease, Record, Snapshot, Store
from lyra.store.rows import PAGE_BATCHES, ROWS_MAX, blob_digest

E = TypeVar("E", bound=LyraError)


def records(first: int, count: int, *, time: float = 100.0, pid: str = "p-1", kind: str = "note") -> list[Record]:
    """`count` rows from `first` on, each different from every other."""
    return [Record(seq, time + seq, pid, kind, b"row %d" % seq) for seq in range(first, first + count)]


def raises(expected: type[E], action: Callable[..., Any], *args: Any, **settings: Any) -> E:
    """Return the error that `action` raised; an AssertionError when it raised none."""
    try:
        action(*args, **settings)
    except expected as error:
        return error
    raise AssertionError(f"{expected.__name__} was not raised")


class StoreConformance:
    """Subclass it, name it `Test…`, and give `make_store` and `another`."""

    # ------------------------------------------------------------ what you give
    def make_store(self) -> Store:
        raise NotImplementedError("make_store() has to return a new, empty store")

    def another(self, store: Store) -> Store:
        raise NotImplementedError("another(store) has to open the same place a second time")

    def reopen(self, store: Store) -> Store:
        store.close()
        return self._track(self.another(store))

    # ------------------------------------------------------------ housekeeping
    def setup_method(self) -> None:
        self._stores: list[Store] = []

    def teardown_method(self) -> None:
        for store in self._stores:
            store.close()

    def _track(self, store: Store) -> Store:
        self._stores.append(store)
        return store

    def fresh(self) -> Store:
        return self._track(self.make_store())

    def owned(self) -> tuple[Store, int]:
        store = self.fresh()
        return store, store.acquire("owner-1", now=0.0, ttl_s=30.0).epoch

    def filled(self, count: int) -> tuple[Store, int]:
        store, epoch = self.owned()
        store.append(records(1, count), epoch)
        return store, epoch

    # ------------------------------------------------------------ the shape
    def test_it_is_a_store(self) -> None:
        """It has every method of the protocol, says where it is, and says whether appends are quick."""
        store = self.fresh()
        assert isinstance(store, Store)
        assert store.location
        assert store.inline in (True, False)

    def test_a_new_store_is_empty(self) -> None:
        """A new store has no rows, no states and no owner, and is sound."""
        store = self.fresh()
        assert (store.first_seq(), store.last_seq(), list(store.read())) == (1, 0, [])
        assert store.load_snapshots() == Snapshot(0, {})
        assert store.holder() is None
        assert store.check() == []

    def test_its_id_is_its_own_and_made_once(self) -> None:
        """Two stores have two ids; the one of a store stays when it is opened again and when its owner changes."""
        store, _ = self.filled(3)
        identity = store.identity()
        assert identity.id
        assert identity.since == 0
        store.acquire("owner-2", now=100.0, ttl_s=30.0)
        assert self._track(self.another(store)).identity() == identity
        assert self.reopen(store).identity() == identity

    # ------------------------------------------------------------ journal
    def test_rows_come_back_as_they_were(self) -> None:
        """Every value of a row comes back equal and of its type: text, odd bytes, nothing, much, old and far times."""
        store, epoch = self.owned()
        rows = [
            Record(1, 0.0, "", "", b""),
            Record(2, -1.5, "p-ü", "kind.with.dots", bytes(range(256))),
            Record(3, 1e300, "p" * 500, "k" * 500, b"\0" * 300_000),
            Record(4, 1_700_000_000.123457, "p-1", "𝔨", b"\xff\xfe"),
        ]
        store.append(rows, epoch)
        rows_read = list(store.read())
        assert rows_read == rows
        assert {type(row) for row in rows_read} == {Record}
        assert {type(row.data) for row in rows_read} == {bytes}

    def test_plain_tuples_are_rows(self) -> None:
        """A batch of plain tuples is as good as one of Records."""
        store, epoch = self.owned()
        store.append([(1, 1.0, "p", "k", b"d")], epoch)
        assert list(store.read()) == [Record(1, 1.0, "p", "k", b"d")]

    def test_rows_are_dense_and_in_order(self) -> None:
        """Batches of any size follow one another without a hole."""
        store, epoch = self.owned()
        first = 1
        for count in (1, 2, 1, ROWS_MAX, 3, 2 * ROWS_MAX + 1):
            store.append(records(first, count), epoch)
            first += count
        assert [row.seq for row in store.read()] == list(range(1, first))
        assert (store.first_seq(), store.last_seq()) == (1, first - 1)

    def test_an_empty_batch_changes_nothing(self) -> None:
        """Nothing to append is fine for the owner and a Conflict for every other writer."""
        store, epoch = self.filled(2)
        store.append([], epoch)
        raises(Conflict, store.append, [], epoch + 1)
        assert store.last_seq() == 2

    def test_a_wrong_first_seq_is_a_conflict(self) -> None:
        """A batch that does not follow the last row is refused whole."""
        store, epoch = self.filled(3)
        for first in (-1, 0, 1, 3, 5, 100):
            raises(Conflict, store.append, records(first, 2), epoch)
        assert list(store.read()) == records(1, 3)

    def test_a_batch_with_a_hole_is_a_conflict(self) -> None:
        """A batch that is not dense in itself is refused whole."""
        store, epoch = self.filled(3)
        for order in ((4, 6), (4, 4), (4, 5, 7), (4, 3), (4, 6, 5), (5, 4)):
            batch = [records(seq, 1)[0] for seq in order]
            raises(Conflict, store.append, batch, epoch)
        assert list(store.read()) == records(1, 3)

    def test_the_store_goes_on_after_a_conflict(self) -> None:
        """A refused batch leaves nothing behind that the next one stumbles over."""
        store, epoch = self.filled(3)
        raises(Conflict, store.append, records(9, 1), epoch)
        raises(Conflict, store.append, records(4, 1), epoch + 7)
        store.append(records(4, 2), epoch)
        assert list(store.read()) == records(1, 5)

    def test_reading_a_range(self) -> None:
        """`after` is exclusive, `upto` inclusive, and a range outside the journal is empty."""
        store, _ = self.filled(10)

        def seqs(**settings: Any) -> list[int]:
            return [row.seq for row in store.read(**settings)]

        assert seqs(after=3, upto=6) == [4, 5, 6]
        assert seqs(after=9) == [10]
        assert seqs(upto=2) == [1, 2]
        assert seqs(after=-5, upto=1) == [1]
        assert seqs(after=10) == seqs(after=50) == seqs(after=6, upto=6) == seqs(upto=0) == []
        assert seqs(upto=99) == list(range(1, 11))

    def test_reading_by_process_and_kind(self) -> None:
        """Filters choose rows by pid, by kind or by both, in order."""
        store, epoch = self.owned()
        rows = [Record(seq, 1.0, f"p-{seq % 3}", "ab"[seq % 2], b"") for seq in range(1, 31)]
        store.append(rows, epoch)
        assert list(store.read(pid="p-1")) == [row for row in rows if row.pid == "p-1"]
        assert list(store.read(kind="a")) == [row for row in rows if row.kind == "a"]
        assert list(store.read(pid="p-2", kind="b", after=9)) == [
            row for row in rows if row.pid == "p-2" and row.kind == "b" and row.seq > 9
        ]
        assert list(store.read(pid="no-such-pid")) == []

    def test_reading_while_appending(self) -> None:
        """A reader sees the rows that were there when it began; appends continue beside it."""
        store, epoch = self.filled(ROWS_MAX + 10)
        reader = iter(store.read())
        assert next(reader).seq == 1
        store.append(records(ROWS_MAX + 11, 5), epoch)
        assert [row.seq for row in reader] == list(range(2, ROWS_MAX + 11))
        assert store.last_seq() == ROWS_MAX + 15

    def test_rows_survive_reopening(self) -> None:
        """Rows of an append that has returned are there when the store is opened again."""
        store, epoch = self.filled(7)
        again = self.reopen(store)
        assert list(again.read()) == records(1, 7)
        again.append(records(8, 1), epoch)
        assert again.last_seq() == 8

    # ------------------------------------------------------------ two at once
    def test_two_openers_see_one_journal(self) -> None:
        """Rows that one opener appended are read, and continued, by the other."""
        store, epoch = self.filled(3)
        other = self._track(self.another(store))
        assert list(other.read()) == records(1, 3)
        other.append(records(4, 2), epoch)
        store.append(records(6, 1), epoch)
        assert list(store.read()) == list(other.read()) == records(1, 6)

    def test_an_opener_that_is_behind_meets_a_conflict(self) -> None:
        """An append after rows that another opener wrote in between is refused."""
        store, epoch = self.filled(3)
        other = self._track(self.another(store))
        other.append(records(4, 2), epoch)
        raises(Conflict, store.append, records(4, 1, kind="late"), epoch)
        assert list(store.read()) == records(1, 5)

    def test_an_opener_that_missed_a_compaction_meets_a_conflict(self) -> None:
        """Also when the rows that it would collide with are already dropped."""
        store, epoch = self.filled(3)
        other = self._track(self.another(store))
        other.append(records(4, 2), epoch)
        other.save_snapshots(5, {}, epoch)
        assert other.compact(before=1e9, epoch=epoch) == 5
        raises(Conflict, store.append, records(4, 1), epoch)
        assert (store.first_seq(), store.last_seq()) == (6, 5)

    def test_a_new_owner_fences_the_old_one(self) -> None:
        """Once a lease is taken over, nothing the old owner does changes the store."""
        store, old = self.filled(3)
        other = self._track(self.another(store))
        new = other.acquire("owner-2", now=30.0, ttl_s=30.0).epoch
        assert new > old
        fenced = raises(Conflict, store.append, records(4, 1), old)
        assert fenced.fields["owner"] == "owner-2"
        raises(Conflict, store.save_snapshots, 3, {"p-1": b"s"}, old)
        raises(Conflict, store.compact, before=1e9, epoch=old)
        other.append(records(4, 1), new)
        assert list(store.read()) == records(1, 4)
        assert store.load_snapshots() == Snapshot(0, {})

    # ------------------------------------------------------------ lease
    def test_a_store_without_an_owner_has_epoch_zero(self) -> None:
        """Before the first lease the newest epoch is 0, so tools can write a store that no kernel owns."""
        store = self.fresh()
        store.append(records(1, 1), 0)
        raises(Conflict, store.append, records(2, 1), 1)
        assert store.last_seq() == 1

    def test_a_running_lease_keeps_others_out(self) -> None:
        """While a lease runs it cannot be acquired, by its own owner either; the error has the owner and the end."""
        store = self.fresh()
        lease = store.acquire("owner-1", now=100.0, ttl_s=30.0)
        assert lease == Lease("owner-1", 1, 130.0)
        assert store.holder() == lease
        for owner in ("owner-2", "owner-1"):
            error = raises(Conflict, store.acquire, owner, now=129.999, ttl_s=30.0)
            assert (error.fields["owner"], error.fields["expires_at"]) == ("owner-1", 130.0)
        assert store.holder() == lease

    def test_a_lease_ends_at_its_time(self) -> None:
        """At `expires_at` exactly the store is free, and the epoch grows."""
        store = self.fresh()
        store.acquire("owner-1", now=100.0, ttl_s=30.0)
        assert store.acquire("owner-2", now=130.0, ttl_s=5.0) == Lease("owner-2", 2, 135.0)

    def test_renewing(self) -> None:
        """The newest owner renews, also when late, and its epoch stays; a fenced one meets a Conflict."""
        store = self.fresh()
        lease = store.acquire("owner-1", now=0.0, ttl_s=30.0)
        lease = store.renew(lease, now=20.0, ttl_s=30.0)
        assert lease == store.holder() == Lease("owner-1", 1, 50.0)
        lease = store.renew(lease, now=60.0, ttl_s=30.0)
        newer = store.acquire("owner-2", now=90.0, ttl_s=30.0)
        error = raises(Conflict, store.renew, lease, now=91.0, ttl_s=30.0)
        assert (error.fields["owner"], error.fields["expires_at"]) == ("owner-2", 120.0)
        assert store.holder() == newer

    def test_releasing(self) -> None:
        """A released store is free at once; the epoch is not forgotten and a released lease cannot be renewed."""
        store = self.fresh()
        lease = store.acquire("owner-1", now=0.0, ttl_s=30.0)
        store.release(lease)
        assert store.holder() is None
        raises(Conflict, store.renew, lease, now=1.0, ttl_s=30.0)
        assert store.acquire("owner-2", now=1.0, ttl_s=30.0).epoch == 2

    def test_releasing_what_is_lost_is_harmless(self) -> None:
        """An old owner that releases late does not end the new one's lease."""
        store = self.fresh()
        old = store.acquire("owner-1", now=0.0, ttl_s=30.0)
        new = store.acquire("owner-2", now=30.0, ttl_s=30.0)
        store.release(old)
        assert store.holder() == new

    def test_the_lease_survives_reopening(self) -> None:
        """Owner, epoch and time are kept: closing a store does not free it."""
        store = self.fresh()
        lease = store.acquire("owner-1", now=0.0, ttl_s=30.0)
        again = self.reopen(store)
        assert again.holder() == lease
        raises(Conflict, again.acquire, "owner-2", now=1.0, ttl_s=30.0)

    # ------------------------------------------------------------ snapshots
    def test_snapshots_are_replaced_and_removed(self) -> None:
        """States of the named pids change together with the seq; all others stay."""
        store, epoch = self.filled(9)
        store.save_snapshots(3, {"a": b"1", "b": b"2", "c": b""}, epoch)
        store.save_snapshots(5, {"a": b"3", "b": None, "never": None}, epoch)
        assert store.load_snapshots() == Snapshot(5, {"a": b"3", "c": b""})
        store.save_snapshots(9, {}, epoch)
        assert self.reopen(store).load_snapshots() == Snapshot(9, {"a": b"3", "c": b""})

    def test_many_snapshots_at_once(self) -> None:
        """A thousand processes and more are saved in one go."""
        store, epoch = self.filled(1)
        states: dict[str, bytes | None] = {f"p-{number}": b"%d" % number for number in range(1200)}
        store.save_snapshots(1, states, epoch)
        assert store.load_snapshots() == Snapshot(1, {pid: data for pid, data in states.items() if data is not None})
        store.save_snapshots(1, dict.fromkeys(states), epoch)
        assert store.load_snapshots() == Snapshot(1, {})
        assert store.check() == []

    def test_a_snapshot_takes_blobs_along(self) -> None:
        """Blobs that only the former states named go in the transaction that replaces those; a refused one keeps them,
        and one that is not there is no error."""
        store, epoch = self.filled(5)
        kept, gone = store.put_blob(b"kept"), store.put_blob(b"gone")
        raises(Conflict, store.save_snapshots, 6, {}, epoch, unneeded_blobs=[gone])
        assert store.get_blob(gone) == b"gone"
        store.save_snapshots(5, {"a": b"1"}, epoch, unneeded_blobs=[gone, "0" * 64])
        raises(StoreError, store.get_blob, gone)
        assert store.get_blob(kept) == b"kept"

    def test_a_snapshot_stays_within_the_journal(self) -> None:
        """A snapshot past the last row, or older than the one before, is a Conflict and changes nothing."""
        store, epoch = self.filled(5)
        store.save_snapshots(3, {"a": b"1"}, epoch)
        for seq in (6, 2, -1):
            raises(Conflict, store.save_snapshots, seq, {"a": b"2"}, epoch)
        assert store.load_snapshots() == Snapshot(3, {"a": b"1"})

    # ------------------------------------------------------------ blobs
    def test_blobs(self) -> None:
        """A blob comes back by its digest, is stored once, and survives."""
        store = self.fresh()
        values = [b"", b"x", bytes(range(256)) * 5000]
        digests = [store.put_blob(value) for value in values]
        assert digests == [blob_digest(value) for value in values]
        assert store.put_blob(b"x") == digests[1]
        again = self.reopen(store)
        assert [again.get_blob(digest) for digest in digests] == values

    def test_a_missing_blob_is_an_error(self) -> None:
        """Asking for a blob that was never put is a StoreError, not an empty value."""
        store = self.fresh()
        error = raises(StoreError, store.get_blob, blob_digest(b"never"))
        assert error.code == "store"

    # ------------------------------------------------------------ care
    def test_compaction_drops_an_old_prefix(self) -> None:
        """Only rows that the snapshot covers and that are older go; their count is returned; reading begins after."""
        store, epoch = self.filled(10)  # row n has time 100 + n
        assert store.compact(before=1e9, epoch=epoch) == 0
        store.save_snapshots(6, {}, epoch)
        assert store.compact(before=104.0, epoch=epoch) == 3
        assert (store.first_seq(), store.last_seq()) == (4, 10)
        assert list(store.read()) == list(store.read(after=2)) == records(4, 7)
        assert [store.compact(before=1e9, epoch=epoch, most=2) for _ in range(3)] == [2, 1, 0]
        assert store.compact(before=1e9, epoch=epoch) == 0
        assert list(store.read()) == records(7, 4)
        assert store.check() == []

    def test_compaction_drops_nothing_behind_a_young_row(self) -> None:
        """A row with a late time keeps all rows after it, though their times be early: the clock may have jumped."""
        store, epoch = self.owned()
        times = (1.0, 2.0, 50.0, 3.0, 4.0)
        store.append([(seq, time, "p", "k", b"") for seq, time in enumerate(times, 1)], epoch)
        store.save_snapshots(5, {}, epoch)
        assert store.compact(before=10.0, epoch=epoch) == 2
        assert [row.seq for row in store.read()] == [3, 4, 5]

    def test_a_journal_may_be_compacted_to_nothing(self) -> None:
        """When every row is dropped the numbers continue where they were."""
        store, epoch = self.filled(4)
        store.save_snapshots(4, {"p-1": b"s"}, epoch)
        assert store.compact(before=1e9, epoch=epoch) == 4
        again = self.reopen(store)
        assert (again.first_seq(), again.last_seq(), list(again.read())) == (5, 4, [])
        raises(Conflict, again.append, records(1, 1), epoch)
        again.append(records(5, 2), epoch)
        assert list(again.read()) == records(5, 2)

    def test_a_reader_overtaken_by_compaction_is_told(self) -> None:
        """Rows dropped under a reader are a Conflict, never a silent gap and never called damage."""
        store, epoch = self.owned()
        for seq in range(1, 2 * PAGE_BATCHES + 1):
            store.append(records(seq, 1), epoch)
        reader = iter(store.read())
        next(reader)
        store.save_snapshots(2 * PAGE_BATCHES, {}, epoch)
        store.compact(before=1e9, epoch=epoch)
        raises(Conflict, lambda: _drain(reader))

    def test_a_sound_store_has_nothing_to_report(self) -> None:
        """`check` finds nothing in a store that was used in every way."""
        store, epoch = self.filled(20)
        store.save_snapshots(10, {"a": b"1", "b": b"2"}, epoch)
        store.put_blob(b"blob")
        store.compact(before=105.0, epoch=epoch)
        assert store.check() == []


def _drain(rows: Iterable[Record]) -> None:
    for _ in rows:
        pass
