"""Every Conflict that a Store raises because another writer changed it: one function and one sentence each.

All stores raise these, so the kernel and the reader of a log meet the same words and the same fields whatever the
store; a database store adds only "locked by another writer" and "another writer committed first". Nothing was written
when one of them is raised. `protocol` says when each one is raised.
"""

from __future__ import annotations

from lyra.errors import Conflict
from lyra.store.protocol import Lease


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
