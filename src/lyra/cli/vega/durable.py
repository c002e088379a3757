"""What the commands that run programs share: where durable runs are kept, how a terminal runs one, and what a run is
set up with: its budget, its kernel, its MCP servers and its imported nodes.

Runs are in the file that `--db` names, else in the configured store (`kernel.store`, by default `.lyra/lyra.db` in the
project). A program of a project, which is a folder with a lyra.toml or a pyproject.toml, is run durably without being
asked to; any other only with `--db` or `--run-id`, so that a first program in an empty folder leaves nothing behind.

A durable run keeps the executions of its nodes in its own space, beside the run's, so that a node continues after a
crash together with the run. `--database` and `--provider` are not kept in the run, since they may hold passwords; they
are given to `vega resume` again.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import click

from lyra.cli.arguments import provider_addresses
from lyra.cli.render import note, printable
from lyra.errors import ConfigError, Conflict, LyraError, VegaError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from lyra.cli.app import Invocation
    from lyra.cli.vega.output import ProgramOutput
    from lyra.config import Config
    from lyra.core.imported_node import NodeHost
    from lyra.kernel.interrupts.interrupt import Interrupt
    from lyra.kernel.kernel import Kernel
    from lyra.store.space import Space
    from lyra.vega.bytecode.program import Program
    from lyra.vega.durable.durable_run import RunExecution
    from lyra.vega.durable.record import ProgramMigration
    from lyra.vega.durable.runs import DurableRun, Runs, RunSpace


_FILE: Final = "lyra.toml"
_PYTHON: Final = "pyproject.toml"


def db_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--db FILE`, as every command about runs takes it."""
    text = "The file that holds the runs; default: the configured store (kernel.store)."
    return click.option("--db", metavar="FILE", help=text)(function)


def store_file(invocation: Invocation, db: str | None) -> str:
    from lyra.vega.durable.runs import file_of

    return file_of(_find_store(invocation.config, os.getcwd()) if db is None else db)


def project_store(invocation: Invocation, file: str) -> str | None:
    """Return the store of the project that a program belongs to, where runs can be kept in it."""
    folder = os.path.dirname(os.path.abspath(file))
    if _above(folder, _FILE) is None and _above(folder, _PYTHON) is None:
        return None
    from lyra.config import Config

    config = Config.load(folder, flags=invocation.flags)
    if not _is_project(config) and _above(folder, _PYTHON) is None:
        return None  # what was found is the user's own file
    target = _find_store(config, folder).removeprefix("sqlite://")
    if target == "memory" or "://" in target:
        return None
    if not _may_write(target):
        note(f"the run is not kept: {target} cannot be written")
        return None
    return target


def _find_store(config: Config, folder: str) -> str:
    """Return the store that the settings name. The usual one lies in the project, also where only Python knows of
    that."""
    base = None if _is_project(config) else _above(folder, _PYTHON)
    if base is None or config.origin("kernel.store").kind != "default":
        return config.store_target()
    from lyra.config.files import check_no_way_out
    from lyra.config.keys import KEYS

    target = os.path.join(base, str(KEYS["kernel.store"].default))
    check_no_way_out(target, base)
    return target


def _is_project(config: Config) -> bool:
    return any(kind == "project" for kind, _ in config.files)


def _above(folder: str, name: str) -> str | None:
    """Return the nearest folder from there up that has such a file."""
    while not os.path.lexists(os.path.join(folder, name)):
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above
    return folder


def _may_write(path: str) -> bool:
    while not os.path.exists(path):
        path = os.path.dirname(os.path.abspath(path))
    return os.access(path, os.W_OK)


def fresh_id(file: str) -> str:
    """`review-7k3f`: the program's name, so that a person knows it again, and something that makes it unique."""
    import re

    from lyra.core.ids import Entropy

    stem = re.sub(r"[^A-Za-z0-9_]+", "-", os.path.splitext(os.path.basename(file))[0]).strip("-_")
    return f"{stem[:40] or 'run'}-{Entropy().text(8)}"


@contextmanager
def open_runs(path: str) -> Iterator[Runs]:
    """Provide the runs of a file, which has to be there and sound."""
    from lyra.vega.durable.runs import Runs

    with Runs(path) as runs:
        yield runs


# ---------------------------------------------------------------- a life
def come_to(
    path: str, run_id: str, *, durability: str = "process", make: bool = True
) -> tuple[Space, DurableRun | None]:
    """Return the space of a run, and the run as it is there; None when it has not begun. One that has to be there may
    be looked at where nothing can be written."""
    from lyra.store.space import Space
    from lyra.store.standing import vouch
    from lyra.vega.durable.runs import DurableRun

    space = Space(path, run_id, durability=durability, make=make, writes=make)
    try:
        if vouch(space).name == "empty":
            return space, None
        run = DurableRun(space)
        has_begun = run.has_begun and run.facts.began is not None  # all of it is read here, and found sound
    except BaseException:
        space.close()
        raise
    return space, run if has_begun else None


