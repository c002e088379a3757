"""Tools at work: the calls of one turn, run together, their results in call order.

Each call is an Effect of its own, so that it is allowed or denied by the Grant, counted, journaled and never
repeated. A function that is not async runs in a thread. One that fails fails alone: the others go on, and the model
is told.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.agents.declaration.content import parts_of
from lyra.agents.session.cleanup import endings_of
from lyra.agents.session.events import Interrupted, ToolEnded, ToolProgress, ToolStarted
from lyra.agents.session.records import tool_record
from lyra.agents.session.shared import home, scopes
from lyra.agents.session.spans import Held, Span, current_span, new_span, turn_of
from lyra.core.effect import Effect
from lyra.core.message import Message
from lyra.core.rights.capability import Capability, Grant
from lyra.core.secrets.redact import redact
from lyra.core.tool import (
    Tool,
    ToolCall,
    ToolResult,
    admitted,
    answering,
    caller,
    ending,
    error_code,
    hides,
    progress,
    rights,
)
from lyra.errors import BudgetExceeded, Denied, Divergence, LyraError, StoreError, ToolError
from lyra.kernel.process.call_keys import comes_next, current_branch, next_key
from lyra.kernel.process.process import GIVEN_UP, Process
from lyra.kernel.programs.context import Context, once
from lyra.tools.calling import calling, contained, invoke
from lyra.tools.concurrency import Turns
from lyra.tools.tool_search import searchable

if TYPE_CHECKING:
    from lyra.agents.declaration.agent import Agent
    from lyra.agents.session.replies import Pending, Sink
    from lyra.agents.session.session import Session
    from lyra.agents.session.shared import Runtime
    from lyra.agents.turn.admission import Admitted
    from lyra.kernel.interrupts.service import Answer

__all__ = ["run_tools"]

_OUTPUT_CHARS_MAX: Final = 200_000  # of one result; a model reads less than that in one go
_PROGRESS_CHARS_MAX: Final = 2_000  # of one report of how far a tool is
_GIVEN_UP: Final = "given_up"
_SHOWN: Final = 300  # characters of a call's arguments, for a person who decides about it
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
    session.judged = session.tainted  # by what the model had read when it made these calls
    session.sink = pending.sink if pending is not None else None
    if len(calls) == 1:
        return Message("tool", tool_results=(await _run(ctx, runtime, session, calls[0], pending),))
    turns = Turns(session.agent.max_parallel_tools)
    process = ctx.own_process
    wanted = [session.tools.get(call.name) for call in calls]
    alike = all(tool is None or tool.concurrency == "parallel" for tool in wanted)

    async def one(call: ToolCall, tool: Tool | None) -> ToolResult | BaseException:
        if not alike:  # they may begin in another order than they came in: the branch of each is the one of its place
            current_branch(process)
        async with turns.of(tool):
            try:
                return await _run(ctx, runtime, session, call, pending)
            except _NOT_TOLD as error:
                return error

    if _was_given_up(process):
        raise asyncio.CancelledError(GIVEN_UP)
    # Not a TaskGroup: what was given up has to be written down before the calls hear of it (a crash in between would
    # leave a replay waiting for ever), and a program that is closed must not wait for them.
    tasks = [
        runtime.kernel.tasks.start(one(call, tool), name=call.name) for call, tool in zip(calls, wanted, strict=True)
    ]
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
    recall = process.replay
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
    """One call; while somebody listens, within a span: its own, or the turn's where nobody hears of tools."""
    kernel = runtime.kernel
    if not kernel.agents_heard or ctx.replaying:
        return await _called(ctx, runtime, session, call, pending)
    if not kernel.listeners.hears("tool.called"):
        with Held(current_span, turn_of(kernel, session)):
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
        sink.put(ToolStarted(call.id, call.name, runtime.clean_data(call.arguments)))
    tool = session.tools.get(call.name)
    if tool is None:
        known = ", ".join(session.tools.names) or "none"
        said = f"there is no tool {call.name!r}; there are: {known}"
        result = ToolResult(call.id, call.name, said, True, "not_found")
    elif session.tools.is_hidden(tool, session.messages):
        said = f"tool {call.name!r} has not been looked up; find it with ToolSearch: select:{call.name}"
        result = ToolResult(call.id, call.name, said, True, "not_found")
    else:
        process, replaying, untrusted = ctx.own_process, ctx.replaying, _marks(session, tool)
        refusing = False  # while it is decided on, what is said are words of ours
        try:
            if not _is_judged(session, tool) and not (replaying and comes_next(process, "read")):
                output = await _output(ctx, runtime, session, tool, call, pending, process.grant)
            else:
                refusing = True
                allowed = await _admission(ctx, runtime, session, tool, call)
                refusing = False
                with Held(admitted, allowed.path), Held(hides, allowed.hides):
                    output = await _output(ctx, runtime, session, tool, allowed.call, pending, allowed.rights)
            result = ToolResult(call.id, call.name, _shown(runtime, output))
        except _NOT_TOLD:
            raise
        except Exception as error:  # a tool may raise anything; the model is told
            if process.out_of_time:  # the agent's, not the tool's: there is nobody left to tell
                raise
            result = ToolResult(call.id, call.name, _sentence(runtime, error), True, error_code(error))
            untrusted = untrusted and not (refusing and isinstance(error, Denied))
            if result.error_code == "permission_denied" and not (replaying and ctx.replaying):
                from lyra.agents.turn.admission import refused

                refused(runtime, process, call, error)
        if untrusted or session.tools.shows_foreign(tool, result.output):
            session.taint(tool.name)
    if result.is_error:
        session.metrics.tool_errors += 1
    if sink is not None:
        sink.put(ToolEnded(result.id, result.name, result.output, result.is_error, result.error_code))
    return result


