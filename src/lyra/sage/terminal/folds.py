"""What was printed only in part: thoughts and long outputs, by number, so that they can be shown whole later.

`/expand N` shows one of them, ctrl-o those that came since the last prompt. The oldest are forgotten.
"""

from __future__ import annotations

from typing import Final, NamedTuple

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
        """A new prompt: what was folded before is shown only by its number."""
        self._unseen.clear()

    def take_unseen(self) -> list[FoldedText]:
        """The folds since the last prompt that were not shown yet."""
        folds = [self._by_number[number] for number in self._unseen if number in self._by_number]
        self._unseen.clear()
        return folds

    def get(self, number: int) -> FoldedText | None:
        self._unseen.pop(number, None)
        return self._by_number.get(number)

    def recent(self, count: int) -> list[FoldedText]:
        return list(self._by_number.values())[-count:]
