"""OpenAI's Responses API: `POST /v1/responses`. Nothing is stored: a `previous_response_id` is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from lyra.errors import ModelError
from lyra.models.answers import ResponsesWriter
from lyra.models.provider import Request
from lyra.models.stream import Completion, StreamEvent
from lyra.testing.mock.openai_chat import OPENAI_STATUSES, openai_error, openai_tools
from lyra.testing.mock.wire import (
    BROKEN,
    BadRequest,
    EventWriter,
    MockTurn,
    ReceivedMessages,
    Wire,
    blocks,
    call,
    image,
    in_words,
    items,
    sse,
    texts,
    whole_number,
)

_CODES: Final[dict[str, str]] = {"bad_request": "invalid_prompt"}  # what has a code in a stream only


class ResponsesWire(Wire):
    statuses: ClassVar[Mapping[str, int]] = OPENAI_STATUSES

    def request(self, data: Mapping[str, Any]) -> tuple[Request, bool]:
        if not isinstance(data.get("model"), str):
            raise BadRequest("you must provide a model parameter")
        if data.get("previous_response_id") is not None:
            raise BadRequest("previous_response_id: this server stores no responses; send the whole conversation")
        received = ReceivedMessages()
        given = data.get("input")
        if isinstance(given, str):
            received.user(given)
        else:
            for item in items(data, "input"):
                _item(received, item)
        if data.get("instructions"):
            received.system.insert(0, texts(data["instructions"]))
        request = Request(
            data["model"],
            received.done(),
            system="\n".join(received.system),
            tools=openai_tools(data),
            max_tokens=whole_number(data, "max_output_tokens"),
        )
        return request, data.get("stream") is True

    def writer(self, turn: MockTurn) -> EventWriter:
        return _ResponseStream(ResponsesWriter(turn.head()))

    def whole(self, turn: MockTurn, answer: Completion) -> dict[str, Any]:
        return ResponsesWriter(turn.head()).whole(answer)

    def error(self, kind: str, message: str) -> dict[str, Any]:
        return {"error": openai_error(kind, message)}


class _ResponseStream(EventWriter):
    def __init__(self, answer: ResponsesWriter) -> None:
        self._answer = answer

    def event(self, event: StreamEvent) -> bytes:
        return self._answer.event(event)

    def error(self, error: ModelError) -> bytes:
        data = openai_error(error.kind, in_words(error))
        return self._answer.failed(data["code"] or _CODES.get(error.kind, "server_error"), data["message"])

    def broken(self) -> bytes:
        return sse(BROKEN, "response.output_text.delta")


def _item(received: ReceivedMessages, item: Mapping[str, Any]) -> None:
    kind = item.get("type", "message")
    if kind == "function_call":
        received.assistant("", [call(item.get("call_id"), item.get("name"), item.get("arguments") or "")])
    elif kind == "function_call_output":
        received.result(str(item.get("call_id")), texts(item.get("output")))
    elif kind == "message":
        role, content = item.get("role"), item.get("content")
        if role in ("system", "developer"):
            received.system.append(texts(content))
        elif role == "assistant":
            received.assistant(texts(content))
        elif role == "user":
            received.user(content if isinstance(content, str) else _parts(content))
        else:
            raise BadRequest(f"input: there is no role {role!r}")
    elif kind != "reasoning":
        raise BadRequest(f"input: this server does not know items of type {kind!r}")


def _parts(content: Any) -> list[dict[str, Any]]:
    return [
        image(str(block.get("image_url")))
        if block.get("type") == "input_image"
        else {"type": "text", "text": str(block.get("text", ""))}
        for block in blocks(content)
    ]
