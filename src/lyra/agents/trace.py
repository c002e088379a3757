"""Spans: which call belongs to which. A turn holds its model and tool calls; a helper's turn belongs to the tool call.

The span that is open around the running code travels in a context variable, which a process copies from whoever
spawns it. Ids are made only while somebody listens.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from lyra.agents.session import Session
    from lyra.kernel.kernel import Kernel

__all__ = ["Span", "current_span", "new_span", "turn_of"]


class Span(NamedTuple):
    trace_id: str
    span_id: str


current_span: ContextVar[Span | None] = ContextVar("lyra_span", default=None)


def new_span(kernel: Kernel) -> str:
    return f"{kernel.entropy.bits(64):016x}"


def turn_of(kernel: Kernel, session: Session) -> Span:
    """The span of the turn that is under way, begun with the first look at it."""
    if not session.trace_id:
        session.trace_id = f"{kernel.entropy.bits(128):032x}"
    if not session.turn_span:
        session.turn_span = new_span(kernel)
    return Span(session.trace_id, session.turn_span)
