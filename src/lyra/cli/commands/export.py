"""`lyra export`: write what a store tells to a file that other programs read, or to a collector of traces.

    lyra export --to events.jsonl       every Event, a line of JSON each
    lyra export --to trace.db           calls and spans in SQLite, to be queried
    lyra export --to otlp               spans, to the collector that the OTEL_* variables name

Durable Vega runs of the store are exported with it; a process of one is RUN/PID. Opens a store that exists, beside a
running kernel too, and only reads it. Known keys, and texts in the form of a key, are redacted; `lyra store export`
writes rows as they stand.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Final

import click

from lyra.cli.app import CliCommand, Invocation, json_option
from lyra.cli.commands.store import must_be_a_kind, open_existing
from lyra.cli.render import document, note, printable
from lyra.errors import ConfigError

if TYPE_CHECKING:
    from lyra.core.event import Event
    from lyra.store.protocol import Store


_OTLP: Final = "otlp"
_DATABASE: Final = (".db", ".sqlite", ".sqlite3")
_LINES: Final = (".jsonl", ".ndjson")


@click.command(cls=CliCommand)
@click.argument("target", required=False, metavar="[PATH_OR_URL]")
@click.option("--to", "to", required=True, metavar="FILE|otlp", help="A new file ending in .jsonl or .db, or `otlp`.")
@click.option("--pid", metavar="PID", help="Only what this process did.")
@click.option("--kind", metavar="KIND", help="Only Events of this kind; for .jsonl.")
@json_option
@click.pass_obj
def export(
    invocation: Invocation, /, target: str | None, *, to: str, pid: str | None, kind: str | None, as_json: bool
) -> None:
    """Write the Events, calls and spans of a store to JSON lines, SQLite or OpenTelemetry."""
    suffix = os.path.splitext(to)[1].lower()
    if to != _OTLP and suffix not in (*_DATABASE, *_LINES):
        raise ConfigError(
            f"nothing can be exported to {to!r}", hint="a file ending in .jsonl or .db, or otlp", key="to"
        )
    if kind is not None:
        must_be_a_kind(kind)
        if suffix not in _LINES:
            raise ConfigError("--kind is for .jsonl", hint="other exports have calls and spans", key="kind")
    if to != _OTLP and os.path.lexists(to):
        raise ConfigError(f"{to} is there already", hint="name a new file", key="to")
    with open_existing(invocation, target) as opened:
        if to == _OTLP:
            from lyra.observe.otel.attach import export_events

            count = export_events(_records(opened, pid))
        elif suffix in _DATABASE:
            count = _to_database(opened, pid, to)
        else:
            count = _to_lines(opened, pid, kind, to)
    if as_json:
        document({"to": to, "count": count})
    else:
        note(f"{count} {'events' if suffix in _LINES else 'spans'} written to {printable(to)}")


def _events(opened: Store, pid: str | None, kind: str | None = None) -> Iterator[Event]:
    from lyra.core.codec import decode
    from lyra.core.event import Event

    for prefix, journal in _journals(opened, pid):
        for row in journal.read(pid=None if pid is None else pid.removeprefix(prefix), kind=kind):
            yield Event(row.seq, row.time, prefix + row.pid, row.kind, decode(row.data))


def _journals(opened: Store, pid: str | None) -> Iterator[tuple[str, Store]]:
    """Yield the journals that may have rows of a process: the store's own, and those of its durable Vega runs. Each
    with what stands before its pids, which other runs have, too."""
    from lyra.store.space import Space, spaces
    from lyra.store.sqlite import SqliteStore

    yield "", opened
    for run in spaces(opened) if isinstance(opened, SqliteStore) else ():
        prefix = f"{run}/"
        if pid is None or pid.startswith(prefix):
            with closing(Space(opened.location, run, make=False, writes=False)) as space:
                yield prefix, space


def _to_lines(opened: Store, pid: str | None, kind: str | None, to: str) -> int:
    from lyra.observe.writers import JsonLines

    lines, count = JsonLines(to, kinds="*"), 0
    os.chmod(to, 0o600)
    with lines:
        for event in _events(opened, pid, kind):
            lines(event)
            count += 1
    return count


def _to_database(opened: Store, pid: str | None, to: str) -> int:
    from lyra.observe.writers import SqliteRecords

    records, count = SqliteRecords(to), 0
    os.chmod(to, 0o600)
    with records:
        for event in _records(opened, pid):
            records.write(event)
            count += 1
    return count


def _records(opened: Store, pid: str | None) -> Iterator[Event]:
    from lyra.core.codec import decode
    from lyra.core.event import Event
    from lyra.observe.history.calls import read_stored_records

    for prefix, journal in _journals(opened, pid):
        rows = (Event(row.seq, row.time, row.pid, row.kind, decode(row.data)) for row in journal.read())
        for event in read_stored_records(rows, prefix + opened.identity().id):
            if pid is None or prefix + event.pid == pid:
                yield Event(event.seq, event.time, prefix + event.pid, event.kind, event.data)
