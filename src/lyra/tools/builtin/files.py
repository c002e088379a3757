"""Read, Write, Edit, MultiEdit: text files. A process can change only a file that it has read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from lyra.core.tool import Tool
from lyra.errors import ToolError
from lyra.tools.builtin.read_log import ReadLog
from lyra.tools.builtin.text_file import TextFile
from lyra.tools.builtin.workspace import OpenedFile, Workspace
from lyra.tools.function import tool

_LINES_DEFAULT: Final = 2_000
_LINES_MAX: Final = 10_000
_LINE_CHARS_MAX: Final = 2_000
_SHOWN_CHARS_MAX: Final = 150_000  # of one Read; what is left is read with an offset
_PLACES_MAX: Final = 10  # line numbers named in an error


class Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One replacement of a MultiEdit."""

    old_string: str
    new_string: str
    replace_all: bool = False


class _Loaded(NamedTuple):
    opened: OpenedFile
    file: TextFile


def file_tools(workspace: Workspace, log: ReadLog) -> list[Tool]:
    """The four tools, with one log of what was read."""
    family = _Files(workspace, log)
    reads = _needs(workspace, "fs.read")
    writes = _needs(workspace, "fs.read", "fs.write")
    written: dict[str, Any] = {"needs_of": writes, "guarded": True, "trusted": True, "folders": workspace.roots}
    written["concurrency"] = "sequential"
    return [
        tool(family.read, name="Read", idempotent=True, needs_of=reads, untrusted=True, folders=workspace.roots),
        tool(family.write, name="Write", **written),
        tool(family.edit, name="Edit", **written),
        tool(family.multi_edit, name="MultiEdit", **written),
    ]


def _needs(workspace: Workspace, *verbs: str) -> Any:
    def needs_of(arguments: dict[str, Any]) -> list[Any]:
        return [need for verb in verbs for need in workspace.need(verb, arguments.get("file_path", 0))]

    return needs_of


class _Files:
    __slots__ = ("_log", "_workspace")

    def __init__(self, workspace: Workspace, log: ReadLog) -> None:
        self._workspace = workspace
        self._log = log

    def read(self, file_path: str, offset: int = 0, limit: int = _LINES_DEFAULT) -> str:
        """Read a text file. Lines are numbered from 1; long lines are cut.

        Args:
            file_path: the file, relative to the workspace or absolute
            offset: how many lines to pass over
            limit: how many lines to read, at most 10000
        """
        if offset < 0 or not 1 <= limit <= _LINES_MAX:
            raise ToolError(f"offset is 0 or more and limit between 1 and {_LINES_MAX}", reason="invalid_arguments")
        loaded = self._load(file_path)
        self._log.note(loaded.opened.path, loaded.opened.data)
        return _numbered(loaded.file.text, offset, limit, file_path)

    def write(self, file_path: str, content: str) -> str:
        """Write a whole text file, new or in place of one that has been read.

        Args:
            file_path: the file, relative to the workspace or absolute
            content: all of its text
        """
        workspace = self._workspace
        with workspace.lock:
            if not workspace.exists(file_path):
                data = _utf8(content, file_path)
                path = workspace.replace(file_path, data)
                self._log.note(path, data)
                return f"wrote {workspace.named(file_path)}: new, {_lines(content)}"
            opened = workspace.read(file_path)
            self._log.check(opened.path, opened.data, file_path)
            file = TextFile.of(opened.data, file_path) if opened.data else TextFile("")
            self._save(opened, file, content, file_path)
            return f"wrote {workspace.named(file_path)}: {_lines(content)}"

    def edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> str:
        """Replace a piece of text in a file that has been read.

        Args:
            file_path: the file, relative to the workspace or absolute
            old_string: the text to replace, exactly as it is in the file; it has to occur once
            new_string: the text to put there
            replace_all: replace every occurrence instead
        """
        return self._change(file_path, [Change(old_string, new_string, replace_all)])

    def multi_edit(self, file_path: str, edits: list[Change]) -> str:
        """Make several replacements in a file that has been read: one after the other, all or none.

        Args:
            file_path: the file, relative to the workspace or absolute
            edits: the replacements, each as for Edit
        """
        if not edits:
            raise ToolError("edits is a list of at least one replacement", reason="invalid_arguments")
        return self._change(file_path, edits)

    def _change(self, path: str, changes: Sequence[Change]) -> str:
        with self._workspace.lock:
            loaded = self._load(path)
            self._log.check(loaded.opened.path, loaded.opened.data, path)
            text, notes = apply_changes(loaded.file.text, changes, path)
            self._save(loaded.opened, loaded.file, text, path)
            return f"edited {self._workspace.named(path)}: {'; '.join(notes)}"

    def _load(self, path: str) -> _Loaded:
        opened = self._workspace.read(path)
        return _Loaded(opened, TextFile.of(opened.data, path))

    def _save(self, opened: OpenedFile, file: TextFile, text: str, path: str) -> None:
        data = file.encode(text, path)
        self._workspace.replace(opened.path, data, opened.mode)
        self._log.note(opened.path, data)


