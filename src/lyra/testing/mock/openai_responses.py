"""OpenAI's Responses API: `POST /v1/responses`. Nothing is stored: a `previous_response_id` is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from lyra.errors import ModelError
from lyra.models.request import Request
from lyra.models.stream import (
    Completion,
    Finished,
    Started,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ToolDelta,
    ToolEnd,
    ToolStart,
    UsageSeen,
)
from lyra.models.usage import TokenUsage
from lyra.testing.mock.openai_chat import CREATED, OPENAI_STATUSES, openai_error, openai_tools
from lyra.testing.mock.wire import (
    BROKEN,
    BadRequest,
    EventWriter,
    MockTurn,
    ReceivedMessages,
    Wire,
    arguments_text,
    blocks,
    call,
    image,
    in_words,
    items,
    sse,
    texts,
    thoughts,
    whole_number,
)

__all__ = ["ResponsesWire"]

_CODES: Final[dict[str, str]] = {"bad_request": "invalid_prompt"}  # what has a code in a stream only
_INCOMPLETE: Final[dict[str, str]] = {"max_tokens": "max_output_tokens", "content_filter": "content_filter"}


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
        return _Writer(turn.model, turn.number)

    def whole(self, turn: MockTurn, answer: Completion) -> dict[str, Any]:
        output = [_reasoning(turn.number, thought) for thought in thoughts(answer)]
        if answer.text or not answer.tool_calls:
            output.append(_text_item(turn.number, answer.text, "completed"))
        output += [
            _call_item(turn.number, index, tool_call.id, tool_call.name, arguments_text(tool_call), "completed")
            for index, tool_call in enumerate(answer.tool_calls)
        ]
        return _response(turn.model, turn.number, output, answer.stop_reason, answer.usage)

    def error(self, kind: str, message: str) -> dict[str, Any]:
        return {"error": openai_error(kind, message)}


class _Writer(EventWriter):
    """Items open and close as the kind of what is said changes; the last event repeats them all."""

    def __init__(self, model: str, number: int) -> None:
        self._model = model
        self._number = number
        self._sequence = -1
        self._usage = TokenUsage()
        self._output: list[dict[str, Any]] = []
        self._open = ""  # the kind of the item that is open
        self._text: list[str] = []
        self._calls = 0

    def event(self, event: StreamEvent) -> bytes:
        match event:
            case Started():
                response = _response(self._model, self._number, [], "", None)
                return self._sse("response.created", response=response) + self._sse(
                    "response.in_progress", response=response
                )
            case TextDelta(text):
                return self._say("message", text)
            case ThinkingDelta(text):
                return self._say("reasoning", text)
            case ToolStart(_, call_id, name):
                closed = self._close()
                self._open = "function_call"
                item = _call_item(self._number, self._calls, call_id, name, "", "in_progress")
                self._calls += 1
                return closed + self._added(item)
            case ToolDelta(_, text):
                self._text.append(text)
                return self._on_item("response.function_call_arguments.delta", delta=text)
            case ToolEnd():
                return self._close()
            case UsageSeen(usage):
                self._usage = usage
                return b""
            case Finished(reason):
                closed = self._close()
                response = _response(self._model, self._number, self._output, reason, self._usage)
                return closed + self._sse(f"response.{response['status']}", response=response)

    def error(self, error: ModelError) -> bytes:
        response = _response(self._model, self._number, self._output, "", None)
        error_data = openai_error(error.kind, in_words(error))
        failed = {
            "code": error_data["code"] or _CODES.get(error.kind, "server_error"),
            "message": error_data["message"],
        }
        return self._sse("response.failed", response={**response, "status": "failed", "error": failed})

    def broken(self) -> bytes:
        return sse(BROKEN, "response.output_text.delta")

    def _say(self, kind: str, text: str) -> bytes:
        begun = b""
        if self._open != kind:
            begun = self._close()
            self._open = kind
            begun += self._begin(kind)
        self._text.append(text)
        if kind == "reasoning":
            return begun + self._on_item("response.reasoning_summary_text.delta", summary_index=0, delta=text)
        return begun + self._on_item("response.output_text.delta", content_index=0, delta=text, logprobs=[])

    def _begin(self, kind: str) -> bytes:
        if kind == "reasoning":
            part = {"type": "summary_text", "text": ""}
            return self._added({**_reasoning(self._number, ""), "summary": []}) + self._on_item(
                "response.reasoning_summary_part.added", summary_index=0, part=part
            )
        item = {**_text_item(self._number, "", "in_progress"), "content": []}
        return self._added(item) + self._on_item("response.content_part.added", content_index=0, part=_part(""))

    def _close(self) -> bytes:
        kind, text = self._open, "".join(self._text)
        self._open, self._text = "", []
        if not kind:
            return b""
        if kind == "message":
            item = _text_item(self._number, text, "completed")
            told = self._on_item("response.output_text.done", content_index=0, text=text, logprobs=[])
            told += self._on_item("response.content_part.done", content_index=0, part=_part(text))
        elif kind == "reasoning":
            item = _reasoning(self._number, text)
            told = self._on_item("response.reasoning_summary_text.done", summary_index=0, text=text)
            part = {"type": "summary_text", "text": text}
            told += self._on_item("response.reasoning_summary_part.done", summary_index=0, part=part)
        else:
            item = {**self._output[-1], "arguments": text, "status": "completed"}
            told = self._on_item("response.function_call_arguments.done", name=item["name"], arguments=text)
        self._output[-1] = item
        return told + self._sse("response.output_item.done", output_index=len(self._output) - 1, item=item)

    def _added(self, item: dict[str, Any]) -> bytes:
        self._output.append(item)
        return self._sse("response.output_item.added", output_index=len(self._output) - 1, item=item)

    def _on_item(self, kind: str, **fields: Any) -> bytes:
        return self._sse(kind, item_id=self._output[-1]["id"], output_index=len(self._output) - 1, **fields)

    def _sse(self, kind: str, **fields: Any) -> bytes:
        self._sequence += 1
        return sse({"type": kind, "sequence_number": self._sequence, **fields}, kind)


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


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _text_item(number: int, text: str, status: str) -> dict[str, Any]:
    head = {"id": f"msg_mock_{number}", "type": "message", "role": "assistant", "status": status}
    return {**head, "content": [_part(text)]}


def _reasoning(number: int, text: str) -> dict[str, Any]:
    return {
        "id": f"rs_mock_{number}",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": text}],
        "encrypted_content": f"mock-thought-{number}",
    }


def _call_item(number: int, index: int, call_id: str, name: str, arguments: str, status: str) -> dict[str, Any]:
    return {
        "id": f"fc_mock_{number}_{index}",
        "type": "function_call",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
        "status": status,
    }


def _response(
    model: str, number: int, output: list[dict[str, Any]], stop: str, usage: TokenUsage | None
) -> dict[str, Any]:
    reason = _INCOMPLETE.get(stop)
    return {
        "id": f"resp_mock_{number}",
        "object": "response",
        "created_at": CREATED,
        "model": model,
        "status": "incomplete" if reason else "completed" if stop else "in_progress",
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
        "instructions": None,
        "metadata": {},
        "output": output,
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": None if usage is None else _usage(usage),
    }


def _usage(usage: TokenUsage) -> dict[str, Any]:
    return {
        "input_tokens": usage.total_input,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_input + usage.output_tokens,
    }
