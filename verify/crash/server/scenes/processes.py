"""Processes that an outside worker drives: created, scheduled, taken, charged and ended.

A process moves in one direction, so what the server says lies between the last step that was acknowledged and the last
one that was tried. A process that ran when the server was killed may stand in line again.
"""

from __future__ import annotations

from typing import Final

from verify.crash.server.callers import Scene

__all__ = ["Processes"]

_RANKS: Final = {"new": 0, "ready": 1, "running": 2, "terminated": 3, "zombie": 3}
_CHARGES: Final = 3


class _Entry:
    __slots__ = ("acknowledged", "charges", "charges_tried", "tried")

    def __init__(self) -> None:
        self.acknowledged = -1
        self.tried = 0
        self.charges = self.charges_tried = 0


class Processes(Scene):
    name = "processes"

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self._entries: dict[str, _Entry] = {}

    async def unit(self) -> None:
        pid = self.next_name()
        entry = self._entries[pid] = _Entry()
        await self.until_done(lambda: self._step(entry, 0, "submit", pid, request_id=f"r-{pid}"))
        while entry.acknowledged < 3:
            await self.until_done(lambda: self._advance(pid, entry))

    async def _advance(self, pid: str, entry: _Entry) -> None:
        state = str((await self.ask("get_process", pid)).state)
        if state == "new":
            await self._step(entry, 1, "schedule", pid)
        elif state == "ready":
            await self._step(entry, 2, "get_next_runnable")
        elif state == "running" and entry.charges_tried < _CHARGES:
            entry.charges_tried += 1
            await self.ask("record_usage", pid, llm_calls=1)
            entry.charges += 1
        else:
            await self._step(entry, 3, "terminate", pid, reason="done", force=True)

    async def _step(self, entry: _Entry, rank: int, method: str, *args: str, **options: object) -> None:
        entry.tried = max(entry.tried, rank)
        await self.ask(method, *args, **options)
        entry.acknowledged = max(entry.acknowledged, rank)

    async def compare(self) -> None:
        listed = {str(block.pid): block for block in await self.ask("list_processes", user_id=self.user)}
        for pid, entry in self._entries.items():
            block = listed.get(pid)
            if block is None:
                self.expect(entry.acknowledged < 0, f"{pid} was created and is gone")
                continue
            rank, least = _RANKS[str(block.state)], min(entry.acknowledged, 1) if entry.acknowledged < 3 else 3
            self.expect(least <= rank <= entry.tried, f"{pid} is {block.state} after step {entry.acknowledged}")
            calls = block.usage.llm_calls
            self.expect(
                entry.charges <= calls <= entry.charges_tried,
                f"{pid} was charged {entry.charges} times and says {calls}",
            )
            self.expect(block.request_id == f"r-{pid}", f"{pid} has lost its request")
        if self._entries and await self._ended_is_not_found():
            self.world.fail(f"{self.user}: a process that was never created is there")

    async def _ended_is_not_found(self) -> bool:
        """Whether the server knows a process that was never created."""
        listed = await self.ask("list_processes", user_id=f"{self.user}-nobody-has-this-name")
        return bool(listed)
