"""The tools every agent can have: `builtin_tools(workspace)`. One module a family.

`workspace` opens files below the folders an agent works in, `text_file` keeps encodings and line endings, `read_log`
knows who has read what. On them stand `files` (Read, Write, Edit, MultiEdit), `search` (Glob, Grep), `notebook`
(NotebookEdit) and `todo` (TodoWrite). Whether a call is allowed is decided before it comes here: by the Grant, which
is asked for the resolved path, and by the permission rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lyra.tools.builtin.workspace import Workspace

if TYPE_CHECKING:
    from lyra.core.tool import Tool

__all__ = ["Workspace", "builtin_tools"]


def builtin_tools(workspace: Workspace | str) -> list[Tool]:
    """All of them, working in one workspace."""
    from lyra.tools.builtin.files import file_tools
    from lyra.tools.builtin.notebook import notebook_tools
    from lyra.tools.builtin.read_log import ReadLog
    from lyra.tools.builtin.search import search_tools
    from lyra.tools.builtin.todo import todo_tools

    place = workspace if isinstance(workspace, Workspace) else Workspace(workspace)
    log = ReadLog()
    return [*file_tools(place, log), *search_tools(place), *notebook_tools(place, log), *todo_tools()]
