"""Records of what agents do: one for each model call, tool call and turn, as Events for whoever listens.

`CALL_FIELDS` are the fields of a model call's record in the order of the specification. Each record is a span:
`parent_span` is the turn it belongs to; a turn's is the tool call that asked for it, where another agent did. Nothing
that was said is in a record, and no key can be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lyra.agents.session.spans import begin_turn, new_span, turn_of
from lyra.errors import LyraError
from lyra.models.stream import Completion

if TYPE_CHECKING:
    from lyra.agents.session.execution import AgentExecution
    from lyra.agents.session.session import Session
    from lyra.agents.turn.model_call import Ask
    from lyra.kernel.kernel import Kernel

__all__ = ["CALL_FIELDS", "call_record", "tool_record", "turn_record"]

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
    kernel: Kernel, session: Session, ask: Ask, completion: Completion | None, error: BaseException | None
) -> dict[str, Any]:
    """One call with all its tries: what they took together, from the first to the end of the last."""
    usage = completion.usage if completion is not None and not ask.lost.items else ask.all_tokens(completion)
    micro_usd = ask.all_micro_usd
    if not session.turn_span:
        begin_turn(kernel, session)
    guess = ask.guess
    guessed = {"guessed_tokens": guess["input_tokens"], "guessed_usd": int(guess.usd) / 1_000_000}
    return {
        **(guessed if guess.items else {}),
        "trace_id": session.trace_id,
        "span_id": new_span(kernel),
        "agent": session.agent.name,
        "model": ask.model,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost_usd": None if micro_usd is None else micro_usd / 1_000_000,
        "latency_ms": _ms(kernel.clock.monotonic() - ask.began_s),
        "status": "ok" if error is None else _status(error),
        "retries": ask.attempts - 1,
        "parent_span": session.turn_span,
    }


def _status(error: BaseException) -> str:
    return str(error.fields.get("kind") or error.code) if isinstance(error, LyraError) else "cancelled"


def tool_record(
    kernel: Kernel, session: Session, tool: str, *, span_id: str, began_s: float, failed: bool
) -> dict[str, Any]:
    turn = turn_of(kernel, session)
    return {
        "trace_id": turn.trace_id,
        "span_id": span_id,
        "agent": session.agent.name,
        "tool": tool,
        "latency_ms": _ms(kernel.clock.monotonic() - began_s),
        "status": "error" if failed else "ok",
        "parent_span": turn.span_id,
    }


def turn_record(kernel: Kernel, session: Session, execution: AgentExecution) -> dict[str, Any]:
    turn = turn_of(kernel, session)
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
    }


def _ms(seconds: float) -> int:
    return int(seconds * 1000)  # whole ones: rounded up, a call would seem to begin before the one in front of it ended
