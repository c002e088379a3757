"""Rows as a database store keeps them, checked so that damage raises an error instead of giving a wrong value.

Every row on disk carries a CRC-32 over all its other columns, its own key included, so a row that was altered, swapped
with another or read from an older copy of its page does not pass. Blobs are named by a 256-bit digest of their content
instead. A checksum finds accidents; a program that can write the file can write its checksums too, but not what
`signature` makes. Journal rows that were committed together are one batch: one msgpack array under one checksum,
because a database charges by the row and a busy kernel commits a hundred at a time. `seal` makes batches,
`sign_batches` signs them, `unseal` gives the rows back or None.

`scan` walks a journal page by page, checks each batch's checksum and that no sequence number is missing, and only then
applies the caller's filters: a filter pushed down into the database would quietly drop the very rows that are
damaged. Pages are short reads, so a reader that pauses holds no transaction open and never keeps a write-ahead log
from shrinking. `faults` is the same walk for `check()`: it continues after damage and reports all of it;
`find_forged` looks at signatures. `dense` checks rows before they are appended. This module never writes and knows no
database; the page comes from the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from operator import itemgetter
from struct import Struct, error
from typing import Any, Final
from zlib import crc32

import msgspec

from lyra.errors import Corrupt, StoreError
from lyra.store.protocol import Record, make_compacted_conflict, not_dense
from lyra.store.signature import ChainReader, ChapterWriter

TOTAL_MODULUS: Final = 1 << 63


def state_crc(pid: str, data: bytes) -> int:
    """Return the checksum of one process's state in the snapshot."""
    return crc32(data, crc32(b"state\0" + pid.encode()))


def total_of(total: int, *, added: int = 0, removed: int = 0) -> int:
    """Add to a running sum of state checksums, which shows that the states are one set, without reading all to change
    one."""
    return (total + added - removed) % TOTAL_MODULUS


def fields_crc(table: str, *values: str | int | float | bytes) -> int:
    """Return the checksum of a small row; `table` keeps a row of one table from passing for a row of another."""
    return crc32(repr((table, *values)).encode(errors="surrogatepass"))


def blob_digest(data: bytes) -> str:
    """Return the name of a blob: BLAKE2b-256 of its content, in hex."""
    return blake2b(data, digest_size=32).hexdigest()


# ---------------------------------------------------------------- batches

ROWS_MAX: Final = 1024  # rows in a batch: reading one row reads and checks its whole batch
_BYTES_MAX: Final = 1 << 20  # bytes in a batch, unless one row alone has more

Rows = Sequence[tuple[int, float, str, str, bytes]]
Batch = tuple[int, int, bytes, int, bytes | None]
"""(seq of the first row, number of rows, the rows as msgpack, checksum, signature or None)"""

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(list[Record]).decode
_head: Final = Struct("<qq").pack


def seal(records: Rows) -> list[Batch]:
    """Pack dense rows into batches: a single batch, unless the rows pass ROWS_MAX or _BYTES_MAX."""
    count = len(records)
    if count <= ROWS_MAX:
        try:
            data = _encode(records)
        except (TypeError, ValueError, OverflowError) as refusal:
            raise StoreError(f"the journal cannot hold this value: {refusal}") from refusal
        if count == 1 or len(data) <= _BYTES_MAX:
            seq = records[0][0]
            return [(seq, count, data, crc32(data, crc32(_head(seq, count))), None)]
    half = count // 2
    return seal(records[:half]) + seal(records[half:])


def sign_batches(batches: list[Batch], writer: ChapterWriter) -> list[Batch]:
    """Return the batches with their signatures."""
    signed_batches: list[Batch] = []
    for seq, count, data, crc, _ in batches:
        signature = writer.sign(data)
        signed_batches.append((seq, count, data, crc32(signature, crc), signature))
    return signed_batches


def compute_unsigned_crc(seq: int, count: int, data: bytes) -> int:
    """Return the checksum of a batch without a signature."""
    return crc32(data, crc32(_head(seq, count)))


def unseal(batch: Sequence[Any], *, is_checked: bool = False) -> list[Record] | None:
    """Return the rows of a batch, or None when it is damaged. `is_checked`: its signature was, so its checksum need not
    be."""
    try:
        seq, count, data, crc, signature = batch
        if not is_checked and crc32(signature or b"", crc32(data, crc32(_head(seq, count)))) != crc:
            return None
        rows = _decode(data)
    except (TypeError, ValueError, OverflowError, error, msgspec.DecodeError):
        return None
    return rows if [row.seq for row in rows] == list(range(seq, seq + count)) else None


