"""`lyra agent -p TASK`: one agent with the built-in tools, in this folder, without questions to a person.

Parses, runs `headless.headless` and prints: the answer alone (`text`), the result as one JSON document (`json`), or
everything that happens, one object a line (`stream-json`). Errors go to stderr in every format. Decides nothing: what
the agent may do is said by rules, files and flags, and what no rule allows is denied.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import stat
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import click

from lyra.cli.app import CliCommand, Invocation
from lyra.cli.arguments import check_folder
from lyra.cli.commands.trust import ask_for_trust
from lyra.cli.process_io import CollectorPause, StdoutThread
from lyra.cli.render import note, printable, report
from lyra.errors import ConfigError, LyraError

if TYPE_CHECKING:
    from lyra.agents.headless.headless import Headless, HeadlessOutcome
    from lyra.agents.headless.options import HeadlessOptions
    from lyra.agents.session.events import AnyLine
    from lyra.core.event import Event
    from lyra.mcp import ServerSettings


_EFFORTS: Final = ("low", "medium", "high")
_MODES: Final = ("default", "accept-edits", "sandboxed", "plan", "bypass", "deny-unasked")
_LEVELS: Final = ("none", "basic", "detailed")
_FORMATS: Final = ("text", "json", "stream-json")
_PIPE_WAIT_S: Final = 2.0  # for the first byte of what is piped in beside a task
_TASK_BYTES_MAX: Final = 10 * 1024 * 1024
_FILE_BYTES_MAX: Final = 1024 * 1024  # of a system prompt or a schema
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_END_S: Final = 10  # for everything to stop after one of them
_LAST_WORDS_S: Final = 1.0  # for the reader to take the last line


def agent_options(function: Any) -> Any:
    """Return the options of a run that `lyra agent` and `sage` share."""
    return session_options(_with_options(function, _PRINTED))


def session_options(function: Any) -> Any:
    """Those of a session that prints nothing by itself."""
    return _with_options(function, _OPTIONS)


def _with_options(function: Any, options: Sequence[Callable[[Any], Any]]) -> Any:
    for option in reversed(options):
        function = option(function)
    return function


_OPTIONS: Final = (
    click.option(
        "--model", metavar="MODEL", default="", help="PROVIDER/MODEL; default: agent.model of the configuration."
    ),
    click.option("--system", "system_file", metavar="FILE", help="A file with the system prompt to use."),
    click.option(
        "--permission-mode",
        "mode",
        type=click.Choice(_MODES),
        help="The permission mode; default: as the permission files say.",
    ),
    click.option(
        "--allowed-tools", "allow", metavar="RULE", multiple=True, help="A rule that allows. May be repeated."
    ),
    click.option(
        "--disallowed-tools", "deny", metavar="RULE", multiple=True, help="A rule that denies. May be repeated."
    ),
    click.option("--max-budget-usd", "budget", metavar="X", help="Stop before more dollars than this are spent."),
    click.option(
        "--max-tokens",
        type=click.IntRange(1, 10**7),
        help="The longest answer in tokens; default: agent.max_tokens, else the model's own.",
    ),
    click.option("--effort", type=click.Choice(_EFFORTS), help="How much the model thinks; default: sage.effort."),
    click.option(
        "--max-turns", "--max-steps", "max_turns", type=click.IntRange(1, 10**6), help="Maximum number of model calls."
    ),
    click.option(
        "--add-dir", "also", metavar="DIR", multiple=True, help="A further folder to work in. May be repeated."
    ),
    click.option("--audit", default="", metavar="FILE|FOLDER", help="Write an audit log of decisions; see lyra audit."),
    click.option(
        "--audit-level", type=click.Choice(_LEVELS), help="Detail of the audit log; default: the configuration."
    ),
)
_PRINTED: Final = (
    click.option("--output-format", "form", type=click.Choice(_FORMATS), default="text", show_default=True),
    click.option(
        "--json-schema",
        "schema_text",
        metavar="FILE|JSON",
        help="A JSON schema that the answer has to fit: a file, or the JSON itself.",
    ),
)


@click.command(cls=CliCommand, uses_trust=True)
@click.option("-p", "--prompt", metavar="TASK", help="What to do; `-` reads it from stdin. Piped text is added to it.")
@agent_options
@click.option("-c", "--continue", "continues", is_flag=True, help="Go on with the newest session of this folder.")
@click.option("-r", "--resume", metavar="ID", help="Go on with a session; see sage sessions list.")
@click.option("--store", default="memory", show_default=True, metavar="FILE|URL", help="Where the run is journaled.")
@click.pass_context
def agent(ctx: click.Context, /, *, form: str, continues: bool, resume: str | None, **given: Any) -> None:
    """Run one agent with the built-in tools in this folder."""
    invocation, printer = ctx.ensure_object(Invocation), LinePrinter(form)
    pause = ctx.with_resource(CollectorPause())
    resume = check_resume(resume, continues=continues, store=given["store"])
    take_over_settings(resume, given)
    task, piped = task_of(given["prompt"], 'say what to do: lyra agent -p "TASK"')
    ctx.exit(
        run_printed(
            invocation,
            printer,
            given,
            lambda options: _ask_session(invocation, options, task, piped, printer, resume, pause),
        )
    )


def check_resume(resume: str | None, *, continues: bool, store: str = "memory") -> str | None:
    """Return the session to continue with: an id, "" for the newest one, None for none."""
    if resume is not None and continues:
        raise click.UsageError("--continue is the newest session and --resume another one: use one of them")
    if resume == "":
        raise click.UsageError("--resume takes the id of a session here; see sage sessions list")
    if (resume is not None or continues) and store != "memory":
        raise click.UsageError("--store names a store of one run; a session has a store of its own")
    return "" if continues else resume


def take_over_settings(resume: str | None, given: dict[str, Any]) -> None:
    """Take over the model of the session to continue with, where none was asked for. Its permission mode is taken over
    when it is opened; that `bypass` is not is told here."""
    if resume is None or (given["model"] and given["mode"]):
        return
    from lyra.sage.session.index import SessionIndex

    with SessionIndex() as index:
        try:
            record = index.get(resume) if resume else index.latest(os.path.realpath(os.curdir))
        except LyraError:  # said when the session is opened
            return
    if record is None:
        return
    given["model"] = given["model"] or record.model
    if record.mode == "bypass" and given["mode"] is None:
        note("note: the mode bypass of the session is not kept; add --permission-mode bypass if it is wanted")


def run_printed(
    invocation: Invocation,
    printer: LinePrinter,
    given: dict[str, Any],
    run: Callable[[HeadlessOptions], Coroutine[Any, Any, HeadlessOutcome]],
    *,
    rules: bool = False,
    asks: bool = True,
) -> int:
    """Run and print in one format; the exit code. `rules`: the run gives a model the rules of the folder. `asks`: a
    person at the terminal is asked whether the folder's files are trusted."""
    try:
        options = options_of(given)
        tell_default_model(invocation, options)
        ask_for_trust(invocation, os.curdir, rules=rules, asks=asks)
        return asyncio.run(_run(invocation, run(options), printer))
    except LyraError as error:  # before the run began; one in it is a part of its result
        from lyra.agents.headless.headless import result_line, status_of, with_error

        printer.tell(with_error(result_line(status_of(error)), error))
        return report(error, debug=invocation.debug)


