"""TranslatedRequest: a client's request in Lyra's own form, and the writer of its answer in the client's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lyra.models.answers import AnswerHead, VendorAnswerWriter
from lyra.server.gateway.translation.formats import TRANSLATIONS
from lyra.server.gateway.translation.reading import cannot_carry

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
