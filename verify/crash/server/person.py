"""The person who answers what is in doubt after a kill, by looking at the world: an act that was performed is skipped
with its result, one that was not is performed."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final

from lyra.errors import InvalidTransition
from verify.crash.server.callers import Scene, ServerLost
from verify.crash.server.outside import answer_to

__all__ = ["Person"]

_POLL_S: Final = 0.1


class Person(Scene):
    name = "person"
    answered = 0

    async def unit(self) -> None:
        await asyncio.sleep(_POLL_S)
        try:
            await self.look()
        except ServerLost:
            await self.world.settled()

    async def look(self) -> None:
        kernel = self.world.kernel("")
        for asked in await self.world.asked("list_interrupts", lambda: kernel.list_interrupts(status="pending")):
            if str(asked.kind) != "in_doubt":
                continue
            key, data = await self._act_of(kernel, str(asked.pid))
            answer: dict[str, Any] = {"decision": "retry"}
            if self.world.log.was_performed(key):
                answer = {"decision": "skip", "data": data}
            interrupt_id = str(asked.id)
            if await self.world.asked("resolve_interrupt", partial(_resolve, kernel, interrupt_id, answer)):
                Person.answered += 1

    async def _act_of(self, kernel: Any, pid: str) -> tuple[str, Any]:
        """The key of the act that is in doubt in a process, and what it gives."""
        if pid.startswith("chat-"):
            unit = self.world.turns.get(pid.partition(".")[2], "")
            if not unit:  # a task whose id never reached its client
                path = f"/api/sessions/{pid.partition('.')[2]}"
                session = await self.world.request("GET", path, user="")
                spoken = [row["text"] for row in session["messages"] if row["role"] == "user"]
                unit = spoken[-1].removeprefix("unit ")
            return f"once/chat-{unit}", answer_to(f"chat-{unit}")
        state = await self.world.asked("get_orchestration_state", lambda: kernel.get_orchestration_state(pid))
        unit = state.envelope.raw_input
        return f"once/{unit}", {"receipt": answer_to(unit)}

    async def compare(self) -> None:
        return None


async def _resolve(kernel: Any, interrupt_id: str, answer: dict[str, Any]) -> bool:
    """Answer a question; False where the late result of a worker has answered it since it was listed."""
    try:
        await kernel.resolve_interrupt(interrupt_id, answer)
    except InvalidTransition:
        return False
    return True