class LinePrinter:
    """stdout in one format. The result is written once, whatever happens after it; of `several` turns each has one."""

    def __init__(self, form: str, *, several: bool = False) -> None:
        self._types = {"text": frozenset(), "json": frozenset({"result"})}.get(form)  # None is all of them
        self._several = several
        self.is_text = form == "text"
        self._over = False
        self._stdout: StdoutThread | None = None

    @property
    def has_opening(self) -> bool:
        """Whether the `system` line is printed."""
        return self._types is None

    def tell(self, line: AnyLine) -> None:
        """Print an object as one line and flush. ASCII only, so that it is valid in any locale."""
        if self._is_wanted(line):
            sys.stdout.write(_line(line))
            sys.stdout.flush()

    async def say(self, line: AnyLine) -> None:
        """Print lines while something runs, which a reader that sleeps must not hold up."""
        if self._is_wanted(line):
            await self.put(_line(line))

    async def put(self, text: str) -> None:
        """Write a text while something runs."""
        if self._stdout is None:
            try:
                self._stdout = StdoutThread(sys.stdout.fileno())
            except (OSError, ValueError):  # stdout is no file
                sys.stdout.write(text)
                return
        await self._stdout.put(text.encode(errors="backslashreplace"))

    async def drain(self) -> None:
        if self._stdout is not None:
            await self._stdout.drain()

    def _is_wanted(self, line: AnyLine) -> bool:
        if line["type"] == "notice" and line.get("source") != "user":  # for the user, not for programs that read stdout
            if line["level"] != "status":
                note(f"warning: {line['text']}" if line["level"] == "warning" else line["text"])
            return False
        if line["type"] == "retry" and self._types is not None:
            from lyra.agents.session.events import retry_sentence

            note(retry_sentence(line["reason"], line["wait_s"], line["attempt"], line["of"]))
            return False
        if self._over or (self._types is not None and line["type"] not in self._types):
            return False
        self._over = line["type"] == "result" and not self._several
        return True

    def answer(self, text: str) -> None:
        """To a pipe as it was said; to a terminal without what would write there on its own."""
        sys.stdout.write(f"{printable(text) if sys.stdout.isatty() else text}\n")


