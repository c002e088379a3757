"""Triggers of a skill: words, patterns and file endings by which it fits a message.

    triggers:
      keywords: [release, publish]
      patterns: ['v[0-9]+[.][0-9]+']
      extensions: [.toml]

Patterns are matched in linear time and within a bound of steps, so that a file cannot make Sage wait. A trigger only
has a skill suggested; it never runs anything.
"""

from __future__ import annotations

import os
import re
from typing import Any, Final

import msgspec

from lyra.core.linear_regex import BadPattern, RegexProgram, TooManySteps
from lyra.sage.extensions.front_matter import MarkdownFile

_KINDS: Final = ("keywords", "patterns", "extensions")
_ENTRIES_MAX: Final = 30
_ENTRY_CHARS_MAX: Final = 200
_TEXT_CHARS_MAX: Final = 4_000  # of a message: one that is longer is judged by its beginning
_PROGRAM_SIZE_MAX: Final = 500
_STEPS_MAX: Final = 50_000
_EXTENSION: Final = re.compile(r"\.[A-Za-z0-9_+-]{1,20}\Z")
_WORD: Final = re.compile(r"[^\s'\"`()<>,;]+")


class Triggers(msgspec.Struct, frozen=True):
    """`keywords` and `extensions` are in small letters."""

    keywords: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()

    def fit(self, prompt: str, files: tuple[str, ...] = ()) -> bool:
        """Whether one of them fits the message, or one of the files that it is about."""
        text = prompt[:_TEXT_CHARS_MAX]
        lower = text.lower()
        if any(_has_word(lower, word) for word in self.keywords):
            return True
        if self.extensions:
            named = (*files, *(word.rstrip(".:!?") for word in _WORD.findall(text)))
            if any(os.path.splitext(name)[1].lower() in self.extensions for name in named):
                return True
        return any(_matches(pattern, text) for pattern in self.patterns)


def _has_word(text: str, word: str) -> bool:
    """Whether a text has a word, not as a part of another one."""
    start = text.find(word)
    while start >= 0:
        before, after = text[start - 1 : start], text[start + len(word) : start + len(word) + 1]
        if not (before.isalnum() and word[0].isalnum()) and not (after.isalnum() and word[-1].isalnum()):
            return True
        start = text.find(word, start + 1)
    return False


def _matches(pattern: str, text: str) -> bool:
    try:
        match, _ = _program(pattern).search(text, 0, _STEPS_MAX)
    except TooManySteps:
        return False
    return match is not None


def _program(pattern: str) -> RegexProgram:
    return RegexProgram(pattern, size_max=_PROGRAM_SIZE_MAX, flags=re.IGNORECASE)


def read_triggers(file: MarkdownFile) -> Triggers:
    """The triggers of a file; what is wrong with them goes to its report."""
    if "triggers" not in file.keys:
        return Triggers()
    given = file.report.mapping(file.keys["triggers"], ("triggers",), "triggers", _KINDS) or {}
    lists = {kind: _texts(file, kind, given.get(kind, [])) for kind in _KINDS}
    for index, pattern in enumerate(lists["patterns"]):
        try:
            _program(pattern)
        except BadPattern as error:
            file.report.add(("triggers", "patterns", index), f"this is not a pattern that can be used: {error}")
    for index, extension in enumerate(lists["extensions"]):
        if not _EXTENSION.match(extension):
            file.report.add(("triggers", "extensions", index), "an ending is a text such as .py")
    lower = {kind: tuple(text.lower() for text in lists[kind]) for kind in ("keywords", "extensions")}
    return Triggers(lower["keywords"], tuple(lists["patterns"]), lower["extensions"])


def _texts(file: MarkdownFile, kind: str, value: Any) -> list[str]:
    if not isinstance(value, list) or len(value) > _ENTRIES_MAX:
        file.report.add(("triggers", kind), f"{kind} is a list of at most {_ENTRIES_MAX} texts")
        return []
    for index, text in enumerate(value):
        if not isinstance(text, str) or not text.strip() or len(text) > _ENTRY_CHARS_MAX:
            message = f"it is a text of at most {_ENTRY_CHARS_MAX} characters"
            file.report.add(("triggers", kind, index), message)
    return [text.strip() for text in value if isinstance(text, str) and text.strip()]
