"""Who hears of what happened, and when: once it is durable, and once the act that made it is whole.

`publish` says at once what no row says; `tell` says what a row says, when that row is in the store (without a journal:
at once, too). Inside an act (`with listeners.act:`) nothing is said before the act has come to its end, so a listener
that answers, ends or forgets something finds the kernel between two acts and never in the middle of one. What listeners
cause is said after what they were told. Each gets data of its own: changing it changes nothing for anybody else.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lyra.core import codec
from lyra.core.check import one_of
from lyra.core.event import KINDS, Event
from lyra.errors import ConfigError

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel

__all__ = ["EventHandler", "Listeners", "Watchers"]

EventHandler = Callable[[Event], Any]
Watchers = Mapping[str, Callable[[str, dict[str, Any] | bytes], object]]  # by kind of Event


class _Act:
    """Nests; the outermost speaks."""

    __slots__ = ("_listeners",)

    def __init__(self, listeners: Listeners) -> None:
        self._listeners = listeners

    def __enter__(self) -> None:
        self._listeners.acts += 1

    def __exit__(self, *_: object) -> None:
        listeners = self._listeners
        listeners.acts -= 1
        if listeners.acts == 0 and listeners.unsaid:
            listeners.speak()


class Listeners:
    __slots__ = ("_kernel", "_listeners", "_speaking", "_untold", "act", "acts", "unsaid", "watchers")

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._listeners: dict[object, EventHandler] = {}  # by a token: one function may listen twice
        self.watchers: Watchers = {}
        self._untold: deque[tuple[int, Event]] = deque()  # with the row that must be durable first
        self._speaking = False
        self.unsaid: deque[Event] = deque()
        self.acts = 0
        self.act = _Act(self)

    # ------------------------------------------------------------------ who listens

    def add(self, listener: EventHandler) -> Callable[[], None]:
        if not callable(listener):
            raise ConfigError(
                f"a listener is a function of one Event, not {listener!r}", hint="kernel.on_event(print)", key="fn"
            )
        token = object()
        self._listeners[token] = listener
        self._changed()

        def stop() -> None:
            self._listeners.pop(token, None)
            self._changed()

        return stop

    def watch(self, watchers: Watchers) -> None:
        self.watchers = watchers
        self._changed()

    def clear(self) -> None:
        """Nobody listens any more."""
        self._listeners.clear()
        self._changed()

    def _changed(self) -> None:
        self._kernel.listening = bool(self._listeners or self.watchers)
        self._kernel.listeners_want_states = bool(self._listeners)

    # ------------------------------------------------------------------ what is said

    def publish(self, pid: str, kind: str, data: dict[str, Any]) -> None:
        """Something that is not in the journal (its seq is 0)."""
        if (heard := self.watchers.get(kind)) is not None:
            heard(pid, data)
        if self._listeners:
            self._say(Event(0, self._kernel.clock.now(), pid, kind, data))

    def tell(self, pid: str, kind: str, data: dict[str, Any]) -> None:
        """What the rows written so far say, in other words: not before they are durable."""
        journal = self._kernel.journal
        if journal is None:
            self.publish(pid, kind, data)
        elif not journal.frozen and (self._listeners or kind in self.watchers):
            self._untold.append((journal.seq, Event(0, self._kernel.clock.now(), pid, kind, data)))

    def emit(self, event: Event | Mapping[str, Any]) -> None:
        """Somebody outside has something to say: an Event, or a mapping with its `kind`, `pid` and `data`."""
        if not isinstance(event, Event):
            if not isinstance(event, Mapping):
                raise ConfigError(f"an event is an Event or a mapping, not {event!r}", key="event")
            now = self._kernel.clock.now()
            data = event.get("data") or {}
            if not isinstance(data, Mapping):
                raise ConfigError(f"an event's data is a mapping, not {data!r}", key="data")
            event = Event(0, now, str(event.get("pid", "")), event.get("kind", ""), dict(data))
        one_of(event.kind, KINDS, "an event's kind")
        self._say(event)

    def committed(self, batch: list[tuple[int, float, str, str, bytes]]) -> None:
        """Rows are durable."""
        if self.watchers:
            for _, _, pid, kind, row in batch:
                if (heard := self.watchers.get(kind)) is not None:
                    heard(pid, row)
        if self._listeners:
            for seq, time, pid, kind, row in batch:
                self._say(Event(seq, time, pid, kind, codec.decode(row)))
                self._tell_upto(seq)
        elif self._untold:
            self._tell_upto(batch[-1][0])

    def _tell_upto(self, seq: int) -> None:
        while self._untold and self._untold[0][0] <= seq:
            event = self._untold.popleft()[1]
            if (heard := self.watchers.get(event.kind)) is not None:
                heard(event.pid, dict(event.data))
            if self._listeners:
                self._say(event)

    # ------------------------------------------------------------------ saying it

    def _say(self, event: Event) -> None:
        self.unsaid.append(event)
        if not self.acts and not self._speaking:
            self.speak()

    def speak(self) -> None:
        if self._speaking:
            return
        self._speaking = True
        try:
            while self.unsaid:
                self._deliver(self.unsaid.popleft())
        finally:
            self._speaking = False

    def _deliver(self, event: Event) -> None:
        listeners = list(self._listeners.values())
        own = bool(event.seq) and len(listeners) == 1  # read from its row for the only one who hears it
        for listener in listeners:
            mine = event if own else Event(event.seq, event.time, event.pid, event.kind, _private(event.data))
            try:
                result = listener(mine)
            except Exception as error:  # noqa: BLE001 - a listener's mistake is its own; the kernel goes on
                self._report(event.kind, error)
                continue
            if inspect.iscoroutine(result):
                self._kernel.tasks.start(self._run(event.kind, result), name=f"lyra-listener {event.kind}")

    async def _run(self, kind: str, work: Any) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - as above
            self._report(kind, error)

    def _report(self, kind: str, error: Exception) -> None:
        self._kernel.loop.call_exception_handler({"message": f"an event listener failed on {kind}", "exception": error})


def _private(value: Any) -> Any:
    """A copy of the mappings and lists in a value; what they hold at the bottom is immutable."""
    if isinstance(value, dict):
        return {key: _private(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_private(item) for item in value]
    return value
