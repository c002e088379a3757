"""The moments of a turn at which an agent's hooks run, each with what its outcome does.

    a message comes → UserPromptSubmit | SubagentStart        a call is about to run → PreToolUse → PermissionRequest
    a call is over  → PostToolUse | PostToolUseFailure        the window is to move  → PreCompact → SessionStart
    the model has an answer → Stop | SubagentStop

`fire` is the one way: the hooks run as an idempotent effect of the process. A finished one is in the journal, so a
replay takes its outcome and runs nothing; one that was cut off by a crash runs again. Known keys are masked in what
hooks are given. Imported once an agent has hooks, or a journal has rows of them (`Turn.has_hooks`).
"""

from __future__ import annotations

import asyncio
import logging
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.agents.declaration.hooks import AgentHooks, HookOutcome
from lyra.agents.session.events import HookNotice
from lyra.agents.turn.approval import caller_sink
from lyra.core.effect import Effect
from lyra.core.message import Message
from lyra.core.secrets.visible import without_invisible
from lyra.core.tool import ToolCall, ToolResult
from lyra.errors import LyraError
from lyra.kernel.process.replay import upcoming

if TYPE_CHECKING:
    from lyra.agents.session.replies import Sink
    from lyra.agents.session.shared import AgentRuntime
    from lyra.agents.turn.turn import Turn


REFUSALS_MAX: Final = 3  # of the end of one turn: hooks cannot keep an agent going for ever
_TEXT_CHARS_MAX: Final = 100_000  # of one field of what a hook is given
_CONTEXT_CHARS_MAX: Final = 20_000
_REASON_CHARS_MAX: Final = 2_000
_MESSAGES_MAX: Final = 20
_KEY_IN_ARGUMENTS: Final = "a hook put a key of a model provider into the arguments, and keys are given to no tool"
_log: Final = logging.getLogger("lyra.agents")


class HookUse:
    """The hooks of one moment as the argument of their effect; the journal knows them by the moment and the call."""

    __slots__ = ("data", "event", "hooks", "runtime")

    def __init__(self, runtime: AgentRuntime, hooks: AgentHooks | None, event: str, data: dict[str, Any]) -> None:
        self.runtime = runtime
        self.hooks = hooks
        self.event = event
        self.data = data

    def to_data(self) -> list[Any]:
        return [self.event, self.data.get("call_id", "")]


async def fire(turn: Turn, event: str, fields: dict[str, Any]) -> HookOutcome | None:
    """Return the outcome of the hooks for a moment; None where there are none."""
    process, session = turn.process, turn.session
    entry = upcoming(process)
    if entry is not None and (entry.kind != "do" or entry.name != f"hook:{event}"):
        return None  # the journal says that no hook ran here
    if entry is None and process.replay and not process.stepping and process.keys in process.replay:
        return None  # the same: the program continued after the parallel calls, of which this is one
    if session.subagent_type:
        fields = {"agent_type": session.subagent_type, **fields}
    status = session.hooks.status_for(event, fields) if session.hooks is not None else None
    if status is None and entry is None:
        return None
    replayed = entry is not None and entry.done
    sink = turn.sink or caller_sink(turn.runtime, process)
    if status and sink is not None and not replayed:
        sink.put(HookNotice(turn.runtime.clean(status), "status"))
    bounded = {name: _shorten_texts(value) for name, value in fields.items()}
    data = turn.runtime.clean_data({"event": event, "session_id": _session_id(turn), **bounded})
    use = HookUse(turn.runtime, session.hooks, event, data)
    outcome = outcome_of(await turn.ctx.do(_effect(event), use))
    if not replayed:
        _tell(sink, outcome)
    if outcome.context and outcome.tainted:
        session.taint(f"hook for {event}")
    if outcome.ends_turn and not turn.ended_by:
        turn.ended_by = outcome.reason or f"a hook for {event} said so"
    return outcome


def outcome_of(value: Any) -> HookOutcome:
    """Return the outcome that a journal has of a hook."""
    return msgspec.convert(value, HookOutcome)


