"""NotebookEdit changes one cell and nothing else; TodoWrite shows the list."""

from __future__ import annotations

import json
from typing import Any

import pytest

NOTEBOOK: dict[str, Any] = {
    "cells": [
        {"cell_type": "markdown", "id": "intro", "metadata": {}, "source": ["# Title\n", "text"]},
        {
            "cell_type": "code",
            "id": "x",
            "metadata": {"k": 1},
            "execution_count": 3,
            "outputs": [{}],
            "source": ["x = 1"],
        },
    ],
    "metadata": {"kernelspec": {"name": "python3"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}


@pytest.fixture
def book(tools):
    (tools.root / "n.ipynb").write_text(json.dumps(NOTEBOOK, indent=1) + "\n")
    return tools


def cells(tools) -> Any:
    return json.loads((tools.root / "n.ipynb").read_text())["cells"]


def test_replace(book):
    """By id or by number; outputs of the old text go; the file keeps its form."""
    assert book.refused("NotebookEdit", notebook_path="n.ipynb", cell=1, new_source="x").reason == "not_read"
    book.Read(file_path="n.ipynb")
    book.NotebookEdit(notebook_path="n.ipynb", cell="x", new_source="x = 2\ny = é")
    assert cells(book)[1] == {
        **NOTEBOOK["cells"][1],
        "execution_count": None,
        "outputs": [],
        "source": ["x = 2\n", "y = é"],
    }
    text = (book.root / "n.ipynb").read_text()
    assert text.endswith("}\n")
    assert text.startswith('{\n "cells"')
    book.NotebookEdit(notebook_path="n.ipynb", cell=0, new_source="new", cell_type="raw")
    assert cells(book)[0]["cell_type"] == "raw"
    assert cells(book)[0]["id"] == "intro"
    assert json.loads(text)["metadata"] == NOTEBOOK["metadata"]


def test_insert_and_delete(book):
    """At a number, or after an id."""
    book.Read(file_path="n.ipynb")
    book.NotebookEdit(notebook_path="n.ipynb", cell=0, new_source="a", cell_type="code", edit_mode="insert")
    book.NotebookEdit(notebook_path="n.ipynb", cell="intro", new_source="b", cell_type="markdown", edit_mode="insert")
    assert ["".join(cell["source"])[:1] for cell in cells(book)] == ["a", "#", "b", "x"]
    assert len({cell["id"] for cell in cells(book)}) == 4
    book.NotebookEdit(notebook_path="n.ipynb", cell=0, edit_mode="delete")
    assert len(cells(book)) == 3
    for wrong in ({"cell": 9}, {"cell": "gone"}, {"cell": -1}):
        assert book.refused("NotebookEdit", notebook_path="n.ipynb", edit_mode="delete", **wrong).reason == "not_found"
    assert (
        book.refused("NotebookEdit", notebook_path="n.ipynb", cell=0, edit_mode="insert").reason == "invalid_arguments"
    )


@pytest.mark.parametrize("text", ["", "{", "[]", '{"cells": 3}', '{"cells": [1]}', "[" * 100_000])
def test_what_is_no_notebook(tools, text):
    (tools.root / "n.ipynb").write_text(text)
    tools.Read(file_path="n.ipynb")
    assert tools.refused("NotebookEdit", notebook_path="n.ipynb", cell=0, new_source="x").reason == "invalid_file"


def test_todo(tools):
    """The list with marks, and how much is done."""
    todos = [
        {"content": "read", "status": "completed"},
        {"content": "write\nit", "status": "in_progress"},
        {"content": "test"},
    ]
    assert tools.TodoWrite(todos=todos) == "[x] read\n[>] write it\n[ ] test\n1 of 3 done"
    assert tools.TodoWrite(todos=[]) == "nothing to do"
    for wrong in (
        [{"content": " "}],
        [{"content": "x" * 1_001}],
        [{"content": "x"}] * 101,
        [{"content": "x", "status": "in_progress"}] * 2,
    ):
        assert tools.refused("TodoWrite", todos=wrong).reason == "invalid_arguments"
    assert tools.refused("TodoWrite", todos=[{"content": "x", "status": "someday"}])


def test_a_notebook_is_read_cell_by_cell(tools):
    """With the numbers and ids that NotebookEdit takes, what cells print, and pictures by their kind alone."""
    outputs = [
        {"output_type": "stream", "text": ["one\n", "two\n"]},
        {"output_type": "display_data", "data": {"image/png": "iVBOR" * 1000, "text/plain": "<Figure>"}},
        {"output_type": "error", "ename": "ValueError", "evalue": "no", "traceback": ["\x1b[31m"]},
    ]
    notebook = {**NOTEBOOK, "cells": [NOTEBOOK["cells"][0], {**NOTEBOOK["cells"][1], "outputs": outputs}]}
    (tools.root / "n.ipynb").write_text(json.dumps(notebook))
    shown = [line.partition("\t")[2] for line in tools.Read(file_path="n.ipynb").split("\n")]
    assert "\n".join(shown) == (
        "# cell 0 (markdown, id intro)\n# Title\ntext\n\n# cell 1 (code, id x)\nx = 1\n\n"
        "# output of cell 1\none\ntwo\n\n# output of cell 1\n<Figure>\n[image/png]\n\n"
        "# output of cell 1\nValueError: no"
    )
    (tools.root / "broken.ipynb").write_text("{no json")
    assert "{no json" in tools.Read(file_path="broken.ipynb")
