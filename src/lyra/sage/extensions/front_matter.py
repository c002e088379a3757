"""Reads one Markdown file of an extension: its keys are checked against a table, its text is bounded and cleaned.

`MarkdownFile.of` gives the file or its mistakes, each with file, line and, for an unknown key, the key that was
probably meant. Texts that a person is shown are put on one line without control characters; the body, which a model
reads, loses characters that no screen shows. What the keys do is known to the callers: `custom_commands`, `skills`,
`agent_files`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Self

from lyra.core.checking.check import Mistake, Report
from lyra.core.checking.document import read_front_matter
from lyra.core.secrets.visible import without_invisible
from lyra.errors import ConfigError, ParseError
from lyra.tools.permissions.rules import Rule

FILE_BYTES_MAX: Final = 256 * 1024
BODY_CHARS_MAX: Final = 100_000  # about 25 000 tokens: a longer text would crowd out the conversation
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")  # ASCII alone: no letter that looks like another
_TEXT_CHARS_MAX: Final = 1_000
_LIST_MAX: Final = 100
_COMMA: Final = re.compile(r",(?![^()]*\))")  # outside of brackets


def one_line(text: str) -> str:
    """A text of a file fit for a terminal: on one line, without control characters, invisible and half ones."""
    return " ".join(without_invisible(text).encode("utf-8", "ignore").decode().split())


class MarkdownFile:
    """The keys and the body of one file. The methods read one key each; what is wrong goes to `report`."""

    __slots__ = ("body", "keys", "path", "report")

    def __init__(self, path: str, keys: dict[str, Any], body: str, report: Report) -> None:
        self.path = path
        self.keys = keys
        self.body = body
        self.report = report

    @classmethod
    def of(cls, data: bytes, path: str, known: Collection[str], what: str) -> tuple[Self | None, list[Mistake]]:
        """The file, or what is wrong with it as a whole. `what` is the file's kind in sentences: "a command"."""
        try:
            head = read_front_matter(data, path)
        except ParseError as error:
            return None, [Mistake.of(error)]
        except ConfigError as error:
            return None, [Mistake(path, 1, 1, error.message, error.hint)]
        report = Report(path, head.places)
        report.mapping(head.keys, (), what, known)
        body = without_invisible(head.body).strip()
        if not body:
            report.mistakes.append(Mistake(path, head.body_line, 1, f"{what} has a text below its front matter"))
        elif len(body) > BODY_CHARS_MAX:
            message = f"the text has at most {BODY_CHARS_MAX} characters, not {len(body)}"
            report.mistakes.append(Mistake(path, head.body_line, 1, message))
        return cls(path, head.keys, body, report), report.mistakes

    def text(self, key: str, default: str = "", *, most: int = _TEXT_CHARS_MAX) -> str:
        """The value of a key as one line of text; `default` where the file does not have the key."""
        if key not in self.keys:
            return default
        value = self.report.text(self.keys[key], (key,), key, most=most)
        line = one_line(value) if value is not None else default
        if value is not None and not line:
            self.report.add((key,), f"{key} has no visible character")
        return line

    def flag(self, key: str, *, default: bool = False) -> bool:
        return self.report.flag(self.keys[key], (key,), key) if key in self.keys else default

    def whole(self, key: str, *, least: int, most: int) -> int | None:
        """The value of a key as a whole number; None where the file does not have the key."""
        if key not in self.keys:
            return None
        value = self.keys[key]
        if type(value) is int and least <= value <= most:
            return value
        self.report.add((key,), f"{key} is a whole number between {least} and {most}, not {_shown(value)}")
        return None

    def word(self, key: str, words: Sequence[str]) -> str:
        if key not in self.keys:
            return ""
        return self.report.word(self.keys[key], (key,), key, words) or ""

    def texts(self, key: str, fits: Callable[[str], object], what: str) -> tuple[str, ...] | None:
        """The value of a key as a list of texts, which may be written as one text with commas; None where the file does
        not have the key."""
        if key not in self.keys:
            return None
        value = self.keys[key]
        if isinstance(value, str):
            value = [part.strip() for part in _COMMA.split(value)]
        if not isinstance(value, list) or len(value) > _LIST_MAX:
            self.report.add((key,), f"{key} is a list of at most {_LIST_MAX} entries")
            return ()
        for index, item in enumerate(value):
            if not isinstance(item, str) or not fits(item):
                self.report.add((key, index), f"{_shown(item)} is not {what}")
        return tuple(dict.fromkeys(item for item in value if isinstance(item, str)))

    def tools(self, key: str) -> tuple[str, ...] | None:
        """Names of tools, each perhaps with a pattern: `Read`, `Bash(git diff *)`."""
        return self.texts(key, _is_rule, "the name of a tool, such as Read or Bash(git diff *)")


def _shown(value: Any) -> str:
    return repr(one_line(str(value))[:60])


def _is_rule(text: str) -> bool:
    if not text.isprintable():
        return False
    try:
        Rule(text, "allow")
    except ConfigError:
        return False
    return True
