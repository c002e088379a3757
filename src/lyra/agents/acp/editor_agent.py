"""EditorAgent: any agent behind the Agent Client Protocol. One kernel, one agent, many sessions.

The agent is as its program declares it: its model, its tools and its rules are its own. The folder that an editor names
is shown and listed with the session, and changes nothing of what the agent may do; a session in a folder that the agent
does not work in is refused. MCP servers that the editor hands over are tools of their session, where the command that
serves the agent says how they are started (`servers`). Sessions can be loaded again where the kernel's store is
durable.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from acp import PROTOCOL_VERSION, RequestError, schema

from lyra._version import __version__
from lyra.agents.acp.editor_session import EditorSession
from lyra.agents.acp.refusals import invalid, read_prompt, refusal
from lyra.agents.session.shared import runtime_of
from lyra.core.limits import NAME_LENGTH_MAX
from lyra.errors import LyraError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lyra.agents.agent import Agent
    from lyra.core.rights.capability import Grant
    from lyra.kernel.kernel import Kernel


_PAGE: Final = 50  # sessions in one answer
_TITLE_CHARS_MAX: Final = 80
_log: Final = logging.getLogger("lyra.agents")


def _real(folder: str) -> str:
    """The folder without links; a request error where no folder can have that name."""
    if "\0" in folder or any("\ud800" <= char <= "\udfff" for char in folder):
        raise invalid("the name of a folder is text without NUL")
    return os.path.realpath(folder)


class EditorServers(Protocol):
    """The MCP servers of sessions. It is also the source of their tools, which the agent has."""

    async def open(self, pid: str, folder: str, given: list[Any] | None) -> None: ...

    async def close(self, pid: str) -> None: ...


class EditorAgent:
    """See the module. `title` is shown in place of the agent's name. An agent that works in one `folder` has sessions
    in it and below it alone; without one, in any. `grant` gives the rights of a session's process; without it, the
    process has the kernel's. `servers` are those that the editor hands over; without it they are left out."""

    def __init__(
        self,
        kernel: Kernel,
        agent: Agent[Any],
        *,
        title: str = "",
        folder: str = "",
        grant: Callable[[], Grant] | None = None,
        servers: EditorServers | None = None,
    ) -> None:
        self._kernel = kernel
        self._agent = agent
        self._title = title or agent.name
        self._folder = _real(folder) if folder else ""
        self._grant = grant
        self._servers = servers
        self._client: Any = None
        self._open_sessions: dict[str, EditorSession] = {}
        self._list = EditorSessions(kernel, agent.name)
        self._is_durable = kernel.journal is not None

    def on_connect(self, conn: Any) -> None:
        self._client = conn

    async def close(self) -> None:
        while self._open_sessions:
            session_id, session = self._open_sessions.popitem()
            await session.close()
            await self._close_servers(session_id)

    async def initialize(
        self,
        protocol_version: int,  # noqa: ARG002 - the answer names the newest that is spoken here
        client_capabilities: schema.ClientCapabilities | None = None,  # noqa: ARG002
        client_info: schema.Implementation | None = None,  # noqa: ARG002
        **_more: Any,
    ) -> schema.InitializeResponse:
        return schema.InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=schema.AgentCapabilities(
                load_session=self._is_durable,
                mcp_capabilities=schema.McpCapabilities(http=self._servers is not None, sse=False),
                prompt_capabilities=schema.PromptCapabilities(image=True, embedded_context=True),
                session_capabilities=schema.SessionCapabilities(
                    close=schema.SessionCloseCapabilities(),
                    list=schema.SessionListCapabilities() if self._is_durable else None,
                    resume=schema.SessionResumeCapabilities() if self._is_durable else None,
                ),
            ),
            agent_info=schema.Implementation(name=self._title, title=self._title, version=__version__),
            auth_methods=[],
        )

    async def authenticate(self, method_id: str, **_more: Any) -> schema.AuthenticateResponse | None:
        raise invalid(f"there is no way {method_id!r} to log in: keys come from lyra.toml")

    # ------------------------------------------------------------------ sessions

    async def new_session(
        self, cwd: str, mcp_servers: list[Any] | None = None, **_more: Any
    ) -> schema.NewSessionResponse:
        folder = self._working_folder(cwd)
        session_id = self._kernel.entropy.text(16)
        grant = None if self._grant is None else self._grant()
        try:
            for model in self._agent.models:
                runtime_of(self._kernel).models.find(model)  # raises where the provider is not known, or has no key
            await self._open_servers(session_id, folder, mcp_servers)
            process = await self._kernel.spawn(self._agent, pid=EditorSessions.pid(session_id), grant=grant)
            await self._list.add(session_id, folder)
        except LyraError as error:
            await self._close_servers(session_id)
            raise refusal(error) from None
        session = self._open_sessions[session_id] = EditorSession(self._client, session_id, folder, process)
        await session.begin()
        return schema.NewSessionResponse(session_id=session_id)

    async def load_session(
        self, cwd: str, session_id: str, mcp_servers: list[Any] | None = None, **_more: Any
    ) -> schema.LoadSessionResponse:
        """Open a session again and tell its conversation."""
        session = await self._again(session_id, cwd, mcp_servers)
        await session.replay()
        await session.begin()
        return schema.LoadSessionResponse()

    async def resume_session(
        self, session_id: str, cwd: str, mcp_servers: list[Any] | None = None, **_more: Any
    ) -> schema.ResumeSessionResponse:
        """Open a session again without telling its conversation."""
        session = await self._again(session_id, cwd, mcp_servers)
        await session.begin()
        return schema.ResumeSessionResponse()

    async def _again(self, session_id: str, cwd: str, mcp_servers: list[Any] | None) -> EditorSession:
        listed = self._list.find(session_id)
        if listed is None or not self._is_durable:
            raise invalid(f"there is no session {session_id[:80]!r}")
        self._working_folder(cwd)
        open_here = self._open_sessions.pop(session_id, None)
        if open_here is not None:
            await open_here.close()
        await self._open_servers(session_id, listed.folder, mcp_servers)
        process = self._kernel.agent(EditorSessions.pid(session_id))
        if self._grant is not None:
            process.regrant(self._grant())  # after a restart it has those that it began with
        session = self._open_sessions[session_id] = EditorSession(self._client, session_id, listed.folder, process)
        return session

    def _working_folder(self, cwd: str) -> str:
        """The folder that an editor names, without links; refused where the agent does not work there."""
        if not os.path.isabs(cwd):
            raise invalid("cwd is an absolute path")
        folder = _real(cwd)
        if self._folder and os.path.commonpath((folder, self._folder)) != self._folder:
            raise invalid(
                f"the agent {self._title} works in {self._folder}; start `lyra acp` in {folder} to work there"
            )
        return folder

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_more: Any
    ) -> schema.ListSessionsResponse:
        if cursor is not None and not cursor.isdecimal():
            raise invalid("the cursor is not one of an earlier answer")
        begin = int(cursor[:9]) if cursor else 0
        sessions = self._list.list(_real(cwd) if cwd else None)[begin:]
        more = str(begin + _PAGE) if len(sessions) > _PAGE else None
        return schema.ListSessionsResponse(sessions=[self._info(row) for row in sessions[:_PAGE]], next_cursor=more)

    async def close_session(self, session_id: str, **_more: Any) -> schema.CloseSessionResponse:
        session = self._session(session_id)
        del self._open_sessions[session_id]
        await session.cancel()
        await session.close()
        await self._close_servers(session_id)
        return schema.CloseSessionResponse()

    def _session(self, session_id: str) -> EditorSession:
        session = self._open_sessions.get(session_id)
        if session is None:
            raise invalid(f"the session {session_id[:80]!r} is not open")
        return session

    def _info(self, listed: ListedSession) -> schema.SessionInfo:
        from datetime import UTC, datetime

        from lyra.agents.acp.updates import shown_text

        process = self._kernel.agent(EditorSessions.pid(listed.id))
        first = next((row.text for row in process.messages if row.role == "user"), "")
        began = datetime.fromtimestamp(listed.began_at, UTC).isoformat()
        title = " ".join(shown_text(first).split())[:_TITLE_CHARS_MAX] or None
        return schema.SessionInfo(session_id=listed.id, cwd=listed.folder, title=title, updated_at=began)

    async def _open_servers(self, session_id: str, folder: str, given: list[Any] | None) -> None:
        if self._servers is not None:
            await self._servers.open(EditorSessions.pid(session_id), folder, given)
        elif given:
            _log.warning("%s MCP servers of the editor are not given to the agent", len(given))

    async def _close_servers(self, session_id: str) -> None:
        if self._servers is not None:
            await self._servers.close(EditorSessions.pid(session_id))

    # ------------------------------------------------------------------ turns

    async def prompt(self, session_id: str, prompt: list[Any], **_more: Any) -> schema.PromptResponse:
        return await self._session(session_id).prompt(read_prompt(prompt))

    async def cancel(self, session_id: str, **_more: Any) -> None:
        session = self._open_sessions.get(session_id)
        if session is not None:
            await session.cancel()

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        raise RequestError.method_not_found(method)

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        """Others' notifications are passed over."""


# ---------------------------------------------------------------- session list
# The sessions that editors have begun with one agent: which folder each is of, kept on a blackboard of the kernel.

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
