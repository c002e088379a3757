"""NotebookEdit: one cell of a Jupyter notebook replaced, inserted or deleted; the other cells keep their content."""

from __future__ import annotations

import json
from typing import Any, Literal

from lyra.core.rights.capability import Capability
from lyra.core.tool import Tool
from lyra.errors import ToolError
from lyra.tools.builtin.read_log import ReadLog
from lyra.tools.builtin.text_file import TextFile
from lyra.tools.builtin.workspace import Workspace
from lyra.tools.function import tool

_IDS_SINCE = (4, 5)  # the version of the format from which on every cell has an id


def notebook_tools(workspace: Workspace, log: ReadLog) -> list[Tool]:
    family = _Notebooks(workspace, log)

    def needs_of(arguments: dict[str, Any]) -> list[Capability]:
        path = arguments.get("notebook_path", 0)
        return [*workspace.need("fs.read", path), *workspace.need("fs.write", path)]

    marks: dict[str, Any] = {"guarded": True, "trusted": True, "concurrency": "sequential"}
    return [tool(family.edit, name="NotebookEdit", needs_of=needs_of, folders=workspace.roots, **marks)]


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
        with self._workspace.lock:
            opened = self._workspace.read(notebook_path)
            self._log.check(opened.path, opened.data, notebook_path)
            file = TextFile.of(opened.data, notebook_path)
            notebook = _parsed(file.text, notebook_path)
            note = _changed(notebook, cell, new_source, cell_type, edit_mode)
            text = json.dumps(notebook, ensure_ascii=False, indent=_indent(file.text)) + "\n" * file.text.endswith("\n")
            data = file.encode(text, notebook_path)
            self._workspace.replace(opened.path, data, opened.mode)
            self._log.note(opened.path, data)
            return f"edited {self._workspace.named(notebook_path)}: {note}"


def _parsed(text: str, path: str) -> dict[str, Any]:
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError):
        notebook = None
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise ToolError(f"{path} is not a notebook", hint="it is JSON with a list of cells", reason="invalid_file")
    assert isinstance(notebook, dict)
    return notebook


def _indent(text: str) -> int | None:
    """The indentation of the file; Jupyter writes one blank."""
    second = text.split("\n", 2)[1] if "\n" in text else ""
    return (len(second) - len(second.lstrip(" "))) or 1 if second else None


def _changed(notebook: dict[str, Any], cell: str | int, source: str, kind: str | None, mode: str) -> str:
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
        new_cell["id"] = _free_id(notebook["cells"])
    new_cell["metadata"] = {}
    if kind == "code":
        new_cell["execution_count"], new_cell["outputs"] = None, []
    new_cell["source"] = _source(source, like=[])
    return new_cell


def _free_id(cells: list[dict[str, Any]]) -> str:
    taken = {cell.get("id") for cell in cells}
    return next(name for number in range(len(cells) + 1) if (name := f"cell-{number}") not in taken)


def _source(text: str, *, like: Any) -> str | list[str]:
    """A text, or the list of lines that Jupyter writes, as the cell had it."""
    return text if isinstance(like, str) else text.splitlines(keepends=True)
