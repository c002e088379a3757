"""The rules that both database stores share, independent of the driver.

`SqlStore` holds the rules of lease, snapshots, blobs, compaction, reading and checking, written over six small hooks
that `sqlite` and `postgres` fill in: run a query, make one change or many, a transaction for writing, one for
reading, and what the database itself finds wrong. `_writing()` excludes all other writers, so a rule reads the rows it
depends on, verifies them, decides and writes. Each driver implements `append` itself, because its round trips and
microseconds count. Statements use `?` for values. This module never opens a connection and never sees a
driver's exception.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple

from lyra.core.ids import unique_id
from lyra.errors import Corrupt, StoreError, Tampered
from lyra.store.migrations import LATEST, MIGRATIONS, TableMigration, identity_crc, lease_crc, meta_crc, migration_crc
from lyra.store.protocol import (
    Identity,
    Lease,
    Record,
    Snapshot,
    make_fenced_conflict,
    make_held_conflict,
    make_lost_conflict,
    snapshot_outside,
)
from lyra.store.rows import PAGE_BATCHES, blob_digest, faults, scan, seal, state_crc, total_of, unseal
from lyra.store.signature import ChainReader

Row = tuple[Any, ...]

INSERT_BATCH: Final = "INSERT INTO journal (seq, rows, data, crc, signature) VALUES (?, ?, ?, ?, ?)"
# INSERT_BATCH with the fence in one statement: nothing is inserted when the epoch is not the newest one, or when the
# sequence number is taken.
FOLLOW_BATCH: Final = (
    "INSERT OR IGNORE INTO journal (seq, rows, data, crc, signature) SELECT ?, ?, ?, ?, ? FROM lease, meta"
    " WHERE lease.id = 1 AND lease.epoch = ? AND meta.id = 1 AND meta.first_seq <= ?"
)

# The batch that holds row n is the last one whose first row is not after n.
_PAGE: Final = (
    "SELECT seq, rows, data, crc, signature FROM journal"
    " WHERE seq >= (SELECT coalesce(max(seq), 0) FROM journal WHERE seq <= ?) AND seq <= ? ORDER BY seq LIMIT ?"
)
_TAIL: Final = "SELECT seq, rows, data, crc, signature FROM journal ORDER BY seq DESC LIMIT ?"
_HEAD: Final = (
    "SELECT first_seq, snapshot_seq, states, states_total, crc,"
    " (SELECT min(seq) FROM journal), (SELECT seq + rows - 1 FROM journal ORDER BY seq DESC LIMIT 1) FROM meta"
)
_IDENTITY: Final = "SELECT name, since, crc FROM identity"
_LEASE: Final = "SELECT owner, epoch, expires_at, crc FROM lease"
_PUT_STATE: Final = (
    "INSERT INTO snapshots (pid, data, crc) VALUES (?, ?, ?)"
    " ON CONFLICT (pid) DO UPDATE SET data = excluded.data, crc = excluded.crc"
)
_PUT_BLOB: Final = (
    "INSERT INTO blobs (digest, data) VALUES (?, ?) ON CONFLICT (digest) DO UPDATE SET data = excluded.data"
)

_NAMES_AT_ONCE: Final = 500  # old SQLite libraries take at most 999 values in a statement
_TAIL_BATCHES: Final = 16  # batches verified when a store is opened: what the last commits of a dying machine touched


class Head(NamedTuple):
    """Where the journal begins and ends, and what the snapshot covers."""

    first_seq: int
    last_seq: int
    snapshot_seq: int
    states: int
    states_total: int


class SqlStore(ABC):
    """The Store protocol over a database with the tables of `migrations`."""

    _is_named = True  # False where an older store is only read, so that it was given no id
    _has_signatures = True  # False where an older store is only read, so that it was given no room for them

    # ------------------------------------------------------------ what each driver implements
    @property
    @abstractmethod
    def location(self) -> str: ...

    @abstractmethod
    def _ask(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        """All rows that a query gives."""

    @abstractmethod
    def _run(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Run one change; returns how many rows changed."""

    @abstractmethod
    def _run_many(self, statement: str, values: Sequence[Sequence[Any]]) -> None:
        """Run one change for each of these tuples of values."""

    @abstractmethod
    def _writing(self) -> AbstractContextManager[None]:
        """Return a transaction that excludes other writers; an exception rolls it back."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[None]:
        """Return a transaction in which every query sees the same state."""

    @abstractmethod
    def _engine_faults(self) -> list[str]:
        """Return what the database itself finds wrong."""

    # ------------------------------------------------------------ what `signing` implements
    @abstractmethod
    def _chain_from(self, first: int) -> ChainReader | None:
        """Return what checks the signatures of a reading that begins with row `first`; None where they are not
        checked."""

    @abstractmethod
    def _check_snapshot(self, head: Head, states: dict[str, bytes]) -> None:
        """Raise Tampered where the snapshot, as it was just read, is not what was signed."""

    @abstractmethod
    def _sign_snapshot(self, seq: int, changes: Mapping[str, bytes | None]) -> None:
        """Sign the snapshot that the caller's transaction is about to write: the one there is, with these changes."""

    @abstractmethod
    def _check_signatures(self) -> list[str]:
        """Return what is not signed as it should be, as sentences."""

    has_clock: bool = False

    def clock_s(self) -> float:
        raise AssertionError(f"{self.location} has no clock")

    # ------------------------------------------------------------ journal
    def read(
        self, *, after: int = 0, upto: int | None = None, pid: str | None = None, kind: str | None = None
    ) -> Iterator[Record]:
        head = self._head()
        first = max(after + 1, head.first_seq)
        last = head.last_seq if upto is None else min(upto, head.last_seq)
        return self._rows(first, last, pid, kind)

    def _rows(self, first: int, last: int, pid: str | None, kind: str | None) -> Iterator[Record]:
        return scan(
            self._page,
            first,
            last,
            begins=self.first_seq,
            damaged=self._corrupt,
            tampered=self._make_tampered_error,
            chain=self._chain_from(first),
            pid=pid,
            kind=kind,
        )

    def _read_covered(self, head: Head) -> Iterator[Record]:
        """Return the rows that the snapshot covers; their signatures are not checked."""
        first, last = head.first_seq, head.snapshot_seq
        return scan(self._page, first, last, begins=self.first_seq, damaged=self._corrupt)

    def _batch_around(self, seq: int) -> list[Record]:
        (batch,) = self._page(seq, seq)
        rows = unseal(batch)
        if rows is None or rows[-1].seq < seq:
            raise self._corrupt(f"journal row {seq} is not what was written")
        return rows

    def first_seq(self) -> int:
        return self._head().first_seq

    def last_seq(self) -> int:
        return self._head().last_seq

    def _page(self, first: int, last: int) -> list[Row]:
        return self._ask(self._readable(_PAGE), (first, last, PAGE_BATCHES))

    def _readable(self, statement: str) -> str:
        """Return the statement without the signatures, where the store has no room for them."""
        return statement if self._has_signatures else statement.replace(", signature FROM", ", NULL FROM")

    def _head(self) -> Head:
        row = self._single(_HEAD, "meta")
        first, snapshot, states, total, crc, low, high = row
        if meta_crc(first, snapshot, states, total) != crc:
            raise self._corrupt("its record of where the journal begins is damaged")
        last = first - 1 if high is None else high
        if low is not None and low != first:
            raise self._corrupt(f"the journal begins at row {low} instead of {first}")
        if not first - 1 <= snapshot <= last:
            raise self._corrupt(f"the snapshot at row {snapshot} does not meet rows {first} to {last}")
        return Head(first, last, snapshot, states, total)

    def _put_head(self, head: Head) -> None:
        values = (head.first_seq, head.snapshot_seq, head.states, head.states_total)
        self._run(
            "UPDATE meta SET first_seq = ?, snapshot_seq = ?, states = ?, states_total = ?, crc = ? WHERE id = 1",
            (*values, meta_crc(*values)),
        )

    # ------------------------------------------------------------ snapshots
    def save_snapshots(
        self, seq: int, states: Mapping[str, bytes | None], epoch: int, *, unneeded_blobs: Sequence[str] = ()
    ) -> None:
        kept = [(pid, data, state_crc(pid, data)) for pid, data in states.items() if data is not None]
        with self._writing():
            self._fence(epoch)
            head = self._head()
            if not head.snapshot_seq <= seq <= head.last_seq:
                raise snapshot_outside(seq, head.snapshot_seq, head.last_seq)
            self._sign_snapshot(seq, states)
            old = self._state_crcs(list(states))
            removed = [pid for pid, data in states.items() if data is None]
            self._run_many("DELETE FROM snapshots WHERE pid = ?", [(pid,) for pid in removed])
            self._run_many(_PUT_STATE, kept)
            self._run_many("DELETE FROM blobs WHERE digest = ?", [(digest,) for digest in unneeded_blobs])
            total = total_of(head.states_total, added=sum(crc for _, _, crc in kept), removed=sum(old.values()))
            count = head.states + len(kept) - len(old)
            self._put_head(head._replace(snapshot_seq=seq, states=count, states_total=total))

    def _state_crcs(self, pids: list[str]) -> dict[str, int]:
        crcs: dict[str, int] = {}
        for start in range(0, len(pids), _NAMES_AT_ONCE):
            chunk = pids[start : start + _NAMES_AT_ONCE]
            marks = ", ".join("?" * len(chunk))
            crcs.update(self._ask(f"SELECT pid, crc FROM snapshots WHERE pid IN ({marks})", chunk))  # noqa: S608 - marks only
        if not all(isinstance(crc, int) for crc in crcs.values()):
            raise self._corrupt("the saved state of a process is damaged")
        return crcs

    def load_snapshots(self) -> Snapshot:
        with self._reading():
            head, states = self._snapshot()
            self._check_snapshot(head, states)
        return Snapshot(head.snapshot_seq, states)

    def _snapshot(self) -> tuple[Head, dict[str, bytes]]:
        """Return the states in the snapshot, whatever their signature, inside the caller's transaction."""
        head = self._head()
        rows = self._ask("SELECT pid, data, crc FROM snapshots")
        for pid, data, crc in rows:
            if not isinstance(pid, str) or not isinstance(data, bytes) or state_crc(pid, data) != crc:
                raise self._corrupt("the saved state of a process is damaged")
        total = total_of(0, added=sum(crc for _, _, crc in rows))
        if (len(rows), total) != (head.states, head.states_total):
            raise self._corrupt("the saved states do not belong to one snapshot")
        return head, {pid: data for pid, data, _ in rows}

    # ------------------------------------------------------------ blobs
    def put_blob(self, data: bytes) -> str:
        digest = blob_digest(data)
        # The stored content is compared: putting a blob again replaces a damaged copy.
        if self._ask("SELECT data FROM blobs WHERE digest = ?", (digest,)) != [(data,)]:
            with self._writing():
                self._run(_PUT_BLOB, (digest, data))
        return digest

    def get_blob(self, digest: str) -> bytes:
        rows = self._ask("SELECT data FROM blobs WHERE digest = ?", (digest,))
        if not rows:
            raise StoreError(f"no blob {digest} in {self.location}", digest=digest)
        data = rows[0][0]
        if not isinstance(data, bytes) or blob_digest(data) != digest:
            raise self._corrupt(f"blob {digest} is damaged")
        return data

    # ------------------------------------------------------------ lease
    def acquire(self, owner: str, *, now: float | None, ttl_s: float) -> Lease:
        with self._writing():
            held = self._lease()
            now = self.clock_s() if now is None else now
            if held.expires_at != 0.0 and now < held.expires_at:
                raise make_held_conflict(held)
            return self._put_lease(Lease(owner, held.epoch + 1, now + ttl_s))

    def renew(self, lease: Lease, *, now: float | None, ttl_s: float) -> Lease:
        with self._writing():
            held = self._lease()
            if held.epoch != lease.epoch or held.expires_at == 0.0:
                raise make_lost_conflict(lease, held)
            now = self.clock_s() if now is None else now
            return self._put_lease(Lease(held.owner, held.epoch, now + ttl_s))

    def release(self, lease: Lease) -> None:
        with self._writing():
            held = self._lease()
            if held.epoch == lease.epoch:
                self._put_lease(held._replace(expires_at=0.0))

    def holder(self) -> Lease | None:
        lease = self._lease()
        return lease if lease.expires_at != 0.0 else None

    def _lease(self) -> Lease:
        owner, epoch, expires_at, crc = self._single(_LEASE, "lease")
        if not isinstance(expires_at, float) or lease_crc(owner, epoch, expires_at) != crc:
            raise self._corrupt("its record of the owner's lease is damaged")
        return Lease(owner, epoch, expires_at)

    def _put_lease(self, lease: Lease) -> Lease:
        self._run(
            "UPDATE lease SET owner = ?, epoch = ?, expires_at = ?, crc = ? WHERE id = 1", (*lease, lease_crc(*lease))
        )
        return lease

    def _fence(self, epoch: int) -> None:
        lease = self._lease()
        if lease.epoch != epoch:
            raise make_fenced_conflict(epoch, lease)

    # ------------------------------------------------------------ identity
    def identity(self) -> Identity:
        if not self._is_named:
            return Identity("", self.last_seq())
        name, since, crc = self._single(_IDENTITY, "identity")
        if not isinstance(name, str) or not name or identity_crc(name, since) != crc:
            raise self._corrupt("its record of the store's id is damaged")
        return Identity(name, since)

    def _name_store(self) -> None:
        """Give the store its id, inside the caller's transaction."""
        values = (unique_id(), self._head().last_seq)
        self._run("INSERT INTO identity VALUES (1, ?, ?, ?)", (*values, identity_crc(*values)))

    # ------------------------------------------------------------ care
    def check(self) -> list[str]:
        sentences = self._engine_faults()
        for part in (
            self._check_journal,
            self._check_snapshots,
            self._check_lease,
            self._check_identity,
            self._check_blobs,
            self._check_signatures,
        ):
            try:
                sentences.extend(part())
            except Corrupt as error:
                sentences.append(error.message)
        return sentences

    def _check_journal(self) -> list[str]:
        head = self._head()
        return faults(self._page, head.first_seq, head.last_seq)

    def _check_snapshots(self) -> list[str]:
        self.load_snapshots()
        return []

    def _check_lease(self) -> list[str]:
        self._lease()
        return []

    def _check_identity(self) -> list[str]:
        self.identity()
        return []

    def _check_blobs(self) -> list[str]:
        sentences = []
        for (digest,) in self._ask("SELECT digest FROM blobs"):
            try:
                self.get_blob(digest)
            except StoreError as error:
                sentences.append(error.message)
        return sentences

    def compact(self, *, before: float, epoch: int, most: int | None = None) -> int:
        with self._writing():
            self._fence(epoch)
            head = self._head()
            # Only a prefix may go: the first row that has to stay ends it, whatever the times after it say.
            last = head.snapshot_seq if most is None else min(head.snapshot_seq, head.first_seq + most - 1)
            covered = self._read_covered(head._replace(snapshot_seq=last))
            cut = next((row.seq for row in covered if row.time >= before), last + 1)
            if cut == head.first_seq:
                return 0
            # The batch that the cut goes through is written again without the rows before it. It loses its signature:
            # in a signed store no batch has rows on both sides of the snapshot, and rows before it are only history.
            rest = self._batch_around(cut) if cut <= head.last_seq else []
            self._run("DELETE FROM journal WHERE seq < ?", (cut,))
            if rest and rest[0].seq < cut:
                self._run_many(INSERT_BATCH, seal(rest[cut - rest[0].seq :]))
            self._put_head(head._replace(first_seq=cut))
            return cut - head.first_seq

    # ------------------------------------------------------------ opening
    def _check_tail(self) -> None:
        """Check meta, lease and the newest journal rows when the store is opened; raise Corrupt for damage."""
        with self._reading():  # an owner may be writing meanwhile
            head = self._head()
            self._lease()
            tail = self._ask(self._readable(_TAIL), (_TAIL_BATCHES,))
        ends = head.last_seq
        for batch in tail:
            rows = unseal(batch)
            if rows is None or rows[-1].seq != ends:
                raise self._corrupt("its newest journal rows are damaged")
            ends = rows[0].seq - 1

    def _apply(self, migration: TableMigration, types: dict[str, str]) -> None:
        """Apply one migration inside the caller's transaction."""
        for statement in migration.statements(types):
            self._run(statement)
        for statement, values in migration.rows:
            self._run(statement, values)
        if migration.names_store:
            self._name_store()
        self._run(
            "INSERT INTO migrations (number, name, crc) VALUES (?, ?, ?)",
            (migration.number, migration.name, migration_crc(migration.number, migration.name)),
        )

    def _check_migrations(self, version: int, rows: list[Row]) -> None:
        """Check that `version` agrees with the table of migrations; only then does a high number mean a newer Lyra."""
        numbers = [number for number, _, _ in rows]
        sound = all(isinstance(name, str) and migration_crc(number, name) == crc for number, name, crc in rows)
        if version < 1 or version != len(rows) or not sound or numbers != list(range(1, len(rows) + 1)):
            raise self._corrupt("its record of migrations is damaged")
        if version > LATEST:
            raise StoreError(
                f"{self.location} was written by a newer Lyra (migration {version}, this one knows {LATEST})",
                hint="upgrade with: pip install --upgrade lyra-agents",
                migration=version,
                known=LATEST,
            )

    def _pending(self, version: int) -> tuple[TableMigration, ...]:
        return MIGRATIONS[version:]

    # ------------------------------------------------------------ helpers
    def _single(self, statement: str, table: str) -> Row:
        rows = self._ask(statement)
        if len(rows) != 1:
            raise self._corrupt(f"its {table} table has {len(rows)} rows instead of one")
        return rows[0]

    def _corrupt(self, what: str) -> Corrupt:
        return Corrupt(
            f"{self.location} is damaged: {what}",
            hint="stop using it and restore it from a backup",
            location=self.location,
        )

    def _make_tampered_error(self, what: str, seq: int | None = None) -> Tampered:
        error = Tampered(
            f"{self.location} was changed by a program that does not have your key: {what}",
            hint=f"restore it from a backup, or look at the rights in it: lyra store adopt {self.location}",
            location=self.location,
        )
        if seq is not None:
            error.fields["seq"] = seq
        return error
