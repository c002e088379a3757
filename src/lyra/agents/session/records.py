"""The data of the Events about agents: one record for each model call, tool call and turn.

`CALL_FIELDS` are the fields that every record of a model call has, in order. Each record is a span: `parent_span` is
the turn it belongs to; a turn's is the tool call that asked for it, where another agent did. A record of a call or a
turn whose tokens a provider did not count has `estimated` besides, and one of a call with cached tokens has their
counts. Records hold no text of messages, and so no key.
"""

from __future__ import annotations

from contextvars import ContextVar
from hashlib import blake2b
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import fields

from lyra.core.event import ModelCalled
from lyra.core.secrets.redact import redact_data
from lyra.core.trace_context import TraceSpan, enclosing_span, make_span
from lyra.errors import LyraError
from lyra.models.stream import Completion

if TYPE_CHECKING:
    from lyra.agents.session.model_call import AgentExecution, ModelCall
    from lyra.agents.session.session import AgentSession
    from lyra.agents.session.shared import AgentRuntime
    from lyra.core.message import Message
    from lyra.core.tool import ToolCall, ToolResult
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.process.process import Process


CALL_FIELDS: Final = tuple(field.name for field in fields(ModelCalled) if field.required)
_CACHED_FIELDS: Final = ("cache_read_tokens", "cache_write_tokens", "total_input_tokens")


def call_record(
    kernel: Kernel, session: AgentSession, call: ModelCall, completion: Completion | None, error: BaseException | None
) -> dict[str, Any]:
    """Return the record of a model call that is over, as `ModelCalled.to_data` gives it: each call makes one, and the
    Struct between would take longer than the rest."""
    usage = completion.usage if completion is not None and not call.lost.packed else call.all_tokens(completion)
    tokens_in = usage.total_input
    micro_usd = call.all_micro_usd
    if micro_usd is None and isinstance(error, LyraError) and not tokens_in and not usage.output_tokens:
        micro_usd = 0  # a request that failed before any answer is not charged, whatever the price
    if not session.turn_span:
        begin_turn(kernel, session)
    record: dict[str, Any] = {
        "trace_id": session.trace_id,
        "span_id": call.span_id or new_span(kernel),
        "agent": session.agent.name,
        "model": call.model,
        "input_tokens": tokens_in,
        "output_tokens": usage.output_tokens,
        "cost_usd": None if micro_usd is None else micro_usd / 1_000_000,
        "latency_ms": int((kernel.clock.monotonic() - call.began_s) * 1000),  # rounded down, as `_ms` says
        "status": "ok" if error is None else _status(error),
        "retries": call.attempts - 1,
        "parent_span": session.turn_span,
    }
    if usage.estimated:
        record["estimated"] = True
    if usage.cache_read_tokens or usage.cache_write_tokens:
        cached = (usage.cache_read_tokens, usage.cache_write_tokens, tokens_in)
        record.update({name: count for name, count in zip(_CACHED_FIELDS, cached, strict=True) if count})
    if call.guess.packed:
        if tokens := call.guess["input_tokens"]:
            record["guessed_tokens"] = tokens
        record["guessed_usd"] = call.guess.micro_usd / 1_000_000
    if session.sampled is not None:
        record["sampled"] = session.sampled
    return record


def session_record(session: AgentSession, *, root: bool) -> dict[str, Any]:
    """Return a session that begins or ends; `span_id` is "" where it has no span of its own."""
    own, outer = session.session_span or TraceSpan(session.trace_id, "", session.sampled), session.outer_span
    return {
        "trace_id": own.trace_id,
        "span_id": own.span_id,
        "agent": session.agent.name,
        "root": root,
        "parent_span": (outer.span_id or None) if outer is not None else None,
        **({} if own.sampled is None else {"sampled": own.sampled}),
    }


def _read_sampled(session: AgentSession) -> dict[str, bool]:
    """Return what a caller outside decided about the trace, where one did."""
    return {} if session.sampled is None else {"sampled": session.sampled}


def _status(error: BaseException) -> str:
    return str(error.fields.get("kind") or error.code) if isinstance(error, LyraError) else "cancelled"


def tool_record(
    kernel: Kernel, session: AgentSession, call: ToolCall, *, span_id: str, began_s: float, error: str
) -> dict[str, Any]:
    """One call of a tool; `error` is why it failed, "" where it did not."""
    turn = turn_span(kernel, session)
    return {
        "trace_id": turn.trace_id,
        "span_id": span_id,
        "agent": session.agent.name,
        "tool": call.name,
        "latency_ms": _ms(kernel.clock.monotonic() - began_s),
        "status": "error" if error else "ok",
        "parent_span": turn.span_id,
        "call_id": call.id,
        **({"error": error} if error else {}),
        **_read_sampled(session),
    }


def turn_record(kernel: Kernel, session: AgentSession, execution: AgentExecution) -> dict[str, Any]:
    turn = turn_span(kernel, session)
    usage = execution.usage
    ended_at = execution.ended_at if execution.ended_at is not None else execution.started_at
    return {
        "trace_id": turn.trace_id,
        "span_id": turn.span_id,
        "agent": session.agent.name,
        "input_tokens": usage["input_tokens"],
        "output_tokens": usage["output_tokens"],
        "cost_usd": execution.cost_usd,
        "latency_ms": _ms(ended_at - execution.started_at),
        "status": "ok" if execution.is_success else execution.status,
        "model_calls": usage["calls"],
        "tool_calls": usage["tool_calls"],
        "parent_span": session.parent_span,
        **({"estimated": True} if usage["estimated_calls"] else {}),
        **_read_sampled(session),
    }


