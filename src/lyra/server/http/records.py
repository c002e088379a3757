"""What the agents of the kernel did: their spans since the server began, and what they cost by agent, model and day.

A listener of the kernel, and for costs before its time a reader of the journal. The number of spans and of sums is
bounded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core.codec import decode
from lyra.core.event import Event
from lyra.core.limits import SERVER_COST_ROWS_MAX, SERVER_SPANS_KEPT
from lyra.kernel.base.tasks import BlockingCalls
from lyra.observe.history.calls import CallHistory, CallRecord
from lyra.observe.spans import KINDS, Span, span_of
from lyra.server.owners import owner_if_known

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.store.protocol import Store

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

    __slots__ = ("_is_past_loaded", "_kernel", "_since", "_spans", "_sums", "_threads")

    def __init__(self) -> None:
        self._kernel: Kernel | None = None
        self._since = 0.0  # when it began to listen
        self._is_past_loaded = False
        self._threads = BlockingCalls("lyra-costs")
        self._spans: deque[tuple[str, Span]] = deque(maxlen=SERVER_SPANS_KEPT)  # with the user
        self._sums: dict[tuple[str, str, str, str], CostSum] = {}

    def attach(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._since = kernel.clock.now()
        kernel.parts["server.records"] = self
        kernel.on_event(self._hear, kinds=tuple(KINDS))

    async def close(self) -> None:
        """Called with the kernel."""
        self._threads.close()

    async def load_past(self) -> None:
        """Add what the journal tells of the time before the server began; once."""
        store = None if self._kernel is None or self._is_past_loaded else self._kernel.open_reader()
        self._is_past_loaded = True
        if store is None:
            return
        for record in await self._threads.call(_model_calls, store, self._since):
            cost_usd = record.micro_usd / 1_000_000
            tokens = {"input_tokens": record.input_tokens, "output_tokens": record.output_tokens, "cost_usd": cost_usd}
            assert self._kernel is not None
            self._count(
                owner_if_known(self._kernel, record.pid),
                agent=record.agent,
                model=record.model,
                time=record.started_at,
                status=record.status,
                data=tokens,
            )

    def _hear(self, event: Event) -> None:
        span = span_of(event)
        assert self._kernel is not None
        if span is None:
            return
        owner = owner_if_known(self._kernel, event.pid) if event.pid else ""
        self._spans.append((owner, span))
        if span.kind == "model":
            self._count(owner, agent=span.agent, model=span.name, time=span.time, status=span.status, data=span.data)

    def _count(self, owner: str, *, agent: str, model: str, time: float, status: str, data: Mapping[str, Any]) -> None:
        day = datetime.fromtimestamp(time, UTC).date().isoformat()
        key = (agent, model, day, owner)
        if key not in self._sums and len(self._sums) >= SERVER_COST_ROWS_MAX:
            key = (_OTHER, _OTHER, day, "")
        total = self._sums.get(key)
        if total is None:
            total = self._sums[key] = CostSum(*key)
        cost_usd = data.get("cost_usd")
        total.calls += 1
        total.errors += status != "ok"
        total.input_tokens += int(data.get("input_tokens") or 0)
        total.output_tokens += int(data.get("output_tokens") or 0)
        total.unpriced_calls += cost_usd is None
        total.cost_micro_usd += round((cost_usd or 0.0) * 1_000_000)

    def spans(self) -> Iterator[tuple[str, Span]]:
        """The user and the span, the oldest first."""
        return iter(tuple(self._spans))

    def sums(self) -> list[CostSum]:
        return list(self._sums.values())


def _model_calls(store: Store, until: float) -> list[CallRecord]:
    """The calls of models in a journal that ended before a time."""
    history = CallHistory()
    try:
        for kind in ("effect.started", "effect.finished"):
            for row in store.read(kind=kind):
                history.add(Event(row.seq, row.time, row.pid, row.kind, decode(row.data)))
    finally:
        store.close()
    return [
        record
        for record in history.records.values()
        if record.kind == "model" and record.ended_at is not None and record.ended_at < until
    ]