def _line(line: AnyLine) -> str:
    return json.dumps(line, allow_nan=False, default=str) + "\n"


async def _run(invocation: Invocation, asked: Coroutine[Any, Any, HeadlessOutcome], printer: LinePrinter) -> int:
    with ending_signals() as came:
        try:
            outcome = await asked
            await printer.drain()
        except asyncio.CancelledError:  # a signal; all that was started is stopped by now
            if not came:
                raise
            with suppress(TimeoutError, OSError):
                await asyncio.wait_for(printer.drain(), _LAST_WORDS_S)
            if came[0] == signal.SIGINT:
                note("interrupted")
            return 128 + came[0]
    if printer.is_text and outcome.has_answer:
        printer.answer(outcome.result["text"])
    if outcome.error is None:
        return 0
    if printer.is_text and not outcome.has_answer and outcome.result.get("text"):
        note(printable(outcome.result["text"]))  # how far it came
    return report(outcome.error, debug=invocation.debug)


async def _ask_session(
    invocation: Invocation,
    options: HeadlessOptions,
    task: str,
    piped: str,
    printer: LinePrinter,
    resume: str | None,
    pause: CollectorPause,
) -> HeadlessOutcome:
    def on_opened(headless: Headless) -> None:
        pause.end()
        warn(headless)

    if resume is not None:
        from lyra.sage.agent.live import SessionStart
        from lyra.sage.print import ask_session

        async with with_servers(invocation, options) as equipped:
            start = SessionStart(resume=resume)
            return await ask_session(
                equipped,
                invocation.config,
                start,
                task,
                printer.say,
                beside=piped,
                warn=on_opened,
                opening=printer.has_opening,
            )
    from lyra.agents.headless.headless import Headless

    options = _with_hooks(invocation, options)
    async with with_servers(invocation, options) as equipped, Headless(equipped, invocation.config) as run:
        on_opened(run)
        try:
            return await run.ask(task, printer.say, beside=piped, opening=printer.has_opening)
        except asyncio.CancelledError:
            with suppress(TimeoutError, OSError):
                await asyncio.wait_for(printer.say(run.result("interrupted")), _LAST_WORDS_S)
            raise


def _with_hooks(invocation: Invocation, options: HeadlessOptions) -> HeadlessOptions:
    """Return the options with the hooks of the settings files; where there are none, nothing of them is imported."""
    if not invocation.config.hooks:
        return options
    import msgspec

    from lyra.sage.extensions.hooks import Hooks

    return msgspec.structs.replace(options, hooks=Hooks.from_config(invocation.config, options.folder))


