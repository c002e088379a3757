"""Tools: what an agent can do besides talking. `tool` makes one of a typed function, ToolRegistry gathers them,
DynamicTools reads them from YAML.

Start with `function`, then `registry` and `wrapped`, which runs one.
"""

from __future__ import annotations

from lyra.core.tool import Tool, ToolCall, ToolResult
from lyra.tools.function import tool
from lyra.tools.registry import ToolRegistry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lyra.tools.yaml.folder import DynamicTools

__all__ = ["DynamicTools", "Tool", "ToolCall", "ToolRegistry", "ToolResult", "tool"]


def __getattr__(name: str) -> Any:
    if name != "DynamicTools":  # imported on first use: it needs the sandbox and the HTTP modules
        raise AttributeError(f"module 'lyra.tools' has no attribute {name!r}")
    from lyra.tools.yaml.folder import DynamicTools

    globals()[name] = DynamicTools
    return DynamicTools
