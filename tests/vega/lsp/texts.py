"""Texts with a cursor in them, for tests of the core."""

from __future__ import annotations

from pathlib import Path

from lyra.lsp.texts import Document, uri_of
from lyra.vega.lsp.project import Project

CURSOR = "‸"
MAIN = "/work/main.vega"


def cut(text: str) -> tuple[str, int]:
    """The text without its cursor, and where that was."""
    offset = text.index(CURSOR)
    return text.replace(CURSOR, ""), offset


def project(text: str, folder: Path | None = None, /, **others: str) -> tuple[Project, str, int]:
    """A project with one open file, the cursor in it, and other open files by their names."""
    where = "/work" if folder is None else str(folder)
    clean, offset = cut(text) if CURSOR in text else (text, 0)
    workspace = Project([where] if folder is not None else [])
    main = f"{where}/main.vega"
    for name, other in {"main": clean, **others}.items():
        path = f"{where}/{name}.vega"
        workspace.put(Document(uri_of(path), path, other))
    return workspace, main, offset
