"""The MCP server of the attacks: a real one, in the sandbox, started once for all of them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from lyra.core.tool import Tool
from lyra.mcp import Approvals, McpServers, ServerSettings

__all__ = ["Notes", "available"]

_PROGRAM: Final = str(Path(__file__).parent / "notes_server.py")
_NAME: Final = "notes"


def available() -> bool:
    """Whether the SDK is installed."""
    from importlib.util import find_spec

    return find_spec("mcp") is not None


class Notes:
    """`said` are the texts that its tools give back, `described` those that stand in their descriptions."""

    def __init__(self, folder: Path, notes: Mapping[str, str], described: Mapping[str, str]) -> None:
        folder.mkdir()
        texts = folder / "texts.json"
        texts.write_text(json.dumps({"said": dict(notes), "described": dict(described)}))
        python = os.path.abspath(sys.executable)
        readable = (sys.prefix, sys.base_prefix, str(folder), str(Path(_PROGRAM).parent))
        settings = ServerSettings(
            name=_NAME, command=python, args=("-IS", _PROGRAM, str(texts)), readable=readable, origin="user"
        )
        self._servers = McpServers([settings], workspace=str(folder), approvals=Approvals(None), folder=None)
        self._tools: dict[str, Tool] = {}

    async def open(self) -> None:
        (state,) = await self._servers.start()
        self._tools = {tool.name: tool for tool in self._servers.__lyra_tools__()}
        if f"mcp__{_NAME}__note" not in self._tools:
            raise RuntimeError(f"the server of notes did not start: {state}")

    async def close(self) -> None:
        await self._servers.close()

    def tool(self, name: str) -> Tool:
        return self._tools[f"mcp__{_NAME}__{name}"]
