"""The output of a command: its beginning and end in memory, all of it in a file when it is long.

`Capture` takes bytes as they come. Up to `kept_bytes` everything stays in memory; then a file is opened, everything
goes there, and only the first and the last half are kept. More than `most_bytes` is refused, and its owner ends the
command. Where the file cannot be written the middle is lost, and `Output.text` says so. With a `copy` all bytes go to
that file too, as they come: they are there also after the end of this program.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from dataclasses import dataclass
from typing import BinaryIO


@dataclass(frozen=True, slots=True)
class Output:
    """The printed bytes: `head` and `tail` (empty when nothing was left out), how many there were, and where."""

    head: bytes
    tail: bytes = b""
    total_bytes: int = 0
    file: str | None = None

    @property
    def left_out_bytes(self) -> int:
        return self.total_bytes - len(self.head) - len(self.tail)

    @property
    def text(self) -> str:
        """The output as text for a person or a model, with a note where something was left out."""
        head = self.head.decode("utf-8", "replace")
        if not self.left_out_bytes:
            return head + self.tail.decode("utf-8", "replace")
        where = f"; all of it is in {self.file}" if self.file else " and lost"
        note = f"\n… {self.left_out_bytes} bytes left out{where} …\n"
        return head + note + self.tail.decode("utf-8", "replace")


class Capture:
    """Collects the output of one stream."""

    def __init__(
        self,
        *,
        kept_bytes: int,
        most_bytes: int,
        folder: str | None = None,
        has_file: bool = True,
        copy: str | None = None,
    ) -> None:
        self._half = max(1, kept_bytes // 2)
        self._most = most_bytes
        self._folder = folder
        self._held = bytearray()  # everything, until there is a file; then the tail
        self._head = b""
        self._file: BinaryIO | None = None
        self._name: str | None = None
        self._lost = not has_file  # no file: only head and tail are kept
        self._copy = None if copy is None else _new_file(copy)
        self.total_bytes = 0

    def feed(self, data: bytes) -> bool:
        """Take output; False when that exceeded `most_bytes` (the part that fits is kept)."""
        room = self._most - self.total_bytes
        fits = len(data) <= room
        if not fits:
            data = data[: max(0, room)]
        self.total_bytes += len(data)
        if self._copy is not None:
            # Write it to the copy; where that fails the copy ends there.
            assert self._copy is not None
            try:
                _write_all(self._copy, data)
            except OSError:
                with contextlib.suppress(OSError):
                    self._copy.close()
                self._copy = None
        self._held += data
        if self._head:
            self._write(data)
            if len(self._held) > 4 * self._half:
                del self._held[: -self._half]
        elif len(self._held) > 2 * self._half:
            self._spill()
        return fits

    def _spill(self) -> None:
        self._head = bytes(self._held[: self._half])
        try:
            if self._lost:
                return
            fd, self._name = tempfile.mkstemp(prefix="lyra-output-", suffix=".txt", dir=self._folder)
            self._file = os.fdopen(fd, "wb", buffering=0)
            self._write(self._held)
        except OSError:
            self._lose()
        finally:
            del self._held[: -self._half]

    def _write(self, data: bytes | bytearray) -> None:
        """Write all of it; where that fails the file is removed, because it would be incomplete."""
        if self._file is None:
            return
        try:
            _write_all(self._file, data)
        except OSError:
            self._lose()

    def _lose(self) -> None:
        self._lost = True
        with contextlib.suppress(OSError):
            if self._file is not None:
                self._file.close()
        with contextlib.suppress(OSError):
            if self._name is not None:
                os.unlink(self._name)
        self._file = self._name = None

    def since(self, start: int, *, most_bytes: int) -> bytes:
        """Return the bytes from `start` on, at most `most_bytes`, read from the file where memory no longer has
        them."""
        if self._lost:
            begin = self.total_bytes - len(self._held)  # only the end is kept
            return bytes(self._held[max(0, start - begin) :][:most_bytes])
        if self._name is None:
            return bytes(self._held[start : start + most_bytes])
        with open(self._name, "rb") as file:
            file.seek(start)
            return file.read(most_bytes)

    def now(self) -> Output:
        """Return the output so far."""
        if not self._head:
            return Output(bytes(self._held), b"", self.total_bytes)
        return Output(self._head, bytes(self._held[-self._half :]), self.total_bytes, self._name)

    def close(self) -> Output:
        output = self.now()
        for file in (self._file, self._copy):
            if file is not None:
                with contextlib.suppress(OSError):
                    file.close()
        return output


def _new_file(path: str) -> BinaryIO | None:
    """Return a new file for its owner alone; None where there is one already, or it cannot be made."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.suppress(OSError):
        return os.fdopen(os.open(path, flags, 0o600), "wb", buffering=0)
    return None


def _write_all(file: BinaryIO, data: bytes | bytearray) -> None:
    with memoryview(data) as left:
        written = 0
        while written < len(left):
            written += file.write(left[written:])
