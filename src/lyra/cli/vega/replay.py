"""`vega replay RUN`: look at a run as it was at any moment, forwards and backwards.

On a terminal it is a screen; with `--plain`, a pipe, `--commands` or `--json` a prompt that reads one command a line. A
replay calls no model and writes nothing, also when another process is running the run; only `fork` makes a run.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from lyra.cli.app import CliCommand, Invocation, json_option
from lyra.cli.render import note, printable
from lyra.cli.vega.durable import db_option, opened, store_file
from lyra.errors import ConfigError, LyraError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lyra.cli.vega.replay_commands import CommandResult, Commands
    from lyra.vega.replay.timeline import Timeline

__all__ = ["replay"]

_PROMPT: Final = "replay> "


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
    given = None if commands is None else _lines_of(commands)
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
        _make_comfortable(ctx, prompt_commands)
    if not as_json:
        _greet(timeline)
        click.echo(printable(prompt_commands.here().text))
    failed = False
    for line in given if given is not None else _typed(sys.stdin, is_person=is_person):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        is_done, is_end = _answer(prompt_commands, line, as_json=as_json)
        failed = failed or not is_done
        if is_end:
            break
    ctx.exit(1 if failed and not is_person else 0)


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


# ---------------------------------------------------------------- lines in
def _lines_of(file: str) -> list[str]:
    try:
        with open(file, encoding="utf-8") as opened_file:
            return opened_file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text in UTF-8"
        raise ConfigError(f"{file} cannot be read: {reason}", key="--commands") from None


def _typed(stream: TextIO, *, is_person: bool) -> Iterator[str]:
    while True:
        if not is_person:
            line = stream.readline()
            if not line:
                return
            yield line.rstrip("\n")
            continue
        try:
            yield input(_PROMPT)
        except EOFError:
            click.echo("", err=True)
            return
        except KeyboardInterrupt:  # of a line that was begun
            click.echo("", err=True)


def _make_comfortable(ctx: click.Context, prompt_commands: Commands) -> None:
    """Arrow keys, earlier lines and the tabulator, where the interpreter has readline."""
    try:
        import readline
    except ImportError:
        return
    from lyra.cli.vega.repl import with_history

    with_history(ctx, "replay_history")

    def complete(text: str, state: int) -> str | None:
        line = readline.get_line_buffer().lstrip()
        words = [word for word in prompt_commands.words(line) if word.startswith(text)]
        return f"{words[state]} " if state < len(words) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" ")
    readline.parse_and_bind("tab: complete")


# ---------------------------------------------------------------- answers out
def _answer(prompt_commands: Commands, line: str, *, as_json: bool) -> tuple[bool, bool]:
    """Do one command and show what it gives: whether it could be done, and whether that was the end."""
    try:
        result = prompt_commands.do(line)
    except KeyboardInterrupt:
        prompt_commands.player.recover()
        note("stopped")
        return False, False
    except LyraError as error:
        if as_json:
            _line({"command": line, "ok": False, "error": error.message, "hint": error.hint})
        else:
            note(f"error: {error.message}")
            if error.hint:
                note(f"  hint: {error.hint}")
        return False, False
    _show(line, result, as_json=as_json)
    return True, result.is_end


def _show(line: str, result: CommandResult, *, as_json: bool) -> None:
    if as_json:
        _line({"command": line, "ok": True, "data": result.data})
    elif result.text:
        click.echo("\n".join(printable(text_line) for text_line in result.text.split("\n")))


def _line(data: Any) -> None:
    click.echo(json.dumps(data, allow_nan=False, default=str))
