"""What one call of a trace asked and got, and where its processes stood still: read for a person who looks at it.

A kernel with a store has both in its journal, which is read over a connection of its own, in a thread. A kernel without
a store has the conversation of a living agent, and the last events. Only rows of the span's own process are read; the
number of rows is bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core.codec import decode, to_plain
from lyra.core.event import Event
from lyra.errors import LyraError
from lyra.kernel.base.tasks import BlockingCalls
from lyra.observe.history.call_contents import CallContent, ContentHistory, ContentPart, Pause, PauseHistory
from lyra.observe.spans import Span

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.server.http.parts import HttpParts
    from lyra.server.http.past.history import History
    from lyra.store.protocol import Record, Store


_ROWS_MAX: Final = 50_000  # that one request reads of a process, or of the last events
_PAUSE_KINDS: Final = frozenset(
    {
        *("effect.retried", "interrupt.created", "interrupt.resolved", "interrupt.expired", "interrupt.cancelled"),
        *("pcb.interrupt_created", "pcb.interrupt_ended"),
    }
)


class TraceContents:
    """See the module. One for each server: `call.parts.shared(TraceContents)`."""

    def __init__(self, parts: HttpParts) -> None:
        self._kernel: Kernel = parts.kernel
        self._history: History = parts.history
        self._threads = BlockingCalls("lyra-contents")
        self._pauses = PauseHistory()
        self._seq = 0  # of the last row whose pause is known
        self._reading = asyncio.Lock()
        parts.kernel.parts["server.contents"] = self

    async def close(self) -> None:
        """Called with the kernel."""
        self._threads.close()

    async def pauses(self, spans: Iterable[Span]) -> list[Pause]:
        """Where the processes of these spans waited, in order."""
        async with self._reading:  # rows that were read before are not read again
            store = self._kernel.open_reader()
            if store is not None:
                self._seq = await self._threads.call(_add_pauses, store, self._pauses, self._seq)
            else:
                page = await self._history.page(self._seq, _ROWS_MAX, pid=None, kind=None)
                self._pauses.add_all(event for event in page.events if event.kind in _PAUSE_KINDS)
                self._seq = page.last_seq
        pids = {span.pid for span in spans}
        return [pause for pause in self._pauses.pauses if pause.pid in pids]

    async def of(self, span: Span) -> CallContent | None:
        """What a call of a model or a tool asked and got; None where that is not known."""
        if span.kind not in ("model", "tool"):
            return None
        call_id = str(span.data.get("call_id") or "")
        store = self._kernel.open_reader()
        if store is not None:
            history = await self._threads.call(_stored_contents, store, span.pid)
            return history.nearest(span.kind, span.name, span.time, call_id)
        return _in_conversation(self._kernel, span, call_id)


def _add_pauses(store: Store, history: PauseHistory, after: int) -> int:
    """Add the pauses that the rows after one tell; gives the last row."""
    last = after
    try:
        for row in store.read(after=after):
            last = row.seq
            if row.kind in _PAUSE_KINDS:
                history.add(_event(row))
    finally:
        store.close()
    return last


def _stored_contents(store: Store, pid: str) -> ContentHistory:
    def message_at(seq: int) -> Any:
        row = next(iter(store.read(after=seq - 1, upto=seq, kind="message.sent")), None)
        return None if row is None else decode(row.data).get("message")

    history = ContentHistory(message_at)
    try:
        for row in list(islice(store.read(pid=pid), _ROWS_MAX)):
            history.add(_event(row))
    finally:
        store.close()
    return history


def _event(row: Record) -> Event:
    return Event(row.seq, row.time, row.pid, row.kind, decode(row.data))


def _in_conversation(kernel: Kernel, span: Span, call_id: str) -> CallContent | None:
    """A call of a tool as its agent's conversation has it; the call of a model cannot be told from others there."""
    if not call_id:
        return None
    try:
        messages = kernel.agent(span.pid).messages
    except (LyraError, KeyError):
        return None
    content = CallContent("", span.kind, span.name, span.started, span.time, call_id)
    for message in messages:
        for asked in message.tool_calls:
            if asked.id == call_id:
                content.request = [ContentPart("arguments", _text(asked.arguments))]
        for result in message.tool_results:
            if result.id == call_id:
                content.answer = [ContentPart("result", _text(result.output))]
    return content if content.request or content.answer else None


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=to_plain), indent=2).decode()
