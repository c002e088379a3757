"""The rows of the kernel's journal for readers outside: from the store, or where the kernel has none, the last ones.

A store is read over its own connection, in a thread, so that the kernel's loop and writer continue. A kernel without
a store has no journal: its events are numbered here as they come, and a bounded number of them is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from lyra.core.codec import decode
from lyra.core.event import Event
from lyra.core.limits import SERVER_HISTORY_EVENTS_KEPT
from lyra.kernel.base.tasks import BlockingCalls

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.store.protocol import Store


class HistoryPage(NamedTuple):
    """Rows in order. `last_seq` is the last that was looked at; `more` says that others follow."""

    events: list[Event]
    last_seq: int
    more: bool


class History:
    """See the module."""

    __slots__ = ("_kept", "_kernel", "_last_seq", "_stop", "_threads")

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._kept: deque[Event] = deque(maxlen=SERVER_HISTORY_EVENTS_KEPT)
        self._last_seq = 0
        self._stop: Callable[[], None] | None = None
        self._threads = BlockingCalls("lyra-history")

    def attach(self) -> None:
        """Begin to keep events where there is no store; the kernel closes this part with itself."""
        self._kernel.parts["server.history"] = self
        if self._kernel.journal is None:
            self._stop = self._kernel.on_event(self._hear)

    def _hear(self, event: Event) -> None:
        self._last_seq += 1
        self._kept.append(Event(self._last_seq, event.time, event.pid, event.kind, event.data))

    async def page(self, after: int, limit: int, *, pid: str | None, kind: str | None) -> HistoryPage:
        """Return the rows after a number, at most `limit` of them; of one process, or of one kind."""
        store = self._kernel.open_reader()
        if store is None:
            wanted = (
                event
                for event in self._kept
                if event.seq > after and pid in (None, event.pid) and kind in (None, event.kind)
            )
            return _cut(wanted, after, limit)
        return await self._threads.call(_read_page, store, after, limit, pid, kind)

    async def close(self) -> None:
        self._threads.close()
        if self._stop is not None:
            self._stop()
            self._stop = None


def _read_page(store: Store, after: int, limit: int, pid: str | None, kind: str | None) -> HistoryPage:
    try:
        return _cut(_rows(store, after, pid, kind), after, limit)
    finally:
        store.close()


def _rows(store: Store, after: int, pid: str | None, kind: str | None) -> Iterator[Event]:
    for row in store.read(after=after, pid=pid, kind=kind):
        yield Event(row.seq, row.time, row.pid, row.kind, decode(row.data))


def _cut(events: Iterable[Event], after: int, limit: int) -> HistoryPage:
    page = list(islice(events, limit + 1))
    more = len(page) > limit
    del page[limit:]
    return HistoryPage(page, page[-1].seq if page else after, more)
