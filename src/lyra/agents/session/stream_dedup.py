"""StreamDedup: passes on only the new part of a text that is streamed again.

When a broken answer is tried again, the second try mostly says the same as the first, which the reader has seen. A
StreamDedup holds the text of one kind (answer or thinking) that the reader has. A try that says something else, or
less, cannot be continued: `Sink` then tells the reader to start over.
"""

from __future__ import annotations


class StreamDedup:
    __slots__ = ("_pieces", "_position", "_seen")

    def __init__(self) -> None:
        self._pieces: list[str] = []  # the pieces that the reader has
        self._seen = ""  # the same as one text, until a new try has said all of it
        self._position = 0  # how much of `_seen` the new try has said

    def begin(self) -> None:
        """A new try of the same answer begins."""
        self._seen = self.text
        self._position = 0

    def clear(self) -> None:
        """The answer is whole; the next one is another."""
        self._pieces = []
        self._seen = ""

    def feed(self, delta: str) -> str | None:
        """The part of a piece that is new to the reader; None where it contradicts what the reader has."""
        seen, position = self._seen, self._position
        if not seen:
            self._pieces.append(delta)
            return delta
        if seen.startswith(delta, position):
            self._position = position + len(delta)
            if self._position == len(seen):
                self._seen = ""
            return ""
        rest = seen[position:]
        if not delta.startswith(rest):
            return None
        self._seen = ""
        self._pieces.append(delta[len(rest) :])
        return delta[len(rest) :]

    @property
    def behind(self) -> bool:
        """Whether this try has said less than the reader has seen."""
        return bool(self._seen)

    @property
    def text(self) -> str:
        """The text that the reader has seen."""
        return "".join(self._pieces)

    def forget(self) -> str:
        """Start over with what this try has said so far, and give that."""
        repeated = self._seen[: self._position] if self._seen else self.text
        self._pieces = [repeated] if repeated else []
        self._seen = ""
        return repeated
