"""What a reader has seen of an answer that is tried again: only what is new is shown to him.

A second try mostly says the same as the first did, so its pieces are compared with what was shown. `Shown` keeps one
kind of text; a try that says something else, or less, is a matter for whoever holds it (`Sink` tells a restart).
"""

from __future__ import annotations

__all__ = ["Shown"]


class Shown:
    __slots__ = ("_at", "_before", "_pieces")

    def __init__(self) -> None:
        self._pieces: list[str] = []  # what the reader has
        self._before = ""  # the same as one text, while a new try has not said all of it
        self._at = 0  # how much of that the new try has said

    def begin(self) -> None:
        """A new try of the same answer."""
        self._before = self.text
        self._at = 0

    def clear(self) -> None:
        """That answer is whole; the next is another one."""
        self._pieces = []
        self._before = ""

    def feed(self, delta: str) -> str | None:
        """What of a piece is new to the reader; None where it contradicts what he has seen."""
        before, at = self._before, self._at
        if not before:
            self._pieces.append(delta)
            return delta
        if before.startswith(delta, at):
            self._at = at + len(delta)
            if self._at == len(before):
                self._before = ""
            return ""
        rest = before[at:]
        if not delta.startswith(rest):
            return None
        self._before = ""
        self._pieces.append(delta[len(rest) :])
        return delta[len(rest) :]

    @property
    def behind(self) -> bool:
        """This try has said less than the reader has seen."""
        return bool(self._before)

    @property
    def text(self) -> str:
        """What the reader has seen."""
        return "".join(self._pieces)

    def forget(self) -> str:
        """The reader forgets it all; gives what this try has said, which is what he has next."""
        said = self._before[: self._at] if self._before else self.text
        self._pieces = [said] if said else []
        self._before = ""
        return said
