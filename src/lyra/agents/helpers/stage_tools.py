"""Which of an agent's tools a stage of a pipeline leaves it: those of `allowed_tools`, as far as `tool_access` goes.

    tool_access   tools
    none          none
    read          Lyra's own that read or talk, harmless ones, and those that declare only rights to read
    write         all but those that run programs, use the network or come from outside
    all           all

A tool that declares nothing counts as one that writes. A stage without the two keys leaves the agent its tools.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from lyra.kernel.pipelines.keys import ToolAccess
from lyra.tools.permissions.subjects import TOOLS
from lyra.tools.source import ToolSource, part_of

if TYPE_CHECKING:
    from lyra.core.tool import Tool
    from lyra.kernel.pipelines.declaration import AgentConfig


_READS: Final = frozenset({"fs.read", "db.read", "memory.read"})
_BEYOND_WRITING: Final = ("process.", "net.", "secrets.", "model.")
_ACTS_OF_READING: Final = ("read", "talk")
_ACTS_BEYOND_WRITING: Final = ("run", "fetch")


def narrowed_tools(stage: AgentConfig, tools: Iterable[Tool]) -> tuple[Tool, ...]:
    return tuple(tool for tool in tools if _fits(stage, tool))


def narrowed_source(stage: AgentConfig, source: ToolSource) -> ToolSource:
    if stage.tool_access in (None, ToolAccess.ALL) and not stage.allowed_tools:
        return source
    return part_of(source, lambda tool: _fits(stage, tool), ())


def _fits(stage: AgentConfig, tool: Tool) -> bool:
    if stage.allowed_tools and tool.name not in stage.allowed_tools:
        return False
    access = stage.tool_access
    if access is None or access is ToolAccess.ALL:
        return True
    if access is ToolAccess.NONE:
        return False
    return _reads(tool) or (access is ToolAccess.WRITE and not _goes_beyond_writing(tool))


def _act(tool: Tool) -> str:
    """What one of Lyra's own tools does to the world; "" for a tool of a user."""
    facts = TOOLS.get(tool.name.lower()) if tool.builtin else None
    return facts.act if facts is not None else ""


def _reads(tool: Tool) -> bool:
    if _act(tool):
        return _act(tool) in _ACTS_OF_READING
    if tool.harmless:
        return True
    return tool.needs_of is None and bool(tool.needs) and all(need.name in _READS for need in tool.needs)


def _goes_beyond_writing(tool: Tool) -> bool:
    if _act(tool):
        return _act(tool) in _ACTS_BEYOND_WRITING
    return tool.foreign or any(need.name.startswith(_BEYOND_WRITING) for need in tool.needs)