def live(
    invocation: Invocation,
    space: Space,
    program: Program,
    output: ProgramOutput,
    *,
    before: DurableRun | None = None,
    migration: ProgramMigration | None = None,
    held: Callable[[], object] = lambda: None,
    facts: dict[str, Any] | None = None,
    is_said: bool = True,
    **options: Any,
) -> Any:
    """Run a durable run in this process until it ends, and give what main returned.

    `held` is called once this process has the lease, so that no other can run it. Ctrl-C stops the process; the run
    waits for the next `vega resume`.
    """
    import asyncio

    from lyra.vega.durable.durable_run import RunExecution
    from lyra.vega.runtime.convert import to_python
    from lyra.vega.runtime.world import RunOptions

    def ours() -> None:
        held()
        if output.live is not None:
            output.live.start()

    def asks(interrupt: Interrupt) -> None:
        output.warn(printable(_describe_question(space.name, interrupt, command(invocation, space, "answer"))))

    def began(run_id: str) -> None:
        """Print the id once the run is durable: from here on it can be resumed, even if this process is killed."""
        if is_said:
            output.warn(f"run {run_id}")

    def print_changes() -> None:
        """Print the changes once the run has the new program."""
        for change in () if migration is None else migration.changes:
            output.warn(printable(f"migrated: {change}"))

    lives: list[RunExecution] = []

    async def main() -> Any:
        output.loop = asyncio.get_running_loop()
        if output.live is not None:
            options["picture"] = output.live.picture
        if migration is not None:
            migration.done = print_changes
        chosen = RunOptions(write=output.write, warn=output.warn, **options)
        life = RunExecution(
            space,
            program,
            chosen,
            before=before,
            migration=migration,
            config=invocation.config,
            held=ours,
            began=began,
            asks=asks,
        )
        lives.append(life)
        if output.listens:
            output.calls.listen(life.kernel, program)
        return to_python(await life.run(facts))

    with _ending(invocation, space, output, lives):
        return asyncio.run(with_servers(invocation, program, options, main, space))


@contextmanager
def _ending(invocation: Invocation, space: Space, output: ProgramOutput, lives: list[RunExecution]) -> Iterator[None]:
    """Explain an execution that ends before its run does. The view is closed, unless the run is read again."""
    from lyra.vega.durable.durable_run import Overtaken

    is_over = True
    try:
        yield
    except Overtaken:
        is_over = False
        raise
    except KeyboardInterrupt:
        _note_stop(invocation, space)
        raise
    except Conflict as conflict:
        refusal = _name_runner(invocation, space, conflict)
        if refusal is None and not any(life.is_held for life in lives):  # the other process has just finished the run
            is_over = False
            raise Overtaken from None
        raise refusal or _make_takeover_error(invocation, space) from None
    except LyraError as error:
        if any(error is life.lack for life in lives):
            _note_stop(invocation, space)
        raise
    finally:
        if is_over:
            output.end_watch()
            output.check()


def command(invocation: Invocation, space: RunSpace, verb: str) -> str:
    """`vega resume ID`, as it has to be said from here: with its file, unless that is the configured store."""
    words = f"vega {verb} {space.name}"
    if "://" in str(space.path):
        return f"{words} --cluster URL"
    path = os.path.realpath(space.path)
    with suppress(ConfigError):
        if os.path.realpath(store_file(invocation, None)) == path:
            return words
    near = os.path.relpath(path)
    return f"{words} --db {shlex.quote(path if near.startswith('..') else near)}"


def _make_takeover_error(invocation: Invocation, space: Space) -> Conflict:
    """This process was stopped for so long that another one continued with the run, and that came to the end."""
    hint = f"all of its output: {command(invocation, space, 'resume')}"
    return Conflict(f"another process has gone on with run {space.name}, and it is over", hint=hint)


def _name_runner(invocation: Invocation, space: Space, conflict: Conflict) -> Conflict | None:
    """Return the error that names the process which runs the run; None where the run is over by now."""
    from lyra.vega.durable.runs import DurableRun

    run = DurableRun(space)
    if run.has_begun and run.is_over:
        return None
    owner = str(conflict.fields.get("owner", "")).split("|")
    who = f" by process {owner[1]}" if len(owner) > 1 else ""
    hint = f"wait for it, or end it: {command(invocation, space, 'cancel')}"
    return Conflict(f"run {space.name} is being run{who}", hint=hint)


