"""`lyra cost`: what model calls cost, by agent, model, day, process or gateway key."""

from __future__ import annotations

import click

from lyra.cli.app import CliCommand, Invocation, json_option
from lyra.cli.render import document, note, table
from lyra.cli.views.folded import Folded
from lyra.cli.views.ps import dollars
from lyra.cli.views.source import run_option, source, target_argument
from lyra.observe.history.costs import GROUPINGS, costs


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
@run_option
@json_option
@click.pass_obj
def cost(invocation: Invocation, /, *, target: str | None, by: tuple[str, ...], run: str | None, as_json: bool) -> None:
    """Sum up what model calls cost, by agent, model, day, process or gateway key."""
    with source(invocation, target, run=run) as rows:
        calls = Folded(rows).calls.records.values()
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
