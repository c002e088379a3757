"""Rules of a subfolder, told with the result of the first call that reads or edits a file there.

`with_folder_rules(tools, rules)` wraps the tools that open one file. The rules follow the result after a line with
the mark of this session (`ProjectRules.mark`), which the system prompt names: a file cannot know it, so its text cannot
pass for rules. Only trusted rules are told. The result is journaled as any other, so a resumed session has them, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from lyra.core.tool import Tool, ToolCall, caller
from lyra.sage.project.rules import ProjectRules
from lyra.tools.wrapped import Next, layered, pure

# The tools that open one file, and the argument that names it.
PATH_ARGUMENTS: Final = {
    "Read": "file_path",
    "Edit": "file_path",
    "MultiEdit": "file_path",
    "Write": "file_path",
    "NotebookEdit": "notebook_path",
}


def rules_heading(mark: str) -> str:
    """The line that begins rules in a result."""
    return f"[rules of a subfolder, {mark}]"


def with_folder_rules(tools: Iterable[Any], rules: ProjectRules) -> list[Any]:
    """The tools; those of Lyra's own that open a file tell the rules of its folder. Others are left as they are."""

    @pure
    async def mw(call: ToolCall, inner: Next) -> Any:
        output = await inner(call)
        path = call.arguments.get(PATH_ARGUMENTS[call.name])
        if not isinstance(output, str) or not isinstance(path, str):
            return output
        news = await asyncio.to_thread(rules.news_for, path, caller.get())
        return f"{output}\n\n{rules_heading(rules.mark)}\n{news}" if news else output

    def wrapped(tool: Any) -> Any:
        opens_file = isinstance(tool, Tool) and tool.builtin and tool.name in PATH_ARGUMENTS
        return layered(tool, [mw]) if opens_file else tool

    return [wrapped(tool) for tool in tools]
