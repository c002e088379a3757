"""SessionPrompt: the system prompt of a session, made anew for each turn from what is there then.

Rules are read again when their files change, and those of subfolders are told again after a compaction, which took them
out of what the model is sent. Git is asked once, when the session begins. Of its answer only counts and a branch of
plain characters go into the prompt: titles of commits are text from outside, and the prompt must not be.
"""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from lyra.core.clock import SystemClock
from lyra.sage.project.git_head import read_head
from lyra.sage.project.prompt import system_prompt
from lyra.sage.project.rules import ProjectRules

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lyra.kernel.base.tasks import Tasks
    from lyra.sage.project.git_state import GitState


_PLAIN_BRANCH: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,80}\Z")


class SessionPrompt:
    """`mode` gives the permission mode of now."""

    def __init__(
        self, folder: str, also: Sequence[str], rules: ProjectRules, mode: Callable[[], str], *, attended: bool
    ) -> None:
        self.rules = rules
        self._folder = folder
        self._also = also
        self._mode = mode
        self._attended = attended
        self._git: asyncio.Task[GitState | None] | None = None
        self._window_start = 0

    def begin(self, tasks: Tasks) -> None:
        """Ask git in the background, as a task of the kernel."""
        if self._git is None and read_head(self._folder) is not None:
            from lyra.sage.project.git_state import git_state

            self._git = tasks.start(git_state(self._folder), name="lyra-git-state")

    async def __call__(self, session: Any) -> str:
        """The prompt for the next turn of an agent's session."""
        window = session.window
        if window.start != self._window_start:
            self._window_start = window.start
            self.rules.tell_again()
        if self._git is not None:
            await asyncio.wait([self._git])
        return self.now()

    def now(self) -> str:
        """The prompt as it would be now; before git has answered, without it."""
        return system_prompt(
            self._folder,
            self._also,
            attended=self._attended,
            mode=self._mode(),
            date=datetime.fromtimestamp(SystemClock().now(), UTC).date().isoformat(),
            rules=self.rules,
            git=self._git_state(),
        )

    def _git_state(self) -> GitState | None:
        done = self._git is not None and self._git.done() and not self._git.cancelled()
        state = self._git.result() if done and self._git is not None and self._git.exception() is None else None
        if state is None:
            return None
        branch, upstream = (name if _PLAIN_BRANCH.match(name) else "" for name in (state.branch, state.upstream))
        return state._replace(branch=branch, upstream=upstream, commits=())
