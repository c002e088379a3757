"""Spans: Events of agents read as nested pieces of work.

    turn assistant ok 812 ms
      model anthropic/claude-sonnet-4-5 ok 640 ms
      tool search ok 90 ms
        turn researcher ok 85 ms

`span_of` reads one Event, `span_tree` puts many in their places, `Spans` is a listener that keeps the last ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from lyra.core.checking.check import check_integer
from lyra.core.event import Event, ModelCalled

KINDS: Final[dict[str, str]] = {
    "agent.answered": "turn",
    "model.called": "model",
    "tool.called": "tool",
    "vesper.executed": "node",
}
_NAMED_BY: Final[dict[str, str]] = {
    "session": "agent",
    "turn": "agent",
    "model": "model",
    "tool": "tool",
    "node": "node",
}


class SpanCost(msgspec.Struct, frozen=True):
    """The tokens and the money of a model call or a turn; `cost_usd` is None where a price is not known."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None


class Span(msgspec.Struct, frozen=True):
    """One piece of work; `time` is when it ended, `data` the whole record."""

    trace_id: str
    span_id: str
    parent_span: str | None
    kind: str
    name: str
    agent: str
    status: str
    latency_ms: int
    time: float
    pid: str
    data: dict[str, Any]

    @property
    def started(self) -> float:
        return self.time - self.latency_ms / 1000

    @property
    def cost(self) -> SpanCost | None:
        """Return what a model call or a turn took; None for other spans."""
        return msgspec.convert(self.data, SpanCost) if self.kind in ("model", "turn") else None

    @property
    def model_call(self) -> ModelCalled:
        """Return the record of a span of kind `model`."""
        return ModelCalled.from_data(self.data)


def span_of(event: Event) -> Span | None:
    """Return the span that an Event reports; None for an Event of another kind."""
    kind = KINDS.get(event.kind)
    return None if kind is None else _span(event, kind)


def session_span(event: Event) -> Span:
    """Return the span of a whole session, from the Event of its end."""
    return _span(event, "session")


def _span(event: Event, kind: str) -> Span:
    data = dict(event.data)
    return Span(
        trace_id=data["trace_id"],
        span_id=data["span_id"],
        parent_span=data["parent_span"],
        kind=kind,
        name=data[_NAMED_BY[kind]],
        agent=data["agent"],
        status=data["status"],
        latency_ms=data["latency_ms"],
        time=event.time,
        pid=event.pid,
        data=data,
    )


class SpanNode:
    """A span and the spans inside it, in the order they began."""

    __slots__ = ("children", "span")

    def __init__(self, span: Span) -> None:
        self.span = span
        self.children: list[SpanNode] = []

    def walk(self, depth: int = 0) -> Iterator[tuple[int, Span]]:
        yield depth, self.span
        for child in self.children:
            yield from child.walk(depth + 1)

    def __str__(self) -> str:
        return "\n".join(
            f"{'  ' * depth}{span.kind} {span.name} {span.status} {span.latency_ms} ms" for depth, span in self.walk()
        )


def span_tree(spans: Iterable[Span]) -> list[SpanNode]:
    """Return the spans that have no parent among them, each with those inside it."""
    nodes = {span.span_id: SpanNode(span) for span in spans}
    roots: list[SpanNode] = []
    for node in nodes.values():
        parent = nodes.get(node.span.parent_span or "")
        (roots if parent is None else parent.children).append(node)
    for node in nodes.values():
        node.children.sort(key=_began)
    return sorted(roots, key=_began)


def _began(node: SpanNode) -> float:
    return node.span.started


class Spans:
    """A listener that keeps the last `most` spans in memory."""

    __slots__ = ("_kept",)

    def __init__(self, most: int = 10_000) -> None:
        self._kept: deque[Span] = deque(maxlen=check_integer(most, "most", least=1))

    def __call__(self, event: Event) -> None:
        span = span_of(event)
        if span is not None:
            self._kept.append(span)

    def __iter__(self) -> Iterator[Span]:
        return iter(tuple(self._kept))

    def __len__(self) -> int:
        return len(self._kept)

    def tree(self, trace_id: str | None = None) -> list[SpanNode]:
        """All of them, or those of one trace."""
        return span_tree(span for span in self._kept if trace_id is None or span.trace_id == trace_id)
