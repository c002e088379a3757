"""Random texts: nothing is lost on the way to the screen, and no line is too wide."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from prompt_toolkit.utils import get_cwidth

from lyra.sage.terminal.text.markdown_view import MarkdownStream, markdown_lines
from lyra.sage.terminal.text.styled_lines import clip, for_output, row, scrub, strip_style, width_of, wrap, wrap_text
from tests.cases import cases

MARKS = ("# a", "- b", "  - c", "1. d", "```", "```py", "~~~", "> e", "| f | g |", "|---|---|", "", "", "---", "**h")
WORDS = st.sampled_from((*MARKS, "x" * 90))
MARKDOWN = st.lists(st.one_of(WORDS, st.text(max_size=12)), max_size=25).map("\n".join)
LINES = st.lists(st.tuples(st.sampled_from(["", "strong"]), st.text("ab 日é", max_size=30)), max_size=4)


@settings(max_examples=cases(200), deadline=None)
@given(MARKDOWN, st.integers(1, 9))
def test_every_line_of_a_streamed_text_is_in_one_block(text: str, size: int) -> None:
    """Blocks are the text without blank lines between them, in order, however it was cut into pieces."""
    text = text.replace("\r", "")
    stream = MarkdownStream()
    blocks: list[str] = []
    for start in range(0, len(text), size):
        blocks += stream.feed(text[start : start + size])
    blocks += stream.finish()
    wanted = [line.strip() for line in text.split("\n") if line.strip()]
    assert [line.strip() for block in blocks for line in block.split("\n") if line.strip()] == wanted


@settings(max_examples=cases(200), deadline=None)
@given(MARKDOWN, st.integers(20, 90))
def test_a_laid_out_text_fits_its_width(text: str, width: int) -> None:
    for line in markdown_lines(text, width, colour=True):
        assert get_cwidth(for_output(strip_style(line), unicode=True)) <= max(width, 20) + 2


@settings(max_examples=cases(200), deadline=None)
@given(st.text(max_size=200), st.integers(1, 40))
def test_wrapped_text_keeps_its_characters(text: str, width: int) -> None:
    text = for_output(scrub(text), unicode=True)
    lines = wrap_text(text, width)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(get_cwidth(line) <= max(width, 2) for line in lines)


@settings(max_examples=cases(200), deadline=None)
@given(LINES, st.integers(12, 60))
def test_styled_lines_fit_when_wrapped_or_cut(line: list[tuple[str, str]], width: int) -> None:
    assert all(width_of(part) <= width for part in wrap(line, width, hanging=3))
    assert width_of(clip(line, width)) <= width
    wrapped = "".join(strip_style(part) for part in wrap(line, width))
    assert "".join(wrapped.split()) == "".join(strip_style(line).split())


@settings(max_examples=cases(200), deadline=None)
@given(LINES, LINES, st.integers(40, 110))
def test_rows_of_tool_calls_fit(about: list[tuple[str, str]], figures: list[tuple[str, str]], width: int) -> None:
    figures = [(style, text[:8]) for style, text in figures][:2]
    assert all(width_of(line) <= width for line in row("Verb", about, figures, width))


@settings(max_examples=cases(200), deadline=None)
@given(st.text())
def test_nothing_that_acts_on_a_terminal_passes(text: str) -> None:
    for clean in (
        for_output(text, unicode=True),
        for_output(text, unicode=False),
        for_output(scrub(text), unicode=True),
    ):
        assert all(char.isprintable() or ord(char) > 0x9F for char in clean)
        assert "\x1b" not in clean
