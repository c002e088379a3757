"""Tools: what an agent can do besides talking. `tool` makes one of a typed function, ToolRegistry gathers them."""

from lyra.core.tool import Tool, ToolCall, ToolResult
from lyra.tools.function import tool
from lyra.tools.registry import ToolRegistry

__all__ = ["Tool", "ToolCall", "ToolRegistry", "ToolResult", "tool"]
