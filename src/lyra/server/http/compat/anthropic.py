"""`/v1/messages` as clients of Anthropic know it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final, Literal

import msgspec

from lyra.errors import ConfigError
from lyra.server.http.compat.conversation import (
    AnswerUsage,
    Content,
    Spoken,
    VendorConversation,
    answer,
    answer_pieces,
    image_part,
    refuse,
)
from lyra.server.http.directory import refuse_if_draining
from lyra.server.http.endpoint import Endpoint, HttpCall, Streamed
from lyra.server.http.problems import error_body, problem_of
from lyra.server.http.sse import sse_event


class InputMessage(msgspec.Struct):
    role: Literal["user", "assistant", "system"]
    content: str | list[dict[str, Any]]


class MessagesBody(msgspec.Struct):
    """`model` is the name of an agent, or `agent/NAME`. Other fields are taken and not used."""

    model: str
    messages: list[InputMessage]
    max_tokens: int = 0
    system: str | list[dict[str, Any]] = ""
    stream: bool = False
    tools: list[Any] | None = None
    user_id: str = ""


class TextBlock(msgspec.Struct):
    text: str
    type: str = "text"


class MessageUsage(msgspec.Struct):
    input_tokens: int
    output_tokens: int


class MessageAnswer(msgspec.Struct):
    id: str
    model: str
    content: list[TextBlock]
    usage: MessageUsage
    type: str = "message"
    role: str = "assistant"
    stop_reason: str | None = "end_turn"
    stop_sequence: str | None = None


def _conversation(body: MessagesBody) -> VendorConversation:
    if body.tools:
        raise refuse("tools", "the agent has its own; leave `tools` out")
    system = [body.system] if isinstance(body.system, str) else [str(part.get("text", "")) for part in body.system]
    spoken = []
    for message in body.messages:
        if message.role == "system":
            system.append(_text(message.content))
        else:
            spoken.append(Spoken(message.role, _content(message.content)))
    return VendorConversation(spoken, "\n\n".join(filter(None, system)))


def _text(content: str | list[dict[str, Any]]) -> str:
    return content if isinstance(content, str) else "".join(str(part.get("text", "")) for part in content)


def _content(content: str | list[dict[str, Any]]) -> Content:
    return content if isinstance(content, str) else [_part(part) for part in content]


def _part(part: dict[str, Any]) -> dict[str, Any]:
    if part.get("type") == "text":
        return {"type": "text", "text": str(part.get("text", ""))}
    source = part.get("source")
    if part.get("type") == "image" and isinstance(source, dict) and source.get("type") == "base64":
        return image_part(str(source.get("media_type", "")), str(source.get("data", "")))
    if part.get("type") in ("tool_use", "tool_result"):
        raise refuse("tool results", "the agent calls its own tools")
    raise ConfigError("a part of a message is text, or an image as base64", key="messages")


async def messages(call: HttpCall) -> MessageAnswer | Streamed:
    refuse_if_draining(call.parts.is_draining)
    body: MessagesBody = call.body
    conversation, usage = _conversation(body), AnswerUsage()
    answer_id = f"msg_{call.kernel.entropy.text(24)}"
    if body.stream:
        pieces = answer_pieces(call, body.model, conversation, usage)
        first = await anext(pieces, "")  # what is wrong at the beginning is told by the status
        empty = MessageAnswer(answer_id, body.model, [], MessageUsage(0, 0), stop_reason=None)
        return Streamed(_events(call, empty, first, pieces, usage))
    text = await answer(call, body.model, conversation, usage)
    counts = MessageUsage(usage.input_tokens, usage.output_tokens)
    return MessageAnswer(answer_id, body.model, [TextBlock(text)], counts, stop_reason=_stop_reason(usage))


def _stop_reason(usage: AnswerUsage) -> str:
    return "max_tokens" if usage.is_cut else "end_turn"


def _event(word: str, **data: Any) -> bytes:
    return sse_event({"type": word, **data}, event=word)


async def _events(
    call: HttpCall, empty: MessageAnswer, first: str, pieces: AsyncGenerator[str, None], usage: AnswerUsage
) -> AsyncGenerator[bytes, None]:
    async with aclosing(pieces):
        yield _event("message_start", message=empty)
        yield _event("content_block_start", index=0, content_block=TextBlock(""))
        if first:
            yield _delta(first)
        try:
            async for piece in pieces:
                yield _delta(piece)
        except Exception as error:  # noqa: BLE001 (told to the client in its form)
            yield sse_event(error_body(problem_of(error, call.kernel), "anthropic"), event="error")
            return
        yield _event("content_block_stop", index=0)
        counts = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
        yield _event("message_delta", delta={"stop_reason": _stop_reason(usage), "stop_sequence": None}, usage=counts)
        yield _event("message_stop")


def _delta(text: str) -> bytes:
    return _event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})


ENDPOINTS: Final = (
    Endpoint(
        name="anthropic.messages",
        method="POST",
        path="/v1/messages",
        summary="Ask an agent as a client of Anthropic asks a model",
        handler=messages,
        body=MessagesBody,
        answer=MessageAnswer,
        may_stream=True,
        ends_with_client=True,
        is_work=True,
        statuses=(402, 404, 409, 502),
    ),
)
