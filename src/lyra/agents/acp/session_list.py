"""The sessions that editors have begun with one agent: which folder each is of, kept on a blackboard of the kernel.

A session is an agent process; its pid carries the session's id. With a durable store the list and the conversations are
there after a restart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lyra.core.limits import NAME_LENGTH_MAX

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel


_GROUP: Final = "acp.sessions"
_PREFIX: Final = "acp."


class ListedSession(NamedTuple):
    """One session: the folder that the editor named, and when it began."""

    id: str
    folder: str
    began_at: float


class EditorSessions:
    """See the module. `agent` is the name of the agent whose sessions these are."""

    def __init__(self, kernel: Kernel, agent: str) -> None:
        self._kernel = kernel
        self._agent = agent

    @staticmethod
    def pid(session_id: str) -> str:
        return f"{_PREFIX}{session_id}"

    async def add(self, session_id: str, folder: str) -> None:
        groups = self._kernel.groups
        await groups.create(_GROUP, exist_ok=True)
        row = {"agent": self._agent, "folder": folder, "began_at": self._kernel.clock.now()}
        await groups.bb_set(_GROUP, session_id, row)

    def find(self, session_id: str) -> ListedSession | None:
        """The session of an id whose process is alive."""
        if len(session_id) > NAME_LENGTH_MAX or _GROUP not in self._kernel.groups.names():
            return None
        row = self._kernel.groups.bb_get(_GROUP, session_id)
        return self._listed(session_id, row) if row is not None else None

    def list(self, folder: str | None = None) -> list[ListedSession]:
        """The sessions, the newest first; of one folder where it is named."""
        if _GROUP not in self._kernel.groups.names():
            return []
        rows = self._kernel.groups.bb_snapshot(_GROUP)
        sessions = [self._listed(session_id, row) for session_id, row in rows.items()]
        wanted = [session for session in sessions if session is not None and folder in (None, session.folder)]
        return sorted(wanted, key=lambda session: session.began_at, reverse=True)

    def _listed(self, session_id: str, row: dict[str, Any]) -> ListedSession | None:
        process = self._kernel.processes.get(self.pid(session_id))
        if row["agent"] != self._agent or process is None or not process.alive:
            return None
        return ListedSession(session_id, row["folder"], row["began_at"])
