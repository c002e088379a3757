"""Tool calls that arrive in pieces: by index, until the JSON of each is whole.

`ToolEnd` is sent only when the arguments of a call parse as an object. Arguments that do not parse are a ModelError
that names the tool: a call is never dispatched with guessed or empty arguments.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lyra.core.tool import ToolCall
from lyra.errors import ConfigError, ModelError
from lyra.models.stream import StreamEvent, ToolDelta, ToolEnd, ToolStart
from lyra.models.wire.faults import UNREADABLE, answer_malformed


class ToolCalls:
    """The calls of one answer. `begin`, `more` and `end` return the events to pass on."""

    __slots__ = ("_first", "_open", "broken", "seen")

    def __init__(self, first: int = 0) -> None:
        """`first` is the number of the first made-up id, for calls that come without one."""
        self._first = first
        self._open: dict[int, tuple[str, str, list[str]]] = {}
        self.broken: ModelError | None = None  # the error of a call, kept for `raise_broken`
        self.seen = 0

    def begin(self, index: int, id: str, name: str) -> list[StreamEvent]:  # noqa: A002 (the word on the wire)
        if index in self._open:
            return []
        call_id = id or f"call_{self._first + index}"
        self._open[index] = (call_id, name, [])
        self.seen += 1
        return [ToolStart(index, call_id, name)]

    def more(self, index: int, text: str) -> list[StreamEvent]:
        if not text:
            return []
        if index not in self._open:
            raise answer_malformed("arguments came for a tool call that was never begun")
        self._open[index][2].append(text)
        return [ToolDelta(index, text)]

    def end(self, index: int) -> list[StreamEvent]:
        call_id, name, pieces = self._open.pop(index)
        return [ToolEnd(index, tool_call(call_id, name, "".join(pieces)))]

    def add_whole(self, id: str, name: str, arguments: Any) -> list[StreamEvent]:  # noqa: A002 (the word on the wire)
        """Return a call that came in one piece, its arguments parsed already."""
        index = self.seen
        began = self.begin(index, id, name)
        text = msgspec.json.encode(arguments).decode()
        return [*began, *self.more(index, text), *self.end(index)]

    def end_or_keep(self, index: int) -> list[StreamEvent]:
        """As `end`; an error is kept until the stop reason comes, which may explain it."""
        try:
            return self.end(index)
        except ModelError as error:
            self.broken = self.broken or error
            return []

    def end_all(self, stop: str) -> list[StreamEvent]:
        """End all open calls, for formats that do not mark the end of a call."""
        try:
            return [event for index in sorted(self._open) for event in self.end(index)]
        except ModelError as error:
            self.broken = error
            self.raise_broken(stop)
            raise

    def raise_broken(self, stop: str = "") -> None:
        """Raise what `end_or_keep` kept."""
        if self.broken is not None:
            if stop == "max_tokens":
                self.broken.hint = "the answer was cut at max_tokens in the middle of the call; allow more"
            raise self.broken

    def raise_open(self) -> None:
        """Raise an error if a call is not complete."""
        for _, name, _ in self._open.values():
            raise answer_malformed("the answer ended in the middle of a tool call", tool=name)

    def is_open(self, index: int) -> bool:
        return index in self._open

    def id_of(self, index: int) -> str:
        """Return the id of a call that is open; empty where none is."""
        return self._open[index][0] if index in self._open else ""


def tool_call(call_id: str, name: str, text: str) -> ToolCall:
    """Return the call behind an id, a name and JSON text; no text at all means no arguments."""
    try:
        arguments = msgspec.json.decode(text) if text.strip() else {}
    except UNREADABLE as error:
        raise answer_malformed(
            f"the arguments of the call to {name!r} are not valid JSON: {error}", tool=name, id=call_id
        ) from None
    if not isinstance(arguments, dict):
        raise answer_malformed(f"the arguments of the call to {name!r} are not an object", tool=name, id=call_id)
    try:
        return ToolCall(call_id, name, arguments)
    except ConfigError as error:
        raise answer_malformed(
            f"the model called a tool that cannot be: {error.message}", tool=name[:64], id=call_id
        ) from None
