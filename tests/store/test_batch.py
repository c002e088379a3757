"""A batch holds its rows, all of them, or is known not to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lyra.errors import StoreError
from lyra.store.rows import ROWS_MAX, seal, unseal
from lyra.testing.conformance import records


@given(
    first=st.integers(1, 2**60),
    rest=st.lists(
        st.tuples(st.floats(allow_nan=False), st.text(), st.text(), st.binary(max_size=300)), min_size=1, max_size=40
    ),
)
def test_what_is_sealed_comes_back(first: int, rest: list[tuple[float, str, str, bytes]]) -> None:
    """Any text, number and bytes, to the bit."""
    rows = [(first + number, *row) for number, row in enumerate(rest)]
    (batch,) = seal(rows)
    assert batch[:2] == (first, len(rows))
    assert unseal(batch) == rows


@pytest.mark.parametrize("count", [1, ROWS_MAX, ROWS_MAX + 1, 5 * ROWS_MAX])
def test_many_rows_are_several_batches(count: int) -> None:
    """None is longer than one read should be, and nothing is lost between them."""
    batches = seal(records(1, count))
    assert max(rows for _, rows, _, _, _ in batches) <= ROWS_MAX
    assert [row for batch in batches for row in unseal(batch) or ()] == records(1, count)


def test_large_rows_are_several_batches() -> None:
    """Megabytes are not read to look at one row; a row that is larger alone is alone."""
    rows = [(seq, 1.0, "p", "k", b"x" * (900 << 10 if seq != 3 else 5 << 20)) for seq in range(1, 6)]
    batches = seal(rows)
    assert [batch[1] for batch in batches] == [1] * 5
    assert [row for batch in batches for row in unseal(batch) or ()] == rows


@given(column=st.integers(0, 3), bit=st.integers(0, 62))
def test_one_changed_bit_shows(column: int, bit: int) -> None:
    """Any single changed bit of any column fails."""
    batch: list[Any] = list(seal(records(7, 3))[0])
    value = batch[column]
    if isinstance(value, int):
        batch[column] = value ^ (1 << bit)
    else:
        offset = bit % len(value)
        batch[column] = value[:offset] + bytes([value[offset] ^ 1 << bit % 8]) + value[offset + 1 :]
    assert unseal(batch) is None


def test_nonsense_is_no_batch() -> None:
    """Columns of a wrong type or number are damage, not an exception."""
    good = list(seal(records(1, 1))[0])
    nonsenses: list[Any] = [None, "text", b"bytes", 1 << 70, float("nan"), []]
    for column in range(4):
        for nonsense in nonsenses:
            assert unseal([*good[:column], nonsense, *good[column + 1 :]]) is None
    assert unseal(good[:3]) is None


def test_a_value_that_cannot_be_written_is_refused() -> None:
    """Half a surrogate pair is no text, and a number of 80 bits no time."""
    for row in ((1, 1.0, "\ud800", "k", b""), (1, 1 << 80, "p", "k", b"")):
        with pytest.raises(StoreError, match="cannot hold"):
            seal([row])
