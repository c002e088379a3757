"""Tools: what an agent can do besides talking. `tool` makes one of a typed function."""

from lyra.core.tool import Tool, ToolCall, ToolResult
from lyra.tools.function import tool

__all__ = ["Tool", "ToolCall", "ToolResult", "tool"]
