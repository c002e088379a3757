"""Spans: which call belongs to which. A turn holds its model and tool calls; a helper's turn belongs to the tool call.

The span that is open around the running code travels in a context variable, which a process copies from whoever
spawns it. Ids are made only while somebody listens.
"""

from __future__ import annotations

from contextlib import suppress
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from lyra.agents.session.session import Session
    from lyra.kernel.kernel import Kernel

__all__ = ["Held", "Span", "begin_turn", "current_span", "new_span", "turn_of"]


class Span(NamedTuple):
    """`span_id` is "" outside of any span of a trace that has begun."""

    trace_id: str
    span_id: str


class Held:
    """`with Held(variable, value)`: the variable has the value inside. A program that is closed leaves it alone: its
    end comes in the context of whoever closes it."""

    __slots__ = ("_token", "_value", "_variable")

    def __init__(self, variable: ContextVar[Any], value: Any) -> None:
        self._variable = variable
        self._value = value

    def __enter__(self) -> None:
        self._token = self._variable.set(self._value)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(ValueError):  # another context than the one it was set in
            self._variable.reset(self._token)


current_span: ContextVar[Span | None] = ContextVar("lyra_span", default=None)


def new_span(kernel: Kernel) -> str:
    return f"{kernel.entropy.bits(64):016x}"


def begin_turn(kernel: Kernel, session: Session) -> None:
    """The turn that is under way has ids from its first record on."""
    if not session.trace_id:
        session.trace_id = f"{kernel.entropy.bits(128):032x}"
    if not session.turn_span:
        session.turn_span = new_span(kernel)


def turn_of(kernel: Kernel, session: Session) -> Span:
    """The span of the turn that is under way."""
    begin_turn(kernel, session)
    return Span(session.trace_id, session.turn_span)
