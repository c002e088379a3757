"""The checksums that make damage visible: one function for each kind of row.

Every row a Store keeps on disk carries a CRC-32 over all its other columns, its own key included, so a row that was
altered, swapped with another or read from an older copy of its page does not pass. Blobs are named by a 256-bit
digest of their content instead. Nothing here reads or writes a Store; `sql` applies these, and the journal's own
checksum is in `batch`. A checksum finds accidents. A program that can write the file can also write its checksums:
`signature` has what it cannot write.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final
from zlib import crc32

TOTAL_MODULUS: Final = 1 << 63


def state_crc(pid: str, data: bytes) -> int:
    """The checksum of one process's state in the snapshot."""
    return crc32(data, crc32(b"state\0" + pid.encode()))


def total_of(total: int, *, added: int = 0, removed: int = 0) -> int:
    """A running sum of state checksums: shows that the states are one set, without reading all to change one."""
    return (total + added - removed) % TOTAL_MODULUS


def fields_crc(table: str, *values: str | int | float | bytes) -> int:
    """The checksum of a small row; `table` keeps a row of one table from passing for a row of another."""
    return crc32(repr((table, *values)).encode(errors="surrogatepass"))


def blob_digest(data: bytes) -> str:
    """The name of a blob: BLAKE2b-256 of its content, in hex."""
    return blake2b(data, digest_size=32).hexdigest()
