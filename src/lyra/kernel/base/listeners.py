"""Listeners: what they hear, and when: once it is durable, and once the act that made it is whole.

`publish` says at once what no row says; `tell` says what a row says, when that row is in the store (without a journal:
at once, too). Inside an act (`with listeners.act:`) nothing is said before the act has come to its end, so a listener
that answers, ends or forgets something finds the kernel between two acts and never in the middle of one. What listeners
cause is said after what they were told. Each gets data of its own: changing it changes nothing for other listeners.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core import codec
from lyra.core.checking.check import one_of
from lyra.core.event import KINDS, Event
from lyra.errors import ConfigError

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core


EventHandler = Callable[[Event], Any]
Watchers = Mapping[str, Callable[[str, dict[str, Any] | bytes], object]]  # by kind of Event


# Told by the agents' loop, not by processes as such: a listener that wants only these slows no other program down.
OF_AGENTS: Final = frozenset(
    {
        *("model.called", "tool.called", "agent.began", "agent.answered", "agent.ended", "context.cut"),
        *("call.ahead", "call.taken", "call.ordered", "call.speculative"),
    }
)
# Facts that are told whether or not the acts of programs are heard.
_ALWAYS_TOLD: Final = frozenset(
    {
        *("pipeline.reported", "pipeline.ended", "trace.span", "trace.event", "vesper.executed"),
        *("child.restarting", "supervisor.gave_up"),
    }
)
# The data of these is made for the Event and for nothing else.
_OWN_DATA: Final = OF_AGENTS | {"effect.started", "effect.finished"}
_WITH_STATES: Final = frozenset(kind for kind in KINDS if kind.startswith(("process.", "interrupt.")))


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
    def __init__(self, core: Core[Any]) -> None:
        self._core = core
        # By a token: one function may listen twice. With the kinds it wants; None wants all.
        self._listeners: dict[object, tuple[EventHandler, frozenset[str] | None]] = {}
        self._wanted: frozenset[str] | None = frozenset()  # by any of them
        self._hearing: dict[str, tuple[EventHandler, ...]] = {}  # the listeners of each kind that came up so far
        self.watchers: Watchers = {}
        self._untold: deque[tuple[int, Event]] = deque()  # with the row that must be durable first
        self._speaking = False
        self.unsaid: deque[Event] = deque()
        self.acts = 0
        self.act = _Act(self)

    # ------------------------------------------------------------------ the listeners

    def add(self, listener: EventHandler, kinds: Iterable[str] | None = None) -> Callable[[], None]:
        if not callable(listener):
            raise ConfigError(
                f"a listener is a function of one Event, not {listener!r}", hint="kernel.on_event(print)", key="fn"
            )
        wanted = None if kinds is None else frozenset(one_of(kind, KINDS, "an event's kind") for kind in words(kinds))
        token = object()
        self._listeners[token] = (listener, wanted)
        self._update_kinds()

        def stop() -> None:
            self._listeners.pop(token, None)
            self._update_kinds()

        return stop

    def watch(self, watchers: Watchers) -> None:
        self.watchers = watchers
        self._update_kinds()

    def clear(self) -> None:
        """Remove all listeners."""
        self._listeners.clear()
        self._update_kinds()

    def _update_kinds(self) -> None:
        core = self._core
        wanted: frozenset[str] | None = frozenset()
        for _, kinds in self._listeners.values():
            wanted = None if wanted is None or kinds is None else wanted | kinds
        self._wanted = wanted
        self._hearing.clear()
        # Three questions for hot places: does a listener hear of processes, of each of their states, which of agents?
        core.listening = bool(self.watchers) or wanted is None or not wanted <= (OF_AGENTS | _ALWAYS_TOLD)
        core.listeners_want_states = wanted is None or bool(wanted & _WITH_STATES)
        core.agents_heard = frozenset(kind for kind in OF_AGENTS if self.hears(kind))

    def hears(self, kind: str) -> bool:
        """Return whether a listener or watcher hears of a kind: then it is worth making an Event's data."""
        return kind in self.watchers or self._wanted is None or kind in self._wanted

    def wants(self, kind: str) -> bool:
        """Return whether a listener wants Events of this kind."""
        return self._wanted is None or kind in self._wanted

    # ------------------------------------------------------------------ what is said

    def publish(self, pid: str, kind: str, data: dict[str, Any]) -> None:
        """Something that is not in the journal (its seq is 0)."""
        if (heard := self.watchers.get(kind)) is not None:
            heard(pid, data)
        if self._wanted is None or kind in self._wanted:
            self._say(Event(0, self._core.now(), pid, kind, data))

    def tell(self, pid: str, kind: str, data: dict[str, Any]) -> None:
        """Queue an Event derived from rows already written; deliver it once they are durable."""
        journal = self._core.journal
        if journal is None:
            self.publish(pid, kind, data)
        elif not journal.frozen and (kind in self.watchers or self.wants(kind)):
            self._untold.append((journal.seq, Event(0, self._core.now(), pid, kind, data)))

    def emit(self, event: Event | Mapping[str, Any]) -> None:
        """Publish an Event of a caller outside: an Event, or a mapping with its `kind`, `pid` and `data`."""
        if not isinstance(event, Event):
            if not isinstance(event, Mapping):
                raise ConfigError(f"an event is an Event or a mapping, not {event!r}", key="event")
            now = self._core.now()
            data = event.get("data") or {}
            if not isinstance(data, Mapping):
                raise ConfigError(f"an event's data is a mapping, not {data!r}", key="data")
            event = Event(0, now, str(event.get("pid", "")), event.get("kind", ""), dict(data))
        event = msgspec.structs.replace(event, data=_private(event.data))
        one_of(event.kind, KINDS, "an event's kind")
        if self._core.taint.is_here:
            event = msgspec.structs.replace(event, data={**event.data, "tainted": True})
        self._say(event)

    def on_commit(self, batch: list[tuple[int, float, str, str, bytes]]) -> None:
        """Rows are durable."""
        if self.watchers:
            for _, _, pid, kind, row in batch:
                if (heard := self.watchers.get(kind)) is not None:
                    heard(pid, row)
        if self._listeners:
            wanted = self._wanted
            for seq, time, pid, kind, row in batch:
                if wanted is None or kind in wanted:
                    self._say(Event(seq, time, pid, kind, codec.decode(row)))
                self._tell_upto(seq)
        elif self._untold:
            self._tell_upto(batch[-1][0])

    def _tell_upto(self, seq: int) -> None:
        while self._untold and self._untold[0][0] <= seq:
            event = self._untold.popleft()[1]
            if (heard := self.watchers.get(event.kind)) is not None:
                heard(event.pid, dict(event.data))
            if self.wants(event.kind):
                self._say(event)

    # ------------------------------------------------------------------ saying it

    def _say(self, event: Event) -> None:
        if self.acts or self._speaking or self.unsaid:  # in the order in which things happened, one at a time
            self.unsaid.append(event)
            if not self.acts:
                self.speak()
            return
        self._speaking = True
        try:
            self._deliver(event)
        finally:
            self._speaking = False
        if self.unsaid:
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
        kind = event.kind
        listeners = self._hearing.get(kind)
        if listeners is None:
            heard = [handler for handler, kinds in self._listeners.values() if kinds is None or kind in kinds]
            listeners = self._hearing[kind] = tuple(heard)
        # Read from its row, or made as a record, for the only listener that hears it.
        own = len(listeners) == 1 and (event.seq > 0 or (kind in _OWN_DATA and kind not in self.watchers))
        for listener in listeners:
            mine = event if own else Event(event.seq, event.time, event.pid, event.kind, _private(event.data))
            try:
                result = listener(mine)
            except Exception as error:  # noqa: BLE001 - a listener's mistake is its own; the kernel continues
                self._report(event.kind, error)
                continue
            if result is not None and inspect.iscoroutine(result):
                self._core.tasks.start(self._run(event.kind, result), name=f"lyra-listener {event.kind}")

    async def _run(self, kind: str, work: Any) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - as above
            self._report(kind, error)

    def _report(self, kind: str, error: Exception) -> None:
        self._core.loop.call_exception_handler({"message": f"an event listener failed on {kind}", "exception": error})


def _private(value: Any) -> Any:
    """Plain data of one's own: containers are made anew, the rest cannot be changed anyway."""
    if isinstance(value, dict):
        return {key: item if type(item) in _FIXED else _private(item) for key, item in value.items()}
    if isinstance(value, list):
        return [item if type(item) in _FIXED else _private(item) for item in value]
    return value


_FIXED: Final = frozenset({str, int, float, bool, bytes, type(None)})


def words(kinds: Any) -> tuple[Any, ...]:
    """Return the kinds of Events that a caller names: one, or several."""
    if isinstance(kinds, str):
        return (kinds,)
    if not isinstance(kinds, Iterable):
        raise ConfigError(f"kinds of events are words, not {kinds!r}", hint='such as "process.terminated"', key="kinds")
    return tuple(kinds)
