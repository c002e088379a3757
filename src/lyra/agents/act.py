"""Tools at work: the calls of one turn, run together, their results in call order.

Each call is an Effect of its own, so that it is allowed or denied by the Grant, counted, journaled and never
repeated. A function that is not async runs in a thread. One that fails fails alone: the others go on, and the model
is told.
"""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.agents.events import ToolEnded, ToolStarted
from lyra.core.effect import Effect
from lyra.core.message import Message
from lyra.core.tool import Tool, ToolCall, ToolResult
from lyra.errors import BudgetExceeded, Divergence, LyraError, StoreError

if TYPE_CHECKING:
    from lyra.agents.agent import Agent
    from lyra.agents.replies import Pending
    from lyra.agents.runtime import Runtime
    from lyra.agents.session import Session
    from lyra.kernel.context import Context

__all__ = ["run_tools"]

_OUTPUT_CHARS_MAX: Final = 200_000  # of one result; a model reads less than that in one go
_NOT_TOLD: Final = (BudgetExceeded, Divergence, StoreError)  # ends the turn: no other call of the model helps


class Act:
    """One call on its way through the door; the journal knows it by name and arguments."""

    __slots__ = ("call", "ctx", "runtime", "tool")

    def __init__(self, ctx: Context, runtime: Runtime, tool: Tool, call: ToolCall) -> None:
        self.ctx = ctx
        self.runtime = runtime
        self.tool = tool
        self.call = call

    def to_data(self) -> list[Any]:
        return [self.call.name, self.call.arguments]


async def run_tools(
    ctx: Context, runtime: Runtime, session: Session, calls: tuple[ToolCall, ...], pending: Pending | None
) -> Message:
    """The message that tells the model what came out."""
    session.metrics.tool_calls += len(calls)
    if len(calls) == 1:
        return Message("tool", tool_results=(await _run(ctx, runtime, session, calls[0], pending),))
    turns = asyncio.Semaphore(session.agent.max_parallel_tools)

    async def one(call: ToolCall) -> ToolResult | BaseException:
        async with turns:
            try:
                return await _run(ctx, runtime, session, call, pending)
            except _NOT_TOLD as error:
                return error

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(call)) for call in calls]
    results = [task.result() for task in tasks]
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return Message("tool", tool_results=tuple(result for result in results if isinstance(result, ToolResult)))


async def _run(ctx: Context, runtime: Runtime, session: Session, call: ToolCall, pending: Pending | None) -> ToolResult:
    sink = pending.sink if pending is not None else None
    if sink is not None:
        sink.put(ToolStarted(call.id, call.name, call.arguments))
    tool = session.agent.tools.get(call.name)
    if tool is None:
        known = ", ".join(session.agent.tools) or "none"
        result = ToolResult(call.id, call.name, f"there is no tool {call.name!r}; there are: {known}", True)
    else:
        try:
            output = await ctx.do(_effect(session.agent, tool), Act(ctx, runtime, tool, call))
            result = ToolResult(call.id, call.name, _shown(runtime, output))
        except _NOT_TOLD:
            raise
        except Exception as error:  # noqa: BLE001 - a tool may raise anything; the model is told
            result = ToolResult(call.id, call.name, _sentence(runtime, error), True)
    if result.is_error:
        session.metrics.tool_errors += 1
    if sink is not None:
        sink.put(ToolEnded(result.id, result.name, result.output, result.is_error))
    return result


def _effect(agent: Agent, tool: Tool) -> Effect:
    found: Effect | None = agent.effects.get(tool.name)
    if found is None:
        found = agent.effects[tool.name] = Effect(
            _perform, name=f"tool:{tool.name}", needs=tool.needs, idempotent=tool.idempotent, cost={"tool_calls": 1}
        )
    return found


async def _perform(act: Act) -> Any:
    run = act.tool.run
    if run is None:
        raise LyraError(f"tool {act.tool.name!r} has nothing to run")
    arguments = dict(act.call.arguments)
    if "ctx" in getattr(run, "takes", ()):
        arguments["ctx"] = act.ctx
    if getattr(run, "is_async", False) or asyncio.iscoroutinefunction(run):
        return await run(**arguments)
    loop = act.runtime.kernel.loop
    inside = contextvars.copy_context()
    value = await loop.run_in_executor(act.runtime.threads, lambda: inside.run(run, **arguments))
    return await value if asyncio.iscoroutine(value) else value


def _shown(runtime: Runtime, output: Any) -> Any:
    """What the model reads: text, or JSON of anything else; keys that are known blotted out, and not too long."""
    if output is None:
        text = ""
    elif isinstance(output, str):
        text = output
    else:
        text = msgspec.json.encode(output, enc_hook=str).decode()
    text = runtime.clean(text)
    if len(text) > _OUTPUT_CHARS_MAX:
        half = _OUTPUT_CHARS_MAX // 2
        text = f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"
    return text


def _sentence(runtime: Runtime, error: Exception) -> str:
    if isinstance(error, LyraError):
        return runtime.clean(f"{error.message}. {error.hint}" if error.hint else error.message)
    return runtime.clean(f"{type(error).__name__}: {error}")
