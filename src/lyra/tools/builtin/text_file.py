"""Reads and writes text files; encoding, byte order mark and line endings are kept.

`TextFile.of(bytes)` reads UTF-8, UTF-16 with its mark, and as a last resort latin-1; bytes with NULs are no text. A
file whose lines all end in CRLF is shown with LF and written back with CRLF; one with both is left exactly as it is.
"""

from __future__ import annotations

import codecs
from hashlib import blake2b
from typing import Final, NamedTuple

from lyra.core.tool import caller
from lyra.errors import ToolError

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class TextFile(NamedTuple):
    """`text` has LF even if `crlf` is set; `mark` is the byte order mark of the file."""

    text: str
    encoding: str = "utf-8"
    mark: bytes = b""
    crlf: bool = False

    @classmethod
    def of(cls, data: bytes, path: str) -> TextFile:
        mark, encoding = next(((mark, name) for mark, name in _MARKS if data.startswith(mark)), (b"", ""))
        body = data[len(mark) :]
        if encoding != "utf-16-le" and encoding != "utf-16-be" and b"\0" in body:
            raise ToolError(f"{path} is not text", hint="it holds NUL bytes", reason="binary")
        text, encoding = _decoded(body, encoding)
        crlf = "\r\n" in text and text.count("\r\n") == text.count("\n")
        return cls(text.replace("\r\n", "\n") if crlf else text, encoding, mark, crlf)

    def encode(self, text: str, path: str) -> bytes:
        """The bytes of another text in this file's encoding and line endings."""
        if self.crlf:
            text = text.replace("\r\n", "\n").replace("\n", "\r\n")
        try:
            return self.mark + text.encode(self.encoding)
        except UnicodeEncodeError as error:
            raise ToolError(
                f"{path} is in {self.encoding}, which has no {text[error.start]!r}",
                hint="use characters of that encoding",
                reason="encoding",
            ) from None


def _decoded(body: bytes, encoding: str) -> tuple[str, str]:
    try:
        return body.decode(encoding or "utf-8"), encoding or "utf-8"
    except UnicodeDecodeError:
        if encoding.startswith("utf-16"):
            raise ToolError("it starts with a UTF-16 mark but is not valid UTF-16", reason="binary") from None
        return body.decode("latin-1"), "latin-1"


# ---------------------------------------------------------------- read log
# Which process has read which file: an edit of a file that it has not read, or that has changed since, is refused.

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
