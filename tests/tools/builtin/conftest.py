"""A workspace with the built-in tools, called as an agent would call them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lyra.errors import ToolError
from lyra.tools.builtin import Workspace, builtin_tools


class Tools:
    """`tools.Read(file_path=…)` gives the text; `tools.refused("Read", …)` the error."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.root = root
        self.workspace = Workspace(str(root), **options)
        self.by_name = {tool.name: tool for tool in builtin_tools(self.workspace)}

    def __getattr__(self, name: str) -> Any:
        return lambda **arguments: self.call(name, **arguments)

    def call(self, name: str, **arguments: Any) -> Any:
        run = self.by_name[name].run
        assert run is not None
        value = run(**arguments)
        return asyncio.run(value) if asyncio.iscoroutine(value) else value

    def refused(self, name: str, **arguments: Any) -> ToolError:
        with pytest.raises(ToolError) as caught:
            self.call(name, **arguments)
        return caught.value


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    root = tmp_path / "work"
    root.mkdir()
    return Tools(root)
