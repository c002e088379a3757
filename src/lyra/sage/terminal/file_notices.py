"""FileNotices: tells in the terminal that files of extensions and tools were read again, or cannot be used.

Looks before a prompt or a command is carried out, so that its notes stand above it and none appears in the middle of an
answer. What was wrong when the session began has been told by then. Reads and decides nothing itself: the session's
equipment reads the files, `SessionNotices` has the sentences about extensions.
"""

from __future__ import annotations

from collections.abc import Callable

from lyra.agents.session.events import NoticeLine
from lyra.sage.agent.live import LiveSession
from lyra.sage.agent.session_notices import SessionNotices

__all__ = ["FileNotices"]


class FileNotices:
    """`note` prints a sentence in a style."""

    def __init__(self, session: LiveSession, note: Callable[[str, str], object]) -> None:
        self._session = session
        self._note = note
        self._told = set(self._problems())
        self._notices = SessionNotices(session, self._tell, known=self._told)

    def look(self) -> None:
        """Tell what has changed since the last look."""
        self._notices.look()
        problems = self._problems()
        for problem in problems:
            if problem not in self._told:
                self._note(problem, "failed")
        self._told = set(problems)

    def _tell(self, notice: NoticeLine) -> None:
        if notice.get("source") == "extensions":  # tasks are told by the conversation
            self._told.add(notice["text"])
            self._note(notice["text"], "failed" if notice["level"] == "warning" else "faint")

    def _problems(self) -> list[str]:
        """What is wrong with files of tools and extensions now."""
        sources = self._session.headless.agent.sources
        of_sources = [problem for source in sources for problem in getattr(source, "problems", ())]
        equipment = self._session.equipment
        return list(dict.fromkeys([*of_sources, *(equipment.problems if equipment is not None else ())]))
