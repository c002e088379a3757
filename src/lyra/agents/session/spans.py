"""Trace spans: a turn holds its model and tool calls; a helper's turn belongs to the tool call that asked it.

The span that is open around the running code is in a context variable, which a process copies from the code that
spawns it. Ids are made only while events have a listener.
"""

from __future__ import annotations

from contextlib import suppress
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from lyra.agents.session.session import AgentSession
    from lyra.kernel.kernel import Kernel

__all__ = ["Held", "TraceSpan", "begin_turn", "current_span", "new_span", "turn_span"]


class TraceSpan(NamedTuple):
    """`span_id` is "" where a trace has begun and no span of it is open."""

    trace_id: str
    span_id: str


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
        with suppress(ValueError):  # it ends in another context than it was set in
            self._variable.reset(self._token)


current_span: ContextVar[TraceSpan | None] = ContextVar("lyra_span", default=None)


def new_span(kernel: Kernel) -> str:
    return f"{kernel.entropy.bits(64):016x}"


def begin_turn(kernel: Kernel, session: AgentSession) -> None:
    """Give the turn that is under way its ids, if it has none yet."""
    if not session.trace_id:
        session.trace_id = f"{kernel.entropy.bits(128):032x}"
    if not session.turn_span:
        session.turn_span = new_span(kernel)


def turn_span(kernel: Kernel, session: AgentSession) -> TraceSpan:
    """The span of the turn that is under way."""
    begin_turn(kernel, session)
    return TraceSpan(session.trace_id, session.turn_span)
