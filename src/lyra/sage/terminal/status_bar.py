"""StatusBar: the status line of an open session, and when its values are read.

Cost, model and mode are read whenever something has happened; the context is measured and git is asked between two
turns; hooks of the user may add a text. Nothing is read while drawing. How the line looks is `status`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lyra.kernel.base.tasks import Tasks
from lyra.sage.terminal.conversation import Conversation
from lyra.sage.terminal.screen import LiveScreen
from lyra.sage.terminal.shown_session import ShownSession
from lyra.sage.terminal.status import Status, status_line
from lyra.sage.terminal.text.styled_lines import Line

if TYPE_CHECKING:
    from lyra.sage.extensions.hooks.status_line import StatusLine


class StatusBar:
    """The status line, and when its values are read."""

    def __init__(self, session: ShownSession, screen: LiveScreen, conversation: Conversation) -> None:
        self._session = session
        self._screen = screen
        self._conversation = conversation
        self._tasks = Tasks()
        self._git: asyncio.Task[None] | None = None
        self._own = _own_status(session)
        self._own_text: asyncio.Task[None] | None = None
        self._status = Status(folder=session.folder, model=session.model, mode=session.mode)

    def line(self, width: int) -> Line:
        return status_line(self._status, width, marks=self._screen.facts.marks)

    def refresh(self) -> None:
        """Something happened: read the values again. The context is measured and git is asked between two turns."""
        session, before = self._session, self._status
        usage = session.usage()
        self._status = before._replace(
            model=session.model,
            mode=session.mode,
            cost_usd=usage.total.cost_usd,
            budget_usd=usage.budget_usd,
        )
        if not self._conversation.working:
            self._status = self._status._replace(context_percent=session.context().percent)
            if self._git is None or self._git.done():
                self._git = self._tasks.start(self._read_git(), name="git state")
        if self._own is not None and (self._own_text is None or self._own_text.done()):
            self._own_text = self._tasks.start(self._read_own(self._own), name="status line")
        self._screen.changed()

    async def close(self) -> None:
        await self._tasks.close()

    async def _read_own(self, own: StatusLine) -> None:
        """The text of the user's StatusLine hooks."""
        session = self._session
        data = {
            "session_id": session.id,
            "model": session.model,
            "mode": session.mode,
            "cost_usd": self._status.cost_usd,
            "context_tokens": session.context().tokens.total,
        }
        self._status = self._status._replace(own=await own.refresh(data))
        self._screen.changed()

    async def _read_git(self) -> None:
        from lyra.sage.project.git_state import git_state

        state = await git_state(self._session.folder)
        changed = state.staged + state.changed + state.untracked + state.conflicted if state is not None else 0
        self._status = self._status._replace(branch=state.branch if state is not None else "", changed_files=changed)
        self._screen.changed()


def _own_status(session: ShownSession) -> StatusLine | None:
    """The status line that hooks of the user write; None where no hook does."""
    if session.hooks is None or session.hooks.status_for("StatusLine", {}) is None:
        return None
    from lyra.sage.extensions.hooks.status_line import StatusLine

    return StatusLine(session.hooks)
