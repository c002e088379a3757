"""What a journal tells of the time before a server began: the spans of calls, and restarts.

`read_past` reads all of it, in a thread, at a `ReadingPace`; `read_recent` reads the end alone, in the same short time
whatever the length of the journal. Reads a store and closes it; keeps nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

from lyra.core.codec import decode
from lyra.core.event import Event
from lyra.observe.spans import Span, session_span, span_of
from lyra.observe.stored_records import stored_records
from lyra.observe.timeline.step import SupervisedStarts

if TYPE_CHECKING:
    from lyra.store.protocol import Store


_ROWS_BETWEEN_PAUSES: Final = 500
_PAUSE_S: Final = 0.005
_RECENT_ROWS: Final = 2_000  # the end of the journal, which is read at once
_SESSION_ENDED: Final = "agent.ended"
# The rows that spans are made of.
_PAST_KINDS: Final = frozenset(
    {
        *("process.created", "process.terminated", "pcb.submitted", "pcb.owned"),
        *("effect.started", "effect.retried", "effect.finished"),
    }
)


def session_of(event: Event) -> Span | None:
    """The span of a session that ended; None for one that has no span of its own."""
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
    """What ended or was started again up to a row. The clock may have been set back since: times do not tell."""
    restarts: list[tuple[float, str]] = []
    try:
        records = list(stored_records(_past_events(store, until_seq, restarts, pace), store.identity().id))
    finally:
        store.close()
    return PastRecords(_spans(records), restarts)


def read_recent(store: Store, until_seq: int) -> list[Span]:
    """The spans of processes that began in the last rows up to one, themselves and all above them."""
    try:
        first = max(store.first_seq() - 1, until_seq - _RECENT_ROWS)
        until = takewhile(lambda row: row.seq <= until_seq, store.read(after=first))
        rows = [row for row in until if row.kind in _PAST_KINDS]
        events = [Event(row.seq, row.time, row.pid, row.kind, decode(row.data)) for row in rows]
        records = list(stored_records(events, store.identity().id))
    finally:
        store.close()
    parents = {event.pid: event.data.get("parent") or "" for event in events if event.kind == "process.created"}
    return [span for span in _spans(records) if _is_whole(span.pid, parents)]


def _spans(records: list[Event]) -> list[Span]:
    """The spans of records, in the order of their end."""
    ordered = sorted(records, key=lambda event: event.seq)
    spans = [session_of(event) if event.kind == _SESSION_ENDED else span_of(event) for event in ordered]
    return [span for span in spans if span is not None]


def _is_whole(pid: str, parents: Mapping[str, str]) -> bool:
    """Whether a process and all above it are known; those of a damaged journal may stand in a circle."""
    above: set[str] = set()
    while pid and pid in parents and pid not in above:
        above.add(pid)
        pid = parents[pid]
    return pid == ""


def _past_events(store: Store, until_seq: int, restarts: list[tuple[float, str]], pace: ReadingPace) -> Iterator[Event]:
    """The rows that spans are made of; `restarts` are noted on the way. None after a stop: the server has no use for
    them."""
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
