"""What the agents of the kernel did: their spans, and what they cost by agent, model, key and day.

A listener of the kernel; for the time before it began, a reader of the journal (`load_past`). A server reads it in the
background when it has started (`read_ahead`), without haste and with pauses for requests, so that the first page that
shows it does not have to wait; a request that needs it takes the pauses away. The number of spans and of sums is
bounded. `series` has the same calls as figures over time.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from itertools import takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from lyra.core.codec import decode
from lyra.core.event import Event
from lyra.core.limits import SERVER_COST_ROWS_MAX, SERVER_SPANS_KEPT
from lyra.errors import LyraError
from lyra.kernel.base.tasks import BlockingCalls
from lyra.observe.history.calls import key_of_agent, read_stored_records
from lyra.observe.history.time_series import TimeSeries
from lyra.observe.spans import KINDS, Span, session_span, span_of
from lyra.observe.timeline.step import SupervisedStarts
from lyra.server.owners import GATEWAY_KEYS, owner_if_known

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.store.protocol import Store


_SPANS_AT_ONCE: Final = 500  # counted before other tasks have their turn
_DAY_S: Final = 86_400
_OTHER: Final = "(other)"  # represents what no sum of its own had room
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
                self.series.add_restart(self._clamp_to_now(time), owner_if_known(self._kernel, pid))
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
        """Return the spans of the time before the server began, with their user; none before `load_past`."""
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
            self._clamp_to_now(span.time),
            owner,
            latency_ms=span.latency_ms,
            is_error=span.status != "ok",
            micro_usd=called.micro_usd,
            input_tokens=called.input_tokens,
            output_tokens=called.output_tokens,
            cached_tokens=called.cache_read_tokens,
        )

    def _clamp_to_now(self, time: float) -> float:
        """Return where figures over time have what was stamped: what has happened is not later than now."""
        return time if self._kernel is None else min(time, self._kernel.core.now())

    def _sum_of(self, span: Span, owner: str, key: str) -> CostSum:
        day = _day(int(span.time // _DAY_S))
        sum_key = (span.agent, span.name, day, owner, self._find_paying_key(span, key))
        if sum_key not in self._sums and len(self._sums) >= SERVER_COST_ROWS_MAX:
            sum_key = (_OTHER, _OTHER, day, "", "")
        return self._sums.setdefault(sum_key, CostSum(*sum_key))

    def _find_paying_key(self, span: Span, key: str) -> str:
        """Return the gateway key that pays: the one of the record, or that of the process above the agent."""
        key = key or key_of_agent(span.agent)
        if key or self._kernel is None:
            return key
        process = self._kernel.processes.get(span.pid)
        keys = self._kernel.parts.get(GATEWAY_KEYS)
        return "" if process is None or process.parent is None or keys is None else keys.name_of(process.parent.pid)

    def spans(self) -> Iterator[tuple[str, Span]]:
        """Return the user and the span, the oldest first; those of an earlier time once `load_past` has ended, the last
        of them once `load_recent` has."""
        return iter((*(self._past if self._is_past_loaded else self._recent), *self._spans))

    def sums(self) -> list[CostSum]:
        return list(self._sums.values())


@lru_cache(maxsize=1_000)
def _day(number: int) -> str:
    """Return the date of a day, by its number since 1970."""
    return datetime.fromtimestamp(number * _DAY_S, UTC).date().isoformat()


# ---------------------------------------------------------------- past records
# What a journal tells of the time before a server began: the spans of calls, and restarts.

_ROWS_BETWEEN_PAUSES: Final = 500
_PAUSE_S: Final = 0.005
_RECENT_ROWS: Final = 2_000  # the end of the journal, which is read at once
# The rows that spans are made of.
_PAST_KINDS: Final = frozenset(
    {
        *("process.created", "process.terminated", "pcb.submitted", "pcb.owned"),
        *("effect.started", "effect.retried", "effect.finished"),
    }
)


def session_of(event: Event) -> Span | None:
    """Return the span of a session that ended; None for one that has no span of its own."""
    return session_span(event) if event.data.get("span_id") else None


class PastRecords(NamedTuple):
    """What a journal tells of the time before: spans in the order of their end, and restarts with the child's pid."""

    spans: list[Span]
    restarts: list[tuple[float, str]]


class ReadingPace:
    """How fast a thread reads: with pauses until the past is asked for, and not on when the server stops. Used by the
    thread and by the loop."""

    def __init__(self) -> None:
        self._is_hurried = threading.Event()
        self._is_stopped = threading.Event()

    def hurry(self) -> None:
        self._is_hurried.set()

    def stop(self) -> None:
        self._is_stopped.set()
        self._is_hurried.set()  # ends a pause

    def goes_on(self) -> bool:
        """Pause where there is time for it; whether to read on."""
        self._is_hurried.wait(_PAUSE_S)
        return not self._is_stopped.is_set()


def read_past(store: Store, until_seq: int, pace: ReadingPace) -> PastRecords:
    """Return what ended or was started again up to a row. The clock may have been set back since: times do not tell."""
    restarts: list[tuple[float, str]] = []
    try:
        records = list(read_stored_records(_past_events(store, until_seq, restarts, pace), store.identity().id))
    finally:
        store.close()
    return PastRecords(_spans(records), restarts)


def read_recent(store: Store, until_seq: int) -> list[Span]:
    """Return the spans of processes that began in the last rows up to one, themselves and all above them."""
    try:
        first = max(store.first_seq() - 1, until_seq - _RECENT_ROWS)
        until = takewhile(lambda row: row.seq <= until_seq, store.read(after=first))
        rows = [row for row in until if row.kind in _PAST_KINDS]
        events = [Event(row.seq, row.time, row.pid, row.kind, decode(row.data)) for row in rows]
        records = list(read_stored_records(events, store.identity().id))
    finally:
        store.close()
    parents = {event.pid: event.data.get("parent") or "" for event in events if event.kind == "process.created"}
    return [span for span in _spans(records) if _is_whole(span.pid, parents)]


def _spans(records: list[Event]) -> list[Span]:
    """Return the spans of records, in the order of their end."""
    ordered = sorted(records, key=lambda event: event.seq)
    spans = [session_of(event) if event.kind == _SESSION_ENDED else span_of(event) for event in ordered]
    return [span for span in spans if span is not None]


def _is_whole(pid: str, parents: Mapping[str, str]) -> bool:
    """Return whether a process and all above it are known; those of a damaged journal may stand in a circle."""
    above: set[str] = set()
    while pid and pid in parents and pid not in above:
        above.add(pid)
        pid = parents[pid]
    return pid == ""


def _past_events(store: Store, until_seq: int, restarts: list[tuple[float, str]], pace: ReadingPace) -> Iterator[Event]:
    """Yield the rows that spans are made of; `restarts` are noted on the way. None after a stop: the server has no use
    for them."""
    starts = SupervisedStarts()
    for number, row in enumerate(store.read()):
        if number % _ROWS_BETWEEN_PAUSES == 0 and not pace.goes_on():
            return
        if row.seq > until_seq:
            return
        if row.kind not in _PAST_KINDS:
            continue
        data = decode(row.data)
        if row.kind == "process.created" and starts.add(row.pid, data, data.get("blob") or data.get("args")) > 1:
            restarts.append((row.time, row.pid))
        yield Event(row.seq, row.time, row.pid, row.kind, data)
