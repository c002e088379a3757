"""Files that records of what happened are written to: JSON lines, and SQLite for queries.

In SQLite, table `calls` has one row a model call, its columns the fields of the record, and `estimated`: 1 where the
provider did not count the tokens. A file of an older version, without that column, gets it when it is opened. Table
`spans` has every span (turns, model calls, tool calls), so that a trace can be shown as a tree. WAL mode: others may
read while it is written. `observe` has a kernel write to one for as long as it is open.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from lyra.core.checking.check import check_integer, one_of
from lyra.core.clock import Clock
from lyra.core.codec import to_plain
from lyra.core.event import KINDS, Event
from lyra.core.secrets.redact import redact, redact_data
from lyra.errors import ConfigError
from lyra.observe.spans import KINDS as SPAN_KINDS
from lyra.observe.spans import Span, SpanNode, session_span, span_of, span_tree

CALLS: Final[dict[str, str]] = {
    "trace_id": "TEXT",
    "span_id": "TEXT",
    "agent": "TEXT",
    "model": "TEXT",
    "input_tokens": "INTEGER",
    "output_tokens": "INTEGER",
    "cost_usd": "REAL",
    "latency_ms": "INTEGER",
    "status": "TEXT",
    "retries": "INTEGER",
    "parent_span": "TEXT",
    "estimated": "INTEGER NOT NULL DEFAULT 0",
}
SPANS: Final[dict[str, str]] = {
    "trace_id": "TEXT",
    "span_id": "TEXT PRIMARY KEY",
    "parent_span": "TEXT",
    "kind": "TEXT",
    "name": "TEXT",
    "agent": "TEXT",
    "status": "TEXT",
    "latency_ms": "INTEGER",
    "time": "REAL",
    "pid": "TEXT",
    "data": "TEXT",
}
_SCHEMA: Final = (
    f"CREATE TABLE IF NOT EXISTS calls ({', '.join(f'{name} {kind}' for name, kind in CALLS.items())})",
    "CREATE INDEX IF NOT EXISTS calls_by_trace ON calls (trace_id)",
    "CREATE INDEX IF NOT EXISTS calls_by_agent ON calls (agent, model)",
    f"CREATE TABLE IF NOT EXISTS spans ({', '.join(f'{name} {kind}' for name, kind in SPANS.items())}) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS spans_by_trace ON spans (trace_id)",
    "CREATE INDEX IF NOT EXISTS spans_by_time ON spans (time)",
)
_ADD_CALL: Final = f"INSERT INTO calls ({', '.join(CALLS)}) VALUES ({', '.join('?' * len(CALLS))})"  # noqa: S608 (names)
_ADD_SPAN: Final = f"INSERT OR REPLACE INTO spans VALUES ({', '.join('?' * len(SPANS))})"  # noqa: S608 (the same)


def _no_secrets() -> tuple[str, ...]:
    return ()


class SqliteRecords:
    """A listener that writes records, and queries on them; without a kernel it reads an old file."""

    __slots__ = ("_db", "_secrets", "path")

    def __init__(self, path: str | Path, *, secrets: Callable[[], Iterable[Any]] = _no_secrets) -> None:
        self.path = Path(path)
        self._secrets = secrets
        try:
            self._db = sqlite3.connect(self.path, isolation_level=None)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            for statement in _SCHEMA:
                self._db.execute(statement)
            # Give the table `calls` of an older version the columns that came since.
            if self._missing_columns():
                self._db.execute("BEGIN IMMEDIATE")
                with self._db:
                    for name in self._missing_columns():  # another process may have opened the file meanwhile
                        self._db.execute(f"ALTER TABLE calls ADD COLUMN {name} {CALLS[name]}")
        except sqlite3.Error as error:
            raise ConfigError(f"{self.path} cannot be used for records: {error}") from None

    def _missing_columns(self) -> list[str]:
        known = {row[1] for row in self._db.execute("PRAGMA table_info(calls)")}
        return [name for name in CALLS if name not in known]

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of Event that it subscribes to."""
        return frozenset(SPAN_KINDS)

    def __call__(self, event: Event) -> None:
        span = span_of(event)
        if span is not None:
            self._add(span)

    def write(self, event: Event) -> None:
        """Write a record that was read back from a store; also that of a session, which a listener does not write."""
        self._add(session_span(event) if event.kind == "agent.ended" else span_of(event))

    def _add(self, span: Span | None) -> None:
        if span is None:
            return
        text = redact(msgspec.json.encode(span).decode(), tuple(self._secrets()))
        values = msgspec.json.decode(text)
        data = values["data"]
        values["data"] = msgspec.json.encode(data).decode()
        self._db.execute("BEGIN")
        with self._db:  # both rows or none
            if span.kind == "model":
                row = {**data, "estimated": int(bool(data.get("estimated")))}
                self._db.execute(_ADD_CALL, [row[name] for name in CALLS])
            self._db.execute(_ADD_SPAN, [values[name] for name in SPANS])

    # ------------------------------------------------------------------ queries

    def calls(
        self,
        *,
        agent: str | None = None,
        model: str | None = None,
        status: str | None = None,
        trace_id: str | None = None,
        limit: int = 1000,
    ) -> list[dict[str, Any]]:
        """Return the last model calls that fit, oldest first. `estimated` tells tokens that Lyra counted from a
        provider's."""
        asked = {"agent": agent, "model": model, "status": status, "trace_id": trace_id}
        wanted = {name: value for name, value in asked.items() if value is not None}
        where = " AND ".join(f"{name} = ?" for name in wanted) or "1"
        columns = ", ".join(CALLS)
        query = f"SELECT {columns} FROM calls WHERE {where} ORDER BY rowid DESC LIMIT ?"  # noqa: S608 (names of the table)
        rows = self._db.execute(query, [*wanted.values(), check_integer(limit, "limit")]).fetchall()
        calls = [dict(zip(CALLS, row, strict=True)) for row in reversed(rows)]
        return [{**call, "estimated": bool(call["estimated"])} for call in calls]

    def totals(self, by: str = "agent") -> dict[str, dict[str, Any]]:
        """Calls, errors, tokens and money by agent, model, status or trace_id; cost None where one of them is
        unknown."""
        column = one_of(by, ("agent", "model", "status", "trace_id"), "by")
        query = (
            f"SELECT {column}, COUNT(*), SUM(status <> 'ok'), SUM(input_tokens), SUM(output_tokens),"  # noqa: S608
            f" CASE WHEN COUNT(cost_usd) = COUNT(*) THEN SUM(cost_usd) END FROM calls GROUP BY {column}"
        )
        names = ("calls", "errors", "input_tokens", "output_tokens", "cost_usd")
        return {row[0]: dict(zip(names, row[1:], strict=True)) for row in self._db.execute(query)}

    def spans(self, trace_id: str | None = None, *, limit: int = 10_000) -> list[Span]:
        """Return the last spans, or those of one trace."""
        where, values = ("trace_id = ?", [trace_id]) if trace_id is not None else ("1", [])
        query = f"SELECT {', '.join(SPANS)} FROM spans WHERE {where} ORDER BY time DESC LIMIT ?"  # noqa: S608 (as above)
        rows = self._db.execute(query, [*values, check_integer(limit, "limit")]).fetchall()
        return [
            msgspec.convert({**dict(zip(SPANS, row, strict=True)), "data": msgspec.json.decode(row[-1])}, Span)
            for row in reversed(rows)
        ]

    def tree(self, trace_id: str | None = None) -> list[SpanNode]:
        return span_tree(self.spans(trace_id))

    def __enter__(self) -> SqliteRecords:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    async def close(self) -> None:
        self._db.close()


