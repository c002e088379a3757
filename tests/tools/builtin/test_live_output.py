"""The output of a command is reported while it runs, to those who listen."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from lyra.core.tool import progress
from lyra.sandbox import examine
from lyra.tools.builtin import builtin_tools

WORKING = [state.name for state in asyncio.run(examine()) if state.works]
pytestmark = pytest.mark.skipif(not WORKING, reason="no sandbox works here")


def test_a_running_command_reports_its_last_output(tmp_path: Path) -> None:
    """A listener hears the first line before the command has ended; the result is the same as without one."""
    bash = next(tool for tool in builtin_tools(str(tmp_path)) if tool.name == "Bash")
    heard: list[tuple[str, bool]] = []
    flag = tmp_path / "go"

    def listen(text: str, fraction: float | None) -> None:
        heard.append((text, flag.exists()))
        flag.touch()  # the command goes on only after a report

    async def run() -> str:
        progress.set(listen)
        command = "echo first; until [ -e go ]; do sleep 0.05; done; echo last"
        assert bash.run is not None
        return str(await bash.run(command=command))

    output = asyncio.run(run())
    assert heard[0] == ("first\n", False)
    assert output.startswith("first\nlast\n")
