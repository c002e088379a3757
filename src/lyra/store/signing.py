"""A database store that signs what it writes with the user's key, and refuses to read what is not signed.

`sign_with(signer)` switches that on; before, and with None, a store reads and writes as if there were no signatures.
From then on each append is signed in the statement that writes it, so that no crash comes between rows and signature.
What a kernel reads to bring processes back is checked before it is given out: the snapshot, then the rows after it; so
is a journal from its first row on. Rows that the snapshot covers are history, which `check` looks at. A snapshot is
checked again before it is replaced, so that a change made while a kernel runs is not signed by that kernel. `standing`
decides which stores are signed; `signature` says what a signature covers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

from lyra.errors import Conflict, Tampered
from lyra.store.migrations import signature_crc
from lyra.store.protocol import Record, Snapshot
from lyra.store.rows import Batch, compute_unsigned_crc, find_forged, seal, sign_batches, span, unseal
from lyra.store.signature import BEGINNING, ChainReader, ChapterWriter, JournalEnd, Signatures, Signer, is_same
from lyra.store.sql import INSERT_BATCH, Head, Row, SqlStore

RowAfter = tuple[float, str, str, bytes]  # time, pid, kind and data of a row that gets the next number

_SIGNATURE: Final = "SELECT key_id, seq, link, code, crc FROM signatures"


class _SnapshotSignature(NamedTuple):
    """The one row of the table `signatures`: the key, and the signature of the snapshot at row `seq`."""

    key_id: str
    seq: int
    link: bytes
    code: bytes


class StoreContents(NamedTuple):
    """The snapshot, the rows after it, and a hash of both."""

    snapshot: Snapshot
    rows: list[Record]
    fingerprint: bytes


class SigningStore(SqlStore):
    """The rules of signatures, for both databases."""

    own_signer: Signer | None = None  # of this store, in place of the user's key
    _signatures: Signatures | None = None
    _key_id = ""
    _writer: ChapterWriter | None = None  # of the chapter that this object writes
    _next_writer: ChapterWriter | None = None  # the same, once the append that is under way is in the store
    _end: JournalEnd | None = None  # as this object left it
    _anchor: JournalEnd | None = None  # where the snapshot ends that was loaded last
    _reader: ChainReader | None = None  # of the newest reading of rows after it
    _boundary = 0  # the last row when the snapshot was loaded: after it a chapter begins

    # ------------------------------------------------------------ what each driver implements
    @abstractmethod
    def file_id(self) -> str:
        """Return the id of the store that this one is in: its own, unless several share a file."""

    @abstractmethod
    def keys_of_file(self) -> set[str]:
        """Return the ids of the keys that sign the stores of this file which hold something; "" for one that is not
        signed."""

    # ------------------------------------------------------------ switching it on
    def sign_with(self, signer: Signer | None) -> None:
        """Sign what is written and check what is read from now on; None does neither."""
        self._writer = self._next_writer = self._end = self._anchor = self._reader = None
        self._boundary = 0
        self._signatures = None if signer is None else signer.for_store(*self._list_signed_names())
        self._key_id = "" if signer is None else signer.key_id

    def _list_signed_names(self) -> tuple[str | int, ...]:
        """Return what tells this store from every other one."""
        return tuple(self.identity())

    def get_signing_key(self) -> str:
        """Return the id of the key that signs this store; "" where none does."""
        return self._signature().key_id if self._has_signatures else ""

    def holds_nothing(self) -> bool:
        """Return whether no row was ever written: then no signature can be missing."""
        head = self._head()
        return head.last_seq == 0 and head.states == 0

    def begin_signing(self, epoch: int) -> None:
        """Sign the empty store: everything that is written from now on is signed."""
        with self._writing():
            self._fence(epoch)
            assert self.holds_nothing()
            self._put_signature(0, BEGINNING, {})

    def contents(self) -> StoreContents:
        """Return what a kernel reads when it opens the store, as it is at one moment, whatever its signatures say."""
        with self._reading():
            head, states = self._snapshot()
            batches = self._batches(head.snapshot_seq + 1, head.last_seq)
        rows = [row for batch in batches for row in self._unseal(batch) if row.seq > head.snapshot_seq]
        return StoreContents(Snapshot(head.snapshot_seq, states), rows, _fingerprint(head, states, batches))

    def _batches(self, first: int, last: int) -> list[Row]:
        batches: list[Row] = []
        while first <= last:
            page = self._page(first, last)
            if not page:
                raise self._corrupt(f"journal row {first} is missing")
            batches += page
            first = page[-1][0] + page[-1][1]
        return batches

    def _unseal(self, batch: Row) -> list[Record]:
        rows = unseal(batch)
        if rows is None:
            raise self._corrupt(f"{span(batch, batch[0])} not what was written")
        return rows

    def sign_all(self, epoch: int, fingerprint: bytes, more: Sequence[RowAfter] = ()) -> None:
        """Write `more` rows and sign every row and state; Conflict unless those that were there are still the
        `contents` with this fingerprint, which the caller has shown to a person."""
        signatures = self._signatures
        assert signatures is not None
        with self._writing():
            self._fence(epoch)
            head, states = self._snapshot()
            batches = self._batches(head.first_seq, head.last_seq)
            tail = [batch for batch in batches if batch[0] + batch[1] - 1 > head.snapshot_seq]
            if _fingerprint(head, states, tail) != fingerprint:
                raise Conflict(f"{self.location} was changed since its rights were listed", hint="list them again")
            if more:
                added = seal([(head.last_seq + number, *row) for number, row in enumerate(more, 1)])
                self._run_many(INSERT_BATCH, added)
                batches += added
            covered, tail = self._split_batches(batches, head.snapshot_seq)
            link = self._sign_chapter(covered, signatures, BEGINNING)
            self._sign_chapter(tail, signatures, link)
            self._put_signature(head.snapshot_seq, link, states)
        self._writer = self._end = self._anchor = self._reader = None

    def _sign_chapter(self, batches: Sequence[Row], signatures: Signatures, link: bytes) -> bytes:
        """Sign batches as they stand; gives the code of the last one."""
        writer = ChapterWriter(signatures, link)
        for batch in batches:
            self._unseal(batch)
            seq, count, data = batch[:3]
            plain: Batch = (seq, count, data, compute_unsigned_crc(seq, count, data), None)
            ((_, _, _, crc, signature),) = sign_batches([plain], writer)
            self._run("UPDATE journal SET crc = ?, signature = ? WHERE seq = ?", (crc, signature, seq))
        return writer.code

    # ------------------------------------------------------------ journal
    def _sign(self, batches: list[Batch]) -> list[Batch]:
        """Return the batches of an append, signed where this store is."""
        if self._signatures is None:
            return batches
        last_seq = batches[0][0] - 1
        writer, self._writer = self._writer, None  # where the append fails, the next one begins a chapter
        if writer is None or self._end is None or self._end.last != last_seq:
            writer = ChapterWriter(self._signatures, self._code_at(last_seq))
        self._next_writer = writer
        if len(batches) > 1:
            return sign_batches(batches, writer)
        seq, count, data, crc, _ = batches[0]
        signature = writer.sign(data)
        return [(seq, count, data, crc32(signature, crc), signature)]

    def _wrote(self, last_seq: int) -> None:
        """Note that the append is in the store."""
        writer = self._next_writer
        if writer is not None:
            self._writer, self._next_writer = writer, None
            self._end = JournalEnd(last_seq, writer.code)

    def _chain_from(self, first: int) -> ChainReader | None:
        if self._signatures is None:
            return None
        if self._reader is not None and self._reader.stands_before(first):
            return self._reader
        if first == 1:
            return ChainReader(self._signatures, BEGINNING, end=self._end)
        if self._anchor is None or first <= self._anchor.last:
            return None
        self._reader = self._reader_at(first)
        return self._reader

    def _reader_at(self, first: int) -> ChainReader:
        """Return a reader that has checked the rows between the snapshot and row `first`."""
        if self._signature().seq != (self._anchor.last if self._anchor else -1):  # it was saved again since
            self.load_snapshots()
        assert self._signatures is not None
        assert self._anchor is not None
        reader = ChainReader(self._signatures, self._anchor.code, end=self._end, after=self._anchor.last)
        while not reader.stands_before(first):
            batches = self._page(reader.last + 1, first - 1)
            other = reader.first_forged(batches)
            if other is not None or not batches:
                raise self._make_tampered_error(f"rows before journal row {first} are not what was signed", first)
        return reader

    def _code_at(self, seq: int) -> bytes:
        """Return the code of the batch that ends with row `seq`; with an unknown one the store does not pass the next
        time."""
        known = self._find_code(seq)
        if known is not None:
            return known
        signature = self._signature()
        if signature.seq == seq:
            return signature.link
        return b"".join(bytes(batch[4] or b"") for batch in self._page(seq, seq))[-len(BEGINNING) :]

    def _find_code(self, seq: int) -> bytes | None:
        """Return the code of the batch that ends with row `seq`, where this object has read or written it."""
        if self._end is not None and self._end.last == seq:
            return self._end.code
        return self._reader.code if self._reader is not None and self._reader.last == seq else None

    # ------------------------------------------------------------ snapshots
    def _check_snapshot(self, head: Head, states: dict[str, bytes]) -> None:
        if self._signatures is None:
            return
        link = self._link_of(head.snapshot_seq, states)
        self._anchor = JournalEnd(head.snapshot_seq, link)
        self._reader = ChainReader(self._signatures, link, end=self._end, after=head.snapshot_seq)
        self._writer = None  # the next append begins a chapter, so that a snapshot may end here
        self._boundary = head.last_seq

    def _link_of(self, seq: int, states: Mapping[str, bytes]) -> bytes:
        """Return the code of the last batch that the snapshot covers; Tampered where it is not of these states at
        `seq`."""
        assert self._signatures is not None
        if seq == 0 and not states:
            return BEGINNING  # there is no snapshot; the rows themselves are signed from the first one on
        signature = self._signature()
        code = self._signatures.sign_snapshot(seq, signature.link, states)
        if signature.key_id != self._key_id or signature.seq != seq or not is_same(code, signature.code):
            raise self._make_tampered_error(f"the snapshot at row {seq} is not the one that was signed")
        return signature.link

    def _sign_snapshot(self, seq: int, changes: Mapping[str, bytes | None]) -> None:
        if self._signatures is None:
            return
        head, states = self._snapshot()
        link = self._link_of(head.snapshot_seq, states)
        if seq != head.snapshot_seq:
            code = self._find_code(seq) if seq == self._boundary else None
            link = self._begin_chapter_after(seq, head, link) if code is None else code
        new = {pid: data for pid, data in {**states, **changes}.items() if data is not None}
        self._put_signature(seq, link, new)

    def _begin_chapter_after(self, seq: int, head: Head, link: bytes) -> bytes:
        """Sign the batches anew, in a chapter that ends with row `seq` and one that begins there; gives the code in
        between. A kernel needs it never: it saves a snapshot where it loaded one."""
        assert self._signatures is not None
        batches = self._batches(head.snapshot_seq + 1, head.last_seq)
        other = ChainReader(self._signatures, link, end=self._end).first_forged(batches)
        if other is not None:
            raise self._make_tampered_error(f"{span(other, seq)} not what was signed", other[0])
        covered, tail = self._split_batches(batches, seq)
        code = self._sign_chapter(covered, self._signatures, link)
        self._sign_chapter(tail, self._signatures, code)
        self._writer = self._end = self._reader = None
        return code

    def _split_batches(self, batches: Sequence[Row], seq: int) -> tuple[list[Row], list[Row]]:
        """Return the batches up to row `seq`, and those after it; one that has rows on both sides becomes two."""
        parted: list[Row] = []
        for batch in batches:
            rows = self._unseal(batch) if batch[0] <= seq < batch[0] + batch[1] - 1 else []
            if rows:
                halves = [*seal(rows[: seq + 1 - batch[0]]), *seal(rows[seq + 1 - batch[0] :])]
                self._run("DELETE FROM journal WHERE seq = ?", (batch[0],))
                self._run_many(INSERT_BATCH, halves)
                parted += halves
            else:
                parted.append(batch)
        count = sum(batch[0] <= seq for batch in parted)
        return parted[:count], parted[count:]

    def _signature(self) -> _SnapshotSignature:
        key_id, seq, link, code, crc = self._single(_SIGNATURE, "signatures")
        if not isinstance(link, bytes) or not isinstance(code, bytes) or signature_crc(key_id, seq, link, code) != crc:
            raise self._corrupt("its record of signatures is damaged")
        return _SnapshotSignature(key_id, seq, link, code)

    def _put_signature(self, seq: int, link: bytes, states: Mapping[str, bytes]) -> None:
        assert self._signatures is not None
        values = (self._key_id, seq, link, self._signatures.sign_snapshot(seq, link, states))
        self._run(
            "UPDATE signatures SET key_id = ?, seq = ?, link = ?, code = ?, crc = ? WHERE id = 1",
            (*values, signature_crc(*values)),
        )

    # ------------------------------------------------------------ care
    def _check_signatures(self) -> list[str]:
        if self._has_signatures:
            self._signature()
        return [] if self._signatures is None else self.check_signatures()

    def check_signatures(self) -> list[str]:
        """Return what is not as it was signed with this key, as sentences."""
        signatures = self._signatures
        assert signatures is not None
        with self._reading():
            head, states = self._snapshot()
            try:
                link = self._link_of(head.snapshot_seq, states)
            except Tampered as error:
                return [error.message]
            before = ChainReader(signatures, BEGINNING if head.first_seq == 1 else None)
            after = ChainReader(signatures, link)
            return [
                *find_forged(self._page, head.first_seq, head.snapshot_seq, before),
                *find_forged(self._page, head.snapshot_seq + 1, head.last_seq, after),
            ]


def _fingerprint(head: Head, states: Mapping[str, bytes], batches: Sequence[Row]) -> bytes:
    """Return a hash of a snapshot and the batches after it, without their signatures."""
    content = [head.snapshot_seq, sorted(states.items()), [list(batch[:3]) for batch in batches]]
    return blake2b(msgspec.msgpack.encode(content), digest_size=32).digest()
