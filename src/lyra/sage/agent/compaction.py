"""SessionCompaction: replaces all but the last turn by a summary in what the model is sent; can be interrupted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lyra.errors import AgentFailed

if TYPE_CHECKING:
    from lyra.sage.agent.live import LiveSession


class SessionCompaction:
    """Of one session, one at a time."""

    __slots__ = ("_session", "_working")

    def __init__(self, session: LiveSession) -> None:
        self._session = session
        self._working: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self._working is not None

    def cancel(self) -> bool:
        """Stop the one that runs; False where none does."""
        return self._working is not None and self._working.cancel()

    async def run(self, focus: str) -> tuple[int, int]:
        """Tokens of the messages before and after."""
        session = self._session
        before = session.context_tokens()
        working = session.kernel.tasks.start(session.process.compact(focus), name="lyra-compact")
        self._working = working
        try:
            await asyncio.wait([working])
        finally:
            self._working = None
            working.cancel()
        if working.cancelled():
            raise AgentFailed("the compaction was interrupted; the conversation is as before", status="interrupted")
        working.result()
        return before, session.context_tokens()