# ---------------------------------------------------------------- lines
# JSON lines: a record a line, appended to a file as it happens.

_encode = msgspec.json.Encoder(enc_hook=to_plain).encode


class JsonLines:
    """A listener that appends to a file. `secrets` gives texts to redact besides those in the form of a key."""

    __slots__ = ("_file", "_kinds", "_secrets", "path")

    def __init__(
        self,
        path: str | Path,
        *,
        kinds: Iterable[str] | None = None,
        secrets: Callable[[], Iterable[Any]] = _no_secrets,
    ) -> None:
        self.path = Path(path)
        self._kinds = None if kinds is None else _check_kinds(kinds)
        self._secrets = secrets
        try:
            self._file = self.path.open("ab", buffering=0)
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be written: {error.strerror or error}") from None

    @property
    def kinds(self) -> frozenset[str] | None:
        """The kinds of Event that it subscribes to; None is all."""
        return frozenset({"model.called"}) if self._kinds is None else self._kinds or None

    def __call__(self, event: Event) -> None:
        if self._kinds is None:
            if event.kind == "model.called":
                self._write(redact(_encode(event.data).decode(), tuple(self._secrets())).encode())
        elif not self._kinds or event.kind in self._kinds:
            plain = msgspec.json.decode(event.to_json())
            self._write(_encode(redact_data(plain, tuple(self._secrets()))))

    def _write(self, line: bytes) -> None:
        if not self._file.closed:
            self._file.write(line + b"\n")

    def __enter__(self) -> JsonLines:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    async def close(self) -> None:
        self._file.close()


