"""When a process of a durable run is saved whole, so that a resumed run need not replay all that it did.

A replay asks for every effect of a process again, from its last checkpoint on. A long loop would make that long, so now
and then, between two effects, the fiber itself is written down (`snapshot`) with what the runtime remembers for it, and
the answers before it are forgotten. Not every moment is fit for that: nothing of the process may be under way elsewhere
(parallel calls, an open stream or span), and a session's money must be spent by one process only. An early function
that was refused a call for lack of budget is called again when the program reaches it. Such a function is not saved, so
that every replay meets the refusal.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from lyra.agents.session.open_questions import scopes
from lyra.core import codec
from lyra.core.budgets.budget import Budget, Usage
from lyra.kernel.base.waiting import resume, suspend
from lyra.kernel.process.replay import upcoming
from lyra.kernel.supervision.supervisor import supervise
from lyra.vega.machine.fiber import Fiber
from lyra.vega.machine.snapshot import from_data, to_data
from lyra.vega.runtime.driver import agent_front, vega_process
from lyra.vega.runtime.early_calls import AHEAD_PATH

if TYPE_CHECKING:
    from lyra.kernel.process.process import Process
    from lyra.vega.runtime.job import VegaJob
    from lyra.vega.runtime.world import World


EFFECTS: Final = 256  # between two checkpoints, of a process whose state is small
WORK_S: Final = 1.0  # seconds of computing between two checkpoints
LOOK_EVERY: Final = 16  # effects or turns between two looks at the clock
_BYTES: Final = 16 << 10  # a state twice this large is saved half as often


class Saver:
    """Decides for one process."""

    __slots__ = ("_began_s", "_clock", "_every", "_job", "_turns")

    def __init__(self, job: VegaJob) -> None:
        self._job = job
        self._clock = job.world.kernel.clock
        self._turns = 0
        self._every = EFFECTS
        self._began_s = self._clock.monotonic()

    def is_due(self) -> bool:
        """Asked before each step; True when enough was done since the last time, and now is a good moment."""
        self._turns = turns = self._turns + 1
        if turns % LOOK_EVERY:
            return False
        if turns < self._every and self._clock.monotonic() - self._began_s < WORK_S * self._every / EFFECTS:
            return False
        job = self._job
        early = job.world.early.get(job.ctx.pid)
        if early is not None and early.scope.was_refused:
            return False
        return not job.ctx.replaying and job.can_be_saved and (not job.world.sessions() or job.world.fibers == 1)

    async def save(self) -> None:
        saves, pid = self._job.world.saves, self._job.ctx.pid
        saves[pid] = saves.get(pid, 0) + 1
        state = save_job(self._job)
        size = len(codec.encode(state))
        await self._job.ctx.checkpoint(state)
        self._turns = 0
        self._every = EFFECTS * max(1, size // _BYTES)
        self._began_s = self._clock.monotonic()


def start_saving(job: VegaJob) -> Saver:
    """Restore a process that an earlier execution saved, and give the Saver of its next steps."""
    world = job.world
    if job.ctx.restored is not None:
        job.fiber = restore_fiber(world, job, job.ctx.restored)
    world.fibers += 1
    job.ctx.own_process.watch((partial(_fiber_ended, world), None))
    return Saver(job)


def _fiber_ended(world: World, _: object) -> None:
    world.fibers -= 1


def save_job(job: VegaJob) -> dict[str, Any]:
    """Return a process as plain data, between two effects."""
    inside, state = scopes.get(), job.state
    world = job.world
    named = [scope for scope in inside[-1].chain() if scope.name]
    return {
        "fiber": to_data(job.fiber),
        "printed": state.printed,
        "numbers": state.numbers,
        "saves": world.saves.get(job.ctx.pid, 0),
        "receiving": state.receiving,
        "left_s": max(0.0, state.due - world.kernel.clock.monotonic()) if state.receiving >= 0 else 0.0,
        "sessions": [[scope.name, scope.limit("usd"), _count_unrecorded(world, scope)] for scope in reversed(named)],
    }


def _count_unrecorded(world: World, scope: Budget) -> dict[str, int]:
    """Return what was spent in a session, without what the run's record knows of."""
    used = scope.usage.to_data()
    for dimension, amount in (world.record.get_session_costs(scope.name) if world.record is not None else {}).items():
        used[dimension] -= amount
    return {dimension: amount for dimension, amount in used.items() if amount}


def restore_fiber(world: World, job: VegaJob, data: dict[str, Any]) -> Fiber:
    """Return the fiber that was saved; what the runtime remembers for it is put back."""
    state = job.state
    state.printed, state.numbers = data["printed"], data["numbers"]
    world.saves[job.ctx.pid] = data.get("saves", 0)  # earlier runs did not count
    state.receiving, state.due = data["receiving"], world.kernel.clock.monotonic() + data["left_s"]
    for name, pid in data.get("names", {}).items():  # of runs that did not keep them in their record
        world.names.setdefault(name, pid)
    scope = world.budget
    scopes.set((scope,))
    for name, limit, used in data["sessions"]:
        state.sessions.append(scopes.get())
        is_new = name not in world.scopes
        scope = world.session(name, limit, scope)
        if is_new:
            scope.charge_alone(Usage.from_data(used))
        scopes.set((scope,))
    return from_data(world.linked, data["fiber"])


# Processes see each other's sessions, questions and agents. So the Vega processes replay first, each held where it
# would do something new; calls and conversations of agents begin behind them, because the process that asks decides
# what they may spend. A process that replays for too long holds up its own calls only: a call continues once its caller
# has come to it, never outside the sessions that it was made in.

