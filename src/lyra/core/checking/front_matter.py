"""Splits a Markdown file into the YAML between `---` lines at its head and the text below.

    ---
    description: Write a commit message
    ---
    Look at the staged changes …

The YAML is read by `document`, so aliases, tags, deep nesting and keys written twice are refused, and every key has its
line in the file. A file that does not begin with `---` has no keys. What the keys mean is left to the caller.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from lyra.core.checking.document import Places, parse, text_of
from lyra.errors import ParseError

HEAD_CHARS_MAX: Final = 16 * 1024  # bounds the time that reading the YAML takes
_FENCE: Final = "---"


class FrontMatter(NamedTuple):
    """The keys with their places, the text below them, and the line where that begins."""

    keys: dict[str, Any]
    places: Places
    body: str
    body_line: int


def read_front_matter(data: bytes, file: str) -> FrontMatter:
    """The parts of a file; ParseError or ConfigError where it is not such a file."""
    text = text_of(data, file).replace("\r\n", "\n")
    lines = text.split("\n")
    if lines[0].rstrip() != _FENCE:
        return FrontMatter({}, {}, text, 1)
    end = next((index for index, line in enumerate(lines[1:], 1) if line.rstrip() == _FENCE), None)
    if end is None:
        raise ParseError("the front matter has no end: a line with --- is missing", file=file, line=1, column=1)
    head = "\n".join(lines[1:end])
    if len(head) > HEAD_CHARS_MAX:
        raise ParseError(f"the front matter has more than {HEAD_CHARS_MAX} characters", file=file, line=1, column=1)
    keys, places = parse(f"\n{head}\n", "yaml", file)  # the first line end stands for the `---`: lines count from there
    if keys is None:
        keys = {}
    if not isinstance(keys, dict):
        raise ParseError("the front matter is a mapping of keys", file=file, line=2, column=1)
    return FrontMatter(keys, places, "\n".join(lines[end + 1 :]), end + 2)
