"""When a process of a durable run is saved whole, so that a resumed run need not replay all that it did.

A replay asks for every effect of a process again, from its last checkpoint on. A long loop would make that long, so now
and then, between two effects, the fiber itself is written down (`snapshot`) with what the runtime remembers for it, and
the answers before it are forgotten. Not every moment is fit for that: nothing of the process may be under way elsewhere
(parallel calls, an open stream or span), and a session's money must be spent by one process only. An early function
that was refused a call for lack of budget is called again when the program reaches it. Such a function is not saved, so
that every replay meets the refusal.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from lyra.agents.session.open_questions import scopes
from lyra.core import codec
from lyra.core.budgets.budget import Budget, Usage
from lyra.vega.machine.fiber import Fiber
from lyra.vega.machine.snapshot import from_data, to_data

if TYPE_CHECKING:
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
        state = saved(self._job)
        size = len(codec.encode(state))
        await self._job.ctx.checkpoint(state)
        self._turns = 0
        self._every = EFFECTS * max(1, size // _BYTES)
        self._began_s = self._clock.monotonic()


def start_saving(job: VegaJob) -> Saver:
    """Restore a process that an earlier execution saved, and give the Saver of its next steps."""
    world = job.world
    if job.ctx.restored is not None:
        job.fiber = restored(world, job, job.ctx.restored)
    world.fibers += 1
    job.ctx.own_process.watch((partial(_fiber_ended, world), None))
    return Saver(job)


def _fiber_ended(world: World, _: object) -> None:
    world.fibers -= 1


def saved(job: VegaJob) -> dict[str, Any]:
    """A process as plain data, between two effects."""
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
        "sessions": [[scope.name, scope.limit("usd"), _used(world, scope)] for scope in reversed(named)],
    }


def _used(world: World, scope: Budget) -> dict[str, int]:
    """What was spent in a session, without what the run's record knows of."""
    used = scope.usage.to_data()
    for dimension, amount in (world.record.paid(scope.name) if world.record is not None else {}).items():
        used[dimension] -= amount
    return {dimension: amount for dimension, amount in used.items() if amount}


def restored(world: World, job: VegaJob, data: dict[str, Any]) -> Fiber:
    """The fiber that was saved; what the runtime remembers for it is put back."""
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
