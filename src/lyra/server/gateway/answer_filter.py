"""AnswerFilter: masks the keys of the server's providers in the bytes of an answer on their way to a client.

A provider may quote the key that it got, in an error inside a stream or anywhere else. Only whole keys are masked, in
their usual spellings and across the borders of pieces; every other byte passes as it came, and at most the beginning of
a key is held back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lyra.agents.turn.model_effect import StreamKeyFilter

if TYPE_CHECKING:
    from lyra.core.secrets.known_keys import KnownKeys


_BYTES_AS_TEXT: Final = "latin-1"  # a character for each byte; keys are sent in headers, so they are ASCII


class AnswerFilter:
    """One for each answer."""

    __slots__ = ("_filter",)

    def __init__(self, keys: KnownKeys) -> None:
        self._filter = StreamKeyFilter(keys)

    def feed(self, piece: bytes) -> bytes:
        """The bytes that can be passed on by now."""
        return self._filter.feed(piece.decode(_BYTES_AS_TEXT)).encode(_BYTES_AS_TEXT)

    def flush(self) -> bytes:
        """The bytes held back so far: no more comes."""
        return self._filter.flush().encode(_BYTES_AS_TEXT)

    def whole(self, body: bytes) -> bytes:
        """The bytes of a whole answer."""
        return self.feed(body) + self.flush()
