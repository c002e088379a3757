"""Patterns of parameters: they agree with Python's own where both read them, and no text makes one slow."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lyra.core.linear_regex import BadPattern
from lyra.tools.yaml.template import Linear
from tests.cases import cases
from tests.limits import within

_ATOMS = ["a", "b", "-", ".", "[ab]", "[^a]", "[a-c1]", r"\d", r"\w", r"\S", r"\.", "(a|b)", "(?:ab|c)", "(a*)", "()"]
_MANY = ["", "*", "+", "?", "{2}", "{1,}", "{0,3}"]
_PATTERNS = st.lists(st.tuples(st.sampled_from(_ATOMS), st.sampled_from(_MANY)), max_size=6).map(
    lambda parts: "".join(atom + many for atom, many in parts)
)


@given(pattern=_PATTERNS, other=_PATTERNS, text=st.text(alphabet="abc1-. \n", max_size=12))
@settings(max_examples=cases(600), deadline=None)
def test_it_finds_what_python_finds(pattern: str, other: str, text: str) -> None:
    both = f"{pattern}|{other}"
    assert Linear(both).matches(text) == (re.fullmatch(both, text) is not None)


@pytest.mark.timed
@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(a*)*b", "(.*)(.*)(.*)(.*)(.*)b", "(a|aa)+b", "([a-z]+)*1"])
def test_no_pattern_takes_for_ever(pattern: str) -> None:
    """Each of them takes Python's own for ever, or nearly."""
    began = time.process_time()
    assert not Linear(pattern).matches("a" * 5_000)
    within(time.process_time() - began, 2.0)


@pytest.mark.parametrize(
    ("pattern", "fits", "not_"), [("^a$", "a", "ab"), (r"[\]\-x]+", "]-x", "y"), ("[-a]", "-", "b")]
)
def test_the_ends_say_nothing_and_classes_are_as_usual(pattern: str, fits: str, not_: str) -> None:
    assert Linear(pattern).matches(fits)
    assert not Linear(pattern).matches(not_)


@pytest.mark.parametrize(
    "pattern",
    [
        *("(a", "a)", "[a", "a**", "*a", "a{", "a{2,1}", "a{999}", r"(a)\1", "(?=a)", "(?P<n>a)", "a\\", r"\p", "^^a"),
        *("a$b", "(" * 30 + ")" * 30, "x" * 600, "(" + "a{200}" * 5 + ")", "[z-a]", r"[\d-z]"),
    ],
)
def test_what_it_does_not_read_it_says(pattern: str) -> None:
    with pytest.raises(BadPattern):
        Linear(pattern)