def _session_id(turn: Turn) -> str:
    """Return the pid of the agent at the top: a sub-agent works in its session."""
    process, sessions = turn.process, turn.runtime.sessions
    top = process
    while process.parent is not None:
        process = process.parent
        if process.pid in sessions:
            top = process
    return top.known_as


async def _perform(use: HookUse) -> dict[str, Any]:
    if use.hooks is None:  # the agent had hooks when this began, and has none now
        return {}
    # In its own task: a kernel that closes waits until a program that a hook has started is gone.
    task = use.runtime.kernel.tasks.start(_run(use.hooks, use), name=f"hook for {use.event}")
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        task.cancel()
        raise
    return msgspec.structs.asdict(safe_outcome(use.runtime, task.result()))


async def _run(hooks: AgentHooks, use: HookUse) -> HookOutcome:
    try:
        return await hooks.run(use.event, use.data)
    except Exception as error:  # noqa: BLE001 - hooks that cannot say what they decide have allowed nothing
        message = error.message if isinstance(error, LyraError) else f"{type(error).__name__}: {error}"
        return HookOutcome(decision="deny", reason=f"the hooks for {use.event} failed: {message}")


@cache
def _effect(event: str) -> Effect:
    """Return the effect of the hooks for a moment. It is performed again after a crash in the middle: only hooks that
    came to their end have decided something."""
    return Effect(_perform, name=f"hook:{event}", idempotent=True)


def safe_outcome(runtime: AgentRuntime, outcome: HookOutcome) -> HookOutcome:
    """Return an outcome fit to be journaled and shown: bounded, known keys masked, without invisible characters."""
    if outcome.arguments is not None and runtime.keys.prepared.holds(outcome.arguments):
        return HookOutcome(decision="deny", reason=_KEY_IN_ARGUMENTS, warnings=_texts(runtime, outcome.warnings))
    return msgspec.structs.replace(
        outcome,
        reason=_text(runtime, outcome.reason, _REASON_CHARS_MAX),
        context=_text(runtime, outcome.context, _CONTEXT_CHARS_MAX),
        messages=_texts(runtime, outcome.messages),
        warnings=_texts(runtime, outcome.warnings),
    )


def _texts(runtime: AgentRuntime, texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_text(runtime, text, _REASON_CHARS_MAX) for text in texts[:_MESSAGES_MAX])


def _text(runtime: AgentRuntime, text: str, chars_max: int) -> str:
    shown = without_invisible(runtime.clean(text.strip()))
    return shown if len(shown) <= chars_max else f"{shown[:chars_max]} … {len(shown) - chars_max} characters more"


