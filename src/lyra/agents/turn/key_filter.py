"""Removes API keys that this process knows from what a model says.

Models are never told a key. If one appears in an answer all the same, it is masked before it reaches the stream or the
journal. `StreamKeyFilter` does so for text in pieces (it holds back an end that may be the beginning of a key),
`redact_keys` for a whole answer. A tool call with a key in its arguments is marked `masked`, which is not run: with
`***` in place of the key it would be another call than the one that the model made.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lyra.core.secrets.known_keys import KnownKeys
from lyra.core.tool import ToolCall
from lyra.models.stream import Completion


class StreamKeyFilter:
    """A filter for text in pieces."""

    __slots__ = ("_held", "_keys")

    def __init__(self, keys: KnownKeys) -> None:
        self._keys = keys
        self._held = ""

    def feed(self, piece: str) -> str:
        """The text that can be passed on by now."""
        text = self._keys.mask_whole(self._held + piece)
        held = self._keys.length_held(text)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def flush(self) -> str:
        """The text held back so far: no more comes, so it is not the beginning of a key."""
        rest, self._held = self._held, ""
        return rest


def redact_keys(completion: Completion, keys: KnownKeys) -> Completion:
    """The answer with known keys masked; the same object where there is none in it."""
    message = completion.message
    if not keys.holds(message.content) and not any(keys.holds(call.arguments) for call in message.tool_calls):
        return completion
    content = _without(message.content, keys)
    calls = tuple(_call(call, keys) for call in message.tool_calls)
    clean = msgspec.structs.replace(message, content=content, tool_calls=calls)
    return msgspec.structs.replace(completion, message=clean)


def _call(call: ToolCall, keys: KnownKeys) -> ToolCall:
    if not keys.holds(call.arguments):
        return call
    return msgspec.structs.replace(call, arguments=_without(call.arguments, keys), masked=True)


def _without(value: Any, keys: KnownKeys) -> Any:
    if isinstance(value, str):
        return keys.mask_whole(value)
    if isinstance(value, dict):
        return {_without(key, keys): _without(item, keys) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_without(item, keys) for item in value)
    return value
