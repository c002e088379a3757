"""Patterns match like their definition, in linear time, and compare soundly."""

from __future__ import annotations

import time
from functools import cache

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lyra.core.pattern import BARRIER, Pattern, covers, overlaps

thorough = settings(derandomize=True, deadline=None, max_examples=800)

patterns = st.lists(st.sampled_from(["a", "b", "/", "*", "**", "?", "/**", "/**/", BARRIER]), max_size=6).map("".join)
texts = st.text(alphabet="ab/c" + BARRIER, max_size=7)


def naive(pattern: str, text: str) -> bool:
    """The definition, by trying everything."""

    @cache
    def match(at: int, rest: str) -> bool:
        if at == len(pattern):
            return not rest
        whole_segment = pattern.startswith("/**", at) and (at + 3 == len(pattern) or pattern[at + 3] in "/" + BARRIER)
        if whole_segment:
            run = len(rest.split(BARRIER)[0])
            longer = any(match(at + 3, rest[size:]) for size in range(1, run + 1)) if rest[:1] == "/" else False
            return match(at + 3, rest) or longer
        if pattern[at] == "*":
            stars = len(pattern[at:]) - len(pattern[at:].lstrip("*"))
            stop = BARRIER if stars > 1 else "/" + BARRIER
            run = next((i for i, char in enumerate(rest) if char in stop), len(rest))
            return any(match(at + stars, rest[size:]) for size in range(run + 1))
        if pattern[at] == "?":
            return bool(rest) and rest[0] not in "/" + BARRIER and match(at + 1, rest[1:])
        return rest[:1] == pattern[at] and match(at + 1, rest[1:])

    return match(0, text)


@thorough
@given(patterns, texts)
def test_matching_agrees_with_the_definition(pattern, text):
    """The automaton and the naive matcher never differ."""
    assert Pattern(pattern, "/").matches(text) == naive(pattern, text)


@thorough
@given(patterns, patterns, st.lists(texts, min_size=5, max_size=30))
def test_a_cover_is_sound(wide, narrow, samples):
    """If p covers q, every text that q matches is matched by p."""
    assume(covers(Pattern(wide, "/"), Pattern(narrow, "/")))
    for text in [*samples, narrow.replace("**", "a/b").replace("*", "a").replace("?", "b")]:
        if naive(narrow, text):
            assert naive(wide, text)


@thorough
@given(patterns, patterns, st.lists(texts, min_size=5, max_size=30))
def test_no_overlap_is_sound(left, right, samples):
    """If p and q do not overlap, no text is matched by both; a cover of something is an overlap."""
    if overlaps(Pattern(left, "/"), Pattern(right, "/")):
        return
    assert not any(naive(left, text) and naive(right, text) for text in samples)
    assert not covers(Pattern(left, "/"), Pattern(right, "/"))


@thorough
@given(patterns, patterns)
def test_comparing_is_reflexive_and_symmetric(left, right):
    """Everything covers itself and overlaps itself, and overlap has no direction."""
    a, b = Pattern(left, "/"), Pattern(right, "/")
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
    assert covers(Pattern(wide, "/"), Pattern(narrow, "/")) is expected


def test_matching_is_linear_in_the_text():
    """The pattern and text that break backtracking matchers take no time."""
    started = time.process_time()
    assert not Pattern("*a" * 200 + "b", "/").matches("a" * 20_000)
    assert time.process_time() - started < 2.0


def test_comparing_gives_the_safe_answer_when_it_is_too_hard():
    """Patterns made to blow up end quickly: not covered, may overlap."""
    hard = Pattern("*a" + "?" * 60 + "**", "/")
    harder = Pattern("**a" + "?" * 61 + "*b*", "/")
    started = time.process_time()
    assert not covers(hard, harder)
    assert overlaps(harder, hard)
    assert time.process_time() - started < 2.0
