"""Removes API keys that this process knows from what a model says.

Models are never told a key. If one appears in an answer all the same, it is masked before it reaches the stream, the
journal or a tool's arguments. `StreamKeyFilter` does so for text in pieces (it holds back an end that may be the
beginning of a key), `redact_keys` for a whole answer.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lyra.core.secrets.secret import MASK
from lyra.core.tool import ToolCall
from lyra.models.stream import Completion

__all__ = ["StreamKeyFilter", "redact_keys"]


class StreamKeyFilter:
    """A filter for text in pieces; `known` are the keys, the longest first."""

    __slots__ = ("_held", "_known")

    def __init__(self, known: tuple[str, ...]) -> None:
        self._known = known
        self._held = ""

    def feed(self, piece: str) -> str:
        """The text that can be passed on by now."""
        text = _clean(self._held + piece, self._known)
        held = max((_key_start(text, key) for key in self._known), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def flush(self) -> str:
        """The text held back so far: no more comes, so it is not the beginning of a key."""
        rest, self._held = self._held, ""
        return rest


def _key_start(text: str, key: str) -> int:
    """How many characters at the end of the text may be the beginning of this key."""
    start = text.find(key[0], max(0, len(text) - len(key) + 1))
    while start >= 0:
        if key.startswith(text[start:]):
            return len(text) - start
        start = text.find(key[0], start + 1)
    return 0


def redact_keys(completion: Completion, known: tuple[str, ...]) -> Completion:
    """The answer with known keys masked; the same object where there is none in it."""
    message = completion.message
    content = _without(message.content, known)
    calls = tuple(_call(call, known) for call in message.tool_calls)
    if content == message.content and calls == message.tool_calls:
        return completion
    clean = msgspec.structs.replace(message, content=content, tool_calls=calls)
    return msgspec.structs.replace(completion, message=clean)


def _call(call: ToolCall, known: tuple[str, ...]) -> ToolCall:
    return msgspec.structs.replace(call, arguments=_without(call.arguments, known))


def _without(value: Any, known: tuple[str, ...]) -> Any:
    if isinstance(value, str):
        return _clean(value, known)
    if isinstance(value, dict):
        return {_without(key, known): _without(item, known) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_without(item, known) for item in value)
    return value


def _clean(text: str, known: tuple[str, ...]) -> str:
    for key in known:
        if key in text:
            text = text.replace(key, MASK)
    return text
