"""The record of a call through the gateway: the same fields as an agent's call of a model, and the key."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from lyra.agents.session.records import new_span
from lyra.core.event import ModelCalled
from lyra.core.trace_context import enclosing_span
from lyra.errors import LyraError

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.server.gateway.call import GatewayCall


_BAD_RESPONSE: Final = "bad_response"  # the kind of error of what came with the status of a success and is no answer


def call_record(kernel: Kernel, asked: GatewayCall, took_s: float, error: BaseException | None) -> ModelCalled:
    """Return the record of a call that is over."""
    tokens = asked.meter.tokens(asked.quoted["input_tokens"], is_whole=error is None)
    is_billed = isinstance(error, LyraError) and bool(error.fields.get("billed"))
    has_cost = error is None or is_billed or asked.meter.has_begun or isinstance(error, asyncio.CancelledError)
    outer = enclosing_span()
    settings = asked.key.settings
    micro_usd = asked.micro_usd if has_cost else 0
    read, written = (tokens.cache_read_tokens, tokens.cache_write_tokens) if has_cost else (0, 0)
    return ModelCalled(
        trace_id=outer.trace_id if outer is not None else f"{kernel.entropy.bits(128):032x}",
        span_id=new_span(kernel),
        agent=settings.payer,
        model=asked.target.name,
        input_tokens=tokens.total_input if has_cost else 0,
        output_tokens=tokens.output_tokens if has_cost else 0,
        cost_usd=None if micro_usd is None else micro_usd / 1_000_000,
        latency_ms=int(took_s * 1000),
        status=_status(error) if error is not None else "ok" if asked.meter.is_answer else _BAD_RESPONSE,
        retries=asked.tries - 1,
        parent_span=(outer.span_id or None) if outer is not None else None,
        key="" if settings.is_token else settings.name,
        team=settings.team,
        estimated=tokens.estimated and has_cost,
        cache_read_tokens=read,
        cache_write_tokens=written,
        total_input_tokens=tokens.total_input if read or written else 0,
    )


def _status(error: BaseException) -> str:
    return str(error.fields.get("kind") or error.code) if isinstance(error, LyraError) else "cancelled"
