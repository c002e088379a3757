"""The table of effects, each with the function that answers it, and the answers for `parallel` and budgets."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from lyra.agents.session.open_questions import scopes
from lyra.core.budgets.money import Money
from lyra.errors import BudgetExceeded
from lyra.kernel.process.call_keys import name_branch, upcoming
from lyra.vega.runtime.agents.streams import STREAMS
from lyra.vega.runtime.early_calls import AHEAD
from lyra.vega.runtime.files import FILES
from lyra.vega.runtime.job import beside
from lyra.vega.runtime.library import LIBRARY, host_function
from lyra.vega.runtime.processes import PROCESSES, start_fiber
from lyra.vega.values.values import Duration, Fault, Process, fault_of

if TYPE_CHECKING:
    from lyra.vega.runtime.job import VegaJob


# ---------------------------------------------------------------- parallel
# `parallel { }`: calls and functions beside each other, with results and failures in the order of the source.


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


# ---------------------------------------------------------------- budgets
# `session budget` and `budget::`: scopes that every call inside draws on, in this process and in those it starts.

_RESERVE: Final = "session.reserve"


def _budget_enter(job: VegaJob, limit: Money) -> None:
    """A session: a scope inside the one around it, for this process and all it starts."""
    outer = scopes.get()
    job.state.sessions.append(outer)
    world = job.world
    if world.is_durable:
        name = f"{job.ctx.own_process.pid}/{job.state.number()}"
        inner = world.session(name, limit, outer[-1])
    else:
        inner = outer[-1].child({"usd": limit})
    scopes.set((*outer[:-1], inner))
    if job.world.picture is not None:
        job.world.picture.session(inner)


def _budget_exit(job: VegaJob) -> None:
    record = job.world.record
    if record is not None:
        record.leave(scopes.get()[-1].name)
    scopes.set(job.state.sessions.pop())


def _budget(job: VegaJob, what: str) -> float:
    scope = scopes.get()[-1]
    reading: Callable[[], Any] = {
        "used": lambda: scope.used("usd"),
        "limit": lambda: scope.limit("usd"),
        "remaining": lambda: scope.remaining("usd"),
    }[what]
    micro_usd = job.ctx.journaled_read(
        f"session.{what}", lambda: None if (amount := reading()) is None else int(amount)
    )
    return math.inf if micro_usd is None else micro_usd / 1_000_000


def _budget_reserve(job: VegaJob, amount: Money) -> None:
    """Whether there is room for an amount; BudgetExceeded before anything is spent."""
    scope = scopes.get()[-1]

    def missing() -> int | None:
        """Return what is left, where that is not enough."""
        return None if scope.covers("usd", int(amount)) else int(scope.remaining("usd") or 0)

    entry = upcoming(job.process)
    is_kept = entry is None or entry.name == _RESERVE  # runs of old did not write it down
    rest = job.ctx.journaled_read(_RESERVE, missing) if is_kept else missing()
    if rest is not None:
        left = Money(rest)
        raise BudgetExceeded(f"{left} is left, and {amount} was asked for", remaining=left, asked=amount)


BUDGETS: Final[dict[str, Callable[..., Any]]] = {
    "budget_enter": _budget_enter,
    "budget_exit": _budget_exit,
    "budget": _budget,
    "budget_reserve": _budget_reserve,
}


HANDLERS: Final[dict[str, Callable[..., Any]]] = {
    **PROCESSES,
    **STREAMS,
    **PARALLEL,
    **AHEAD,
    **BUDGETS,
    **FILES,
    **LIBRARY,
}


def handler(kind: str) -> Callable[..., Any]:
    """The answer to an effect that is not in the table: a host's function, or a refusal."""
    if kind.startswith("host::"):
        name = kind[6:]

        def call(job: VegaJob, *arguments: Any) -> Any:
            return host_function(job, name, *arguments)

        return call
    return partial(_refused, kind)


def _refused(kind: str, _job: VegaJob, *_: Any) -> None:
    from lyra.errors import CapabilityDenied

    raise CapabilityDenied(f"this host does not know {kind}")