def _check_kinds(kinds: Iterable[str]) -> frozenset[str]:
    wanted = frozenset((kinds,) if isinstance(kinds, str) else kinds)
    if "*" in wanted:
        return frozenset()
    for kind in wanted - KINDS.keys():
        raise ConfigError(f"there are no events of kind {kind!r}", hint="lyra.core.event.KINDS lists them", key=kind)
    return wanted


_DATABASE: Final = (".db", ".sqlite", ".sqlite3")
_LINES: Final = (".jsonl", ".ndjson", ".json")


class Observed(Protocol):
    """The part of a kernel that `observe` uses."""

    parts: dict[str, Any]
    clock: Clock

    def on_event(self, listener: Callable[[Event], Any], kinds: Iterable[str] | None = None) -> Callable[[], None]: ...


def observe(kernel: Observed, path: str | Path, *, kinds: Iterable[str] | None = None) -> JsonLines | SqliteRecords:
    """Write the records of this kernel's agents to a file, by its ending: `.jsonl` or `.db`; closed with the kernel.

    `kinds`, for JSON lines: Events of these kinds instead (see JsonLines).
    """
    suffix = Path(path).suffix.lower()
    records: JsonLines | SqliteRecords
    if suffix in _LINES:
        records = JsonLines(path, kinds=kinds, secrets=lambda: secrets_of(kernel))
    elif suffix in _DATABASE and kinds is None:
        records = SqliteRecords(path, secrets=lambda: secrets_of(kernel))
    else:
        raise ConfigError(
            f"records cannot be written to {str(path)!r}{' by kinds' if kinds is not None else ''}",
            hint="name a file that ends in .jsonl or .db",
        )
    stop = kernel.on_event(records, records.kinds)
    kernel.parts[f"observe:{path}"] = Attached(stop, records)
    return records


class Closed(Protocol):
    """Records that are closed with the kernel."""

    async def close(self) -> None: ...


class Attached:
    """A part of the kernel that ends with it: it stops listening, then closes the file."""

    __slots__ = ("_records", "_stop")

    def __init__(self, stop: Callable[[], None], records: Closed) -> None:
        self._stop = stop
        self._records = records

    async def close(self) -> None:
        self._stop()
        await self._records.close()


def secrets_of(kernel: Observed) -> Iterable[Any]:
    """Return the keys that the kernel's agents use, where it has any."""
    agents = kernel.parts.get("agents")
    secrets: Iterable[Any] = agents.client.secrets() if agents is not None else ()
    return secrets
