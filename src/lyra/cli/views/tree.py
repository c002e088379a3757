"""`lyra tree`: who started whom."""

from __future__ import annotations

from collections.abc import Sequence

import click

from lyra.cli.app import CliCommand, Invocation, json_option
from lyra.cli.render import document, note, printable
from lyra.cli.views.folded import Folded
from lyra.cli.views.ps import dollars, state_words
from lyra.cli.views.source import run_option, source, target_argument
from lyra.observe.history.processes import Processes, ProcessRecord

Walked = Sequence[tuple[int, ProcessRecord]]  # each with its depth, parents before their children


@click.command(cls=CliCommand)
@target_argument
@click.option("-a", "--all", "every", is_flag=True, help="Those that ended, too.")
@run_option
@json_option
@click.pass_obj
def tree(invocation: Invocation, /, *, target: str | None, every: bool, run: str | None, as_json: bool) -> None:
    """Draw who started whom, with states, restarts and spending."""
    with source(invocation, target, run=run) as rows:
        processes = Folded(rows).processes
    shown = None if every else _with_live_below(processes)
    walked = [(depth, record) for depth, record in processes.walk() if shown is None or record.pid in shown]
    if as_json:
        document([{"depth": depth, **record.to_data()} for depth, record in walked])
        return
    if not walked:
        note("no process" if every else "no process is alive; -a shows those that ended")
    for line in tree_lines(walked):
        click.echo(printable(line))


def _with_live_below(processes: Processes) -> set[str]:
    """The pids of live processes and of all above them."""
    shown: set[str] = set()
    for record in processes.records.values():
        above: ProcessRecord | None = record if record.is_live else None
        while above is not None and above.pid not in shown:
            shown.add(above.pid)
            above = processes.records.get(above.parent)
    return shown


def tree_lines(walked: Walked) -> list[str]:
    """A line a process, with the branches of a tree before it."""
    lines: list[str] = []
    goes_on: set[int] = set()  # levels at which another process follows below
    for depth, record in reversed(walked):
        stem = "".join(
            ("├─ " if level in goes_on else "└─ ") if level == depth else ("│  " if level in goes_on else "   ")
            for level in range(1, depth + 1)
        )
        lines.append(stem + _words(record))
        goes_on = {level for level in goes_on if level <= depth} | {depth}
    lines.reverse()
    return lines


def _words(record: ProcessRecord) -> str:
    words = [record.name or record.program or "(worker)", record.pid, state_words(record)]
    if record.restarts:
        words.append(f"{record.restarts} restarts" if record.restarts > 1 else "1 restart")
    if record.micro_usd:
        words.append(dollars(record.micro_usd))
    return "  ".join(words)
