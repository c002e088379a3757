"""TranslatedRequest: a client's request in Lyra's own form, and the writer of its answer in the client's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lyra.models.answers import AnswerHead, ChatWriter, MessagesWriter, ResponsesWriter, VendorAnswerWriter
from lyra.models.provider import Request
from lyra.server.gateway.translation.chat import effort_tokens, output_schema, read_chat, tool_choice
from lyra.server.gateway.translation.messages import read_messages
from lyra.server.gateway.translation.reading import (
    Members,
    TranslatedConversation,
    cannot_carry,
    image_part,
    read_call,
    read_tool,
)

if TYPE_CHECKING:
    from lyra.server.gateway.request import GatewayRequest


# ---------------------------------------------------------------- responses
# Reads requests for OpenAI's Responses API. Nothing is stored: what refers to an earlier response is refused.


def read_responses(data: dict[str, Any]) -> Request:
    """The Request; ConfigError for what cannot be carried."""
    body = Members(data)
    conversation = TranslatedConversation()
    given = body.take("input")
    if isinstance(given, str):
        conversation.user(given)
    else:
        for item in body.objects("input"):
            _item(conversation, item)
    instructions = body.text("instructions")
    if instructions:
        conversation.system.insert(0, instructions)
    schema, name = _text_format(body.inside("text"))
    reasoning = body.inside("reasoning")
    effort = effort_tokens(reasoning.take("effort"))
    reasoning.skip("summary", "generate_summary")
    reasoning.end()
    parallel = body.take("parallel_tool_calls")
    request = Request(
        model=body.text("model"),
        messages=conversation.messages(),
        system="\n\n".join(conversation.system),
        tools=tuple(_tool(tool) for tool in body.objects("tools")),
        tool_choice=tool_choice(body.take("tool_choice")),
        parallel_tools=parallel is not False,
        max_tokens=body.whole("max_output_tokens"),
        temperature=body.number("temperature"),
        top_p=body.number("top_p"),
        output_schema=schema,
        output_name=name,
        thinking_tokens=effort,
    )
    body.skip("stream", "stream_options", "store", "metadata", "user", "include", "safety_identifier")
    body.skip("prompt_cache_key", "prompt_cache_retention", "prompt_cache_options")
    body.skip_if("background", False)
    body.skip_if("truncation", "disabled")
    body.skip_if("service_tier", "auto", "default")
    body.end()
    return request


def _item(conversation: TranslatedConversation, item: Members) -> None:
    kind = item.text("type") or "message"
    if kind == "message":
        _message(conversation, item)
    elif kind == "function_call":
        conversation.assistant("", [read_call(item.text("call_id"), item.text("name"), item.take("arguments"))])
    elif kind == "function_call_output":
        output = item.take("output")
        parts = output if isinstance(output, str) else [_part(part) for part in item.objects("output")]
        conversation.result(item.text("call_id"), parts)
    elif kind != "reasoning":  # thoughts of another provider's model mean nothing to this one
        raise cannot_carry(f"an item of type {kind!r}")


def _message(conversation: TranslatedConversation, item: Members) -> None:
    role, content = item.text("role"), item.take("content")
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else _parts(item)
    if role in ("system", "developer"):
        conversation.system.append("".join(str(part.get("text", "")) for part in parts))
    elif role == "assistant":
        conversation.assistant(parts)
    elif role == "user":
        conversation.user(parts)
    else:
        raise cannot_carry(f"a message of role {role!r}")


def _parts(item: Members) -> list[dict[str, Any]]:
    return [_part(part) for part in item.objects("content")]


def _part(part: Members) -> dict[str, Any]:
    kind, url = part.text("type"), part.text("image_url")
    if kind in ("input_text", "output_text", "text"):
        content = {"type": "text", "text": part.text("text")}
    elif kind == "input_image" and url:
        content = image_part(url)
    else:
        raise cannot_carry(f"a part of type {kind!r}")
    part.skip("detail", "annotations", "logprobs")
    part.end()
    return content


def _tool(tool: Members) -> Any:
    if tool.text("type") != "function":
        raise cannot_carry("a tool that is no function")
    declared = read_tool(tool.text("name"), tool.text("description"), tool.take("parameters"))
    tool.skip("strict")
    tool.end()
    return declared


def _text_format(text: Members) -> tuple[dict[str, Any] | None, str]:
    given = text.inside("format")
    text.skip_if("verbosity", "medium")
    text.end()
    kind = given.text("type")
    if kind in ("", "text"):
        return None, "answer"
    if kind == "json_schema":
        return output_schema(given)
    raise cannot_carry(f"a format of type {kind!r}")


class TranslatedRequest:
    """`limit` is a bound of the answer in place of the request's own."""

    __slots__ = ("_data", "_translation", "request")

    def __init__(self, given: GatewayRequest, model: str, limit: int | None) -> None:
        translation = TRANSLATIONS.get(given.format.name)
        if translation is None:
            raise cannot_carry(f"a request for {given.format.name}")
        self._translation = translation
        self._data = given.data()
        request = translation.read(self._data)
        changes = {} if limit is None else {"max_tokens": limit}
        self.request = msgspec.structs.replace(request, model=model, **changes)

    def writer(self, word: str, now: float) -> VendorAnswerWriter:
        """A writer of one answer."""
        return self._translation.writer(AnswerHead(str(self._data["model"]), word, int(now)), self._data)


# ---------------------------------------------------------------- formats
# The table of translated formats: who reads the request, who writes the answer.


class Translation(NamedTuple):
    """`writer` gets the head of the answer and the body of the request."""

    read: Callable[[dict[str, Any]], Request]
    writer: Callable[[AnswerHead, dict[str, Any]], VendorAnswerWriter]


def _chat_writer(head: AnswerHead, data: dict[str, Any]) -> VendorAnswerWriter:
    options = data.get("stream_options")
    return ChatWriter(head, with_usage=isinstance(options, dict) and options.get("include_usage") is True)


TRANSLATIONS: Final[dict[str, Translation]] = {
    "chat": Translation(read_chat, _chat_writer),
    "messages": Translation(read_messages, lambda head, _: MessagesWriter(head)),
    "responses": Translation(read_responses, lambda head, _: ResponsesWriter(head)),
}
