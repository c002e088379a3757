"""A command inside another one, as whoever finds it tells of it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from lyra.tools.shell.grammar import Command, Word
from lyra.tools.shell.text_glob import UNKNOWN

__all__ = ["Inner", "feeds", "is_input", "own_input", "script_in"]

_DOCUMENTS: Final = frozenset({"<<", "<<-", "<<<"})
_STDIN_FILE: Final = re.compile(r"(?:.*/)?(?:dev|proc|fd|stdin|\.\.)(?:/.*)?|[0-9]+")


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


def is_input(path: str) -> bool:
    """Whether a file of this name may be what is open already: `/dev/stdin`, `/proc/self/fd/3`."""
    return UNKNOWN in path or _STDIN_FILE.fullmatch(posixpath.normpath(path)) is not None


def own_input(command: Command) -> bool:
    """Whether the command says itself what its input is: a document, or a file."""
    for start, operator, target in command.redirects:
        if start[0] in "<0" and (operator in _DOCUMENTS or (operator in ("<", "<>") and not is_input(target.text))):
            return True
    return False


def feeds(command: Command) -> bool:
    """Whether it opens a text of the line itself, for others to read."""
    for _, operator, target in command.redirects:
        if operator in _DOCUMENTS or target.raw.startswith(("<(", ">(")):
            return True
    return False
