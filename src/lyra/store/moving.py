"""Moving a store into a schema of PostgreSQL: afterwards it goes on there, and the old one says where it went.

    take the old store's lease, which its kernels have not got    Conflict while one owns it
    copy every row as it stands, in one transaction                the new store belongs to "moving from …": no kernel
    read all of it back, compare it, check it
    the old store belongs to "moved to …", for ever
    the new one gets the owner and epoch that the old one had      from now on it opens

At each moment at most one of the two opens, so a move that was broken off loses nothing; the same call goes on with
it. The identity is the same, and so is the owner: idempotency keys of calls that a killed owner had begun are made
again as they were. Durable Vega runs in the file of a store are stores of their own, and stay.

The rows are copied as they stand: read in pages (`read_pages`), written elsewhere (`make_insert`), compared by a hash
(`Fingerprint`). A copy has the same checksums, signatures and identity as the store, since no row is made anew. The
lease is left to the caller. Statements have `?` for values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec

from lyra.core.clock import SystemClock
from lyra.errors import ConfigError, Conflict, Corrupt
from lyra.store.postgres import PostgresStore
from lyra.store.protocol import MOVED_TO, MOVING_FROM, Lease, refuse_moved
from lyra.store.signature import Signer
from lyra.store.signing import SigningStore
from lyra.store.standing import remember, vouch

_NEVER: Final = 1e15  # when the lease of a store that was moved ends
_OVER: Final = 1.0  # when the lease of an owner ended that was killed; 0 would say that it was released
LEASE_OF_MOVE_S: Final = 60.0  # the mover's lease on the old store
Row = tuple[Any, ...]
Ask = Callable[[str, Sequence[Any]], list[Row]]

# Table → its columns; the first one is the key by which it is read.
TABLES: Final = {
    "identity": ("id", "name", "since", "crc"),
    "meta": ("id", "first_seq", "snapshot_seq", "states", "states_total", "crc"),
    "signatures": ("id", "key_id", "seq", "link", "code", "crc"),
    "blobs": ("digest", "data"),
    "snapshots": ("pid", "data", "crc"),
    "journal": ("seq", "rows", "data", "crc", "signature"),
}
_ROWS_AT_ONCE: Final = 64  # a batch of the journal has up to a mebibyte, a blob more

_encode: Final = msgspec.msgpack.Encoder().encode


class Moved(NamedTuple):
    """What a move did. `rows` is how many rows there are in all tables."""

    rows: int
    was_moved_before: bool


def move(
    source: SigningStore,
    target: PostgresStore,
    take: Callable[[SigningStore], Lease],
    tell: Callable[[int], object] = lambda _: None,
) -> Moved:
    """Move a store into another one, which is empty; see the module. `take` becomes the owner of the old one."""
    if source.location == target.location:
        raise ConfigError(f"{source.location} is both stores", hint="name another schema")
    held = source._lease()
    standing = vouch(source)
    signer = standing.signer if standing.is_signed else None
    if held.owner.startswith(MOVED_TO):
        if held.owner != f"{MOVED_TO}{target.location}" or source.identity() != target.identity():
            refuse_moved(source.location, held.owner)
        if not target._lease().owner.startswith(MOVING_FROM):
            return Moved(0, was_moved_before=True)
        rows = _verify(source, target, signer)
        _finish(source, target, signer)
        return Moved(rows, was_moved_before=False)
    refuse_moved(source.location, held.owner)
    lease = take(source)
    try:
        faults = source.check()
        if faults:
            raise Corrupt(f"{source.location} is not moved: {faults[0]}", hint="restore it from a backup")
        _copy(source, target, held, lease, tell)
        rows = _verify(source, target, signer)
        with source._writing():
            source._fence(lease.epoch)
            source._put_lease(Lease(f"{MOVED_TO}{target.location}", lease.epoch + 1, _NEVER))
    except BaseException:
        source.release(lease)
        raise
    _finish(source, target, signer)
    return Moved(rows, was_moved_before=False)


def _refuse_full(target: PostgresStore) -> None:
    held = target.holder()
    if held is not None and held.expires_at > target.clock_s():
        refuse_moved(target.location, held.owner)
        raise Conflict(f"{target.location} is owned by {held.owner}", hint="stop that owner, or name another schema")
    if not target.holds_nothing():
        raise Conflict(f"{target.location} holds a store already", hint="name a schema that does not exist yet")


def _copy(
    source: SigningStore, target: PostgresStore, held: Lease, lease: Lease, tell: Callable[[int], object]
) -> None:
    """Copy all rows in one transaction. The copy has no owner; its lease keeps the owner that was killed."""
    clock = SystemClock()
    renewed_s, count = clock.monotonic(), 0
    killed = held.owner if held.expires_at != 0.0 else ""
    with target._writing():
        target._run("SET LOCAL idle_in_transaction_session_timeout = 0")  # for as long as the source takes to be read
        if not target._lease().owner.startswith(
            f"{MOVING_FROM}{source.location}\n"
        ):  # else a copy that was not finished
            _refuse_full(target)
        for table in TABLES:
            target._run(f"DELETE FROM {table}")  # noqa: S608 - our own names
        for table, rows in read_pages(source._ask):
            target._run_many(make_insert(table), rows)
            count += len(rows)
            tell(count)
            if clock.monotonic() - renewed_s > LEASE_OF_MOVE_S / 4:
                renewed_s = clock.monotonic()
                source.renew(lease, now=None if source.has_clock else clock.now(), ttl_s=LEASE_OF_MOVE_S)
        target._put_lease(Lease(f"{MOVING_FROM}{source.location}\n{killed}", lease.epoch, _NEVER))


def _verify(source: SigningStore, target: PostgresStore, signer: Signer | None) -> int:
    """Read the copy back and compare it, with its checksums and signatures; gives the number of rows."""
    seen = Fingerprint()
    for table, rows in read_pages(target._ask):
        seen.add(table, rows)
    if seen.text() != fingerprint(source._ask):
        raise Corrupt(f"the copy in {target.location} is not what is in {source.location}", hint="move it again")
    target.sign_with(signer)
    faults = target.check()
    if faults:
        raise Corrupt(f"the copy in {target.location} is not sound: {faults[0]}", hint="move it again")
    return seen.rows


def _finish(source: SigningStore, target: PostgresStore, signer: Signer | None) -> None:
    """Let the copy be opened, now that the old store is marked."""
    killed = target._lease().owner.partition("\n")[2]
    with target._writing():
        target._put_lease(Lease(killed, source._lease().epoch, _OVER if killed else 0.0))
    if signer is not None:
        remember(target.location, target.file_id(), signer.key_id)


def read_pages(ask: Ask) -> Iterator[tuple[str, list[Row]]]:
    """Yield the rows of all tables, some at a time, with the name of their table."""
    for table, columns in TABLES.items():
        names, key = ", ".join(columns), columns[0]
        page = ask(f"SELECT {names} FROM {table} ORDER BY {key} LIMIT {_ROWS_AT_ONCE}", ())  # noqa: S608 - our own names
        while page:
            yield table, page
            after = f"SELECT {names} FROM {table} WHERE {key} > ? ORDER BY {key} LIMIT {_ROWS_AT_ONCE}"  # noqa: S608
            page = ask(after, (page[-1][0],))


def make_insert(table: str) -> str:
    """Return the statement that writes a row of a table."""
    columns = TABLES[table]
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608


class Fingerprint:
    """A hash of rows that does not depend on how a database orders text."""

    def __init__(self) -> None:
        self._sum = 0
        self.rows = 0

    def add(self, table: str, rows: Sequence[Row]) -> None:
        for row in rows:
            self._sum += int.from_bytes(blake2b(_encode((table, *row)), digest_size=32).digest(), "big")
        self.rows += len(rows)

    def text(self) -> str:
        return f"{self.rows}-{self._sum % (1 << 256):064x}"


def fingerprint(ask: Ask) -> str:
    """Read all rows, and return their hash."""
    seen = Fingerprint()
    for table, rows in read_pages(ask):
        seen.add(table, rows)
    return seen.text()
