"""Lyra's supervisors beside real ones: random traces, run on both, compared step by step.

A trace is a supervisor's flags, its children (some of whose starts are planned to fail) and operations on them.
`otp.escript` runs it on Erlang/OTP's own `supervisor`; `run_here` runs it on a kernel. Both write one line: what each
operation answered, whether the supervisor lives, which children are up, and every start and stop in order. `compare`
makes traces from seeds and gives the ones whose lines differ. Time plays no part: the restart window is an hour.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess  # noqa: TID251 - asking Erlang is what this module is for
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from lyra.core.ids import ProcessRandom, make_random
from lyra.errors import ConfigError, InvalidTransition, LyraError, NameTaken, NoSuchProcess, ProcessError
from lyra.kernel import Child, Kernel, SupervisorHandle

__all__ = ["ChildPlan", "Difference", "Trace", "compare", "erlang_missing", "make_trace", "run_here", "run_otp"]

_ESCRIPT: Final = Path(__file__).with_name("otp.escript")
_STRATEGIES: Final = ("one_for_one", "one_for_all", "rest_for_one")
_RESTARTS: Final = ("permanent", "permanent", "transient", "transient", "temporary")
_AUTO: Final = ("never", "never", "any_significant", "all_significant")
_OPERATIONS: Final = (
    ("crash", 8),
    ("normal", 4),
    ("shutdown", 3),
    ("kill", 2),
    ("terminate", 4),
    ("restart", 4),
    ("delete", 3),
    ("start", 3),
    ("which", 1),
)
_TRACES_AT_ONCE: Final = 500
_IDS: Final = "abcdefgh"
_INNER_IDS: Final = "xyz"


class ChildPlan(NamedTuple):
    id: str
    restart: str
    shutdown: int | str  # milliseconds, or brutal_kill
    significant: bool
    fails: tuple[int, ...]  # which of its starts fail
    children: tuple[ChildPlan, ...] = ()  # of a supervisor
    strategy: str = ""
    max_restarts: int = 0

    def term(self) -> str:
        if self.children:
            inner = ",".join(child.term() for child in self.children)
            significant = str(self.significant).lower()
            return f"{{{self.id},{self.restart},{significant},{self.strategy},{self.max_restarts},[{inner}]}}"
        fails = ",".join(map(str, self.fails))
        return f"{{{self.id},{self.restart},{self.shutdown},{str(self.significant).lower()},[{fails}]}}"


class Trace(NamedTuple):
    seed: int
    strategy: str
    max_restarts: int
    auto_shutdown: str
    children: tuple[ChildPlan, ...]
    operations: tuple[tuple[str, Any], ...]  # (word, id), or ("start", ChildPlan)

    def term(self) -> str:
        """As the Erlang side reads it."""
        children = ",".join(child.term() for child in self.children)
        operations = ",".join(
            f"{{{word},{what.term() if isinstance(what, ChildPlan) else what}}}" for word, what in self.operations
        )
        return f"{{{self.strategy},{self.max_restarts},{self.auto_shutdown},[{children}],[{operations}]}}."


class Difference(NamedTuple):
    trace: Trace
    otp: str
    here: str

    def __str__(self) -> str:
        steps = list(zip(self.otp.split("|"), self.here.split("|"), strict=False))
        step = next((i for i, (otp, here) in enumerate(steps) if otp != here), len(steps))
        return (
            f"seed {self.trace.seed}, step {step} of {self.trace.term()}\n"
            f"  otp:  {self.otp.split('|')[step:]}\n  here: {self.here.split('|')[step:]}"
        )


# ---------------------------------------------------------------------- traces
def make_trace(seed: int) -> Trace:
    rng = make_random(seed)
    auto = rng.choice(_AUTO)
    children = tuple(_child(rng, letter, auto, wild=False) for letter in _IDS[: rng.randint(2, 5)])
    if rng.random() < 0.3:
        place = rng.randint(0, len(children) - 1)
        inside = tuple(_child(rng, letter, "never", wild=False) for letter in _INNER_IDS[: rng.randint(1, 3)])
        outer = children[place]._replace(
            children=inside, strategy=rng.choice(_STRATEGIES), max_restarts=rng.randint(0, 3)
        )
        children = (*children[:place], outer, *children[place + 1 :])
    words = [word for word, weight in _OPERATIONS for _ in range(weight)]
    operations: list[tuple[str, Any]] = []
    for _ in range(rng.randint(4, 14)):
        word = rng.choice(words)
        letters = _IDS[: len(children) + 2] + (_INNER_IDS if any(child.children for child in children) else "")
        letter = rng.choice(letters)
        operations.append((word, _child(rng, letter, auto, wild=True) if word == "start" else letter))
    return Trace(seed, rng.choice(_STRATEGIES), rng.randint(0, 5), auto, children, tuple(operations))


def _child(rng: ProcessRandom, letter: str, auto: str, *, wild: bool) -> ChildPlan:
    """A wild one may be significant where that is refused."""
    restart = rng.choice(_RESTARTS)
    may = wild or (auto != "never" and restart != "permanent")
    first = 1 if rng.random() < 0.1 else 2
    fails = tuple(number for number in range(first, 6) if rng.random() < 0.15)
    shutdown = "brutal_kill" if rng.random() < 0.2 else 5000
    return ChildPlan(letter, restart, shutdown, may and rng.random() < 0.4, fails)


# ---------------------------------------------------------------------- Erlang's side
def erlang_missing() -> str:
    """Why Erlang cannot be asked; empty if it can."""
    return "" if shutil.which("escript") else "Erlang is not here; on Debian: apt-get install erlang-base"


def run_otp(traces: Iterable[Trace]) -> list[str]:
    """One line for each trace, all from one Erlang machine."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "traces"
        path.write_text("\n".join(trace.term() for trace in traces) + "\n")
        done = subprocess.run(  # noqa: S603 - a fixed program on our own file
            ["escript", str(_ESCRIPT), str(path)],  # noqa: S607
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    if done.returncode != 0:
        raise RuntimeError(f"the Erlang side failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout.splitlines()


# ---------------------------------------------------------------------- our side
class _Diary:
    """What the children of one trace did."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.starts: dict[str, int] = {}

    def drain(self) -> str:
        lines, self.lines = self.lines, []
        return ",".join(lines)


_diaries: dict[int, _Diary] = {}


async def _worker(ctx: Any, seed: int, letter: str, fails: list[int], orderly: bool) -> None:
    diary = _diaries[seed]
    if not ctx.replaying:  # in a later life of the kernel it is not started anew
        number = diary.starts[letter] = diary.starts.get(letter, 0) + 1
        if number in fails:
            diary.lines.append(f"!{letter}")
            raise RuntimeError("planned")
        diary.lines.append(f"+{letter}")
    ctx.ready()
    try:
        how = await ctx.receive()
    except asyncio.CancelledError:
        if orderly and ctx.own_process.kill_reason not in ("killed", None):  # None: only its kernel closes
            diary.lines.append(f"-{letter}")
        raise
    if how == "crash":
        raise RuntimeError("boom")
    ctx.exit(how)


async def run_here(trace: Trace, store: str = "memory", *, reopen: bool = False) -> str:
    """The trace on a kernel, as the line that Erlang would write; with `reopen`, on a new kernel after every step."""
    diary = _diaries[trace.seed] = _Diary()
    kernel = await _open(trace, store)
    try:
        steps: list[str] = []
        begun = False
        for operation in (None, *trace.operations, ("stop", None)):
            if begun and reopen:
                await kernel.close()
                kernel = await _open(trace, store)
            begun = True
            step, alive = await _step_on(kernel, trace, diary, operation)
            steps.append(step)
            if not alive:
                break
        return "|".join(steps)
    finally:
        await kernel.close()
        del _diaries[trace.seed]


async def _open(trace: Trace, store: str) -> Kernel:
    kernel = Kernel(store, programs=[_worker], seed=trace.seed)
    await kernel.start()
    return kernel


async def _step_on(kernel: Kernel, trace: Trace, diary: _Diary, operation: tuple[str, Any] | None) -> tuple[str, bool]:
    """One step (the first has no operation), and whether the supervisor lives on."""
    supervisor = kernel.supervise(
        [_spec(trace, child) for child in trace.children],
        strategy=trace.strategy,
        max_restarts=trace.max_restarts,
        window_s=3600,
        auto_shutdown=trace.auto_shutdown,
        pid="supervisor",  # found again in a kernel that was opened anew
    )
    try:
        await supervisor
    except ProcessError:
        return f"failed dead - {diary.drain()}", False
    if operation is None:
        return _step(kernel, "ok", supervisor, diary), True
    word, what = operation
    if word == "stop":
        await supervisor.stop()
        return f"{(await supervisor.wait()).reason} dead - {diary.drain()}", False
    result = await _operate(kernel, supervisor, trace, word, what)
    if not await _settled(kernel, supervisor):
        return f"{result} {(await supervisor.wait()).reason} - {diary.drain()}", False
    return _step(kernel, result, supervisor, diary), True


def _spec(trace: Trace, child: ChildPlan) -> Child:
    if child.children:
        inside = [_spec(trace, inner) for inner in child.children]
        flags = {"strategy": child.strategy, "max_restarts": child.max_restarts, "window_s": 3600}
        return Child.supervisor(child.id, inside, restart=child.restart, significant=child.significant, **flags)
    orderly = child.shutdown != "brutal_kill"
    return Child(
        child.id,
        _worker,
        (trace.seed, child.id, list(child.fails), orderly),
        restart=child.restart,
        shutdown_s=5 if orderly else "kill",
        significant=child.significant,
        wait_ready=True,
    )


async def _operate(kernel: Kernel, supervisor: SupervisorHandle, trace: Trace, word: str, what: Any) -> str:
    commands: dict[str, Callable[[Any], Any]] = {
        "terminate": supervisor.terminate_child,
        "restart": supervisor.restart_child,
        "delete": supervisor.delete_child,
        "start": lambda child: supervisor.start_child(_spec(trace, child)),
    }
    if word in commands:
        try:
            await commands[word](what)
        except LyraError as refusal:
            return _word(refusal)
        return "ok"
    if word == "which":
        return "ok"
    pid = _workers(kernel, supervisor).get(what)
    if pid is None:
        return "absent"
    child = kernel.process(pid)
    if word == "kill":
        kernel.kill(pid)
    else:
        kernel.send(pid, word)
    await child.wait()
    return "ok"


def _word(refusal: LyraError) -> str:
    if isinstance(refusal, (NameTaken, NoSuchProcess, InvalidTransition)):
        return str(refusal.fields.get("problem"))
    return "invalid" if isinstance(refusal, ConfigError) else "failed"


def _workers(kernel: Kernel, supervisor: SupervisorHandle) -> dict[str, str]:
    """The workers that run, at any depth, by id."""
    workers: dict[str, str] = {}
    for child in supervisor.which_children():
        if child.pid is not None and child.kind == "supervisor":
            workers.update(_workers(kernel, kernel.supervisor(child.pid)))
        elif child.pid is not None:
            workers[child.id] = child.pid
    return workers


async def _settled(kernel: Kernel, supervisor: SupervisorHandle) -> bool:
    """Wait until nothing is being started again any more; False if the supervisor has ended."""
    while not await _still(kernel, supervisor):
        if not supervisor.alive:
            return False
    return True


async def _still(kernel: Kernel, supervisor: SupervisorHandle) -> bool:
    children = await supervisor.which_children()
    for child in children:
        if child.state == "restarting":
            return False
        if child.pid is not None and child.kind == "supervisor":
            if not await _still(kernel, kernel.supervisor(child.pid)):
                return False
        elif child.pid is not None and not kernel.process(child.pid).alive:
            return False
    return supervisor.alive


def _step(kernel: Kernel, result: str, supervisor: SupervisorHandle, diary: _Diary) -> str:
    return f"{result} up {_shown(kernel, supervisor)} {diary.drain()}"


def _shown(kernel: Kernel, supervisor: SupervisorHandle) -> str:
    shown: list[str] = []
    for child in supervisor.which_children():
        if child.pid is None:
            shown.append(f"{child.id}=down")
        elif child.kind == "supervisor":
            shown.append(f"{child.id}=({_shown(kernel, kernel.supervisor(child.pid))})")
        else:
            shown.append(f"{child.id}=up")
    return ",".join(shown) or "-"


# ---------------------------------------------------------------------- both
def compare(
    count: int,
    seed: int,
    *,
    stores: Callable[[int], str] | None = None,
    reopen: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> list[Difference]:
    """Run traces `seed`, `seed + 1`, … on both sides; gives those that differ. `reopen` needs durable stores."""
    differences: list[Difference] = []
    for first in range(seed, seed + count, _TRACES_AT_ONCE):
        traces = [make_trace(number) for number in range(first, min(first + _TRACES_AT_ONCE, seed + count))]
        for trace, otp in zip(traces, run_otp(traces), strict=True):
            store = stores(trace.seed) if stores is not None else "memory"
            here = asyncio.run(asyncio.wait_for(run_here(trace, store, reopen=reopen), 60))
            if otp != here:
                differences.append(Difference(trace, otp, here))
            if progress is not None:
                progress(trace.seed - seed + 1, count)
    return differences
