"""`lyra trace`: what a process and those it started did, call by call, with a waterfall in time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from lyra.cli.app import CliCommand, Invocation, json_option
from lyra.cli.render import document, note, printable
from lyra.cli.views.folded import Folded
from lyra.cli.views.ps import dollars, state_words
from lyra.cli.views.source import run_option, source, target_argument
from lyra.core.checking.check import did_you_mean
from lyra.errors import NoSuchProcess
from lyra.observe.history.calls import CallRecord
from lyra.observe.history.processes import Processes, ProcessRecord

_BAR: Final = 24  # characters of a waterfall


@click.command(cls=CliCommand)
@target_argument
@click.option("--pid", metavar="PID", help="Only this process, by pid or name, and those that it started.")
@run_option
@json_option
@click.pass_obj
def trace(invocation: Invocation, /, *, target: str | None, pid: str | None, run: str | None, as_json: bool) -> None:
    """Show the calls of processes as a tree, with latency, cost and a waterfall."""
    with source(invocation, target, run=run) as rows:
        folded = Folded(rows)
    walked = _chosen(folded.processes, pid)
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


def _chosen(processes: Processes, wanted: str | None) -> list[tuple[int, ProcessRecord]]:
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
    """The first start and the last end among the calls."""
    shown = [call for _, record in walked for call in calls.get(record.pid, ())]
    if not shown:
        return 0.0, 0.0
    return min(call.started_at for call in shown), max(call.ended_at or call.started_at for call in shown)


def _bar(call: CallRecord, first: float, last: float) -> str:
    """Where in the time of the whole trace a call lay."""
    if last <= first:
        return ""
    scale = _BAR / (last - first)
    begin = min(_BAR - 1, int((call.started_at - first) * scale))
    end = max(begin + 1, min(_BAR, round(((call.ended_at or last) - first) * scale)))
    return f"[{' ' * begin}{'=' * (end - begin)}{' ' * (_BAR - end)}]"
