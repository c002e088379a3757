"""The tool `RepoMap`: a model asks what a folder or a file defines. Its output is text from files, as that of Read."""

from __future__ import annotations

from typing import Any

from lyra.core.rights.capability import Capability
from lyra.core.tool import Tool
from lyra.sage.project.repo_map.repo_map import MAP_TOKENS, RepoMap
from lyra.tools.builtin.workspace import Workspace
from lyra.tools.function import tool


def repo_map_tool(workspace: Workspace, repo_map: RepoMap) -> Tool:
    """The tool for one workspace and its map."""

    def needs_of(arguments: dict[str, Any]) -> list[Capability]:
        return workspace.need("fs.read", arguments.get("path") or None)

    async def show(path: str = ".", query: str = "", tokens: int = MAP_TOKENS) -> str:
        """Show the files of a folder with their classes and functions, as they are now, the most used ones first.

        Args:
            path: a folder, or one file to see what it defines
            query: what it is about, in words, names or paths: what fits comes first
            tokens: how long the answer may be, at most 20000
        """
        return await repo_map.text(path=path, query=query, tokens=tokens)

    return tool(
        show,
        name="RepoMap",
        needs_of=needs_of,
        idempotent=True,
        untrusted=True,
        harmless=True,
        folders=workspace.roots,
    )
