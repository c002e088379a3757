"""A database store that signs what it writes with the user's key, and refuses to read what is not signed.

`sign_with(signer)` switches that on; before, and with None, a store reads and writes as if there were no signatures.
From then on each append is signed in the statement that writes it, so that no crash comes between rows and signature,
and each reading checks the rows it gives. A reading that begins where the snapshot ends, as a kernel's first one does,
is linked to the snapshot's signature; the snapshot is checked when it is loaded, and again before it is replaced, so
that a change made while a kernel runs is not signed by it. `standing` decides which stores are signed; `signature` says
what a signature covers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from lyra.errors import Conflict, Tampered
from lyra.store.batch import Batch, signed, unseal, unsigned_crc
from lyra.store.checksum import state_crc, total_of
from lyra.store.migrations import signature_crc
from lyra.store.protocol import Record, Snapshot
from lyra.store.rows import span, unsigned
from lyra.store.signature import BEGINNING, ChainPosition, ChainReader, Signatures, Signer, is_same
from lyra.store.sql import STATES, Row, SqlStore

__all__ = ["SigningStore", "StoreContents"]

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

    _signatures: Signatures | None = None
    _key_id = ""
    _written: ChainPosition | None = None  # the last batch that this object wrote
    _reader: ChainReader | None = None  # the newest reading that is linked to the snapshot

    # ------------------------------------------------------------ what each driver implements
    @abstractmethod
    def file_id(self) -> str:
        """The id of the store that this one is in: its own, unless several share a file."""

    @abstractmethod
    def keys_of_file(self) -> set[str]:
        """The ids of the keys that sign the stores of this file which hold something; "" for one that is not signed."""

    # ------------------------------------------------------------ switching it on
    def sign_with(self, signer: Signer | None) -> None:
        """Sign what is written and check what is read from now on; None does neither."""
        self._written = self._reader = None
        self._signatures = None if signer is None else signer.for_store(*self._signed_names())
        self._key_id = "" if signer is None else signer.key_id

    def _signed_names(self) -> tuple[str | int, ...]:
        """What tells this store from every other one."""
        return tuple(self.identity())

    def signed_by(self) -> str:
        """The id of the key that signs this store; "" where none does."""
        return self._signature().key_id if self._has_signatures else ""

    def holds_nothing(self) -> bool:
        """Whether no row was ever written: then no signature can be missing."""
        head = self._head()
        return head.last_seq == 0 and head.states == 0

    def begin_signing(self, epoch: int) -> None:
        """Sign the empty store: everything that is written from now on is signed."""
        with self._writing():
            self._fence(epoch)
            assert self.holds_nothing()
            self._put_signature(0, BEGINNING, {})

    def contents(self) -> StoreContents:
        """What a kernel reads when it opens the store, as it is at one moment, whatever its signatures say."""
        with self._reading():
            head = self._head()
            states = self._ask(self._readable(STATES))
            batches = self._batches(head.snapshot_seq + 1, head.last_seq)
        for pid, data, crc, signature in states:
            if not isinstance(data, bytes) or state_crc(pid, data, signature) != crc:
                raise self._corrupt("the saved state of a process is damaged")
        rows: list[Record] = []
        for batch in batches:
            rows += [row for row in self._unsealed(batch) if row.seq > head.snapshot_seq]
        snapshot = Snapshot(head.snapshot_seq, {pid: data for pid, data, _, _ in states})
        return StoreContents(snapshot, rows, _fingerprint(head.snapshot_seq, states, batches))

    def _batches(self, first: int, last: int) -> list[Row]:
        batches: list[Row] = []
        while first <= last:
            page = self._page(first, last)
            if not page:
                raise self._corrupt(f"journal row {first} is missing")
            batches += page
            first = page[-1][0] + page[-1][1]
        return batches

    def _unsealed(self, batch: Row) -> list[Record]:
        rows = unseal(batch)
        if rows is None:
            raise self._corrupt(f"{span(batch, batch[0])} not what was written")
        return rows

    def sign_all(self, epoch: int, fingerprint: bytes) -> None:
        """Sign every row and state; Conflict unless they are still the `contents` with this fingerprint, which the
        caller has shown to a person."""
        signatures = self._signatures
        assert signatures is not None
        with self._writing():
            self._fence(epoch)
            head = self._head()
            states = self._ask(STATES)
            batches = self._batches(head.first_seq, head.last_seq)
            tail = [batch for batch in batches if batch[0] + batch[1] - 1 > head.snapshot_seq]
            if _fingerprint(head.snapshot_seq, states, tail) != fingerprint:
                raise Conflict(f"{self.location} was changed since its rights were listed", hint="list them again")
            link = link_of_snapshot = BEGINNING
            for batch in batches:
                link = self._sign_again(batch, signatures, link)
                if batch[0] + batch[1] - 1 <= head.snapshot_seq:
                    link_of_snapshot = link
            codes = {pid: signatures.of_state(pid, data) for pid, data, _, _ in states}
            crcs = {pid: state_crc(pid, data, codes[pid]) for pid, data, _, _ in states}
            changes = [(crcs[pid], code, pid) for pid, code in codes.items()]
            self._run_many("UPDATE snapshots SET crc = ?, signature = ? WHERE pid = ?", changes)
            self._put_head(head._replace(states_total=total_of(0, added=sum(crcs.values()))))
            self._put_signature(head.snapshot_seq, link_of_snapshot, codes)
        self._written = self._reader = None

    def _sign_again(self, batch: Row, signatures: Signatures, link: bytes) -> bytes:
        """Sign a batch as it stands; gives its code."""
        self._unsealed(batch)
        seq, count, data = batch[:3]
        plain: Batch = (seq, count, data, unsigned_crc(seq, count, data), None)
        ((_, _, _, crc, signature),) = signed([plain], signatures, link)
        assert signature is not None
        self._run("UPDATE journal SET crc = ?, signature = ? WHERE seq = ?", (crc, signature, seq))
        return ChainPosition.of(seq, count, signature).code

    # ------------------------------------------------------------ journal
    def _signed(self, batches: list[Batch]) -> list[Batch]:
        """The batches of an append, signed where this store is."""
        if self._signatures is None:
            return batches
        last_seq = batches[0][0] - 1
        written = self._written
        link = written.code if written is not None and written.last == last_seq else self._link_before(last_seq + 1)
        return signed(batches, self._signatures, link)

    def _wrote(self, batches: list[Batch]) -> None:
        """The append is in the store."""
        seq, count, _, _, signature = batches[-1]
        if signature is not None:
            self._written = ChainPosition.of(seq, count, signature)

    def _chain_from(self, first: int) -> ChainReader | None:
        signatures = self._signatures
        if signatures is None:
            return None
        position = None if self._reader is None else self._reader.position
        link = BEGINNING if first == 1 else None if position is None else position.link_before(first)
        reader = ChainReader(signatures, link, position=position if link is not None else None, head=self._written)
        if link is not None:
            self._reader = reader
        return reader

    def _link_before(self, seq: int) -> bytes:
        """The code that the batch with row `seq` is linked to, or will be; Tampered where that cannot be told."""
        reader = self._reader
        for position in (None if reader is None else reader.position, self._written):
            link = None if position is None else position.link_before(seq)
            if link is not None:
                return link
        signature = self._signature()
        if seq == signature.seq + 1:
            return signature.link
        for batch in self._page(seq - 1, seq):
            position = self._position(batch)
            link = position.link_before(seq)
            if link is not None:
                return link
        raise self._tampered(f"journal row {seq} is linked to no other")

    def _position(self, batch: Row) -> ChainPosition:
        seq, count, data, _, signature = batch
        assert self._signatures is not None
        if unseal(batch) is None or not self._signatures.is_batch(None, seq, count, data, signature):
            raise self._tampered(f"{span(batch, seq)} not what was signed", seq)
        return ChainPosition.of(seq, count, signature)

    # ------------------------------------------------------------ snapshots
    def _state_signature(self, pid: str, data: bytes) -> bytes | None:
        return None if self._signatures is None else self._signatures.of_state(pid, data)

    def _check_snapshot(self, seq: int, rows: Sequence[Row]) -> None:
        signatures = self._signatures
        if signatures is None:
            return
        for pid, data, _, signature in rows:
            if not is_same(signatures.of_state(pid, data), signature):
                raise self._tampered(f"the saved state of process {pid} is not what was signed")
        signature = self._check_codes(seq, {pid: signature for pid, _, _, signature in rows})
        position = ChainPosition(seq + 1, b"", seq, signature.link)
        self._reader = ChainReader(signatures, signature.link, position=position)

    def _check_codes(self, seq: int, states: Mapping[str, bytes]) -> _SnapshotSignature:
        """The signature of the snapshot, once it is found to be that of these states at row `seq`."""
        assert self._signatures is not None
        signature = self._signature()
        code = self._signatures.of_snapshot(seq, signature.link, states)
        if signature.key_id != self._key_id or signature.seq != seq or not is_same(code, signature.code):
            raise self._tampered(f"the snapshot at row {seq} is not the one that was signed")
        return signature

    def _signed_states(self, seq: int) -> dict[str, bytes]:
        if self._signatures is None:
            return {}
        states = {pid: signature or b"" for pid, signature in self._ask("SELECT pid, signature FROM snapshots")}
        self._check_codes(seq, states)
        return states

    def _sign_snapshot(self, seq: int, states: Mapping[str, bytes]) -> None:
        if self._signatures is not None:
            self._put_signature(seq, self._link_before(seq + 1), states)

    def _signature(self) -> _SnapshotSignature:
        key_id, seq, link, code, crc = self._single(_SIGNATURE, "signatures")
        if not isinstance(link, bytes) or not isinstance(code, bytes) or signature_crc(key_id, seq, link, code) != crc:
            raise self._corrupt("its record of signatures is damaged")
        return _SnapshotSignature(key_id, seq, link, code)

    def _put_signature(self, seq: int, link: bytes, states: Mapping[str, bytes]) -> None:
        assert self._signatures is not None
        values = (self._key_id, seq, link, self._signatures.of_snapshot(seq, link, states))
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
        """Everything that is not what was signed with this key, as sentences."""
        assert self._signatures is not None
        head = self._head()
        try:
            self.load_snapshots()
            sentences = []
        except Tampered as error:
            sentences = [error.message]
        link = BEGINNING if head.first_seq == 1 else None
        return sentences + unsigned(self._page, head.first_seq, head.last_seq, ChainReader(self._signatures, link))


def _fingerprint(seq: int, states: Sequence[Row], batches: Sequence[Row]) -> bytes:
    """A hash of a snapshot and the batches after it, without their signatures."""
    digest = blake2b(str(seq).encode(), digest_size=32)
    for values in (*sorted(state[:2] for state in states), *(batch[:3] for batch in batches)):
        for value in values:
            data = value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass")
            digest.update(b"%d:" % len(data) + data)
    return digest.digest()
