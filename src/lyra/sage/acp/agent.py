"""SageAcpAgent: the methods of the Agent Client Protocol that an editor calls. One process, many sessions.

Sessions are those of `sage`: an editor can load one that began in a terminal. Each has its own folder, configuration
and trust. Commands run in the sandbox, never in the editor's terminals: those are outside of it, and what a command
prints is shown with its call instead. Nothing but the protocol is written to stdout.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from acp import PROTOCOL_VERSION, RequestError, schema

from lyra._version import __version__
from lyra.agents.acp.refusals import invalid, read_prompt, refusal
from lyra.agents.headless.options import HeadlessOptions
from lyra.agents.headless.setup import setup_of
from lyra.agents.session.shared import runtime_of
from lyra.config import Config
from lyra.errors import LyraError
from lyra.sage.acp.open_session import EditorFiles, OpenSession, config_options, no_model
from lyra.sage.acp.servers import servers_for
from lyra.sage.agent.live import LiveSession, SessionStart
from lyra.sage.session.index import SessionIndex
from lyra.sage.session.record import SessionRecord
from lyra.tools.permissions.decision import MODES

_PAGE: Final = 50  # sessions in one answer


class SageAcpAgent:
    """`options` and `settings` (`KEY=VALUE`) are those of the command line; each session has them in its own folder."""

    def __init__(self, options: HeadlessOptions, *, settings: Sequence[str] = ()) -> None:
        self._options = options
        self._settings = settings
        self._client: Any = None
        self._capabilities: schema.ClientCapabilities | None = None
        self._sessions: dict[str, OpenSession] = {}

    def on_connect(self, conn: Any) -> None:
        self._client = conn

    async def close(self) -> None:
        """End all sessions; they can be opened again."""
        while self._sessions:
            _, session = self._sessions.popitem()
            with contextlib.suppress(LyraError):
                await session.close()

    # ------------------------------------------------------------------ beginning

    async def initialize(
        self,
        protocol_version: int,  # noqa: ARG002 - the answer names the newest that is spoken here
        client_capabilities: schema.ClientCapabilities | None = None,
        client_info: schema.Implementation | None = None,  # noqa: ARG002
        **_more: Any,
    ) -> schema.InitializeResponse:
        self._capabilities = client_capabilities
        return schema.InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=schema.AgentCapabilities(
                load_session=True,
                prompt_capabilities=schema.PromptCapabilities(image=True, embedded_context=True),
                mcp_capabilities=schema.McpCapabilities(http=True, sse=False),
                session_capabilities=schema.SessionCapabilities(
                    list=schema.SessionListCapabilities(),
                    fork=schema.SessionForkCapabilities(),
                    resume=schema.SessionResumeCapabilities(),
                    close=schema.SessionCloseCapabilities(),
                ),
            ),
            agent_info=schema.Implementation(name="sage", title="Sage", version=__version__),
            auth_methods=[],
        )

    async def authenticate(self, method_id: str, **_more: Any) -> schema.AuthenticateResponse | None:
        raise invalid(f"there is no way {method_id!r} to log in: keys come from lyra.toml")

    async def _open(
        self,
        cwd: str,
        start: SessionStart,
        mcp_servers: list[Any] | None,
        additional_directories: list[str] | None,
    ) -> OpenSession:
        if not os.path.isabs(cwd):
            raise invalid("cwd is an absolute path")
        stack = contextlib.AsyncExitStack()
        offered = self._capabilities.fs if self._capabilities is not None else None
        files = EditorFiles(
            self._client,
            cwd,
            reads=bool(offered and offered.read_text_file),
            writes=bool(offered and offered.write_text_file),
        )
        try:
            also = (*self._options.also, *(additional_directories or ()))
            options = msgspec.structs.replace(self._options, folder=cwd, also=also, attended=True, wrap=files.wrap)
            config = Config.load(cwd, flags=self._settings, trust=options.trust, lenient=True)
            if not (options.model or config.agent.model) or start.resume is not None:
                options = msgspec.structs.replace(options, model=self._model_for(config, start.resume))
            servers = servers_for(config, cwd, mcp_servers, setup_of(options).permissions.denied)
            if servers is not None:
                await stack.enter_async_context(servers)
                states = [state.to_data() for state in await servers.start()]
                options = msgspec.structs.replace(options, tools=(servers,), facts={"mcp_servers": states})
            live = await stack.enter_async_context(LiveSession(options, config, start=start))
            if start.resume is None:
                runtime_of(live.kernel).models.find(live.model)  # raises where the provider is not known, or has no key
        except LyraError as error:
            await stack.aclose()
            raise refusal(error) from None
        except BaseException:
            await stack.aclose()
            raise
        before = self._sessions.pop(live.id, None)
        if before is not None:
            await before.close()
        session = self._sessions[live.id] = OpenSession(self._client, live, stack, files, modes=self._mode_names)
        return session

    def _model_for(self, config: Config, resumed: str | None) -> str:
        """Return the model of the command line, else the one that the session had, else the configured one."""
        model = self._options.model
        if not model and resumed:
            with SessionIndex() as index:
                model = index.get(resumed).model
        if not (model or config.agent.model):
            raise no_model()
        return model

    def _session(self, session_id: str) -> OpenSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise invalid(f"the session {session_id!r} is not open")
        return session

    async def _closed_first(self, session_id: str) -> None:
        """Close a session that is open here before it is opened anew: its store has one owner."""
        open_here = self._sessions.pop(session_id, None)
        if open_here is not None:
            await open_here.close()

    # ------------------------------------------------------------------ sessions

    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[Any] | None = None,
        **_more: Any,
    ) -> schema.NewSessionResponse:
        session = await self._open(cwd, SessionStart(), mcp_servers, additional_directories)
        await session.begin()
        return schema.NewSessionResponse(
            session_id=session.live.id, modes=self._modes(session), config_options=config_options(session.live)
        )

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: list[Any] | None = None,
        additional_directories: list[str] | None = None,
        **_more: Any,
    ) -> schema.LoadSessionResponse:
        """Open a session again and tell its conversation."""
        await self._closed_first(session_id)
        session = await self._open(cwd, SessionStart(resume=session_id), mcp_servers, additional_directories)
        await session.replay()
        await session.begin()
        return schema.LoadSessionResponse(modes=self._modes(session), config_options=config_options(session.live))

    async def resume_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[Any] | None = None,
        **_more: Any,
    ) -> schema.ResumeSessionResponse:
        """Open a session again without telling its conversation."""
        await self._closed_first(session_id)
        session = await self._open(cwd, SessionStart(resume=session_id), mcp_servers, additional_directories)
        await session.begin()
        return schema.ResumeSessionResponse(modes=self._modes(session), config_options=config_options(session.live))

    async def fork_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[Any] | None = None,
        **_more: Any,
    ) -> schema.ForkSessionResponse:
        start = SessionStart(resume=session_id, fork=True)
        session = await self._open(cwd, start, mcp_servers, additional_directories)
        await session.begin()
        return schema.ForkSessionResponse(
            session_id=session.live.id, modes=self._modes(session), config_options=config_options(session.live)
        )

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_more: Any
    ) -> schema.ListSessionsResponse:
        if cursor is not None and not cursor.isdecimal():
            raise invalid("the cursor is not one of an earlier answer")
        begin = int(cursor[:9]) if cursor else 0
        with SessionIndex() as index:
            records = index.list(_real(cwd) if cwd else None, begin + _PAGE + 1)[begin:]
        more = str(begin + _PAGE) if len(records) > _PAGE else None
        return schema.ListSessionsResponse(sessions=[_info(record) for record in records[:_PAGE]], next_cursor=more)

    async def close_session(self, session_id: str, **_more: Any) -> schema.CloseSessionResponse:
        self._session(session_id)
        await self._closed_first(session_id)
        return schema.CloseSessionResponse()

    # ------------------------------------------------------------------ turns

    async def prompt(self, session_id: str, prompt: list[Any], **_more: Any) -> schema.PromptResponse:
        return await self._session(session_id).prompt(read_prompt(prompt))

    async def cancel(self, session_id: str, **_more: Any) -> None:
        session = self._sessions.get(session_id)
        if session is not None:
            await session.cancel()

    # ------------------------------------------------------------------ settings

    def _mode_names(self) -> list[str]:
        return [mode for mode in MODES if mode != "bypass" or self._options.mode == "bypass"]

    def _modes(self, session: OpenSession) -> schema.SessionModeState:
        return schema.SessionModeState(
            current_mode_id=session.live.mode,
            available_modes=[
                schema.SessionMode(id=mode, name=mode, description=MODES[mode]) for mode in self._mode_names()
            ],
        )

    async def set_session_mode(self, session_id: str, mode_id: str, **_more: Any) -> schema.SetSessionModeResponse:
        session = self._session(session_id)
        if mode_id not in self._mode_names():
            raise invalid(f"there is no mode {mode_id!r} here")
        await session.set_mode(mode_id)
        return schema.SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_more: Any
    ) -> schema.SetSessionConfigOptionResponse:
        session = self._session(session_id)
        if config_id != "model" or not isinstance(value, str):
            raise invalid(f"there is no setting {config_id!r}")
        try:
            runtime_of(session.live.kernel).models.find(value)  # raises where the provider is not known, or has no key
            await session.live.set_model(value)
        except LyraError as error:
            raise refusal(error) from None
        await session.tell_settings()
        return schema.SetSessionConfigOptionResponse(config_options=config_options(session.live))

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        raise RequestError.method_not_found(method)

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        """Others' notifications are passed over."""


def _info(record: SessionRecord) -> schema.SessionInfo:
    from datetime import UTC, datetime

    changed = datetime.fromtimestamp(record.updated_at, UTC).isoformat()
    return schema.SessionInfo(session_id=record.id, cwd=record.folder, title=record.label, updated_at=changed)


def _real(folder: str) -> str:
    return os.path.realpath(folder)
