"""`lyra events`: the rows of a journal as they come."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterator
from typing import Final

import click

from lyra.cli.app import CliCommand, Invocation
from lyra.cli.commands.store import jsonable, must_be_a_kind
from lyra.cli.render import moment, printable
from lyra.cli.views.source import RowSource, run_option, source, target_argument
from lyra.core.event import Event

_SHOWN: Final = 120  # characters of an event's data
_LOOK_S: Final = 0.3


@click.command(cls=CliCommand)
@target_argument
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens from now on, until Ctrl-C.")
@click.option("-n", "--last", type=click.IntRange(min=0), metavar="N", help="Begin with the last N.")
@click.option("--after", type=click.IntRange(min=0), default=0, metavar="SEQ", help="Begin after this one.")
@click.option("--pid", metavar="PID", help="Only those of this process.")
@click.option("--kind", metavar="KIND", help="Only those of this kind, such as process.created.")
@run_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.pass_obj
def events(
    invocation: Invocation,
    /,
    *,
    target: str | None,
    follow: bool,
    last: int | None,
    after: int,
    pid: str | None,
    kind: str | None,
    run: str | None,
    as_json: bool,
) -> None:
    """Show what happened, and with -f what happens: each row of the journal on a line."""
    if kind is not None:
        must_be_a_kind(kind)
    with source(invocation, target, run=run) as rows:
        before: Iterator[Event] | deque[Event] = rows.rows(after, pid=pid, kind=kind)
        if last is not None:
            before = deque(before, maxlen=last)
        for event in before:
            after = max(after, event.seq)
            _show(event, as_json=as_json)
        if follow:
            _follow(rows, after, pid, kind, as_json=as_json)


def _follow(rows: RowSource, after: int, pid: str | None, kind: str | None, *, as_json: bool) -> None:
    pause = threading.Event()
    while not pause.wait(_LOOK_S):
        for event in rows.rows(after, pid=pid, kind=kind):
            after = event.seq
            _show(event, as_json=as_json)


def _show(event: Event, *, as_json: bool) -> None:
    data = jsonable(dict(event.data))
    if as_json:
        row = {"seq": event.seq, "time": event.time, "pid": event.pid, "kind": event.kind, "data": data}
        click.echo(json.dumps(row, allow_nan=False))
        return
    words = json.dumps(data, ensure_ascii=False)
    shown = words if len(words) <= _SHOWN else words[: _SHOWN - 1] + "…"
    click.echo(printable(f"{event.seq:>6}  {moment(event.time)}  {event.pid or '-'}  {event.kind}  {shown}"))
