"""Read, Write, Edit, MultiEdit: text files. A process can change only a file that it has read."""

from __future__ import annotations

import codecs
import json
import re
from base64 import b64encode
from collections.abc import Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, Final, Literal, NamedTuple

import msgspec

from lyra.core.rights.capability import Capability
from lyra.core.tool import Tool, caller
from lyra.errors import ToolError
from lyra.tools.builtin.workspace import OpenedFile, Workspace
from lyra.tools.function import tool

# ---------------------------------------------------------------- text file
# Reads and writes text files; encoding, byte order mark and line endings are kept.

_MARKS: Final = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


class TextFile(NamedTuple):
    """`text` has LF even if `crlf` is set; `mark` is the byte order mark of the file."""

    text: str
    encoding: str = "utf-8"
    mark: bytes = b""
    crlf: bool = False

    @classmethod
    def decode(cls, data: bytes, path: str) -> TextFile:
        mark, encoding = next(((mark, name) for mark, name in _MARKS if data.startswith(mark)), (b"", ""))
        body = data[len(mark) :]
        if encoding != "utf-16-le" and encoding != "utf-16-be" and b"\0" in body:
            raise ToolError(f"{path} is not text", hint="it holds NUL bytes", reason="binary")
        text, encoding = _decode(body, encoding)
        crlf = "\r\n" in text and text.count("\r\n") == text.count("\n")
        return cls(text.replace("\r\n", "\n") if crlf else text, encoding, mark, crlf)

    def encode(self, text: str, path: str) -> bytes:
        """Return the bytes of another text in this file's encoding and line endings."""
        if self.crlf:
            text = text.replace("\r\n", "\n").replace("\n", "\r\n")
        try:
            return self.mark + text.encode(self.encoding)
        except UnicodeEncodeError as error:
            raise ToolError(
                f"{path} is in {self.encoding}, which has no {text[error.start]!r}",
                hint="use characters of that encoding",
                reason="encoding",
            ) from None


def _decode(body: bytes, encoding: str) -> tuple[str, str]:
    try:
        return body.decode(encoding or "utf-8"), encoding or "utf-8"
    except UnicodeDecodeError:
        if encoding.startswith("utf-16"):
            raise ToolError("it starts with a UTF-16 mark but is not valid UTF-16", reason="binary") from None
        return body.decode("latin-1"), "latin-1"


# ---------------------------------------------------------------- read log
# Which process has read which file: an edit of a file that it has not read, or that has changed since, is refused.

_ENTRIES_MAX: Final = 10_000


