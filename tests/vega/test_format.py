"""The formatter: one layout, nothing lost, nothing changed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lyra.errors import ParseError
from lyra.vega.format import WIDTH, format_source
from lyra.vega.parser import parse
from tests.vega.programs import Programs, shape

quick = settings(derandomize=True, deadline=None, max_examples=150)


def comments_of(text):
    return sorted(comment for _, comment in parse(text).comments)


def assert_kept(text):
    """Formatting keeps the tree and the comments, and changes nothing the second time."""
    once = format_source(text)
    assert shape(parse(once)) == shape(parse(text)), once
    assert comments_of(once) == comments_of(text)
    assert format_source(once) == once
    return once


@quick
@given(st.data())
def test_any_program_keeps_its_tree_and_its_comments(data):
    """parse(fmt(x)) is parse(x) but for places, every comment is there once, and fmt(fmt(x)) is fmt(x)."""
    programs = Programs(lambda count: data.draw(st.integers(0, count - 1)))
    text, comments = programs.spaced(programs.program(3))
    once = assert_kept(text)
    assert comments_of(once) == sorted(comments)


@pytest.mark.parametrize("seed", range(int(__import__('os').environ.get('N','250'))))
def test_larger_programs_too(seed):
    programs = Programs.seeded(seed)
    text, _ = programs.spaced(programs.program(8))
    assert_kept(text)
