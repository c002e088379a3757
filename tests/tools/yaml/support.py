"""What the tests of YAML tools share: a file of one tool, its tools, a call."""

from __future__ import annotations

import asyncio
from pathlib import Path
from textwrap import dedent
from typing import Any

from lyra.core.tool import Tool, ToolResult
from lyra.tools.builtin.workspace import Workspace
from lyra.tools.registry import ToolRegistry
from lyra.tools.yaml import Mistake, ToolEnvironment, read_tools


def environment(folder: Path, **options: Any) -> ToolEnvironment:
    return ToolEnvironment(workspace=Workspace(str(folder)), **options)


def tool_of(text: str, place: ToolEnvironment) -> Tool:
    tools, mistakes = read_tools(dedent(text).encode(), "a.yaml", place)
    assert not mistakes, [str(mistake) for mistake in mistakes]
    assert len(tools) == 1
    return tools[0]


def mistakes_of(text: str, folder: Path, **options: Any) -> list[Mistake]:
    tools, mistakes = read_tools(dedent(text).encode(), "a.yaml", environment(folder, **options))
    assert bool(tools) != bool(mistakes)
    return mistakes


async def call(tool: Tool, /, **arguments: Any) -> ToolResult:
    return await ToolRegistry([tool]).call(tool.name, arguments)


def called(tool: Tool, /, **arguments: Any) -> ToolResult:
    return asyncio.run(call(tool, **arguments))
