"""Planned and LeftOut: one thing that is to be written, or why it is not."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from lyra.core.checking.document import read_front_matter
from lyra.core.checking.watched_files import read_plain_file
from lyra.errors import LyraError

FILE_BYTES_MAX: Final = 256 * 1024
FILES_MAX: Final = 500  # of one folder
_KEY: Final = re.compile(r"([A-Za-z][\w-]*):[ \t]*(.*)\Z")
_ITEM: Final = re.compile(r"[ \t]*-[ \t]+(.*)\Z")


class Planned(NamedTuple):
    """One file below the root, or with `block` a part of one that may hold more. `kind` is a word for the user,
    `source` the file that it is made of, `agent` whose file that is."""

    target: str
    data: bytes
    kind: str
    source: str
    agent: str
    block: bool = False
    runs: bool = False  # it is marked as a program


class LeftOut(NamedTuple):
    """What of a source is not taken over, and why."""

    source: str
    what: str
    why: str


class ImportPlace(NamedTuple):
    """Where is read, and where is written: a project's folder, or the user's own folders. `prefix` is that of the
    extensions below `root`: ".lyra/", or "" for the user's own."""

    home: str  # the folder that the sources are below: the project's, or the home folder
    root: str
    prefix: str

    @property
    def is_user(self) -> bool:
        return not self.prefix

    def read(self, name: str, *, most: int = FILE_BYTES_MAX) -> bytes | None:
        """Return a source's bytes; None where it is no plain file, or too large. Only the user's own may be a link."""
        try:
            return read_plain_file(os.path.join(self.home, name), most, follow_links=self.is_user)
        except OSError:
            return None

    def list(self, folder: str, *endings: str, depth: int = 4) -> Iterator[str]:
        """Yield the plain files below a folder of the sources with one of these endings, by name."""
        top = os.path.join(self.home, folder)
        if os.path.islink(top) and not self.is_user:
            return
        count = 0
        for here, names, files in os.walk(top, followlinks=False):
            level = os.path.relpath(here, top).count(os.sep) + (here != top)
            names[:] = [] if level >= depth else sorted(name for name in names if not name.startswith("."))
            for name in sorted(files):
                if name.startswith(".") or (endings and not name.lower().endswith(endings)):
                    continue
                count += 1
                if count > FILES_MAX:
                    return
                yield os.path.relpath(os.path.join(here, name), self.home)


def read_head(data: bytes, name: str) -> tuple[dict[str, Any], str]:
    """Return the keys of a front matter and the text below. What is no YAML, as many such files are, is read line by
    line: `key: value`, and items that begin with a dash."""
    try:
        head = read_front_matter(data, name)
    except LyraError:
        return _read_lines(data.decode("utf-8-sig", "replace").replace("\r\n", "\n"))
    return head.keys, head.body


def _read_lines(text: str) -> tuple[dict[str, Any], str]:
    first, _, rest = text.partition("\n")
    head, mark, body = rest.partition("\n---")
    if first.rstrip() != "---" or not mark:
        return {}, text
    keys: dict[str, Any] = {}
    last = ""
    for line in head.split("\n"):
        key, item = _KEY.match(line), _ITEM.match(line)
        if key is not None:
            last = key[1]
            keys[last] = _scalar(key[2])
        elif item is not None and last:
            known = keys[last] if isinstance(keys[last], list) else []
            keys[last] = [*known, _scalar(item[1])]
    return keys, body.partition("\n")[2]


def _scalar(text: str) -> Any:
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    return {"true": True, "false": False}.get(text, text)
