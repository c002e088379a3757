"""`lyra top`: the processes live in the terminal, the busiest first, until Ctrl-C."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Final

import click

from lyra.cli.app import CliCommand, Invocation
from lyra.cli.render import document, moment, printable
from lyra.cli.views.folded import Folded
from lyra.cli.views.ps import dollars, state_words
from lyra.cli.views.source import run_option, source, target_argument
from lyra.core.clock import SystemClock
from lyra.observe.history.processes import ProcessRecord

if TYPE_CHECKING:
    from rich.console import RenderableType


_WINDOW_S: Final = 60.0  # over which rates are taken


@click.command(cls=CliCommand)
@target_argument
@click.option(
    "--every", type=click.FloatRange(min=0.1), default=1.0, show_default=True, help="Seconds between two looks."
)
@click.option("--once", is_flag=True, help="Print one picture as JSON and leave.")
@run_option
@click.pass_obj
def top(invocation: Invocation, /, *, target: str | None, every: float, once: bool, run: str | None) -> None:
    """Watch the processes live: state, calls, spending; the busiest first."""
    with source(invocation, target, run=run) as rows:
        folded = Folded(rows)
        if once or not sys.stdout.isatty():
            document(_figures(folded) | {"processes": [record.to_data() for record in _busiest(folded)]})
            return
        _watch(folded, rows.location, every)


def _watch(folded: Folded, location: str, every: float) -> None:
    from rich.live import Live

    with Live(_picture(folded, location), screen=True, auto_refresh=False) as live:
        pause = threading.Event()
        while not pause.wait(every):
            folded.refresh()
            live.update(_picture(folded, location), refresh=True)


def _figures(folded: Folded) -> dict[str, float | int]:
    """The sums of a picture: how many are alive and wait, and what the last minute brought."""
    now = SystemClock().now()
    records = folded.processes.records.values()
    recent = [call for call in folded.calls.records.values() if call.started_at > now - _WINDOW_S]
    return {
        "alive": sum(record.is_live for record in records),
        "waiting": sum(record.state == "waiting" for record in records),
        "ended": sum(not record.is_live for record in records),
        "calls_a_minute": len(recent),
        "running_calls": sum(call.status == "running" for call in recent),
        "errors_a_minute": sum(call.status not in ("ok", "running") for call in recent),
        "cost_usd_a_minute": sum(call.micro_usd for call in recent) / 1_000_000,
        "cost_usd": sum(record.micro_usd for record in records) / 1_000_000,
    }


def _busiest(folded: Folded) -> list[ProcessRecord]:
    """Live processes: those that wait for a person first, then by what they spent and called."""
    live = [record for record in folded.processes.records.values() if record.is_live]
    return sorted(live, key=lambda record: (not record.questions, -record.micro_usd, -record.calls, record.pid))


def _picture(folded: Folded, location: str) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    figures = _figures(folded)
    head = Text(
        f"{printable(location)}   {moment(SystemClock().now())}\n"
        f"{figures['alive']} alive, {figures['waiting']} waiting, {figures['ended']} ended   "
        f"last minute: {figures['calls_a_minute']} calls, {figures['errors_a_minute']} errors, "
        f"${figures['cost_usd_a_minute']:.4f}   in all ${figures['cost_usd']:.4f}\n"
    )
    view = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    for title in ("pid", "name", "state", "calls", "tokens", "cost", "asks"):
        view.add_column(title, no_wrap=True)
    for record in _busiest(folded)[:200]:
        view.add_row(
            *(
                Text(printable(cell))
                for cell in (
                    record.pid,
                    record.name or record.program,
                    state_words(record),
                    str(record.calls),
                    str(record.tokens),
                    dollars(record.micro_usd),
                    next(iter(record.questions.values()), ""),
                )
            )
        )
    return Group(head, view)
