"""The FileState: what a path of the workspace is at one moment, and the safe way to look at it.

A state is a kind (absent, file, link, folder, special), a mode, and the content: the digest of a file's bytes or the
target of a link. Paths are opened below their workspace folder without following any symlink, so a path below a link
is absent: what lies behind the link is another path. Never writes anything.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from lyra.errors import CapabilityDenied
from lyra.sandbox.paths import Beneath

if TYPE_CHECKING:
    from collections.abc import Iterator


_O_PATH: Final = getattr(os, "O_PATH", os.O_RDONLY)
_ABSENT_ERRORS: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EXDEV})
_UNKEPT: Final = "~"  # begins the content of a file whose bytes are not kept; a digest has only hexadecimal digits


class FileState(msgspec.Struct, frozen=True, array_like=True):
    """`content`: of a file the digest of its bytes, or a text of its size and time where the bytes are not kept; of a
    link its target, in the form of `written_name`."""

    kind: str = "absent"
    mode: int = 0
    content: str = ""
    size: int = 0

    @property
    def is_kept(self) -> bool:
        """Whether this state can be brought back."""
        return self.kind != "special" and not (self.kind == "file" and self.content.startswith(_UNKEPT))

    @property
    def digest(self) -> str | None:
        """The name of the kept bytes, if the state has some."""
        return self.content if self.kind == "file" and self.is_kept else None


ABSENT: Final = FileState()


class StatSignature(NamedTuple):
    """While these stay the same, the content of a file is taken to be the same."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    mode: int


def signature_of(status: os.stat_result) -> StatSignature:
    return StatSignature(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_mode)


def state_without_content(status: os.stat_result) -> FileState:
    """The state as `lstat` tells it. The content of a file stands for its size and time; of a link it is empty."""
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISREG(status.st_mode):
        return FileState("file", mode, f"{_UNKEPT}{status.st_size}-{status.st_mtime_ns}", status.st_size)
    if stat.S_ISDIR(status.st_mode):
        return FileState("folder", mode)
    if stat.S_ISLNK(status.st_mode):
        return FileState("link")  # Linux has no modes of links
    return FileState("special", mode)


@contextmanager
def opened_parent(root: Beneath, path: str) -> Iterator[tuple[int, str]]:
    """A descriptor of the folder that a path lies in, and the name in it; FileNotFoundError where there is none, or
    where a symlink is on the way."""
    folder, name = os.path.split(path)
    try:
        parent = root.open(folder, _O_PATH | os.O_DIRECTORY, links=False)
    except CapabilityDenied:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None
    except OSError as error:
        if error.errno in _ABSENT_ERRORS:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None
        raise
    try:
        yield parent, name
    finally:
        os.close(parent)


def look_at(root: Beneath, path: str) -> os.stat_result | None:
    """The status of a path below a workspace folder; None where there is nothing."""
    try:
        if path == root.root:
            return os.stat(root.fd)
        with opened_parent(root, path) as (parent, name):
            return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except OSError as error:
        if error.errno in _ABSENT_ERRORS:
            return None
        raise


# ------------------------------------------------------------ names in the journal
def written_name(name: str) -> str:
    """A path or a link's target as text for the journal; bytes that are no UTF-8 are written in hexadecimal."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return "\0" + os.fsencode(name).hex()  # no path has a NUL
    return name


def read_name(text: str) -> str:
    return os.fsdecode(bytes.fromhex(text[1:])) if text.startswith("\0") else text
