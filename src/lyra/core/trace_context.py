"""The trace that running code belongs to, and how it crosses a border: `traceparent` of the W3C, in and out.

The span that is open around the running code is in a context variable, which a process copies from the code that
spawns it. `continued` opens the span that a caller outside names, `outgoing` adds the headers of a call to the
outside. Both are quiet without a bridge: only an exporter of traces (in `lyra.observe`) sets one, so that nothing is
told to other systems unless traces are exported. With a bridge the span of the application around Lyra counts as open,
too, and instrumented libraries inside a tool see Lyra's span as theirs. This module makes no ids and exports nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, MutableMapping
from contextvars import ContextVar, Token
from functools import partial
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol

_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


class TraceSpan(NamedTuple):
    """`span_id` is "" where a trace has begun and no span of it is open. `sampled` is what a caller outside decided,
    None where the decision is Lyra's own."""

    trace_id: str
    span_id: str
    sampled: bool | None = None


make_span: Final[Callable[[tuple[str, str, bool | None]], TraceSpan]] = partial(tuple.__new__, TraceSpan)  # quicker


class TraceBridge(Protocol):
    """What an exporter does at the borders."""

    def current(self) -> TraceSpan | None:
        """Return the span of the application that is open around the running code."""

    def attach(self, span: TraceSpan | None) -> Any:
        """Make a span the current one for instrumented libraries; gives a token for `detach`. None, or a trace without
        a span: from now on none is."""

    def detach(self, token: Any) -> None: ...

    def inject(self, headers: MutableMapping[str, str]) -> None:
        """Add the headers that name the current span."""


current_span: ContextVar[TraceSpan | None] = ContextVar("lyra_span", default=None)
_bridge: TraceBridge | None = None


def set_bridge(bridge: TraceBridge | None) -> None:
    """Use a bridge from now on; None takes it away."""
    global _bridge
    _bridge = bridge


def enclosing_span() -> TraceSpan | None:
    """Return the span that is open around the running code: of Lyra or, with a bridge, of the application."""
    return (_bridge.current() if _bridge is not None else None) or current_span.get()


def enter_span(span: TraceSpan | None) -> None:
    """Open a span for all that this process does from now on: for programs that end their spans by a call."""
    current_span.set(span)
    if _bridge is not None:
        _bridge.attach(span)


class OpenSpan:
    """`with OpenSpan(span)`: the span is open around the code inside.

    A program that is closed ends in the context of the code that closes it, where everything is left as it is.
    """

    __slots__ = ("_attached", "_bridge", "_span", "_token")

    def __init__(self, span: TraceSpan | None) -> None:
        self._span = span
        self._bridge = _bridge
        self._attached: Any = None

    def __enter__(self) -> None:
        self._token: Token[TraceSpan | None] = current_span.set(self._span)
        if self._bridge is not None and self._span is not None and self._span.span_id:
            self._attached = self._bridge.attach(self._span)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            current_span.reset(self._token)
        except ValueError:  # it ends in another context than it was opened in
            return
        if self._bridge is not None and self._attached is not None:
            self._bridge.detach(self._attached)


def continued(traceparent: str | None) -> OpenSpan:
    """Open a block whose work belongs to the span of a caller outside; a header that is missing or malformed is
    ignored."""
    return OpenSpan(parse_traceparent(traceparent) or current_span.get())


def outgoing(headers: MutableMapping[str, str]) -> None:
    """Add the headers of the open span to those of a request; nothing without a bridge."""
    if _bridge is not None:
        _bridge.inject(headers)


def parse_traceparent(text: str | None) -> TraceSpan | None:
    """Return the span that a `traceparent` header names; None where it is missing or malformed."""
    match = _TRACEPARENT.fullmatch(text.strip()) if text and len(text) <= 200 else None
    if match is None:
        return None
    version, trace_id, span_id, flags, rest = match.groups()
    if version == "ff" or (version == "00" and rest) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    return TraceSpan(trace_id, span_id, bool(int(flags, 16) & 1))


def format_traceparent(span: TraceSpan) -> str:
    return f"00-{span.trace_id}-{span.span_id}-{'00' if span.sampled is False else '01'}"
