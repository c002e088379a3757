"""Reading the journal so that only what was written comes out.

`scan` walks a journal page by page, checks each row's checksum and that no sequence number is missing, and only then
applies the caller's filters: a filter pushed down into the database would quietly drop the very rows that are
damaged. Pages are short reads, so a reader that pauses holds no transaction open and never keeps a write-ahead log
from shrinking. `faults` is the same walk for `check()`: it goes on after damage and tells all of it. `dense` guards
the way in. This module never writes and knows no database; the page comes from the caller.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from lyra.errors import Corrupt, StoreError
from lyra.store import conflicts
from lyra.store.checksum import row_crc
from lyra.store.protocol import Record

__all__ = ["FAULTS_MAX", "PAGE_ROWS", "Page", "dense", "faults", "intact", "scan"]

PAGE_ROWS: Final = 512
FAULTS_MAX: Final = 100

Page = Callable[[int, int], "Sequence[tuple[Any, ...]]"]
"""`page(first, last)`: up to PAGE_ROWS rows (seq, time, pid, kind, data, crc) of that range, in order."""

# What a damaged row can do to the arithmetic of a checksum: a column of another type, or a number out of range.
_NONSENSE: Final = (TypeError, AttributeError, ValueError, OverflowError, struct.error)


def dense(records: Sequence[tuple[int, float, str, str, bytes]]) -> int:
    """The first seq of a batch; `Conflict` when the batch itself has a hole or goes backwards."""
    first = records[0][0]
    count = len(records)
    if count > 1 and [record[0] for record in records] != list(range(first, first + count)):
        raise conflicts.not_dense(first)
    return first


def intact(row: Sequence[Any]) -> bool:
    """Whether a journal row is what was once written."""
    try:
        seq, time, pid, kind, data, crc = row
        return bool(row_crc(seq, time, pid, kind, data) == crc)
    except _NONSENSE:
        return False


def scan(
    page: Page,
    first: int,
    last: int,
    *,
    begins: Callable[[], int],
    damaged: Callable[[str], Corrupt],
    pid: str | None,
    kind: str | None,
) -> Iterator[Record]:
    """The rows `first` to `last`, each verified; `begins()` is the journal's first seq now, `damaged` the error."""

    def missing(seq: int) -> StoreError:
        # Somebody may have compacted the journal between two pages; otherwise the row is lost.
        return conflicts.compacted(seq) if begins() > seq else damaged(f"journal row {seq} is missing")

    expected = first
    while expected <= last:
        rows = page(expected, last)
        if not rows:
            raise missing(expected)
        for row in rows:
            if row[0] != expected:
                raise missing(expected)
            if not intact(row):
                raise damaged(f"journal row {expected} is not what was written")
            expected += 1
            if (pid is None or row[2] == pid) and (kind is None or row[3] == kind):
                yield Record(row[0], row[1], row[2], row[3], row[4])


def faults(page: Page, first: int, last: int) -> list[str]:
    """Every damaged or missing row of the range as a sentence, up to FAULTS_MAX of them."""
    found: list[str] = []
    expected = first
    while expected <= last and len(found) < FAULTS_MAX:
        rows = page(expected, last)
        for row in rows:
            if row[0] != expected:
                found.append(_gap(expected, row[0] - 1))
            if not intact(row):
                found.append(f"journal row {row[0]} is damaged")
            expected = row[0] + 1
        if not rows:
            found.append(_gap(expected, last))
            break
    return found[:FAULTS_MAX]


def _gap(first: int, last: int) -> str:
    return f"journal row {first} is missing" if first == last else f"journal rows {first} to {last} are missing"
