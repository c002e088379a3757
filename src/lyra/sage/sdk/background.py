"""Background: what happens in an SDK's session beside the run: its notices, and questions of its background tasks.

Notices wait for the events of a run, and a callback is told of them at once. A task that asks is answered by the
permission callback, also while no run is under way; without one nothing asks, because the session is not attended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from lyra.agents.session.events import NoticeLine
from lyra.errors import LyraError
from lyra.sage.agent.live import LiveSession
from lyra.sage.agent.session_notices import SessionNotices
from lyra.sage.sdk.questions import PermissionCallback, answer_question
from lyra.sage.sdk.result import SageNotice

NoticeCallback = Callable[[SageNotice], object]
_log: Final = logging.getLogger("lyra.sage")


class Background:
    """For a session from when it is opened to its end."""

    def __init__(self, live: LiveSession, ask: PermissionCallback | None, notice: NoticeCallback | None) -> None:
        self._live = live
        self._ask = ask
        self._tell = notice
        self._asking: set[str] = set()  # ids of tasks whose question the callback has
        self._notices = SessionNotices(live, self._on_notice)
        self._notices.look()
        self._answer_tasks()

    def take(self) -> list[SageNotice]:
        """The notices since the last call."""
        return [SageNotice(notice) for notice in self._notices.take()]

    def look(self) -> None:
        """Look whether files of extensions have changed."""
        self._notices.look()

    def tell(self, notice: SageNotice) -> None:
        """Tell the callback; what it raises does not end the run."""
        if self._tell is None:
            return
        try:
            self._tell(notice)
        except Exception:  # noqa: BLE001 - of the caller's function
            _log.exception("the notice callback failed")

    def _on_notice(self, notice: NoticeLine) -> None:
        self.tell(SageNotice(notice))
        if notice.get("source") == "task":
            self._answer_tasks()

    def _answer_tasks(self) -> None:
        if self._ask is None or not self._live.options.attended:
            return
        for task_id in self._notices.asking():
            if task_id not in self._asking:
                self._asking.add(task_id)
                self._live.kernel.tasks.start(self._answer(task_id, self._ask), name="lyra-sdk-question")

    async def _answer(self, task_id: str, ask: PermissionCallback) -> None:
        try:
            while (line := self._notices.question_of(task_id)) is not None:
                await answer_question(self._live, line, ask)
        except LyraError:  # the task is over, or an answer does not fit: `session.tasks.answer` can still answer it
            _log.warning("the question of the task %s was not answered", task_id, exc_info=True)
        finally:
            self._asking.discard(task_id)
