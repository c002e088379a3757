"""The FileState: what a path of the workspace is at one moment, and the safe way to look at it.

A state is a kind (absent, file, link, folder, special), a mode, and the content: the digest of a file's bytes or the
target of a link. Paths are opened below their workspace folder without following any symlink, so a path below a link is
absent: what lies behind the link is another path. Never writes anything. A FileChange is a file before and after, with
a diff for a person.
"""

from __future__ import annotations

import difflib
import errno
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from lyra.core.secrets.visible import visible
from lyra.errors import CapabilityDenied
from lyra.sandbox.paths import Beneath

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lyra.sage.session.files.contents import KeptContents


_O_PATH: Final = getattr(os, "O_PATH", os.O_RDONLY)
_ABSENT_ERRORS: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EXDEV})
_UNKEPT: Final = "~"  # begins the content of a file whose bytes are not kept; a digest has only hexadecimal digits


class FileState(msgspec.Struct, frozen=True, array_like=True):
    """`content`: of a file the digest of its bytes, or a text of its size and time where the bytes are not kept; of a
    link its target, in the form of `encode_name`."""

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
    """Return the state as `lstat` tells it. The content of a file represents its size and time; of a link it is
    empty."""
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISREG(status.st_mode):
        return FileState("file", mode, f"{_UNKEPT}{status.st_size}-{status.st_mtime_ns}", status.st_size)
    if stat.S_ISDIR(status.st_mode):
        return FileState("folder", mode)
    if stat.S_ISLNK(status.st_mode):
        return FileState("link")  # Linux has no modes of links
    return FileState("special", mode)


@contextmanager
def open_parent(root: Beneath, path: str) -> Iterator[tuple[int, str]]:
    """Yield a descriptor of the folder that a path lies in, and the name in it; FileNotFoundError where there is none,
    or where a symlink is on the way."""
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
    """Return the status of a path below a workspace folder; None where there is nothing."""
    try:
        if path == root.root:
            return os.stat(root.fd)
        with open_parent(root, path) as (parent, name):
            return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except OSError as error:
        if error.errno in _ABSENT_ERRORS:
            return None
        raise


def encode_name(name: str) -> str:
    """Return a path or a link's target as text for the journal; bytes that are no UTF-8 are written in hexadecimal."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return "\0" + os.fsencode(name).hex()  # no path has a NUL
    return name


def read_name(text: str) -> str:
    return os.fsdecode(bytes.fromhex(text[1:])) if text.startswith("\0") else text


_DIFF_BYTES_MAX: Final = 1024 * 1024
_DIFF_LINES_MAX: Final = 20_000
_BINARY_LOOK_BYTES: Final = 8_000


class FileChange:
    """`path` is absolute; `name` is how it is shown. `kind`: created, modified or deleted."""

    __slots__ = ("_contents", "after_state", "before_state", "name", "path")

    def __init__(
        self, path: str, before: FileState, after: FileState, contents: KeptContents, *, name: str = ""
    ) -> None:
        self.path = path
        self.name = name or path
        self.before_state = before
        self.after_state = after
        self._contents = contents

    def __repr__(self) -> str:
        return f"FileChange({self.kind} {self.path!r})"

    @property
    def kind(self) -> str:
        if not _is_shown(self.before_state):
            return "created"
        return "modified" if _is_shown(self.after_state) else "deleted"

    @property
    def is_of_a_file(self) -> bool:
        """Whether a file or a link was or is there; a change of folders alone has no content."""
        return _is_shown(self.before_state) or _is_shown(self.after_state)

    @property
    def before(self) -> bytes | None:
        """The bytes before; of a link its target; None where there was no file or its bytes are not kept."""
        return self._bytes(self.before_state)

    @property
    def after(self) -> bytes | None:
        return self._bytes(self.after_state)

    def _bytes(self, state: FileState) -> bytes | None:
        if state.kind == "link":
            return os.fsencode(read_name(state.content))
        return None if state.digest is None else self._contents.read(state.digest)

    def diff(self) -> str:
        """Return a unified diff, with a line each for changes of the mode or of the kind."""
        before, after = self.before_state, self.after_state
        name = visible(self.name)
        lines = []
        if before.kind != after.kind and before.kind != "absent" and after.kind != "absent":
            lines.append(f"{name}: a {before.kind} became a {after.kind}")
        elif before.kind == after.kind and before.mode != after.mode:
            lines.append(f"{name}: mode {before.mode:03o} became {after.mode:03o}")
        if before.content != after.content or before.kind != after.kind:
            lines += self._content_lines(name)
        return "".join(f"{line}\n" for line in lines)

    def _content_lines(self, name: str) -> list[str]:
        states = (self.before_state, self.after_state)
        if not all(state.is_kept for state in states):
            return [f"{name}: the content is not kept"]
        if max(state.size for state in states) > _DIFF_BYTES_MAX:
            return [f"{name}: the files are too large to be compared"]
        old, new = (self._bytes(state) or b"" for state in states)
        if old == new:
            return [f"{name}: {self.kind}, empty"] if not old and self.kind != "modified" else []
        if _is_binary(old) or _is_binary(new):
            return [f"{name}: binary files differ"]
        sides = [_lines(old), _lines(new)]
        if max(map(len, sides)) > _DIFF_LINES_MAX:
            return [f"{name}: the files have too many lines to be compared"]
        old_name = f"a/{name}" if _is_shown(states[0]) else "/dev/null"
        new_name = f"b/{name}" if _is_shown(states[1]) else "/dev/null"
        return list(difflib.unified_diff(sides[0], sides[1], old_name, new_name, lineterm=""))


def _is_shown(state: FileState) -> bool:
    return state.kind in ("file", "link", "special")


def _is_binary(data: bytes) -> bool:
    return b"\0" in data[:_BINARY_LOOK_BYTES]


def _lines(data: bytes) -> list[str]:
    """Return the lines, each safe to be printed; a file that does not end with a line end has a mark in its last
    one."""
    text = data.decode("utf-8", "replace")
    lines = visible_lines(text.removesuffix("\n")).split("\n") if text else []
    if text and not text.endswith("\n"):
        lines[-1] += "\n\\ No newline at end of file"
    return lines


def visible_lines(text: str) -> str:
    """Return the text with its line ends and tabs, and all other characters that a person cannot see as their codes."""
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "\n".join("\t".join(map(visible, line.split("\t"))) for line in text.split("\n"))
