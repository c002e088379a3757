"""Asking agents: one call, its stream, several at once, and the money they may take.

A call without memory is a process of its own that answers once; one with memory is a message to the agent's
conversation. Either way it draws on the sessions that are open around it, on its own budget, and is given up when its
time is over. A call that fails after its retries is AgentFailed at its caller, and the agent's process crashes with it;
limits that were reached (BudgetExceeded, CircuitOpen, a time-out) are no crash.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from lyra.agents.content import content_of
from lyra.agents.events import Text
from lyra.agents.replies import Pending
from lyra.agents.runtime import scopes
from lyra.agents.trace import Held
from lyra.core.budget import Budget
from lyra.core.effect import Effect
from lyra.errors import (
    AgentFailed,
    BudgetExceeded,
    ConfigError,
    DeadlineExceeded,
    Denied,
    LimitExceeded,
    LyraError,
    NoSuchProcess,
)
from lyra.kernel.programs import program_of
from lyra.vega.runtime.agents import CRASH, Cell
from lyra.vega.runtime.convert import from_python
from lyra.vega.runtime.errors import fault_of
from lyra.vega.values import Duration, Fault, Future, Money, Process, Stream, shown

if TYPE_CHECKING:
    from lyra.kernel.context import ChildHandle
    from lyra.kernel.process import Exit
    from lyra.kernel.process import Process as KernelProcess
    from lyra.vega.runtime.job import Job

__all__ = ["CALLS", "Opened", "ask"]

_NO_CRASH: Final = (LimitExceeded, ConfigError, Denied)


# ---------------------------------------------------------------- one call


async def ask(job: Job, pid: str, message: Any, timeout: Duration | None, budget: Money | None) -> Any:
    """The answer to `p <- message`."""
    cell = job.world.cells[pid]
    mocked = _mocked(job, cell, message)
    if mocked is not None:
        return mocked[0]
    limit_s = cell.plan.timeout_s if timeout is None else timeout.seconds
    limit = cell.plan.budget if budget is None else budget
    try:
        async with asyncio.timeout(limit_s) as clock:
            async with cell:
                answer = await (_remembered if cell.plan.keeps else _once)(job, cell, _content(message), limit)
    except TimeoutError:
        if not clock.expired():
            raise
        raise DeadlineExceeded(f"{cell.plan.name} did not answer within {limit_s:g} s", timeout_s=limit_s) from None
    except LyraError as error:
        raise _failed(job, cell, error) from error
    return from_python(answer)


def _content(message: Any) -> str:
    return shown(message)


async def _once(job: Job, cell: Cell, content: str, limit: Money | None) -> Any:
    """A call without memory: a process that answers this and ends."""
    plan, ctx = cell.plan, job.ctx
    with Held(scopes, _inside(limit)):
        child = ctx.spawn(program_of(plan.agent), content, priority=plan.priority)
    try:
        ended = await child.wait()
    except asyncio.CancelledError:
        _stop(job, child)
        raise
    text = _result(plan.name, ended)
    if plan.agent.output is None:
        return text
    try:
        return plan.agent.output.read(text)
    except ValueError as misfit:  # it was read once already, by the agent
        raise AgentFailed(str(misfit), status="output_invalid") from None


def _result(name: str, ended: Exit) -> Any:
    if ended.error is not None:
        raise ended.error
    if ended.reason != "normal":
        raise AgentFailed(f"agent {name} ended: {ended.reason}", status=ended.reason)
    return ended.result


def _stop(job: Job, child: ChildHandle) -> None:
    process = child._found()
    if process is not None and process.exit is None and not job.world.kernel.stopping:
        job.ctx.stop(child, grace_s=0.0)


async def _remembered(job: Job, cell: Cell, content: str, limit: Money | None) -> Any:
    """A call with memory: the next message of the conversation, as an effect of the caller's."""
    assert cell.session is not None
    session = cell.session

    async def vega_ask(content: str) -> Any:
        with Held(scopes, _inside(limit)):
            pending = job.world.runtime.ask(session, content_of(content))
        return await pending

    effect = Effect(vega_ask, name=f"vega.ask:{cell.plan.name}")
    return await job.ctx.do(effect, content)


