"""What the agents of the kernel did: their spans, and what they cost by agent, model, key and day.

A listener of the kernel; for the time before it began, a reader of the journal (`load_past`). A server reads it in the
background when it has started (`read_ahead`), without haste and with pauses for requests, so that the first page that
shows it does not have to wait; a request that needs it takes the pauses away. The number of spans and of sums is
bounded. `series` has the same calls as figures over time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec

from lyra.core.event import Event
from lyra.core.limits import SERVER_COST_ROWS_MAX, SERVER_SPANS_KEPT
from lyra.errors import LyraError
from lyra.kernel.base.tasks import BlockingCalls
from lyra.observe.history.calls import key_of_agent
from lyra.observe.history.time_series import TimeSeries
from lyra.observe.spans import KINDS, Span, span_of
from lyra.server.http.past.past_records import ReadingPace, read_past, read_recent, session_of
from lyra.server.owners import GATEWAY_KEYS, owner_if_known

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel


_SPANS_AT_ONCE: Final = 500  # counted before other tasks have their turn
_DAY_S: Final = 86_400
_OTHER: Final = "(other)"  # stands for what no sum of its own had room
_RESTARTED: Final = "child.restarting"
_SESSION_ENDED: Final = "agent.ended"


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

    __slots__ = (
        *(
            "_is_past_loaded",
            "_kernel",
            "_loading",
            "_pace",
            "_past",
            "_recent",
            "_spans",
            "_sums",
            "_threads",
            "_until_seq",
        ),
        "series",
    )

    def __init__(self) -> None:
        self._kernel: Kernel | None = None
        self._until_seq = 0  # the last row of the journal when it began to listen
        self._is_past_loaded = False
        self._loading = asyncio.Lock()
        self._threads = BlockingCalls("lyra-costs")
        self._pace = ReadingPace()
        self._past: list[tuple[str, Span]] = []  # with the user, from the journal
        self._recent: list[tuple[str, Span]] = []  # the last of them, until all are read
        self._spans: deque[tuple[str, Span]] = deque(maxlen=SERVER_SPANS_KEPT)  # with the user
        self._sums: dict[tuple[str, str, str, str, str], CostSum] = {}
        self.series = TimeSeries()

    def attach(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._until_seq = 0 if kernel.journal is None else kernel.journal.durable_seq
        kernel.parts["server.records"] = self
        kernel.on_event(self._hear, kinds=(*KINDS, _SESSION_ENDED, _RESTARTED))

    async def close(self) -> None:
        """Called with the kernel. A reading that is under way ends soon."""
        self._pace.stop()
        self._threads.close()

    def read_ahead(self) -> None:
        """Begin to read the past in the background."""
        if self._kernel is not None:
            self._kernel.tasks.start(self._load_ahead(), name="lyra-costs-past")

    async def _load_ahead(self) -> None:
        with suppress(LyraError):  # a journal that cannot be read: the page that asks for it tells
            await self._load()

    async def load_past(self) -> None:
        """Add what the journal tells of the time before the server began; once."""
        self._pace.hurry()
        await self._load()

    async def _load(self) -> None:
        async with self._loading:
            store = None if self._kernel is None or self._is_past_loaded else self._kernel.open_reader()
            if store is None or self._kernel is None:
                self._is_past_loaded = True  # of a kernel without a store there is none
                return
            past = await self._threads.call(read_past, store, self._until_seq, self._pace)
            for time, pid in past.restarts:
                self.series.add_restart(self._shown_at(time), owner_if_known(self._kernel, pid))
            for number, span in enumerate(past.spans):
                owner = owner_if_known(self._kernel, span.pid)
                self._past.append((owner, span))
                self._count(owner, span)
                if number % _SPANS_AT_ONCE == 0:
                    await asyncio.sleep(0)
            del self._past[:-SERVER_SPANS_KEPT]
            self._is_past_loaded = True
            self._recent.clear()

    async def load_recent(self) -> None:
        """Read the last traces alone, which takes the same short time whatever the length of the journal: `spans` has
        them until the whole past is there. Costs are not counted from them."""
        store = None if self._kernel is None or self._is_past_loaded or self._recent else self._kernel.open_reader()
        if store is None or self._kernel is None:
            return
        spans = await self._threads.call(read_recent, store, self._until_seq)
        if not self._is_past_loaded:
            self._recent = [(owner_if_known(self._kernel, span.pid), span) for span in spans]

    async def load_past_within(self, limit_s: float) -> bool:
        """Begin to load the past, with pauses, and wait at most so long; gives whether it is there. The reading goes
        on."""
        if self._is_past_loaded or self._kernel is None:
            return True
        work = self._kernel.tasks.start(self._load_ahead(), name="lyra-costs-past")
        await asyncio.wait((work,), timeout=limit_s)
        return self._is_past_loaded

    @property
    def is_reading(self) -> bool:
        """Whether the past is being read."""
        return self._loading.locked()

    def past_spans(self) -> Iterator[tuple[str, Span]]:
        """The spans of the time before the server began, with their user; none before `load_past`."""
        return iter(self._past)

    def _hear(self, event: Event) -> None:
        assert self._kernel is not None
        owner = owner_if_known(self._kernel, event.pid) if event.pid else ""
        if event.kind == _RESTARTED:
            self.series.add_restart(event.time, owner)
            return
        span = session_of(event) if event.kind == _SESSION_ENDED else span_of(event)
        if span is not None:
            self._spans.append((owner, span))
            self._count(owner, span)

    def _count(self, owner: str, span: Span) -> None:
        """Count the call of a model; other spans cost nothing of their own."""
        if span.kind != "model":
            return
        called = span.model_call
        total = self._sum_of(span, owner, called.key)
        total.calls += 1
        total.errors += span.status != "ok"
        total.unpriced_calls += called.cost_usd is None
        total.cost_micro_usd += called.micro_usd
        total.input_tokens += called.input_tokens
        total.output_tokens += called.output_tokens
        total.cached_tokens += called.cache_read_tokens
        self.series.add_call(
            self._shown_at(span.time),
            owner,
            latency_ms=span.latency_ms,
            is_error=span.status != "ok",
            micro_usd=called.micro_usd,
            input_tokens=called.input_tokens,
            output_tokens=called.output_tokens,
            cached_tokens=called.cache_read_tokens,
        )

    def _shown_at(self, time: float) -> float:
        """Where figures over time have what was stamped: what has happened is not later than now."""
        return time if self._kernel is None else min(time, self._kernel.core.now())

    def _sum_of(self, span: Span, owner: str, key: str) -> CostSum:
        day = _day(int(span.time // _DAY_S))
        sum_key = (span.agent, span.name, day, owner, self._paid_by(span, key))
        if sum_key not in self._sums and len(self._sums) >= SERVER_COST_ROWS_MAX:
            sum_key = (_OTHER, _OTHER, day, "", "")
        return self._sums.setdefault(sum_key, CostSum(*sum_key))

    def _paid_by(self, span: Span, key: str) -> str:
        """Return the gateway key that pays: the one of the record, or that of the process above the agent."""
        key = key or key_of_agent(span.agent)
        if key or self._kernel is None:
            return key
        process = self._kernel.processes.get(span.pid)
        keys = self._kernel.parts.get(GATEWAY_KEYS)
        return "" if process is None or process.parent is None or keys is None else keys.name_of(process.parent.pid)

    def spans(self) -> Iterator[tuple[str, Span]]:
        """The user and the span, the oldest first; those of an earlier time once `load_past` has ended, the last of
        them once `load_recent` has."""
        return iter((*(self._past if self._is_past_loaded else self._recent), *self._spans))

    def sums(self) -> list[CostSum]:
        return list(self._sums.values())


@lru_cache(maxsize=1_000)
def _day(number: int) -> str:
    """The date of a day, by its number since 1970."""
    return datetime.fromtimestamp(number * _DAY_S, UTC).date().isoformat()
