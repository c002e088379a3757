"""Texts that are drawn for a pattern match it."""

from __future__ import annotations

import re

import pytest

from lyra.core.ids import make_random
from lyra.vesper.evidence.likely_inputs import pattern_drawer
from lyra.vesper.values.limits import DRAWN_TEXT_CHARS_MAX


def drawn(pattern, rng):
    draw = pattern_drawer(pattern)
    assert draw is not None
    return draw(rng)


@pytest.mark.parametrize(
    "pattern",
    [
        "^ord_[a-z0-9]{16,}$",
        r"^[A-Z]{2}\d{2}( ?[A-Z0-9]{4}){2,7}$",
        r"^[^@\s]+@[^@\s]+\.[a-z]{2,}$",
        "^(USD|EUR|GBP)?$",
        r"^\+?\d+(-\d+)*$",
        r"^[\w.]+:\W\D\S.$",
        "^[^a-z]{3}x*?$",
        r"^(?P<year>20\d\d)-(0[1-9]|1[0-2])$",
        "plain",
        "",
    ],
)
def test_drawn_texts_match(pattern):
    rng = make_random(1)
    texts = {drawn(pattern, rng) or "" for _ in range(200)}
    assert [text for text in texts if re.search(pattern, text) is None] == []
    assert len(texts) > 1 or pattern in ("plain", "")


def test_a_text_has_a_longest_length():
    assert drawn("^(x{90}){90}$", make_random(1)) is None
    assert drawn(f"^x{{{DRAWN_TEXT_CHARS_MAX}}}$", make_random(1)) == "x" * DRAWN_TEXT_CHARS_MAX


@pytest.mark.parametrize("pattern", ["(", r"(a)\1", "(?=a)b", "((x{999}){999}){999}"])
def test_what_the_matcher_does_not_take_is_not_drawn_from(pattern):
    assert pattern_drawer(pattern) is None
