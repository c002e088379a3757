"""Git's settings files: their syntax, and the files that one includes.

`read_settings` gives the settings of files and of all that they include, also under a condition (`includeIf`): which
branch is checked out does not matter to what is protected. The syntax is git's own: quotes, comments, escapes,
continued lines, subsections. What git would refuse is skipped up to the end of its line. Nothing here knows what a
setting means; `git_repositories` does.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

_BYTES_MAX: Final = 1 << 20  # of one file
_FILES_MAX: Final = 200  # that are read for one answer, included ones among them
_INCLUDES: Final = ("include.path", "includeif.path")
_SECTION: Final = re.compile(r'\[[ \t]*([\w.-]+)[ \t]*(?:"((?:[^"\\\n]|\\[^\n])*)")?[ \t]*\]')
_KEY: Final = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*(=?)")
_SPACE: Final = re.compile(r"[\s]+")
_REST: Final = re.compile(r"[^\n]*")
_PLAIN: Final = re.compile(r'[^\\"#;\n]+')
_QUOTED: Final = re.compile(r'[^\\"\n]+')
_ESCAPES: Final = {"n": "\n", "t": "\t", "b": "\b", "\n": ""}


class GitSetting(NamedTuple):
    """One setting. The section and the name are in lower case, a subsection is as it was written."""

    section: str
    name: str
    value: str
    subsection: str = ""

    @property
    def key(self) -> str:
        return f"{self.section}.{self.name}"


class GitSettings(NamedTuple):
    """Each setting with the file that it stands in, and all files that were looked at, missing ones among them."""

    settings: tuple[tuple[str, GitSetting], ...]
    files: tuple[str, ...]


def read_settings(files: Iterable[str]) -> GitSettings:
    """The settings of these files and of those that they include, at any depth."""
    settings: list[tuple[str, GitSetting]] = []
    waiting = list(files)
    seen: dict[str, None] = {}
    while waiting and len(seen) < _FILES_MAX:
        file = waiting.pop(0)
        if file in seen:
            continue
        seen[file] = None
        for setting in _settings(file):
            settings.append((file, setting))
            if setting.key in _INCLUDES:
                waiting.append(os.path.join(os.path.dirname(file), os.path.expanduser(setting.value)))
    return GitSettings(tuple(settings), tuple(seen))


def _settings(file: str) -> tuple[GitSetting, ...]:
    try:
        state = os.stat(file)
    except (OSError, ValueError):
        return ()
    if not stat.S_ISREG(state.st_mode):
        return ()
    return _parsed(file, state.st_dev, state.st_ino, state.st_mtime_ns, state.st_ctime_ns, state.st_size)


@lru_cache(maxsize=256)
def _parsed(file: str, *_state: int) -> tuple[GitSetting, ...]:
    return tuple(parse(read_small(file)))


def parse(text: str) -> list[GitSetting]:
    """The settings of a text. A name without a value is left out: it means "true"."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    settings: list[GitSetting] = []
    section, subsection = "", ""
    position = 0
    while position < len(text):
        space = _SPACE.match(text, position)
        header = _SECTION.match(text, position)
        key = _KEY.match(text, position)
        if space:
            position = space.end()
        elif header:
            section, _, old_style = header[1].lower().partition(".")
            subsection = re.sub(r"\\(.)", r"\1", header[2]) if header[2] is not None else old_style
            position = header.end()
        elif key and key[2]:
            value, position = _value(text, key.end())
            settings.append(GitSetting(section, key[1].lower(), value, subsection))
        else:  # a comment, a name without a value, or nothing that git reads
            position = _line_end(text, key.end() if key else position + 1)
    return settings


def _value(text: str, position: int) -> tuple[str, int]:
    """The value that begins here, and the position after it. Blanks at both ends are no part of it unless quoted."""
    parts: list[str] = []
    quoted, kept = False, 0  # the first `kept` characters are not stripped
    while position < len(text) and text[position] != "\n":
        char = text[position]
        plain = (_QUOTED if quoted else _PLAIN).match(text, position)
        if plain:
            piece, position = plain[0] if quoted or parts else plain[0].lstrip(), plain.end()
        elif char == '"':
            quoted, piece, position = not quoted, "", position + 1
        elif char == "\\":
            escaped = text[position + 1 : position + 2]
            piece, position = _ESCAPES.get(escaped, escaped), position + 2
        else:  # the beginning of a comment
            position = _line_end(text, position)
            break
        if piece:
            parts.append(piece)
        if quoted or char == "\\":
            kept = sum(map(len, parts))
    value = "".join(parts)
    value = value[:kept] + value[kept:].rstrip()
    return value.partition("\0")[0], position


def _line_end(text: str, position: int) -> int:
    match = _REST.match(text, position)
    return match.end() if match else len(text)


def read_small(file: str) -> str:
    """The text of a small plain file; "" where there is none. A pipe is not opened for reading: that could block."""
    try:
        with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
            is_plain = stat.S_ISREG(os.fstat(opened.fileno()).st_mode)
            return os.fsdecode(opened.read(_BYTES_MAX)) if is_plain else ""
    except (OSError, ValueError):
        return ""
