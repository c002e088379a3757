"""What is known of the files of a map, kept in a file between two maps: outlines by path, time and size.

The file lies in a folder of the user. One that cannot be read, or that another version or other grammars wrote, counts
as empty; it is replaced whole, so that two sessions in one folder never read half of it. The symbols of a file stay
encoded until it is shown: ranking needs the names alone, and decoding all of them would take longer than everything
else.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final

import msgspec

from lyra._version import __version__
from lyra.sage.project.repo_map.grammar_outline import LANGUAGES, is_installed
from lyra.sage.project.repo_map.outline import FileOutline
from lyra.sage.project.repo_map.symbol import MapSymbol

MEMBER_MARK: Final = "\x01"  # before the name of a member of a class

_FORMAT: Final = 1
_BYTES_MAX: Final = 512 << 20


class CachedOutline(msgspec.Struct, array_like=True):
    """The outline of one file; names and mentions are joined by blanks."""

    modified_ns: int
    size_bytes: int
    names: str = ""
    mentions: str = ""
    encoded: bytes = b""

    @classmethod
    def of(cls, modified_ns: int, size_bytes: int, outline: FileOutline) -> CachedOutline:
        symbols = outline.symbols
        return cls(
            modified_ns,
            size_bytes,
            " ".join(f"{MEMBER_MARK}{symbol.name}" if symbol.depth else symbol.name for symbol in symbols),
            " ".join(sorted(outline.mentions)),
            msgspec.msgpack.encode(symbols) if symbols else b"",
        )

    @property
    def symbols(self) -> list[MapSymbol]:
        return msgspec.msgpack.decode(self.encoded, type=list[MapSymbol]) if self.encoded else []


class _CacheFile(msgspec.Struct, array_like=True):
    made_by: str
    outlines: dict[str, CachedOutline]


class OutlineCache:
    """The outlines of one folder; without a path they are not kept."""

    def __init__(self, path: str = "", *, parsers: bool = True) -> None:
        self._path = path
        self._made_by = _made_by() if parsers else f"patterns {_FORMAT} {__version__}"
        self.outlines: dict[str, CachedOutline] = self._load() if path else {}

    def _load(self) -> dict[str, CachedOutline]:
        try:
            if os.stat(self._path).st_size > _BYTES_MAX:
                return {}
            with open(self._path, "rb") as file:
                kept = msgspec.msgpack.decode(file.read(), type=_CacheFile)
        except (OSError, msgspec.MsgspecError, ValueError):
            return {}
        return kept.outlines if kept.made_by == self._made_by else {}

    def save(self) -> None:
        """Write the file; a map does not fail where that is not possible."""
        if not self._path:
            return
        temporary = f"{self._path}.{os.getpid()}"
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(descriptor, "wb") as file:
                file.write(msgspec.msgpack.encode(_CacheFile(self._made_by, self.outlines)))
            os.replace(temporary, self._path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _made_by() -> str:
    grammars = ",".join(name for name in LANGUAGES if is_installed(name))
    return f"{_FORMAT} {__version__} {grammars}"
