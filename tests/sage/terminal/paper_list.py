"""A paper that keeps its lines, for tests of what is printed."""

from __future__ import annotations

from collections.abc import Sequence

from lyra.sage.terminal.facts import TerminalFacts
from lyra.sage.terminal.text.styled_lines import Line, strip_style

FACTS = TerminalFacts(plain=False, colour=True, unicode=True, reflows=True)


class PaperList:
    def __init__(self, width: int = 80, facts: TerminalFacts = FACTS) -> None:
        self.facts = facts
        self.width = width
        self.lines: list[str] = []
        self.changes = 0
        self.alerts: list[str] = []

    def show(self, lines: Sequence[Line]) -> None:
        self.lines += [strip_style(line).rstrip() for line in lines]

    def alert(self, text: str) -> None:
        self.alerts.append(text)

    def mark_changed(self) -> None:
        self.changes += 1
