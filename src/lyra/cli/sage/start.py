"""`sage [TASK]`: a session in the terminal, or one task of it, printed (`-p`).

Without a terminal on stdin and stdout the task is printed, as with `-p`, and so it is with a flag about printing. With
`--input-format stream-json` a program writes requests to stdin and has several turns in one session. Decides nothing:
what the agent may do is said by rules, files and flags.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

import click

from lyra.cli.app import CliCommand, Invocation
from lyra.cli.collector_pause import CollectorPause
from lyra.cli.commands.agent import (
    LinePrinter,
    agent_options,
    check_resume,
    run_printed,
    take_over_settings,
    task_of,
    warn,
    with_servers,
)

if TYPE_CHECKING:
    from lyra.agents.headless.headless import Headless, HeadlessOptions, HeadlessOutcome, Tell
    from lyra.agents.session.events import AnyLine
    from lyra.sage.agent.live import SessionStart


_MISSING: Final = 'No task provided: say what to do, sage -p "TASK", or pipe it in'
_STREAM: Final = "stream-json"
_OUTPUT_MODES: Final = ("streaming", "batch", "silent")


def _enter(_ctx: click.Context, _param: click.Parameter, folder: str | None) -> None:
    """Work in another folder: before anything of it is read."""
    if folder is None:
        return
    try:
        os.chdir(os.path.expanduser(folder))
    except OSError as error:
        raise click.BadParameter(f"{folder}: {error.strerror}") from None


@click.command(cls=CliCommand, uses_trust=True)
@click.argument("task", nargs=-1)
@click.option("-p", "--print", "printed", is_flag=True, help="Do one task and print the answer; no questions.")
@click.option("-c", "--continue", "continues", is_flag=True, help="Go on with the newest session of this folder.")
@click.option("-r", "--resume", metavar="ID", help="Go on with a session; see sage sessions list.")
@click.option("--fork", is_flag=True, help="With -c or -r: go on in a copy, and leave that session as it is.")
@click.option("--fork-before", type=click.IntRange(1), metavar="N", help="The same from before turn N.")
@click.option("--title", default="", metavar="TEXT", help="The title of the session; with -c or -r its new one.")
@click.option(
    "--working-dir",
    metavar="DIR",
    is_eager=True,
    expose_value=False,
    callback=_enter,
    help="The folder to work in; default: this one.",
)
@click.option(
    "--input-format",
    "given_form",
    type=click.Choice(("text", _STREAM)),
    default="text",
    show_default=True,
    help="stream-json: requests on stdin, one JSON object a line, for several turns and for answers.",
)
@click.option("--stream-json", "streams", is_flag=True, help="The same as --output-format stream-json.")
@click.option(
    "--output-mode",
    "mode_of_text",
    type=click.Choice(_OUTPUT_MODES),
    help="For text: as it comes, once it is complete, or not at all; default: batch.",
)
@click.option("-v", "--verbose", is_flag=True, help="Tell of each tool call on stderr; in a terminal show its output.")
@agent_options
@click.pass_context
def start(
    ctx: click.Context,
    /,
    *,
    task: tuple[str, ...],
    printed: bool,
    continues: bool,
    resume: str | None,
    fork: bool,
    fork_before: int | None,
    title: str,
    given_form: str,
    streams: bool,
    mode_of_text: str | None,
    verbose: bool,
    form: str,
    **given: Any,
) -> None:
    """Start or go on with a session; the word may be left out."""
    invocation, pause = ctx.ensure_object(Invocation), ctx.with_resource(CollectorPause())

    def opened(headless: Headless) -> None:
        pause.end()
        warn(headless, watches=not interactive)  # the terminal tells later problems itself

    form = _STREAM if streams else form
    resume = check_resume(resume, continues=continues)
    fork = fork or fork_before is not None
    if fork and resume is None:
        raise click.UsageError("--fork copies a session: name it with -r ID, or use -c")
    _check_formats(given_form, form, mode_of_text)
    from lyra.sage.agent.live import SessionStart

    take_over_settings(resume, given)
    beginning = SessionStart(resume=resume, fork=fork, before_turn=fork_before, title=title)
    words = " ".join(task)
    requested = given_form == _STREAM
    printed = printed or form != "text" or mode_of_text is not None or given["schema_text"] is not None
    interactive = not printed and sys.stdin.isatty() and sys.stdout.isatty()
    if interactive:
        from lyra.cli.sage.interactive import run_interactive

        ctx.exit(run_interactive(invocation, given, beginning, words, opened, verbose=verbose))
    printer = _printer(form, mode_of_text, several=requested)
    tell = _told(printer, verbose=verbose, denials=form == "text" and mode_of_text != "silent" and not verbose)
    if requested:

        def run(options: HeadlessOptions) -> Coroutine[Any, Any, HeadlessOutcome]:
            return _conversed(invocation, options, beginning, words, tell, opened)
    else:
        prompt = words or (None if sys.stdin is None or sys.stdin.isatty() else "-")
        text, piped = task_of(prompt, _MISSING)

        def run(options: HeadlessOptions) -> Coroutine[Any, Any, HeadlessOutcome]:
            return _asked(invocation, options, beginning, text, piped, tell, opened, opening=printer.has_opening)

    ctx.exit(run_printed(invocation, printer, given, run, rules=True))


def _check_formats(given_form: str, form: str, mode_of_text: str | None) -> None:
    if given_form == _STREAM and form != _STREAM:
        raise click.UsageError("--input-format stream-json has several results: add --output-format stream-json")
    if mode_of_text is not None and form != "text":
        raise click.UsageError(f"--output-mode is for text, and the output is {form}")


def _printer(form: str, mode_of_text: str | None, *, several: bool) -> LinePrinter:
    if form == "text":
        from lyra.cli.sage.text_output import TextPrinter

        return TextPrinter(mode_of_text or "batch")
    return LinePrinter(form, several=several)


def _told(printer: LinePrinter, *, verbose: bool, denials: bool) -> Tell:
    """What is called with each line. `denials`: tell which tools were denied."""
    if not verbose and not denials:
        return printer.say
    from lyra.cli.sage.text_output import DeniedCalls, ToolLines

    seeing: list[ToolLines | DeniedCalls] = [*([ToolLines()] if verbose else []), *([DeniedCalls()] if denials else [])]

    async def tell(line: AnyLine) -> None:
        for view in seeing:
            view.see(line)
        await printer.say(line)

    return tell


async def _asked(
    invocation: Invocation,
    options: HeadlessOptions,
    beginning: SessionStart,
    task: str,
    piped: str,
    tell: Tell,
    opened: Callable[[Headless], object],
    *,
    opening: bool,
) -> HeadlessOutcome:
    from lyra.sage.extensions.plugins.store import plugin_servers
    from lyra.sage.print import ask_session

    async with with_servers(invocation, options, plugin_servers(options.folder)) as equipped:
        return await ask_session(
            equipped, invocation.config, beginning, task, tell, beside=piped, warn=opened, opening=opening
        )


async def _conversed(
    invocation: Invocation,
    options: HeadlessOptions,
    beginning: SessionStart,
    first: str,
    tell: Tell,
    opened: Callable[[Headless], object],
) -> HeadlessOutcome:
    from lyra.cli.stdin_lines import stdin_lines
    from lyra.sage.print import converse

    if sys.stdin is None:
        raise click.UsageError("stdin is closed, and requests were to come from it")
    from lyra.sage.extensions.plugins.store import plugin_servers

    async with with_servers(invocation, options, plugin_servers(options.folder)) as equipped:
        lines = stdin_lines(sys.stdin.fileno())
        return await converse(equipped, invocation.config, beginning, lines, tell, first=first, warn=opened)
