"""A session that is killed: run by `test_killed_tasks` in a process of its own, which works until it gets SIGKILL."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from lyra import tool
from lyra.core.tool import Tool
from lyra.tools.builtin import builtin_tools
from tests.sage.agent.task_support import opened

MODEL = "openai/gpt-test"


def tools_of(folder: Path) -> list[Tool]:
    """The built-in tools, and one that leaves a line in a file each time it runs."""

    def dig(name: str) -> str:
        """Dig."""
        with open(folder / "dug.txt", "a") as file:
            file.write(f"{name}\n")
        return f"{name} dug"

    (folder / "work").mkdir(exist_ok=True)
    return [*builtin_tools(str(folder / "work")), tool(dig)]


async def work(folder: Path) -> None:
    async with opened(folder, MODEL, tools=tools_of(folder), permissions={"mode": "bypass"}) as session:
        session.process.send_async("lead: go")
        await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1])))