# ---------------------------------------------------------------- reading

PAGE_BATCHES: Final = 64
FAULTS_MAX: Final = 100

_seq: Final = itemgetter(0)

Page = Callable[[int, int], "Sequence[tuple[Any, ...]]"]
"""`page(first, last)`: up to PAGE_BATCHES batches with rows of that range, in order; the first may begin before it."""


def dense(records: Rows) -> int:
    """Return the first seq of a batch; raise `Conflict` when the batch itself has a hole or goes backwards."""
    first = records[0][0]
    count = len(records)
    if count > 1 and [*map(_seq, records)] != [*range(first, first + count)]:
        raise not_dense(first)
    return first


def scan(
    page: Page,
    first: int,
    last: int,
    *,
    begins: Callable[[], int],
    damaged: Callable[[str], Corrupt],
    chain: ChainReader | None = None,
    tampered: Callable[[str, int], Corrupt] | None = None,
    pid: str | None = None,
    kind: str | None = None,
) -> Iterator[Record]:
    """Yield the rows `first` to `last`, each verified; `begins()` is the journal's first seq now, `damaged` the error.
    With a `chain` every batch has to be signed; `tampered` is the error for one that is not."""

    def missing(seq: int) -> StoreError:
        # The owner may have compacted the journal between two pages; otherwise the row is lost.
        return make_compacted_conflict(seq) if begins() > seq else damaged(f"journal row {seq} is missing")

    expected = first
    while expected <= last:
        batches = page(expected, last)
        if not batches:
            raise missing(expected)
        if chain is not None and batches[0][0] <= expected:
            other = chain.first_forged(batches)
            if other is not None and unseal(other) is not None:  # one that is damaged, too, is told as damage below
                assert tampered is not None
                raise tampered(f"{span(other, expected)} not what was signed", other[0])
        is_checked = chain is not None
        for batch in batches:
            rows = unseal(batch, is_checked=is_checked)
            if rows is None:
                raise damaged(f"{span(batch, expected)} not what was written")
            if not rows[0].seq <= expected <= rows[-1].seq:
                raise missing(expected)
            for row in rows[expected - rows[0].seq : last - rows[0].seq + 1]:
                if (pid is None or row.pid == pid) and (kind is None or row.kind == kind):
                    yield row
            expected = rows[-1].seq + 1


def faults(page: Page, first: int, last: int) -> list[str]:
    """Return a sentence for each damaged or missing part of the range, up to FAULTS_MAX of them."""
    sentences: list[str] = []
    expected = first
    while expected <= last and len(sentences) < FAULTS_MAX:
        batches = page(expected, last)
        for batch in batches:
            rows = unseal(batch)
            if rows is None:
                sentences.append(f"{span(batch, expected)} damaged")
            begins, ends = (rows[0].seq, rows[-1].seq) if rows else _read_claim(batch, expected)
            if begins > expected:
                sentences.append(_gap(expected, begins - 1))
            elif begins < expected and rows is not None:
                sentences.append(f"journal row {begins} is there twice")
            expected = max(ends, expected) + 1
        if not batches:
            sentences.append(_gap(expected, last))
            break
    return sentences[:FAULTS_MAX]


def find_forged(page: Page, first: int, last: int, chain: ChainReader) -> list[str]:
    """Return a sentence about the first batch of the range that is not what was signed; later ones are signed together
    with it."""
    expected = first
    while expected <= last:
        batches = page(expected, last)
        batch = chain.first_forged(batches)
        if batch is not None:
            return [f"{span(batch, expected)} not what was signed"]
        if not batches:
            break
        expected = max(_read_claim(batches[-1], expected)[1], expected) + 1
    return []


def _read_claim(batch: Sequence[Any], expected: int) -> tuple[int, int]:
    """Return the rows that a damaged batch says it has; its own columns may be what is damaged."""
    begins = batch[0] if isinstance(batch[0], int) else expected
    count = batch[1] if isinstance(batch[1], int) and 0 < batch[1] < 1 << 32 else 1
    return begins, begins + count - 1


def span(batch: Sequence[Any], expected: int) -> str:
    """Return the rows of a batch as the beginning of a sentence."""
    begins, ends = _read_claim(batch, expected)
    return f"journal row {begins} is" if begins == ends else f"journal rows {begins} to {ends} are"


def _gap(first: int, last: int) -> str:
    return f"journal row {first} is missing" if first == last else f"journal rows {first} to {last} are missing"
