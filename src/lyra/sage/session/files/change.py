"""A FileChange: a file before and after, with a diff for a person.

The bytes are read from the kept contents when they are asked for. The diff is for reading: escape sequences and
invisible characters in it are replaced by their codes. Never writes anything.
"""

from __future__ import annotations

import difflib
import os
from typing import TYPE_CHECKING, Final

from lyra.core.secrets.visible import visible
from lyra.sage.session.files.state import FileState, read_name

if TYPE_CHECKING:
    from lyra.sage.session.files.contents import KeptContents


_DIFF_BYTES_MAX: Final = 1024 * 1024
_DIFF_LINES_MAX: Final = 20_000
_BINARY_LOOK_BYTES: Final = 8_000


class FileChange:
    """`path` is absolute; `name` is how it is shown. `kind`: created, modified or deleted."""

    __slots__ = ("_contents", "after_state", "before_state", "name", "path")

    def __init__(
        self, path: str, before: FileState, after: FileState, contents: KeptContents, *, name: str = ""
    ) -> None:
        self.path = path
        self.name = name or path
        self.before_state = before
        self.after_state = after
        self._contents = contents

    def __repr__(self) -> str:
        return f"FileChange({self.kind} {self.path!r})"

    @property
    def kind(self) -> str:
        if not _is_shown(self.before_state):
            return "created"
        return "modified" if _is_shown(self.after_state) else "deleted"

    @property
    def is_of_a_file(self) -> bool:
        """Whether a file or a link was or is there; a change of folders alone has no content."""
        return _is_shown(self.before_state) or _is_shown(self.after_state)

    @property
    def before(self) -> bytes | None:
        """The bytes before; of a link its target; None where there was no file or its bytes are not kept."""
        return self._bytes(self.before_state)

    @property
    def after(self) -> bytes | None:
        return self._bytes(self.after_state)

    def _bytes(self, state: FileState) -> bytes | None:
        if state.kind == "link":
            return os.fsencode(read_name(state.content))
        return None if state.digest is None else self._contents.read(state.digest)

    def diff(self) -> str:
        """A unified diff, with a line each for changes of the mode or of the kind."""
        before, after = self.before_state, self.after_state
        name = visible(self.name)
        lines = []
        if before.kind != after.kind and before.kind != "absent" and after.kind != "absent":
            lines.append(f"{name}: a {before.kind} became a {after.kind}")
        elif before.kind == after.kind and before.mode != after.mode:
            lines.append(f"{name}: mode {before.mode:03o} became {after.mode:03o}")
        if before.content != after.content or before.kind != after.kind:
            lines += self._content_lines(name)
        return "".join(f"{line}\n" for line in lines)

    def _content_lines(self, name: str) -> list[str]:
        states = (self.before_state, self.after_state)
        if not all(state.is_kept for state in states):
            return [f"{name}: the content is not kept"]
        if max(state.size for state in states) > _DIFF_BYTES_MAX:
            return [f"{name}: the files are too large to be compared"]
        old, new = (self._bytes(state) or b"" for state in states)
        if old == new:
            return [f"{name}: {self.kind}, empty"] if not old and self.kind != "modified" else []
        if _is_binary(old) or _is_binary(new):
            return [f"{name}: binary files differ"]
        sides = [_lines(old), _lines(new)]
        if max(map(len, sides)) > _DIFF_LINES_MAX:
            return [f"{name}: the files have too many lines to be compared"]
        old_name = f"a/{name}" if _is_shown(states[0]) else "/dev/null"
        new_name = f"b/{name}" if _is_shown(states[1]) else "/dev/null"
        return list(difflib.unified_diff(sides[0], sides[1], old_name, new_name, lineterm=""))


def _is_shown(state: FileState) -> bool:
    return state.kind in ("file", "link", "special")


def _is_binary(data: bytes) -> bool:
    return b"\0" in data[:_BINARY_LOOK_BYTES]


def _lines(data: bytes) -> list[str]:
    """The lines, each safe to be printed; a file that does not end with a line end has a mark in its last one."""
    text = data.decode("utf-8", "replace")
    lines = visible_lines(text.removesuffix("\n")).split("\n") if text else []
    if text and not text.endswith("\n"):
        lines[-1] += "\n\\ No newline at end of file"
    return lines


def visible_lines(text: str) -> str:
    """The text with its line ends and tabs, and all other characters that a person cannot see as their codes."""
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "\n".join("\t".join(map(visible, line.split("\t"))) for line in text.split("\n"))
