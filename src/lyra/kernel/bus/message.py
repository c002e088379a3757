"""A message of the bus: a type, a payload, and whether to trust it."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lyra.core.checking.check import one_of, sendable_text
from lyra.core.envelope import Trust
from lyra.core.limits import NAME_LENGTH_MAX
from lyra.errors import ConfigError

CATEGORIES: Final[dict[str, str]] = {
    "event": "something happened; any number listen",
    "command": "do this; one handler",
    "query": "tell me this; one handler, one answer",
}
_TRUST: Final = tuple(word.value for word in Trust)


class BusMessage(msgspec.Struct, frozen=True, eq=False):
    """A message. It can be indexed like its payload (`message["key"]`), and equals its payload."""

    category: str
    type: str
    payload: Any = None
    trust: str = "trusted"  # or "untrusted": text from outside that may carry instructions of a third party
    id: str = ""
    timestamp: float = 0.0
    user_id: str = ""  # the user in whose name it was sent; "" where it is no user's

    def __getitem__(self, key: Any) -> Any:
        return self.payload[key]

    def __contains__(self, key: Any) -> bool:
        return key in self.payload

    def get(self, key: Any, default: Any = None) -> Any:
        return self.payload.get(key, default)

    def __eq__(self, other: object) -> bool:
        """Compare two messages by id, type and payload, and a message with any other value by its payload."""
        if isinstance(other, BusMessage):
            return self.id == other.id and self.type == other.type and bool(self.payload == other.payload)
        return bool(self.payload == other)

    def __hash__(self) -> int:
        return hash(self.id)


def checked_trust(word: Any) -> str:
    return word if word == "trusted" else str(one_of(word.lower() if isinstance(word, str) else word, _TRUST, "trust"))


def check_type(word: Any) -> None:
    if not isinstance(word, str) or not 0 < len(word) <= NAME_LENGTH_MAX:
        raise ConfigError(f"a message type is text of 1 to {NAME_LENGTH_MAX} characters, not {word!r}", key="type")
    sendable_text(word, "a message type")
