"""Which calls may run beside each other: the concurrency of tools, kept for one group of calls.

`parallel` calls run beside any other, `sequential` ones one call of the tool at a time, a number is how many of the
tool may run at once, and an `exclusive` call runs alone. Calls begin in the order of arrival, except that a call that
waits for calls of its own tool is overtaken by those of others; no call overtakes a waiting exclusive one, which might
else wait for ever. The group is the calls of one turn of an agent process, or of one registry.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lyra.core.tool import Tool


class Turns:
    """`async with turns.of(tool): …`; at most `limit` calls at once, where one is given."""

    __slots__ = ("_alone", "_limit", "_of_tool", "_running", "_waiting")

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._running = 0
        self._alone = False  # an exclusive call is running
        self._of_tool: dict[str, int] = {}
        self._waiting: list[tuple[Tool, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def of(self, tool: Tool | None) -> AsyncIterator[None]:
        """Wait for the turn of a call of `tool`; None is a call that runs nothing and does not wait."""
        if tool is None:
            yield
            return
        await self._enter(tool)
        try:
            yield
        finally:
            self._leave(tool)

    async def _enter(self, tool: Tool) -> None:
        if not any(_is_exclusive(other) for other, _ in self._waiting) and self._may(tool):
            self._begin(tool)
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((tool, turn))
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():  # its turn came, but the call never began
                self._leave(tool)
            else:
                self._waiting = [entry for entry in self._waiting if entry[1] is not turn]
                self._admit()
            raise

    def _may(self, tool: Tool) -> bool:
        if self._alone or (self._limit is not None and self._running >= self._limit):
            return False
        if _is_exclusive(tool):
            return self._running == 0
        most = 1 if tool.concurrency == "sequential" else tool.concurrency
        return not isinstance(most, int) or self._of_tool.get(tool.name, 0) < most

    def _begin(self, tool: Tool) -> None:
        self._running += 1
        self._alone = _is_exclusive(tool)
        self._of_tool[tool.name] = self._of_tool.get(tool.name, 0) + 1

    def _leave(self, tool: Tool) -> None:
        self._running -= 1
        self._alone = False
        left = self._of_tool[tool.name] - 1
        if left:
            self._of_tool[tool.name] = left
        else:
            del self._of_tool[tool.name]
        self._admit()

    def _admit(self) -> None:
        """Start the waiting calls that may begin now, in their order, up to the first exclusive one."""
        still: list[tuple[Tool, asyncio.Future[None]]] = []
        blocked = False
        for tool, turn in self._waiting:
            if turn.done():  # cancelled; its task has not run yet
                continue
            if not blocked and self._may(tool):
                self._begin(tool)
                turn.set_result(None)
                continue
            blocked = blocked or _is_exclusive(tool)
            still.append((tool, turn))
        self._waiting = still


def _is_exclusive(tool: Tool) -> bool:
    return tool.concurrency == "exclusive"
