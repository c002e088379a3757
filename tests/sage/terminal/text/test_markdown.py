"""A streamed text becomes blocks, and blocks become lines that stay."""

from __future__ import annotations

import pytest

from lyra.sage.terminal.text.markdown_view import MarkdownStream, markdown_lines
from lyra.sage.terminal.text.styled_lines import strip_style

TEXT = """# Title
Some *text*
on two lines.

- one
- two

  more of two

  ```py
  x = 1
  ```
- three

After.
```python
def f():

    return 1
```
1. a

2. b

> quote

| a | b |
|---|---|
| 1 | 2 |

last"""
BLOCKS = [
    "# Title",
    "Some *text*\non two lines.",
    "- one\n- two\n\n  more of two\n\n  ```py\n  x = 1\n  ```\n- three",
    "After.",
    "```python\ndef f():\n\n    return 1\n```",
    "1. a\n\n2. b",
    "> quote",
    "| a | b |\n|---|---|\n| 1 | 2 |",
    "last",
]


def blocks_of(text: str, size: int) -> list[str]:
    stream = MarkdownStream()
    blocks: list[str] = []
    for start in range(0, len(text), size):
        blocks += stream.feed(text[start : start + size])
    return [*blocks, *stream.finish()]


def lines_of(text: str, width: int = 60, *, colour: bool = False) -> list[str]:
    return [strip_style(line) for line in markdown_lines(text, width, colour=colour)]


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_blocks_do_not_depend_on_the_pieces_they_came_in(size: int) -> None:
    """A block is complete when the next begins; lists and code with blank lines stay whole."""
    assert blocks_of(TEXT, size) == BLOCKS


def test_a_block_is_given_out_as_soon_as_the_next_begins_and_the_tail_is_the_rest() -> None:
    """What is not complete is the tail, and nothing is given out twice."""
    stream = MarkdownStream()
    assert stream.feed("one\n") == []
    assert stream.feed("\ntw") == ["one"]
    assert stream.tail == "tw"
    assert stream.finish() == ["tw"]
    assert stream.tail == ""


def test_code_that_is_open_is_known_as_code() -> None:
    """The tail inside a fence is shown as code, not as prose."""
    stream = MarkdownStream()
    stream.feed("```\nx *y*\n\n# no heading\n")
    assert stream.tail_is_code
    assert stream.feed("```\n") == ["```\nx *y*\n\n# no heading\n```"]


def test_blocks_are_laid_out_with_their_marks_and_without_raw_markdown() -> None:
    """Emphasis, lists, quotes and tables read well as plain text."""
    assert lines_of("Some **bold** and `code`.") == ["Some bold and code."]
    assert lines_of("- one\n- two") == [" • one", " • two"]
    assert lines_of("# Title") == ["Title"]
    assert lines_of("```\na b\n```") == ["  a b"]
    assert "1" in lines_of("| a | b |\n|---|---|\n| 1 | 2 |")[-1]


def test_links_are_text_and_html_is_shown_as_written() -> None:
    """No hyperlink is made, the address can be seen, and no tag disappears."""
    assert lines_of("[here](http://x.y/z) <b>tag</b>") == ["here (http://x.y/z) <b>tag</b>"]
    assert all("\x1b" not in text for line in markdown_lines("[a](http://b)", 40, colour=True) for _, text in line)


def test_code_is_highlighted_where_there_is_colour_and_only_there() -> None:
    """Keywords have a colour of the terminal's own; without colour the same text has none."""
    code = "```python\ndef f():\n    return 'x'\n```"
    coloured = markdown_lines(code, 60, colour=True)
    assert any("ansi" in style for line in coloured for style, _ in line)
    plain = markdown_lines(code, 60, colour=False)
    assert not any("ansi" in style for line in plain for style, _ in line)
    assert [strip_style(line) for line in plain] == ["  def f():", "      return 'x'"]


def test_a_character_reference_cannot_bring_in_a_direction_mark_unseen_by_the_last_check() -> None:
    """`&#x202e;` becomes a direction mark in Markdown; the last check before the terminal replaces it."""
    from lyra.sage.terminal.text.styled_lines import for_output

    assert "\u202e" not in "".join(for_output(line, unicode=True) for line in lines_of("a&#x202e;b&#27;[31m"))


def test_long_lines_are_wrapped_at_words() -> None:
    """No line is wider than the terminal."""
    lines = lines_of("word " * 40, 40)
    assert max(map(len, lines)) <= 40
    assert len(lines) == 5
