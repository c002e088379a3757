"""`lyra trace`, `lyra events` and `lyra cost`: what processes did, and what it cost.

`trace` shows a process and those it started call by call, with a waterfall in time, `events` the rows of a journal as
they come, and `cost` sums up model calls by agent, model, day, process or gateway key.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import click

from lyra.cli.app import CliCommand, Invocation, json_option
from lyra.cli.commands.store import jsonable, must_be_a_kind
from lyra.cli.render import document, moment, note, printable, table
from lyra.cli.views.processes import (
    dollars,
    fold,
    run_option,
    source,
    state_words,
    store_option,
    target_argument,
)
from lyra.cli.views.rows import RowSource
from lyra.core.checking.check import did_you_mean
from lyra.core.event import Event
from lyra.errors import NoSuchProcess
from lyra.observe.history.calls import GROUPINGS, CallRecord, costs
from lyra.observe.history.processes import ProcessRecord, ProcessTable

if TYPE_CHECKING:
    from lyra.cli.views.shards import ClusterRows

_BAR: Final = 24  # characters of a waterfall


@click.command(cls=CliCommand)
@target_argument
@click.option("--pid", metavar="PID", help="Only this process, by pid or name, and those that it started.")
@store_option
@run_option
@json_option
@click.pass_obj
def trace(
    invocation: Invocation,
    /,
    *,
    target: str | None,
    pid: str | None,
    store: str | None,
    run: str | None,
    as_json: bool,
) -> None:
    """Show the calls of processes as a tree, with latency, cost and a waterfall."""
    with source(invocation, target, run=run, store=store) as rows:
        folded = fold(rows)
    walked = _choose(folded.processes, pid)
    calls: dict[str, list[CallRecord]] = {}
    for call in folded.calls.records.values():
        calls.setdefault(call.pid, []).append(call)
    if as_json:
        document([_to_data(depth, record, calls.get(record.pid, ())) for depth, record in walked])
        return
    if not walked:
        note("no process")
    span = _span(walked, calls)
    for depth, record in walked:
        click.echo(
            printable(
                f"{'  ' * depth}{record.name or record.program or '(worker)'} ({record.pid})  {state_words(record)}"
            )
        )
        for call in calls.get(record.pid, ()):
            click.echo(printable(f"{'  ' * (depth + 1)}{_line(call)}  {_bar(call, *span)}"))
    if folded.calls.dropped:
        note(f"{folded.calls.dropped} older calls are left out")


def _choose(processes: ProcessTable, wanted: str | None) -> list[tuple[int, ProcessRecord]]:
    walked = list(processes.walk())
    if wanted is None:
        return walked
    for index, (depth, record) in enumerate(walked):
        if wanted in (record.pid, record.name):
            below = [index]
            for later in range(index + 1, len(walked)):
                if walked[later][0] <= depth:
                    break
                below.append(later)
            return [(walked[place][0] - depth, walked[place][1]) for place in below]
    near = did_you_mean(wanted, [*processes.records, *(record.name for record in processes.records.values())])
    raise NoSuchProcess(f"no process {wanted!r}", hint=f"did you mean {near!r}?" if near else "`lyra ps -a` lists them")


def _to_data(depth: int, record: ProcessRecord, calls: Sequence[CallRecord]) -> dict[str, Any]:
    return {"depth": depth, **record.to_data(), "trace": [call.to_data() for call in calls]}


def _line(call: CallRecord) -> str:
    took = "" if call.latency_ms is None else f"{call.latency_ms} ms"
    tokens = f"{call.input_tokens}+{call.output_tokens} tokens" if call.input_tokens or call.output_tokens else ""
    tries = f"{call.tries} tries" if call.tries > 1 else ""
    why = f"{call.status}: {call.error.splitlines()[0]}" if call.error else call.status
    cost = dollars(call.micro_usd) if call.micro_usd else ""
    return "  ".join(part for part in (f"{call.kind} {call.name}", why, took, tokens, cost, tries) if part)


def _span(walked: Sequence[tuple[int, ProcessRecord]], calls: dict[str, list[CallRecord]]) -> tuple[float, float]:
    """Return the first start and the last end among the calls."""
    shown = [call for _, record in walked for call in calls.get(record.pid, ())]
    if not shown:
        return 0.0, 0.0
    return min(call.started_at for call in shown), max(call.ended_at or call.started_at for call in shown)


def _bar(call: CallRecord, first: float, last: float) -> str:
    """Return where in the time of the whole trace a call lay."""
    if last <= first:
        return ""
    scale = _BAR / (last - first)
    begin = min(_BAR - 1, int((call.started_at - first) * scale))
    end = max(begin + 1, min(_BAR, round(((call.ended_at or last) - first) * scale)))
    return f"[{' ' * begin}{'=' * (end - begin)}{' ' * (_BAR - end)}]"


_SHOWN: Final = 120  # characters of an event's data
_LOOK_S: Final = 0.3


@click.command(cls=CliCommand)
@target_argument
@click.option("-f", "--follow", is_flag=True, help="Keep printing new entries until Ctrl-C.")
@click.option("-n", "--last", type=click.IntRange(min=0), metavar="N", help="Begin with the last N.")
@click.option("--after", type=click.IntRange(min=0), default=0, metavar="SEQ", help="Begin after this one.")
@click.option("--pid", metavar="PID", help="Only those of this process.")
@click.option("--kind", metavar="KIND", help="Only those of this kind, such as process.created.")
@store_option
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
    store: str | None,
    run: str | None,
    as_json: bool,
) -> None:
    """Show what happened, and with -f what happens: each row of the journal on a line."""
    if kind is not None:
        must_be_a_kind(kind)
    with source(invocation, target, run=run, store=store) as rows:
        before: Iterator[Event] | deque[Event] = rows.rows(after, pid=pid, kind=kind)
        if last is not None:
            before = deque(before, maxlen=last)
        for event in before:
            after = max(after, event.seq)
            _show(event, as_json=as_json, sharded=_is_cluster(rows))
        if follow:
            _follow(rows, after, pid, kind, as_json=as_json)


def _follow(rows: RowSource, after: int, pid: str | None, kind: str | None, *, as_json: bool) -> None:
    pause = threading.Event()
    while not pause.wait(_LOOK_S):
        news = rows.new_rows(pid, kind) if _is_cluster(rows) else rows.rows(after, pid=pid, kind=kind)
        for event in news:
            after = event.seq
            _show(event, as_json=as_json, sharded=_is_cluster(rows))


def _is_cluster(rows: RowSource) -> TypeGuard[ClusterRows]:
    return hasattr(rows, "new_rows")


def _show(event: Event, *, as_json: bool, sharded: bool) -> None:
    """Print a row; of a cluster its number comes with its shard, as each shard numbers its own."""
    data = jsonable(dict(event.data))
    shard, _, inside = event.pid.partition("/") if sharded else ("", "", event.pid)
    pid = event.pid if inside else ""
    if as_json:
        row = {"seq": event.seq, "time": event.time, "pid": pid, "kind": event.kind, "data": data}
        click.echo(json.dumps({"shard": shard, **row} if sharded else row, allow_nan=False))
        return
    words = json.dumps(data, ensure_ascii=False)
    shown = words if len(words) <= _SHOWN else words[: _SHOWN - 1] + "…"
    number = f"{shard}:{event.seq}" if sharded else str(event.seq)
    click.echo(printable(f"{number:>6}  {moment(event.time)}  {pid or '-'}  {event.kind}  {shown}"))


@click.command(cls=CliCommand)
@target_argument
@click.option(
    "--by",
    multiple=True,
    type=click.Choice(GROUPINGS),
    default=("agent", "model"),
    show_default=True,
    help="Sum by this; may be repeated.",
)
@store_option
@run_option
@json_option
@click.pass_obj
def cost(
    invocation: Invocation,
    /,
    *,
    target: str | None,
    by: tuple[str, ...],
    store: str | None,
    run: str | None,
    as_json: bool,
) -> None:
    """Sum up what model calls cost, by agent, model, day, process or gateway key."""
    with source(invocation, target, run=run, store=store) as rows:
        calls = fold(rows).calls.records.values()
    summed = costs([call for call in calls if call.paid_by or "key" not in by], by)  # by key: what keys paid
    total = sum(row.micro_usd for row in summed)
    if as_json:
        document({"rows": [row.to_data(by) for row in summed], "cost_usd": total / 1_000_000})
        return
    if not summed:
        note("no model call with a key" if "key" in by else "no model call")
        return
    table(
        (*by, "calls", "errors", "input", "output", "cost"),
        [
            (
                *row.group,
                str(row.calls),
                str(row.errors),
                str(row.input_tokens),
                str(row.output_tokens),
                dollars(row.micro_usd),
            )
            for row in summed
        ],
    )
    click.echo(f"total {dollars(total)}")