@asynccontextmanager
async def with_servers(
    invocation: Invocation, options: HeadlessOptions, more: Sequence[ServerSettings] = (), *, waits: bool = True
) -> AsyncIterator[HeadlessOptions]:
    """Provide the options with the tools of MCP servers, and of `more`; where there is none, nothing of it is
    imported. They connect in the background; what is printed `waits` for them for a few seconds, and the first turn
    does in any case. With a cluster in the settings they have that one."""
    if invocation.config.sage.cluster is not None and options.placer is None:
        import msgspec

        from lyra.cluster.peers import PeerTls
        from lyra.cluster.sage_tasks import ClusterPlacer

        tls = PeerTls.from_config(invocation.config)
        async with ClusterPlacer(invocation.config.sage.cluster.reveal(), tls) as placer:
            placed = msgspec.structs.replace(options, placer=placer)
            async with with_servers(invocation, placed, more, waits=waits) as equipped:
                yield equipped
        return
    if not more and not _names_servers(invocation):
        yield options
        return
    import msgspec

    from lyra.agents.headless.headless import late_servers
    from lyra.agents.headless.setup import setup_of
    from lyra.mcp import McpServers

    outfit = setup_of(options)  # a mistake in a flag is said before anything is started
    async with McpServers.load(
        invocation.config, outfit.folder, more=more, denied=outfit.permissions.denied
    ) as servers:
        if servers.warning:
            note(f"warning: {servers.warning}")
        servers.begin()
        late = await servers.settle() if waits else []
        if late:
            note(f"warning: {late_servers(late)}")
        states = [state.to_data() for state in servers.states()]
        yield msgspec.structs.replace(options, tools=(servers,), facts={"mcp_servers": states})


def _names_servers(invocation: Invocation) -> bool:
    return bool(invocation.config.mcp_servers) or os.path.exists(".mcp.json")


@contextmanager
def ending_signals() -> Iterator[list[int]]:
    """Watch for signals in the block: the first one cancels this task and is added to the list; the next one ends the
    process at once.

    So does an alarm where the end takes too long: nothing that was started may keep a run that was told to stop.
    """
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in _ENDING}
    heard = [number for number, how in before.items() if how is not signal.SIG_IGN]  # `nohup` means it

    def end(number: int, _frame: object) -> None:
        came.append(number)
        for signal_number in (*heard, signal.SIGALRM):
            signal.signal(signal_number, signal.SIG_DFL)
        signal.alarm(_END_S)
        loop.call_soon_threadsafe(task.cancel)

    for number in heard:
        signal.signal(number, end)
    try:
        yield came
    finally:
        if not came:
            for number in heard:
                signal.signal(number, before[number])


def warn(run: Headless, *, watches: bool = True) -> None:
    """Tell what is wrong with rules and files; with `watches`, also what becomes wrong with files of tools later."""
    from lyra.agents.headless.setup import unknown_tools

    options = run.options
    rules = (*options.allow, *options.deny)
    if any(server["state"] == "connecting" for server in options.facts.get("mcp_servers", ())):
        rules = tuple(rule for rule in rules if not rule.startswith("mcp__"))  # their tools are not known yet
    for rule, meant in unknown_tools(rules, _list_ruled(run)):
        note(f"warning: no tool is meant by the rule {rule!r}" + (f"; did you mean {meant!r}?" if meant else ""))
    problems = [problem for source in run.agent.sources for problem in getattr(source, "problems", ())]
    for sentence in (*run.config.notes, *problems):
        note(f"note: {sentence}")
    if watches:
        _tell_of_tools(run, set(problems))


def _list_ruled(run: Headless) -> list[str]:
    """Return what a rule can speak of: the tools, and the text that a server may ask back for."""
    servers = [server["name"] for server in run.options.facts.get("mcp_servers", ())]
    if not servers:
        return run.tool_names()
    from lyra.mcp.settings import sampling_name, server_keys

    return [*run.tool_names(), *(sampling_name(key) for key in server_keys(servers).values())]


def _tell_of_tools(run: Headless, told: set[str]) -> None:
    """Report files of tools that are edited during the run and become invalid."""

    def tell(event: Event) -> None:
        for problem in event.data["problems"]:
            if problem not in told:
                told.add(problem)
                note(f"note: {problem}")

    run.kernel.on_event(tell, kinds=("tools.problems",))


# ---------------------------------------------------------------- what was given
def options_of(given: dict[str, Any]) -> HeadlessOptions:
    from lyra.agents.headless.options import TURNS_MAX, HeadlessOptions

    store = given.get("store", "memory")
    check_folder(store, "--store")
    system, schema = given["system_file"], given.get("schema_text")
    return HeadlessOptions(
        model=given["model"],
        also=given["also"],
        system=None if system is None else _text_of(system, "--system"),
        mode=given["mode"],
        allow=given["allow"],
        deny=given["deny"],
        budget=None if given["budget"] is None else _dollars(given["budget"]),
        max_turns=given["max_turns"] or TURNS_MAX,
        max_tokens=given["max_tokens"],
        effort=given["effort"] or "",
        output=None if schema is None else _schema(schema),
        store=store,
        audit=given["audit"],
        audit_level=given["audit_level"],
    )


