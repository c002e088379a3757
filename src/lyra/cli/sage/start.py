"""`sage [TASK]`: a session in the terminal, or one task of it, printed (`-p`).

Without a terminal on stdin and stdout the task is printed, as with `-p`, and so it is with a flag about printing. With
`--input-format stream-json` a program writes requests to stdin and has several turns in one session. Decides nothing:
what the agent may do is said by rules, files and flags.

Log lines of an interactive session go to a file, never to its terminal, whose screen they would tear apart.
`logs_to_file` holds from before the session is opened until it is closed. Warnings of Python and of the event loop are
among them. The file (LOG_FILE) is in the user's data folder, private, and begun anew when it has grown large.
Well-known keys are masked in it. Where it cannot be written, log lines are dropped. What was logged about the session's
store while it was opened is for the user: `about_stores` has it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from lyra.agents.session.events import AnyLine, ToolEndLine
from lyra.cli.app import CliCommand, Invocation
from lyra.cli.commands.agent import (
    LinePrinter,
    agent_options,
    check_resume,
    options_of,
    run_printed,
    take_over_settings,
    task_of,
    tell_default_model,
    warn,
    with_servers,
)
from lyra.cli.commands.trust import ask_for_trust
from lyra.cli.process_io import CollectorPause, stdin_lines
from lyra.cli.render import note, printable
from lyra.core.own_files import make_folder
from lyra.core.secrets.redact import redact
from lyra.core.secrets.visible import visible
from lyra.core.user_folders import data_folder

if TYPE_CHECKING:
    from lyra.agents.headless.headless import Headless, HeadlessOutcome, Tell
    from lyra.agents.headless.options import HeadlessOptions
    from lyra.sage.agent.live import SessionStart


_MISSING: Final = 'No task provided: say what to do, sage -p "TASK", or pipe it in'
_STREAM: Final = "stream-json"
_OUTPUT_MODES: Final = ("streaming", "batch", "silent")
LOG_FILE: Final = "sage.log"
_BYTES_MAX: Final = 1024 * 1024
_STORES: Final = "lease"  # the kernel's module that opens a store
_FORM: Final = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"


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
@click.option("-c", "--continue", "continues", is_flag=True, help="Continue the newest session of this folder.")
@click.option(
    "-r", "--resume", metavar="[ID]", is_flag=False, flag_value="", help="Continue a session; without an ID choose one."
)
@click.option("--fork", is_flag=True, help="With -c or -r: go on in a copy, and leave that session as it is.")
@click.option("--fork-before", type=click.IntRange(1), metavar="N", help="Like --fork, from before turn N.")
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
@click.option("--stream-json", "streams", is_flag=True, help="Short for --output-format stream-json.")
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

    def on_open(headless: Headless) -> None:
        pause.end()
        warn(headless, watches=not interactive)  # the terminal tells later problems itself

    form = _STREAM if streams else form
    printed = printed or form != "text" or mode_of_text is not None or given["schema_text"] is not None
    interactive = not printed and sys.stdin.isatty() and sys.stdout.isatty()
    words = " ".join(task)
    picks = resume == "" and interactive and not (continues or fork or fork_before)
    if picks:
        resume, words = None, "/resume"
    resume = check_resume(resume, continues=continues)
    fork = fork or fork_before is not None
    if fork and resume is None:
        raise click.UsageError("--fork copies a session: name it with -r ID, or use -c")
    _check_formats(given_form, form, mode_of_text)
    from lyra.sage.agent.live import SessionStart

    take_over_settings(resume, given)
    model = given["model"] or "" if picks else ""
    beginning = SessionStart(resume=resume, fork=fork, before_turn=fork_before, title=title, model=model)
    requested = given_form == _STREAM
    if interactive:
        ctx.exit(run_interactive(invocation, given, beginning, words, on_open, verbose=verbose))
    printer = TextPrinter(mode_of_text or "batch") if form == "text" else LinePrinter(form, several=requested)
    tell = _make_teller(printer, verbose=verbose, denials=form == "text" and mode_of_text != "silent" and not verbose)
    if requested:

        def run(options: HeadlessOptions) -> Coroutine[Any, Any, HeadlessOutcome]:
            return _converse(invocation, options, beginning, words, tell, on_open)
    else:
        prompt = words or (None if sys.stdin is None or sys.stdin.isatty() else "-")
        text, piped = task_of(prompt, _MISSING)

        def run(options: HeadlessOptions) -> Coroutine[Any, Any, HeadlessOutcome]:
            return _ask_session(invocation, options, beginning, text, piped, tell, on_open, opening=printer.has_opening)

    ctx.exit(run_printed(invocation, printer, given, run, rules=True, asks=False))


def _check_formats(given_form: str, form: str, mode_of_text: str | None) -> None:
    if given_form == _STREAM and form != _STREAM:
        raise click.UsageError("--input-format stream-json has several results: add --output-format stream-json")
    if mode_of_text is not None and form != "text":
        raise click.UsageError(f"--output-mode is for text, and the output is {form}")


def _make_teller(printer: LinePrinter, *, verbose: bool, denials: bool) -> Tell:
    """Return what is called with each line. `denials`: tell which tools were denied."""
    if not verbose and not denials:
        return printer.say

    seeing: list[ToolLines | DeniedCalls] = [*([ToolLines()] if verbose else []), *([DeniedCalls()] if denials else [])]

    async def tell(line: AnyLine) -> None:
        for view in seeing:
            view.see(line)
        await printer.say(line)

    return tell


async def _ask_session(
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


async def _converse(
    invocation: Invocation,
    options: HeadlessOptions,
    beginning: SessionStart,
    first: str,
    tell: Tell,
    opened: Callable[[Headless], object],
) -> HeadlessOutcome:
    from lyra.sage.print import converse

    if sys.stdin is None:
        raise click.UsageError("stdin is closed, and requests were to come from it")
    from lyra.sage.extensions.plugins.store import plugin_servers

    async with with_servers(invocation, options, plugin_servers(options.folder)) as equipped:
        lines = stdin_lines(sys.stdin.fileno())
        return await converse(equipped, invocation.config, beginning, lines, tell, first=first, warn=opened)


_NOT_SET_UP: Final = 2  # no model, and the person left


def run_interactive(
    invocation: Invocation,
    given: dict[str, Any],
    start: SessionStart,
    task: str,
    opened: Callable[[Headless], object],
    *,
    verbose: bool = False,
) -> int:
    """Open a session in this terminal until the user leaves it; the exit code. `opened` is called once it is open,
    and `verbose` is `/output verbose`."""
    from lyra.config.settings import find_model
    from lyra.sage.terminal.loop import choose_model

    options = msgspec.structs.replace(options_of(given), attended=True)
    ask_for_trust(invocation, os.curdir, rules=True)
    tell_default_model(invocation, options)
    model = choose_model(options.model or find_model(invocation.config), invocation.config.providers)
    if model is None:
        return _NOT_SET_UP
    options = msgspec.structs.replace(options, model=model)

    async def run() -> int:
        from lyra.sage.agent.live import LiveSession
        from lyra.sage.extensions.plugins.store import plugin_servers
        from lyra.sage.terminal.loop import run_terminal

        async with (
            with_servers(invocation, options, plugin_servers(options.folder), waits=False) as equipped,
            LiveSession(equipped, invocation.config, start=start) as session,
        ):
            opened(session.headless)
            for sentence in logs.about_stores:
                note(f"note: {sentence}")
            if verbose:
                session.keep(output="verbose")
            return await run_terminal(session, task or None)

    with logs_to_file() as logs:
        return asyncio.run(run())


_ABOUT_CHARS_MAX: Final = 100


class TextPrinter(LinePrinter):
    """The format `text` in one of the modes: `batch` writes the answer once it is complete, `streaming` as it comes,
    `silent` never."""

    def __init__(self, mode: str) -> None:
        super().__init__("text")
        self._mode = mode
        self._written = ""  # the end of what stands on stdout

    async def say(self, line: AnyLine) -> None:
        if line["type"] in ("notice", "retry"):
            await super().say(line)  # words for the user, on stderr
        if self._mode != "streaming":
            return
        if line["type"] == "text_delta":
            await self._write(str(line["delta"]))
        elif line["type"] == "tool_start":  # the text after a call is another answer
            await self._write(self._line_end())
        elif line["type"] == "error" and line.get("code") == "restart":
            await self._write(self._line_end())
            note("note: the answer broke off and begins again")

    def answer(self, text: str) -> None:
        if self._mode == "batch" or (self._mode == "streaming" and not self._written):
            super().answer(text)  # where no piece has come, it is written whole
        elif self._mode == "streaming":
            sys.stdout.write(self._line_end())

    async def _write(self, text: str) -> None:
        if text:
            self._written = text[-1]
            await self.put(printable(text) if sys.stdout.isatty() else text)

    def _line_end(self) -> str:
        return "\n" if self._written and self._written != "\n" else ""


class ToolLines:
    """`--verbose`: one line on stderr for each tool call that has ended."""

    def __init__(self) -> None:
        self._about: dict[str, str] = {}  # by the id of the call

    def see(self, line: AnyLine) -> None:
        if line["type"] == "tool_start":
            words = next((value for value in (line.get("arguments") or {}).values() if isinstance(value, str)), "")
            text = " ".join(words.split())
            self._about[line["id"]] = text if len(text) <= _ABOUT_CHARS_MAX else f"{text[: _ABOUT_CHARS_MAX - 1]}…"
        elif line["type"] == "tool_end":
            about = self._about.pop(line["id"], "")
            note(f"  {line['name']:<8}{about}  {_outcome(line)}")


class DeniedCalls:
    """One line on stderr before the answer: which tools were denied, and how to learn why. Without it an answer of a
    model that takes no notice of the denial would be all that a person sees."""

    def __init__(self) -> None:
        self._tools: dict[str, None] = {}  # in the order in which they were first denied

    def see(self, line: AnyLine) -> None:
        if line["type"] == "tool_end" and line.get("error_code") == "permission_denied":
            self._tools[str(line["name"])] = None
        elif line["type"] == "result" and self._tools:
            names = printable(", ".join(self._tools))
            note(f"note: calls were denied: {names}; -v tells why, --allowed-tools and --permission-mode allow more")
            self._tools.clear()


def _outcome(line: ToolEndLine) -> str:
    output = str(line.get("output") or "")
    if line["is_error"]:
        return f"failed: {output.strip().split(chr(10), 1)[0][:200]}"
    count = len(output.splitlines())
    return f"{count} line{'' if count == 1 else 's'}"


@contextmanager
def logs_to_file(path: Path | None = None) -> Iterator[LogFile]:
    """Write what is logged inside the block to a file."""
    handler = LogFile(path or data_folder() / LOG_FILE)
    handler.setFormatter(logging.Formatter(_FORM))
    root, own = logging.getLogger(), logging.getLogger("lyra")
    others, root.handlers = root.handlers, [handler]
    own_before = (own.handlers, own.propagate)
    if any(_is_on_terminal(other) for other in own.handlers):  # --log-level, without its own file
        own.handlers, own.propagate = [other for other in own.handlers if not _is_on_terminal(other)], True
    logging.captureWarnings(True)
    try:
        yield handler
    finally:
        logging.captureWarnings(False)
        root.handlers = others
        own.handlers, own.propagate = own_before
        handler.close()


def _is_on_terminal(handler: logging.Handler) -> bool:
    return isinstance(handler, logging.StreamHandler) and handler.stream is sys.stderr


class LogFile(logging.Handler):
    """Opens the file with the first line, since most sessions log nothing."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.about_stores: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = visible(redact(self.format(record)))
            if record.module == _STORES:
                self.about_stores.append(visible(redact(record.getMessage())))
            make_folder(self._path.parent, private=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(self._path, flags, 0o600), "a", encoding="utf-8", errors="replace") as file:
                if file.tell() > _BYTES_MAX:
                    file.truncate(0)
                file.write(f"{line}\n")
        except (OSError, ValueError, TypeError):  # a full disk, or a message that does not fit its arguments
            return