_ROUNDS: Final = 64  # of the loop, before the looks have pauses between them
_PAUSE_S: Final = 0.005
_PATIENCE_S: Final = 20.0  # without any progress; in journals of older versions a call that ran out of time waits again
_SAY_S: Final = 3.0  # without any progress, before a warning is written
_LOOK_S: Final = 0.05  # between looks for processes that replayed late
_SEES: Final = frozenset(  # effects that see other processes or are seen by them; each takes a key of the journal
    {
        "spawn",
        "ahead_spawn",
        "send",
        "link",
        "monitor",
        "budget",
        "budget_reserve",
        "process::unlink",
        "process::register",
        "process::whereis",
        "process::alive",
    }
)


class ReplayBarrier:
    """Holds processes back until all have replayed. Made after the kernel restored them, before their first step."""

    __slots__ = ("_fiber", "_functions", "_held", "_is_open", "_ours", "_world")

    def __init__(self, world: World) -> None:
        self._world = world
        self._held: list[Any] = []
        self._functions: dict[str, list[Any]] = {}  # by pid: the early functions that the program has not reached
        self._is_open = False  # the others continue, though not all have replayed
        kernel = world.kernel
        self._fiber = kernel.programs.name(vega_process)
        ours = {kernel.programs.name(program) for program in (vega_process, agent_front, supervise)}
        alive = [process for process in kernel.processes.values() if process.exit is None]
        self._ours = [process for process in alive if process.program in ours]
        kernel.hold_back()
        kernel.tasks.start(self._watch(), name="vega resume")

    async def hold(self, job: VegaJob, kind: str) -> None:
        """Before an effect of a process: one that is new waits until all are there."""
        process = job.process
        if process.replay is None or (kind in _SEES and upcoming(process) is None):
            await self.wait(process)

    async def wait(self, process: Process) -> None:
        """Wait until all processes have replayed."""
        if not self._is_open:
            await suspend(process, self._held)

    async def wait_for_caller(self, process: Process) -> None:
        """Before the first step of a function that was called ahead of its turn: its caller has come to the call, and
        with it to the scope that it spends from."""
        while _is_ahead(process):
            await suspend(process, self._functions.setdefault(process.pid, []))

    def call(self, pid: str) -> None:
        """Note that a caller has come to the call of a function."""
        for waker in self._functions.pop(pid, ()):
            resume(waker)

    async def _watch(self) -> None:
        kernel = self._world.kernel
        clock = kernel.clock
        rounds, progress, since_s, is_said = 0, self._progress(), clock.monotonic(), False
        while self._list_unasked() or not all(map(self._is_there, self._ours)):
            if rounds < _ROUNDS:
                rounds += 1
                await asyncio.sleep(0)
            else:
                await kernel.outside_pause(_PAUSE_S)
            now, last = self._progress(), progress
            if now != last:
                progress, since_s = now, clock.monotonic()
            elif clock.monotonic() - since_s > _PATIENCE_S:
                self._say("the others go on")
                break
            elif not is_said and clock.monotonic() - since_s > _SAY_S:
                is_said = True
                self._say("the others wait for it")
        await self._go_on()

    def _progress(self) -> int:
        return sum(len(process.replay or ()) for process in self._ours) + len(self._world.runtime.questions.awaited)

    async def _go_on(self) -> None:
        """Calls that were under way first: they were before whatever comes now."""
        kernel, world = self._world.kernel, self._world
        late = self._late()
        kernel.let_go(late)
        for _ in range(2):
            await asyncio.sleep(0)
        self._is_open = True
        if not late:
            world.barrier = None
        held, self._held = self._held, []
        for waker in held:
            resume(waker)
        while late:
            await kernel.outside_pause(_LOOK_S)
            late = self._late()
            kernel.let_go(late)
        world.barrier = None

    def _late(self) -> set[str]:
        """Return the pids of calls and conversations whose callers have not reached them: their budgets are not known
        yet."""
        processes = self._world.kernel.processes
        recalls = [process.replay or {} for process in self._ours if process.exit is None]
        spawned = {entry.link for recall in recalls for entry in recall.values() if entry.kind == "spawn"}
        return {
            pid
            for pid in spawned | self._list_unasked()
            if (process := processes.get(pid)) is not None and process.exit is None
        }

    def _list_unasked(self) -> set[str]:
        """Conversations, by pid, with a question that its asker has still to put again. One that has come back and has
        not opened a stream again is done with it."""
        awaited = self._world.runtime.questions.awaited.items()
        return {pending.pid for name, pending in awaited if ":" in name or not self._is_back(name)}

    def _is_back(self, stream: str) -> bool:
        """Return whether the process that opened a stream is where it was."""
        reader = self._world.kernel.processes.get(stream[1:].rpartition("/")[0])
        return reader is None or self._is_there(reader)

    def _say(self, what: str) -> None:
        away = ", ".join(process.pid for process in self._ours if not self._is_there(process))
        self._world.options.warn(f"not yet where it was: process {away or 'of a conversation'}; {what}")

    def _is_there(self, process: Process) -> bool:
        """Return whether a process has ended, or has used up what its journal holds; an agent's front has to stand,
        too."""
        if process.exit is not None:
            return True
        return process.replay is None and (process.program == self._fiber or process.state in ("waiting", "blocked"))


def _is_ahead(process: Process) -> bool:
    """Return whether it was called ahead of its turn by one that has not come to that call yet."""
    caller = process.parent
    recall = {} if caller is None or caller.exit is not None else caller.replay or {}
    return any(
        entry.link == process.pid and entry.kind == "spawn" and str(key).startswith(AHEAD_PATH)
        for key, entry in recall.items()
    )