def _shorten_texts(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _TEXT_CHARS_MAX:
        return f"{value[:_TEXT_CHARS_MAX]} … {len(value) - _TEXT_CHARS_MAX} characters more"
    return value


def _tell(sink: Sink | None, outcome: HookOutcome) -> None:
    """Show the user what hooks have to say; a failed hook is a warning in the log where no stream is read."""
    if sink is None:
        for text in outcome.warnings:
            _log.warning("%s", text)
        return
    for text in outcome.messages:
        sink.put(HookNotice(text))
    for text in outcome.warnings:
        sink.put(HookNotice(text, "warning"))


async def before_message(turn: Turn, message: Message) -> tuple[Message, str]:
    """Return the message with what hooks add to it, and why it is refused; "" where it is not."""
    outcome = await fire(turn, turn.hook_event("UserPromptSubmit", "SubagentStart"), {"prompt": message.text})
    if outcome is None:
        return message, ""
    if outcome.decision == "deny" or outcome.ends_turn:
        return message, outcome.reason or "it gave no reason"
    return message_with(message, outcome), ""


def message_with(message: Message, outcome: HookOutcome) -> Message:
    """Return a message with what hooks add to it."""
    if not outcome.context:
        return message
    if isinstance(message.content, str):
        return Message("user", f"{message.content}\n\n{_render_added(outcome)}")
    return Message("user", (*message.content, {"type": "text", "text": f"\n\n{_render_added(outcome)}"}))


def _render_added(outcome: HookOutcome) -> str:
    return f"[added by a hook]\n{outcome.context}"


async def before_tool(turn: Turn, call: ToolCall) -> tuple[ToolCall, HookOutcome | None]:
    """Return the call as hooks leave it, and what they decided."""
    outcome = await fire(turn, "PreToolUse", {"tool": call.name, "arguments": call.arguments, "call_id": call.id})
    if outcome is None or outcome.arguments is None:
        return call, outcome
    try:
        return ToolCall(call.id, call.name, outcome.arguments), outcome
    except LyraError as error:
        return call, HookOutcome(decision="deny", reason=f"the arguments that a hook gave cannot be used: {error}")


async def after_tool(turn: Turn, call: ToolCall, result: ToolResult, before: HookOutcome | None) -> ToolResult:
    """Return the result as the model is told it: with what hooks add, or with the reason in its place."""
    fields: dict[str, Any] = {"tool": call.name, "arguments": call.arguments, "call_id": call.id}
    if result.is_error:
        fields |= {"error": str(result.output), "error_code": result.error_code}
    else:
        fields["output"] = result.output if isinstance(result.output, str) else _parts_as_text(result.output)
    outcome = await fire(turn, "PostToolUseFailure" if result.is_error else "PostToolUse", fields)
    return result_with(result, before, outcome)


def result_with(result: ToolResult, before: HookOutcome | None, after: HookOutcome | None) -> ToolResult:
    """Return a result with what hooks add to it, or with the reason in its place."""
    if after is not None and after.decision == "deny":
        text = f"the result of {result.name} is withheld: {after.reason or 'a hook denies it'}"
        return ToolResult(result.id, result.name, text, True, "permission_denied")
    notes = [_render_added(outcome) for outcome in (before, after) if outcome is not None and outcome.context]
    return _with_notes(result, notes) if notes else result


def _parts_as_text(output: Any) -> str:
    """Return a result with images as a hook reads it: its texts."""
    parts = output if isinstance(output, list) else ()
    return "\n".join(str(part.get("text", f"[{part['type']}]")) for part in parts)


def _with_notes(result: ToolResult, notes: list[str]) -> ToolResult:
    text = "\n\n".join(notes)
    if isinstance(result.output, list):
        output: Any = [*result.output, {"type": "text", "text": text}]
    else:
        output = f"{result.output}\n\n{text}" if result.output else text
    return msgspec.structs.replace(result, output=output)


async def check_cut(turn: Turn, trigger: str) -> str | None:
    """Return why the conversation may not be shortened now; None where it may."""
    outcome = await fire(turn, "PreCompact", {"trigger": trigger, "messages": len(turn.session.messages)})
    if outcome is None or outcome.decision != "deny":
        return None
    return outcome.reason or "a hook denies it"


async def context_after_cut(turn: Turn) -> str:
    """Return what hooks add for the model after the conversation was shortened."""
    outcome = await fire(turn, "SessionStart", {"source": "compact", "model": str(turn.agent.model)})
    return "" if outcome is None or not outcome.context else _render_added(outcome)


async def check_stop(turn: Turn, text: str) -> str | None:
    """Return why the turn may not end with this answer; None where it may."""
    refusals = turn.refusals
    event = turn.hook_event("Stop", "SubagentStop")
    outcome = await fire(turn, event, {"text": text, "refusals": refusals})
    if outcome is None or outcome.decision != "deny" or outcome.ends_turn:
        return None
    if refusals >= REFUSALS_MAX:
        sink = turn.sink or caller_sink(turn.runtime, turn.process)
        _tell(sink, HookOutcome(warnings=(f"the turn ends: hooks for {event} have refused it {refusals} times",)))
        return None
    return going_on(outcome)


def going_on(outcome: HookOutcome) -> str:
    """Return the message with which the model continues after an answer."""
    return f"Do not stop yet. {outcome.reason}".rstrip()
