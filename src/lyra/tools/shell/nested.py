"""Nested commands: the form in which `wrappers`, `shells` and `stdin_programs` report a command inside another."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from lyra.tools.shell.grammar import ShellCommand, Word
from lyra.tools.shell.text_glob import UNKNOWN

_DOCUMENTS: Final = frozenset({"<<", "<<-", "<<<"})
_STDIN_FILE: Final = re.compile(r"(?:.*/)?(?:dev|proc|fd|stdin|\.\.)(?:/.*)?|[0-9]+")


class Nested(NamedTuple):
    """A nested command: its words, or a text to read as a script, or the reason why neither is known."""

    words: list[Word] | None = None
    script: str | None = None
    doubt: str | None = None
    added: int = 0  # words at the end that do not stand in the line
    named: int = 0  # no nested command, but an allow with a wildcard has to spell out so many words
    aside: bool = False  # counts for denies only; an allow with a wildcard need not spell it out


def script_in(text: str) -> Iterator[Nested]:
    """A text that a shell reads as a script; in doubt where the text is not known."""
    if UNKNOWN in text:
        yield Nested(doubt="it runs a script that only the shell knows")
    else:
        yield Nested(script=text)


def is_input(path: str) -> bool:
    """Whether a file of this name may be an open file of the process: `/dev/stdin`, `/proc/self/fd/3`."""
    return UNKNOWN in path or _STDIN_FILE.fullmatch(posixpath.normpath(path)) is not None


def own_input(command: ShellCommand) -> bool:
    """Whether a redirection of the command names its input: a document or a file."""
    for start, operator, target in command.redirects:
        if start[0] in "<0" and (operator in _DOCUMENTS or (operator in ("<", "<>") and not is_input(target.text))):
            return True
    return False


def feeds(command: ShellCommand) -> bool:
    """Whether the command opens a text of the line itself, which other commands may read."""
    for _, operator, target in command.redirects:
        if operator in _DOCUMENTS or target.raw.startswith(("<(", ">(")):
            return True
    return False
