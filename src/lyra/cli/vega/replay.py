"""`vega replay RUN`: look at a run as it was at any moment, forwards and backwards.

On a terminal it is a screen; with `--plain`, a pipe, `--commands` or `--json` a prompt that reads one command a line. A
replay calls no model and writes nothing, also when another process is running the run; only `fork` makes a run.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from lyra.cli.app import CliCommand, Invocation, json_option
from lyra.cli.command_lines import answer_lines, lines_of_file, typed_lines, with_completion
from lyra.cli.render import note, printable
from lyra.cli.vega.durable import db_option, opened, store_file

if TYPE_CHECKING:
    from lyra.vega.replay.timeline import Timeline


@click.command(cls=CliCommand, name="replay")
@click.argument("run")
@db_option
@click.option("--plain", is_flag=True, help="Show a prompt instead of the full screen.")
@click.option("--commands", metavar="FILE", help="Read commands from a file, one a line, instead of stdin.")
@click.option("--live", is_flag=True, help="Let a fork perform new effects for real, within the run's budget.")
@json_option
@click.pass_context
def replay(
    ctx: click.Context, /, *, run: str, db: str | None, plain: bool, commands: str | None, live: bool, as_json: bool
) -> None:
    """Step through a durable run both ways; fork it with another reply.

    `help` at the prompt, or ? on the screen, lists what there is. With --json every command is answered by one JSON
    object on a line of its own.
    """
    from lyra.cli.vega.replay_commands import Commands
    from lyra.vega.replay.player import Player

    invocation = ctx.ensure_object(Invocation)
    path = store_file(invocation, db)
    given = None if commands is None else lines_of_file(commands, key="--commands")
    timeline = _timeline(path, run)

    def fork(name: str | None, number: int, text: str, is_error: bool) -> dict[str, Any]:
        from lyra.cli.vega.fork import make_fork

        return make_fork(
            invocation, path, timeline, name=name, number=number, text=text, is_error=is_error, is_live=live
        )

    prompt_commands = Commands(Player(timeline), fork)
    if _is_screen(plain=plain, is_script=given is not None or as_json):
        from lyra.cli.vega.replay_screen import Screen

        Screen(prompt_commands).run()
        return
    is_person = given is None and not as_json and sys.stdin.isatty()
    if is_person:
        with_completion(ctx, prompt_commands)
    if not as_json:
        _greet(timeline)
        click.echo(printable(prompt_commands.here().text))
    lines = given if given is not None else typed_lines(is_person=is_person)
    is_done = answer_lines(prompt_commands, lines, as_json=as_json)
    ctx.exit(0 if is_done or is_person else 1)


def _timeline(path: str, run: str) -> Timeline:
    from lyra.vega.replay.reader import read

    with opened(path) as runs:
        timeline = read(runs[run])
    for sentence in timeline.notes[:8]:
        note(f"note: {sentence}")
    return timeline


def _is_screen(*, plain: bool, is_script: bool) -> bool:
    if plain or is_script or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    return os.environ.get("TERM", "dumb") != "dumb"


def _greet(timeline: Timeline) -> None:
    spent = timeline.spent(len(timeline))
    note(f"run {timeline.run_id} ({timeline.state}): {len(timeline)} steps of {timeline.program.name}, {spent}")
