"""Handles on the children of a `supervisor`, which go on working after a restart.

A child gets a new pid with each restart, and is registered under its name. A program that uses a handle on a child that
has crashed reaches the process that was started in its place; while the supervisor waits before it starts that, so does
the program. A durable run keeps which process that was, so that a replay reaches the same one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import wraps
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lyra.kernel.process.call_keys import upcoming
from lyra.kernel.supervision.supervisor import supervise
from lyra.vega.values.values import Process

if TYPE_CHECKING:
    from lyra.kernel.process.process import Process as KernelProcess
    from lyra.vega.runtime.job import VegaJob
    from lyra.vega.runtime.world import World


_HEIR: Final = "heir"  # the name of the reading in the journal
_PAUSE_S: Final = 0.005  # between two looks for a process that is being restarted


class SupervisedChild(NamedTuple):
    """A child of a supervisor: its name in the kernel, and the process, where the kernel still has it."""

    name: str
    process: KernelProcess | None


def note_child(world: World, pid: str, name: str) -> None:
    """The program has a handle on the process that is registered under a name; keep it, if a supervisor started it."""
    if pid in world.children:
        return
    process = world.kernel.lookup(pid)
    parent = None if process is None else process.parent
    if process is None or (parent is not None and parent.program == world.kernel.programs.name(supervise)):
        world.children[pid] = SupervisedChild(name, process)


def reaches_heir(act: Callable[..., Any]) -> Callable[..., Any]:
    """For effects on a process: a child that was restarted is reached under the handle that the program has."""

    @wraps(act)
    def acted(job: VegaJob, target: Any, *rest: Any) -> Any:
        children = job.world.children
        if not children or type(target) is not Process or target.pid not in children:
            return act(job, target, *rest)
        return _act_on_heir(act, job, target, rest)

    return acted


async def _act_on_heir(act: Callable[..., Any], job: VegaJob, target: Process, rest: tuple[Any, ...]) -> Any:
    outcome = act(job, await _heir(job, target), *rest)
    return await outcome if isawaitable(outcome) else outcome


async def _heir(job: VegaJob, target: Process) -> Process:
    """The process that a handle means now."""
    child, entry = job.world.children[target.pid], upcoming(job.process)
    pid: str | None = None
    if entry is None:
        if child.process is not None and child.process.exit is None and not _is_crashing(job.world, target.pid):
            return target
        pid = await _restarted(job.world, child)
    elif entry.kind != "read" or entry.name != _HEIR:
        return target
    heir = job.ctx.journaled_read(_HEIR, lambda: pid)
    if heir is None:
        return target
    job.world.children[heir] = SupervisedChild(child.name, job.world.kernel.lookup(heir))
    return Process(heir)


def _is_crashing(world: World, pid: str) -> bool:
    """Whether a call of an agent has failed, and its process is about to end with that."""
    slot = world.agent_slots.get(pid)
    return slot is not None and slot.front is None


async def _restarted(world: World, child: SupervisedChild) -> str | None:
    """The pid of the process in a child's place; None where none will be started."""
    kernel, process = world.kernel, child.process
    while True:
        named = kernel.names.get(child.name)
        if named is not None and named is not process and named.exit is None:
            return str(named.pid)
        if process is None or (process.exit is not None and process.exit.reason == "normal"):
            return None
        supervisor = process.parent
        if supervisor is None or supervisor.exit is not None:
            return None
        await asyncio.sleep(_PAUSE_S)