def _note_stop(invocation: Invocation, space: Space) -> None:
    note(f"run {space.name} is stopped; it goes on with: {command(invocation, space, 'resume')}")


_ANSWERS: Final = {"confirmation": "--yes or --no", "in_doubt": "retry, skip or fail"}


def _describe_question(run_id: str, interrupt: Interrupt, answer: str) -> str:
    """Return a question, and how to answer it."""
    lines = [f"run {run_id} asks ({interrupt.kind}): {interrupt.question}"]
    if interrupt.message:
        lines.append(interrupt.message)
    return "\n".join([*lines, f"answer it with: {answer} and {_ANSWERS.get(interrupt.kind, 'a TEXT')}"])


def failure(run: DurableRun) -> VegaError | None:
    """Return the error that ended a run, as `vega run` shows it."""
    from lyra.vega.values.values import uncaught

    return None if run.error is None else uncaught(run.error, run.file)


def line_of(texts: Mapping[str, str]) -> Callable[[str, int], str]:
    """Return the lines of the sources that a run keeps."""

    def line(file: str, number: int) -> str:
        lines = texts.get(file, "").split("\n")
        return lines[number - 1] if 0 < number <= len(lines) else ""

    return line


def print_lines(lines: list[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


# ---------------------------------------------------------------- setup


def kernel_of(invocation: Invocation) -> Kernel:
    """Return a kernel with the settings of a run, for a command that listens to its Events."""
    from lyra.kernel.kernel import Kernel
    from lyra.vega.runtime.run import MAILBOX_MESSAGES

    return Kernel.from_config(invocation.config, store="memory", mailbox_messages_max=MAILBOX_MESSAGES)


def settings_of(invocation: Invocation) -> dict[str, str]:
    """Return the settings of a run that has its own kernel, and is not durable: the flags. The files and variables are
    read with them, so that the user's budget and rights hold."""
    _ = invocation.config  # a mistake in one of them is reported before anything runs
    given = dict(flag.split("=", 1) for flag in invocation.flags)
    return {**given, "kernel.store": "memory"}


async def with_servers(
    invocation: Invocation,
    program: Program,
    options: dict[str, Any],
    main: Callable[[], Awaitable[Any]],
    space: Space | None = None,
) -> Any:
    """Await `main` with what the program imports: the MCP servers of lyra.toml, started, and its nodes."""
    with node_host(invocation, program, space) as nodes:
        if nodes is not None:
            options["nodes"] = nodes
        if not any(kind == "mcp" for kind, *_ in program.imports):
            return await main()
        from lyra.mcp import McpServers

        async with McpServers.load(invocation.config) as servers:
            options["servers"] = servers
            return await main()


# ---------------------------------------------------------------- nodes

_SUFFIX: Final = ".nodes"
_NAME_MAX: Final = 64


def node_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--database` and `--provider`, for imported nodes."""
    function = click.option("--database", metavar="URL", help="Imported nodes: sqlite:///FILE or postgresql://…")(
        function
    )
    return click.option(
        "--provider",
        "providers",
        metavar="NAME=URL",
        multiple=True,
        help="Imported nodes: the address behind a provider's name.",
    )(function)


def remember_node_options(invocation: Invocation, database: str | None, providers: Iterable[str]) -> None:
    """Check the options of this command, and keep them for `node_host`."""
    invocation.node_options = {"database": database, "providers": provider_addresses(providers)}


@contextmanager
def node_host(invocation: Invocation, program: Program, space: Space | None = None) -> Iterator[NodeHost | None]:
    """Provide the host of the nodes that a program imports; None where it imports none. `space` is that of a durable
    run."""
    if not any(kind == "node" for kind, *_ in program.imports):
        yield None
        return
    from lyra.store.space import Space
    from lyra.vesper.runtime.faces import ImportableNodes

    def store() -> Space:
        assert space is not None
        return Space(space.path, _space_name(space.name))

    target = invocation.config.store_target()
    nodes = ImportableNodes(
        "memory" if space is None else store,
        modes_of=target.removeprefix("sqlite://"),
        results=invocation.config.vesper.results.reveal(),
        **invocation.node_options,
    )
    try:
        yield nodes
    finally:
        nodes.close()


def _space_name(run: str) -> str:
    if len(run) + len(_SUFFIX) <= _NAME_MAX:
        return f"{run}{_SUFFIX}"
    import hashlib

    return f"{run[:32]}.{hashlib.sha256(run.encode()).hexdigest()[:16]}{_SUFFIX}"
