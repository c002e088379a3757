"""Kept contents: bytes of files under their digest, each once.

Owns a folder. A small content is appended to a pack, a file of many contents (`pack-1`, `pack-2`, …; each process
begins one of its own), because making a file takes longer than writing it. A large one is a file under its digest:
where the file system can, it is cloned (its blocks are shared until one copy changes), else copied, and gets its name
when it is complete. A torn end of a pack is ignored. The digest is checked when a content is read, so that a damaged
one is never put into a workspace. Never decides what is kept or how long.

A `pool` is a folder that all sessions share: a content that is kept `shared` is one file in it under its digest, and
the session has a hard link to that file. So the same content takes its room once, and the number of links says whether
a session still needs it (`remove_unused`).
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import struct
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from lyra.core.own_files import FULL_ERRNOS, make_folder
from lyra.errors import Corrupt, StoreError, StoreFull

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path


_DIGEST_BYTES: Final = 20
_CHUNK_BYTES: Final = 1024 * 1024
_LARGE_BYTES: Final = 128 * 1024  # such a content is its own file
_FICLONE: Final = 0x40049409  # of linux/fs.h
_NEW_FILE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_HEADER: Final = struct.Struct(f"<4s{_DIGEST_BYTES}sI")
_MAGIC: Final = b"LYC1"
_PACK: Final = "pack-"
_NEW: Final = "new-"
_PACKS_MAX: Final = 1_000_000
_LINK_TRIES: Final = 3
_count: Final = itertools.count()


class _Place(NamedTuple):
    """Where a content lies: a file in the folder, and the offset in it."""

    file: str
    offset: int
    size: int


class KeptContents:
    """`folder` is made at the first content, and read when it is needed first. `pool` is shared with other sessions."""

    __slots__ = ("_pack", "_pack_end", "_pack_name", "_places", "_size_bytes", "_used_pool", "folder", "pool")

    def __init__(self, folder: Path, pool: Path | None = None) -> None:
        self.folder = folder
        self.pool = pool
        self._used_pool = False
        self._size_bytes = 0
        self._places: dict[str, _Place] | None = None
        self._pack: int | None = None
        self._pack_name = ""
        self._pack_end = 0

    def close(self) -> None:
        if self._pack is not None:
            os.close(self._pack)
            self._pack = None
        if self._used_pool and self.pool is not None:
            remove_unused(self.pool)
            self._used_pool = False

    @property
    def size_bytes(self) -> int:
        """The bytes of all contents."""
        self._index()
        return self._size_bytes

    def sizes(self) -> dict[str, int]:
        """Return the number of bytes of each content."""
        return {digest: place.size for digest, place in self._index().items()}

    def keep(self, source: int, *, shared: bool = False) -> tuple[str, int]:
        """Keep the bytes of an open file, from its start; their digest and number. `shared`: in the pool."""
        try:
            if shared and self.pool is not None:
                digest, size = self._keep_shared(source, self.pool)
            elif os.fstat(source).st_size >= _LARGE_BYTES:
                digest, size = self._keep_large(source)
            else:
                data = _read_all(source)
                digest, size = blake2b(data, digest_size=_DIGEST_BYTES).hexdigest(), len(data)
                if digest not in self._index():
                    self._append(digest, data)
        except OSError as error:
            kind = StoreFull if error.errno in FULL_ERRNOS else StoreError
            raise kind(f"a file's content cannot be kept: {error.strerror}", place=str(self.folder)) from error
        return digest, size

    def read(self, digest: str) -> bytes:
        """Return the bytes of a digest; Corrupt where they are missing or not those that were kept."""
        place = self._index().get(digest)
        try:
            data = b"" if place is None else self._read_at(place)
        except OSError as error:
            raise Corrupt(f"the kept content {digest[:12]} cannot be read: {error.strerror}", digest=digest) from error
        if place is None or blake2b(data, digest_size=_DIGEST_BYTES).hexdigest() != digest:
            raise Corrupt(
                f"the kept content {digest[:12]} is {'missing' if place is None else 'damaged'}", digest=digest
            )
        return data

    def keep_only(self, digests: Collection[str]) -> None:
        """Remove all other contents, also those that a killed process has left behind."""
        index = {digest: place for digest, place in self._index().items() if digest in digests}
        packs = [name for name in os.listdir(self.folder) if name.startswith(_PACK)]
        self.close()
        self._places = {digest: place for digest, place in index.items() if not place.file.startswith(_PACK)}
        self._size_bytes = sum(place.size for place in self._places.values())
        files = {place.file for place in self._places.values()}
        for digest, place in index.items():
            if place.file.startswith(_PACK):
                self._append(digest, self._read_at(place))  # into a new pack; a damaged one stays damaged
        for name in os.listdir(self.folder):
            if name in packs or (name != self._pack_name and name not in files):
                with suppress(FileNotFoundError):
                    os.unlink(self.folder / name)

    def _index(self) -> dict[str, _Place]:
        if self._places is None:
            self._places = {}
            with suppress(FileNotFoundError):
                for name in sorted(os.listdir(self.folder)):
                    if name.startswith(_PACK):
                        self._places.update(self._pack_entries(name))
                    elif not name.startswith(_NEW):
                        self._places[name] = _Place(name, 0, os.stat(self.folder / name).st_size)
            self._size_bytes = sum(place.size for place in self._places.values())
        return self._places

    def _pack_entries(self, name: str) -> Iterator[tuple[str, _Place]]:
        """Yield the contents of a pack up to its end, or to where it is torn or damaged."""
        with open(self.folder / name, "rb") as file:
            end = os.fstat(file.fileno()).st_size
            offset = 0
            while len(header := file.read(_HEADER.size)) == _HEADER.size:
                magic, digest, size = _HEADER.unpack(header)
                offset += _HEADER.size
                if magic != _MAGIC or offset + size > end:
                    return
                yield digest.hex(), _Place(name, offset, size)
                offset += size
                file.seek(offset)

    def _read_at(self, place: _Place) -> bytes:
        fd = os.open(self.folder / place.file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.lseek(fd, place.offset, os.SEEK_SET)
            return _read_all(fd, place.size)
        finally:
            os.close(fd)

    def _append(self, digest: str, data: bytes) -> None:
        if self._pack is None:
            self._pack = self._new_pack()
            self._pack_end = 0
        _write_all(self._pack, _HEADER.pack(_MAGIC, bytes.fromhex(digest), len(data)) + data, self._pack_end)
        self._pack_end += _HEADER.size + len(data)
        self._add(digest, _Place(self._pack_name, self._pack_end - len(data), len(data)))

    def _add(self, digest: str, place: _Place) -> None:
        self._index()[digest] = place
        self._size_bytes += place.size

    def _new_pack(self) -> int:
        make_folder(self.folder, private=True)
        numbers = [int(name[len(_PACK) :]) for name in os.listdir(self.folder) if name.startswith(_PACK)]
        for number in range(max(numbers, default=0) + 1, _PACKS_MAX):
            self._pack_name = f"{_PACK}{number}"
            with suppress(FileExistsError):  # another process was quicker
                return os.open(self.folder / self._pack_name, _NEW_FILE, 0o600)
        raise OSError(errno.ENOSPC, "too many packs")

    def _keep_shared(self, source: int, pool: Path) -> tuple[str, int]:
        digest, size = _digest_of(source)
        if digest in self._index():
            return digest, size
        self._used_pool = True
        for folder in (self.folder, pool):
            make_folder(folder, private=True)
        for _ in range(_LINK_TRIES):
            try:
                os.link(pool / digest, self.folder / digest)
            except FileNotFoundError:  # no session has it, or the last one has just let it go
                beside, digest, size = _write_beside(source, pool)
                os.replace(beside, pool / digest)
                continue
            except FileExistsError:
                pass
            except OSError:  # a file system without links
                break
            self._add(digest, _Place(digest, 0, size))
            return digest, size
        return self._keep_large(source)

    def _keep_large(self, source: int) -> tuple[str, int]:
        make_folder(self.folder, private=True)
        beside, digest, size = _write_beside(source, self.folder)
        try:
            if digest not in self._index():
                os.rename(beside, self.folder / digest)
                self._add(digest, _Place(digest, 0, size))
        finally:
            beside.unlink(missing_ok=True)
        return digest, size


def remove_unused(pool: Path) -> None:
    """Remove the contents of a pool that no session links to any more."""
    with suppress(FileNotFoundError), os.scandir(pool) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.stat(follow_symlinks=False).st_nlink == 1 and not entry.name.startswith(_NEW):
                    os.unlink(entry.path)


def _write_beside(source: int, folder: Path) -> tuple[Path, str, int]:
    """Copy an open file to a new one in a folder; its path, digest and size."""
    beside = folder / f"{_NEW}{os.getpid()}-{next(_count)}"
    beside.unlink(missing_ok=True)  # of an earlier process with this number, which was killed
    target = os.open(beside, _NEW_FILE, 0o600)
    try:
        if not _clone(source, target):
            offset = 0
            while data := os.pread(source, _CHUNK_BYTES, offset):
                _write_all(target, data, offset)
                offset += len(data)
        return beside, *_digest_of(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    finally:
        os.close(target)


def _clone(source: int, target: int) -> bool:
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:  # another file system, or one that cannot
        return False
    return True


def _write_all(fd: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written


def _digest_of(fd: int) -> tuple[str, int]:
    digest, size = blake2b(digest_size=_DIGEST_BYTES), 0
    while data := os.pread(fd, _CHUNK_BYTES, size):
        digest.update(data)
        size += len(data)
    return digest.hexdigest(), size


def _read_all(fd: int, size: int | None = None) -> bytes:
    """Return the bytes from the present offset to the end, or so many."""
    pieces: list[bytes] = []
    rest = _CHUNK_BYTES if size is None else size
    while rest and (data := os.read(fd, min(rest, _CHUNK_BYTES))):
        pieces.append(data)
        rest = rest if size is None else rest - len(data)
    return b"".join(pieces)
