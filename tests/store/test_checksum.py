"""Checksums tell rows apart."""

from __future__ import annotations

from lyra.store.rows import blob_digest, fields_crc, state_crc, total_of


def test_columns_do_not_run_into_each_other() -> None:
    """Moving a letter from one column to the next changes the checksum."""
    assert fields_crc("lease", "a", 1) != fields_crc("meta", "a", 1)
    assert state_crc("ab", b"c") != state_crc("a", b"bcd")


def test_a_total_forgets_what_is_removed() -> None:
    """Adding and removing the same checksums gives the total from before, in any order."""
    total = total_of(5, added=1 << 40)
    assert total_of(total, removed=1 << 40) == 5
    assert total_of(0, added=1, removed=3) == total_of(total_of(0, removed=3), added=1) >= 0


def test_digests_are_blake2b_256() -> None:
    """The name of a blob can be computed by anybody: `b2sum -l 256`."""
    assert blob_digest(b"") == "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8"
