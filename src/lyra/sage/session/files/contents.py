"""Kept contents: bytes of files under their digest, each once.

Owns a folder `objects/ab/cdef…`. A content is complete when it has its name: it is written beside and renamed. The
digest is checked when a content is read, so that a damaged one is never put into a workspace. Where the file system
can, a large file is cloned (its blocks are shared until one copy changes); else it is copied. Never decides what is
kept or how long.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import stat
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from lyra.core.own_files import make_folder
from lyra.errors import Corrupt, StoreError, StoreFull

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

__all__ = ["KeptContents"]

_DIGEST_BYTES: Final = 20
_CHUNK_BYTES: Final = 1024 * 1024
_CLONE_LEAST_BYTES: Final = 128 * 1024  # a smaller file is copied as quickly
_FICLONE: Final = 0x40049409  # of linux/fs.h
_NEW_FILE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_count: Final = itertools.count()


class KeptContents:
    """`folder` is made at the first content. `size_bytes` counts what this object knows of: see `know`."""

    __slots__ = ("_sizes", "folder", "size_bytes")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.size_bytes = 0
        self._sizes: dict[str, int] = {}

    def know(self, digest: str, size: int) -> None:
        """Count a content that an earlier run has kept."""
        if digest not in self._sizes:
            self._sizes[digest] = size
            self.size_bytes += size

    def keep(self, source: int) -> tuple[str, int]:
        """Keep the bytes of an open file; their digest and number."""
        try:
            size = os.fstat(source).st_size
            if size >= _CLONE_LEAST_BYTES:
                return self._keep_large(source)
            data = _read_all(source)
            digest = blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()
            if not self._has(digest, len(data)):
                self._write(digest, data)
        except OSError as error:
            raise _store_error(error, self.folder) from error
        self.know(digest, len(data))
        return digest, len(data)

    def read(self, digest: str) -> bytes:
        """The bytes of a digest; Corrupt where they are missing or not those that were kept."""
        try:
            data = self._path(digest).read_bytes()
        except OSError as error:
            raise Corrupt(f"the kept content {digest[:12]} cannot be read: {error.strerror}", digest=digest) from error
        if blake2b(data, digest_size=_DIGEST_BYTES).hexdigest() != digest:
            raise Corrupt(f"the kept content {digest[:12]} is damaged", digest=digest)
        return data

    def sizes(self) -> dict[str, int]:
        """The number of bytes of each content."""
        return dict(self._sizes)

    def keep_only(self, digests: Collection[str]) -> None:
        """Remove all other contents, also those that a killed process has left behind."""
        for place, folders, files in os.walk(self.folder):
            folders.sort()
            for name in files:
                if os.path.basename(place) + name not in digests:
                    with suppress(FileNotFoundError):
                        os.unlink(os.path.join(place, name))
        self._sizes = {digest: size for digest, size in self._sizes.items() if digest in digests}
        self.size_bytes = sum(self._sizes.values())

    # ------------------------------------------------------------ files
    def _path(self, digest: str) -> Path:
        return self.folder / digest[:2] / digest[2:]

    def _has(self, digest: str, size: int) -> bool:
        if digest in self._sizes:
            return True
        try:
            status = os.stat(self._path(digest), follow_symlinks=False)
        except FileNotFoundError:
            return False
        return stat.S_ISREG(status.st_mode) and status.st_size == size

    def _new(self) -> tuple[int, Path]:
        beside = self.folder / f"new-{os.getpid()}-{next(_count)}"
        try:
            return os.open(beside, _NEW_FILE, 0o600), beside
        except FileNotFoundError:
            make_folder(self.folder, private=True)
        except FileExistsError:  # of an earlier process with this number, which was killed
            beside.unlink()
        return os.open(beside, _NEW_FILE, 0o600), beside

    def _place(self, beside: Path, digest: str) -> None:
        path = self._path(digest)
        try:
            os.rename(beside, path)
        except FileNotFoundError:
            make_folder(path.parent, private=True)
            os.rename(beside, path)

    def _write(self, digest: str, data: bytes) -> None:
        target, beside = self._new()
        try:
            with open(target, "wb", buffering=0) as file:
                file.write(data)
            self._place(beside, digest)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise

    def _keep_large(self, source: int) -> tuple[str, int]:
        target, beside = self._new()
        try:
            try:
                if not _clone(source, target):
                    _copy(source, target)
                digest, size = _digest_of(target)
            finally:
                os.close(target)
            if not self._has(digest, size):
                self._place(beside, digest)
        finally:
            beside.unlink(missing_ok=True)
        self.know(digest, size)
        return digest, size


def _clone(source: int, target: int) -> bool:
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:  # another file system, or one that cannot
        return False
    return True


def _copy(source: int, target: int) -> None:
    os.lseek(source, 0, os.SEEK_SET)
    while data := os.read(source, _CHUNK_BYTES):
        view = memoryview(data)
        while view:
            view = view[os.write(target, view) :]


def _digest_of(fd: int) -> tuple[str, int]:
    digest, size = blake2b(digest_size=_DIGEST_BYTES), 0
    os.lseek(fd, 0, os.SEEK_SET)
    while data := os.read(fd, _CHUNK_BYTES):
        digest.update(data)
        size += len(data)
    return digest.hexdigest(), size


def _read_all(fd: int) -> bytes:
    pieces = []
    while data := os.read(fd, _CHUNK_BYTES):
        pieces.append(data)
    return b"".join(pieces)


def _store_error(error: OSError, folder: Path) -> StoreError:
    kind = StoreFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StoreError
    return kind(f"a file's content cannot be kept in {folder}: {error.strerror}", place=str(folder))
