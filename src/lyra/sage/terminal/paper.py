"""Paper: where finished lines go, and with it the blank lines between groups of them.

A screen (`screen` or `plain`) is a paper. `Sheet` adds the spacing: groups of the same kind that stand close together,
such as tool calls, have no blank line between them; other groups have one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from lyra.sage.terminal.facts import TerminalFacts
from lyra.sage.terminal.text.styled_lines import Line

_CLOSE: Final = frozenset({"tool", "note"})  # kinds whose groups follow each other without a blank line


class Paper(Protocol):
    """A screen to which finished lines are printed."""

    facts: TerminalFacts

    @property
    def width(self) -> int:
        """How many columns lines may have now."""

    def show(self, lines: Sequence[Line]) -> None:
        """Print finished lines; they are never changed again."""

    def changed(self) -> None:
        """The live block has changed: draw it soon, where there is one."""


class Sheet:
    """Prints groups of lines on a paper, with blank lines between groups."""

    __slots__ = ("_kind", "paper")

    def __init__(self, paper: Paper) -> None:
        self.paper = paper
        self._kind = ""

    @property
    def width(self) -> int:
        return self.paper.width

    def follows_closely(self, kind: str) -> bool:
        """Whether a group of this kind would follow what was printed last without a blank line."""
        return not self._kind or (kind in _CLOSE and self._kind in _CLOSE)

    def was_shown(self, kind: str) -> None:
        """A group of this kind stands on the paper already."""
        self._kind = kind

    def print(self, kind: str, lines: Sequence[Line]) -> None:
        if not lines:
            return
        blank: list[Line] = [] if self.follows_closely(kind) else [[]]
        self._kind = kind
        self.paper.show([*blank, *lines])
