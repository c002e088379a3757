"""How a run resumes: no process does anything new before all processes have replayed their journals.

A replay brings a process to where it was by the journal's answers. Other processes see what it knows beside them: the
sessions it is in and what was spent there, questions that it waits for, agents that it stands for. So the Vega
processes replay first, and each is held where it would do something new. The agents' own processes, calls and
conversations, begin behind them, because the process that asks decides what they may spend. When all have replayed, all
go on.

A process that replays for too long does not hold up the others, but its calls wait for it: a call goes on once its
caller has come to it, and never outside the sessions that it was made in.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from lyra.kernel.base.waiting import resume, suspend
from lyra.kernel.process.call_keys import upcoming
from lyra.kernel.supervision.supervisor import supervise
from lyra.vega.runtime.agents.agent import agent_front
from lyra.vega.runtime.driver import vega_process
from lyra.vega.runtime.early.calls import AHEAD_PATH

if TYPE_CHECKING:
    from lyra.kernel.process.process import Process
    from lyra.vega.runtime.job import VegaJob
    from lyra.vega.runtime.world import World


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
        self._is_open = False  # the others go on, though not all have replayed
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

    async def called(self, process: Process) -> None:
        """Before the first step of a function that was called ahead of its turn: its caller has come to the call, and
        with it to the scope that it spends from."""
        while _is_ahead(process):
            await suspend(process, self._functions.setdefault(process.pid, []))

    def call(self, pid: str) -> None:
        """A caller has come to the call of a function."""
        for waker in self._functions.pop(pid, ()):
            resume(waker)

    async def _watch(self) -> None:
        kernel = self._world.kernel
        clock = kernel.clock
        rounds, progress, since_s, is_said = 0, self._progress(), clock.monotonic(), False
        while not self._all_there():
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

    def _all_there(self) -> bool:
        return not self._unasked() and all(map(self._is_there, self._ours))

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
        """The pids of calls and conversations whose callers have not reached them: their budgets are not known yet."""
        processes = self._world.kernel.processes
        recalls = [process.replay or {} for process in self._ours if process.exit is None]
        spawned = {entry.link for recall in recalls for entry in recall.values() if entry.kind == "spawn"}
        return {
            pid
            for pid in spawned | self._unasked()
            if (process := processes.get(pid)) is not None and process.exit is None
        }

    def _unasked(self) -> set[str]:
        """Conversations, by pid, with a question that its asker has still to put again. One that has come back and has
        not opened a stream again is done with it."""
        awaited = self._world.runtime.questions.awaited.items()
        return {pending.pid for name, pending in awaited if ":" in name or not self._is_back(name)}

    def _is_back(self, stream: str) -> bool:
        """Whether the process that opened a stream is where it was."""
        reader = self._world.kernel.processes.get(stream[1:].rpartition("/")[0])
        return reader is None or self._is_there(reader)

    def _say(self, what: str) -> None:
        away = ", ".join(process.pid for process in self._ours if not self._is_there(process))
        self._world.options.warn(f"not yet where it was: process {away or 'of a conversation'}; {what}")

    def _is_there(self, process: Process) -> bool:
        """Whether a process has ended, or has used up what its journal holds; an agent's front has to stand, too."""
        if process.exit is not None:
            return True
        return process.replay is None and (process.program == self._fiber or process.state in ("waiting", "blocked"))


def _is_ahead(process: Process) -> bool:
    """Whether it was called ahead of its turn by one that has not come to that call yet."""
    caller = process.parent
    recall = {} if caller is None or caller.exit is not None else caller.replay or {}
    return any(
        entry.link == process.pid and entry.kind == "spawn" and str(key).startswith(AHEAD_PATH)
        for key, entry in recall.items()
    )
