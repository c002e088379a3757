"""`vega run FILE`, which is also `lyra run FILE`: a program from its file to its exit code.

stdout is what the program prints and nothing else; with `--json` one document that has it. An uncaught error is
`error[Name]: text` with its place on stderr and exit 1; a wrong program exits with 2 before anything runs. A program
that only computes and prints needs no kernel and gets none. A durable run has its id on stderr, as `run ID`, and goes
on after a crash with `vega resume ID`; which runs are durable is `vega_durable`'s to say.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import click

from lyra.cli.app import Command, Session, json_option
from lyra.cli.new_file import check_folder
from lyra.cli.vega.durable import db_option, project_store, store_file
from lyra.cli.vega.files import Files, error_data, problem_data, say_error, say_problems
from lyra.errors import ConfigError, SourceError, VegaError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from lyra.cli.vega.live import Live
    from lyra.kernel.kernel import Kernel
    from lyra.vega.bytecode.program import Program

__all__ = ["Calls", "Output", "dollars", "kernel_of", "run", "tell", "with_servers"]


@click.command(cls=Command, name="run")
@click.argument("file")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option("--model", metavar="NAME", help="Use this model for every agent; `sim/echo` needs no key.")
@click.option("--budget", metavar="$X", help="Stop before the whole run spends more dollars than this.")
@click.option("--sequential", is_flag=True, help="Make every call in its turn: nothing overlaps by itself.")
@click.option("--trace", is_flag=True, help="Write each agent call to stderr as one JSON object a line.")
@click.option("--live", is_flag=True, help="Show processes, calls, cost and restarts on stderr while it runs.")
@click.option(
    "--workers",
    metavar="N",
    type=click.IntRange(1, 64),
    default=1,
    help="Run processes in N threads; more than 1 gains nothing while Python has its global lock, and every function "
    "is interpreted then.",
)
@db_option
@click.option("--run-id", metavar="ID", help="The name of a durable run; the same name again goes on with it.")
@json_option
@click.pass_context
def run(
    ctx: click.Context,
    /,
    *,
    file: str,
    args: tuple[str, ...],
    model: str | None,
    budget: str | None,
    sequential: bool,
    trace: bool,
    live: bool,
    workers: int,
    db: str | None,
    run_id: str | None,
    as_json: bool,
) -> None:
    """Run a Vega program: a source, or a compiled .vgb file.

    `-` reads the source from stdin. What follows `--` are the program's own arguments: env::args(), or the parameter
    of main. With --db or --run-id, or in a project (a folder with a lyra.toml or a pyproject.toml), the run is
    durable: killed, it goes on with `vega resume`.
    """
    session, files = ctx.ensure_object(Session), Files(file)
    limit = None if budget is None else dollars(budget)
    output = Output(collect=as_json)
    calls = Calls(trace=output.warn if trace else None, model=model)
    heard = trace or as_json
    value, failed = None, None
    try:
        program = files.program()
        if live and not as_json:  # which has room for nothing else
            output.watch()
        options: dict[str, Any] = {"model": model, "budget": limit, "args": args, "sequential": sequential}
        store = _store(session, file, db, run_id, workers)
        if store is not None:
            from lyra.cli.vega.start import start

            is_said = not trace or _is_wanted(session, db, run_id)  # else stderr is for the lines of the trace alone
            told = {"heard": heard, "as_json": as_json, "is_said": is_said}
            start(ctx, store, run_id, files, program, output, calls, **told, **options)
            return
        value = _ran(session, program, output, calls, heard=heard, workers=workers, **options)
    except SourceError as error:
        if as_json:
            _tell_wrong(file, error)
        else:
            say_problems(error)
        ctx.exit(2)
    except VegaError as error:
        failed = error
    output.close()
    if as_json:
        tell(file, output, calls, value, failed)
    elif failed is not None:
        say_error(failed, files.line)
    ctx.exit(0 if failed is None else 1)


def _store(session: Session, file: str, db: str | None, run_id: str | None, workers: int) -> str | None:
    """The file that the run is kept in, if it is durable; several workers leave nothing to go on with."""
    if _is_wanted(session, db, run_id):
        if workers > 1:
            raise ConfigError("a durable run has one worker", hint="leave --workers out", key="--workers")
        if db is not None:
            check_folder(db, "--db")
        return store_file(session, db)
    return project_store(session, file) if workers == 1 else None


def _is_wanted(session: Session, db: str | None, run_id: str | None) -> bool:
    """Whether somebody has asked for a durable run, other than by having a project."""
    return db is not None or run_id is not None or any(flag.startswith("kernel.store=") for flag in session.flags)


def _ran(session: Session, program: Program, output: Output, calls: Calls, *, heard: bool, **options: Any) -> Any:
    from lyra.vega.host.plain import is_plain, run_plain

    if session.flags:
        _ = session.config  # a setting that is none is said before anything runs
    elif output.live is None and is_plain(program):
        return _json_value(run_plain(program, output.write, options["args"]))
    import asyncio

    from lyra.cli import ctrl_c as interrupts
    from lyra.vega.runtime.run import run as run_program

    async def main() -> Any:
        output.loop = asyncio.get_running_loop()
        if output.live is not None:
            options["picture"] = output.live.picture
            output.live.start()
        if not heard:
            return await run_program(
                program, stdout=output.write, stderr=output.warn, settings=_settings(session), **options
            )
        async with kernel_of(session) as kernel:
            calls.know(program)
            kernel.on_event(calls, calls.KINDS)
            return await run_program(
                program, stdout=output.write, stderr=output.warn, kernel=kernel, alone=True, **options
            )

    try:
        return interrupts.run(with_servers(session, program, options, main))
    finally:
        output.end_watch()
        output.check()


async def with_servers(
    session: Session, program: Program, options: dict[str, Any], main: Callable[[], Awaitable[Any]]
) -> Any:
    """The run; where the program imports tools from MCP servers, with those of lyra.toml."""
    if not any(kind == "mcp" for kind, *_ in program.imports):
        return await main()
    from lyra.mcp import McpServers

    async with McpServers.load(session.config) as servers:
        options["servers"] = servers
        return await main()


def _settings(session: Session) -> dict[str, str]:
    if not session.flags:
        return {}
    given = dict(flag.split("=", 1) for flag in session.flags)  # loaded once already: each has its `=`
    return {**given, "kernel.store": "memory"}  # a durable run has a journal, and is another matter


def kernel_of(session: Session) -> Kernel:
    """A kernel as runs have it, for those who want to listen to it."""
    from lyra.kernel.kernel import Kernel
    from lyra.vega.runtime.run import MAILBOX_MESSAGES

    if session.flags:
        return Kernel.from_config(session.config, store="memory", mailbox_messages_max=MAILBOX_MESSAGES)
    return Kernel(mailbox_messages_max=MAILBOX_MESSAGES)


def dollars(text: str) -> Any:
    """The amount of `--budget`: `$0.50` or `0.50`."""
    from lyra.core.budgets.money import Money

    try:
        return Money.parse(text)
    except ConfigError as mistake:
        hint = "write dollars, such as '$0.50' (in quotes, or the shell takes the $)"
        raise ConfigError(f"--budget: {mistake.message}", hint=hint, key="--budget") from None


class Output:
    """Where the program prints to. Lines are written as they come and flushed when the loop gets its turn, so that a
    pipe sees them while the program waits, and thousands of them cost no thousand system calls."""

    def __init__(self, *, collect: bool) -> None:
        self.lines: list[str] | None = [] if collect else None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.live: Live | None = None
        self._failed: OSError | None = None
        self._flushes = False

    def write(self, line: str) -> None:
        if self.lines is not None:
            self.lines.append(line)
            return
        if self._failed is not None:
            raise self._failed
        if self.live is not None and self.live.write(line):
            return
        try:
            sys.stdout.write(line + "\n")
        except OSError as error:
            self._failed = error
            raise
        if self.loop is not None and not self._flushes:
            self._flushes = True
            self.loop.call_soon(self._flush)

    def warn(self, line: str) -> None:
        self._flush()
        if self.live is not None:
            self.live.warn(line)
        else:
            click.echo(line, err=True)

    def watch(self) -> None:
        """From now on there is a live view to print past."""
        from lyra.cli.vega.live import live_view
        from lyra.core.clock import SystemClock

        self.live = live_view(SystemClock())

    def end_watch(self) -> None:
        live, self.live = self.live, None
        if live is not None:
            self._flush()
            live.close()

    def _flush(self) -> None:
        self._flushes = False
        try:
            sys.stdout.flush()
        except OSError as error:
            self._failed = error

    def check(self) -> None:
        """Nobody reads stdout any more: that is how the run ended, whatever the program made of it."""
        if self._failed is not None:
            raise self._failed

    def close(self) -> None:
        """Everything printed stands before what is said about it."""
        if self.lines is None:
            sys.stdout.flush()


_GUESSED: Final = ("guessed_tokens", "guessed_usd")  # of a call that was cut off, where somebody counts that


class Calls:
    """A listener: one record for each agent call, all its model calls together; `trace` is where lines of them go. What
    was asked ahead of its turn is told when the program comes to it, or as `speculative` when it never does."""

    KINDS = frozenset({"model.called", "agent.answered", "call.ahead", "call.taken", "call.speculative"})

    def __init__(self, *, trace: Callable[[str], object] | None, model: str | None = None) -> None:
        self.count = 0
        self.cost_usd = 0.0
        self.speculative = 0
        self.speculative_usd = 0.0
        self._trace = trace
        self._model = model or ""
        self._written: dict[str, list[str]] = {}  # the models of each agent, as the program names them
        self._parts: dict[str, list[dict[str, Any]]] = {}  # model calls by the turn they belong to
        self._early: dict[str, dict[str, Any] | None] = {}  # by process: calls that nobody has come to

    def know(self, program: Program) -> None:
        """Records name models as the program does; `--model` is in place of all."""
        from lyra.vega.machine.link import link
        from lyra.vega.runtime.rights import settings_of

        linked = link(program)
        for name, info in program.agents.items():
            models = (settings_of(linked, info.configuration) or {}).get("model") or []
            self._written[name] = [self._model] if self._model else models if isinstance(models, list) else [models]

    def _named(self, agent: str, parts: list[dict[str, Any]]) -> str:
        """The model that was asked last, or would have been: a call that was refused asked none."""
        written = self._written.get(agent) or [self._model]
        if not parts:
            return written[0]
        asked: str = parts[-1]["model"]
        return next((name for name in written if name and asked.endswith(f"/{name}")), asked)

    def __call__(self, event: Any) -> None:
        data = event.data
        if event.kind == "model.called":
            self._parts.setdefault(data["parent_span"], []).append(data)
            if event.pid in self._early and self._early[event.pid] is None:
                self._early[event.pid] = {**data}  # one that is cut off has no more than this
        elif event.kind == "agent.answered":
            parts = self._parts.pop(data["span_id"], [])
            record = _record(data, parts, self._named(data["agent"], parts))
            if event.pid in self._early:
                self._early[event.pid] = record | {key: part[key] for part in parts for key in part if key in _GUESSED}
            else:
                self._tell(record)
        elif event.kind == "call.ahead":
            self._early[data["pid"]] = None
        else:
            self._over(self._early.pop(data["pid"], None), is_taken=event.kind == "call.taken")

    def _over(self, record: dict[str, Any] | None, *, is_taken: bool) -> None:
        if record is None:
            return  # it never got as far as a model
        guessed_tokens, guessed_usd = record.pop("guessed_tokens", 0), record.pop("guessed_usd", 0.0)
        if is_taken:
            self._tell(record)
            return
        record["input_tokens"] = record["input_tokens"] or guessed_tokens
        record["cost_usd"] = record["cost_usd"] or guessed_usd
        self.speculative += 1
        self.speculative_usd += record["cost_usd"]
        self._write({**record, "status": "speculative"})

    def _tell(self, record: dict[str, Any]) -> None:
        """A call of the program: what it made ahead of its turn and never came to is none, and counted apart."""
        self.count += 1
        self.cost_usd += record["cost_usd"] or 0.0
        self._write(record)

    def _write(self, record: dict[str, Any]) -> None:
        if self._trace is not None:
            import json

            self._trace(json.dumps(record, allow_nan=False, default=str))


def _record(turn: dict[str, Any], parts: list[dict[str, Any]], model: str) -> dict[str, Any]:
    """The eleven fields, in the order of the specification."""
    return {
        "trace_id": turn["trace_id"],
        "span_id": turn["span_id"],
        "agent": turn["agent"],
        "model": model,
        "input_tokens": turn["input_tokens"],
        "output_tokens": turn["output_tokens"],
        "cost_usd": turn["cost_usd"],
        "latency_ms": turn["latency_ms"],
        "status": turn["status"],
        "retries": sum(part["retries"] for part in parts),
        "parent_span": turn["parent_span"],
    }


# ---------------------------------------------------------------- --json
def tell(
    file: str, output: Output, calls: Calls, value: Any, failed: VegaError | None, run_id: str | None = None
) -> None:
    from lyra.cli.render import document

    document(
        {
            **({} if run_id is None else {"run": run_id}),
            "file": file,
            "ok": failed is None,
            "output": output.lines,
            "value": value,
            "error": None if failed is None else error_data(failed),
            "calls": calls.count,
            "cost_usd": round(calls.cost_usd, 6),
            "speculative_calls": calls.speculative,
            "speculative_usd": round(calls.speculative_usd, 6),
        }
    )


def _tell_wrong(file: str, error: SourceError) -> None:
    from lyra.cli.render import document

    problems = [problem_data(problem) for problem in error.fields.get("problems") or ()]
    document(
        {"file": file, "ok": False, "problems": problems or [{"message": error.message, "hint": error.hint or ""}]}
    )


def _json_value(value: Any) -> Any:
    """What a plain program returns, as Python; most return nothing."""
    if value is None or type(value) in (bool, int, str):
        return value
    convert: Callable[[Any], Any]
    from lyra.vega.runtime.convert import to_python as convert

    return convert(value)
