"""Tool calls that arrive in pieces: by index, until the JSON of each is whole.

A call is never dispatched with guessed or empty arguments: one whose JSON cannot be read, or that the answer's limit
cut off, has a `problem` in place of arguments, which an agent tells its model. Readers that pass calls on to others
refuse it (`Fold.completion`, `stream_of`).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lyra.core.tool import ToolCall
from lyra.errors import ConfigError
from lyra.models.stream import CALL_CUT, CUT_BY_PROVIDER, StreamEvent, ToolDelta, ToolEnd, ToolStart
from lyra.models.wire.faults import UNREADABLE, answer_malformed

_EXCERPT_CHARS: Final = 200  # of arguments that cannot be read


class ToolCalls:
    """The calls of one answer. `begin`, `more` and `end` return the events to pass on."""

    __slots__ = ("_first", "_held", "_open", "seen")

    def __init__(self, first: int = 0) -> None:
        """`first` is the number of the first made-up id, for calls that come without one."""
        self._first = first
        self._open: dict[int, tuple[str, str, list[str]]] = {}
        self._held: list[int] = []  # calls that have ended and cannot be read; the stop reason may explain them
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
        """End a call. One that cannot be read is held until the stop reason comes (`end_all`), which may explain it."""
        call_id, name, pieces = self._open[index]
        call = tool_call(call_id, name, "".join(pieces))
        if call.problem:
            self._held.append(index)
            return []
        del self._open[index]
        return [ToolEnd(index, call)]

    def add_whole(self, id: str, name: str, arguments: Any) -> list[StreamEvent]:  # noqa: A002 (the word on the wire)
        """Return a call that came in one piece, its arguments parsed already."""
        index = self.seen
        began = self.begin(index, id, name)
        text = msgspec.json.encode(arguments).decode()
        ended = [*began, *self.more(index, text), *self.end(index)]
        return [*ended, *self.end_all("")] if index in self._held else ended

    def end_all(self, stop: str) -> list[StreamEvent]:
        """End the calls that are left, now that the stop reason is known. A call that was cut off is one with a
        problem."""
        events: list[StreamEvent] = []
        for index in sorted(self._open):
            call_id, name, pieces = self._open.pop(index)
            is_cut = stop == CUT_BY_PROVIDER and (index in self._held or not self._open)
            events.append(ToolEnd(index, tool_call(call_id, name, "".join(pieces), is_cut=is_cut)))
        self._held.clear()
        return events

    def raise_open(self, stop: str = "") -> None:
        """Raise an error if a call has not ended, unless the answer was cut off."""
        for index, (_, name, _) in self._open.items():
            if index not in self._held and stop != CUT_BY_PROVIDER:
                raise answer_malformed("the answer ended in the middle of a tool call", tool=name)

    def is_open(self, index: int) -> bool:
        return index in self._open and index not in self._held

    def id_of(self, index: int) -> str:
        """Return the id of a call that is open; empty where none is."""
        return self._open[index][0] if index in self._open else ""


def tool_call(call_id: str, name: str, text: str, *, is_cut: bool = False) -> ToolCall:
    """Return the call behind an id, a name and JSON text; no text at all means no arguments. `is_cut`: the answer ended
    at its limit in this call, unless it can be read."""
    problem = ""
    arguments: Any = {}
    try:
        arguments = msgspec.json.decode(text) if text.strip() or is_cut else {}
    except UNREADABLE as error:
        problem = CALL_CUT if is_cut else f"its arguments are not valid JSON: {error}"
    if not problem and not isinstance(arguments, dict):
        problem = "its arguments are not an object"
    if problem:
        half = _EXCERPT_CHARS // 2
        excerpt = text if len(text) <= _EXCERPT_CHARS else f"{text[:half]} … {text[-half:]}"
        problem = f"{problem} ({len(text)} characters came: {excerpt})"
        arguments = {}
    try:
        return ToolCall(call_id, name, arguments, problem=problem)
    except ConfigError as error:
        raise answer_malformed(
            f"the model called a tool that cannot be: {error.message}", tool=name[:64], id=call_id
        ) from None