def _inside(limit: Money | None) -> tuple[Budget, ...]:
    """The scopes around a call, with its own inside them."""
    outer = scopes.get()
    return outer if limit is None else (*outer[:-1], outer[-1].child({"usd": limit}))


def _failed(job: Job, cell: Cell, error: LyraError) -> LyraError:
    """The error as the caller sees it; one that is no limit crashes the agent's process."""
    if isinstance(error, _NO_CRASH) or (isinstance(error, AgentFailed) and error.fields.get("status") == "gone"):
        return error
    front = cell.front
    if front is not None and front.exit is None:
        cell.down()
        with suppress(NoSuchProcess):
            job.ctx.send(front.pid, {CRASH: error.message})
    if isinstance(error, AgentFailed):
        return error
    return AgentFailed(error.message, hint=error.hint, status="failed", **_kind(error))


def _kind(error: LyraError) -> dict[str, Any]:
    return {"kind": error.fields["kind"]} if "kind" in error.fields else {}


def _mocked(job: Job, cell: Cell, message: Any) -> tuple[Any] | None:
    """The answer of a `mock`, in a test."""
    replies = job.world.mocks.get(cell.plan.name)
    if replies is None:
        return None
    text = shown(message)
    for pattern, reply in replies:
        if re.search(pattern, text):
            return (reply,)
    raise AgentFailed(f"the mock of {cell.plan.name} has no reply to {text[:80]!r}", status="mock")


# ---------------------------------------------------------------- streams


class Opened:
    """A stream that is being read."""

    __slots__ = ("cell", "child", "due", "gate", "limit_s", "pending", "session")

    def __init__(self, cell: Cell, due: float | None, limit_s: float | None) -> None:
        self.cell = cell
        self.due = due
        self.limit_s = limit_s
        self.child: ChildHandle | None = None
        self.pending: Pending | None = None
        self.gate = False


async def _send_stream(
    job: Job, target: Process, message: Any, timeout: Duration | None, budget: Money | None
) -> Stream:
    world = job.world
    cell = world.cells.get(target.pid)
    if cell is None:
        raise Fault("TypeError", "only an agent answers with a stream")
    plan = cell.plan
    limit_s = plan.timeout_s if timeout is None else timeout.seconds
    loop = asyncio.get_running_loop()
    opened = Opened(cell, None if limit_s is None else loop.time() + limit_s, limit_s)
    stream = Stream(f"s{world.number()}")
    await cell.__aenter__()
    opened.gate = True
    limit = plan.budget if budget is None else budget
    session: KernelProcess | None = cell.session
    if session is None:
        opened.child = job.ctx.spawn(program_of(plan.agent), priority=plan.priority)
        session = opened.child._found()
    assert session is not None
    with Held(scopes, _inside(limit)):
        opened.pending = world.runtime.ask(session, content_of(_content(message)), stream=True)
    world.streams[stream.id] = opened
    return stream


async def _stream_next(job: Job, stream: Stream) -> Any:
    """[the next piece], or null at the end."""
    opened = job.world.streams.get(stream.id)
    if opened is None or opened.pending is None:
        return None
    sink = opened.pending.sink
    assert sink is not None
    try:
        async with asyncio.timeout_at(opened.due) as clock:
            while (event := await sink.next()) is not None:
                if type(event) is Text:
                    return [event.delta]
    except TimeoutError:
        if not clock.expired():
            raise
        await _stream_close(job, stream)
        name = opened.cell.plan.name
        raise DeadlineExceeded(f"{name} did not answer within {opened.limit_s:g} s", timeout_s=opened.limit_s) from None
    except LyraError as error:
        await _stream_close(job, stream)
        raise _failed(job, opened.cell, error) from error
    await _stream_close(job, stream)
    return None


async def _stream_close(job: Job, stream: Stream) -> None:
    """Done with it: what the agent is still saying is cancelled."""
    opened = job.world.streams.pop(stream.id, None)
    if opened is None:
        return
    if opened.pending is not None and not opened.pending.done():
        opened.pending.cancel()
    if opened.gate:
        await opened.cell.__aexit__()
    if opened.child is not None:
        _stop(job, opened.child)


