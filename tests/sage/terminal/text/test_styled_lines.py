"""Lines fit their terminal: wrapped, cut, in columns."""

from __future__ import annotations

from lyra.sage.terminal.text.styled_lines import (
    clip,
    clip_text,
    cut_start,
    inline_style,
    row,
    sgr,
    strip_style,
    width_of,
    wrap,
    wrap_text,
)


def test_figures_stand_at_the_right_edge() -> None:
    """Verb, object and figures have their columns."""
    (line,) = row("Read", [("", "src/export.py")], [("faint", "84 lines")], 80)
    text = strip_style(line)
    assert text.startswith("  Read    src/export.py ")
    assert text.endswith("84 lines")
    assert len(text) == 80


def test_on_a_narrow_terminal_the_figures_move_below() -> None:
    """Below 60 columns the right column is a line of its own."""
    lines = [strip_style(line) for line in row("Read", [("", "a/" * 40)], [("", "   84 lines")], 50)]
    assert [len(line) <= 50 for line in lines] == [True, True]
    assert lines[1] == "          84 lines"


def test_texts_are_cut_by_cells_of_the_terminal() -> None:
    """A wide character counts as two."""
    assert clip_text("日本語日本語", 7) == "日本語…"
    assert cut_start("/a/long/path/file.py", 10) == "…h/file.py"
    assert strip_style(clip([("", "abc"), ("x", "defgh")], 6)) == "abcde…"
    assert clip([("", "abc")], 3) == [("", "abc")]


def test_text_is_wrapped_at_blanks_and_long_words_are_broken() -> None:
    """Nothing is lost, and no line is too wide."""
    assert wrap_text("one two three", 7) == ["one two", "three"]
    assert wrap_text("abcdefghij", 4) == ["abcd", "efgh", "ij"]
    styled = wrap([("a", "one two "), ("b", "three fourfivesix")], 9, hanging=2)
    assert [strip_style(line).rstrip() for line in styled] == ["one two", "  three f", "  ourfive", "  six"]
    assert all(width_of(line) <= 9 for line in styled)


def test_styles_have_no_colour_where_there_is_none() -> None:
    """Without colour what was coloured keeps its other attributes."""
    assert sgr("failed", colour=True) == "\x1b[31;1m"
    assert sgr("failed", colour=False) == "\x1b[1m"
    assert sgr("added", colour=False) == ""
    assert inline_style("bold ansigreen", colour=False) == "bold"
