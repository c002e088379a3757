"""A batch: the journal rows of one commit, kept as one row of the database.

Rows that were committed together are one msgpack array under one checksum. A database charges by the row (a statement
bound, a key found, a record built), and a busy kernel commits a hundred of them at a time: together they cost about as
much as one alone. A commit is all or nothing anyway, so nothing is lost when damage is reported for a batch and not
for a row. `seal` makes batches, `signed` signs them, `unseal` gives the rows back or None. This module never reads or
writes a Store.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error
from typing import Any, Final
from zlib import crc32

import msgspec

from lyra.errors import StoreError
from lyra.store.protocol import Record
from lyra.store.signature import ChapterWriter

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


def signed(batches: list[Batch], writer: ChapterWriter) -> list[Batch]:
    """The same batches with their signatures."""
    signed_batches: list[Batch] = []
    for seq, count, data, crc, _ in batches:
        signature = writer.sign(data)
        signed_batches.append((seq, count, data, crc32(signature, crc), signature))
    return signed_batches


def unsigned_crc(seq: int, count: int, data: bytes) -> int:
    """The checksum of a batch without a signature."""
    return crc32(data, crc32(_head(seq, count)))


def unseal(batch: Sequence[Any], *, is_checked: bool = False) -> list[Record] | None:
    """The rows of a batch; None when the batch is damaged. The checksum of one whose signature was checked says nothing
    more."""
    try:
        seq, count, data, crc, signature = batch
        if not is_checked and crc32(signature or b"", crc32(data, crc32(_head(seq, count)))) != crc:
            return None
        rows = _decode(data)
    except (TypeError, ValueError, OverflowError, error, msgspec.DecodeError):
        return None
    return rows if [row.seq for row in rows] == list(range(seq, seq + count)) else None
