"""Positions and changes, in every encoding an editor may ask for."""

from __future__ import annotations

import random

import pytest

from lyra.lsp.texts import UTF8, UTF16, UTF32, Document, LineOffsets, Position, TextChange
from tests.cases import cases

TEXT = 'let a = "é";\r\nlet 🙂 = 1;\rprint(a);\n\nend'


@pytest.mark.parametrize(
    ("encoding", "character"), [(UTF16, 6), (UTF8, 8), (UTF32, 5)], ids=["utf-16", "utf-8", "utf-32"]
)
def test_a_column_counts_units_of_its_encoding(encoding, character):
    """Behind an emoji a column is two, four or one further."""
    lines = LineOffsets(TEXT, encoding)
    offset = TEXT.index("🙂") + 1
    assert lines.position(offset) == (1, character)
    assert lines.offset((1, character)) == offset


@pytest.mark.parametrize("encoding", [UTF8, UTF16, UTF32])
def test_every_offset_comes_back(encoding):
    lines = LineOffsets(TEXT, encoding)
    inside = TEXT.index("\r\n") + 1  # between the two characters of a line's end there is no position
    for offset in range(len(TEXT) + 1):
        assert lines.offset(lines.position(offset)) == (offset if offset != inside else offset - 1)


def test_lines_end_as_the_protocol_says():
    """`\\n`, `\\r\\n` and `\\r` end lines; a form feed and a line separator do not."""
    assert len(LineOffsets("a\nb\r\nc\rd")) == 4
    assert len(LineOffsets("a\fb\u2028c\x85d\x0be")) == 1


@pytest.mark.parametrize(
    ("position", "offset"), [((-1, 0), 0), ((0, 99), 12), ((0, -5), 0), ((99, 0), len(TEXT)), ((1, 5), 18)]
)
def test_a_position_outside_is_moved_to_the_edge(position, offset):
    """Also one in the middle of a character: that is its beginning."""
    assert LineOffsets(TEXT, UTF16).offset(position) == offset


def test_changes_are_applied_one_after_another():
    document = Document("file:///a", "/a", "one\ntwo\n")
    document.apply(TextChange("2", Position(1, 0), Position(1, 3)))
    document.apply(TextChange("🙂", Position(0, 0), Position(0, 0)))
    document.apply(TextChange("!", Position(0, 2), Position(0, 5)))
    assert document.text == "🙂!\n2\n"
    document.apply(TextChange("all new"))
    assert document.text == "all new"


def test_a_range_that_runs_backwards_changes_nothing_before_its_start():
    document = Document("file:///a", "/a", "abcdef")
    document.apply(TextChange("X", Position(0, 4), Position(0, 2)))
    assert document.text == "abcdXef"


@pytest.mark.parametrize("encoding", [UTF8, UTF16, UTF32])
def test_random_changes_equal_those_of_a_plain_list_of_characters(encoding):
    dice = random.Random(7)
    document = Document("file:///a", "/a", TEXT, encoding=encoding)
    for _ in range(cases(300)):
        first, last = sorted((dice.randrange(len(document.text) + 1), dice.randrange(len(document.text) + 1)))
        start, end = document.lines.position(first), document.lines.position(last)
        first, last = document.lines.offset(start), document.lines.offset(end)
        new = dice.choice(["", "x", "🙂", "\n", "é\r\n", "\r"])
        wanted = document.text[:first] + new + document.text[last:]
        document.apply(TextChange(new, start, end))
        assert document.text == wanted
        if len(wanted) < 5:
            document.apply(TextChange(TEXT))
