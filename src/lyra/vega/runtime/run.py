"""`lyra.vega.run`: a program from its source to its end, on its own kernel or on yours.

    from lyra import vega

    vega.run('print("hello");')                                   # in a script
    value = await vega.run(source, model="sim/echo")               # in async code
    vega.run(source, host={"double": lambda n: n * 2})             # `double(21)` in the program

The result is what `main` returns, as Python. An error that the program did not catch is a VegaError.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from inspect import CORO_CREATED, getcoroutinestate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from lyra.core.imported_node import NODE_FILES, NodeHost
from lyra.errors import ConfigError, ProcessExit, VegaError
from lyra.kernel.kernel import Kernel
from lyra.kernel.process.process import Exit, Process
from lyra.vega.bytecode.program import Program
from lyra.vega.checker.checker import Load, parse_and_check
from lyra.vega.runtime.convert import to_python
from lyra.vega.runtime.driver import PROGRAMS, vega_process
from lyra.vega.runtime.job import VegaJob
from lyra.vega.runtime.world import RunOptions, World
from lyra.vega.syntax.source import Source
from lyra.vega.values.values import ErrorValue, Fault, uncaught

if TYPE_CHECKING:
    from lyra.vega.runtime.picture import Picture


MAILBOX_MESSAGES: Final = 1_000_000  # a program's processes are not slowed down by each other
ENDING_S: Final = 2.0  # for what still runs at the end to hang up


def run(
    source: str | Program,
    *,
    name: str = "<vega>",
    model: str | None = None,
    budget: Any = None,
    args: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    stdout: TextIO | Callable[[str], object] | None = None,
    stderr: TextIO | Callable[[str], object] | None = None,
    host: Mapping[str, Callable[..., Any]] | None = None,
    python: Collection[str] = (),
    kernel: Kernel | None = None,
    folder: str | None = None,
    grant: Any = None,
    load: Load | None = None,
    picture: Picture | None = None,
    servers: Any = None,
    nodes: NodeHost | None = None,
    alone: bool = False,
    sequential: bool = False,
    workers: int = 1,
) -> Any:
    """Run a source or a compiled Program. In a running loop this is awaited; in a plain script it runs right away.

    `model` takes the place of every agent's; `budget` is the whole run's; `host` are functions that the program may
    call; `python` names what `import python` may bring in; `settings` are those of `lyra.toml`; `folder` is what files
    are below. `stdout` and `stderr` are files, or functions of a line. `picture` is kept up to date for a display;
    `servers` are the MCP servers (`lyra.mcp.McpServers`) that it may import tools from; `nodes` reads and executes the
    nodes that it imports (`lyra.vesper.ImportableNodes`); `sequential` makes every call in its turn, without overlap.
    `alone` says that the kernel serves this run only, so that a program which can never
    continue ends with an error there too. `workers` are the threads that processes run in; one is the loop's own, and
    best where Python has its global lock: with more, every function is interpreted.
    """
    program = compile_program(source, name, host or {}, reading_nodes(load or load_file, nodes))
    options = RunOptions(
        write=_writer(stdout, sys.stdout),
        warn=_writer(stderr, sys.stderr),
        model=model,
        budget=budget,
        args=tuple(map(str, args)),
        functions=host,
        python=frozenset(python),
        folder=folder,
        grant=grant,
        picture=picture,
        servers=servers,
        nodes=nodes,
        sequential=sequential,
        workers=workers,
    )
    work = run_async(program, options, kernel=kernel, settings=settings, alone=alone)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        if kernel is not None:
            work.close()
            raise ConfigError("a kernel belongs to one event loop: await vega.run(…) in that loop") from None
        return asyncio.run(work)
    return work


def compile_program(source: str | Program, name: str, host: Mapping[str, Any], load: Load) -> Program:
    if isinstance(source, Program):
        return source
    from lyra.vega.compiler.compiler import compile_module

    names = tuple(host)
    module = parse_and_check(source, name, load=load, host_names=names)
    return compile_module(module, Source(name, source), load=load, host_names=names)


def load_file(target: str, importing: str) -> tuple[str, str] | None:
    """Return the text of an import, beside the file that imports it."""
    path = (Path(importing).parent / target).resolve()
    return (str(path), path.read_text()) if path.is_file() else None


def reading_nodes(load: Load, nodes: NodeHost | None) -> Load:
    """Return a `load` that also answers the target of an `import node` with what the node declares."""
    if nodes is None:
        return load

    def read(target: str, importing: str) -> tuple[str, str] | None:
        loaded = load(target, importing)
        return nodes.read(*loaded) if loaded is not None and target.endswith(NODE_FILES) else loaded

    return read


def _writer(given: TextIO | Callable[[str], object] | None, usual: TextIO) -> Callable[[str], object]:
    if given is not None and not hasattr(given, "write"):
        assert callable(given)
        return given
    file: Any = given or usual
    return lambda line: file.write(line + "\n")


async def run_async(
    program: Program,
    options: RunOptions,
    *,
    kernel: Kernel | None = None,
    settings: Mapping[str, Any] | None = None,
    alone: bool = False,
) -> Any:
    """Run a compiled program in a running loop."""
    if kernel is not None:
        world = World(kernel, program, options, f"vega-{kernel.entropy.text(8)}", programs=PROGRAMS)
        world.tracks_processes = True
        return await run_world(world, alone=alone)
    own = _make_kernel(settings)
    await own.start()
    try:
        return await run_world(World(own, program, options, programs=PROGRAMS), alone=True)
    finally:
        await own.close(drain_s=0.0)  # what still runs is stopped, not waited for


def _make_kernel(settings: Mapping[str, Any] | None) -> Kernel:
    if not settings:
        return Kernel(mailbox_messages_max=MAILBOX_MESSAGES)
    from lyra.config import Config

    flags = [f"{key}={value}" for key, value in settings.items()]
    return Kernel.from_config(Config.load(flags=flags), mailbox_messages_max=MAILBOX_MESSAGES)


async def run_world(world: World, *, alone: bool = False) -> Any:
    """Return the program of a World, from its beginning to its end."""
    await world.undeclared_tools.start()
    grant = world.rights.grant
    if world.options.grant is not None:
        grant = world.options.grant.narrow(grant)
    handle = world.kernel.spawn(vega_process, world.run_id, None, grant=grant)
    watch = None
    if alone and not world.is_durable:
        watch = DeadlockWatch(world, handle.pid)
    try:
        ended = await handle.wait()
    finally:
        if watch is not None:
            watch.stop()
        if world.picture is not None:
            world.picture.over()
        world.is_over = True
        await _stop(world, handle.pid)
        world.close()
    if watch is not None and watch.error is not None:
        raise watch.error
    return value_of(world, ended)


async def _stop(world: World, main: str) -> None:
    """End what the run started, as it is over. On its own kernel only those that wait for something outside have to be
    told, so that they hang up; the others end with the kernel."""
    kernel = world.kernel
    if world.tracks_processes:
        if world.light_processes is not None:
            world.light_processes.bring_all()
        processes = [kernel.processes.get(pid) for pid in (main, *world.started)]
        live = [process for process in processes if process is not None and process.exit is None]
    else:
        live = [process for process in kernel.processes.present() if process.exit is None and process.waits_outside]
    for process in live:
        kernel.end(process.pid)
    with suppress(TimeoutError):
        async with asyncio.timeout(ENDING_S):
            for process in live:
                if process.exit is None:
                    await kernel.process(process.pid).wait()


def value_of(world: World, ended: Exit) -> Any:
    """Return what the main process came to."""
    if ended.error is not None:
        if isinstance(ended.error, VegaError):
            raise ended.error
        raise uncaught(ended.error, *_place(world)) from ended.error
    if ended.reason != "normal":
        raise uncaught(ProcessExit(ended.reason), *_place(world))
    try:
        return to_python(world.read(ended.result))
    except Fault as fault:
        raise VegaError.of(
            ErrorValue(fault.name, f"what main returns: {fault.text}", world.linked.program.name, 0, 0)
        ) from None


def _place(world: World) -> tuple[str, int, int]:
    """Return the place of the main process when it was ended from outside, or ended itself with a reason."""
    return world.main.fiber.place() if world.main is not None else ("", 0, 0)


# Deadlock is raised only where it is sure: on a kernel of the run alone, without a journal, when each live process
# waits in a `receive` without `after`. A timer, a call, a command or a sleep is something else, and then the run waits
# on.

_FIRST_S: Final = 0.25
_LONGEST_S: Final = 16.0
_TEXT: Final = "every process waits for a message that no process will send"


class DeadlockWatch:
    """`main` is the pid of the main process, which is ended when all processes wait; `error` is the Deadlock then."""

    __slots__ = ("_main", "_pause_s", "_steps", "_timer", "_world", "error")

    def __init__(self, world: World, main: str) -> None:
        self._world = world
        self._main = main
        self._pause_s = _FIRST_S
        self._steps = -1
        self.error: VegaError | None = None
        self._timer = self._wait()

    def _wait(self) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(self._pause_s, self._look)

    def _look(self) -> None:
        kernel = self._world.kernel
        steps, self._steps = self._steps, kernel.scheduler.steps
        if steps != self._steps:  # something happened meanwhile
            self._pause_s = _FIRST_S
        elif kernel.journal is not None and kernel.journal.pending:
            pass  # rows wait for room in the store, and processes for them
        elif kernel.scheduler.ready == 0 and self._all_receive():
            job = self._world.main
            place = job.fiber.place() if job is not None else ("", 0, 0)
            self.error = VegaError.of(ErrorValue("Deadlock", _TEXT, *place))
            kernel.end(self._main, "deadlock")
            return
        else:
            self._pause_s = min(2 * self._pause_s, _LONGEST_S)
        self._timer = self._wait()

    def _all_receive(self) -> bool:
        light_processes, processes = self._world.light_processes, self._world.kernel.processes
        return all(map(_receives, processes.present())) and (light_processes is None or light_processes.all_wait())

    def stop(self) -> None:
        self._timer.cancel()


def _receives(process: Process) -> bool:
    """Return whether a process has ended, or what it waits for is a message and nothing else."""
    if process.exit is not None:
        return True
    if process.inbox or process.receiver is not process:
        return False
    waits: Any = process.coroutine
    if getcoroutinestate(waits) == CORO_CREATED:  # it waited as a light one, and has not been needed since
        return True
    while waits is not None and waits is not process and type(waits) is not VegaJob:
        waits = getattr(waits, "cr_await", None)
    return waits is not None
