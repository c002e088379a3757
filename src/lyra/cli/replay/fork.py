"""What `lyra replay` does with a run: open its store to read it, load its programs, tell their variables, fork it.

A fork is made by a kernel in which only the fork runs. All other processes of the store stand still, the run that is
forked among them. The fork's rows are in the store as any process's: after a crash `lyra replay STORE FORK --resume`
continues with it, and so does every kernel that knows its programs.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lyra.cli.render import note
from lyra.core.secrets.secret import Secret, is_reference
from lyra.errors import ConfigError, LyraError, NoSuchProcess, StoreError
from lyra.observe.timeline.step import brief

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lyra.agents.forks.change import StepChange
    from lyra.agents.forks.program_frames import ProgramFrame, ProgramReplay
    from lyra.cli.app import Invocation
    from lyra.kernel.kernel import Kernel
    from lyra.observe.timeline.timeline import RunTimeline
    from lyra.store.protocol import Store
    from lyra.vega.durable.runs import DurableRun
    from lyra.vega.replay.replayed_run import ReplayedRun


def make_fork(
    invocation: Invocation,
    target: str,
    timeline: RunTimeline,
    *,
    number: int,
    change: StepChange,
    programs: ProgramFile | None,
    new_pid: str | None = None,
) -> dict[str, Any]:
    """Start a fork, run it to its end or to the end of its turn, and tell the outcome of it."""
    from lyra.agents.forks.fork import fork_run

    async def start(kernel: Kernel) -> str:
        with open_stored(target) as store:
            return await fork_run(kernel, store, timeline.pid, number, change, new_pid=new_pid)

    facts = asyncio.run(_run(invocation, target, programs, start, wakes=()))
    with open_stored(target) as store:
        fork = timeline_of(store, facts["fork"])
        facts |= _find_failed_turn(fork) | _compare(timeline_of(store, timeline.pid), fork)
    return {**facts, "of": timeline.pid, "at": number, "change": change.to_data()}


def go_on(
    invocation: Invocation, target: str, timeline: RunTimeline, *, programs: ProgramFile | None
) -> dict[str, Any]:
    """Continue with a process that its kernel left in the middle of its work, such as a fork; the others stand
    still."""

    async def start(_: Kernel) -> str:
        return timeline.pid

    facts = asyncio.run(_run(invocation, target, programs, start, wakes=(timeline.pid,)))
    with open_stored(target) as store:
        return facts | _find_failed_turn(timeline_of(store, timeline.pid))


async def _run(
    invocation: Invocation,
    target: str,
    programs: ProgramFile | None,
    start: Callable[[Kernel], Awaitable[str]],
    *,
    wakes: tuple[str, ...],
) -> dict[str, Any]:
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.seams import Seams

    kernel = Kernel.from_config(invocation.config, store=store_target(target), seams=Seams(wakes=wakes))
    async with kernel:
        if programs is not None:
            await programs.register(kernel)
        try:
            pid = await start(kernel)
        except ConfigError as error:
            raise _with_file(error, programs) from None
        note(f"process {pid} runs; Ctrl-C leaves it in the store, to be gone on with by --resume")
        facts = await _outcome(kernel, pid)
    return {"fork": pid, **facts}


def _with_file(error: ConfigError, programs: ProgramFile | None) -> ConfigError:
    """Return the mistake; where a program is not known, with what a person who types the command can do about it."""
    if "program" not in error.fields:
        return error
    hint = "name the file that declares it: --load FILE.py" if programs is None else "the file of --load has none such"
    return ConfigError(error.message, hint=hint, **error.fields)


async def _outcome(kernel: Kernel, pid: str) -> dict[str, Any]:
    """Wait until it has ended, its turn is over, or it waits for a person."""
    from lyra.agents.forks.fork import wait_for_fork

    asked: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def on_question(event: Any) -> None:
        if not asked.done():
            asked.set_result(str(event.data.get("question") or event.data.get("message") or ""))

    stop = kernel.on_event(on_question, ["interrupt.created"])
    question = _question(kernel, pid)  # asked before this listened, or before the process was left
    if question is not None:
        asked.set_result(question)
    work = kernel.tasks.start(wait_for_fork(kernel, pid), name="lyra-fork")
    try:
        await asyncio.wait((work, asked), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop()
    failure: LyraError | None = None
    if work.done():
        try:
            work.result()
        except LyraError as error:
            failure = error
        return _describe_end(kernel, pid, failure)
    work.cancel()
    with suppress(asyncio.CancelledError, LyraError):
        await work
    return {"state": "waiting", "question": asked.result(), "answer": None, "error": None}


def _question(kernel: Kernel, pid: str) -> str | None:
    """Return what the process, or one below it, asks a person now."""
    from lyra.agents.forks.fork import members_of

    pids = {member.pid for member in members_of(kernel.processes[pid])}
    waiting = (row for row in kernel.interrupts.pending() if row.pid in pids)
    return next((row.question or row.message for row in waiting), None)


def _describe_end(kernel: Kernel, pid: str, failure: LyraError | None) -> dict[str, Any]:
    process = kernel.processes[pid]
    ended = process.exit
    if failure is None and ended is not None and ended.error is not None:
        error: Any = ended.error
        failure = error if isinstance(error, LyraError) else LyraError(f"{type(error).__name__}: {error}")
    error_text = None if failure is None else failure.message
    if ended is not None:
        return {"state": ended.reason, "answer": ended.result, "error": error_text}
    if getattr(kernel.programs.get((process.stands_for or process).program), "__lyra_handle__", None) is None:
        return {"state": "waits for a message", "answer": None, "error": error_text}
    messages = kernel.agent(pid).messages
    answer = messages[-1].text if messages and messages[-1].role == "assistant" else None
    return {"state": "idle", "answer": answer if failure is None else None, "error": error_text}


def _find_failed_turn(timeline: RunTimeline) -> dict[str, Any]:
    """Return what replaces the answer where the last turn of a conversation failed: it may be over before it is waited
    for."""
    turn = next((step for step in reversed(timeline.steps) if step.pid == timeline.pid), None)
    if turn is None or turn.kind != "turn" or not turn.error:
        return {}
    return {"answer": None, "error": turn.error}


def _compare(old: RunTimeline, new: RunTimeline) -> dict[str, Any]:
    from lyra.observe.timeline.travel import compare_runs

    first = compare_runs(old, new).first
    totals = new.totals()
    return {
        "first_difference": first,
        "cost_usd": totals["cost_usd"],
        "usage": totals["usage"],
        "recorded": totals["recorded"],
    }


_PROCESSES_MAX: Final = 50  # whose calls are told with their arguments


class RunVariables:
    """Adds to moments and steps of a run what its programs tell. Without programs it adds nothing."""

    def __init__(self, run: OpenedRun, programs: ProgramFile | None) -> None:
        self._timeline = run.timeline
        self._vega = run.vega
        self._replayed: ReplayedRun | None = None
        self._replay: ProgramReplay | None = None
        if programs is not None and run.vega is None:
            from lyra.agents.forks.program_frames import ProgramReplay

            self._replay = ProgramReplay(run.store, run.timeline, programs.register)

    def moment(self, number: int, pid: str | None = None) -> dict[str, Any]:
        """Return the moment after a step, with the frames of the program that it is about."""
        moment = self._timeline.moment(number, pid)
        frames: list[ProgramFrame] | None = None
        if self._vega is not None:
            frames = self._vega_frames(self._vega, number, moment["pid"])
        elif self._replay is not None:
            frames = self._run_or_note(self._replay.frames(number, moment["pid"])) or []
        if frames is not None:
            moment["frames"] = [frame.to_data() for frame in frames]
        return moment

    def _vega_frames(self, run: DurableRun, number: int, pid: str) -> list[ProgramFrame]:
        from lyra.vega.durable.runs import DurableRun
        from lyra.vega.replay.replayed_run import ReplayedRun

        try:
            if self._replayed is None or self._replayed.last_seq != run.space.last_seq():
                self._replayed = ReplayedRun(DurableRun(run.space))
            return self._replayed.frames(self._timeline.last_seq_of(number) if number else 0, pid)
        except LyraError as error:
            note(f"note: the program cannot be run again: {error.message}")
            return []

    def add_arguments(self) -> None:
        """Give the effects of the run's programs their arguments."""
        if self._replay is None:
            return
        for pid in self._timeline.pids[:_PROCESSES_MAX]:
            steps = [step for step in self._timeline.steps if step.kind == "effect" and step.pid == pid]
            arguments = self._run_or_note(self._replay.arguments(pid)) if steps else None
            for step in steps:
                if arguments is None:
                    return
                if step.key in arguments:
                    step.request = brief(arguments[step.key])

    def _run_or_note(self, looking: Any) -> Any:
        try:
            return asyncio.run(looking)
        except LyraError as error:
            note(f"note: the programs cannot be run again: {error.message}")
            return None


