"""The record of one model call: the fields that every surface shows, in the order of the specification."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lyra.errors import LyraError
from lyra.models.stream import Completion

if TYPE_CHECKING:
    from lyra.agents.ask import Ask
    from lyra.agents.session import Session
    from lyra.kernel.kernel import Kernel

__all__ = ["call_record"]


def call_record(
    kernel: Kernel, session: Session, ask: Ask, completion: Completion | None, error: LyraError | None
) -> dict[str, Any]:
    usage = completion.usage if completion is not None else None
    return {
        "trace_id": session.trace_id or _new_trace(kernel, session),
        "span_id": f"{kernel.entropy.bits(64):016x}",
        "agent": session.agent.name,
        "model": ask.model,
        "input_tokens": usage.input_tokens if usage is not None else 0,
        "output_tokens": usage.output_tokens if usage is not None else 0,
        "cost_usd": None if ask.micro_usd is None else ask.micro_usd / 1_000_000,
        "latency_ms": round((kernel.clock.monotonic() - ask.began_s) * 1000),
        "status": "ok" if error is None else str(error.fields.get("kind") or error.code),
        "retries": ask.attempts - 1,
    }


def _new_trace(kernel: Kernel, session: Session) -> str:
    session.trace_id = f"{kernel.entropy.bits(128):032x}"
    return session.trace_id