async def _await(job: Job, what: Future | Stream) -> Any:
    if isinstance(what, Future):
        return Process(what.id)
    parts = []
    while (piece := await _stream_next(job, what)) is not None:
        parts.append(piece[0])
    return "".join(parts)


# ---------------------------------------------------------------- several at once


def _parallel_begin(job: Job) -> int:
    number = job.world.number()
    job.state.groups[number] = []
    return number


def _parallel_send(
    job: Job, number: int, target: Process, message: Any, timeout: Duration | None, budget: Money | None
) -> None:
    """Start a call of the group; a message to a process written in Vega is just sent."""
    if target.pid in job.world.cells:
        _begin(job, number, ask(job, target.pid, message, timeout, budget))
        return
    from lyra.vega.runtime.processes import PROCESSES

    waiting = PROCESSES["send"](job, target, message, timeout, budget)
    _begin(job, number, waiting if waiting is not None else _nothing())


async def _nothing() -> None:
    return None


def _parallel_call(job: Job, number: int, function: Any, arguments: list[Any]) -> None:
    from lyra.vega.runtime.processes import start_fiber

    pid = start_fiber(job, function, arguments)
    _begin(job, number, _called(job, pid))


async def _called(job: Job, pid: str) -> Any:
    child = job.ctx.process(pid)
    try:
        ended = await child.wait()
    except asyncio.CancelledError:
        process = child._found()
        if process is not None and process.exit is None:
            job.world.kernel.kill(pid)
        raise
    if ended.error is not None:
        fault = fault_of(ended.error)
        raise Fault(fault.name, fault.text)
    if ended.reason != "normal":
        raise Fault("ProcessExit", ended.reason)
    return job.world.read(ended.result)


def _begin(job: Job, number: int, work: Any) -> None:
    job.state.groups[number].append(job.world.kernel.tasks.start(work, name=f"vega parallel {number}"))


async def _parallel_join(job: Job, number: int) -> list[Any]:
    """All results, or the first failure in the order of the source; the rest is cancelled then."""
    tasks = job.state.groups.pop(number, [])
    try:
        return [await task for task in tasks]
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


# ---------------------------------------------------------------- money


def _budget_enter(job: Job, limit: Money) -> None:
    """A session: a scope inside the one around it, for this process and all it starts."""
    outer = scopes.get()
    job.state.sessions.append(outer)
    scopes.set((*outer[:-1], outer[-1].child({"usd": limit})))


def _budget_exit(job: Job) -> None:
    scopes.set(job.state.sessions.pop())


def _budget(job: Job, what: str) -> float:
    scope = scopes.get()[-1]
    reading: Callable[[], Any] = {
        "used": lambda: scope.used("usd"),
        "limit": lambda: scope.limit("usd"),
        "remaining": lambda: scope.remaining("usd"),
    }[what]
    micro_usd = job.ctx._read(f"session.{what}", lambda: None if (found := reading()) is None else int(found))
    return math.inf if micro_usd is None else micro_usd / 1_000_000


def _budget_reserve(_job: Job, amount: Money) -> None:
    """Whether there is room for an amount; BudgetExceeded before anything is spent."""
    scope = scopes.get()[-1]
    if not scope.covers("usd", int(amount)):
        left = scope.remaining("usd")
        raise BudgetExceeded(f"{left} is left, and {amount} was asked for", remaining=left, asked=amount)


CALLS: Final[dict[str, Callable[..., Any]]] = {
    "send_stream": _send_stream,
    "stream_next": _stream_next,
    "stream_close": _stream_close,
    "await": _await,
    "parallel_begin": _parallel_begin,
    "parallel_send": _parallel_send,
    "parallel_call": _parallel_call,
    "parallel_join": _parallel_join,
    "budget_enter": _budget_enter,
    "budget_exit": _budget_exit,
    "budget": _budget,
    "budget_reserve": _budget_reserve,
}
