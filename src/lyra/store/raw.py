"""The rows of a database store as they stand: read in pages, written elsewhere, compared by a hash.

A copy has the same checksums, signatures and identity as the store, since no row is made anew. The lease is left to the
caller: it says who may write, and that is another matter in each place. Statements have `?` for values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec

Row = tuple[Any, ...]
Ask = Callable[[str, Sequence[Any]], list[Row]]

# Table → its columns; the first one is the key by which it is read.
TABLES: Final = {
    "identity": ("id", "name", "since", "crc"),
    "meta": ("id", "first_seq", "snapshot_seq", "states", "states_total", "crc"),
    "signatures": ("id", "key_id", "seq", "link", "code", "crc"),
    "blobs": ("digest", "data"),
    "snapshots": ("pid", "data", "crc"),
    "journal": ("seq", "rows", "data", "crc", "signature"),
}
_ROWS_AT_ONCE: Final = 64  # a batch of the journal has up to a mebibyte, a blob more

_encode: Final = msgspec.msgpack.Encoder().encode


def read_pages(ask: Ask) -> Iterator[tuple[str, list[Row]]]:
    """Yield the rows of all tables, some at a time, with the name of their table."""
    for table, columns in TABLES.items():
        names, key = ", ".join(columns), columns[0]
        page = ask(f"SELECT {names} FROM {table} ORDER BY {key} LIMIT {_ROWS_AT_ONCE}", ())  # noqa: S608 - our own names
        while page:
            yield table, page
            after = f"SELECT {names} FROM {table} WHERE {key} > ? ORDER BY {key} LIMIT {_ROWS_AT_ONCE}"  # noqa: S608
            page = ask(after, (page[-1][0],))


def make_insert(table: str) -> str:
    """Return the statement that writes a row of a table."""
    columns = TABLES[table]
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608


class Fingerprint:
    """A hash of rows that does not depend on how a database orders text."""

    def __init__(self) -> None:
        self._sum = 0
        self.rows = 0

    def add(self, table: str, rows: Sequence[Row]) -> None:
        for row in rows:
            self._sum += int.from_bytes(blake2b(_encode((table, *row)), digest_size=32).digest(), "big")
        self.rows += len(rows)

    def text(self) -> str:
        return f"{self.rows}-{self._sum % (1 << 256):064x}"


def fingerprint(ask: Ask) -> str:
    """Read all rows, and return their hash."""
    seen = Fingerprint()
    for table, rows in read_pages(ask):
        seen.add(table, rows)
    return seen.text()