class ReadLog:
    """The newest `_ENTRIES_MAX` reads."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], bytes] = {}

    def note(self, path: str, data: bytes) -> None:
        key = (caller.get(), path)
        self._seen.pop(key, None)
        self._seen[key] = _digest(data)
        if len(self._seen) > _ENTRIES_MAX:
            del self._seen[next(iter(self._seen))]

    def check(self, path: str, data: bytes, shown: str) -> None:
        """Refuse unless this process knows what is in the file."""
        known = self._seen.get((caller.get(), path))
        if known is None:
            raise ToolError(f"{shown} has not been read", hint="use Read first", reason="not_read")
        if known != _digest(data):
            raise ToolError(f"{shown} has changed since it was read", hint="use Read again", reason="changed")


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


_LINES_DEFAULT: Final = 2_000
_LINES_MAX: Final = 10_000
_LINE_CHARS_MAX: Final = 2_000
_SHOWN_CHARS_MAX: Final = 150_000  # of one Read; what is left is read with an offset
_PICTURE: Final = re.compile(
    rb"(?P<png>\x89PNG\r\n\x1a\n)|(?P<jpeg>\xff\xd8\xff)|(?P<gif>GIF8[79]a)|(?P<webp>RIFF....WEBP)", re.DOTALL
)
_PICTURE_BYTES_MAX: Final = 3_700_000  # in base64 five million, the most that vendors take
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
    """Return the four tools, with one log of what was read."""
    family = _Files(workspace, log)
    reads = _needs(workspace, "fs.read")
    writes = _needs(workspace, "fs.read", "fs.write")
    written: dict[str, Any] = {"needs_of": writes, "guarded": True, "trusted": True, "folders": workspace.roots}
    written["concurrency"] = "sequential"
    return [
        tool(family.read, name="Read", idempotent=True, needs_of=reads, untrusted=True, folders=workspace.roots),
        tool(family.write, name="Write", check=lambda file_path, **_: family.read_known(file_path), **written),
        tool(family.edit, name="Edit", check=family.check_edit, **written),
        tool(family.multi_edit, name="MultiEdit", check=partial(family.change, saves=False), **written),
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

    def read(self, file_path: str, offset: int = 0, limit: int = _LINES_DEFAULT) -> str | list[dict[str, str]]:
        """Read a text file, or look at a picture (PNG, JPEG, GIF, WebP). Lines are numbered from 1; long ones are cut.

        Args:
            file_path: the file, relative to the workspace or absolute
            offset: how many lines to pass over
            limit: how many lines to read, at most 10000
        """
        if offset < 0 or not 1 <= limit <= _LINES_MAX:
            raise ToolError(f"offset is 0 or more and limit between 1 and {_LINES_MAX}", reason="invalid_arguments")
        opened = self._workspace.read(file_path)
        if kind := _PICTURE.match(opened.data):
            media_type = f"image/{(kind.lastgroup or '')}"
            if len(opened.data) > _PICTURE_BYTES_MAX:
                raise ToolError(f"{file_path} is a picture of more than {_PICTURE_BYTES_MAX} bytes", reason="too_large")
            words = f"{file_path}: {media_type}, {len(opened.data)} bytes"
            data = b64encode(opened.data).decode()
            return [{"type": "text", "text": words}, {"type": "image", "media_type": media_type, "data": data}]
        self._log.note(opened.path, opened.data)
        text = TextFile.decode(opened.data, file_path).text
        if file_path.endswith(".ipynb"):
            text = show_notebook(text, file_path)
        return _number_lines(text, offset, limit, file_path)

    def write(self, file_path: str, content: str) -> str:
        """Write a whole text file, new or in place of one that has been read.

        Args:
            file_path: the file, relative to the workspace or absolute
            content: all of its text
        """
        workspace = self._workspace
        with workspace.lock:
            opened = self.read_known(file_path)
            if opened is None:
                data = TextFile("").encode(content, file_path)
                path = workspace.replace(file_path, data)
                self._log.note(path, data)
                return f"wrote {workspace.display_name(file_path)}: new, {_lines(content)}"
            file = TextFile.decode(opened.data, file_path) if opened.data else TextFile("")
            self._save(opened, file, content, file_path)
            return f"wrote {workspace.display_name(file_path)}: {_lines(content)}"

    def read_known(self, path: str) -> OpenedFile | None:
        """Return a file that is to be replaced, which this process has to know; None where there is none."""
        if not self._workspace.exists(path):
            return None
        opened = self._workspace.read(path)
        self._log.check(opened.path, opened.data, path)
        return opened

    def edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> str:
        """Replace a piece of text in a file that has been read.

        Args:
            file_path: the file, relative to the workspace or absolute
            old_string: the text to replace, exactly as it is in the file; it has to occur once
            new_string: the text to put there
            replace_all: replace every occurrence instead
        """
        return self.change(file_path, [Change(old_string, new_string, replace_all)])

    def check_edit(self, file_path: str, **given: Any) -> None:
        self.change(file_path, [Change(**given)], saves=False)

    def multi_edit(self, file_path: str, edits: list[Change]) -> str:
        """Make several replacements in a file that has been read: one after the other, all or none.

        Args:
            file_path: the file, relative to the workspace or absolute
            edits: the replacements, each as for Edit
        """
        return self.change(file_path, edits)

    def change(self, file_path: str, edits: Sequence[Change], *, saves: bool = True) -> str:
        """Make the replacements; ToolError where one cannot be made. Without `saves` that is all that is looked at."""
        if not edits:
            raise ToolError("edits is a list of at least one replacement", reason="invalid_arguments")
        with self._workspace.lock:
            loaded = self._load(file_path)
            self._log.check(loaded.opened.path, loaded.opened.data, file_path)
            text, notes = apply_changes(loaded.file.text, edits, file_path)
            if saves:
                self._save(loaded.opened, loaded.file, text, file_path)
            return f"edited {self._workspace.display_name(file_path)}: {'; '.join(notes)}"

    def _load(self, path: str) -> _Loaded:
        opened = self._workspace.read(path)
        return _Loaded(opened, TextFile.decode(opened.data, path))

    def _save(self, opened: OpenedFile, file: TextFile, text: str, path: str) -> None:
        data = file.encode(text, path)
        self._workspace.replace(opened.path, data, opened.mode)
        self._log.note(opened.path, data)


# ---------------------------------------------------------------- replacements
def apply_changes(text: str, changes: Sequence[Change], path: str) -> tuple[str, list[str]]:
    """Return the text after all changes, and a note on each; ToolError at the first that cannot be made."""
    notes = []
    for number, change in enumerate(changes, start=1):
        which = f"edit {number} of {len(changes)}: " if len(changes) > 1 else ""
        text, note = _apply(text, change, path, which)
        notes.append(note)
    return text, notes


def _apply(text: str, change: Change, path: str, which: str) -> tuple[str, str]:
    old, new = change.old_string, change.new_string
    if not old:
        raise ToolError(f"{which}old_string is empty", hint="use Write for a new file", reason="invalid_arguments")
    if old == new:
        raise ToolError(f"{which}old_string and new_string are the same", reason="invalid_arguments")
    places = _places(text, old)
    if not places and "\r\n" in text and "\n" in old:  # a file with both kinds of line ends is shown with one
        old, new = (part.replace("\r\n", "\n").replace("\n", "\r\n") for part in (old, new))
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
    """Return the line of each occurrence; they do not overlap."""
    lines, line, last = [], 1, 0
    position = text.find(old)
    while position >= 0:
        line += text.count("\n", last, position)
        lines.append(line)
        last = position
        position = text.find(old, position + len(old))
    return lines


def _near(text: str, old: str) -> str:
    """Return a hint: the line that differs only in blanks, which is the usual mistake."""
    wanted = old.strip().split("\n")[0].strip()
    lines = [number for number, line in enumerate(text.split("\n"), start=1) if wanted and line.strip() == wanted]
    if lines:
        return f"line {lines[0]} is like its first line but for blanks; copy it exactly, without the line number"
    return "read the file again and copy the text exactly, without line numbers"


# ---------------------------------------------------------------- showing
def _number_lines(text: str, offset: int, limit: int, path: str) -> str:
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


# ---------------------------------------------------------------- notebook
# NotebookEdit: one cell of a Jupyter notebook replaced, inserted or deleted; the other cells keep their content.

_IDS_SINCE = (4, 5)  # the version of the format from which on every cell has an id


def notebook_tools(workspace: Workspace, log: ReadLog) -> list[Tool]:
    family = _Notebooks(workspace, log)

    def needs_of(arguments: dict[str, Any]) -> list[Capability]:
        path = arguments.get("notebook_path", 0)
        return [*workspace.need("fs.read", path), *workspace.need("fs.write", path)]

    marks: dict[str, Any] = {"guarded": True, "trusted": True, "concurrency": "sequential"}
    check = partial(family.change, saves=False)
    return [tool(family.edit, name="NotebookEdit", needs_of=needs_of, folders=workspace.roots, check=check, **marks)]


class _Notebooks:
    __slots__ = ("_log", "_workspace")

    def __init__(self, workspace: Workspace, log: ReadLog) -> None:
        self._workspace = workspace
        self._log = log

    def edit(
        self,
        notebook_path: str,
        cell: str | int,
        new_source: str = "",
        cell_type: Literal["code", "markdown", "raw"] | None = None,
        edit_mode: Literal["replace", "insert", "delete"] = "replace",
    ) -> str:
        """Change one cell of a Jupyter notebook that has been read.

        Args:
            notebook_path: the notebook, relative to the workspace or absolute
            cell: the cell's id, or its number from 0; with insert, the new cell gets this number or follows this id
            new_source: the cell's new text
            cell_type: code, markdown or raw; needed for insert
            edit_mode: replace, insert or delete
        """
        return self.change(notebook_path, cell, new_source, cell_type, edit_mode)

    def change(
        self,
        notebook_path: str,
        cell: str | int,
        new_source: str,
        cell_type: str | None,
        edit_mode: str,
        *,
        saves: bool = True,
    ) -> str:
        with self._workspace.lock:
            opened = self._workspace.read(notebook_path)
            self._log.check(opened.path, opened.data, notebook_path)
            file = TextFile.decode(opened.data, notebook_path)
            text, note = change_notebook(file.text, notebook_path, cell, new_source, cell_type, edit_mode)
            data = file.encode(text, notebook_path)
            if saves:
                self._workspace.replace(opened.path, data, opened.mode)
                self._log.note(opened.path, data)
            return f"edited {self._workspace.display_name(notebook_path)}: {note}"


def change_notebook(
    text: str,
    notebook_path: str,
    cell: str | int,
    new_source: str = "",
    cell_type: str | None = None,
    edit_mode: str = "replace",
) -> tuple[str, str]:
    """Return the text of a notebook after a change, and what was done."""
    notebook = _parse_notebook(text, notebook_path)
    note = _change_cell(notebook, cell, new_source, cell_type, edit_mode)
    return json.dumps(notebook, ensure_ascii=False, indent=_indent(text)) + "\n" * text.endswith("\n"), note


def _parse_notebook(text: str, path: str) -> dict[str, Any]:
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError):
        notebook = None
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise ToolError(f"{path} is not a notebook", hint="it is JSON with a list of cells", reason="invalid_file")
    assert isinstance(notebook, dict)
    return notebook


_OUTPUT_CHARS_MAX: Final = 2_000  # of one output of a cell


def show_notebook(text: str, path: str) -> str:
    """Return the cells of a notebook with their numbers and outputs, as a person reads them; a text that is none as it
    is. Pictures are named."""
    try:
        cells = _parse_notebook(text, path)["cells"]
    except ToolError:
        return text
    parts = []
    for number, cell in enumerate(cells):
        name = f", id {cell['id']}" if "id" in cell else ""
        parts.append(f"# cell {number} ({cell.get('cell_type', 'raw')}{name})\n{_join_source(cell.get('source'))}")
        parts += [f"# output of cell {number}\n{shown}" for out in cell.get("outputs", ()) if (shown := _output(out))]
    return "\n\n".join(parts)


def _join_source(source: Any) -> str:
    return "".join(map(str, source)) if isinstance(source, list) else str(source or "")


def _output(output: Any) -> str:
    """Return what an output of a cell says: its text, the error, or the kinds of what is no text."""
    if not isinstance(output, dict):
        return ""
    given = output.get("data")
    data = given if isinstance(given, dict) else {}
    text = _join_source(output.get("text") or data.get("text/plain"))
    if output.get("output_type") == "error":
        text = f"{output.get('ename', '')}: {output.get('evalue', '')}"
    others = [kind for kind in data if not kind.startswith("text/")]
    text = "\n".join(filter(None, (text.rstrip("\n"), f"[{', '.join(others)}]" if others else "")))
    return text if len(text) <= _OUTPUT_CHARS_MAX else f"{text[:_OUTPUT_CHARS_MAX]}… ({len(text)} characters)"


def _indent(text: str) -> int | None:
    """Return the indentation of the file; Jupyter writes one blank."""
    second = text.split("\n", 2)[1] if "\n" in text else ""
    return (len(second) - len(second.lstrip(" "))) or 1 if second else None


def _change_cell(notebook: dict[str, Any], cell: str | int, source: str, kind: str | None, mode: str) -> str:
    cells: list[dict[str, Any]] = notebook["cells"]
    if mode == "insert":
        if kind is None:
            raise ToolError("an inserted cell needs a cell_type", reason="invalid_arguments")
        number = _number(cells, cell, most=len(cells)) + isinstance(cell, str) * (not str(cell).isdecimal())
        cells.insert(number, _new_cell(notebook, kind, source))
        return f"inserted cell {number}"
    number = _number(cells, cell, most=len(cells) - 1)
    if mode == "delete":
        del cells[number]
        return f"deleted cell {number}"
    old = cells[number]
    if kind is not None and kind != old.get("cell_type"):
        cells[number] = {**_new_cell(notebook, kind, source), **({"id": old["id"]} if "id" in old else {})}
    else:
        old["source"] = _source(source, like=old.get("source"))
        if old.get("cell_type") == "code":
            old["outputs"], old["execution_count"] = [], None  # they belong to the old text
    return f"replaced cell {number}"


def _number(cells: list[dict[str, Any]], cell: str | int, *, most: int) -> int:
    if isinstance(cell, str):
        for number, known in enumerate(cells):
            if known.get("id") == cell:
                return number
    if isinstance(cell, int) or cell.isdecimal():
        number = int(cell)
        if 0 <= number <= most:
            return number
    raise ToolError(f"there is no cell {cell!r}; there are {len(cells)}, from 0", reason="not_found")


def _new_cell(notebook: dict[str, Any], kind: str, source: str) -> dict[str, Any]:
    new_cell: dict[str, Any] = {"cell_type": kind}
    version = (notebook.get("nbformat"), notebook.get("nbformat_minor"))
    if all(isinstance(part, int) for part in version) and version >= _IDS_SINCE:
        cells = notebook["cells"]
        taken = {cell.get("id") for cell in cells}
        new_cell["id"] = next(name for number in range(len(cells) + 1) if (name := f"cell-{number}") not in taken)
    new_cell["metadata"] = {}
    if kind == "code":
        new_cell["execution_count"], new_cell["outputs"] = None, []
    new_cell["source"] = _source(source, like=[])
    return new_cell


def _source(text: str, *, like: Any) -> str | list[str]:
    """Return a text, or the list of lines that Jupyter writes, as the cell had it."""
    return text if isinstance(like, str) else text.splitlines(keepends=True)
