"""Attempts to act on the terminal by text: none has an effect, and the suite would see one if a check were missing."""

from __future__ import annotations

import pytest

from lyra.sage.terminal.text import styled_lines
from verify.attacks import terminal_text


def test_no_text_acts_on_the_terminal() -> None:
    """Whatever a model, a tool, a file or a command says, and wherever it is shown."""
    tried = terminal_text.run()
    assert tried.effects == []
    assert tried.attempts == len(terminal_text.TEXTS) * len(terminal_text.PLACES)


def test_without_the_last_check_a_text_would_act(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: text is written as it comes. Then a character reference of Markdown turns the direction."""
    monkeypatch.setattr(styled_lines, "for_output", lambda text, *, unicode: text)
    effects = "\n".join(terminal_text.run().effects)
    assert "by reference in the model's answer" in effects


def test_without_the_other_checks_the_last_one_still_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: prose is not cleaned. It looks worse, and does nothing."""
    from lyra.sage.terminal.text import markdown_view

    monkeypatch.setattr(markdown_view, "scrub", lambda text: text)
    assert terminal_text.run().effects == []
