"""`lyra diff STORE PID PID`: two runs side by side, with the first difference marked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from lyra.cli.app import CliCommand, json_option
from lyra.cli.render import document
from lyra.cli.replay.opened import opened_run, opened_store
from lyra.cli.replay.words import cost_words, step_line

if TYPE_CHECKING:
    from lyra.observe.timeline.difference import RunDifference


_BEFORE: Final = 3  # steps before the first difference that are shown
_AFTER: Final = 40


@click.command(cls=CliCommand)
@click.argument("store")
@click.argument("left", metavar="PID")
@click.argument("right", metavar="PID")
@click.option("-a", "--all", "every", is_flag=True, help="Show all steps, also those that are the same.")
@json_option
@click.pass_context
def diff(ctx: click.Context, /, *, store: str, left: str, right: str, every: bool, as_json: bool) -> None:
    """Compare two runs step by step: the first difference, cost and tokens.

    Exit code 0 where they are the same, 1 where they differ.
    """
    from lyra.observe.timeline.difference import compare_runs

    with opened_store(store) as opened, opened_run(opened, left) as old, opened_run(opened, right) as new:
        compared = compare_runs(old.timeline, new.timeline)
        if as_json:
            document(compared.to_data())
        else:
            for line in _lines(compared, every=every):
                click.echo(line)
    ctx.exit(0 if compared.first is None else 1)


def _lines(compared: RunDifference, *, every: bool) -> list[str]:
    left, right, first = compared.left, compared.right, compared.first
    lines = [
        f"- {left.name}: {len(left.steps)} steps, {cost_words(left.totals())}",
        f"+ {right.name}: {len(right.steps)} steps, {cost_words(right.totals())}",
    ]
    if first is None:
        return [*lines, "the runs are the same"]
    begin = 1 if every else compared.begin(_BEFORE)
    end = compared.length if every else first + _AFTER
    if begin > 1:
        lines.append(f"  steps 1 to {begin - 1} are the same")
    for number, old, new in compared.pairs(begin, end):
        if number < first:
            lines += [step_line(old, side=" ")] if old is not None else []
            continue
        if number == first:
            lines.append(f"step {first} is the first that differs:")
        lines += [step_line(old, side="-")] if old is not None else []
        lines += [step_line(new, side="+")] if new is not None else []
    if end < compared.length:
        lines.append(f"  {compared.length - end} more steps; --all shows them")
    return lines
