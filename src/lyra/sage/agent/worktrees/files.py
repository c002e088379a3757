"""The files of a folder as they are at one moment: read without following links out of it, copied, compared, written.

`FileAt` is one file: its content, or where a link leads, and whether it can be run. `Manifest` is what a worktree had
when it was made: a digest of each file, and where its content can be had again. Files are read by descriptor below
their folder (`lyra.sandbox.paths`), so a link that is swapped in leads nowhere. Only plain files and links count.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import os
import stat
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from lyra.core.secrets.visible import visible
from lyra.errors import ConfigError, LyraError
from lyra.sage.session.files.state import visible_lines
from lyra.sandbox.paths import Beneath

FILE_BYTES_MAX: Final = 50 << 20  # of one file; larger ones are left out of a worktree
FILES_MAX: Final = 100_000
_BYTES_MAX: Final = 4 << 30  # of all files together
_LINK: Final = "120000"
_O_PATH: Final = getattr(os, "O_PATH", os.O_RDONLY)


class FileAt(NamedTuple):
    """`mode` is git's: 100644, 100755, or 120000 for a link, whose target is its data."""

    data: bytes
    mode: str

    @property
    def is_link(self) -> bool:
        return self.mode == _LINK

    @property
    def digest(self) -> str:
        return f"{self.mode} {hashlib.sha256(self.data).hexdigest()}"


class ManifestEntry(msgspec.Struct, array_like=True, frozen=True):
    """`digest` is that of the FileAt; `object_id` is git's for the content, empty where the base folder has it;
    `stamp` tells whether the copy was touched since."""

    digest: str
    object_id: str
    stamp: tuple[int, int, int]


class Manifest(msgspec.Struct):
    files: dict[str, ManifestEntry] = {}
    left_out: list[str] = []  # too large, or no plain file

    def save(self, path: Path) -> None:
        """Write it whole or not at all."""
        beside = path.with_name(f"{path.name}.new")
        beside.write_bytes(msgspec.msgpack.encode(self))
        beside.replace(path)

    @classmethod
    def load(cls, path: Path) -> Manifest:
        try:
            return msgspec.msgpack.decode(path.read_bytes(), type=Manifest)
        except FileNotFoundError:
            raise ConfigError(f"{path} is gone, so what the worktree started with is not known") from None
        except msgspec.MsgspecError as error:
            raise ConfigError(f"{path} cannot be read: {error}") from None


def read_file(root: str, path: str) -> FileAt | None:
    """Return a file below a folder; None where there is none, or no plain file or link, or one that is too large."""
    with Beneath(root) as folder:
        try:
            return _read(folder, path)
        except (OSError, LyraError):
            return None


def _read(folder: Beneath, path: str) -> FileAt | None:
    parent = folder.open(os.path.dirname(path) or ".", _O_PATH | os.O_DIRECTORY)
    try:
        name = os.path.basename(path)
        state = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISLNK(state.st_mode):
            return FileAt(os.fsencode(os.readlink(name, dir_fd=parent)), _LINK)
        if not stat.S_ISREG(state.st_mode) or state.st_size > FILE_BYTES_MAX:
            return None
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
        with open(fd, "rb") as file:
            opened = os.fstat(fd)
            data = file.read(FILE_BYTES_MAX + 1)
            if not stat.S_ISREG(opened.st_mode) or len(data) > FILE_BYTES_MAX:
                return None
            return FileAt(data, "100755" if opened.st_mode & stat.S_IXUSR else "100644")
    finally:
        os.close(parent)


def stamp_of(root: str, path: str) -> tuple[int, int, int]:
    """Return what changes whenever a file is written or replaced."""
    with contextlib.suppress(OSError):
        state = os.lstat(os.path.join(root, path))
        return state.st_ino, state.st_size, state.st_ctime_ns
    return 0, 0, 0


def copy_files(
    source: str, target: str, base: Path, tracked: dict[str, tuple[str, str]], untracked: Iterable[str]
) -> Manifest:
    """Copy files of a folder into a new one, as they are now. Content that git does not have goes to `base`, too."""
    manifest, total_bytes = Manifest({}, []), 0
    paths = list(dict.fromkeys((*tracked, *untracked)))
    if len(paths) > FILES_MAX:
        raise ConfigError(f"{source} has {len(paths)} files; a worktree has at most {FILES_MAX}", place=source)
    links: list[tuple[str, FileAt]] = []
    with Beneath(source) as folder:
        for path in paths:
            file = _read_or_none(folder, path)
            if file is None:
                if os.path.lexists(os.path.join(source, path)):
                    manifest.left_out.append(path)
                continue
            total_bytes += len(file.data)
            if total_bytes > _BYTES_MAX:
                raise ConfigError(f"{source} is larger than a worktree may be, {_BYTES_MAX >> 30} GiB", place=source)
            if file.is_link:
                links.append((path, file))
                continue
            whole = os.path.join(target, path)
            os.makedirs(os.path.dirname(whole), exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(whole, flags, 0o777 if file.mode == "100755" else 0o666), "wb") as copy:
                copy.write(file.data)
            manifest.files[path] = entry_of(target, path, file, base, tracked.get(path, ("", ""))[1])
    for path, file in links:  # last: no file is written through one
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(os.path.join(target, path)), exist_ok=True)
            os.symlink(os.fsdecode(file.data), os.path.join(target, path))
            manifest.files[path] = entry_of(target, path, file, base, tracked.get(path, ("", ""))[1])
    return manifest


