"""Tools at work: the calls of one turn, run together, their results in call order.

Each call is an Effect of its own, so that it is allowed or denied by the Grant, counted, journaled and never
repeated. A function that is not async runs in a thread. One that fails fails alone: the others go on, and the model
is told.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.agents.content import parts_of
from lyra.agents.events import Interrupted, ToolEnded, ToolStarted
from lyra.agents.records import tool_record
from lyra.agents.runtime import scopes
from lyra.agents.trace import Held, Span, current_span, new_span, turn_of
from lyra.core.capability import Capability
from lyra.core.effect import Effect
from lyra.core.message import Message
from lyra.core.tool import Tool, ToolCall, ToolResult, caller
from lyra.errors import BudgetExceeded, Divergence, LyraError, StoreError, ToolError
from lyra.kernel.context import Context, next_key, once
from lyra.kernel.process import GIVEN_UP, Process

if TYPE_CHECKING:
    from lyra.agents.agent import Agent
    from lyra.agents.replies import Pending, Sink
    from lyra.agents.runtime import Runtime
    from lyra.agents.session import Session
    from lyra.kernel.interrupts import Answer

__all__ = ["run_tools"]

_OUTPUT_CHARS_MAX: Final = 200_000  # of one result; a model reads less than that in one go
_GIVEN_UP: Final = "given_up"
_NOT_TOLD: Final = (BudgetExceeded, Divergence, StoreError)  # ends the turn: no other call of the model helps


class Act:
    """One call on its way through the door; the journal knows it by name and arguments."""

    __slots__ = ("call", "runtime", "tool")

    def __init__(self, runtime: Runtime, tool: Tool, call: ToolCall) -> None:
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

    process = ctx._process
    if _was_given_up(process):
        raise asyncio.CancelledError(GIVEN_UP)
    # Not a TaskGroup: what was given up has to be written down before the calls hear of it (a crash in between would
    # leave a replay waiting for ever), and a program that is closed must not wait for them.
    tasks = [runtime.kernel.tasks.start(one(call), name=call.name) for call in calls]
    try:
        await asyncio.wait(tasks)
    except asyncio.CancelledError as cancelled:
        if cancelled.args == (GIVEN_UP,):
            once(process, _GIVEN_UP, str(process.branches), _nothing)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        raise
    results = [task.result() for task in tasks]
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return Message("tool", tool_results=tuple(result for result in results if isinstance(result, ToolResult)))


def _was_given_up(process: Process) -> bool:
    """On replay: the next thing that the program did after these calls was to give them up.

    Then they are not begun again: what came of some of them is in the journal, what became of the others nobody knows,
    and nobody waits for either. Their branches count as used, so that later ones have the numbers they had.
    """
    recall = process.recall
    entry = recall.get(process.keys) if recall else None
    if recall is None or entry is None or entry.kind != _GIVEN_UP:
        return False
    process.branches = int(entry.name)
    for key in [key for key in recall if isinstance(key, str) and _branch(key) < process.branches]:
        del recall[key]
    once(process, _GIVEN_UP, "", _nothing)
    return True


def _branch(key: str) -> int:
    number = key.partition("/")[0]
    return int(number) if number.isdecimal() else sys.maxsize  # a question's key is no branch's


def _nothing() -> None:
    """There is nothing to do but to write it down."""


async def _run(ctx: Context, runtime: Runtime, session: Session, call: ToolCall, pending: Pending | None) -> ToolResult:
    """One call; while somebody listens, within a span of its own."""
    kernel = runtime.kernel
    if not kernel.agents_heard or ctx.replaying or not kernel.listeners.hears("tool.called"):
        return await _called(ctx, runtime, session, call, pending)
    span_id, began_s = new_span(kernel), kernel.clock.monotonic()
    failed = True
    try:
        with Held(current_span, Span(turn_of(kernel, session).trace_id, span_id)):
            result = await _called(ctx, runtime, session, call, pending)
        failed = result.is_error
        return result
    finally:
        if not kernel.stopping:
            record = tool_record(kernel, session, call.name, span_id=span_id, began_s=began_s, failed=failed)
            kernel.publish(ctx.pid, "tool.called", record)


async def _called(
    ctx: Context, runtime: Runtime, session: Session, call: ToolCall, pending: Pending | None
) -> ToolResult:
    sink = pending.sink if pending is not None else None
    if sink is not None:
        sink.put(ToolStarted(call.id, call.name, call.arguments))
    tool = session.agent.tools.get(call.name)
    if tool is None:
        known = ", ".join(session.agent.tools) or "none"
        result = ToolResult(call.id, call.name, f"there is no tool {call.name!r}; there are: {known}", True)
    else:
        try:
            output = await _output(ctx, runtime, session.agent, tool, call, pending)
            result = ToolResult(call.id, call.name, _shown(runtime, output))
        except _NOT_TOLD:
            raise
        except Exception as error:  # a tool may raise anything; the model is told
            if ctx._process.out_of_time:  # the agent's, not the tool's: there is nobody left to tell
                raise
            result = ToolResult(call.id, call.name, _sentence(runtime, error), True)
    if result.is_error:
        session.metrics.tool_errors += 1
    if sink is not None:
        sink.put(ToolEnded(result.id, result.name, result.output, result.is_error))
    return result


class _ToolContext(Context):
    """The agent's ctx as a tool holds it: its questions are events of the answer's stream, too."""

    __slots__ = ("_sink",)

    def __init__(self, ctx: Context, sink: Sink | None) -> None:
        super().__init__(ctx._process)
        self._sink = sink

    def ask(self, question: str, kind: str = "clarification", *, message: str = "") -> Awaitable[Answer]:
        process = self._process
        return process.kernel.interrupts.ask(
            process, kind=kind, key=next_key(process), question=question, message=message, asked=self._tell
        )

    def _tell(self, interrupt_id: str) -> None:
        if self._sink is not None:
            interrupt = self._process.kernel.interrupts.get_interrupt(interrupt_id)
            self._sink.put(Interrupted(interrupt.id, interrupt.kind, interrupt.question))


async def _output(
    ctx: Context, runtime: Runtime, agent: Agent, tool: Tool, call: ToolCall, pending: Pending | None
) -> Any:
    """A tool is one effect. One that takes `ctx` is a part of the program instead: admitted by an effect, then run in
    place, so that each thing it does through `ctx` is an effect, a question or a process of its own."""
    caller.set(ctx.pid)
    act = Act(runtime, tool, call)
    inside = "ctx" in getattr(tool.run, "takes", ())
    with Held(scopes, pending.scopes if pending is not None else ()):  # agents asked in it draw on them too
        output = await ctx.do(_effect(agent, tool, inside=inside), act)
        if not inside:
            return output
        assert tool.run is not None
        ctx = _ToolContext(ctx, pending.sink if pending is not None else None)
        return parts_of(await _contained(tool, tool.run(**call.arguments, ctx=ctx)))


def _effect(agent: Agent, tool: Tool, *, inside: bool) -> Effect:
    found: Effect | None = agent.effects.get(tool.name)
    if found is None:
        keyed = "idempotency_key" in getattr(tool.run, "takes", ())
        found = agent.effects[tool.name] = Effect(
            _admit if inside else _perform_keyed if keyed else _perform,
            name=f"tool:{tool.name}",
            needs=tool.needs if tool.needs_of is None else lambda act: _needs(tool, act),
            idempotent=inside or tool.idempotent,
            cost={"tool_calls": 1},
        )
    return found


def _needs(tool: Tool, act: Act) -> list[Capability]:
    """What the tool always needs, and what it needs for these arguments."""
    return [*tool.needs, *(tool.needs_of(act.call.arguments) if tool.needs_of is not None else ())]


async def _admit(act: Act) -> None:
    """Allowed, counted and written down; nothing is performed yet."""


async def _perform_keyed(act: Act, idempotency_key: str) -> Any:
    return await _perform(act, idempotency_key=idempotency_key)


async def _perform(act: Act, **hidden: str) -> Any:
    run = act.tool.run
    if run is None:
        raise LyraError(f"tool {act.tool.name!r} has nothing to run")
    arguments = {**act.call.arguments, **hidden}
    try:
        return act.runtime.clean_data(parts_of(await _called_with(act, run, arguments)))
    except Exception as error:
        said = str(error)
        if act.runtime.clean(said) == said:
            raise
        # What a tool says goes into the journal and to the model: not with a key in it.
        raise ToolError(act.runtime.clean(f"{type(error).__name__}: {said}"), tool=act.tool.name) from None


async def _called_with(act: Act, run: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    if getattr(run, "is_async", False) or asyncio.iscoroutinefunction(run):
        return await _contained(act.tool, run(**arguments))
    loop = act.runtime.kernel.loop
    inside = contextvars.copy_context()
    value = await loop.run_in_executor(act.runtime.threads, lambda: inside.run(_in_thread, act.tool, run, arguments))
    return await _contained(act.tool, value) if asyncio.iscoroutine(value) else value


def _in_thread(tool: Tool, run: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """What is no ordinary error would be lost on its way out of a thread, or end more than this call."""
    try:
        return run(**arguments)
    except (StopIteration, StopAsyncIteration, asyncio.CancelledError, KeyboardInterrupt, SystemExit) as error:
        raise _own_end(tool, error) from error


async def _contained(tool: Tool, work: Awaitable[Any]) -> Any:
    """A tool that cancels or exits ends its own call; a cancellation that came from outside goes on its way."""
    task = asyncio.current_task()
    try:
        return await work
    except asyncio.CancelledError as error:
        if task is None or task.cancelling() or asyncio.current_task() is not task:  # or the kernel closes it
            raise
        raise _own_end(tool, error) from error
    except SystemExit as error:
        raise _own_end(tool, error) from error


def _own_end(tool: Tool, error: BaseException) -> ToolError:
    said = f"{type(error).__name__}({error})" if str(error) else type(error).__name__
    return ToolError(f"tool {tool.name} ended with {said}", tool=tool.name)


def _shown(runtime: Runtime, output: Any) -> Any:
    """What the model reads: text, images among texts, or JSON of anything else; keys that are known blotted out, and
    not too long."""
    if _has_image(output):
        return [_text_shown(runtime, part) for part in output]
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


def _has_image(output: Any) -> bool:
    parts = output if isinstance(output, list) else ()
    kinds = [part.get("type") if isinstance(part, dict) else None for part in parts]
    return "image" in kinds and all(kind in ("image", "text") for kind in kinds)


def _text_shown(runtime: Runtime, part: dict[str, Any]) -> dict[str, Any]:
    return part if part["type"] == "image" else {**part, "text": _shown(runtime, part.get("text"))}


def _sentence(runtime: Runtime, error: Exception) -> str:
    if isinstance(error, LyraError):
        return runtime.clean(f"{error.message}. {error.hint}" if error.hint else error.message)
    return runtime.clean(f"{type(error).__name__}: {error}")
