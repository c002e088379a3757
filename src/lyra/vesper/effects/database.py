"""The database of a node: rows of SQLite or PostgreSQL, read and changed by bound values only.

    database = open_database("sqlite:///orders.db")

Texts of SQL come from the node's file, where the checker has turned each `{name}` into a named placeholder; values are
bound, never put into the text, and names of tables and columns are quoted. A change is made once for its key: the key
is written in the same transaction, so that a change which is repeated after a crash answers with what it did before.
Calls block: `performers` makes them in a thread.

A statement touches the tables of the step's rights and no others; a query only reads. The rights come from the text
(`sql.tables`), and a guard stands behind that: while a statement is prepared and run, SQLite asks it about every table,
function and command. Tables that a view or a trigger uses belong to the view or trigger; tables that foreign keys join
to a changed table are checked and changed by the database on its own. PostgreSQL has no such hook: there a query runs
in a READ ONLY transaction, as one statement, after the same reading of its text.

`transact` runs several statements in one transaction: with the write lock of SQLite, or SERIALIZABLE in PostgreSQL. It
is tried again where it meets another transaction; its record is kept under its key, in the same transaction.
"""

from __future__ import annotations

import json
import re
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from lyra.core.clock import SystemClock
from lyra.core.ids import Entropy
from lyra.errors import ConfigError
from lyra.vesper.effects.request import EffectError
from lyra.vesper.sql.tables import QueryTables, is_system_table, query_tables, table_problem
from lyra.vesper.sql.tokens import FUNCTIONS, ROW_FUNCTIONS, SqlRefused, sql_tokens
from lyra.vesper.values.outcome import NOT_CONFIGURED

ROWS_MAX: Final = 100_000
_MAKE_KEYS: Final = "CREATE TABLE IF NOT EXISTS lyra_effects (key TEXT PRIMARY KEY, response TEXT NOT NULL)"
_READ_KEY: Final = "SELECT response FROM lyra_effects WHERE key = :p0"
_ADD_KEY: Final = "INSERT INTO lyra_effects (key, response) VALUES (:p0, :p1)"
_PLACEHOLDER: Final = re.compile(r":(p\d+)\b")
_BUSY_S: Final = 10.0  # that a change waits for others, and that a transaction is tried again
_PAUSE_S: Final = (0.002, 0.1)  # before a transaction is tried again: at first, and at most
_MADE_MEANWHILE: Final = frozenset({"23505", "42P07", "XX000"})  # another connection made the table at the same time
_ERROR_KINDS: Final = {
    "IntegrityError": "integrity_error",
    "OperationalError": "database_unavailable",
    "DatabaseError": "database_error",
    "InterfaceError": "database_error",
}
_CONFLICTS: Final = frozenset({"40001", "40P01"})  # serialization failure, deadlock
Attempt = Callable[["OpenTransaction"], str | None]  # gives the record to keep; None: roll back


class _Connection(Protocol):
    """What the two drivers have in common here."""

    def execute(self, query: str, parameters: Any = ...) -> Any: ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def close(self) -> None: ...


