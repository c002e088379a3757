"""The protocol that every Store implements: journal, snapshots, blobs, lease and care.

    journal    `append(records, epoch)` all or nothing, `read(...)` in order, `last_seq()`
    snapshots  `save_snapshots(seq, states, epoch)`, `load_snapshots()`: one state a process, folded up to `seq`
    blobs      `put_blob(data)` → digest, `get_blob(digest)`: large values, stored once
    lease      `acquire`, `renew`, `release`: one owner at a time, fenced by an epoch that only grows
    identity   `identity()`: a name that no other store has, made once
    care       `check()`, `compact(...)`, `close()`

Rules that every Store keeps (the conformance suite in `lyra.testing` shows each): sequence numbers start at 1 and
are dense; an append whose first seq is not `last_seq() + 1`, or whose epoch is not the newest one, is a `Conflict`
and changes nothing; rows are durable, to the degree asked, once `append` has returned; damage is `Corrupt` or a
consistent prefix, never a wrong value. A Store blocks; it is called by one thread at a time. Every Conflict of a Store
is made by a function below, so that its words and fields are the same whatever the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, runtime_checkable

from lyra.errors import Conflict, StoreError


class Record(NamedTuple):
    """One journal row. Hot paths pass plain tuples of this shape; `data` is msgpack."""

    seq: int
    time: float
    pid: str
    kind: str
    data: bytes


class Snapshot(NamedTuple):
    """The folded state of every process up to and including `seq`."""

    seq: int
    states: dict[str, bytes]


class Lease(NamedTuple):
    """The right to write, until `expires_at` unless renewed; `epoch` grows with every new owner."""

    owner: str
    epoch: int
    expires_at: float


class Identity(NamedTuple):
    """The name of a store, unlike that of any other, which idempotency keys begin with. A copy of the store has it too.

    `since` is the last row that was there when the store was named: 0, unless an earlier version made the store.
    """

    id: str
    since: int


@runtime_checkable
class Store(Protocol):
    @property
    def inline(self) -> bool:
        """True when an append is quick enough (no disk flush, no network) to be made on the kernel's loop."""
        ...

    @property
    def location(self) -> str:
        """Return where the store is, for messages; never with a password."""
        ...

    @property
    def has_clock(self) -> bool:
        """True when leases can be judged by a clock of its own, which all its owners share: `now=None` asks for it."""
        ...

    # journal
    def append(self, records: Sequence[tuple[int, float, str, str, bytes]], epoch: int) -> None: ...

    def read(
        self, *, after: int = 0, upto: int | None = None, pid: str | None = None, kind: str | None = None
    ) -> Iterator[Record]: ...

    def first_seq(self) -> int:
        """Return the oldest row still kept (1 before any compaction, last_seq() + 1 when the journal is empty)."""
        ...

    def last_seq(self) -> int: ...

    # snapshots
    def save_snapshots(
        self, seq: int, states: Mapping[str, bytes | None], epoch: int, *, unneeded_blobs: Sequence[str] = ()
    ) -> None:
        """Replace the states of these pids (None removes one), move the snapshot's seq and remove the blobs that only
        the former states named, in one transaction.

        `Conflict` when `seq` is past the last row or before the snapshot there is.
        """
        ...

    def load_snapshots(self) -> Snapshot: ...

    # blobs
    def put_blob(self, data: bytes) -> str: ...

    def get_blob(self, digest: str) -> bytes: ...

    # lease
    def acquire(self, owner: str, *, now: float | None, ttl_s: float) -> Lease:
        """Become the owner; `Conflict` (with field `expires_at` and `owner`) while another one's lease runs."""
        ...

    def renew(self, lease: Lease, *, now: float | None, ttl_s: float) -> Lease:
        """Push the end of a lease out, also a late one; `Conflict` when it was released or another owner took over."""
        ...

    def release(self, lease: Lease) -> None:
        """Free the store at once; the epoch stays. Releasing a lease that was lost changes nothing."""
        ...

    def holder(self) -> Lease | None:
        """Return the newest lease, which may have run out; None before the first one and after a release."""
        ...

    def clock_s(self) -> float:
        """Return the time by the store's own clock, in seconds since 1970; only where `has_clock`."""
        ...

    # identity
    def identity(self) -> Identity:
        """Made once, with the store or when this version first opens an older one, and the same ever after."""
        ...

    # care
    def check(self) -> list[str]:
        """Everything wrong with it, as sentences; empty when sound."""
        ...

    def compact(self, *, before: float, epoch: int, most: int | None = None) -> int:
        """Drop rows that the snapshot covers and that are older than `before`, about `most` of them; returns how
        many."""
        ...

    def close(self) -> None: ...


def not_dense(first: int) -> Conflict:
    return Conflict("the sequence numbers of this batch are not dense; nothing was written", first=first)


def out_of_order(first: int, last_seq: int) -> Conflict:
    return Conflict(
        f"row {first} does not follow row {last_seq}, the last one; nothing was written", first=first, last_seq=last_seq
    )


def snapshot_outside(seq: int, snapshot_seq: int, last_seq: int) -> Conflict:
    return Conflict(
        f"a snapshot at row {seq} is outside rows {snapshot_seq} to {last_seq}; nothing was written",
        seq=seq,
        snapshot_seq=snapshot_seq,
        last_seq=last_seq,
    )


def make_fenced_conflict(epoch: int, newest: Lease) -> Conflict:
    return Conflict(
        f"epoch {epoch} is not the newest one ({newest.epoch}); nothing was written",
        hint="another owner has taken this store over; the one with the old epoch has to stop",
        epoch=epoch,
        newest_epoch=newest.epoch,
        owner=newest.owner,
        expires_at=newest.expires_at,
    )


def make_held_conflict(lease: Lease) -> Conflict:
    return Conflict(
        f"the store is owned by {lease.owner}",
        hint="stop that owner, or wait until its lease runs out",
        owner=lease.owner,
        epoch=lease.epoch,
        expires_at=lease.expires_at,
    )


MOVED_TO: Final = "moved to "  # begins the name of the owner of a store that was moved, for ever
MOVING_FROM: Final = "moving from "  # and of the copy, until the old store says that it was moved


def refuse_moved(location: str, owner: str) -> None:
    """Raise StoreError where the owner's name says that the store was moved, or is a copy that is not finished."""
    if owner.startswith(MOVED_TO):
        raise StoreError(f"{location} was {owner}", hint="open that one", location=location)
    if owner.startswith(MOVING_FROM):
        words = owner.partition("\n")[0]
        hint = "finish it: lyra store move, with the same two stores"
        raise StoreError(f"{location} is {words}, which was broken off", hint=hint, location=location)


def make_lost_conflict(lease: Lease, newest: Lease) -> Conflict:
    return Conflict(
        f"the lease of {lease.owner} (epoch {lease.epoch}) is over; the newest epoch is {newest.epoch}",
        epoch=lease.epoch,
        newest_epoch=newest.epoch,
        owner=newest.owner,
        expires_at=newest.expires_at,
    )


def make_compacted_conflict(seq: int) -> Conflict:
    return Conflict("the journal was compacted while it was read", hint="read it again", seq=seq)
