"""What a caller of the SDK gives, checked before a session sees it: tasks, and tools in their several forms."""

from __future__ import annotations

from typing import Any

from lyra.agents.declaration.content import Content
from lyra.core.checking.check import sendable_text
from lyra.core.tool import Tool
from lyra.errors import ConfigError
from lyra.tools.function import tool as tool_of
from lyra.tools.source import ToolSource


def check_task(task: Content) -> None:
    """Refuse a task that is empty, or that no journal can hold."""
    parts = task if isinstance(task, (list, tuple)) else [task]
    for part in parts:
        if isinstance(part, str):
            sendable_text(part, "the task")
    if not parts or all(isinstance(part, str) and not part.strip() for part in parts):
        raise ConfigError("the task is empty", key="task")


def tool_given(given: Any) -> Tool | ToolSource:
    """A tool from a function, a Tool, an Agent as a sub-agent, or a source of tools."""
    from lyra.agents.agent import Agent
    from lyra.agents.helpers.delegate import delegate

    if isinstance(given, Agent):
        return delegate(given)
    if isinstance(given, Tool) or hasattr(given, "__lyra_tools__"):
        return given  # type: ignore[no-any-return]  # checked above
    return tool_of(given)
