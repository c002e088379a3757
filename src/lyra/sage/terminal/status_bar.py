"""StatusBar: the status line of an open session, and when its values are read.

Cost, model and mode are read whenever something has happened; the context is measured and git is asked between two
turns; hooks of the user may add a text. Nothing is read while drawing.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, NamedTuple

from lyra.kernel.base.tasks import Tasks
from lyra.sage.agent.live import LiveSession
from lyra.sage.terminal.conversation import Conversation
from lyra.sage.terminal.screen import LiveScreen
from lyra.sage.terminal.text.styled_lines import Line, Marks, clip, exact, width_of

if TYPE_CHECKING:
    from lyra.sage.extensions.hooks.hooks import StatusLine


class StatusBar:
    """The status line, and when its values are read."""

    def __init__(self, session: LiveSession, screen: LiveScreen, conversation: Conversation) -> None:
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


def _own_status(session: LiveSession) -> StatusLine | None:
    """The status line that hooks of the user write; None where no hook does."""
    if session.hooks is None or session.hooks.status_for("StatusLine", {}) is None:
        return None
    from lyra.sage.extensions.hooks.hooks import StatusLine

    return StatusLine(session.hooks)


# ---------------------------------------------------------------- status


class Status(NamedTuple):
    folder: str = ""
    branch: str = ""
    changed_files: int = 0
    model: str = ""
    mode: str = "default"
    cost_usd: float | None = 0.0  # None: the price of a call is not known
    budget_usd: float | None = None
    context_percent: int | None = None
    own: str = ""  # what a hook of the user says in place of the folder and the branch


def status_line(status: Status, width: int, *, marks: Marks) -> Line:
    """One line; what matters least is left out where it is too narrow."""
    left: list[Line] = [[("strong", " sage")]]
    if status.mode != "default":
        left.append([("mode", exact(status.mode))])
    left.append([("", exact(status.own or os.path.basename(status.folder.rstrip("/")) or "/"))])
    if status.branch and not status.own:
        dirty = f" {marks.plus_minus}{status.changed_files}" if status.changed_files else ""
        left.append([("faint", f"{exact(status.branch)}{dirty}")])
    cost = "$?" if status.cost_usd is None else f"${status.cost_usd:.2f}"
    right: list[Line] = [[("faint", exact(status.model.rpartition("/")[2]))]] if status.model else []
    right.append([("faint", f"{cost} of ${status.budget_usd:.2f}" if status.budget_usd else cost)])
    if status.context_percent is not None:
        style = "waits" if status.context_percent >= 80 else "faint"
        right.append([(style, f"context {status.context_percent} %")])
    while True:
        line = _joined(left, "  ")
        figures = _joined(right, "   ")
        room = width - width_of(line) - width_of(figures)
        if room >= 2:
            return [*line, ("", " " * room), *figures]
        if right:
            right.pop(0)
        elif len(left) > 2:
            left.pop()
        else:
            return clip(line, width, marks.ellipsis)


def _joined(parts: list[Line], gap: str) -> Line:
    line: Line = []
    for part in parts:
        line += [("", gap), *part] if line else part
    return line
