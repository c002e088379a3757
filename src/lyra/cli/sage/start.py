"""`sage [TASK]`: a session in the terminal, or one task of it, printed (`-p`).

Without a terminal on stdin and stdout the task is printed, as with `-p`. Decides nothing: what the agent may do is said
by rules, files and flags.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from lyra.cli.app import CliCommand, Invocation
from lyra.cli.commands.agent import (
    LinePrinter,
    agent_options,
    check_resume,
    run_printed,
    task_of,
    warn,
    with_servers,
)

if TYPE_CHECKING:
    from lyra.agents.headless.headless import HeadlessOptions, HeadlessOutcome
    from lyra.sage.agent.live import SessionStart

__all__ = ["start"]

_MISSING = 'No task provided: say what to do, sage -p "TASK", or pipe it in'


@click.command(cls=CliCommand, uses_trust=True)
@click.argument("task", nargs=-1)
@click.option("-p", "--print", "printed", is_flag=True, help="Do one task and print the answer; no questions.")
@click.option("-c", "--continue", "continues", is_flag=True, help="Go on with the newest session of this folder.")
@click.option("-r", "--resume", metavar="ID", help="Go on with a session; see sage sessions list.")
@click.option("--fork", is_flag=True, help="With -c or -r: go on in a copy, and leave that session as it is.")
@click.option("--fork-before", type=click.IntRange(1), metavar="N", help="The same from before turn N.")
@click.option("--title", default="", metavar="TEXT", help="The title of a new session.")
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
    form: str,
    **given: Any,
) -> None:
    """Start or go on with a session; the word may be left out."""
    invocation = ctx.ensure_object(Invocation)
    resume = check_resume(resume, continues=continues)
    fork = fork or fork_before is not None
    if fork and resume is None:
        raise click.UsageError("--fork copies a session: name it with -r ID, or use -c")
    from lyra.sage.agent.live import SessionStart

    beginning = SessionStart(resume=resume, fork=fork, before_turn=fork_before, title=title)
    words = " ".join(task)
    if not printed and sys.stdin.isatty() and sys.stdout.isatty():
        from lyra.cli.sage.interactive import run_interactive

        ctx.exit(run_interactive(invocation, given, beginning, words))
    prompt = words or (None if sys.stdin is None or sys.stdin.isatty() else "-")
    text, piped = task_of(prompt, _MISSING)
    printer = LinePrinter(form)
    ctx.exit(
        run_printed(
            invocation, printer, given, lambda options: _asked(invocation, options, beginning, text, piped, printer)
        )
    )


async def _asked(
    invocation: Invocation,
    options: HeadlessOptions,
    beginning: SessionStart,
    task: str,
    piped: str,
    printer: LinePrinter,
) -> HeadlessOutcome:
    from lyra.sage.print.printed import ask_session

    async with with_servers(invocation, options) as equipped:
        return await ask_session(equipped, invocation.config, beginning, task, printer.say, beside=piped, warn=warn)
