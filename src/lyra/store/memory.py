"""A Store in RAM, for runs that need not survive their OS process and for simulations.

It keeps every rule of `protocol` but one: it ends with the OS process. Two kernels that share one MemoryStore object
behave like two kernels on one database, and a kernel that "crashes" in a simulation leaves it exactly as its last
append did. `close()` therefore does nothing. Values are kept without a copy, since bytes cannot change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lyra.core.ids import unique_id
from lyra.errors import StoreError
from lyra.store.protocol import (
    Identity,
    Lease,
    Record,
    Snapshot,
    make_compacted_conflict,
    make_fenced_conflict,
    make_held_conflict,
    make_lost_conflict,
    out_of_order,
    snapshot_outside,
)
from lyra.store.rows import blob_digest, dense

_NO_OWNER = Lease("", 0, 0.0)


class MemoryStore:
    """A Store whose rows, states, blobs and lease are plain attributes. A simulation chooses its id."""

    __slots__ = ("_blobs", "_first", "_identity", "_lease", "_rows", "_snapshot_seq", "_states")

    inline: bool = True
    has_clock: bool = False
    location: str = "memory"

    def __init__(self, *, store_id: str = "") -> None:
        self._identity = Identity(store_id or unique_id(), 0)
        self._rows: list[tuple[int, float, str, str, bytes]] = []
        self._first = 1
        self._snapshot_seq = 0
        self._states: dict[str, bytes] = {}
        self._blobs: dict[str, bytes] = {}
        self._lease = _NO_OWNER

    def append(self, records: Sequence[tuple[int, float, str, str, bytes]], epoch: int) -> None:
        first, last = dense(records) if records else 0, self.last_seq()
        self._fence(epoch)
        if records and first != last + 1:
            raise out_of_order(first, last)
        self._rows.extend(records)

    def read(
        self, *, after: int = 0, upto: int | None = None, pid: str | None = None, kind: str | None = None
    ) -> Iterator[Record]:
        last = self.last_seq() if upto is None else min(upto, self.last_seq())
        return self._walk(max(after + 1, self._first), last, pid, kind)

    def _walk(self, seq: int, last: int, pid: str | None, kind: str | None) -> Iterator[Record]:
        while seq <= last:
            if seq < self._first:
                raise make_compacted_conflict(seq)
            row = self._rows[seq - self._first]
            if (pid is None or row[2] == pid) and (kind is None or row[3] == kind):
                yield Record._make(row)
            seq += 1

    def first_seq(self) -> int:
        return self._first

    def last_seq(self) -> int:
        return self._first + len(self._rows) - 1

    def save_snapshots(
        self, seq: int, states: Mapping[str, bytes | None], epoch: int, *, unneeded_blobs: Sequence[str] = ()
    ) -> None:
        self._fence(epoch)
        if not self._snapshot_seq <= seq <= self.last_seq():
            raise snapshot_outside(seq, self._snapshot_seq, self.last_seq())
        for pid, state in states.items():
            if state is None:
                self._states.pop(pid, None)
            else:
                self._states[pid] = state
        for digest in unneeded_blobs:
            self._blobs.pop(digest, None)
        self._snapshot_seq = seq

    def load_snapshots(self) -> Snapshot:
        return Snapshot(self._snapshot_seq, dict(self._states))

    def put_blob(self, data: bytes) -> str:
        digest = blob_digest(data)
        self._blobs.setdefault(digest, bytes(data))
        return digest

    def get_blob(self, digest: str) -> bytes:
        try:
            return self._blobs[digest]
        except KeyError:
            raise StoreError(f"no blob {digest} in {self.location}", digest=digest) from None

    def acquire(self, owner: str, *, now: float | None, ttl_s: float) -> Lease:
        assert now is not None  # it has no clock
        held = self._lease
        if held.expires_at != 0.0 and now < held.expires_at:
            raise make_held_conflict(held)
        self._lease = Lease(owner, held.epoch + 1, now + ttl_s)
        return self._lease

    def renew(self, lease: Lease, *, now: float | None, ttl_s: float) -> Lease:
        assert now is not None
        held = self._lease
        if held.epoch != lease.epoch or held.expires_at == 0.0:
            raise make_lost_conflict(lease, held)
        self._lease = Lease(held.owner, held.epoch, now + ttl_s)
        return self._lease

    def release(self, lease: Lease) -> None:
        if self._lease.epoch == lease.epoch:
            self._lease = self._lease._replace(expires_at=0.0)

    def holder(self) -> Lease | None:
        return self._lease if self._lease.expires_at != 0.0 else None

    def _fence(self, epoch: int) -> None:
        if epoch != self._lease.epoch:
            raise make_fenced_conflict(epoch, self._lease)

    def clock_s(self) -> float:
        raise AssertionError("memory has no clock")

    def identity(self) -> Identity:
        return self._identity

    def check(self) -> list[str]:
        return []

    def compact(self, *, before: float, epoch: int, most: int | None = None) -> int:
        self._fence(epoch)
        dropped = 0
        for row in self._rows:
            if row[0] > self._snapshot_seq or row[1] >= before or dropped == most:
                break
            dropped += 1
        del self._rows[:dropped]
        self._first += dropped
        return dropped

    def close(self) -> None:
        """Do nothing: another kernel may share this object."""
