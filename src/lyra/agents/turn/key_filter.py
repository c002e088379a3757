"""What a model says, without the keys that this process knows.

No model is told one; one that says it all the same has it from somewhere it should not, and nobody is to read it: not
in the stream, not in the journal, not in what a tool is called with. `Veil` does it for text in pieces (it keeps back
an end that may be the beginning of a key), `veiled` for the whole answer. Other words stay as they are.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lyra.core.secrets.secret import MASK
from lyra.core.tool import ToolCall
from lyra.models.stream import Completion

__all__ = ["Veil", "veiled"]


class Veil:
    """Text in pieces; `known` are the keys, the longest first."""

    __slots__ = ("_held", "_known")

    def __init__(self, known: tuple[str, ...]) -> None:
        self._known = known
        self._held = ""

    def feed(self, piece: str) -> str:
        """What may be shown by now."""
        text = _clean(self._held + piece, self._known)
        kept = max((_begun(text, key) for key in self._known), default=0)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]

    def rest(self) -> str:
        """The end: no more comes, so it is the beginning of nothing."""
        rest, self._held = self._held, ""
        return rest


def _begun(text: str, key: str) -> int:
    """How many characters at the end may be the beginning of this key."""
    at = text.find(key[0], max(0, len(text) - len(key) + 1))
    while at >= 0:
        if key.startswith(text[at:]):
            return len(text) - at
        at = text.find(key[0], at + 1)
    return 0


def veiled(completion: Completion, known: tuple[str, ...]) -> Completion:
    """The same answer; as it is where no key is in it."""
    message = completion.message
    content = _without(message.content, known)
    calls = tuple(_call(call, known) for call in message.tool_calls)
    if content == message.content and calls == message.tool_calls:
        return completion
    said = msgspec.structs.replace(message, content=content, tool_calls=calls)
    return msgspec.structs.replace(completion, message=said)


def _call(call: ToolCall, known: tuple[str, ...]) -> ToolCall:
    return msgspec.structs.replace(call, arguments=_without(call.arguments, known))


def _without(value: Any, known: tuple[str, ...]) -> Any:
    if isinstance(value, str):
        return _clean(value, known)
    if isinstance(value, dict):
        return {_without(key, known): _without(each, known) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_without(each, known) for each in value)
    return value


def _clean(text: str, known: tuple[str, ...]) -> str:
    for key in known:
        if key in text:
            text = text.replace(key, MASK)
    return text