def _ms(seconds: float) -> int:
    return int(
        seconds * 1000
    )  # rounded down: rounded up, a call would seem to begin before the call in front of it has ended


# ---------------------------------------------------------------- spans
# A session holds turns, a turn its model and tool calls; a helper's turn belongs to the tool call that asked it.


class Held:
    """`with Held(variable, value)`: the variable has the value inside.

    A program that is closed ends in the context of the code that closes it, where the variable is left as it is.
    """

    __slots__ = ("_token", "_value", "_variable")

    def __init__(self, variable: ContextVar[Any], value: Any) -> None:
        self._variable = variable
        self._value = value

    def __enter__(self) -> None:
        self._token = self._variable.set(self._value)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._variable.reset(self._token)
        except ValueError:  # it ends in another context than it was set in
            return


def new_span(kernel: Kernel) -> str:
    return kernel.entropy.hex(64)


def _new_trace(kernel: Kernel) -> str:
    return kernel.entropy.hex(128)


def is_root(process: Process) -> bool:
    """Return whether no other process asked for this one; its own guard does not count."""
    parent = process.parent if process.known_as == process.pid or process.parent is None else process.parent.parent
    return parent is None


_SESSION_KINDS: Final = frozenset({"agent.began", "agent.ended"})


def begin_session(kernel: Kernel, session: AgentSession, process: Process) -> None:
    """Put a session under the span that is open around the code that spawned it. The session of a root process gets a
    span of its own; in a durable store its trace has the same id after a restart."""
    outer = session.outer_span = enclosing_span()
    if outer is not None:
        session.trace_id, session.parent_span, session.sampled = outer.trace_id, outer.span_id or None, outer.sampled
    if _SESSION_KINDS.isdisjoint(kernel.core.agents_heard) or not is_root(process):
        return
    if not session.trace_id:
        own = kernel.journal is not None and f"{kernel.core.store_id}:{process.line}"
        session.trace_id = blake2b(own.encode(), digest_size=16).hexdigest() if own else _new_trace(kernel)
    session.parent_span = new_span(kernel)
    session.session_span = TraceSpan(session.trace_id, session.parent_span, session.sampled)


def begin_turn(kernel: Kernel, session: AgentSession) -> None:
    """Give the turn that is under way its ids, if it has none yet."""
    if not session.trace_id:
        session.trace_id = _new_trace(kernel)
    if not session.turn_span:
        session.turn_span = new_span(kernel) if kernel.core.journal is None else _lasting_turn(kernel, session)


def _lasting_turn(kernel: Kernel, session: AgentSession) -> str:
    """Return the id of a turn, the same after a restart: the spans below it that were exported before a kill have their
    parent when the turn has ended."""
    execution = session.execution
    place = "" if execution is None else execution.place
    return blake2b(f"{kernel.core.store_id}:{session.pid}:{place}".encode(), digest_size=8).hexdigest()


def turn_span(kernel: Kernel, session: AgentSession) -> TraceSpan:
    """Return the span of the turn that is under way."""
    if not session.turn_span:
        begin_turn(kernel, session)
    return make_span((session.trace_id, session.turn_span, session.sampled))


# ---------------------------------------------------------------- call details
# What a call's record leaves out, for an exporter that asks: the settings of the request, ids, and the content.

_PART: Final = "call_details"
_TEXT_CHARS_MAX: Final = 20_000  # of one text
_MESSAGES_MAX: Final = 100  # the last ones of a conversation


def tell_model_call(runtime: AgentRuntime, span_id: str, call: ModelCall, completion: Completion | None) -> None:
    """Give the details of a model call to the exporter of this kernel, if there is one."""
    if _PART not in runtime.kernel.parts:
        return
    exporter = runtime.kernel.parts[_PART]
    request = call.request
    details: dict[str, Any] = {
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
    }
    if completion is not None:
        details["response_model"] = completion.model or None
        details["response_id"] = completion.id or None
        details["finish_reason"] = completion.stop_reason
    if exporter.wants_content:
        content: dict[str, Any] = {
            "input": [_message(message) for message in request.messages[-_MESSAGES_MAX:]],
            "system": [_text(request.system)] if request.system else [],
        }
        if completion is not None:
            content["output"] = [{**_message(completion.message), "finish_reason": completion.stop_reason}]
        details |= _clean(runtime, content)
    exporter.add(span_id, details)


def tell_tool_call(runtime: AgentRuntime, span_id: str, call: ToolCall, result: ToolResult | None) -> None:
    """Give arguments and result of a tool call to the exporter of this kernel, if it wants content."""
    exporter = runtime.kernel.parts.get(_PART)
    if exporter is None or not exporter.wants_content:
        return
    content: dict[str, Any] = {"arguments": call.arguments}
    if result is not None:
        content["result"] = str(result.output)[:_TEXT_CHARS_MAX]
    exporter.add(span_id, _clean(runtime, content))


def _clean(runtime: AgentRuntime, content: dict[str, Any]) -> dict[str, Any]:
    clean: dict[str, Any] = redact_data(runtime.clean_data(content), ())
    return clean


def _message(message: Message) -> dict[str, Any]:
    """Return a message as the GenAI conventions write it: a role and parts. Images are named, not shown."""
    parts: list[dict[str, Any]] = [_text(message.text)] if message.text else []
    if not isinstance(message.content, str):
        parts += [{"type": str(part["type"])} for part in message.content if part["type"] != "text"]
    for call in message.tool_calls:
        parts.append({"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments})
    for result in message.tool_results:
        response = str(result.output)[:_TEXT_CHARS_MAX]
        parts.append({"type": "tool_call_response", "id": result.id, "response": response})
    return {"role": message.role, "parts": parts}


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "content": text[:_TEXT_CHARS_MAX]}
