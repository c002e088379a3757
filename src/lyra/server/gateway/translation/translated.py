"""TranslatedRequest: a client's request in Lyra's own form, and the writer of its answer in the client's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lyra.models.answers import AnswerHead, ChatWriter, MessagesWriter, ResponsesWriter, VendorAnswerWriter
from lyra.models.provider import Request
from lyra.server.gateway.translation.chat import read_chat
from lyra.server.gateway.translation.messages import read_messages
from lyra.server.gateway.translation.reading import cannot_carry
from lyra.server.gateway.translation.responses import read_responses

if TYPE_CHECKING:
    from lyra.server.gateway.request import GatewayRequest


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
