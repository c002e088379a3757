"""What the wire formats have in common: reading requests, framing events, reporting errors.

A `Wire` turns the JSON of a request into a Request, the events of an answer into bytes as they come, a whole answer
into one document, and an error into a status and a body. A mistake in a request is a `BadRequest` that says how to mend
it. Formats are read leniently: fields that a mock does not need are ignored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from lyra.core.message import Message
from lyra.core.tool import Tool, ToolCall, ToolResult
from lyra.errors import ConfigError, ModelError
from lyra.models.answers import AnswerHead
from lyra.models.answers import answer_event as sse
from lyra.models.provider import Request
from lyra.models.stream import Completion, StreamEvent
from lyra.models.wire.faults import UNREADABLE

__all__ = [
    "BROKEN",
    "BadRequest",
    "EventWriter",
    "MockTurn",
    "ReceivedMessages",
    "Wire",
    "in_words",
    "line",
    "sse",
    "whole_number",
]

CREATED: Final = 1_700_000_000  # a mock has no clock
BROKEN: Final = '{"broken": '  # a piece that is not JSON


def in_words(error: ModelError) -> str:
    """Return what a stream says of an error: without a header, the pause that it asks for is part of the sentence."""
    wait_s = error.fields.get("retry_after_s")
    return error.message if wait_s is None else f"{error.message} Please try again in {wait_s:g}s."


class BadRequest(Exception):
    """A request that the real server would not take either."""


class MockTurn(NamedTuple):
    """One request to answer: as it was sent, as it was understood, its number, and its tokens by a rough count."""

    data: Mapping[str, Any]
    request: Request
    number: int
    input_tokens: int

    @property
    def model(self) -> str:
        return self.request.model

    def head(self, **more: Any) -> AnswerHead:
        """Return what the answer says of itself; it was made at the same time as every other."""
        signature = f"mock-signature-{self.number}"
        return AnswerHead(
            self.request.model,
            f"mock-{self.number}",
            CREATED,
            self.input_tokens,
            thought_signature=signature,
            more=more,
        )


class EventWriter(ABC):
    """The bytes of one streamed answer."""

    @abstractmethod
    def event(self, event: StreamEvent) -> bytes: ...

    @abstractmethod
    def error(self, error: ModelError) -> bytes:
        """Return an error told in the middle of a stream."""

    @abstractmethod
    def broken(self) -> bytes:
        """Return a piece that cannot be read."""


class Wire(ABC):
    """One format."""

    stream_type: ClassVar[str] = "text/event-stream; charset=utf-8"
    statuses: ClassVar[Mapping[str, int]]  # kind of error → status

    @abstractmethod
    def request(self, data: Mapping[str, Any]) -> tuple[Request, bool]:
        """Return the Request, and whether the answer is to be streamed."""

    @abstractmethod
    def writer(self, turn: MockTurn) -> EventWriter: ...

    @abstractmethod
    def whole(self, turn: MockTurn, answer: Completion) -> dict[str, Any]: ...

    @abstractmethod
    def error(self, kind: str, message: str) -> dict[str, Any]: ...

    def status(self, kind: str) -> int:
        return self.statuses.get(kind, 500)


class ReceivedMessages:
    """Messages as they are read: results find the name of their tool, and those that follow each other are one."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.system: list[str] = []
        self._names: dict[str, str] = {}
        self._results: list[ToolResult] = []

    def user(self, content: str | Iterable[dict[str, Any]]) -> None:
        self._flush()
        self.messages.append(Message("user", content if isinstance(content, str) else tuple(content)))

    def assistant(self, content: str | Iterable[dict[str, Any]], calls: Iterable[ToolCall] = ()) -> None:
        self._flush()
        calls = tuple(calls)
        self._names |= {call.id: call.name for call in calls}
        self.messages.append(Message("assistant", content if isinstance(content, str) else tuple(content), calls))

    def result(self, call_id: str, output: Any, *, name: str = "", is_error: bool = False) -> None:
        self._results.append(ToolResult(call_id, name or self._names.get(call_id, "tool"), output, is_error))

    def done(self) -> tuple[Message, ...]:
        self._flush()
        return tuple(self.messages)

    def _flush(self) -> None:
        if self._results:
            self.messages.append(Message("tool", tool_results=tuple(self._results)))
            self._results = []


def call(call_id: Any, name: Any, arguments: Any) -> ToolCall:
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments) if arguments.strip() else {}
        except UNREADABLE:
            raise BadRequest("the arguments of a tool call are not valid JSON") from None
    try:
        return ToolCall(str(call_id), name, arguments)
    except ConfigError as error:
        raise BadRequest(error.message) from None


def tool(name: Any, description: Any, schema: Any) -> Tool:
    try:
        return Tool(name, str(description or ""), schema or {})
    except ConfigError as error:
        raise BadRequest(error.message) from None


def texts(content: Any) -> str:
    """Return the text of what is a text or a list of blocks with texts."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(str(block.get("text", "")) for block in blocks(content))


def blocks(content: Any) -> list[Mapping[str, Any]]:
    if not isinstance(content, list) or not all(isinstance(block, Mapping) for block in content):
        raise BadRequest("content is a text or a list of blocks")
    return content


def items(data: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """Return a list of objects; a field that is not there has none."""
    members = data.get(name)
    if members is None:
        return []
    if not isinstance(members, list) or not all(isinstance(member, Mapping) for member in members):
        raise BadRequest(f"{name}: a list of objects is expected")
    return members


def whole_number(data: Mapping[str, Any], name: str) -> int | None:
    value = data.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadRequest(f"{name}: a whole number above 0 is expected")
    return value


def stops(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    texts_given = [value] if isinstance(value, str) else value
    if not isinstance(texts_given, list) or not all(isinstance(text, str) for text in texts_given):
        raise BadRequest("stop: a text or a list of texts is expected")
    return tuple(texts_given)


def image(url: str) -> dict[str, Any]:
    """Return an image part of an address, `data:` ones taken apart."""
    head, comma, data = url.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        return {"type": "image", "media_type": head[5:-7], "data": data}
    return {"type": "image", "url": url}


def line(data: Any) -> bytes:
    return msgspec.json.encode(data) + b"\n"
