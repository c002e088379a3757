"""Patterns match like their definition, in linear time, and compare soundly."""

from __future__ import annotations

import itertools
import time
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lyra.core.rights.scope import BARRIER, Glob, covers, overlaps
from tests.cases import cases
from tests.limits import within

thorough = settings(derandomize=True, deadline=None, max_examples=cases(400))

patterns = st.lists(st.sampled_from(["a", "b", "/", "*", "**", "?", "/**", "/**/", BARRIER]), max_size=6).map("".join)
texts = st.text(alphabet="ab/c" + BARRIER, max_size=7)


def naive(pattern: str, text: str) -> bool:
    """The definition, by trying everything."""

    @cache
    def match(place: int, rest: str) -> bool:
        if place == len(pattern):
            return not rest
        whole_segment = pattern.startswith("/**", place) and (
            place + 3 == len(pattern) or pattern[place + 3] in "/" + BARRIER
        )
        if whole_segment:
            run = len(rest.partition(BARRIER)[0])
            longer = any(match(place + 3, rest[size:]) for size in range(1, run + 1)) if rest[:1] == "/" else False
            return match(place + 3, rest) or longer
        if pattern[place] == "*":
            stars = len(pattern[place:]) - len(pattern[place:].lstrip("*"))
            stop = BARRIER if stars > 1 else "/" + BARRIER
            run = next((i for i, char in enumerate(rest) if char in stop), len(rest))
            return any(match(place + stars, rest[size:]) for size in range(run + 1))
        if pattern[place] == "?":
            return bool(rest) and rest[0] not in "/" + BARRIER and match(place + 1, rest[1:])
        return rest[:1] == pattern[place] and match(place + 1, rest[1:])

    return match(0, text)


@thorough
@given(patterns, texts)
def test_matching_agrees_with_the_definition(pattern, text):
    """The automaton and the naive matcher never differ."""
    assert Glob(pattern, "/").matches(text) == naive(pattern, text)


TEXTS = ["".join(chars) for size in range(6) for chars in itertools.product("ab/", repeat=size)]


@st.composite
def pairs(draw):
    """A pattern and one made from it by replacing wildcards: often, but not always, covered."""
    pieces = draw(st.lists(st.sampled_from(["a", "b", "/", "*", "**", "?", "/**"]), min_size=1, max_size=5))
    smaller = {"**": ["**", "*", "a/b", "?*", "", "*/**"], "*": ["*", "a*", "?", "", "b", "**"], "?": ["?", "a"]}
    narrow = [draw(st.sampled_from(smaller.get(piece, [piece, "/*" if piece == "/**" else piece]))) for piece in pieces]
    return "".join(pieces), "".join(narrow)


@thorough
@given(pairs())
def test_a_cover_is_sound(pair):
    """If p covers q, every text (here: every short one) that q matches is matched by p."""
    wide, narrow = Glob(pair[0], "/"), Glob(pair[1], "/")
    counterexample = next((text for text in TEXTS if narrow.matches(text) and not wide.matches(text)), None)
    assert not (covers(wide, narrow) and counterexample is not None), counterexample


@thorough
@given(patterns, patterns, st.lists(texts, min_size=5, max_size=30))
def test_no_overlap_is_sound(left, right, samples):
    """If p and q do not overlap, no text is matched by both; a cover of something is an overlap."""
    if overlaps(Glob(left, "/"), Glob(right, "/")):
        return
    assert not any(naive(left, text) and naive(right, text) for text in samples)
    assert not covers(Glob(left, "/"), Glob(right, "/"))


@thorough
@given(patterns, patterns)
def test_comparing_is_reflexive_and_symmetric(left, right):
    """Everything covers itself and overlaps itself, and overlap has no direction."""
    a, b = Glob(left, "/"), Glob(right, "/")
    assert covers(a, a)
    assert overlaps(a, a)
    assert overlaps(a, b) == overlaps(b, a)


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        ("/a/**", "/a/*", True),
        ("/a/**", "/a/b/**/c", True),
        ("/a/**", "/a", True),
        ("/a/*", "/a/**", False),
        ("/**", "/a?/*", True),
        ("/a*", "/ab*", True),
        ("/ab*", "/a*", False),
        ("/*/b", "/a/b", True),
        ("/a/**/z", "/a/z", True),
        ("/a/**", "/ab/**", False),
        ("/a", "/a*", False),
        ("/*a*", "/*aa*", True),
    ],
)
def test_covers_that_people_write(wide, narrow, expected):
    """The covers of everyday rules are found, and their converses are not."""
    assert covers(Glob(wide, "/"), Glob(narrow, "/")) is expected


@pytest.mark.timed
def test_matching_is_linear_in_the_text():
    """The pattern and text that break backtracking matchers take no time."""
    started = time.process_time()
    assert not Glob("*a" * 200 + "b", "/").matches("a" * 20_000)
    within(time.process_time() - started, 2.0)


@pytest.mark.timed
def test_comparing_gives_the_safe_answer_when_it_is_too_hard():
    """Patterns made to blow up end quickly: not covered, may overlap."""
    started = time.process_time()
    assert not covers(Glob("**a" + "?" * 20 + "**", "/"), Glob("**a" + "?" * 25 + "**", "/"))
    assert overlaps(Glob("**a" + "?" * 20 + "b", "/"), Glob("**a" + "?" * 20 + "c", "/"))
    within(time.process_time() - started, 2.0)