class _ToolContext(Context):
    """The agent's ctx as a tool holds it: its questions are events of the answer's stream, too."""

    __slots__ = ("_sink",)

    def __init__(self, ctx: Context, sink: Sink | None) -> None:
        super().__init__(ctx.own_process)
        self._sink = sink

    def ask(self, question: str, kind: str = "clarification", *, message: str = "") -> Awaitable[Answer]:
        process = self.own_process
        answer: Awaitable[Answer] = process.kernel.interrupts.ask(
            process, kind=kind, key=next_key(process), question=question, message=message, asked=self._tell
        )
        return answer

    def _tell(self, interrupt_id: str) -> None:
        if self._sink is not None:
            interrupt = self.own_process.kernel.interrupts.get_interrupt(interrupt_id)
            self._sink.put(Interrupted(interrupt.id, interrupt.kind, interrupt.question, interrupt.message))


class _Told:
    """What a running tool reports, as events of the answer's stream; from whatever thread it runs in."""

    __slots__ = ("_call", "_runtime", "_sink")

    def __init__(self, runtime: Runtime, sink: Sink, call: ToolCall) -> None:
        self._runtime = runtime
        self._sink = sink
        self._call = call

    def __call__(self, text: str, fraction: float | None = None) -> None:
        if fraction is not None:
            fraction = min(1.0, max(0.0, float(fraction)))
        text = self._runtime.clean(str(text)[:_PROGRESS_CHARS_MAX])
        event = ToolProgress(self._call.id, self._call.name, text, fraction)
        loop = self._runtime.kernel.loop
        if asyncio._get_running_loop() is loop:
            self._put(event)
        else:
            with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
                loop.call_soon_threadsafe(self._put, event)

    def _put(self, event: ToolProgress) -> None:
        if not self._sink.full:  # who reads slowly misses how it went, not what came out
            self._sink.put(event)


def _is_judged(session: Session, tool: Tool) -> bool:
    """Whether the call is decided on first. Lyra's own tools that read files are, for there may be keys in them."""
    return session.permissions is not None or tool.guarded or (tool.builtin and bool(tool.folders))


