"""The blocks of commands fit the terminal."""

from __future__ import annotations

from typing import Any

import pytest

from lyra.sage.commands.result import bars, diff, lines, table, text
from lyra.sage.terminal.commands_view import block_lines, is_command
from lyra.sage.terminal.facts import TerminalFacts
from lyra.sage.terminal.text.styled_lines import strip_style, width_of

FACTS = TerminalFacts(plain=False, colour=True, unicode=True, reflows=True)


def texts_of(block: dict[str, Any], width: int = 60) -> list[str]:
    return [strip_style(line) for line in block_lines(block, width, FACTS)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/help", True),
        ("/undo 3", True),
        ("/", True),
        ("/plugin:name x/y", True),
        ("/home/me/a.png look", False),
        ("x /a", False),
    ],
)
def test_a_path_is_no_command(text: str, expected: bool) -> None:
    """A picture that is dropped into the terminal begins with a slash, too."""
    assert is_command(text) is expected


def test_a_table_has_columns_and_numbers_at_the_right() -> None:
    assert texts_of(table(("turn", "cost"), [(1, "$0.10"), (12, "$10.00")])) == [
        "  turn    cost",
        "     1   $0.10",
        "    12  $10.00",
    ]


def test_a_wide_table_is_wrapped_and_nothing_is_lost() -> None:
    """On a narrow terminal the widest cells go on below."""
    block = table(("command", ""), [("/permissions [allow RULE]", "Show rules and modes, add a rule, or change it.")])
    rows = texts_of(block, 40)
    assert max(map(len, rows)) <= 40
    words = "command /permissions [allow RULE] Show rules and modes, add a rule, or change it."
    assert sorted(" ".join(rows).split()) == sorted(words.split())


def test_a_table_without_titles_has_no_heading() -> None:
    assert texts_of(table(("", ""), [("mode", "plan")])) == ["  mode  plan"]


def test_bars_are_as_long_as_their_share() -> None:
    rows = texts_of(bars([("tools", 50.0, "50 tokens"), ("messages", 100.0, "all")], of=100.0, title="context"), 80)
    assert rows[0] == "  context"
    assert rows[1].count("█") == 15
    assert rows[2].count("█") == 30
    assert rows[1].endswith("50 tokens")


def test_texts_lines_and_diffs_are_laid_out() -> None:
    assert texts_of(text("Some **bold**.")) == ["  Some bold."]
    assert texts_of(lines(["a", "b"], title="t")) == ["  t", "  a", "  b"]
    assert texts_of(diff("@@ -1,1 +1,1 @@\n-a\n+b\n")) == ["  1 − a", "  1 + b"]


@pytest.mark.parametrize(
    "block",
    [text("x\x1b[2J"), lines(["\x1b]0;t\x07x"]), table(("\x07",), [("\x1b[2J",)]), diff("@@ -1 +1 @@\n+\x1b[0m")],
)
def test_blocks_cannot_act_on_the_terminal(block: dict[str, Any]) -> None:
    assert all("\x1b" not in row and "\x07" not in row for row in texts_of(block))


@pytest.mark.parametrize("width", [40, 60, 100])
def test_no_block_is_wider_than_the_terminal(width: int) -> None:
    blocks = [
        table(("a", "b", "c"), [("word " * 9, "x" * 30, "1")]),
        bars([("name" * 5, 3.0, "words " * 9)]),
        lines(["word " * 40]),
    ]
    for block in blocks:
        assert max(width_of(line) for line in block_lines(block, width, FACTS)) <= width
