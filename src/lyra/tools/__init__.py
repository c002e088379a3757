"""Tools: what an agent can do besides talking. `tool` makes one of a typed function, ToolRegistry gathers them,
DynamicTools reads them from YAML.

Start with `function`, then `registry` and `wrapped`, which runs one.
"""

from __future__ import annotations

from lyra._imports import on_first_use

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lyra.core.tool import Tool, ToolCall, ToolResult
    from lyra.tools.function import tool
    from lyra.tools.registry import ToolRegistry
    from lyra.tools.yaml.folder import DynamicTools

__all__ = ["DynamicTools", "Tool", "ToolCall", "ToolRegistry", "ToolResult", "tool"]

if not TYPE_CHECKING:  # type checkers read the imports above
    __getattr__ = on_first_use(
        __name__,
        {
            "lyra.core.tool": "Tool ToolCall ToolResult",
            "function": "tool",
            "registry": "ToolRegistry",
            "yaml.folder": "DynamicTools",
        },
    )