def _marks(session: Session, tool: Tool) -> bool:
    """Whether what comes out marks the session: where calls are decided on, whatever is not known to be the program's
    own words does."""
    return tool.untrusted or (not tool.trusted and session.is_wary)


async def _admission(ctx: Context, runtime: Runtime, session: Session, tool: Tool, call: ToolCall) -> Admitted:
    caller.set(ctx.pid)
    from lyra.agents.turn.admission import admit  # not before it is needed: it brings the rules and all that reads them

    return await admit(ctx, runtime, session, tool, call, session.sink)


async def _output(
    ctx: Context, runtime: Runtime, session: Session, tool: Tool, call: ToolCall, pending: Pending | None, grant: Grant
) -> Any:
    """A tool is one effect. One that takes `ctx` is a part of the program instead: admitted by an effect, then run in
    place, so that each thing it does through `ctx` is an effect, a question or a process of its own."""
    caller.set(ctx.pid)
    home.set(runtime)
    rights.set(grant)
    ending.set(partial(endings_of(runtime.kernel).add, ctx.own_process))
    searchable.set(session.tools.deferred)
    if tool.guarded:
        from lyra.agents.turn.callbacks import AskedBack

        answering.set(AskedBack(runtime, ctx.own_process, session, pending))
    if pending is not None and pending.sink is not None:
        progress.set(_Told(runtime, pending.sink, call))
    act = Act(runtime, tool, call)
    inside = "ctx" in getattr(tool.run, "takes", ())
    with Held(scopes, pending.scopes if pending is not None else ()):  # agents asked in it draw on them too
        output = await ctx.do(_effect(session.agent, tool, inside=inside), act)
        if not inside:
            return output
        assert tool.run is not None
        ctx = _ToolContext(ctx, pending.sink if pending is not None else None)
        return parts_of(await contained(tool, tool.run(**call.arguments, ctx=ctx)))


def _effect(agent: Agent, tool: Tool, *, inside: bool) -> Effect:
    made, found = agent.effects.get(tool.name, (None, None))
    if made is not tool:  # new, or another one under its name since its file has changed
        keyed = "idempotency_key" in getattr(tool.run, "takes", ())
        found = Effect(
            _admit if inside else _perform_keyed if keyed else _perform,
            name=f"tool:{tool.name}",
            needs=tool.needs if tool.needs_of is None else lambda act: _needs(tool, act),
            idempotent=inside or tool.idempotent,
            cost={"tool_calls": 1},
            timeout_s=tool.timeout_s,
            about=_about,
        )
        agent.effects[tool.name] = (tool, found)
    effect: Effect = found
    return effect


def _needs(tool: Tool, act: Act) -> list[Capability]:
    """What the tool always needs, and what it needs for these arguments."""
    return [*tool.needs, *(tool.needs_of(act.call.arguments) if tool.needs_of is not None else ())]


def _about(act: Act) -> str:
    """The call as a person reads it, without the keys in it."""
    given = ", ".join(f"{name}: {value!r}" for name, value in act.call.arguments.items())
    shown = redact(given, act.runtime.known)
    return f"tool:{act.tool.name}({shown if len(shown) <= _SHOWN else shown[:_SHOWN] + '…'})"


async def _admit(act: Act) -> None:
    """Allowed, counted and written down; nothing is performed yet."""


async def _perform_keyed(act: Act, idempotency_key: str) -> Any:
    return await _perform(act, idempotency_key=idempotency_key)


async def _perform(act: Act, **hidden: str) -> Any:
    calling.set(act.call)
    arguments = {**act.call.arguments, **hidden}
    try:
        return act.runtime.clean_data(parts_of(await invoke(act.tool, arguments, threads=act.runtime.threads)))
    except Exception as error:
        said = str(error)
        if act.runtime.clean(said) == said:
            raise
        # What a tool says goes into the journal and to the model: not with a key in it.
        raise ToolError(act.runtime.clean(f"{type(error).__name__}: {said}"), tool=act.tool.name) from None


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
