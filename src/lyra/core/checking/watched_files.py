"""WatchedFiles: files that are read again when they change, each with the value of its last correct version.

Looking costs a `stat` for each file; a file is read when its size, time or identity has changed, in the caller's
thread. The caller lists the files and reads their bytes into a value or into mistakes. A file with a mistake keeps its
last correct value, and its mistakes say so. A file that `accept` refuses has no value, not even an earlier one: it asks
for something else now. There is no thread and no timer: nothing happens between two calls of `refresh`.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from lyra.core.checking.check import Mistake
from lyra.core.clock import Clock, loop_clock

Value = TypeVar("Value")
Stamp = tuple[int, ...]
Accept = Callable[[str, bytes], bool]

_SETTLED_S: Final = 2.0  # timestamps of file systems are coarse: two changes within one tick look like one
_NOT_ACCEPTED: Final = "it is not trusted as it is now, so it is left out; see `lyra trust show`"


@dataclass(slots=True)
class _WatchedFile(Generic[Value]):
    """The state of one file: its stamp, its content, its value (of the last correct version) and its mistakes."""

    stamp: Stamp | None = None
    settled: bool = False  # it was old enough when it was read that a later change must have another stamp
    data: bytes | None = None
    value: Value | None = None
    mistakes: tuple[Mistake, ...] = ()
    accepted: bool = False


@dataclass(slots=True)
class WatchedFiles(Generic[Value]):
    """`read` gives the value of a file's bytes and its mistakes; with a mistake there is none. `accept` is asked
    for the path and the content of each file that is read. `follow_links` False refuses a path that is a link."""

    read: Callable[[bytes, str], tuple[Value | None, Sequence[Mistake]]]
    bytes_max: int
    accept: Accept | None = None
    follow_links: bool = True
    clock: Clock = field(default_factory=loop_clock)
    _files: dict[str, _WatchedFile[Value]] = field(default_factory=dict)

    def refresh(self, paths: Sequence[str]) -> bool:
        """Look at these files and forget all others; True if a value or a mistake has changed."""
        changed = [self._look(path) for path in paths]
        wanted = set(paths)
        gone = [path for path in self._files if path not in wanted]
        for path in gone:
            del self._files[path]
        return any(changed) or bool(gone)

    def values(self) -> Iterator[tuple[str, Value]]:
        """Return the paths that have a value, in the order in which they were first listed."""
        return ((path, file.value) for path, file in self._files.items() if file.value is not None)

    def value(self, path: str) -> Value | None:
        file = self._files.get(path)
        return None if file is None else file.value

    def mistakes(self, path: str) -> tuple[Mistake, ...]:
        """Return the mistakes of a file; where an earlier version is used, they say so."""
        file = self._files.get(path)
        if file is None:
            return ()
        return tuple(_note_last_good(mistake) for mistake in file.mistakes) if file.value is not None else file.mistakes

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(self._files)

    @property
    def accepted(self) -> bool:
        """Whether a file was accepted, as of the last refresh."""
        return any(file.accepted for file in self._files.values())

    def _look(self, path: str) -> bool:
        """Read a file if it has changed; True if its value or mistakes have changed."""
        known = self._files.setdefault(path, _WatchedFile())
        try:
            stamp = _stamp(os.stat(path, follow_symlinks=self.follow_links))
            if stamp == known.stamp and known.settled:
                return False
            data, stamp = _read(path, self.bytes_max, self.follow_links)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            mistake = Mistake(path, 1, 1, f"it cannot be read: {reason}")
            known.stamp = known.data = None
            before, known.mistakes = known.mistakes, (mistake,)
            return before != known.mistakes
        known.stamp = stamp
        known.settled = self.clock.now() - max(stamp[:2]) / 1e9 > _SETTLED_S
        if data == known.data:
            return False
        known.data = data
        known.accepted = self.accept is None or self.accept(path, data)
        if not known.accepted:
            known.value, known.mistakes = None, (Mistake(path, 1, 1, _NOT_ACCEPTED),)
            return True
        value, mistakes = self.read(data, path)
        known.mistakes = tuple(mistakes)
        if not mistakes:
            known.value = value
        return True


def _note_last_good(mistake: Mistake) -> Mistake:
    return mistake._replace(message=f"{mistake.message}; its last good version is used")


def _stamp(state: os.stat_result) -> Stamp:
    return (state.st_mtime_ns, state.st_ctime_ns, state.st_size, state.st_ino, state.st_dev)


def read_plain_file(path: str, bytes_max: int, *, follow_links: bool = True) -> bytes:
    """Return the bytes of a plain file; OSError for one that is larger, for a pipe or a device, which is not waited
    for, and with `follow_links` False for a link."""
    return _read(path, bytes_max, follow_links)[0]


def _read(path: str, bytes_max: int, follow_links: bool) -> tuple[bytes, Stamp]:
    """Return a plain file's bytes and its stamp at that time."""
    link = 0 if follow_links else os.O_NOFOLLOW
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | link)
    with open(fd, "rb") as file:
        state = os.fstat(fd)
        if not stat.S_ISREG(state.st_mode):
            raise OSError(errno.EINVAL, "it is not a plain file")
        data = file.read(bytes_max + 1)
        if len(data) > bytes_max:
            raise OSError(errno.EFBIG, f"it has more than {bytes_max} bytes")
        return data, _stamp(state)
