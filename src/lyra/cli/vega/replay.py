"""`vega replay RUN`: look at a run as it was at any moment, forwards and backwards.

On a terminal it is a screen; with `--plain`, a pipe, `--commands` or `--json` a prompt that reads one command a line. A
replay calls no model and writes nothing, also when another process is running the run; only `fork` makes a run.
What a fork prints is collected, since the terminal belongs to the prompt; `vega resume ID` prints it again.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from lyra.cli.app import CliCommand, Invocation, json_option
from lyra.cli.command_lines import answer_lines, lines_of_file, typed_lines, with_completion
from lyra.cli.render import note, printable
from lyra.cli.vega.durable import db_option, opened, store_file
from lyra.errors import LyraError, VegaError

if TYPE_CHECKING:
    from lyra.vega.replay.fork import RunFork
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
    from lyra.vega.replay.timeline import cost_words

    spent = cost_words(timeline.spent(len(timeline)))
    note(f"run {timeline.run_id} ({timeline.state}): {len(timeline)} steps of {timeline.program.name}, {spent}")


# ---------------------------------------------------------------- fork


def make_fork(
    invocation: Invocation,
    path: str,
    timeline: Timeline,
    *,
    name: str | None,
    number: int,
    text: str,
    is_error: bool,
    is_live: bool,
) -> dict[str, Any]:
    """Change one reply and run on; what came of it."""
    from lyra.vega.durable.runs import DurableRun, Runs
    from lyra.vega.replay.fork import RunFork, change_at, difference
    from lyra.vega.replay.reader import read

    with Runs(path) as runs:
        change = change_at(runs[timeline.run_id], timeline, number, text, is_error=is_error)
    with RunFork(path, timeline.run_id, change, number, name=name) as fork:
        error = _lived(invocation, fork, is_live=is_live)
        new_run = DurableRun(fork.space)
        old_step, new_step = difference(timeline, read(new_run), number)
        return {
            "run": fork.run_id,
            "of": timeline.run_id,
            "effect": number,
            "was": change.was,
            "output": new_run.output(),
            "state": new_run.state,
            "error": error,
            "from_journal": fork.book.taken,
            "new": fork.book.new,
            "live": is_live,
            "differs": _differs(old_step, new_step),
            "first_difference": None if old_step is None and new_step is None else (new_step or old_step).number,  # type: ignore[union-attr]
            "cost_usd": new_run.spent.get("usd", 0) / 1_000_000,
        }


def _lived(invocation: Invocation, fork: RunFork, *, is_live: bool) -> str:
    """Run the fork to its end; the error that ended it, if one did."""
    from lyra.cli.vega.setup import with_servers

    invocation.flags[:0] = [flag for flag in fork.settings if flag not in invocation.flags]
    options = fork.options()

    async def main() -> Any:
        return await fork.execute(invocation.config, options, is_live=is_live)

    try:
        asyncio.run(with_servers(invocation, fork.program, options, main) if is_live else main())
    except VegaError as error:
        return error.message
    except LyraError as error:
        return f"{error.message}" + (f" ({error.hint})" if error.hint else "")
    return ""


def _differs(old_step: Any, new_step: Any) -> str:
    if old_step is None and new_step is None:
        return "nothing after that differs"
    step = new_step or old_step
    place = f" ({step.place})" if step.place else ""
    was = "nothing" if old_step is None else old_step.what
    now = "nothing" if new_step is None else new_step.what
    old_text = f"{was} → {old_step.result or old_step.error}" if old_step is not None and was == now else was
    instead = f"{now} → {new_step.result or new_step.error}" if new_step is not None and was == now else now
    return f"it first differs at effect {step.number}{place}: {instead}; it was {old_text}"
