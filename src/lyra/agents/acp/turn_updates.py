"""TurnUpdates: the lines of a turn, told to an editor as they come: text, thoughts, tool calls, the plan.

A line is the plain mapping of an agent's event. Questions and notices are not told here: each face has its own way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from acp import helpers

from lyra.agents.acp.updates import ended, plan_of, shown_text, started
from lyra.agents.session.events import AnyLine, ToolStartLine


class TurnUpdates:
    """`tell` sends an update about the session to the editor; paths are shown as they are in `folder`."""

    def __init__(self, tell: Callable[[Any], Awaitable[None]], folder: str) -> None:
        self._tell = tell
        self._folder = folder
        self._diffs: set[str] = set()  # calls whose content is a diff

    async def tell_line(self, line: AnyLine) -> None:
        """Tell one line; one of another kind is passed over."""
        if line["type"] == "text_delta":
            await self._tell(helpers.update_agent_message_text(shown_text(line["delta"])))
        elif line["type"] == "thinking_delta":
            await self._tell(helpers.update_agent_thought_text(shown_text(line["delta"])))
        elif line["type"] == "tool_start":
            await self._started(line)
        elif line["type"] == "tool_progress":
            block = helpers.tool_content(helpers.text_block(shown_text(line["text"])))
            if line["id"] not in self._diffs:
                await self._tell(helpers.update_tool_call(line["id"], status="in_progress", content=[block]))
        elif line["type"] == "tool_end":
            await self._tell(ended(line, keep_diff=line["id"] in self._diffs))

    async def _started(self, line: ToolStartLine) -> None:
        update = started(line, self._folder)
        if update.content:
            self._diffs.add(line["id"])
        await self._tell(update)
        plan = plan_of(line["arguments"]) if line["name"] == "TodoWrite" else None
        if plan is not None:
            await self._tell(plan)