_NOT_FILES: Final = ("agent", "lyra", "model", "tool", "hook")  # words before the colon that name no module


class ProgramFile:
    """The file `file`, run once, when its programs are first asked for; `names` are the programs and effects of the
    run."""

    def __init__(self, file: str, names: Iterable[str]) -> None:
        self._file = file
        self._wanted = [name.partition(":")[::2] for name in names]
        self._module: ModuleType | None = None

    def _load(self) -> ModuleType:
        if self._module is None:
            modules = [
                module
                for module, own in self._wanted
                if own and module not in _NOT_FILES and not module.startswith("lyra.")
            ]
            # What the journal calls the module: as the file is called where it knows that, else the first that it
            # names.
            stem = Path(self._file).stem
            near = [name for name in modules if name.rpartition(".")[2] == stem]
            self._module = _run_variables(self._file, (near or modules or [stem])[0])
        return self._module

    async def register(self, kernel: Kernel) -> None:
        """Make what the file declares known to a kernel."""
        from lyra.agents.declaration.agent import AgentDeclaration

        module = self._load()
        setup = getattr(module, "setup", None)
        if callable(setup):
            prepared = setup(kernel)
            if hasattr(prepared, "__await__"):
                await prepared
        for value in list(vars(module).values()):
            if isinstance(value, AgentDeclaration):
                kernel.register(value)
        for name, own in self._wanted:
            program = getattr(module, own, None) if name == module.__name__ and own.isidentifier() else None
            if program is not None and _is_program(program):
                kernel.register(program)


