"""The data of the Events about agents: one record for each model call, tool call and turn.

`CALL_FIELDS` are the fields of a model call's record, in order. Each record is a span: `parent_span` is the turn it
belongs to; a turn's is the tool call that asked for it, where another agent did. A record of a call or a turn whose
tokens a provider did not count has `estimated` besides, and one of a call with cached tokens has their counts. Records
hold no text of messages, and so no key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lyra.agents.session.spans import TraceSpan, begin_turn, new_span, turn_span
from lyra.errors import LyraError
from lyra.models.stream import Completion
from lyra.models.usage import TokenUsage

if TYPE_CHECKING:
    from lyra.agents.session.execution import AgentExecution
    from lyra.agents.session.model_call import ModelCall
    from lyra.agents.session.session import AgentSession
    from lyra.core.tool import ToolCall
    from lyra.kernel.kernel import Kernel


CALL_FIELDS: Final = (
    "trace_id",
    "span_id",
    "agent",
    "model",
    "input_tokens",
    "output_tokens",
    "cost_usd",
    "latency_ms",
    "status",
    "retries",
    "parent_span",
)


def call_record(
    kernel: Kernel, session: AgentSession, call: ModelCall, completion: Completion | None, error: BaseException | None
) -> dict[str, Any]:
    """One model call with all its tries together, from the start of the first to the end of the last."""
    usage = completion.usage if completion is not None and not call.lost.items else call.all_tokens(completion)
    micro_usd = call.all_micro_usd
    if micro_usd is None and isinstance(error, LyraError) and not usage.total_input and not usage.output_tokens:
        micro_usd = 0  # a request that failed before any answer is not charged, whatever the price
    if not session.turn_span:
        begin_turn(kernel, session)
    guess = call.guess
    guessed = {"guessed_tokens": guess["input_tokens"], "guessed_usd": int(guess.usd) / 1_000_000}
    return {
        "trace_id": session.trace_id,
        "span_id": call.span_id or new_span(kernel),
        "agent": session.agent.name,
        "model": call.model,
        "input_tokens": usage.total_input,
        "output_tokens": usage.output_tokens,
        "cost_usd": None if micro_usd is None else micro_usd / 1_000_000,
        "latency_ms": _ms(kernel.clock.monotonic() - call.began_s),
        "status": "ok" if error is None else _status(error),
        "retries": call.attempts - 1,
        "parent_span": session.turn_span,
        **({"estimated": True} if usage.estimated else {}),
        **cached_tokens(usage),
        **(guessed if guess.items else {}),
        **_sampled(session),
    }


def session_record(session: AgentSession, *, root: bool) -> dict[str, Any]:
    """A session that begins or ends; `span_id` is "" where it has no span of its own."""
    own, outer = session.session_span or TraceSpan(session.trace_id, "", session.sampled), session.outer_span
    return {
        "trace_id": own.trace_id,
        "span_id": own.span_id,
        "agent": session.agent.name,
        "root": root,
        "parent_span": (outer.span_id or None) if outer is not None else None,
        **({} if own.sampled is None else {"sampled": own.sampled}),
    }


def _sampled(session: AgentSession) -> dict[str, bool]:
    """What a caller outside decided about the trace, where one did."""
    return {} if session.sampled is None else {"sampled": session.sampled}


def cached_tokens(usage: TokenUsage) -> dict[str, int]:
    """Return the tokens of a provider's cache, and all that went in: in some records of earlier versions `input_tokens`
    leaves out those of the cache."""
    if not usage.cache_read_tokens and not usage.cache_write_tokens:
        return {}
    return {
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "total_input_tokens": usage.total_input,
    }


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
        **_sampled(session),
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
        **_sampled(session),
    }


def _ms(seconds: float) -> int:
    return int(
        seconds * 1000
    )  # rounded down: rounded up, a call would seem to begin before the call in front of it has ended
