"""EditorAgent: the methods of the Agent Client Protocol that an editor calls, over sessions of any kind.

One process, many sessions. `EditorSessions` opens and lists them, an `EditorSession` is one that is open: these two are
what an agent of Lyra's (`lyra.agents.acp.agent_sessions`) and Sage (`lyra.sage.acp`) implement. A prompt's events are
told as they come; a question becomes a permission request; one prompt at a time, which others may join. Errors of Lyra
become errors of the protocol here. Nothing but the protocol is written to stdout.

`EditorQuestions` puts questions of a session's agents to the editor as permission requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from acp import PROTOCOL_VERSION, RequestError, helpers, schema

from lyra._version import __version__
from lyra.agents.acp.refusals import INVALID_REQUEST, EditorPrompt, invalid, read_prompt, refusal
from lyra.agents.acp.updates import TurnUpdates, call_title, diff_of, kind_of, message_updates, render_text
from lyra.agents.session.events import AnyLine, QuestionLine
from lyra.errors import LyraError

if TYPE_CHECKING:
    from lyra.core.message import Message


_DECISIONS: Final[dict[str, tuple[str, schema.PermissionOptionKind]]] = {
    "allow": ("Allow once", "allow_once"),
    "always": ("Always allow", "allow_always"),
    "deny": ("No", "reject_once"),
    "never": ("Never", "reject_always"),
}
_DOUBT: Final = {"retry": "Do it again", "skip": "It was done, go on", "fail": "Stop here"}
_WIDER: Final = "always: "  # before the rule that the answer becomes
_LATER: Final = "later"
_FREE: Final = {"yes": "Yes", "no": "No", _LATER: "I answer in my next prompt"}
_TEXTS: Final = {  # what the agent is told for an option that is no answer by itself
    _LATER: "The user answers in the next message: end your turn here, with the question.",
    "": "The user gave no answer.",
}
_OPTION: Final = re.compile(r"(?P<number>\d{1,2})\. (?P<words>.+)")
# The end of the message of a question about a call, which names the rule that an answer for good would add.
_RULE: Final = re.compile(r"\balways(?: or never)? for (?P<rule>.+?)(?: and never for .*)?\.\Z", re.DOTALL)
_NOT_YET: Final = ("change", "keep")  # words of a choice by which nothing is done
_TITLE_CHARS_MAX: Final = 500


class EditorQuestions:
    """`tell` sends an update about this session to the editor, `client` is its side of the connection."""

    def __init__(self, client: Any, session: EditorSession, tell: Callable[[Any], Awaitable[None]]) -> None:
        self._client = client
        self._session = session
        self._tell = tell
        self._choices = 0  # that were asked for
        self._requests: set[asyncio.Task[Any]] = set()  # those of prompts that wait for the editor's answer

    def withdraw(self) -> None:
        """Wait no longer for the editor's answers to what the prompt asks: it was cancelled. An editor should answer
        them with `cancelled`; one that does not must not hold the end of the prompt up."""
        for request in self._requests:
            request.cancel()

    async def ask(self, line: QuestionLine) -> bool:
        """Put the question of an `interrupt` line to the editor, and its answer to the session. False where the editor
        gave none, and the question is of a task in the background: it stays open."""
        is_call = "tool" in line
        names = _names_of(line)
        call = _about_call(line, self._session.folder) if is_call else _about_words(line)
        if not is_call:
            await self._tell(
                helpers.start_tool_call(call.tool_call_id, call.title or "", kind="think", status="pending")
            )
        chosen = await self._ask_choice(call, names, may_be_withdrawn=not line.get("background"))
        if not is_call:
            await self._tell(helpers.update_tool_call(call.tool_call_id, status="completed" if chosen else "failed"))
        if not chosen and line.get("background"):
            return False
        await self._answer(line, chosen)
        return True

    async def choose(self, title: str, names: dict[str, str]) -> str:
        """Have the user choose one of these words, by their names; empty where none was chosen."""
        self._choices += 1
        call_id = f"choice-{self._choices}"
        await self._tell(helpers.start_tool_call(call_id, title, kind="think", status="pending"))
        call = schema.ToolCallUpdate(tool_call_id=call_id, title=title, kind="think", status="pending")
        chosen = await self._ask_choice(call, names, may_be_withdrawn=True)
        await self._tell(helpers.update_tool_call(call_id, status="completed" if chosen else "failed"))
        return chosen

    async def _ask_choice(self, call: schema.ToolCallUpdate, names: dict[str, str], *, may_be_withdrawn: bool) -> str:
        """Return the word that the user chose; empty where the question was cancelled or withdrawn."""
        options = [
            schema.PermissionOption(option_id=word, name=name, kind=_kind_of(word)) for word, name in names.items()
        ]
        try:
            async with asyncio.TaskGroup() as group:
                request = group.create_task(self._request(call, options))
                if may_be_withdrawn:
                    self._requests.add(request)
                    request.add_done_callback(self._requests.discard)
        except* RequestError:
            pass
        if request.cancelled() or request.exception() is not None:
            return ""
        outcome = request.result().outcome
        chosen = getattr(outcome, "option_id", "") if outcome.outcome == "selected" else ""
        return chosen if chosen in names else ""

    async def _request(self, call: schema.ToolCallUpdate, options: list[schema.PermissionOption]) -> Any:
        return await self._client.request_permission(session_id=self._session.id, tool_call=call, options=options)

    async def _answer(self, line: QuestionLine, chosen: str) -> None:
        with contextlib.suppress(LyraError):  # the turn was cancelled meanwhile
            if line["kind"] == "clarification":
                await self._session.answer(line["id"], "", text=_TEXTS.get(chosen, chosen))
            elif chosen.startswith(_WIDER):
                await self._session.answer(line["id"], "always", text=chosen.removeprefix(_WIDER))
            else:
                await self._session.answer(line["id"], chosen or ("fail" if line["kind"] == "in_doubt" else "deny"))


def _kind_of(word: str) -> schema.PermissionOptionKind:
    if word in _NOT_YET:
        return "reject_once"
    return "allow_always" if word.startswith(_WIDER) else _DECISIONS.get(word, ("", "allow_once"))[1]


def _names_of(line: QuestionLine) -> dict[str, str]:
    """Return the answers that a question offers, by its kind; a free text cannot be typed into an option."""
    if line["kind"] == "in_doubt":
        return _DOUBT
    if line["kind"] == "confirmation" or "tool" in line:
        names = {word: name for word, (name, _) in _DECISIONS.items()}
        match = _RULE.search(str(line["message"])) if "always" not in line else None
        rule = match["rule"] if match is not None else line.get("always")
        if rule:
            wider = {f"{_WIDER}{text}": f"Always allow {render_text(text)}" for text in line.get("rules", ())[1:]}
            noes = {word: names[word] for word in ("deny", "never")}
            return {"allow": names["allow"], "always": f"Always allow {render_text(rule)}", **wider, **noes}
        return {word: name for word, name in names.items() if word in ("allow", "deny")}
    options = [_OPTION.fullmatch(row) for row in str(line["message"]).split("\n")]
    listed = {option["number"]: render_text(option["words"]) for option in options if option is not None}
    return {**listed, _LATER: _FREE[_LATER]} if listed else _FREE


def _about_call(line: QuestionLine, folder: str) -> schema.ToolCallUpdate:
    tool, arguments = line["tool"], line["arguments"]
    return schema.ToolCallUpdate(
        tool_call_id=line["call_id"],
        title=call_title(tool, arguments),
        kind=kind_of(tool),
        status="pending",
        content=diff_of(tool, arguments, folder) or None,
        raw_input=arguments,
    )


def _about_words(line: QuestionLine) -> schema.ToolCallUpdate:
    message = str(line["message"])
    return schema.ToolCallUpdate(
        tool_call_id=f"question-{line['id']}",
        title=render_text(line["question"])[:_TITLE_CHARS_MAX],
        kind="think",
        status="pending",
        content=[helpers.tool_content(helpers.text_block(render_text(message)))] if message else None,
    )


_PAGE: Final = 50  # sessions in one answer
_UNDER_WAY: Final = "a prompt is under way in this session"
INTERNAL_ERROR: Final = -32603


class SessionRequest(NamedTuple):
    """What an editor asks for when it opens a session. `client` is its side of the connection; `resume` is the id of a
    session that continues, or with `fork` is copied."""

    client: Any
    capabilities: schema.ClientCapabilities | None
    folder: str
    servers: list[Any] | None = None
    more_folders: list[str] | None = None
    resume: str | None = None
    fork: bool = False


class EditorSession(ABC):
    """One session that an editor has open. `client` is the editor's side of the connection."""

    def __init__(self, client: Any, session_id: str, folder: str) -> None:
        self._client = client
        self.id = session_id
        self.folder = folder
        self._running: asyncio.Future[schema.StopReason | None] | None = None  # how the prompt under way ends
        self._is_cancelled = False
        self._questions = EditorQuestions(client, self, self._tell)
        self._updates = TurnUpdates(self._tell, folder)

    # ------------------------------------------------------------------ what a kind of session does

    @property
    @abstractmethod
    def messages(self) -> Iterable[Message]:
        """The conversation so far."""

    @abstractmethod
    async def begin(self) -> None:
        """Tell the commands, and take up what an earlier program left."""

    @abstractmethod
    async def run_prompt(self, prompt: EditorPrompt) -> schema.PromptResponse: ...

    @abstractmethod
    async def cancel(self) -> None:
        """Stop what runs."""

    @abstractmethod
    async def answer(self, interrupt_id: str, decision: str = "", *, text: str = "") -> None:
        """Answer a question of the agent: a word for a call, a text for a question in words."""

    @abstractmethod
    async def close(self) -> None:
        """Let go of the session, which can be opened again."""

    @property
    def is_busy(self) -> bool:
        """Whether something runs that no prompt of this program began."""
        return False

    def modes(self) -> schema.SessionModeState | None:
        """Return the modes that can be switched to; None for a session that has none."""
        return None

    def config_options(self) -> list[Any] | None:
        """Return the settings that the editor shows; None for a session that has none."""
        return None

    async def set_mode(self, mode: str) -> None:  # noqa: ARG002 (a session without modes refuses all)
        raise RequestError.method_not_found("session/set_mode")

    async def set_option(self, name: str, value: str | bool) -> None:  # noqa: ARG002
        raise RequestError.method_not_found("session/set_config_option")

    # ------------------------------------------------------------------ what every session does

    @property
    def _is_prompting(self) -> bool:
        return self._running is not None

    async def prompt(self, prompt: EditorPrompt) -> schema.PromptResponse:
        if self._running is not None:
            return await self.join(prompt, self._running)
        if self.is_busy:
            raise invalid(_UNDER_WAY, INVALID_REQUEST)
        running = self._running = asyncio.get_running_loop().create_future()
        self._is_cancelled, reason = False, None
        try:
            response = await self.run_prompt(prompt)
            reason = response.stop_reason
            return response
        finally:
            self._running = None
            running.set_result(reason)

    async def join(self, prompt: EditorPrompt, running: asyncio.Future[Any]) -> schema.PromptResponse:  # noqa: ARG002
        """Take a prompt that comes while another one is `running`, which ends with its stop reason."""
        raise invalid(_UNDER_WAY, INVALID_REQUEST)

    async def replay(self) -> None:
        """Tell the conversation so far."""
        for update in message_updates(self.messages, self.folder):
            await self._tell(update)

    async def _tell(self, update: Any) -> None:
        await self._client.session_update(session_id=self.id, update=update)

    async def _say(self, text: str) -> None:
        """Tell a text as words of the agent."""
        await self._tell(helpers.update_agent_message_text(render_text(text)))

    async def _tell_line(self, line: AnyLine) -> None:
        """Tell a line of a turn; a question is put to the editor."""
        if line["type"] == "interrupt":
            await self._questions.ask(line)
        else:
            await self._updates.tell_line(line)


