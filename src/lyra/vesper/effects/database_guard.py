"""What the statement of a step may touch, as the database itself sees it.

The rights of a step come from its text (`sql.tables`). This guard stands behind that: while the statement of a
step is prepared and run, SQLite asks it about every table, function and command, and it allows only the tables that
the step's rights name. Tables that a view or a trigger of the database uses belong to the view or trigger; tables that
foreign keys join to a changed table are checked and changed by the database on its own. PostgreSQL has no such hook:
there a query runs in a READ ONLY transaction, as one statement, after the same reading of its text.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from lyra.vesper.effects.request import EffectError
from lyra.vesper.sql.tables import QueryTables, is_system_table
from lyra.vesper.sql.tokens import FUNCTIONS, ROW_FUNCTIONS

_CHANGES: Final = frozenset({sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE})
_WORDS: Final = {
    sqlite3.SQLITE_READ: "read",
    sqlite3.SQLITE_INSERT: "add rows to",
    sqlite3.SQLITE_UPDATE: "change rows of",
    sqlite3.SQLITE_DELETE: "delete rows of",
    sqlite3.SQLITE_FUNCTION: "call",
}
_FUNCTIONS: Final = FUNCTIONS | {"->", "->>", "current_timestamp", "current_date", "current_time"}
_VIEWS: Final = "SELECT name FROM sqlite_master WHERE type IN ('view', 'trigger')"
_TABLES: Final = "SELECT name FROM sqlite_master WHERE type = 'table'"
_KEYS: Final = 'SELECT "table" FROM pragma_foreign_key_list(:name)'


class SqliteGuard:
    """Answers SQLite's questions about one statement. `refusal` tells what was denied."""

    def __init__(
        self,
        *,
        read: Iterable[str],
        written: Iterable[str] = (),
        with_names: Iterable[str] = (),
        views: Iterable[str] = (),
    ) -> None:
        self._read = {_bare(name) for name in read} | ROW_FUNCTIONS
        self._written = {_bare(name) for name in written}
        self._with_names = {name.lower() for name in with_names}
        self._views = {name.lower() for name in views} - self._with_names
        self.refusal = ""

    def __call__(
        self, action: int, first: str | None, second: str | None, schema: str | None, inner: str | None
    ) -> int:
        del schema  # no other database is ever attached
        if self._allows(action, first or "", second or "", inner):
            return sqlite3.SQLITE_OK
        subject = second if action == sqlite3.SQLITE_FUNCTION else first
        self.refusal = f"the statement may not {_WORDS.get(action, 'use')} {subject or 'this command'}"
        return sqlite3.SQLITE_DENY

    def _allows(self, action: int, first: str, second: str, inner: str | None) -> bool:
        name = first.lower()
        if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE):
            return True
        is_of_view = inner is not None and inner.lower() in self._views
        if action == sqlite3.SQLITE_FUNCTION:
            return is_of_view or bool(self._written) or second.lower() in _FUNCTIONS  # a change: functions of the table
        if is_system_table(name):
            return False
        if action == sqlite3.SQLITE_READ:
            is_name_of_with = not second and name in self._with_names
            return is_of_view or is_name_of_with or name in self._read or name in self._written
        return action in _CHANGES and (is_of_view or name in self._written)


@contextmanager
def guarded_query(connection: Any, reading: QueryTables) -> Iterator[None]:
    """Let the statements inside read the tables of a query, and nothing else."""
    views = [row[0] for row in connection.execute(_VIEWS)]
    guard = SqliteGuard(read=reading.tables, with_names=reading.with_names, views=views)
    with _guarded(connection, guard):
        yield


@contextmanager
def guarded_change(connection: Any, table: str) -> Iterator[None]:
    """Let the statements inside read and change one table, and those that foreign keys join to it."""
    views = [row[0] for row in connection.execute(_VIEWS)]
    with _guarded(connection, SqliteGuard(read=(), written=_joined(connection, table), views=views)):
        yield


@contextmanager
def _guarded(connection: Any, guard: SqliteGuard) -> Iterator[None]:
    connection.set_authorizer(guard)
    try:
        yield
    except sqlite3.Error as error:
        if guard.refusal:
            raise EffectError("capability_denied", guard.refusal) from error
        raise
    finally:
        connection.set_authorizer(None)


def _joined(connection: Any, table: str) -> set[str]:
    """A table and all that foreign keys join to it, either way."""
    names = [row[0] for row in connection.execute(_TABLES)]
    pairs = [(name.lower(), row[0].lower()) for name in names for row in connection.execute(_KEYS, {"name": name})]
    joined = {_bare(table)}
    while more := {name for pair in pairs if joined & set(pair) for name in pair} - joined:
        joined |= more
    return joined


def _bare(name: str) -> str:
    """A table as SQLite names it: without its schema, in any case."""
    return name.lower().rpartition(".")[2]
