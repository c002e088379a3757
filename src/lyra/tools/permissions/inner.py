"""A command inside another one, as whoever finds it tells of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from lyra.tools.permissions.shell import Word
from lyra.tools.permissions.text_glob import UNKNOWN

__all__ = ["Inner", "script_in"]


class Inner(NamedTuple):
    """A command inside: its words, or a text to read as a script, or the reason why neither is known."""

    words: list[Word] | None = None
    script: str | None = None
    doubt: str | None = None
    added: int = 0  # words at the end that are not in the line
    named: int = 0  # nothing is inside, but a rule with a wildcard has to name so many words itself
    aside: bool = False  # for a deny to see; a rule with a wildcard need not name it


def script_in(text: str) -> Iterator[Inner]:
    """A text that a shell will read, where it is known."""
    if UNKNOWN in text:
        yield Inner(doubt="it runs a script that only the shell knows")
    else:
        yield Inner(script=text)