class EditorSessions(ABC):
    """The sessions of an agent, of one kind. `name` and `title` are what the editor knows the agent by; a durable one
    can load and list sessions of earlier programs."""

    name: str
    title: str
    is_durable: bool = True
    can_fork: bool = False
    takes_servers: bool = True

    def check_folder(self, folder: str) -> None:  # noqa: B027 (most work in any)
        """Refuse a folder, without links, that the agent does not work in."""

    @abstractmethod
    async def open(self, request: SessionRequest) -> EditorSession:
        """Open a session; one with the id to resume is not open here."""

    @abstractmethod
    def list(self, folder: str | None, first: int, count: int) -> list[schema.SessionInfo]:
        """Return sessions, the newest first; of one folder where it is named."""


class EditorAgent:
    """See the module."""

    def __init__(self, sessions: EditorSessions) -> None:
        self._sessions = sessions
        self._client: Any = None
        self._capabilities: schema.ClientCapabilities | None = None
        self._open_sessions: dict[str, EditorSession] = {}

    def on_connect(self, conn: Any) -> None:
        self._client = conn

    async def close(self) -> None:
        """End all sessions; they can be opened again."""
        while self._open_sessions:
            _, session = self._open_sessions.popitem()
            with contextlib.suppress(LyraError):
                await session.close()

    async def initialize(
        self,
        protocol_version: int,  # noqa: ARG002 - the answer names the newest that is spoken here
        client_capabilities: schema.ClientCapabilities | None = None,
        client_info: schema.Implementation | None = None,  # noqa: ARG002
        **_more: Any,
    ) -> schema.InitializeResponse:
        self._capabilities = client_capabilities
        sessions = self._sessions
        return schema.InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=schema.AgentCapabilities(
                load_session=sessions.is_durable,
                prompt_capabilities=schema.PromptCapabilities(image=True, embedded_context=True),
                mcp_capabilities=schema.McpCapabilities(http=sessions.takes_servers, sse=False),
                session_capabilities=schema.SessionCapabilities(
                    list=schema.SessionListCapabilities() if sessions.is_durable else None,
                    fork=schema.SessionForkCapabilities() if sessions.can_fork else None,
                    resume=schema.SessionResumeCapabilities() if sessions.is_durable else None,
                    close=schema.SessionCloseCapabilities(),
                ),
            ),
            agent_info=schema.Implementation(name=sessions.name, title=sessions.title, version=__version__),
            auth_methods=[],
        )

    async def authenticate(self, method_id: str, **_more: Any) -> schema.AuthenticateResponse | None:
        raise invalid(f"there is no way {method_id!r} to log in: keys come from lyra.toml")

    # ------------------------------------------------------------------ sessions

    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[Any] | None = None,
        **_more: Any,
    ) -> schema.NewSessionResponse:
        session = await self._open(cwd, mcp_servers, additional_directories)
        return schema.NewSessionResponse(session_id=session.id, **_settings(session))

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: list[Any] | None = None,
        additional_directories: list[str] | None = None,
        **_more: Any,
    ) -> schema.LoadSessionResponse:
        """Open a session again and tell its conversation."""
        session = await self._open(cwd, mcp_servers, additional_directories, session_id, replays=True)
        return schema.LoadSessionResponse(**_settings(session))

    async def resume_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[Any] | None = None,
        **_more: Any,
    ) -> schema.ResumeSessionResponse:
        """Open a session again without telling its conversation."""
        session = await self._open(cwd, mcp_servers, additional_directories, session_id)
        return schema.ResumeSessionResponse(**_settings(session))

    async def fork_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[Any] | None = None,
        **_more: Any,
    ) -> schema.ForkSessionResponse:
        if not self._sessions.can_fork:
            raise RequestError.method_not_found("session/fork")
        session = await self._open(cwd, mcp_servers, additional_directories, session_id, fork=True)
        return schema.ForkSessionResponse(session_id=session.id, **_settings(session))

    async def _open(
        self,
        cwd: str,
        servers: list[Any] | None,
        more_folders: list[str] | None,
        resume: str | None = None,
        *,
        fork: bool = False,
        replays: bool = False,
    ) -> EditorSession:
        if not os.path.isabs(cwd):
            raise invalid("cwd is an absolute path")
        self._sessions.check_folder(real_folder(cwd))
        if resume is not None and not fork:
            await self._close(resume)  # its store has one owner
        request = SessionRequest(self._client, self._capabilities, cwd, servers, more_folders, resume, fork)
        try:
            session = await self._sessions.open(request)
        except LyraError as error:
            raise refusal(error) from None
        await self._close(session.id)
        self._open_sessions[session.id] = session
        if replays:
            await session.replay()
        await session.begin()
        return session

    async def _close(self, session_id: str) -> None:
        open_here = self._open_sessions.pop(session_id, None)
        if open_here is not None:
            await open_here.close()

    def _session(self, session_id: str) -> EditorSession:
        session = self._open_sessions.get(session_id)
        if session is None:
            raise invalid(f"the session {session_id[:80]!r} is not open")
        return session

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_more: Any
    ) -> schema.ListSessionsResponse:
        if cursor is not None and not cursor.isdecimal():
            raise invalid("the cursor is not one of an earlier answer")
        begin = int(cursor[:9]) if cursor else 0
        rows = self._sessions.list(real_folder(cwd) if cwd else None, begin, _PAGE + 1)
        more = str(begin + _PAGE) if len(rows) > _PAGE else None
        return schema.ListSessionsResponse(sessions=rows[:_PAGE], next_cursor=more)

    async def close_session(self, session_id: str, **_more: Any) -> schema.CloseSessionResponse:
        await self._session(session_id).cancel()
        await self._close(session_id)
        return schema.CloseSessionResponse()

    # ------------------------------------------------------------------ turns and settings

    async def prompt(self, session_id: str, prompt: list[Any], **_more: Any) -> schema.PromptResponse:
        return await self._session(session_id).prompt(read_prompt(prompt))

    async def cancel(self, session_id: str, **_more: Any) -> None:
        session = self._open_sessions.get(session_id)
        if session is not None:
            await session.cancel()

    async def set_session_mode(self, session_id: str, mode_id: str, **_more: Any) -> schema.SetSessionModeResponse:
        session = self._session(session_id)
        modes = session.modes()
        if modes is not None and mode_id not in {mode.id for mode in modes.available_modes}:
            raise invalid(f"there is no mode {mode_id!r} here")
        try:
            await session.set_mode(mode_id)
        except LyraError as error:
            raise refusal(error) from None
        return schema.SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_more: Any
    ) -> schema.SetSessionConfigOptionResponse:
        session = self._session(session_id)
        try:
            await session.set_option(config_id, value)
        except LyraError as error:
            raise refusal(error) from None
        return schema.SetSessionConfigOptionResponse(config_options=session.config_options() or [])

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        raise RequestError.method_not_found(method)

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        """Others' notifications are passed over."""


def _settings(session: EditorSession) -> dict[str, Any]:
    return {"modes": session.modes(), "config_options": session.config_options()}


def real_folder(folder: str) -> str:
    """Return the folder without links; a request error where no folder can have that name."""
    if "\0" in folder or any("\ud800" <= char <= "\udfff" for char in folder):
        raise invalid("the name of a folder is text without NUL")
    return os.path.realpath(folder)


def session_info(session_id: str, folder: str, title: str | None, changed_at: float) -> schema.SessionInfo:
    from datetime import UTC, datetime

    changed = datetime.fromtimestamp(changed_at, UTC).isoformat()
    return schema.SessionInfo(session_id=session_id, cwd=folder, title=title, updated_at=changed)
