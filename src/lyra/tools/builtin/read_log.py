"""Who has read which file, and what was in it: an edit of what nobody has read, or of what has changed, is refused.

Kept for each process (`lyra.core.tool.caller`), in memory. A process that was restarted after a crash has read nothing
again: it is told to read first, which is the safe answer.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from lyra.core.tool import caller
from lyra.errors import ToolError

__all__ = ["ReadLog"]

_ENTRIES_MAX: Final = 10_000


class ReadLog:
    """The newest `_ENTRIES_MAX` reads."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], bytes] = {}

    def note(self, path: str, data: bytes) -> None:
        key = (caller.get(), path)
        self._seen.pop(key, None)
        self._seen[key] = _digest(data)
        if len(self._seen) > _ENTRIES_MAX:
            del self._seen[next(iter(self._seen))]

    def check(self, path: str, data: bytes, shown: str) -> None:
        """Refuse unless this process knows what is in the file."""
        known = self._seen.get((caller.get(), path))
        if known is None:
            raise ToolError(f"{shown} has not been read", hint="use Read first", reason="not_read")
        if known != _digest(data):
            raise ToolError(f"{shown} has changed since it was read", hint="use Read again", reason="changed")


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()
