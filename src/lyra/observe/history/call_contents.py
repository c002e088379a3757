"""What went into the calls of one process and what came out, as its rows in a journal tell it.

`ContentHistory.add` takes the Events of one process in order. Of a call of a model it gives the messages since the
answer before, the answer with the tools it asks for, and the tokens that came from the provider's cache; of a call of a
tool its arguments, its result and the decision of the permission rules. The journal has no keys in these texts: they
are masked before they are written. Long texts are cut. Reads Events, opens nothing; `message_at` finds the rows of
messages that other processes sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from lyra.core.event import Event

_TEXT_CHARS_MAX: Final = 20_000  # of one text
_PARTS_MAX: Final = 50  # of one request
_CALLS_MAX: Final = 5_000  # kept by one fold; older ones are dropped first


class ContentPart(msgspec.Struct, frozen=True):
    """One text of a call: `role` says whose it is."""

    role: str
    text: str


class CallContent(msgspec.Struct):
    """One call. `decision` is what permission rules, or a person, decided on it; `cache` counts tokens."""

    key: str
    kind: str
    name: str
    started_at: float
    ended_at: float | None = None
    call_id: str = ""
    request: list[ContentPart] = []
    answer: list[ContentPart] = []
    error: str = ""
    cache: dict[str, int] = {}
    decision: dict[str, Any] = {}
    tries: int = 1


class ContentHistory:
    """The fold. `calls` has the calls of models and tools by their key, in the order of their start."""

    __slots__ = ("_admitted", "_asked", "_message_at", "_since", "calls")

    def __init__(self, message_at: Callable[[int], Any] = lambda _seq: None) -> None:
        self.calls: dict[str, CallContent] = {}
        self._message_at = message_at
        self._since: list[ContentPart] = []  # messages since the last answer
        self._asked: list[Mapping[str, Any]] = []  # calls of tools in the last answer that have not begun
        self._admitted: dict[str, Mapping[str, Any]] = {}  # the last decision, by branch

    def add(self, event: Event) -> None:
        handle = _HANDLERS.get(event.kind)
        if handle is not None:
            handle(self, event, event.data)

    def add_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self.add(event)

    def nearest(self, kind: str, name: str, ended_at: float, call_id: str = "") -> CallContent | None:
        """Return the call of that kind and name that a span is about; with a tool call's id, that one. A span is told
        once the journal has the end of its call."""
        fits = [call for call in self.calls.values() if call.kind == kind and (kind == "model" or call.name == name)]
        if call_id:
            fits = [call for call in fits if call.call_id == call_id] or fits
        late_s = [(ended_at - call.ended_at, call) for call in fits if call.ended_at is not None]
        _, call = min(late_s, key=lambda late: (late[0] < 0, abs(late[0])), default=(0.0, None))
        return call

    # ------------------------------------------------------------------ one handler a kind

    def _on_created(self, _event: Event, data: Mapping[str, Any]) -> None:
        """Read the question of an agent that was started for one: it is among its arguments."""
        if str(data.get("program", "")).startswith("agent:"):
            for argument in data.get("args") or ():
                self._add_message("message", argument)

    def _on_received(self, _event: Event, data: Mapping[str, Any]) -> None:
        message = self._message_at(data["message"]) if data.get("message") else None
        if isinstance(message, Mapping):
            message = message.get("content", message)
        if message is not None:
            self._add_message("message", message)

    def _on_started(self, event: Event, data: Mapping[str, Any]) -> None:
        key, name = str(data["key"]), str(data["name"])
        kind, _, rest = name.partition(":")
        if kind == "model":
            call = CallContent(key, "model", rest.rpartition(":")[2], event.time, request=self._since[-_PARTS_MAX:])
            self._since = []
        elif kind == "tool":
            call = CallContent(key, "tool", rest, event.time)
            self._take_arguments(call)
        else:
            return
        self.calls[key] = call
        if len(self.calls) > _CALLS_MAX:
            del self.calls[next(iter(self.calls))]

    def _take_arguments(self, call: CallContent) -> None:
        asked = next((asked for asked in self._asked if asked.get("name") == call.name), None)
        if asked is not None:
            self._asked.remove(asked)
            call.call_id = str(asked.get("id", ""))
            call.request = [ContentPart("arguments", _text(asked.get("arguments")))]
        decision = self._admitted.pop(_branch(call.key), None)
        if decision is not None:
            call.decision = {name: decision[name] for name in _DECIDED if decision.get(name) not in (None, "")}

    def _on_finished(self, event: Event, data: Mapping[str, Any]) -> None:
        value, error = data.get("value"), data.get("error")
        if data.get("name") == "admit" and isinstance(value, Mapping):
            self._admitted[_branch(str(data["key"]))] = value
        call = self.calls.get(str(data["key"]))
        if call is None:
            return
        call.ended_at = event.time
        if isinstance(error, Mapping):
            call.error = f"{error.get('code', 'error')}: {error.get('message', '')}"[:_TEXT_CHARS_MAX]
        elif call.kind == "model":
            self._fill_answer(call, value)
        else:
            call.answer = [ContentPart("result", "(kept in a blob)" if data.get("blob") else _text(value))]
            self._since.append(ContentPart(f"result of {call.name}", call.answer[0].text))

    def _fill_answer(self, call: CallContent, value: Any) -> None:
        if not isinstance(value, Mapping):
            return
        message, usage = value.get("message") or {}, value.get("usage") or {}
        text = _content(message.get("content"))
        call.answer = [ContentPart("text", text)] if text else []
        self._asked = [asked for asked in message.get("tool_calls") or () if isinstance(asked, Mapping)]
        for asked in self._asked:
            call.answer.append(ContentPart(f"calls {asked.get('name', '')}", _text(asked.get("arguments"))))
        call.cache = {name: usage[name] for name in ("cache_read_tokens", "cache_write_tokens") if usage.get(name)}

    def _on_retried(self, _event: Event, data: Mapping[str, Any]) -> None:
        call = self.calls.get(str(data.get("key")))
        if call is not None:
            call.tries += 1

    def _add_message(self, role: str, content: Any) -> None:
        self._since.append(ContentPart(role, _content(content)))


_DECIDED: Final = ("decision", "rule", "reason", "source", "subject")
_HANDLERS: Final[dict[str, Callable[[ContentHistory, Event, Mapping[str, Any]], None]]] = {
    "process.created": ContentHistory._on_created,
    "message.received": ContentHistory._on_received,
    "effect.started": ContentHistory._on_started,
    "effect.finished": ContentHistory._on_finished,
    "effect.retried": ContentHistory._on_retried,
}


def _branch(key: str) -> str:
    """Return the parallel branch that a key belongs to; "" for the program itself."""
    return key.rpartition("/")[0]


def _content(content: Any) -> str:
    """Return the text of a message's content; parts that are no text are named."""
    if not isinstance(content, (list, tuple)):
        return _text(content)
    parts = [part if isinstance(part, Mapping) else {"type": "text", "text": str(part)} for part in content]
    texts = [str(part.get("text", "")) if part.get("type") == "text" else f"[{part.get('type')}]" for part in parts]
    return "\n".join(texts)[:_TEXT_CHARS_MAX]


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value[:_TEXT_CHARS_MAX]
    try:
        text = msgspec.json.format(msgspec.json.encode(value, enc_hook=repr), indent=2).decode()
    except (TypeError, ValueError):
        text = repr(value)
    return text[:_TEXT_CHARS_MAX]


