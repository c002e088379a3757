"""The status line, the facts of a terminal, and what the first run says."""

from __future__ import annotations

import io

import pytest

from lyra.sage.agent.figures import ContextFigures, ContextTokens
from lyra.sage.terminal.echo import Folds
from lyra.sage.terminal.facts import TerminalFacts
from lyra.sage.terminal.loop import Status, missing_variables, status_line
from lyra.sage.terminal.text.styled_lines import MARKS, strip_style

FULL = Status("/home/me/lyra-agents", "main", 2, "anthropic/claude-sonnet-4-5", "default", 0.123, 5.0, 23)


class _Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_status_line_has_everything_where_there_is_room() -> None:
    text = strip_style(status_line(FULL, 110, marks=MARKS))
    assert text.startswith(" sage  lyra-agents  main ±2 ")
    assert text.endswith(" claude-sonnet-4-5   $0.12 of $5.00   context 23 %")
    assert len(text) == 110


def test_the_text_of_a_hook_takes_the_place_of_the_folder_and_the_branch() -> None:
    """Control characters in it are shown, not obeyed."""
    text = strip_style(status_line(FULL._replace(own="freeze\x1b[2J"), 110, marks=MARKS))
    assert text.startswith(" sage  freeze")
    assert "\x1b" not in text
    assert "main" not in text


@pytest.mark.parametrize("width", [20, 40, 60, 80])
def test_a_narrow_status_line_leaves_out_what_matters_least(width: int) -> None:
    text = strip_style(status_line(FULL._replace(mode="plan"), width, marks=MARKS))
    assert len(text) <= width
    assert "plan" in text


def test_the_context_is_a_share_of_the_window() -> None:
    tokens = ContextTokens(10, 0, 0, 36, total=46)
    assert ContextFigures(tokens, window=200, compact_at=160, estimated=False).percent == 23
    assert ContextFigures(tokens, window=None, compact_at=None, estimated=False).percent is None


def test_a_cost_that_is_not_known_is_not_shown_as_nothing() -> None:
    text = strip_style(status_line(FULL._replace(cost_usd=None), 110, marks=MARKS))
    assert text.endswith(" ? of $5.00   context 23 %")
    text = strip_style(status_line(FULL._replace(cost_usd=None, budget_usd=None), 110, marks=MARKS))
    assert text.endswith("   ?   context 23 %")


def test_nothing_is_said_of_a_cost_before_there_is_one() -> None:
    """`$0.00` would be read as a price; a small amount has its digits."""
    text = strip_style(status_line(FULL._replace(cost_usd=0.0, budget_usd=None), 110, marks=MARKS))
    assert "$" not in text
    text = strip_style(status_line(FULL._replace(cost_usd=0.0, budget_usd=5.0), 110, marks=MARKS))
    assert "$0 of $5.00" in text
    text = strip_style(status_line(FULL._replace(cost_usd=0.0012, budget_usd=None), 110, marks=MARKS))
    assert "$0.0012" in text


@pytest.mark.parametrize(
    ("env", "plain", "colour", "unicode"),
    [
        ({"TERM": "xterm", "LANG": "de_DE.UTF-8"}, False, True, True),
        ({"TERM": "xterm", "LC_ALL": "C", "LANG": "de_DE.UTF-8"}, False, True, False),
        ({"TERM": "xterm", "LANG": "C.utf8", "NO_COLOR": "1"}, False, False, True),
        ({"TERM": "dumb", "LANG": "C.UTF-8"}, True, False, True),
        ({"TERM": "xterm", "LANG": "C.UTF-8", "ACCESSIBLE": "1"}, True, True, True),
        ({"LANG": "de_DE.ISO-8859-1@euro", "TERM": "xterm"}, False, True, False),
    ],
)
def test_the_terminal_is_known_by_its_environment(
    env: dict[str, str], plain: bool, colour: bool, unicode: bool
) -> None:
    """NO_COLOR, dumb terminals, screen readers and locales without UTF-8."""
    facts = TerminalFacts.read(_Tty(), _Tty(), env)
    assert (facts.plain, facts.colour, facts.unicode) == (plain, colour, unicode)


def test_what_is_no_terminal_gets_plain_lines() -> None:
    facts = TerminalFacts.read(_Tty(), io.StringIO(), {"TERM": "xterm", "LANG": "C.UTF-8"})
    assert facts.plain
    assert not facts.colour


def test_a_model_without_its_key_names_the_variables() -> None:
    assert missing_variables("anthropic/x", {}, {}) == ("ANTHROPIC_API_KEY",)
    assert missing_variables("anthropic/x", {}, {"ANTHROPIC_API_KEY": "k"}) == ()
    assert missing_variables("anthropic/x", {"anthropic": {"api_key": "env:K"}}, {}) == ()
    assert missing_variables("ollama/x", {}, {}) == ()


def test_folds_are_bounded() -> None:
    """A session that is open all day keeps the last of them."""
    folds = Folds()
    for number in range(300):
        folds.add(str(number), "x" * 100_000)
    assert folds.get(300) is not None
    assert folds.get(1) is None
    assert sum(len(fold.text) for fold in folds.recent(1_000)) <= 8_000_000


def test_folds_are_kept_by_number_and_shown_once_by_the_key() -> None:
    folds = Folds()
    first, second = folds.add("a", "text a"), folds.add("b", "text b")
    assert [fold.number for fold in folds.take_unseen()] == [first.number, second.number]
    assert folds.take_unseen() == []
    assert folds.get(2) == second
    assert folds.get(3) is None
    folds.add("c", "text c")
    folds.begin_turn()
    assert folds.take_unseen() == []
