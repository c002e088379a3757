"""What the agents of the kernel did since the server began: their spans, and what they cost by agent, model and day.

A listener of the kernel: nothing here is durable, and the number of spans and of sums is bounded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from lyra.core.limits import SERVER_COST_ROWS_MAX, SERVER_SPANS_KEPT
from lyra.observe.spans import KINDS, Span, span_of
from lyra.server.owners import owner_if_known

if TYPE_CHECKING:
    from lyra.core.event import Event
    from lyra.kernel.kernel import Kernel

__all__ = ["CostSum", "Records"]

_OTHER: Final = "(other)"  # stands for what no sum of its own had room


class CostSum(msgspec.Struct):
    """What calls of models came to; a call without a known price counts in `unpriced_calls`."""

    agent: str
    model: str
    day: str
    owner: str
    calls: int = 0
    errors: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_micro_usd: int = 0
    unpriced_calls: int = 0


class Records:
    """See the module."""

    __slots__ = ("_kernel", "_spans", "_stop", "_sums")

    def __init__(self) -> None:
        self._kernel: Kernel | None = None
        self._stop: Callable[[], None] | None = None
        self._spans: deque[tuple[str, Span]] = deque(maxlen=SERVER_SPANS_KEPT)  # with the user
        self._sums: dict[tuple[str, str, str, str], CostSum] = {}

    def attach(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._stop = kernel.on_event(self._hear, kinds=tuple(KINDS))

    def _hear(self, event: Event) -> None:
        span = span_of(event)
        assert self._kernel is not None
        if span is None:
            return
        owner = owner_if_known(self._kernel, event.pid) if event.pid else ""
        self._spans.append((owner, span))
        if span.kind == "model":
            self._count(owner, span)

    def _count(self, owner: str, span: Span) -> None:
        day = datetime.fromtimestamp(span.time, UTC).date().isoformat()
        key = (span.agent, span.name, day, owner)
        if key not in self._sums and len(self._sums) >= SERVER_COST_ROWS_MAX:
            key = (_OTHER, _OTHER, day, "")
        total = self._sums.get(key)
        if total is None:
            total = self._sums[key] = CostSum(key[0], key[1], key[2], key[3])
        cost_usd = span.data.get("cost_usd")
        total.calls += 1
        total.errors += span.status != "ok"
        total.input_tokens += int(span.data.get("input_tokens") or 0)
        total.output_tokens += int(span.data.get("output_tokens") or 0)
        total.unpriced_calls += cost_usd is None
        total.cost_micro_usd += round((cost_usd or 0.0) * 1_000_000)

    def spans(self) -> Iterator[tuple[str, Span]]:
        """The user and the span, the oldest first."""
        return iter(tuple(self._spans))

    def sums(self) -> list[CostSum]:
        return list(self._sums.values())
