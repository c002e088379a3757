"""Tables in terminals of any width."""

from __future__ import annotations

from prompt_toolkit.utils import get_cwidth

from lyra.sage.terminal.commands_view import table_lines
from tests.cases import each

TITLES = ("turn", "calls", "input", "output", "from cache", "cost")
ROWS = (
    ("1", "3", "12.4k", "301", "12 %", "$0.0123"),
    ("this session", "13", "112.4k", "1301", "9 %", "$0.0523"),
)


def lines(width: int) -> list[str]:
    return ["".join(text for _, text in line) for line in table_lines(TITLES, ROWS, width)]


def test_a_wide_terminal_has_columns() -> None:
    assert lines(60) == [
        "turn          calls  input   output  from cache     cost",
        "1                 3  12.4k      301        12 %  $0.0123",
        "this session     13  112.4k    1301         9 %  $0.0523",
    ]


def test_rows_that_do_not_fit_are_paragraphs() -> None:
    """The first cell, and below it the others behind the titles of their columns."""
    assert lines(38) == [
        "turn 1",
        "  calls 3  input 12.4k  output 301",
        "  from cache 12 %  cost $0.0123",
        "this session",
        "  calls 13  input 112.4k  output 1301",
        "  from cache 9 %  cost $0.0523",
    ]


@each(range(8, 80))
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert all(get_cwidth(line) <= width for line in lines(width))


def test_rows_without_titles_or_words() -> None:
    """A title that is empty is left out, and so is a cell."""
    wide = "word " * 6
    table = table_lines(["", "", ""], [["", wide, ""], ["name", wide, wide]], 20)
    assert all(get_cwidth(text) <= 20 for line in table for _, text in line)
