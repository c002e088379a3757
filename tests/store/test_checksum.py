"""Checksums tell rows apart."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lyra.store.checksum import blob_digest, fields_crc, row_crc, seal, state_crc, total_of
from lyra.store.rows import intact
from lyra.testing.conformance import records


def test_sealed_rows_are_intact() -> None:
    """What `seal` writes is what `intact` accepts: the two spell out the same checksum."""
    rows = seal(records(1, 50))
    assert all(map(intact, rows))
    assert [row[:5] for row in rows] == records(1, 50)
    assert all(row[5] == row_crc(*row[:5]) for row in rows)


@given(column=st.integers(0, 5), bit=st.integers(0, 62))
def test_one_changed_bit_shows(column: int, bit: int) -> None:
    """Any single changed bit of any column fails."""
    row: list[Any] = list(seal([(7, 1.5, "p-1", "note", b"some data")])[0])
    value = row[column]
    if isinstance(value, int):
        row[column] = value ^ (1 << bit)
    elif isinstance(value, float):
        row[column] = value + 2.0 ** (bit - 40)
    elif isinstance(value, str):
        at = bit % len(value)
        row[column] = value[:at] + chr(ord(value[at]) ^ 1 << bit % 7) + value[at + 1 :]
    else:
        row[column] = bytes([value[0] ^ 1 << bit % 8]) + value[1:]
    assert not intact(row)


def test_columns_do_not_run_into_each_other() -> None:
    """Moving a letter from one column to the next changes the checksum."""
    assert row_crc(1, 1.0, "ab", "c", b"d") != row_crc(1, 1.0, "a", "bc", b"d")
    assert row_crc(1, 1.0, "a", "bc", b"d") != row_crc(1, 1.0, "a", "b", b"cd")
    assert fields_crc("lease", "a", 1) != fields_crc("meta", "a", 1)
    assert state_crc("ab", b"c") != state_crc("a", b"bcd")


def test_nonsense_is_not_intact() -> None:
    """Columns of a wrong type or number are damage, not an exception."""
    good = list(seal(records(1, 1))[0])
    nonsenses: list[Any] = [None, "text", b"bytes", 1 << 70, float("nan"), []]
    for column in range(5):
        for nonsense in nonsenses:
            if type(nonsense) is not type(good[column]) or nonsense != good[column]:
                assert not intact([*good[:column], nonsense, *good[column + 1 :]])
    assert not intact(good[:5])


def test_a_total_forgets_what_is_removed() -> None:
    """Adding and removing the same checksums gives the total from before, in any order."""
    total = total_of(5, added=1 << 40)
    assert total_of(total, removed=1 << 40) == 5
    assert total_of(0, added=1, removed=3) == total_of(total_of(0, removed=3), added=1) >= 0


def test_digests_are_blake2b_256() -> None:
    """The name of a blob can be computed by anybody: `b2sum -l 256`."""
    assert blob_digest(b"") == "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8"
