"""`parallel { }`: calls and functions beside each other, with results and failures in the order of the source."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from lyra.agents.session.open_questions import scopes
from lyra.kernel.process.call_keys import name_branch
from lyra.vega.runtime.job import beside
from lyra.vega.runtime.processes import PROCESSES, start_fiber
from lyra.vega.values.errors import fault_of
from lyra.vega.values.values import Duration, Fault, Money, Process

if TYPE_CHECKING:
    from lyra.vega.runtime.job import VegaJob


async def _parallel_begin(job: VegaJob) -> int:
    number = job.state.number()
    job.state.groups[number] = []
    await job.give_back(job.world.wanted_s)  # now: inside one of them would wait while the others go on
    return number


def _parallel_send(
    job: VegaJob, number: int, target: Process, message: Any, timeout: Duration | None, budget: Money | None
) -> None:
    """Start a call of the group; a message to a process written in Vega is just sent."""
    if job.world.is_agent(target.pid):
        _begin(job, number, lambda: PROCESSES["send"](job, target, message, timeout, budget))
        return
    waiting = PROCESSES["send"](job, target, message, timeout, budget)
    _begin(job, number, lambda: _sent(waiting))


async def _sent(waiting: Any) -> None:
    if waiting is not None:
        await waiting


def _parallel_call(job: VegaJob, number: int, function: Any, arguments: list[Any]) -> None:
    pid = start_fiber(job, function, arguments)
    job.world.recharge(pid, scopes.get())
    _begin(job, number, lambda: _called(job, pid))


async def _called(job: VegaJob, pid: str) -> Any:
    child = job.ctx.process(pid)
    try:
        with job.waiting(pid):
            ended = await child.wait()
    except asyncio.CancelledError:
        process = child._look_up()
        if process is not None and process.exit is None:
            job.world.kernel.end(pid)
        raise
    if ended.error is not None:
        fault = fault_of(ended.error)
        raise Fault(fault.name, fault.text)
    if ended.reason != "normal":
        raise Fault("ProcessExit", ended.reason)
    return job.world.read(ended.result)


def _begin(job: VegaJob, number: int, work: Callable[[], Any]) -> None:
    """Each is a branch of the process with a key that says where it stands: who has to wait for an agent's turn, and
    how long, may be otherwise in a replay."""
    group = job.state.groups[number]
    path = f"parallel{number}:{len(group)}/"

    async def branch() -> Any:
        name_branch(job.ctx.own_process, path)
        beside.set(True)
        return await work()

    group.append(job.world.kernel.tasks.start(branch(), name=f"vega {path}"))


async def _parallel_join(job: VegaJob, number: int) -> list[Any]:
    """All results, or the first failure in the order of the source; the rest is cancelled then."""
    tasks = job.state.groups.pop(number, [])
    try:
        return [await task for task in tasks]
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


PARALLEL: Final[dict[str, Callable[..., Any]]] = {
    "parallel_begin": _parallel_begin,
    "parallel_send": _parallel_send,
    "parallel_call": _parallel_call,
    "parallel_join": _parallel_join,
}
