"""Trace spans: a session holds turns, a turn its model and tool calls; a helper's turn belongs to the tool call that
asked it.

Which span is open around the running code is in `core.trace_context`. Ids are made only while events have a listener.
Only the session of a root process has a span of its own, and only where a listener hears of ends of agents.
"""

from __future__ import annotations

from contextlib import suppress
from contextvars import ContextVar
from hashlib import blake2b
from types import TracebackType
from typing import TYPE_CHECKING, Any

from lyra.core.trace_context import TraceSpan, current_span, enclosing_span

if TYPE_CHECKING:
    from lyra.agents.session.session import AgentSession
    from lyra.kernel.kernel import Kernel

__all__ = ["Held", "TraceSpan", "begin_session", "begin_turn", "current_span", "new_span", "turn_span"]


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


def new_span(kernel: Kernel) -> str:
    return f"{kernel.entropy.bits(64):016x}"


def _new_trace(kernel: Kernel) -> str:
    return f"{kernel.entropy.bits(128):032x}"


def begin_session(kernel: Kernel, session: AgentSession, line: str, *, root: bool) -> None:
    """Put a session under the span that is open around the code that spawned it. The session of a root process gets a
    span of its own; in a durable store its trace has the same id after a restart."""
    outer = session.outer_span = enclosing_span()
    if outer is not None:
        session.trace_id, session.parent_span, session.sampled = outer.trace_id, outer.span_id or None, outer.sampled
    heard = kernel.listeners.hears("agent.began") or kernel.listeners.hears("agent.ended")
    if not root or not kernel.agents_heard or not heard:
        return
    if not session.trace_id:
        own = kernel.journal is not None and f"{kernel.core.store_id}:{line}"
        session.trace_id = blake2b(own.encode(), digest_size=16).hexdigest() if own else _new_trace(kernel)
    session.parent_span = new_span(kernel)
    session.session_span = TraceSpan(session.trace_id, session.parent_span, session.sampled)


def begin_turn(kernel: Kernel, session: AgentSession) -> None:
    """Give the turn that is under way its ids, if it has none yet."""
    if not session.trace_id:
        session.trace_id = _new_trace(kernel)
    if not session.turn_span:
        session.turn_span = new_span(kernel) if kernel.journal is None else _lasting_turn(kernel, session)


def _lasting_turn(kernel: Kernel, session: AgentSession) -> str:
    """The id of a turn, the same after a restart: the spans below it that were exported before a kill have their parent
    when the turn has ended."""
    execution = session.execution
    place = "" if execution is None else execution.place
    return blake2b(f"{kernel.core.store_id}:{session.pid}:{place}".encode(), digest_size=8).hexdigest()


def turn_span(kernel: Kernel, session: AgentSession) -> TraceSpan:
    """The span of the turn that is under way."""
    begin_turn(kernel, session)
    return TraceSpan(session.trace_id, session.turn_span, session.sampled)
