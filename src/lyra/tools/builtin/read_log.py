"""Which process has read which file: an edit of a file that it has not read, or that has changed since, is refused.

Kept for each process (`lyra.core.tool.caller`), in memory. The log of a process that
was restarted after a crash is empty: it has to read again, which is the safe answer.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from lyra.core.tool import caller
from lyra.errors import ToolError

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
