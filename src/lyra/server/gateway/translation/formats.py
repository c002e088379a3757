"""The table of translated formats: who reads the request, who writes the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from lyra.models.answers import AnswerHead, ChatWriter, MessagesWriter, ResponsesWriter, VendorAnswerWriter
from lyra.models.provider import Request
from lyra.server.gateway.translation.chat import read_chat
from lyra.server.gateway.translation.messages import read_messages
from lyra.server.gateway.translation.responses import read_responses


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
