"""The linear-time engine of regular expressions agrees with Python's own, and its work is bounded."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lyra.core.linear_regex import BadPattern, PatternTooLarge, RegexProgram, TooManySteps, Unsupported
from tests.cases import cases

_ATOMS = ["a", "b", ".", "[ab]", "[^a]", r"\d", r"\W", r"\b", "^", "$", "(a|b)", "(?:ab|c)", "(a?)", "(?i:B)"]
_MANY = ["", "*", "+", "?", "{2}", "{1,}", "{0,3}", "*?", "+?", "??"]
_PATTERNS = st.lists(st.tuples(st.sampled_from(_ATOMS), st.sampled_from(_MANY)), max_size=5).map(
    lambda parts: "".join(atom + ("" if atom in (r"\b", "^", "$") else many) for atom, many in parts)
)
_FLAGS = st.sampled_from(["", "(?i)", "(?m)", "(?s)", "(?a)"])


@given(flags=_FLAGS, pattern=_PATTERNS, other=_PATTERNS, text=st.text(alphabet="abcB1é \n", max_size=12))
@settings(max_examples=cases(600), deadline=None)
def test_it_matches_what_python_matches(flags: str, pattern: str, other: str, text: str) -> None:
    both = f"{flags}{pattern}|{other}"
    program = RegexProgram(both, size_max=1_000)
    expected = re.search(both, text)
    match, _ = program.search(text, 0, 1_000_000)
    assert (None if match is None else match[:2]) == (None if expected is None else expected.span())
    assert program.matches_whole(text) == (re.fullmatch(both, text) is not None)


@pytest.mark.parametrize(
    ("pattern", "text", "groups"),
    [
        (r"(\w+)=(\w+)", " key=value", ("key", "value")),
        ("(a)|(b)", "b", (None, "b")),
        ("(?P<x>a+?)(a*)", "aaa", ("a", "aa")),
    ],
)
def test_groups_are_those_of_python(pattern: str, text: str, groups: tuple[str | None, ...]) -> None:
    match, _ = RegexProgram(pattern, size_max=100).search(text, 0, 1_000)
    assert match is not None
    spans = zip(match[2::2], match[3::2], strict=True)
    assert tuple(text[begin:end] if begin >= 0 else None for begin, end in spans) == groups


def test_the_steps_of_a_search_are_bounded() -> None:
    program = RegexProgram("(a+)+b", size_max=100)
    _, steps = program.search("a" * 300, 0, 10_000)
    assert steps < 301 * 20
    with pytest.raises(TooManySteps):
        program.search("a" * 300, 0, steps - 1)


@pytest.mark.parametrize(
    ("pattern", "construct"),
    [
        ("(?=a)", "assert"),
        ("(?<!a)", "assert not"),
        (r"(a)\1", "groupref"),
        ("a*+", "possessive repeat"),
        ("(?>a)", "atomic group"),
    ],
)
def test_what_cannot_be_matched_in_linear_time_is_named(pattern: str, construct: str) -> None:
    with pytest.raises(Unsupported) as refused:
        RegexProgram(pattern, size_max=100)
    assert str(refused.value) == construct


@pytest.mark.parametrize("pattern", ["(", "a{4294967295}", "(?a)(?u)", "[z-a]"])
def test_what_python_cannot_read_is_a_bad_pattern(pattern: str) -> None:
    with pytest.raises(BadPattern):
        RegexProgram(pattern, size_max=100)


def test_repetitions_are_bounded_by_the_size_of_the_program() -> None:
    with pytest.raises(PatternTooLarge):
        RegexProgram("(a{50}){50}", size_max=1_000)
    assert RegexProgram("(?:){4000000000}a", size_max=100).matches_whole("a")  # repeating nothing costs nothing


def test_the_last_step_that_is_allowed_is_taken():
    program = RegexProgram("a+b", size_max=100)
    match, steps = program.search("aaab", 0, 1_000)
    assert match is not None
    assert program.search("aaab", 0, steps) == (match, steps)
    with pytest.raises(TooManySteps):
        program.search("aaab", 0, steps - 1)
