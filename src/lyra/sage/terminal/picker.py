"""Picker: one of many chosen in the live block: models, sessions, earlier prompts. Words search it, Enter takes one.

What is typed while it is open goes into the search and not into the prompt, which keeps its draft. Esc closes it. What
a choice does is a slash command; nothing of it is known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lyra.sage.commands.result import Choices, SlashChoice
from lyra.sage.terminal.text.styled_lines import MARGIN, Line, Marks, clip, exact, width_of

_ROWS_MAX: Final = 12
_GAP: Final = 2
_NARROW: Final = 60  # below it the choices have no second column


class Picker:
    """What is offered, what was typed to search it, and which row is marked."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        self._typed = ""
        self._index = 0
        self._matching: Sequence[SlashChoice] = choices.rows

    def type(self, text: str) -> None:
        """Search for more text."""
        self._search(self._typed + "".join(char for char in text if char.isprintable()))

    def erase(self) -> None:
        """Take back the last letter of the search."""
        self._search(self._typed[:-1])

    def _search(self, typed: str) -> None:
        self._typed = typed
        self._index = 0
        words = typed.lower().split()
        rows = [row for row in self._choices.rows if all(word in f"{row.label} {row.about}".lower() for word in words)]
        if words and self._choices.search is not None:
            known = {row.command for row in rows}
            rows += [row for row in self._choices.search(typed) if row.command not in known]
        self._matching = rows

    def move(self, rows: int) -> None:
        """Mark another row, so many below; above the first comes the last."""
        count = len(self._matching)
        if count:
            step = rows if abs(rows) == 1 else max(-self._index, min(rows, count - 1 - self._index))
            self._index = (self._index + step) % count

    @property
    def marked(self) -> SlashChoice | None:
        return self._matching[self._index] if self._matching else None

    def live_lines(self, width: int, rows: int, marks: Marks) -> list[Line]:
        """Return the search, the rows around the marked one, and the keys; in at most so many lines."""
        room = max(1, min(_ROWS_MAX, rows - 4))
        first = max(0, min(self._index - room // 2, len(self._matching) - room))
        count = f"{len(self._matching)} of {len(self._choices.rows)}" if self._typed else f"{len(self._choices.rows)}"
        lines: list[Line] = [
            [],
            [
                ("strong", f"{' ' * MARGIN}{self._choices.title}"),
                ("faint", f"  {count}  "),
                ("key", exact(self._typed)),
            ],
        ]
        for number, choice in enumerate(self._matching[first : first + room], start=first):
            lines.append(_row(choice, width, marks, is_marked=number == self._index))
        if not self._matching:
            lines.append([("faint", f"{' ' * (MARGIN + 2)}nothing matches")])
        words = (
            ("enter takes it", "letters search", "esc closes") if width >= _NARROW else ("enter takes it", "esc closes")
        )
        keys = f" {marks.dot} ".join(words)
        return [*lines, [("faint", f"{' ' * MARGIN}{keys}")]]


def _row(choice: SlashChoice, width: int, marks: Marks, *, is_marked: bool) -> Line:
    style = "selected" if is_marked else ""
    mark = marks.current if is_marked else " "
    about = f"{' ' * _GAP}{exact(choice.about)}" if choice.about and width >= _NARROW else ""
    room = max(10, width - MARGIN - 2 - width_of([("", about)]))
    label = clip([(style, exact(choice.label))], room, marks.ellipsis)
    blanks = " " * (room - width_of(label)) if about else ""
    return [("", f"{' ' * MARGIN}{mark} "), *label, ("", blanks), (style or "faint", about)]
