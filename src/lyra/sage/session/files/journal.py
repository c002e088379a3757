"""The journal of snapshots: one JSON array a line, only ever appended.

Owns `journal.jsonl` in the folder of a session's files. A content is kept before the line that names it is written, so
every complete line can be relied on after a crash at any point. A torn last line is ignored, and the next append begins
on a new line. One process writes at a time (a lock); any number may read. Never interprets the lines: `snapshots` does.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from lyra.core.own_files import FULL_ERRNOS, make_folder
from lyra.errors import Conflict, StoreError, StoreFull
from lyra.sage.session.files.state import FileState, StatSignature

JOURNAL_FILE: Final = "journal.jsonl"


class _Line(msgspec.Struct, frozen=True, array_like=True):
    pass


class Seen(_Line, frozen=True, tag="seen"):
    """A path that was looked at for the first time, or a folder that is listed from now on or no longer."""

    path: str
    state: FileState
    signature: StatSignature | None
    is_listed: bool


class Changed(_Line, frozen=True, tag="changed"):
    """A path became another. `by`: agent (a tool or command), restore (this module), other (any other hand)."""

    path: str
    by: str
    before: FileState
    after: FileState
    signature: StatSignature | None
    is_listed: bool


class TurnBegun(_Line, frozen=True, tag="turn"):
    turn: int
    time: float


class Marked(_Line, frozen=True, tag="mark"):
    """A checkpoint; `automatic`: made before a restore, so that it can be taken back."""

    name: str
    turn: int
    time: float
    automatic: bool


class Begun(_Line, frozen=True, tag="begun"):
    """A tool call or a restore that may change files has begun. `path`: the one file, or "" for any."""

    token: int
    path: str
    by: str


class Settled(_Line, frozen=True, tag="settled"):
    token: int


class Dropped(_Line, frozen=True, tag="dropped"):
    """Contents that only the lines before this many `turn` lines name are no longer kept."""

    turns_begun: int


JournalLine = Seen | Changed | TurnBegun | Marked | Begun | Settled | Dropped
_decoder: Final = msgspec.json.Decoder(JournalLine)
_encode: Final = msgspec.json.Encoder().encode


class SnapshotJournal:
    """`folder` is made at the first line."""

    __slots__ = ("_fd", "_is_torn", "folder", "path")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / JOURNAL_FILE
        self._fd: int | None = None
        self._is_torn = False

    def read(self) -> Iterator[JournalLine]:
        """All complete lines; one that cannot be read is left out."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return
        for line in data.split(b"\n")[:-1]:
            try:
                yield _decoder.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue  # torn by a crash, or of another version

    def append(self, lines: Iterable[JournalLine]) -> None:
        """Append lines; they are in the file when this returns, and survive the end of the process."""
        data = b"".join([_encode(line) + b"\n" for line in lines])
        if not data:
            return
        try:
            fd = self._open()
            view = memoryview(b"\n" + data if self._is_torn else data)
            self._is_torn = True
            while view:
                view = view[os.write(fd, view) :]
            self._is_torn = False
        except OSError as error:
            kind = StoreFull if error.errno in FULL_ERRNOS else StoreError
            raise kind(f"{self.path} cannot be written: {error.strerror}", place=str(self.path)) from error

    def _open(self) -> int:
        if self._fd is None:
            make_folder(self.folder, private=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(self.path, flags, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                size = os.fstat(fd).st_size
                self._is_torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
            except BlockingIOError:
                os.close(fd)
                raise Conflict(
                    "the files of this session are in use by another process", hint="close it first"
                ) from None
            except BaseException:
                os.close(fd)
                raise
            self._fd = fd
        return self._fd

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
