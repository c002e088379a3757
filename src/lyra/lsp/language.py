"""What a language can answer about the texts of an editor, as plain data: places are offsets, words are Markdown.

A `Language` is what `server` asks. `diagnose` is the least it implements; a request is offered to the editor where the
language overrides its method.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import ClassVar, Final, NamedTuple

from lyra.lsp.texts import OpenTexts, Place


class Elsewhere(NamedTuple):
    """A place in another file, by line and column from 1."""

    file: str
    line: int
    column: int
    message: str


class Remark(NamedTuple):
    """One remark about a text, by offsets. `severity` is error, warning or info."""

    at: int
    end: int
    message: str
    hint: str = ""
    severity: str = "error"
    elsewhere: tuple[Elsewhere, ...] = ()

    @property
    def is_unneeded(self) -> bool:
        """Whether the code could be taken out: editors show it faded."""
        return "never reached" in self.message


class Fix(NamedTuple):
    """New text for a piece of the old, and what an editor calls it."""

    at: int
    end: int
    text: str
    title: str


_WORD: Final = re.compile(r"[\w:]*")
_QUOTED: Final = re.compile(r"`([^`]+)`")


def word_fixes(remark: Remark, text: str) -> list[Fix]:
    """Return the fixes of a hint that names other words for the one that is written: one for each."""
    if not remark.hint.startswith("did you mean") or not _WORD.fullmatch(text, remark.at, remark.end):
        return []
    return [Fix(remark.at, remark.end, meant, f"Change to `{meant}`") for meant in _QUOTED.findall(remark.hint)]


class Hover(NamedTuple):
    at: int
    end: int
    text: str


class Item(NamedTuple):
    """Something that may be written next. `kind` is a row of the table of kinds in `protocol`. `insert` is what is
    written, with `${1:…}` where the cursor goes if it is a snippet; "" is the label."""

    label: str
    kind: str
    detail: str = ""
    text: str = ""
    insert: str = ""


class SignatureHelp(NamedTuple):
    label: str
    parameters: list[str]  # each as it stands in the label
    active: int
    text: str = ""


class OutlineEntry(NamedTuple):
    name: str
    role: str
    at: int  # all of it
    end: int
    name_at: int
    name_end: int
    inside: list[OutlineEntry]


class Coloured(NamedTuple):
    """A word with a meaning, for the colours of an editor."""

    at: int
    length: int
    type: str
    modifiers: tuple[str, ...] = ()


class RenameRefused(ValueError):
    """A name that cannot be given; its text says why."""


class Language:
    """See the module. `texts` has the open files; `path` names one of them."""

    name: ClassVar[str]  # of the language, and of its command
    triggers: ClassVar[tuple[str, ...]] = ()  # characters after which an editor asks for completions
    colour_types: ClassVar[tuple[str, ...]] = ()
    colour_modifiers: ClassVar[tuple[str, ...]] = ()

    def __init__(self, texts: OpenTexts) -> None:
        self.texts = texts

    def forget(self, path: str) -> None:
        """Drop what is kept of a file that was closed."""

    def depends_on(self, path: str, changed: str) -> bool:  # noqa: ARG002 - the least a language can say
        """Return whether the remarks about a file may be others after a change of another file."""
        return False

    def diagnose(self, path: str, *, thorough: bool) -> list[Remark]:
        """Return all remarks about a file; `thorough`: it was opened or saved, and may take longer."""
        raise NotImplementedError

    def fixes(self, path: str, remark: Remark) -> list[Fix]:
        raise NotImplementedError

    def hover(self, path: str, offset: int) -> Hover | None:
        raise NotImplementedError

    def definition(self, path: str, offset: int) -> Place | None:
        raise NotImplementedError

    def references(self, path: str, offset: int, *, with_declaration: bool) -> list[Place]:
        raise NotImplementedError

    def outline(self, path: str) -> list[OutlineEntry]:
        raise NotImplementedError

    def colours(self, path: str) -> list[Coloured]:
        raise NotImplementedError

    def lenses(self, path: str) -> Awaitable[list[tuple[int, str]]]:
        """Return lines, from 1, and what stands above each."""
        raise NotImplementedError

    def complete(self, path: str, offset: int) -> list[Item]:
        raise NotImplementedError

    def signature_help(self, path: str, offset: int) -> SignatureHelp | None:
        raise NotImplementedError

    def format(self, path: str) -> list[tuple[int, int, str]]:
        """Return the edits (from, to, new text) that give a file its layout."""
        raise NotImplementedError

    def find_name(self, path: str, offset: int) -> tuple[Place, str] | None:
        """Return what would be renamed: its place under the offset and its name; None where nothing can be."""
        raise NotImplementedError

    def rename(self, path: str, offset: int, name: str) -> list[Place]:
        """Return every place to write the new name at; RenameRefused with the reason where it cannot be given."""
        raise NotImplementedError

    def answers(self, method: Callable[..., object]) -> bool:
        """Return whether the language overrides a method of this class."""
        return getattr(type(self), method.__name__) is not method
