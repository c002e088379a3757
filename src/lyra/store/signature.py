"""Signatures: what only a kernel with the user's key can have written.

A batch of journal rows is signed by a message authentication code (BLAKE2b with a key) over the store's id, the code of
the batch before it, the sequence numbers and the rows: a batch that was changed, added, left out, moved, or copied from
another store or another time does not pass. The state of each process in the snapshot has a code of its own, and one
more covers the list of them, the snapshot's place and the chain up to it. A program that can write the file but
not read the key can only put back what was there before.

Nothing here reads or writes a Store or a key: `signing_key` has the key, `sql` applies the signatures.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from hmac import compare_digest
from struct import Struct
from typing import Final, NamedTuple

__all__ = ["BEGINNING", "ChainPosition", "ChainReader", "Signatures", "Signer", "is_same"]

_CODE_BYTES: Final = 16
BEGINNING: Final = bytes(_CODE_BYTES)  # stands for the code of the batch before the first one

_head: Final = Struct("<qq").pack
_size: Final = Struct("<q").pack


class Signer:
    """The key of one user. `key_id` names it and tells nothing about it."""

    __slots__ = ("_key", "key_id")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.key_id = blake2b(key=key, digest_size=8, person=b"lyra key id").hexdigest()

    def for_store(self, *names: str | int) -> Signatures:
        """The signatures of the store with these names; those of another store differ."""
        return Signatures(self._key, repr(names).encode(errors="surrogatepass"))


class Signatures:
    """Makes the signatures of one store and checks them."""

    __slots__ = ("_batch", "_note", "_snapshot", "_state")

    def __init__(self, key: bytes, store: bytes) -> None:
        kinds = (b"lyra batch", b"lyra state", b"lyra snapshot", b"lyra note")
        codes = [blake2b(_size(len(store)) + store, key=key, digest_size=_CODE_BYTES, person=kind) for kind in kinds]
        self._batch, self._state, self._snapshot, self._note = codes

    def of_batch(self, link: bytes, seq: int, count: int, data: bytes) -> bytes:
        """The signature of a batch: the code of the batch before it, and its own."""
        code = self._batch.copy()
        code.update(link + _head(seq, count))
        code.update(data)
        return link + code.digest()

    def of_state(self, pid: str, data: bytes) -> bytes:
        name = pid.encode(errors="surrogatepass")
        code = self._state.copy()
        code.update(_size(len(name)) + name)
        code.update(data)
        return code.digest()

    def of_snapshot(self, seq: int, link: bytes, states: Mapping[str, bytes]) -> bytes:
        """The code of a snapshot; `link` is that of the batch before the first row that it does not cover, `states` the
        signature of each state."""
        code = self._snapshot.copy()
        code.update(_size(seq) + _size(len(link)) + link + _size(len(states)))
        for pid in sorted(states):
            name, signature = pid.encode(errors="surrogatepass"), states[pid]
            code.update(_size(len(name)) + name + _size(len(signature)) + signature)
        return code.digest()

    def of_note(self, data: bytes) -> bytes:
        code = self._note.copy()
        code.update(data)
        return code.digest()

    def is_batch(self, link: bytes | None, seq: int, count: int, data: bytes, signature: bytes | None) -> bool:
        """Whether the batch is signed, and follows the batch with the code `link`; None leaves open which one."""
        if not signature or len(signature) != 2 * _CODE_BYTES:
            return False
        before = signature[:_CODE_BYTES]
        if link is not None and link != before:
            return False
        return compare_digest(self.of_batch(before, seq, count, data), signature)


def is_same(code: bytes, other: object) -> bool:
    """Whether a code that was computed is the one that the store holds."""
    return isinstance(other, bytes) and compare_digest(code, other)


class ChainPosition(NamedTuple):
    """A batch that was found signed in an unbroken chain: its first row, the code before it, its last row, its code."""

    first: int
    link: bytes
    last: int
    code: bytes

    @classmethod
    def of(cls, seq: int, count: int, signature: bytes) -> ChainPosition:
        """The position of a signed batch."""
        return cls(seq, signature[:_CODE_BYTES], seq + count - 1, signature[_CODE_BYTES:])

    def link_before(self, seq: int) -> bytes | None:
        """The code that the batch with row `seq` is linked to, where that follows from this position."""
        if seq == self.last + 1:
            return self.code
        return self.link if self.first <= seq <= self.last else None


class ChainReader:
    """Follows the chain through the batches of one reading.

    `position` is the last batch that is linked, batch by batch, to where the reading began; it stays None in a reading
    that begins in the middle of the journal. `head` is the last batch of the journal, where that is known.
    """

    __slots__ = ("_head", "_is_linked", "_link", "_signatures", "position")

    def __init__(
        self,
        signatures: Signatures,
        link: bytes | None,
        *,
        position: ChainPosition | None = None,
        head: ChainPosition | None = None,
    ) -> None:
        """`link` is the code that the first batch has to be linked to; None accepts any."""
        self._signatures = signatures
        self._link = link
        self._is_linked = link is not None
        self._head = head
        self.position = position

    def follows(self, seq: int, count: int, data: bytes, signature: bytes | None) -> bool:
        """Whether the next batch is signed and linked to the one before it."""
        last = seq + count - 1
        if self._signatures.is_batch(self._link, seq, count, data, signature):
            assert signature is not None
            code = signature[_CODE_BYTES:]
            if self._head is None or self._head.last != last or self._head.code == code:
                self._link = code
                if self._is_linked:
                    self.position = ChainPosition.of(seq, count, signature)
                return True
        self._link = None  # a reader that goes on looks at each later batch alone
        self._is_linked = False
        return False
