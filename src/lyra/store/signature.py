"""Signatures: what only a kernel with the user's key can have written.

The journal is signed in chapters, a run of batches each. A batch's code is a message authentication code over the
store's id, the code of the last batch before its chapter, and all rows of the chapter up to and with its own. So a
batch that was changed, added, left out, moved, or copied from another store or another time does not pass, every batch
may be the last one that a crash left, and a reader needs one comparison for many batches. The snapshot has a code over
all its states and the code of the last batch that it covers, where a new chapter begins. A program that can write the
file but not read the key can only put back what was there before.

The codes of batches are BLAKE2b with a key, which gives the code so far in one pass at any point; what is signed as a
whole (snapshots, notes) has an HMAC with SHA-256, which is quicker for large data. 128 bits are kept of each. Nothing
here reads or writes a Store: `signing` applies the signatures. The user's key (`load_signer`) is 32 random bytes in the
file "store.key" in the folder of the user's own settings, which only this user may read. It is made once, when a store
is first opened; commands of agents cannot read it, because the sandbox hides files of that name. To use one store from
several machines, copy the file. Where there is no such folder, or nothing can be written there, there is no key, and
stores are not signed.
"""

from __future__ import annotations

import hmac
import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import msgspec

from lyra.core.ids import random_key
from lyra.core.user_folders import user_folder
from lyra.errors import ConfigError

_CODE_BYTES: Final = 16
BEGINNING: Final = bytes(_CODE_BYTES)  # represents the code of the batch before the first one

_encode: Final = msgspec.msgpack.Encoder().encode


class Signer:
    """The key of one user. `key_id` names it and tells nothing about it."""

    __slots__ = ("_key", "key_id")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.key_id = blake2b(key=key, digest_size=8, person=b"lyra key id").hexdigest()

    def derive(self, purpose: bytes) -> bytes:
        """Return a key for another purpose (at most 16 bytes name it), from which this key cannot be found."""
        return blake2b(key=self._key, digest_size=32, person=purpose).digest()

    def for_store(self, *names: str | int) -> Signatures:
        """Return the signatures of the store with these names; those of another store differ."""
        return Signatures(self._key, _encode([str(name).encode(errors="surrogatepass") for name in names]))


class Signatures:
    """Makes the signatures of one store and checks them."""

    __slots__ = ("_journal", "_notes", "_snapshots")

    def __init__(self, key: bytes, store: bytes) -> None:
        kinds = (b"lyra journal", b"lyra snapshot", b"lyra note")
        journal, self._snapshots, self._notes = (
            blake2b(store, key=key, digest_size=32, person=kind).digest() for kind in kinds
        )
        self._journal = blake2b(key=journal, digest_size=_CODE_BYTES)

    def chapter(self, code: bytes) -> blake2b:
        """Return a hash to feed with the batches of the chapter that follows the batch with this code. Its digest is
        the code of the last batch so far."""
        chapter = self._journal.copy()
        chapter.update(code)
        return chapter

    def sign_snapshot(self, seq: int, link: bytes, states: Mapping[str, bytes]) -> bytes:
        """Return the code of a snapshot; `link` is that of the last batch that it covers."""
        pids = sorted(states)
        content = _encode([seq, link, pids, [states[pid] for pid in pids]])
        return hmac.digest(self._snapshots, content, "sha256")[:_CODE_BYTES]

    def sign_note(self, data: bytes) -> bytes:
        return hmac.digest(self._notes, data, "sha256")[:_CODE_BYTES]


def is_same(code: bytes, other: object) -> bool:
    """Return whether a code that was computed is the one that the store holds."""
    return isinstance(other, bytes) and hmac.compare_digest(code, other)


class JournalEnd(msgspec.Struct, frozen=True):
    """The last row of the journal, and the code of its batch."""

    last: int
    code: bytes


class ChapterWriter:
    """Signs the batches of one chapter in order. The chapter follows the batch with the code `code`."""

    __slots__ = ("_begins", "_chapter", "code")

    def __init__(self, signatures: Signatures, code: bytes) -> None:
        self._chapter = signatures.chapter(code)
        self._begins = True
        self.code = code

    def sign(self, data: bytes) -> bytes:
        """Return the signature of the next batch: its code, and in the first batch of the chapter what that follows,
        before it. Where the batch is not written in the end, this object is of no use any more."""
        self._chapter.update(data)
        before, self.code = self.code, self._chapter.digest()
        if self._begins:
            self._begins = False
            return before + self.code
        return self.code