def tell_default_model(invocation: Invocation, options: HeadlessOptions) -> None:
    """Tell which model is asked where none is named and a vendor's key is there."""
    from lyra.core.providers import default_model

    model, variable = default_model(os.environ)
    if model and not (options.model or invocation.config.agent.model):
        note(f"note: no model is named, so {model} is asked, with the key of {variable}; --model names another one")


def _dollars(text: str) -> Any:
    from lyra.core.budgets.money import Money

    try:
        return Money.parse(text)
    except ConfigError as mistake:
        hint = "write dollars, such as 0.50"
        raise ConfigError(f"--max-budget-usd: {mistake.message}", hint=hint, key="--max-budget-usd") from None


def _text_of(file: str, flag: str) -> str:
    try:
        with open(file, "rb") as opened:
            data = opened.read(_FILE_BYTES_MAX + 1)
        if len(data) > _FILE_BYTES_MAX:
            raise ConfigError(f"{flag} {file} is larger than {_FILE_BYTES_MAX} bytes", key=flag)
        return data.decode()
    except OSError as error:
        raise ConfigError(f"{flag} {file} cannot be read: {error.strerror}", key=flag) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{flag} {file} is not a text in UTF-8", key=flag) from None


def _schema(given: str) -> Any:
    """Read the schema of `--json-schema`: what begins with a brace is JSON, all else the name of a file."""
    flag = "--json-schema"
    is_inline = given.lstrip().startswith("{")
    named = flag if is_inline else f"{flag} {given}"
    try:
        schema = json.loads(given if is_inline else _text_of(given, flag))
    except json.JSONDecodeError as error:
        hint = """put it in single quotes: '{"type": "object"}'""" if is_inline else "it holds one JSON object"
        raise ConfigError(f"{named} is not JSON: {error}", hint=hint, key=flag) from None
    except ConfigError as error:
        hint = """name a file, or give the schema itself: '{"type": "object"}'"""
        raise ConfigError(error.message, hint=hint, key=flag) from None
    if not isinstance(schema, dict):
        raise ConfigError(f"{named} holds no JSON schema", hint="it is an object", key=flag)
    return schema


def task_of(prompt: str | None, missing: str) -> tuple[str, str]:
    """Return the task, and the text to work on that is piped in beside it; with `-p -` all of stdin is the task."""
    if prompt is None:
        raise click.UsageError(missing)
    # An argument that is not UTF-8 comes as half characters, which no model's format can say.
    task = _stdin(wait_s=None) if prompt == "-" else os.fsencode(prompt).decode(errors="replace")
    if not task.strip():
        raise click.UsageError("the task is empty")
    return task, _stdin(wait_s=_PIPE_WAIT_S) if prompt != "-" and _is_piped() else ""


def _is_piped() -> bool:
    """Text comes from another program or a file; a terminal or /dev/null has nothing to add."""
    try:
        kind = os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, OSError, ValueError):  # it is closed, or is none
        return False
    return stat.S_ISFIFO(kind) or stat.S_ISREG(kind) or stat.S_ISSOCK(kind)


def _stdin(wait_s: float | None) -> str:
    """Read all of stdin; with `wait_s`, give up on a pipe into which nothing is written for that long."""
    if sys.stdin is None:
        raise ConfigError("stdin is closed, and the task was to come from it", key="-p")
    source = sys.stdin.buffer
    try:
        if wait_s is not None and not select.select([source], [], [], wait_s)[0]:
            note("note: nothing came on stdin, so the task goes without it; -p - waits for it")
            return ""
        data = source.read(_TASK_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        raise ConfigError(f"stdin cannot be read: {error}", key="-p") from None
    if len(data) > _TASK_BYTES_MAX:
        raise ConfigError(f"more than {_TASK_BYTES_MAX} bytes came on stdin", hint="put them in a file", key="-p")
    return data.decode(errors="replace")
