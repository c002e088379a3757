"""Lines of the terminal's own words: the echo of a prompt, notes, errors, and texts that were unfolded.

`Paper` is what they are printed on; `Folds` keeps what was printed only in part, by number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from lyra.errors import LyraError
from lyra.sage.agent.tasks.state import TaskRecord
from lyra.sage.terminal.facts import TerminalFacts
from lyra.sage.terminal.text.diff_view import diff_lines
from lyra.sage.terminal.text.styled_lines import MARGIN, Line, indent_lines, scrub, scrub_lines, wrap_text

_ECHO_ROWS_MAX: Final = 40
_TASK_CHARS_MAX: Final = 200


def count_lines(count: int, where: str) -> str:
    """Return how many lines stand before, or how many more there are."""
    words = f"line{'' if count == 1 else 's'}"
    return f"{count} more {words}" if where == "more" else f"{count} {words} {where}"


def prompt_lines(text: str, width: int, facts: TerminalFacts) -> list[Line]:
    """Return what the person sent, as it stays in the scrollback."""
    rows = [row for part in scrub(text).rstrip().split("\n") for row in wrap_text(part, width - MARGIN)]
    if len(rows) > _ECHO_ROWS_MAX:
        left_out = len(rows) - _ECHO_ROWS_MAX
        rows = [*rows[:_ECHO_ROWS_MAX], f"{facts.marks.ellipsis} {count_lines(left_out, 'more')}"]
    first, *others = rows
    return [[("user", f"{facts.marks.prompt} {first}")], *([("user", f"  {row}")] for row in others)]


def note_lines(text: str, width: int, style: str = "faint", *, indent: int = MARGIN) -> list[Line]:
    rows = [row for part in scrub(text).split("\n") for row in wrap_text(part, max(10, width - indent))]
    return indent_lines([[(style, row)] for row in rows], indent)


def error_lines(error: LyraError, width: int) -> list[Line]:
    lines = note_lines(error.message, width, "failed")
    if error.place:
        lines += note_lines(f"at {error.place}", width)
    return [*lines, *note_lines(f"hint: {error.hint}", width)] if error.hint else lines


def task_words(task: TaskRecord) -> str:
    """Return a task in the background, in a few words."""
    return scrub(f"{task.name} {task.description} ({task.id})")[:_TASK_CHARS_MAX]


def render_fold(fold: FoldedText, width: int, facts: TerminalFacts) -> list[Line]:
    """Return a fold, whole."""
    title: Line = [("strong", f"{' ' * MARGIN}{fold.number}  {scrub(fold.title)[: max(10, width - 8)]}")]
    if fold.title == "diff":
        return [title, *diff_lines(fold.text, width, marks=facts.marks)]
    rows = [row for part in scrub_lines(fold.text) for row in wrap_text(part, max(10, width - 4))]
    return [title, *indent_lines([[("", row)] for row in rows], 4)]


# ---------------------------------------------------------------- folds

_KEPT_MAX: Final = 200
_ALL_CHARS_MAX: Final = 8_000_000
_CHARS_MAX: Final = 400_000  # of one; the end of a longer one is kept


class FoldedText(NamedTuple):
    number: int
    title: str
    text: str


class Folds:
    """The folded texts of a session."""

    __slots__ = ("_by_number", "_chars", "_next", "_unseen")

    def __init__(self) -> None:
        self._chars = 0
        self._by_number: dict[int, FoldedText] = {}
        self._unseen: dict[int, None] = {}
        self._next = 1

    def add(self, title: str, text: str) -> FoldedText:
        fold = FoldedText(self._next, title, text[-_CHARS_MAX:])
        self._next += 1
        self._by_number[fold.number] = fold
        self._unseen[fold.number] = None
        self._chars += len(fold.text)
        while len(self._by_number) > _KEPT_MAX or (self._chars > _ALL_CHARS_MAX and len(self._by_number) > 1):
            oldest = self._by_number.pop(next(iter(self._by_number)))
            self._chars -= len(oldest.text)
            self._unseen.pop(oldest.number, None)
        return fold

    def begin_turn(self) -> None:
        """Begin with a new prompt: what was folded before is shown only by its number."""
        self._unseen.clear()

    def take_unseen(self) -> list[FoldedText]:
        """Return the folds since the last prompt that were not shown yet."""
        folds = [self._by_number[number] for number in self._unseen if number in self._by_number]
        self._unseen.clear()
        return folds

    def get(self, number: int) -> FoldedText | None:
        self._unseen.pop(number, None)
        return self._by_number.get(number)

    def recent(self, count: int) -> list[FoldedText]:
        return list(self._by_number.values())[-count:]


# ---------------------------------------------------------------- paper

_CLOSE: Final = frozenset({"tool", "note"})  # kinds whose groups follow each other without a blank line


class Paper(Protocol):
    """Where finished lines go, and with it the blank lines between groups of them. A screen to which finished lines are
    printed."""

    facts: TerminalFacts

    @property
    def width(self) -> int:
        """Return how many columns lines may have now."""

    def show(self, lines: Sequence[Line]) -> None:
        """Print finished lines; they are never changed again."""

    def alert(self, text: str) -> None:
        """Tell the person that something waits for them, as the settings say."""

    def mark_changed(self) -> None:
        """Draw the live block soon, where there is one: it has changed."""


class Sheet:
    """Prints groups of lines on a paper, with blank lines between groups."""

    __slots__ = ("_kind", "groups", "paper")

    def __init__(self, paper: Paper) -> None:
        self.paper = paper
        self.groups = 0  # that were printed
        self._kind = ""

    @property
    def width(self) -> int:
        return self.paper.width

    def follows_closely(self, kind: str) -> bool:
        """Return whether a group of this kind would follow what was printed last without a blank line."""
        return not self._kind or (kind in _CLOSE and self._kind in _CLOSE)

    def was_shown(self, kind: str) -> None:
        """Note that a group of this kind stands on the paper already."""
        self._kind = kind

    def print(self, kind: str, lines: Sequence[Line]) -> None:
        if not lines:
            return
        blank: list[Line] = [] if self.follows_closely(kind) else [[]]
        self._kind = kind
        self.groups += 1
        self.paper.show([*blank, *lines])