class ChainReader:
    """Checks batches in order. It begins after the batch with the code `code`, where a chapter has to begin; with None
    it takes the first chapter that comes, whatever that follows, and passes over the batches before it."""

    __slots__ = ("_chapter", "_data", "_end", "_first", "_signatures", "code", "last")

    def __init__(
        self, signatures: Signatures, code: bytes | None, *, end: JournalEnd | None = None, after: int = 0
    ) -> None:
        """`end` is what the owner of the store knows of the journal's end, `after` the row that the reading begins
        after."""
        self._signatures = signatures
        self._chapter: blake2b | None = None
        self._end = end
        self._data = b""  # of the last batch
        self._first = 0  # row of the last batch
        self.code = code
        self.last = after  # row that was checked

    def stands_before(self, seq: int) -> bool:
        """Return whether a reading that begins with row `seq` continues where this one is: after the last batch, or in
        it."""
        return self._first <= seq <= self.last + 1 if self._first else seq == self.last + 1

    def first_forged(self, batches: Sequence[Sequence[Any]]) -> Sequence[Any] | None:
        """Return the first of these batches, (seq, rows, data, crc, signature), that is not what was signed, if one is
        not. It stops where rows are missing between two of them."""
        chapter: list[Sequence[Any]] = []
        end = batches[0][0] - 1 if batches else 0
        for batch in batches:
            seq, count, data, _, signature = batch
            if seq != end + 1:
                break
            end += count
            if end <= self.last:  # a reading continues in the middle of the last batch
                if data != self._data:
                    return batch
                continue
            if signature and len(signature) == 2 * _CODE_BYTES:
                other = self._take(chapter)
                if other is not None or self.code not in (None, signature[:_CODE_BYTES]):
                    return other or batch
                chapter = []
                self._chapter = self._signatures.chapter(signature[:_CODE_BYTES])
            elif self._chapter is None:
                if self.code is None:
                    continue
                return batch
            chapter.append(batch)
        return self._take(chapter)

    def _take(self, chapter: Sequence[Sequence[Any]]) -> Sequence[Any] | None:
        """Continue to the end of these batches, all of one chapter."""
        if not chapter:
            return None
        assert self._chapter is not None
        before = self._chapter.copy()
        self._chapter.update(b"".join([batch[2] for batch in chapter]))
        code, end = self._chapter.digest(), chapter[-1]
        if not is_same(code, _code_of(end)):
            for batch in chapter:
                before.update(batch[2])
                if not is_same(before.digest(), _code_of(batch)):
                    return batch
            raise AssertionError("the last one differs")
        last = end[0] + end[1] - 1
        if self._end is not None and self._end.last == last and self._end.code != code:
            return end
        self.code, self._first, self.last, self._data = code, end[0], last, end[2]
        return None


def _code_of(batch: Sequence[Any]) -> bytes:
    return bytes(batch[4] or b"")[-_CODE_BYTES:]


FILE_NAME: Final = "store.key"
_HEX_DIGITS: Final = 64


def key_file() -> Path | None:
    """Return the path of the key, even if there is none yet; None for a user without a folder of settings."""
    folder = user_folder(os.environ)
    return None if folder is None else Path(folder, FILE_NAME)


def load_signer(*, make: bool = True) -> Signer | None:
    """Return the user's key, made if there is none yet; None where there is none and none can be made."""
    path = key_file()
    if path is None:
        return None
    key = _read(path)
    if key is None and make:
        with suppress(OSError):  # a folder that cannot be written: there is no key
            _make(path)
        key = _read(path)
    return None if key is None else Signer(key)


def _read(path: Path) -> bytes | None:
    """Read the key in the file; None where there is no file that this user may read."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(_HEX_DIGITS + 2).strip()
    except OSError:
        return None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(
            f"{path} may be read or written by other users", hint=f"make it private: chmod 600 {path}", key=str(path)
        )
    try:
        key = bytes.fromhex(text.decode("ascii")) if len(text) == _HEX_DIGITS else b""
    except ValueError:
        key = b""
    if not key:
        raise ConfigError(
            f"{path} holds no key of {_HEX_DIGITS} hexadecimal digits",
            hint="restore it from a backup; without the file a new key is made, and stores have to be adopted again",
            key=str(path),
        )
    return key


def _make(path: Path) -> None:
    """Put a new key in its place, complete or not at all, unless another process has put one there first."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(random_key().hex().encode("ascii") + b"\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(new, path)
    finally:
        new.unlink(missing_ok=True)