def _read_or_none(folder: Beneath, path: str) -> FileAt | None:
    try:
        return _read(folder, path)
    except (OSError, LyraError):
        return None


def entry_of(root: str, path: str, file: FileAt, base: Path, object_id: str) -> ManifestEntry:
    """Return the entry of a file; its content is kept in `base` unless it is git's object of that id."""
    algorithm = hashlib.sha256 if len(object_id) == 64 else hashlib.sha1
    known = object_id and algorithm(b"blob %d\0" % len(file.data) + file.data).hexdigest() == object_id
    if not known:
        kept = base / file.digest.replace(" ", "-")
        if not kept.exists():
            kept.write_bytes(file.data)
    return ManifestEntry(file.digest, object_id if known else "", stamp_of(root, path))


# ---------------------------------------------------------------- changes

_DIFF_BYTES_MAX: Final = 1 << 20  # of one side; a larger file is only counted
_CONTEXT_LINES: Final = 3

Merged = Callable[[bytes, bytes, bytes], Awaitable[bytes | None]]


class WorktreeChange(NamedTuple):
    """One file that differs between two moments, shown as a diff; and how three versions of it are merged. `before` and
    `after` are None where the file is not there."""

    path: str
    before: FileAt | None
    after: FileAt | None

    @property
    def kind(self) -> str:
        return "created" if self.before is None else "deleted" if self.after is None else "modified"

    @property
    def name(self) -> str:
        """The path as it is shown."""
        return visible(self.path)

    def diff(self) -> str:
        """Return the unified diff, every character visible; a sentence for what cannot be shown as text."""
        old, new = (_text(side) for side in (self.before, self.after))
        if old is None or new is None:
            sizes = " → ".join("none" if side is None else f"{len(side.data)} bytes" for side in self[1:])
            return f"{self.name}: not shown as text, {sizes}\n"
        names = (
            "/dev/null" if self.before is None else f"a/{self.name}",
            "/dev/null" if self.after is None else f"b/{self.name}",
        )
        lines = difflib.unified_diff(old, new, *names, n=_CONTEXT_LINES)
        text = "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
        return f"{self._modes()}{text}"

    def _modes(self) -> str:
        if self.before is None or self.after is None or self.before.mode == self.after.mode:
            return ""
        return f"{self.name}: mode {self.before.mode} → {self.after.mode}\n"

    @property
    def counts(self) -> tuple[int, int]:
        """Lines added and removed."""
        old, new = (_text(side) or [] for side in (self.before, self.after))
        lines = list(difflib.unified_diff(old, new, n=0))[2:]
        return sum(line[:1] == "+" for line in lines), sum(line[:1] == "-" for line in lines)


def _text(file: FileAt | None) -> list[str] | None:
    """Return the lines of a side; None where it is no text, or too long to be compared."""
    if file is None:
        return []
    if len(file.data) > _DIFF_BYTES_MAX or b"\0" in file.data:
        return None
    try:
        text = file.data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    shown = visible_lines(f"link to {text}" if file.is_link else text)
    return [f"{line}\n" for line in shown.split("\n")[:-1]] + [line for line in shown.split("\n")[-1:] if line]


class Merge(NamedTuple):
    """What to write (`file`; None: remove it). `done`: nothing is to be done. `conflict`: why it cannot be."""

    file: FileAt | None = None
    done: bool = False
    conflict: str = ""


async def merge_of(change: WorktreeChange, now: FileAt | None, *, committed: bool, merged: Merged | None) -> Merge:
    """Return how a change is taken over where the project has `now`. Without `merged` no texts are merged. `committed`:
    what the project has now is in its last commit; changes that are not are left alone."""
    before, after = change.before, change.after
    if now == after:
        return Merge(done=True)
    if now == before:
        return Merge(after)
    if merged is None or not committed:
        return Merge(conflict="it has changed in the project since" + ("" if committed else ", and is not committed"))
    if before is None or after is None or now is None:
        return Merge(conflict="it was removed on one side and changed on the other, or added on both")
    if before.is_link or after.is_link or now.is_link:
        return Merge(conflict="a link was changed on both sides")
    text = await merged(now.data, before.data, after.data)
    if text is None:
        return Merge(conflict="both sides have changed the same lines")
    mode = after.mode if after.mode != before.mode else now.mode
    return Merge(FileAt(text, mode))
