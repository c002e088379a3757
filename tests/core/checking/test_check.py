"""The small checks every declaration shares."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lyra.core.checking.check import check_integer, did_you_mean, distance, one_of, real, short_text
from lyra.errors import ConfigError
from tests.cases import cases

quick = settings(derandomize=True, deadline=None, max_examples=cases(200))
short = st.text(alphabet="abc", max_size=5)


@pytest.mark.parametrize(
    ("left", "right", "edits"),
    [("", "", 0), ("a", "", 1), ("read", "raed", 1), ("read", "red", 1), ("write", "wriet", 1), ("abc", "xyz", 3)],
)
def test_distance_counts_slips_of_the_finger(left, right, edits):
    """A letter more, less, other, or two swapped is one slip."""
    assert distance(left, right, 5) == edits


@quick
@given(short, short)
def test_distance_is_symmetric_and_bounded(left, right):
    """It has no direction, is 0 only for equal words, and stops at the limit."""
    assert distance(left, right) == distance(right, left) <= 3
    assert (distance(left, right) == 0) == (left == right)


def test_did_you_mean_needs_a_near_word():
    """Far words are not suggested, short words must be nearer."""
    assert did_you_mean("jiter", ["jitter", "kind"]) == "jitter"
    assert did_you_mean("fs", ["db", "net"]) is None
    assert did_you_mean("anything", []) is None


def test_wrong_values_name_the_key():
    """Each check says what was expected of which setting."""
    for call in (
        lambda: check_integer(True, "n"),
        lambda: check_integer(1.0, "n"),
        lambda: check_integer(-1, "n"),
        lambda: real("1", "n"),
        lambda: real(float("nan"), "n"),
        lambda: real(0, "n", above=0.0),
        lambda: one_of("b", ["a"], "n"),
        lambda: one_of(5, ["a"], "n"),
        lambda: short_text(5, "n", most=3),
        lambda: short_text("long", "n", most=3),
    ):
        with pytest.raises(ConfigError) as caught:
            call()
        assert caught.value.fields["key"] == "n"


def test_a_distance_beyond_the_limit_is_one_more_than_it():
    assert distance("a", "abcdefg") == 3
    assert distance("abcd", "efgh") == 3
    assert distance("a", "abcdefg", 4) == 5