# Where processes stood still, as Events tell it: between two tries of an effect, and while a person was asked.

_PAUSES_MAX: Final = 10_000  # kept by one fold; older ones are dropped first
_ASKED: Final = ("interrupt.created", "pcb.interrupt_created")
_ANSWERED: Final = ("interrupt.resolved", "interrupt.expired", "interrupt.cancelled", "pcb.interrupt_ended")


class Pause(msgspec.Struct):
    """A time without work: `kind` is retry or wait, `why` the error before it or the question."""

    pid: str
    kind: str
    started_at: float
    ended_at: float | None
    why: str = ""
    key: str = ""  # of the effect that is tried again


class PauseHistory:
    """The fold. `pauses` has them in the order of their start."""

    __slots__ = ("_open", "pauses")

    def __init__(self) -> None:
        self.pauses: list[Pause] = []
        self._open: dict[str, Pause] = {}  # questions without an answer, by id

    def add(self, event: Event) -> None:
        data = event.data
        if event.kind == "effect.retried":
            delay_s = data.get("delay_s")
            ended_at = event.time + (delay_s if isinstance(delay_s, (int, float)) else 0.0)
            why = str(data.get("error") or "")
            self._keep(Pause(event.pid, "retry", event.time, ended_at, why, str(data.get("key", ""))))
        elif event.kind in _ASKED:
            why = str(data.get("question") or data.get("message") or "")
            pause = self._open[str(data.get("id"))] = Pause(event.pid, "wait", event.time, None, why)
            self._keep(pause)
        elif event.kind in _ANSWERED:
            asked = self._open.pop(str(data.get("id")), None)
            if asked is not None:
                asked.ended_at = event.time

    def add_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self.add(event)

    def _keep(self, pause: Pause) -> None:
        self.pauses.append(pause)
        if len(self.pauses) > _PAUSES_MAX:
            del self.pauses[0]
