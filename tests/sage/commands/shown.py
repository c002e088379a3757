"""The blocks of a command's result as plain text, for tests."""

from __future__ import annotations

from typing import Any

from lyra.sage.agent.live import LiveSession
from lyra.sage.commands.registry import run_command
from lyra.sage.commands.result import SlashResult

__all__ = ["rows", "run", "words"]


async def run(session: LiveSession, text: str) -> SlashResult:
    return await run_command(session, text)


def rows(result: SlashResult, number: int = 0) -> list[list[str]]:
    """The rows of a table of the result."""
    tables = [block for block in result.blocks if block["type"] in ("table", "bars")]
    listed: list[list[str]] = tables[number]["rows"]
    return listed


def words(result: SlashResult) -> str:
    """All that the blocks say, one line for each row or line."""
    return "\n".join(line for block in result.blocks for line in _lines(block))


def _lines(block: dict[str, Any]) -> list[str]:
    title = [block["title"]] if "title" in block else []
    if block["type"] in ("table", "bars"):
        return [*title, *(" | ".join(map(str, row)) for row in block["rows"])]
    if block["type"] == "lines":
        return [*title, *block["lines"]]
    return [*title, str(block.get("text") or block.get("diff"))]