# ---------------------------------------------------------------- replacements
def apply_changes(text: str, changes: Sequence[Change], path: str) -> tuple[str, list[str]]:
    """The text after all changes, and a note on each; ToolError at the first that cannot be made."""
    notes = []
    for number, change in enumerate(changes, start=1):
        which = f"edit {number} of {len(changes)}: " if len(changes) > 1 else ""
        text, note = _applied(text, change, path, which)
        notes.append(note)
    return text, notes


def _applied(text: str, change: Change, path: str, which: str) -> tuple[str, str]:
    old, new = change.old_string, change.new_string
    if not old:
        raise ToolError(f"{which}old_string is empty", hint="use Write for a new file", reason="invalid_arguments")
    if old == new:
        raise ToolError(f"{which}old_string and new_string are the same", reason="invalid_arguments")
    places = _places(text, old)
    if not places:
        raise ToolError(f"{which}old_string is not in {path}", hint=_near(text, old), reason="no_match")
    if len(places) > 1 and not change.replace_all:
        named = ", ".join(str(line) for line in places[:_PLACES_MAX]) + (", …" if len(places) > _PLACES_MAX else "")
        raise ToolError(
            f"{which}old_string is in {path} {len(places)} times, at lines {named}",
            hint="give more of the text around it, or set replace_all",
            reason="many_matches",
        )
    where = f"line {places[0]}" if len(places) == 1 else f"{len(places)} places from line {places[0]}"
    return text.replace(old, new), f"replaced at {where}"


def _places(text: str, old: str) -> list[int]:
    """The line of each occurrence; they do not overlap."""
    lines, line, last = [], 1, 0
    position = text.find(old)
    while position >= 0:
        line += text.count("\n", last, position)
        lines.append(line)
        last = position
        position = text.find(old, position + len(old))
    return lines


def _near(text: str, old: str) -> str:
    """A hint: the line that differs only in blanks, which is the usual mistake."""
    wanted = old.strip().split("\n")[0].strip()
    lines = [number for number, line in enumerate(text.split("\n"), start=1) if wanted and line.strip() == wanted]
    if lines:
        return f"line {lines[0]} is like its first line but for blanks; copy it exactly, without the line number"
    return "read the file again and copy the text exactly, without line numbers"


# ---------------------------------------------------------------- showing
def _numbered(text: str, offset: int, limit: int, path: str) -> str:
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    if not lines:
        return f"{path} is empty"
    if offset >= len(lines):
        raise ToolError(f"{path} has {len(lines)} lines; offset {offset} is past them", reason="invalid_arguments")
    shown: list[str] = []
    spent = 0
    for number, line in enumerate(lines[offset : offset + limit], start=offset + 1):
        cut = line if len(line) <= _LINE_CHARS_MAX else f"{line[:_LINE_CHARS_MAX]}… ({len(line)} characters)"
        spent += len(cut) + 8
        if spent > _SHOWN_CHARS_MAX and shown:
            break
        shown.append(f"{number:>6}\t{cut}")
    left = len(lines) - offset - len(shown)
    if left:
        shown.append(f"… {left} more lines; read on with offset={offset + len(shown)}")
    return "\n".join(shown)


def _lines(text: str) -> str:
    count = text.count("\n") + (not text.endswith("\n") if text else 0)
    return f"{count} line{'' if count == 1 else 's'}"


def _utf8(text: str, path: str) -> bytes:
    return TextFile("").encode(text, path)
