"""How a request of a vendor's format becomes a Request: each member is carried, may be left out, or is refused.

A member that would change the answer and has no place in a Request is refused with a sentence that names it: a client
never gets an answer to another question than the one it asked. `Members` is a JSON object that knows which of its
members were read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from lyra.core.message import Message
from lyra.core.tool import Tool, ToolCall, ToolResult
from lyra.errors import ConfigError
from lyra.models.wire.faults import UNREADABLE

# Thinking tokens for an effort that a client asks for in a word.
EFFORT_TOKENS: Final = {"none": 0, "minimal": 0, "low": 2_048, "medium": 8_192, "high": 24_576, "xhigh": 32_768}


def cannot_carry(what: str) -> ConfigError:
    return ConfigError(
        f"{what} cannot be carried to this model's provider, which speaks another format",
        hint="leave it out, or ask a model of a provider with this format",
    )


class Members:
    """An object of a request. `take` reads a member; `end` refuses those that are left."""

    __slots__ = ("_data", "_left", "_place")

    def __init__(self, data: Any, place: str = "") -> None:
        if not isinstance(data, Mapping):
            raise ConfigError(f"{place or 'the body'} is a JSON object")
        self._data = data
        self._left = dict.fromkeys(name for name, value in data.items() if value is not None)
        self._place = f"{place}." if place else ""

    def take(self, name: str) -> Any:
        """A member, or None."""
        self._left.pop(name, None)
        return self._data.get(name)

    def text(self, name: str) -> str:
        """A member that is a text; "" where there is none."""
        value = self.take(name)
        if value is not None and not isinstance(value, str):
            raise ConfigError(f"{self._place}{name} is a text", key=name)
        return value or ""

    def number(self, name: str) -> float | None:
        value = self.take(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise ConfigError(f"{self._place}{name} is a number", key=name)
        return value

    def whole(self, name: str) -> int | None:
        value = self.number(name)
        if value is not None and (not isinstance(value, int) or value < 0):
            raise ConfigError(f"{self._place}{name} is a whole number", key=name)
        return value

    def objects(self, name: str) -> Iterator[Members]:
        """The objects of a list."""
        values = self.take(name)
        if values is None:
            return
        if not isinstance(values, list):
            raise ConfigError(f"{self._place}{name} is a list", key=name)
        for index, value in enumerate(values):
            yield Members(value, f"{self._place}{name}[{index}]")

    def inside(self, name: str) -> Members:
        """An object; an empty one where there is none."""
        value = self.take(name)
        return Members({} if value is None else value, f"{self._place}{name}")

    def skip(self, *names: str) -> None:
        """Members that do not change the answer."""
        for name in names:
            self._left.pop(name, None)

    def skip_if(self, name: str, *values: Any) -> None:
        """A member that may be left out where it has one of these values."""
        if self._data.get(name) in values:
            self._left.pop(name, None)

    def end(self) -> None:
        if self._left:
            raise cannot_carry(f"{self._place}{next(iter(self._left))}")


class TranslatedConversation:
    """Messages as they are read: results find the name of their tool, and those that follow each other are one
    message."""

    __slots__ = ("_messages", "_names", "_results", "system")

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self.system: list[str] = []
        self._names: dict[str, str] = {}
        self._results: list[ToolResult] = []

    def user(self, content: str | Iterable[dict[str, Any]]) -> None:
        self._end_results()
        self._messages.append(Message("user", _content(content)))

    def assistant(self, content: str | Iterable[dict[str, Any]], calls: Iterable[ToolCall] = ()) -> None:
        self._end_results()
        calls = tuple(calls)
        self._names |= {call.id: call.name for call in calls}
        last = self._messages[-1] if self._messages else None
        if not content and last is not None and last.role == "assistant":  # calls of one turn that came as items
            self._messages[-1] = msgspec.structs.replace(last, tool_calls=(*last.tool_calls, *calls))
            return
        self._messages.append(Message("assistant", _content(content), calls))

    def result(self, call_id: str, output: str | list[dict[str, Any]], *, is_error: bool = False) -> None:
        self._results.append(ToolResult(call_id, self._names.get(call_id, "tool"), output, is_error))

    def messages(self) -> tuple[Message, ...]:
        self._end_results()
        if not self._messages:
            raise ConfigError("the request has no message", key="messages")
        return tuple(self._messages)

    def _end_results(self) -> None:
        if self._results:
            self._messages.append(Message("tool", tool_results=tuple(self._results)))
            self._results = []


def _content(content: str | Iterable[dict[str, Any]]) -> str | tuple[dict[str, Any], ...]:
    if isinstance(content, str):
        return content
    parts = tuple(content)
    is_text = all(part["type"] == "text" for part in parts)
    return "".join(part["text"] for part in parts) if is_text and len(parts) == 1 else parts


def image_part(url: str) -> dict[str, Any]:
    """An image by its address; the data of a `data:` address are taken out."""
    head, comma, data = url.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        return {"type": "image", "media_type": head[5:-7], "data": data}
    return {"type": "image", "url": url}


def read_call(call_id: str, name: str, arguments: Any) -> ToolCall:
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments) if arguments.strip() else {}
        except UNREADABLE:
            raise ConfigError("the arguments of a tool call are not valid JSON") from None
    return ToolCall(call_id, name, arguments if arguments is not None else {})


def read_tool(name: str, description: str, schema: Any) -> Tool:
    return Tool(name, description, schema if isinstance(schema, dict) else {})