class Database:
    """One connection, used by one thread at a time."""

    def __init__(self, connect: Callable[[], _Connection], *, is_sqlite: bool, name: str = "") -> None:
        self._connect = connect
        self._name = name  # of the file or the database, for messages
        self._is_sqlite = is_sqlite
        # psycopg sends a text without values as a script of any number of statements, unless it prepares it.
        self._single_statement: dict[str, Any] = {} if is_sqlite else {"prepare": True}
        self._connection: _Connection | None = None
        self._lock = threading.Lock()
        self._has_keys = False

    def query(self, text: str, values: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the rows of a query as plain values. Its text is checked again here: anything but a plain query is
        refused."""
        reading = _reading(text)
        with self._lock, self._transaction() as connection:
            if not self._is_sqlite:
                connection.execute("SET TRANSACTION READ ONLY")
            return self.read_rows(connection, reading, text, values)

    def change(self, kind: str, payload: Mapping[str, Any], key: str) -> dict[str, Any]:
        """Add, change or remove rows, once for the key: `kind` is db.write, db.update or db.delete."""
        table, text, values = _CHANGES_BY_KIND[kind](payload)
        with self._lock, self._transaction() as connection:
            self._make_keys(connection)
            self._begin(connection)
            before = connection.execute(self._convert_placeholders(_READ_KEY), {"p0": key}).fetchone()
            if before is not None:
                response: dict[str, Any] = json.loads(before[0])
                return response
            response = self.send_change(connection, table, text, values)
            connection.execute(self._convert_placeholders(_ADD_KEY), {"p0": key, "p1": json.dumps(response)})
        return response

    def transact(self, key: str, attempt: Attempt, abandoned: threading.Event) -> str:
        """Run `attempt` in a transaction until it meets no other one, and commit; return the record that it gives, or
        an empty text where it has the transaction rolled back. A transaction with this key that was committed before
        is not run again: its record is returned. When `abandoned` is set, nothing is committed any more."""
        deadline, pause_s = SystemClock.monotonic() + _BUSY_S, _PAUSE_S[0]
        while True:
            with self._lock:
                record = self._try_once(key, attempt, abandoned)
            if isinstance(record, str):
                return record
            if SystemClock.monotonic() > deadline:
                raise EffectError("conflict", f"other transactions were in the way for {_BUSY_S:g} s") from record
            if abandoned.wait(pause_s * Entropy().bits(16) / 2**16):
                raise EffectError("timeout", "the transaction was given up")
            pause_s = min(pause_s * 2, _PAUSE_S[1])

    def _try_once(self, key: str, attempt: Attempt, abandoned: threading.Event) -> str | Exception:
        """Return the record; the error where another transaction was in the way. A connection that is lost while the
        transaction is committed counts as such: the next attempt finds out by the key."""
        try:
            with self._transaction() as connection:
                self._make_keys(connection)
                before = connection.execute(self._convert_placeholders(_READ_KEY), {"p0": key}).fetchone()
            if before is not None:
                return str(before[0])
        except EffectError as error:
            if is_conflict(error.__cause__):
                return error
            raise
        stage = ""
        try:
            self._begin(connection)
            if not self._is_sqlite:
                connection.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
            opened = OpenTransaction(self, connection, abandoned)
            record = attempt(opened)
            if opened.failure is not None and (record is not None or is_conflict(opened.failure)):
                raise opened.failure
            if record is None:
                self._undo()
                return ""
            if abandoned.is_set():
                raise EffectError("timeout", "the transaction was given up")
            stage = "key"
            connection.execute(self._convert_placeholders(_ADD_KEY), {"p0": key, "p1": record})
            stage = "commit"
            connection.commit()
        except Exception as error:
            self._undo()
            kind = _error_kind(error)
            is_key_taken = stage == "key" and kind == "integrity_error"
            if is_conflict(error) or is_key_taken or (stage and kind == "database_unavailable"):
                return error
            if not kind:
                raise
            raise self.driver_error(error) from error
        except BaseException:  # such as the SystemExit of a predicate: the database is not kept locked
            self._undo()
            raise
        return record

    def read_rows(
        self, connection: _Connection, reading: QueryTables, text: str, values: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """Return the rows of a query, in a transaction that is open."""
        with guard_query(connection, reading) if self._is_sqlite else nullcontext():
            cursor = connection.execute(
                self._convert_placeholders(text), _convert_values(values), **self._single_statement
            )
            names = [column[0] for column in cursor.description or ()]
            rows = cursor.fetchmany(ROWS_MAX + 1) if names else []
            cursor.close()
        if len(rows) > ROWS_MAX:
            raise EffectError("too_many_rows", f"the query gave more than {ROWS_MAX} rows")
        return [{name: _from_database(value) for name, value in zip(names, row, strict=True)} for row in rows]

    def send_change(self, connection: _Connection, table: str, text: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return how many rows a statement changed, in a transaction that is open."""
        if problem := table_problem(table):
            raise EffectError("capability_denied", problem)
        with guard_change(connection, table) if self._is_sqlite else nullcontext():
            return {"rows": connection.execute(self._convert_placeholders(text), _convert_values(values)).rowcount}

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _begin(self, connection: _Connection) -> None:
        """Begin the transaction of a change; psycopg begins its own."""
        if self._is_sqlite:
            connection.execute("BEGIN IMMEDIATE")

    def _make_keys(self, connection: _Connection) -> None:
        if not self._has_keys:
            try:
                connection.execute(_MAKE_KEYS)
                connection.commit()
            except Exception as error:
                if getattr(error, "sqlstate", "") not in _MADE_MEANWHILE:
                    raise
                connection.rollback()
            self._has_keys = True

    @contextmanager
    def _transaction(self) -> Any:
        try:
            if self._connection is None:
                self._connection = self._connect()
            yield self._connection
            self._connection.commit()
        except Exception as error:
            self._undo()
            raise error if isinstance(error, EffectError) else self.driver_error(error) from error

    def _undo(self) -> None:
        """Leave the connection fit for use; one that is lost is opened again by the next call."""
        self._has_keys = False
        if self._connection is None:
            return
        try:
            self._connection.rollback()
        except Exception:  # noqa: BLE001 - the connection is gone, whatever the driver calls it
            self._connection = None

    def driver_error(self, error: Exception) -> EffectError:
        """Return the driver's error by a kind that `on_error` can name. Its text may hold values: only the first line
        is kept."""
        text = str(error).partition("\n")[0][:300]
        where = f" (in the database {self._name[-200:]})" if self._name else ""
        return EffectError(_error_kind(error) or "database_error", text + where)

    def _convert_placeholders(self, text: str) -> str:
        return text if self._is_sqlite else _pyformat(text)


def open_database(url: str) -> Database:
    """Return the database of `sqlite:///FILE` or `postgresql://…`; it connects at the first call, when the file has to
    be there."""
    scheme = urlsplit(url).scheme
    if scheme == "sqlite":
        path = url.removeprefix("sqlite:///")
        if path == url or not path:
            raise ConfigError(f"{url!r} names no file", hint="write sqlite:///FILE", key="database")
        return Database(lambda: _sqlite(path), is_sqlite=True, name=path)
    if scheme in ("postgresql", "postgres"):
        return Database(lambda: _postgres(url), is_sqlite=False, name=urlsplit(url).path[1:])
    raise ConfigError(
        f"{scheme or url!r} is no database that nodes can use", hint="sqlite:///FILE or postgresql://…", key="database"
    )


def quote_name(name: str) -> str:
    """Return the name of a table or column; a dot separates a schema from it."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


def _sqlite(path: str) -> _Connection:
    if path != ":memory:" and not Path(path).is_file():  # SQLite would make an empty one; nodes make no tables
        message = f"there is no database file {path} in {Path.cwd()}: make it with its tables, or correct the name"
        raise EffectError(NOT_CONFIGURED, message)
    connection = sqlite3.connect(path, timeout=_BUSY_S, check_same_thread=False, isolation_level="IMMEDIATE")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def _postgres(url: str) -> _Connection:
    try:
        import psycopg
    except ImportError:
        raise ConfigError(
            "PostgreSQL needs the package psycopg", hint="pip install 'lyra-agents[postgres]'", key="database"
        ) from None
    connection = psycopg.connect(url)
    connection.execute("SET standard_conforming_strings = on")  # a backslash is a plain character, as in `sql.tokens`
    connection.commit()
    return connection


def _reading(text: str) -> QueryTables:
    try:
        return query_tables(text)
    except SqlRefused as error:
        raise EffectError("capability_denied", f"the query is refused: {error.message}") from error


def _pyformat(text: str) -> str:
    """Return the query with placeholders of psycopg: `:p0` becomes `%(p0)s`, outside quotes and comments only."""
    parts, position = [], 0
    for token in sql_tokens(text):
        if token.kind == "placeholder":
            parts += [text[position : token.start].replace("%", "%%"), f"%({token.value[1:]})s"]
            position = token.end
    return "".join([*parts, text[position:].replace("%", "%%")])


def _renumber_placeholders(part: Mapping[str, Any], values: dict[str, Any]) -> str:
    """Return a part of a statement with placeholders that no other part has; its values join the others."""
    start = len(values)
    numbers = {name: start + index for index, name in enumerate(part["values"])}
    values.update({f"p{numbers[name]}": value for name, value in part["values"].items()})
    return _PLACEHOLDER.sub(lambda match: f":p{numbers[match[1]]}", str(part["sql"]))


def _convert_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _to_database(value) for name, value in values.items()}


def _to_database(value: Any) -> Any:
    """Return a value as both databases take it: decimals as text in SQLite keep every digit."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, (dict, list, frozenset)):
        return json.dumps(value, default=str, sort_keys=True)
    return value


def _from_database(value: Any) -> Any:
    """Return a value of a row as nodes know values: floats are decimals by their shortest text, days and ids are
    texts."""
    match value:
        case None | bool() | int() | str() | bytes() | Decimal():
            return value
        case float():
            return Decimal(repr(value))
        case memoryview() | bytearray():
            return bytes(value)
        case datetime():
            return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        case list() | tuple():
            return [_from_database(item) for item in value]
        case dict():
            return {str(key): _from_database(item) for key, item in value.items()}
    return str(value)  # days, times of day, ids


def _error_kind(error: Exception) -> str:
    """Return the kind of a driver's error; empty for errors of others."""
    return next((word for base in type(error).__mro__ if (word := _ERROR_KINDS.get(base.__name__))), "")


def is_conflict(error: BaseException | None) -> bool:
    """Return whether a statement failed since another transaction was in its way."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
    return getattr(error, "sqlstate", None) in _CONFLICTS


class OpenTransaction:
    """The statements of one attempt. After one that failed no other is sent, and nothing is committed."""

    def __init__(self, database: Database, connection: _Connection, abandoned: threading.Event) -> None:
        self._database = database
        self._connection = connection
        self._abandoned = abandoned
        self.failure: Exception | None = None

    def perform(self, kind: str, payload: Mapping[str, Any]) -> Any:
        """Return the rows of a query, or how many rows a statement changed."""
        if self._abandoned.is_set():
            self.failure = self.failure or EffectError("timeout", "the transaction was given up")
        if self.failure is None:
            try:
                database, connection = self._database, self._connection
                if kind != "db.query":
                    return database.send_change(connection, *_CHANGES_BY_KIND[kind](payload))
                reading = _reading(payload["query"])
                values = payload.get("values") or {}
                if isinstance(connection, sqlite3.Connection):
                    return database.read_rows(connection, reading, payload["query"], values)
                connection.execute("SAVEPOINT lyra_query")  # what it sets READ ONLY is writable again at its end
                connection.execute("SET TRANSACTION READ ONLY")
                rows = database.read_rows(connection, reading, payload["query"], values)
                connection.execute("RELEASE SAVEPOINT lyra_query")
                return rows
            except Exception as error:  # noqa: BLE001 - whatever the driver raises ends the transaction
                self.failure = error
        failure = self.failure
        raise failure if isinstance(failure, EffectError) else self._database.driver_error(failure) from failure


Change = tuple[str, str, dict[str, Any]]  # the table, the text with placeholders, the values


def _insert(payload: Mapping[str, Any]) -> Change:
    table, data = payload["table"], payload["data"]
    columns = ", ".join(map(quote_name, data))
    marks = ", ".join(f":p{index}" for index in range(len(data)))
    text = f"INSERT INTO {quote_name(table)} ({columns}) VALUES ({marks})"  # noqa: S608 - names are quoted, values are bound
    return table, text, {f"p{index}": value for index, value in enumerate(data.values())}


def _update(payload: Mapping[str, Any]) -> Change:
    """Build an UPDATE; its condition and new values are SQL that the checker wrote."""
    table, values = payload["table"], dict[str, Any]()
    parts = [
        f"{quote_name(name)} = {_renumber_placeholders(change, values)}" for name, change in payload["set"].items()
    ]
    condition = _renumber_placeholders(payload["where"], values)
    return table, f"UPDATE {quote_name(table)} SET {', '.join(parts)} WHERE {condition}", values  # noqa: S608 - as above


def _delete(payload: Mapping[str, Any]) -> Change:
    table, values = payload["table"], dict[str, Any]()
    return table, f"DELETE FROM {quote_name(table)} WHERE {_renumber_placeholders(payload['where'], values)}", values  # noqa: S608 - as above


_CHANGES_BY_KIND: Final = {"db.write": _insert, "db.update": _update, "db.delete": _delete}


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
def guard_query(connection: Any, reading: QueryTables) -> Iterator[None]:
    """Let the statements inside read the tables of a query, and nothing else."""
    views = [row[0] for row in connection.execute(_VIEWS)]
    guard = SqliteGuard(read=reading.tables, with_names=reading.with_names, views=views)
    with _install_guard(connection, guard):
        yield


@contextmanager
def guard_change(connection: Any, table: str) -> Iterator[None]:
    """Let the statements inside read and change one table, and those that foreign keys join to it."""
    views = [row[0] for row in connection.execute(_VIEWS)]
    with _install_guard(connection, SqliteGuard(read=(), written=_list_linked_tables(connection, table), views=views)):
        yield


@contextmanager
def _install_guard(connection: Any, guard: SqliteGuard) -> Iterator[None]:
    connection.set_authorizer(guard)
    try:
        yield
    except sqlite3.Error as error:
        if guard.refusal:
            raise EffectError("capability_denied", guard.refusal) from error
        raise
    finally:
        connection.set_authorizer(None)


def _list_linked_tables(connection: Any, table: str) -> set[str]:
    """Return a table and all that foreign keys join to it, either way."""
    names = [row[0] for row in connection.execute(_TABLES)]
    pairs = [(name.lower(), row[0].lower()) for name in names for row in connection.execute(_KEYS, {"name": name})]
    joined = {_bare(table)}
    while more := {name for pair in pairs if joined & set(pair) for name in pair} - joined:
        joined |= more
    return joined


def _bare(name: str) -> str:
    """Return a table as SQLite names it: without its schema, in any case."""
    return name.lower().rpartition(".")[2]
