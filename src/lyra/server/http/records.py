"""What the agents of the kernel did: their spans, and what they cost by agent, model, key and day.

A listener of the kernel; for the time before it began, a reader of the journal (`load_past`). The number of spans and
of sums is bounded. `series` has the same calls as figures over time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lyra.core.codec import decode
from lyra.core.event import Event
from lyra.core.limits import SERVER_COST_ROWS_MAX, SERVER_SPANS_KEPT
from lyra.kernel.base.tasks import BlockingCalls
from lyra.observe.history.calls import key_of_agent
from lyra.observe.history.time_series import TimeSeries
from lyra.observe.spans import KINDS, Span, session_span, span_of
from lyra.observe.stored_records import stored_records
from lyra.observe.supervised_starts import SupervisedStarts
from lyra.server.owners import GATEWAY_KEYS, owner_if_known

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.store.protocol import Store

__all__ = ["CostSum", "Records"]

_OTHER: Final = "(other)"  # stands for what no sum of its own had room
_RESTARTED: Final = "child.restarting"
_SESSION_ENDED: Final = "agent.ended"
# The rows that spans are made of.
_PAST_KINDS: Final = frozenset(
    {
        *("process.created", "process.terminated", "pcb.submitted", "pcb.owned"),
        *("effect.started", "effect.retried", "effect.finished"),
    }
)


class CostSum(msgspec.Struct):
    """What calls of models came to; a call without a known price counts in `unpriced_calls`. `key` is the name of the
    gateway key that paid, "" where none did."""

    agent: str
    model: str
    day: str
    owner: str
    key: str = ""
    calls: int = 0
    errors: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_micro_usd: int = 0
    unpriced_calls: int = 0


class Records:
    """See the module."""

    __slots__ = ("_is_past_loaded", "_kernel", "_loading", "_past", "_since", "_spans", "_sums", "_threads", "series")

    def __init__(self) -> None:
        self._kernel: Kernel | None = None
        self._since = 0.0  # when it began to listen
        self._is_past_loaded = False
        self._loading = asyncio.Lock()
        self._threads = BlockingCalls("lyra-costs")
        self._past: list[tuple[str, Span]] = []  # with the user, from the journal
        self._spans: deque[tuple[str, Span]] = deque(maxlen=SERVER_SPANS_KEPT)  # with the user
        self._sums: dict[tuple[str, str, str, str, str], CostSum] = {}
        self.series = TimeSeries()

    def attach(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._since = kernel.clock.now()
        kernel.parts["server.records"] = self
        kernel.on_event(self._hear, kinds=(*KINDS, _SESSION_ENDED, _RESTARTED))

    async def close(self) -> None:
        """Called with the kernel."""
        self._threads.close()

    async def load_past(self) -> None:
        """Add what the journal tells of the time before the server began; once."""
        async with self._loading:
            store = None if self._kernel is None or self._is_past_loaded else self._kernel.open_reader()
            if store is None or self._kernel is None:
                return
            past = await self._threads.call(_read_past, store, self._since)
            self._is_past_loaded = True
            for time, pid in past.restarts:
                self.series.add_restart(time, owner_if_known(self._kernel, pid))
            for span in past.spans:
                owner = owner_if_known(self._kernel, span.pid)
                self._past.append((owner, span))
                self._count(owner, span)
            del self._past[:-SERVER_SPANS_KEPT]

    async def load_past_within(self, limit_s: float) -> bool:
        """Begin to load the past and wait at most so long; gives whether it is there. The reading goes on."""
        if self._is_past_loaded or self._kernel is None:
            return True
        work = self._kernel.tasks.start(self.load_past(), name="lyra-costs-past")
        await asyncio.wait((work,), timeout=limit_s)
        return work.done()

    def past_spans(self) -> Iterator[tuple[str, Span]]:
        """The spans of the time before the server began, with their user; none before `load_past`."""
        return iter(self._past)

    def _hear(self, event: Event) -> None:
        assert self._kernel is not None
        owner = owner_if_known(self._kernel, event.pid) if event.pid else ""
        if event.kind == _RESTARTED:
            self.series.add_restart(event.time, owner)
            return
        span = _session(event) if event.kind == _SESSION_ENDED else span_of(event)
        if span is not None:
            self._spans.append((owner, span))
            self._count(owner, span)

    def _count(self, owner: str, span: Span) -> None:
        """Count the call of a model; other spans cost nothing of their own."""
        if span.kind != "model":
            return
        data = span.data
        total = self._sum_of(span, owner)
        cost_usd = data.get("cost_usd")
        cost_micro_usd = round((cost_usd or 0.0) * 1_000_000)
        tokens = {name: _whole(data, source) for name, source in _TOKENS.items()}
        total.calls += 1
        total.errors += span.status != "ok"
        total.unpriced_calls += cost_usd is None
        total.cost_micro_usd += cost_micro_usd
        for name, count in tokens.items():
            setattr(total, name, getattr(total, name) + count)
        self.series.add_call(
            span.time,
            owner,
            latency_ms=span.latency_ms,
            is_error=span.status != "ok",
            micro_usd=cost_micro_usd,
            **tokens,
        )

    def _sum_of(self, span: Span, owner: str) -> CostSum:
        day = datetime.fromtimestamp(span.time, UTC).date().isoformat()
        sum_key = (span.agent, span.name, day, owner, self._paid_by(span))
        if sum_key not in self._sums and len(self._sums) >= SERVER_COST_ROWS_MAX:
            sum_key = (_OTHER, _OTHER, day, "", "")
        return self._sums.setdefault(sum_key, CostSum(*sum_key))

    def _paid_by(self, span: Span) -> str:
        """The gateway key that pays: of its own calls, and of agents below its process."""
        key = str(span.data.get("key") or "") or key_of_agent(span.agent)
        if key or self._kernel is None:
            return key
        process = self._kernel.processes.get(span.pid)
        keys = self._kernel.parts.get(GATEWAY_KEYS)
        return "" if process is None or process.parent is None or keys is None else keys.name_of(process.parent.pid)

    def spans(self) -> Iterator[tuple[str, Span]]:
        """The user and the span, the oldest first; those of an earlier time once `load_past` was called."""
        return iter((*self._past, *self._spans))

    def sums(self) -> list[CostSum]:
        return list(self._sums.values())


_TOKENS: Final = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cached_tokens": "cache_read_tokens",
}


def _whole(data: Mapping[str, Any], name: str) -> int:
    return int(data.get(name) or 0)


def _session(event: Event) -> Span | None:
    """The span of a session that ended; None for one that has no span of its own."""
    return session_span(event) if event.data.get("span_id") else None


class PastRecords(NamedTuple):
    """What a journal tells of the time before: spans in the order of their end, and restarts with the child's pid."""

    spans: list[Span]
    restarts: list[tuple[float, str]]


def _read_past(store: Store, until: float) -> PastRecords:
    """What ended or was started again before a time."""
    restarts: list[tuple[float, str]] = []
    try:
        records = list(stored_records(_past_events(store, restarts), store.identity().id))
    finally:
        store.close()
    spans = [_session(event) if event.kind == _SESSION_ENDED else span_of(event) for event in records]
    ended = sorted((span for span in spans if span is not None and span.time < until), key=lambda span: span.time)
    return PastRecords(ended, [(time, pid) for time, pid in restarts if time < until])


def _past_events(store: Store, restarts: list[tuple[float, str]]) -> Iterator[Event]:
    """The rows that spans are made of; `restarts` are noted on the way."""
    starts = SupervisedStarts()
    for row in store.read():
        if row.kind not in _PAST_KINDS:
            continue
        data = decode(row.data)
        if row.kind == "process.created" and starts.add(row.pid, data, data.get("blob") or data.get("args")) > 1:
            restarts.append((row.time, row.pid))
        yield Event(row.seq, row.time, row.pid, row.kind, data)
