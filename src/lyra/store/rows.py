"""Reading the journal so that damaged or missing rows raise an error instead of a wrong value.

`scan` walks a journal page by page, checks each batch's checksum and that no sequence number is missing, and only then
applies the caller's filters: a filter pushed down into the database would quietly drop the very rows that are
damaged. Pages are short reads, so a reader that pauses holds no transaction open and never keeps a write-ahead log
from shrinking. `faults` is the same walk for `check()`: it goes on after damage and reports all of it;
`forged` looks
at signatures. `dense` checks
rows before they are appended. This module never writes and knows no database; the page comes from the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Final

from lyra.errors import Corrupt, StoreError
from lyra.store import conflicts
from lyra.store.batch import Rows, unseal
from lyra.store.protocol import Record
from lyra.store.signature import ChainReader

PAGE_BATCHES: Final = 64
FAULTS_MAX: Final = 100

_seq: Final = itemgetter(0)

Page = Callable[[int, int], "Sequence[tuple[Any, ...]]"]
"""`page(first, last)`: up to PAGE_BATCHES batches with rows of that range, in order; the first may begin before it."""


def dense(records: Rows) -> int:
    """The first seq of a batch; `Conflict` when the batch itself has a hole or goes backwards."""
    first = records[0][0]
    count = len(records)
    if count > 1 and [*map(_seq, records)] != [*range(first, first + count)]:
        raise conflicts.not_dense(first)
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
    """The rows `first` to `last`, each verified; `begins()` is the journal's first seq now, `damaged` the error.
    With a `chain` every batch has to be signed; `tampered` is the error for one that is not."""

    def missing(seq: int) -> StoreError:
        # The owner may have compacted the journal between two pages; otherwise the row is lost.
        return conflicts.compacted(seq) if begins() > seq else damaged(f"journal row {seq} is missing")

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
    """Every damaged or missing part of the range as a sentence, up to FAULTS_MAX of them."""
    sentences: list[str] = []
    expected = first
    while expected <= last and len(sentences) < FAULTS_MAX:
        batches = page(expected, last)
        for batch in batches:
            rows = unseal(batch)
            if rows is None:
                sentences.append(f"{span(batch, expected)} damaged")
            begins, ends = (rows[0].seq, rows[-1].seq) if rows else _claimed(batch, expected)
            if begins > expected:
                sentences.append(_gap(expected, begins - 1))
            elif begins < expected and rows is not None:
                sentences.append(f"journal row {begins} is there twice")
            expected = max(ends, expected) + 1
        if not batches:
            sentences.append(_gap(expected, last))
            break
    return sentences[:FAULTS_MAX]


def forged(page: Page, first: int, last: int, chain: ChainReader) -> list[str]:
    """The first batch of the range that is not what was signed, as a sentence; none follows, since what comes after it
    is signed together with it."""
    expected = first
    while expected <= last:
        batches = page(expected, last)
        batch = chain.first_forged(batches)
        if batch is not None:
            return [f"{span(batch, expected)} not what was signed"]
        if not batches:
            break
        expected = max(_claimed(batches[-1], expected)[1], expected) + 1
    return []


def _claimed(batch: Sequence[Any], expected: int) -> tuple[int, int]:
    """The rows that a damaged batch says it has; its own columns may be what is damaged."""
    begins = batch[0] if isinstance(batch[0], int) else expected
    count = batch[1] if isinstance(batch[1], int) and 0 < batch[1] < 1 << 32 else 1
    return begins, begins + count - 1


def span(batch: Sequence[Any], expected: int) -> str:
    """The rows of a batch as the beginning of a sentence."""
    begins, ends = _claimed(batch, expected)
    return f"journal row {begins} is" if begins == ends else f"journal rows {begins} to {ends} are"


def _gap(first: int, last: int) -> str:
    return f"journal row {first} is missing" if first == last else f"journal rows {first} to {last} are missing"
