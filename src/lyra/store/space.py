"""Several journals in one SQLite file: each its own Store, with its own owner, beside the file's main one.

A space has its own journal, snapshots, lease, meta and identity tables, named after it; blobs are shared, since a blob
is named by its content. So two kernels that own two spaces work on one file at once: SQLite lets them write in turn,
and neither waits for the lease of the other. Beside its tables a space has `notes`: short messages that any process may
leave for the owner, which reads them when it polls. The rules are those of `sql`; this module only changes the table
names in the statements.

A store that is opened only to be read is here, too: nothing in it is written, not even to bring an older version's
tables up to date.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any, Final

from lyra.errors import ConfigError, StoreError
from lyra.store.migrations import MIGRATIONS, NAMED_SINCE, SIGNED_SINCE, SQLITE_TYPES
from lyra.store.protocol import Lease, Store
from lyra.store.signature import BEGINNING, is_same
from lyra.store.sql import FOLLOW_BATCH, INSERT_BATCH, Row
from lyra.store.sqlite import SqliteStore

_UNCHANGING: Final = "ro&immutable=1"  # of a SQLite URI


class SqliteReader(SqliteStore):
    """The store in the file `path`, over a connection that cannot write.

    A store that a kernel has open has a log beside it, and is read together with it. One without a log is read as a
    file that does not change: SQLite would make a log for it otherwise, and leave it there. Where a log appears,
    because a kernel opens the store meanwhile, or the file has changed, because a kernel did and has closed it, the
    reader opens it again.
    """

    _as_opened: tuple[int, int, int] = (0, 0, 0)

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path, writes=False)

    @property
    def _has_log(self) -> bool:
        return os.path.exists(f"{self.path}-wal")

    def _exists(self) -> bool:
        if not super()._exists():
            raise StoreError(
                f"there is no store at {self.path}", hint="a kernel makes it when it first opens; is the path right?"
            )
        if self._open_mode in ("rw", _UNCHANGING):
            self._open_mode = "ro" if self._has_log else _UNCHANGING
            self._as_opened = self._looks()
        return True

    def _looks(self) -> tuple[int, int, int]:
        """Return what changes when the file is written or replaced."""
        try:
            facts = os.stat(self.path)
        except OSError:
            return (0, 0, 0)
        return facts.st_ino, facts.st_size, facts.st_mtime_ns

    def _ask(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        is_old = self._open_mode == _UNCHANGING and (self._has_log or self._looks() != self._as_opened)
        if is_old and self._connection is not None and not self._connection.in_transaction:
            self.close()
            self._exists()
            self._open()
        return super()._ask(statement, values)


def open_to_read(target: str) -> Store:
    """Open a store that exists, by path or URL."""
    if target == "memory":
        raise ConfigError(
            "a memory store ends with its kernel; there is nothing to look at",
            hint="name a file or a postgresql:// URL",
        )
    if target.startswith(("postgresql://", "postgres://")):
        from lyra.store.postgres import PostgresReader

        return PostgresReader(target)
    if "://" in target and not target.startswith("sqlite://"):
        from lyra.store import open_store

        return open_store(target)  # which says what there is
    return SqliteReader(target.removeprefix("sqlite://"))


SPACE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

_OWN: Final = re.compile(r"\b(journal|snapshots|lease|meta|identity|signatures|notes)\b")
_IDENTITY: Final = MIGRATIONS[NAMED_SINCE - 1].statements(SQLITE_TYPES)[0]
_SIGNED: Final = b"signed:"  # begins a note with a signature; no other note begins so, since it is a msgpack map
_NOTES: Final = "CREATE TABLE notes (number INTEGER PRIMARY KEY, data BLOB NOT NULL)"
_READ_NOTES: Final = "SELECT number, data FROM notes ORDER BY number"
_CODE: Final = len(BEGINNING)  # bytes of a signature of a note
_RESERVED: Final = "sqlite_"  # SQLite refuses table names with this prefix, in any case
_MARK: Final = "~"  # put before the name of a space that has that prefix; SPACE_NAME allows no name to begin with it
_LISTED: Final = "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE '%/journal' ORDER BY rowid"


class Space(SqliteStore):
    """The space `name` in the file `path`; both are made when missing, unless `make` is False."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        name: str,
        *,
        durability: str = "process",
        busy_timeout_s: float = 10.0,
        make: bool = True,
        writes: bool = True,
    ) -> None:
        if not SPACE_NAME.fullmatch(name):
            raise ConfigError(
                f"{name!r} cannot be the name of a run",
                hint="use letters, digits, `.`, `_` and `-`, at most 64 of them, and begin with a letter or a digit",
            )
        self.name = name
        # What the tables of a space are called, before the slash.
        self._stem = f"{_MARK}{name}" if name.lower().startswith(_RESERVED) else name
        self._statements: dict[str, str] = {}
        self._is_inside = False  # True once statements are rewritten to name the space's tables
        super().__init__(path, durability=durability, busy_timeout_s=busy_timeout_s, writes=writes)
        try:
            self._file_id = self.identity().id
            self._enter(make=make)
        except BaseException:
            self.close()
            raise

    def _enter(self, *, make: bool) -> None:
        rows = self._ask("SELECT name FROM sqlite_master WHERE type = 'table'")
        tables = {table.lower(): table for (table,) in rows}
        journal = tables.get(f"{self._stem}/journal".lower())
        if journal is not None and journal != f"{self._stem}/journal":
            other = _name(journal)
            raise ConfigError(
                f"{other!r} exists and differs from {self.name!r} only in case", hint="choose another name"
            )
        if journal is None and not make:
            raise StoreError(f"{self.location} has no run {self.name!r}", name=self.name)
        self._is_inside = True
        self._insert, self._follow = self._rename_tables(INSERT_BATCH), self._rename_tables(FOLLOW_BATCH)
        if journal is None:
            self._make()
        elif not self._is_complete():
            self._is_named = f"{self._stem}/identity".lower() in tables
            self._has_signatures = False
            if self._writes:
                self._complete()
        self._check_tail()

    def _make(self) -> None:
        first = MIGRATIONS[0]
        with self._writing():
            if self._has_table("journal"):
                return  # another process was quicker
            for statement in (*first.statements(SQLITE_TYPES), _NOTES):
                if _OWN.search(statement):
                    self._run(statement)
            for statement, values in first.rows:
                self._run(statement, values)
            self._add_tables()

    def _is_complete(self) -> bool:
        """Return whether the space has the tables that later versions added."""
        return self._has_table("signatures")

    def _complete(self) -> None:
        """Add what an earlier version, which made the space, did not have: its id, and room for signatures."""
        with self._writing():
            self._add_tables()
        self._is_named = self._has_signatures = True

    def _add_tables(self) -> None:
        if not self._has_table("identity"):
            self._run(_IDENTITY)
            self._name_store()
        if not self._has_table("signatures"):
            signatures = MIGRATIONS[SIGNED_SINCE - 1]
            for statement in signatures.statements(SQLITE_TYPES):
                self._run(statement)
            for statement, values in signatures.rows:
                self._run(statement, values)

    def _has_table(self, table: str) -> bool:
        return bool(self._ask("SELECT 1 FROM sqlite_master WHERE name = ?", (f"{self._stem}/{table}",)))

    def _rename_tables(self, statement: str) -> str:
        """Return the statement with this space's table names in it."""
        if not self._is_inside:
            return statement
        own_statement = self._statements.get(statement)
        if own_statement is None:
            own_statement = self._statements[statement] = _OWN.sub(lambda word: f'"{self._stem}/{word[1]}"', statement)
        return own_statement

    def _ask(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        return super()._ask(self._rename_tables(statement), values)

    def _run(self, statement: str, values: Sequence[Any] = ()) -> int:
        return super()._run(self._rename_tables(statement), values)

    def _run_many(self, statement: str, values: Sequence[Sequence[Any]]) -> None:
        super()._run_many(self._rename_tables(statement), values)

    def acquire(self, owner: str, *, now: float | None, ttl_s: float) -> Lease:
        if not self._has_signatures:  # opened to be read at first
            self._complete()
        return super().acquire(owner, now=now, ttl_s=ttl_s)

    def file_id(self) -> str:
        return self._file_id

    def _list_signed_names(self) -> tuple[str | int, ...]:
        """Return what is signed, the name of the space too: its tables, given another name or put into another file,
        are not signed there."""
        return (self._file_id, self.name, *super()._list_signed_names())

    def leave_note(self, data: bytes) -> None:
        """Leave a message; it is signed where this store is."""
        if self._signatures is not None:
            data = _SIGNED + self._signatures.sign_note(data) + data
        with self._writing():
            self._run("INSERT INTO notes (data) VALUES (?)", (data,))

    def notes(self) -> list[tuple[int, bytes | None]]:
        """Return the messages by number, oldest first; None for one that a program without the key left in a signed
        run."""
        return [(number, self._read_note(data)) for number, data in self._ask(_READ_NOTES)]

    def _read_note(self, data: bytes) -> bytes | None:
        is_signed = data.startswith(_SIGNED)
        code, text = (data[len(_SIGNED) :][:_CODE], data[len(_SIGNED) + _CODE :]) if is_signed else (b"", data)
        if self._signatures is None:
            return text
        return text if is_same(self._signatures.sign_note(text), code) else None

    def drop_note(self, number: int) -> None:
        with self._writing():
            self._run("DELETE FROM notes WHERE number = ?", (number,))


def spaces(store: SqliteStore) -> list[str]:
    """Return the names of the spaces in an open store's file, in the order they were made."""
    return [_name(table) for (table,) in store._ask(_LISTED)]


def _name(table: str) -> str:
    """Return the space that a journal belongs to."""
    return table.removesuffix("/journal").removeprefix(_MARK)