def _run_variables(file: str, name: str) -> ModuleType:
    from importlib.util import module_from_spec, spec_from_file_location

    sys.path.insert(0, str(Path(file).resolve().parent))  # what lies beside it can be imported, also later on
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{file} is no Python file", key="--load")
    module = module_from_spec(spec)
    sys.modules[name] = module  # annotations of its functions are looked up there
    saved, sys.stdout = sys.stdout, sys.stderr
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{file} cannot be run: {type(error).__name__}: {error}", key="--load") from error
    finally:
        sys.stdout = saved
    return module


def _is_program(value: Any) -> bool:
    import inspect

    return inspect.iscoroutinefunction(value)


def store_target(target: str) -> str:
    """Return the path or URL of the store; a reference such as `env:NAME` is looked up."""
    if target.startswith(("http://", "https://")):
        raise ConfigError(
            f"{target} is a server, not a store",
            hint="name the store that it owns, or open the page /runs of the server in a browser",
        )
    return Secret.parse(target).reveal() if is_reference(target) else target


@contextmanager
def open_stored(target: str) -> Iterator[Store]:
    """Provide the store, to be read beside the kernel that may own it. A wrong one is a mistake of the command line."""
    from lyra.store.space import open_to_read

    try:
        store = open_to_read(store_target(target))
    except StoreError as error:
        raise ConfigError(error.message, hint=error.hint) from None
    try:
        yield store
    finally:
        store.close()


class OpenedRun(NamedTuple):
    """A run with the store that has its rows: of a Vega run that is its own journal, and `vega` the run."""

    store: Store
    timeline: RunTimeline
    vega: DurableRun | None = None


@contextmanager
def open_run(store: Store, word: str) -> Iterator[OpenedRun]:
    """Provide the run of a process by pid or name, or a durable run of a Vega program by its id."""
    try:
        timeline = timeline_of(store, word)
    except ConfigError:
        from lyra.vega.replay.timeline import run_in_store, timeline_of_run

        run = run_in_store(store, word)
        if run is None:
            raise
        try:
            yield OpenedRun(run.space, timeline_of_run(run), run)
        finally:
            run.space.close()
    else:
        yield OpenedRun(store, timeline)


def timeline_of(store: Store, pid: str) -> RunTimeline:
    """Return the run of a process, by pid or name."""
    from lyra.observe.timeline.state import StoredRows
    from lyra.observe.timeline.timeline import RunTimeline

    try:
        return RunTimeline.from_name(StoredRows(store), pid)
    except NoSuchProcess as error:
        raise ConfigError(error.message, hint=error.hint) from None
