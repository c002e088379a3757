"""Sage in editors, by the Agent Client Protocol: sessions, and an open one with its LiveSession, servers and prompt.

Sessions are those of `sage`: an editor can load one that began in a terminal. Each has its own folder, configuration
and trust. Commands run in the sandbox, never in the editor's terminals: those are outside of it, and what a command
prints is shown with its call instead. A slash command runs and its result is told as text; what it changes of modes,
models, titles and commands is told as well. Notices are told as they come, between prompts too. Also the slash commands
that an editor is offered, the model as a setting that it shows, and the tool layer by which the agent works on what the
user has typed and not saved.

The MCP servers of a session are those of the configuration, and those that the editor hands over.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from acp import helpers, schema

from lyra.agents.acp.editor_agent import INTERNAL_ERROR, EditorSession, EditorSessions, SessionRequest, session_info
from lyra.agents.acp.refusals import STOP_REASONS, EditorPrompt, invalid, refusal
from lyra.agents.acp.updates import render_text
from lyra.agents.headless.options import HeadlessOptions
from lyra.agents.headless.setup import setup_of
from lyra.agents.session.events import AnyLine, NoticeLine, ResultLine
from lyra.agents.session.shared import runtime_of
from lyra.config import Config
from lyra.config.servers import check_server_name
from lyra.config.settings import find_model
from lyra.core.message import Message
from lyra.core.secrets.secret import Secret
from lyra.core.tool import Tool, ToolCall
from lyra.errors import AgentFailed, ConfigError, LyraError
from lyra.kernel.base.acting import acting
from lyra.mcp.settings import settings_of
from lyra.sage.agent.attachments import Attached, attach
from lyra.sage.agent.live import LiveSession, SessionStart
from lyra.sage.agent.session_notices import SessionNotices
from lyra.sage.commands.registry import COMMANDS, command_list, only_reads, run_command
from lyra.sage.commands.result import SlashResult, as_markdown
from lyra.sage.commands.settings import EFFORTS
from lyra.sage.extensions.plugins.store import plugin_servers
from lyra.sage.session.index import SessionIndex
from lyra.tools.permissions.decision import MODES
from lyra.tools.source import ToolSource
from lyra.tools.wrapped import Next, add_layers

if TYPE_CHECKING:
    from lyra.mcp import McpServers
    from lyra.mcp.settings import ServerSettings


def servers_for(config: Config, folder: str, given: Iterable[Any] | None, denied: Any) -> McpServers | None:
    """Return the servers, not started yet; None where there are none."""
    handed = convert_servers(given)
    added = plugin_servers(folder)
    if not handed and not added and not config.mcp_servers and not os.path.exists(os.path.join(folder, ".mcp.json")):
        return None
    from lyra.mcp import McpServers
    from lyra.mcp.servers import load_settings

    named = {settings.name: settings for settings in handed}
    try:
        known = {settings.name: settings for settings in (*added, *load_settings(config, folder))}
    except ConfigError as error:
        raise refusal(error) from None
    return McpServers(list({**known, **named}.values()), workspace=folder, denied=denied)


def convert_servers(given: Iterable[Any] | None) -> list[ServerSettings]:
    """Return the settings of the servers that an editor hands over; a request error where one cannot be used."""
    entries = [_entry(server) for server in given or ()]
    if not entries:
        return []
    try:
        for name, _ in entries:
            check_server_name(name)
        return [settings_of(name, entry, origin="user", place="the editor") for name, entry in entries]
    except ConfigError as error:
        raise refusal(error) from None


def _entry(server: Any) -> tuple[str, dict[str, Any]]:
    """Return the name of a server and its settings as in a file. Values are taken as they are: `env:NAME` is no
    reference."""
    if hasattr(server, "command"):
        if not server.command or any("\0" in text for text in (server.command, *(server.args or ()))):
            raise invalid(f"the MCP server {server.name[:80]!r} has no command that can be started")
        env = {variable.name: Secret(variable.value) for variable in server.env or ()}
        entry = {"command": _real_folder(server.command), "args": list(server.args or ()), "env": env}
        readable = _installation(server.command)
        return server.name, {**entry, "readable": readable} if readable else entry
    if hasattr(server, "url"):
        if getattr(server, "type", "http") == "sse":
            raise invalid(
                f"the MCP server {server.name[:80]!r} is one of SSE, which is not spoken: use streamable HTTP"
            )
        if not server.url.startswith(("https://", "http://")):
            raise invalid(f"the url of the MCP server {server.name[:80]!r} is no address of HTTP")
        headers = {header.name: Secret(header.value) for header in server.headers or ()}
        return server.name, {"url": server.url, "headers": headers, "transport": "http"}
    raise invalid("this kind of MCP server is not supported")


def _real_folder(command: str) -> str:
    """Return the path of a program with the links of its folders followed, as the sandbox has them; a link that is the
    program itself stays, because a virtual environment is known by it."""
    folder, name = os.path.split(command)
    return os.path.join(os.path.realpath(folder), name) if os.path.isabs(command) else command


def _installation(command: str) -> list[str]:
    """Return the folders that an interpreter outside the system's own folders lies in: its server in the sandbox sees
    them. `/opt/x/bin/python` and what it is a link to, each without `bin/python`; never the home folder itself."""
    whole = _real_folder(shutil.which(command) or "")
    prefixes = {os.path.dirname(os.path.dirname(path)) for path in (whole, os.path.realpath(whole)) if whole}
    home = os.path.realpath(os.path.expanduser("~"))
    return sorted(
        prefix
        for prefix in prefixes
        if prefix not in ("", "/", home) and not prefix.startswith("/usr") and not f"{home}/".startswith(f"{prefix}/")
    )


class SessionServers:
    """MCP servers that an editor hands over with a session of any agent, as tools of that session alone. `denied` gives
    the paths of a folder that its permission files deny: the servers do not see them."""

    __slots__ = ("_by_pid", "_denied")

    def __init__(self, denied: Callable[[str], Any]) -> None:
        self._denied = denied
        self._by_pid: dict[str, McpServers] = {}

    async def open(self, pid: str, folder: str, given: Iterable[Any] | None) -> None:
        """Start the servers of a session, each for as long as its `start_s` says; those that it had are closed."""
        settings = convert_servers(given)
        await self.close(pid)
        if not settings:
            return
        from lyra.mcp import McpServers

        servers = self._by_pid[pid] = McpServers(settings, workspace=folder, denied=self._denied(folder))
        await servers.start()

    async def close(self, pid: str) -> None:
        servers = self._by_pid.pop(pid, None)
        if servers is not None:
            await servers.close()

    def __lyra_tools__(self) -> tuple[Tool, ...]:
        process = acting()
        if process is None:
            return ()
        servers = self._by_pid.get(process.pid) or self._by_pid.get(process.known_as)
        return () if servers is None else servers.__lyra_tools__()


_NO_MODEL: Final = (
    'add "--model", "PROVIDER/MODEL" to the arguments of `sage acp` in the settings of the editor, or write '
    'model = "PROVIDER/MODEL" under [agent] in your lyra.toml; `sage doctor` shows which providers have a key'
)


_PLAN: Final = (
    "Carry out this plan?",
    {"go": "Approve and go", "change": "Change it: my next prompt says how", "keep": "Keep planning"},
)


class SageSessions(EditorSessions):
    """`options` and `settings` (`KEY=VALUE`) are those of the command line; each session has them in its own folder."""

    name = "sage"
    title = "Sage"
    can_fork = True

    def __init__(self, options: HeadlessOptions, *, settings: Sequence[str] = ()) -> None:
        self._options = options
        self._settings = settings
        self._modes = [mode for mode in MODES if mode != "bypass" or options.mode == "bypass"]

    async def open(self, request: SessionRequest) -> EditorSession:
        stack = contextlib.AsyncExitStack()
        offered = request.capabilities.fs if request.capabilities is not None else None
        files = EditorFiles(
            request.client,
            request.folder,
            reads=bool(offered and offered.read_text_file),
            writes=bool(offered and offered.write_text_file),
        )
        try:
            live = await self._open_live(request, stack, files)
        except BaseException:
            await stack.aclose()
            raise
        return SageSession(request.client, live, stack, files, self._modes)

    async def _open_live(
        self, request: SessionRequest, stack: contextlib.AsyncExitStack, files: EditorFiles
    ) -> LiveSession:
        also = (*self._options.also, *(request.more_folders or ()))
        config = Config.load(request.folder, flags=self._settings, trust=self._options.trust, lenient=True)
        model = self._model_for(config, request.resume)
        options = msgspec.structs.replace(
            self._options, model=model, folder=request.folder, also=also, attended=True, wrap=files.wrap
        )
        servers = servers_for(config, request.folder, request.servers, setup_of(options).permissions.denied)
        if servers is not None:
            await stack.enter_async_context(servers)
            states = [state.to_data() for state in servers.begin()]
            options = msgspec.structs.replace(options, tools=(servers,), facts={"mcp_servers": states})
        start = SessionStart(resume=request.resume, fork=request.fork)
        live = await stack.enter_async_context(LiveSession(options, config, start=start))
        if request.resume is None:
            runtime_of(live.kernel).models.find(live.model)  # raises where the provider is not known, or has no key
        return live

    def _model_for(self, config: Config, resumed: str | None) -> str:
        """Return the model of the command line, else the one that the session had, else the configured one."""
        model = self._options.model
        if not model and resumed:
            with SessionIndex() as index:
                model = index.get(resumed).model
        if not (model := model or find_model(config)):
            raise ConfigError("no model is named", hint=_NO_MODEL, key="model")
        return model

    def list(self, folder: str | None, first: int, count: int) -> list[schema.SessionInfo]:
        with SessionIndex() as index:
            rows = index.list(folder, first + count)[first:]
        return [session_info(row.id, row.folder, row.label, row.updated_at) for row in rows]


class SageSession(EditorSession):
    """`modes` are those that can be switched to."""

    def __init__(
        self,
        client: Any,
        live: LiveSession,
        stack: contextlib.AsyncExitStack,
        files: EditorFiles,
        modes: Sequence[str],
    ) -> None:
        super().__init__(client, live.id, live.folder)
        self.live = live
        self._stack = stack
        self._modes = modes
        self._told = self._settings_now()
        self._taken: set[str] = set()  # keys of messages that the model has got in the middle of a turn
        live.steering.listeners.append(lambda key, _text: self._taken.add(key))
        self._asking: set[str] = set()  # tasks in the background whose question the editor has
        self._notices = SessionNotices(live, self._on_notice)
        files.session_id = live.id

    @property
    def messages(self) -> Iterable[Message]:
        return self.live.messages

    async def close(self) -> None:
        if self.live.is_busy:
            await self.live.interrupt()
        await self._stack.aclose()

    async def begin(self) -> None:
        """Tell the commands, and ask what tasks of an earlier run wait for."""
        await self._tell_commands()
        self._notices.look()
        self.ask_tasks()

    async def _tell_commands(self) -> None:
        await self._tell(helpers.update_available_commands(available_commands(self.live)))

    async def replay(self) -> None:
        """Tell the conversation so far, and what the last run left in doubt."""
        await super().replay()
        for doubt in self.live.doubts:
            await self._say(f"In doubt: {doubt}")

    async def answer(self, interrupt_id: str, decision: str = "", *, text: str = "") -> None:
        await self.live.answer(interrupt_id, decision, text=text)

    # ------------------------------------------------------------------ prompts

    async def run_prompt(self, prompt: EditorPrompt) -> schema.PromptResponse:
        if self._notices.look():
            await self._tell_commands()
        if is_command(prompt.text):
            slash = await self._command(prompt.text)
            if slash is None or slash.prompt is None:
                return schema.PromptResponse(stop_reason="cancelled" if self._is_cancelled else "end_turn")
            content, given = prompt.with_text(slash.prompt), slash.send_with
        else:
            attached = await self._attach(prompt)
            content, given = prompt.content, attached.send_with
        beside = "\n\n".join(filter(None, (given.get("beside"), prompt.beside)))
        return await self._run_turn(content, {**given, "beside": beside})

    async def _attach(self, prompt: EditorPrompt) -> Attached:
        attached = await attach(self.live, prompt.text)
        for note in attached.notes:
            await self._tell_notice({"type": "notice", "text": note, "level": "info"})
        return attached

    async def join(self, prompt: EditorPrompt, running: asyncio.Future[Any]) -> schema.PromptResponse:
        """Have the model read a message before it is asked next; the prompt ends with that turn. One that comes too
        late for that, or has an image, is the next turn. A command that only reads is answered at once."""
        if is_command(prompt.text):
            if not only_reads(prompt.text):
                return await super().join(prompt, running)
            await self._command(prompt.text)
            return schema.PromptResponse(stop_reason="end_turn")
        key, attached = "", await self._attach(prompt)
        if not prompt.images and not attached.images and self.live.is_busy:
            beside = "\n\n".join(filter(None, (attached.beside, prompt.beside)))
            key = self.live.steer(prompt.text, beside=beside, own=attached.own)
        reason = await asyncio.shield(running)
        if key not in self._taken and reason != "cancelled":
            return await self.prompt(prompt)
        self._taken.discard(key)
        return schema.PromptResponse(stop_reason=reason or "end_turn")

    async def _run_turn(self, content: Any, more: Mapping[str, Any]) -> schema.PromptResponse:
        """Run a turn, and the one that carries out its plan where the user approves of that."""
        result: ResultLine | None = None
        try:
            async with contextlib.aclosing(self.live.send(content, **more)) as lines:
                async for line in lines:
                    await self._tell_line(line)
                    if line["type"] == "result":
                        result = line
        except LyraError as error:
            raise refusal(error, INTERNAL_ERROR) from None
        await self._tell_figures()
        assert result is not None, "a turn ends with its result"
        if result["status"] == "success" and self.live.mode == "plan" and not self._is_cancelled:
            slash = await self._command("/plan go") if await self._questions.choose(*_PLAN) == "go" else None
            if slash is not None and slash.prompt is not None:
                return await self._run_turn(slash.prompt, {})
        status = "interrupted" if self._is_cancelled else result["status"]
        reason = STOP_REASONS.get(status)
        if reason is None:
            failure = self.live.headless.failure or AgentFailed(f"the turn ended with {status}", status=status)
            raise refusal(failure, INTERNAL_ERROR)
        return schema.PromptResponse(stop_reason=reason)

    async def cancel(self) -> None:
        self._is_cancelled = self._is_prompting
        await self.live.interrupt()
        self._questions.withdraw()

    async def _command(self, text: str) -> SlashResult | None:
        """Run a slash command and tell what it shows; None where it was cancelled."""
        mode = self.live.mode
        try:
            result = await run_command(self.live, text, elsewhere=ELSEWHERE)
            if self.live.mode not in (mode, *self._modes):
                await self.live.set_mode(mode)
                raise ConfigError(f"the mode is for sessions of `sage acp` that were started with it, and stays {mode}")
        except LyraError as error:
            if self._is_cancelled:
                return None
            raise refusal(error) from None
        if shown := as_markdown(result.blocks):
            await self._say(shown)
        await self._tell_figures()
        return result

    async def _tell_line(self, line: AnyLine) -> None:
        if line["type"] == "notice":
            await self._tell_notice(line)
        else:
            await super()._tell_line(line)

    async def _tell_figures(self) -> None:
        context = self.live.context()
        if context.window is not None:
            cost = self.live.process.metrics.cost_usd
            priced = None if cost is None else schema.Cost(amount=cost, currency="USD")
            used = schema.UsageUpdate(
                session_update="usage_update", used=context.tokens.total, size=context.window, cost=priced
            )
            await self._tell(used)
        await self.tell_settings()

    async def tell_settings(self) -> None:
        """Tell what has another value than the editor knows: title, mode, model, effort."""
        now = self._settings_now()
        changed = {name for name, value in now.items() if value != self._told[name]}
        self._told = now
        if "title" in changed:
            await self._tell(schema.SessionInfoUpdate(session_update="session_info_update", title=now["title"]))
        if "mode" in changed:
            await self._tell(helpers.update_current_mode(now["mode"]))
        if changed - {"title"}:
            options = self.config_options()
            await self._tell(schema.ConfigOptionUpdate(session_update="config_option_update", config_options=options))
        if "model" in changed:
            self.ask_tasks()  # the session was opened anew, which withdrew what the editor was asked

    def _settings_now(self) -> dict[str, Any]:
        live = self.live
        return {"title": live.record.label, "mode": live.mode, "model": live.model, "effort": live.effort}

    # ------------------------------------------------------------------ notices and tasks

    def _on_notice(self, notice: NoticeLine) -> None:
        self._start(self._tell_notice(notice), "lyra-acp-notice")
        if notice.get("source") == "task":
            self.ask_tasks()

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self.live.kernel.tasks.start(work, name=name)

    async def _tell_notice(self, notice: NoticeLine) -> None:
        """Tell words of the program: its own quotation, so that it is not read as a part of the answer."""
        if notice["level"] == "status":  # what a hook does at this moment; it is not kept
            return
        update = helpers.update_agent_message_text(f"\n\n> Notice: {' '.join(render_text(notice['text']).split())}\n\n")
        update.field_meta = {"lyra/notice": notice["level"]}
        await self._tell(update)

    def ask_tasks(self) -> None:
        """Ask the editor what tasks in the background wait for; a task is asked for once at a time."""
        for task_id in self._notices.asking():
            if task_id not in self._asking:
                self._asking.add(task_id)
                self._start(self._ask_task(task_id), "lyra-acp-question")

    async def _ask_task(self, task_id: str) -> None:
        try:
            while (line := self._notices.question_of(task_id)) is not None:
                if not await self._questions.ask({**line, "background": True}):
                    words = f"{task_id} still waits for an answer: /tasks answer {task_id} allow (or deny, or a text)"
                    await self._tell_notice({"type": "notice", "text": words, "level": "warning"})
                    return
        finally:
            self._asking.discard(task_id)

    # ------------------------------------------------------------------ settings

    def modes(self) -> schema.SessionModeState:
        modes = [schema.SessionMode(id=mode, name=mode, description=MODES[mode]) for mode in self._modes]
        return schema.SessionModeState(current_mode_id=self.live.mode, available_modes=modes)

    async def set_mode(self, mode: str) -> None:
        await self.live.set_mode(mode)
        await self.tell_settings()

    def config_options(self) -> list[Any]:
        """Return the settings that the editor shows. The protocol has modes among them, too. The models are the one in
        use and the configured one."""
        known = dict.fromkeys(name for name in (self.live.model, self.live.config.agent.model) if name)
        return [
            _select("model", "Model", "model", self.live.model, dict.fromkeys(known, "")),
            _select("effort", "Thinking", "thought_level", self.live.effort or _USUAL, _EFFORTS),
            _select("mode", "Mode", "mode", self.live.mode, {mode: MODES[mode] for mode in self._modes}),
        ]

    async def set_option(self, name: str, value: str | bool) -> None:
        option = next((option for option in self.config_options() if option.id == name), None)
        if option is None or not isinstance(value, str):
            raise invalid(f"there is no setting {name!r}")
        if name == "model":
            runtime_of(self.live.kernel).models.find(value)  # raises where the provider is not known, or has no key
            await self.live.set_model(value)
        elif value not in {choice.value for choice in option.options}:
            raise invalid(f"there is no {name} {value!r}")
        elif name == "mode":
            await self.live.set_mode(value)
        else:
            self.live.set_effort("" if value == _USUAL else value)
        await self.tell_settings()


_USUAL: Final = "usual"
_EFFORTS: Final = {_USUAL: "as the vendor of the model has it", **EFFORTS}


def _select(name: str, title: str, category: Any, value: str, choices: Mapping[str, str]) -> Any:
    """Return a setting with its choices and what each means."""
    options = [
        schema.SessionConfigSelectOption(value=choice, name=choice, description=about or None)
        for choice, about in choices.items()
    ]
    return schema.SessionConfigOptionSelect(
        type="select", id=name, name=title, category=category, current_value=value, options=options
    )


_LIST: Final = "the editor's list of sessions (session/list)"
ELSEWHERE: Final[Mapping[str, str]] = {
    "resume": f"/resume is for terminals. Here another session is opened from {_LIST}, which loads it (session/load).",
    "fork": f"/fork is for terminals. Here the editor begins a copy (session/fork), or `sage -r ID --fork` does in a "
    f"terminal; it is then in {_LIST}.",
    "exit": "/exit is for terminals. Here the editor closes the session; it can be opened again.",
    "expand": "/expand is for terminals. Here the editor shows and folds the output of tool calls.",
    "theme": "/theme is for terminals. Here the colours are those of the editor.",
    "output": "/output is for terminals. Here the editor decides how much of tool calls is shown.",
}


def available_commands(live: LiveSession) -> list[schema.AvailableCommand]:
    return [
        schema.AvailableCommand(name=name, description=render_text(about) or name, input=_input(live, name))
        for name, about in command_list(live, ELSEWHERE)
    ]


def _input(live: LiveSession, name: str) -> schema.AvailableCommandInput | None:
    """Return the hint for arguments; None for a command of the table that takes none."""
    command = COMMANDS.get(name)
    custom = live.equipment.extensions.slash_commands().get(name) if live.equipment is not None else None
    hint = command.hint if command is not None else (custom.argument_hint if custom is not None else "") or "arguments"
    return schema.AvailableCommandInput(root=schema.UnstructuredCommandInput(hint=render_text(hint))) if hint else None


def is_command(text: str) -> bool:
    """Return whether a prompt is a command; a path at its beginning is none."""
    return text.startswith("/") and "/" not in text[1:].split(maxsplit=1)[0] if text[1:].strip() else text == "/"


_EDITS: Final = ("Edit", "MultiEdit", "Write")
_EDITOR_S: Final = 5.0
_TEXT_BYTES_MAX: Final = 2 * 1024 * 1024


class FileClient(Protocol):
    async def read_text_file(self, session_id: str, path: str, **more: Any) -> Any: ...

    async def write_text_file(self, session_id: str, path: str, content: str, **more: Any) -> Any: ...


class EditorFiles:
    """The files of one session's editor. `reads` and `writes` say what it offers."""

    def __init__(self, client: FileClient, folder: str, *, reads: bool, writes: bool) -> None:
        self.session_id = ""
        self._client = client
        self._folder = os.path.realpath(folder)
        self._reads = reads
        self._writes = writes

    def wrap(self, tools: Iterable[Tool | ToolSource]) -> list[Tool | ToolSource]:
        """Return the tools; those that open one file ask the editor."""
        if not self._reads:
            return list(tools)
        named = ("Read", *_EDITS)
        return [
            # What an edit is made on is known once the editor has saved it, not before.
            msgspec.structs.replace(add_layers(tool, [self._layer]), check=None)
            if isinstance(tool, Tool) and tool.builtin and tool.name in named
            else tool
            for tool in tools
        ]

    async def _layer(self, call: ToolCall, inner: Next) -> Any:
        path = self._inside(call.arguments.get("file_path"))
        unsaved = await self._read_unsaved(path) if path is not None and self.session_id else None
        if path is None or call.name not in _EDITS:
            output = await inner(call)
            if unsaved is None or not isinstance(output, str):
                return output
            return f"{output}\n\n(The editor has changes that are not saved. Its text is:)\n{unsaved}"
        if unsaved is not None and self._writes:
            await self._answer(self._client.write_text_file(session_id=self.session_id, path=path, content=unsaved))
        output = await inner(call)
        if self._writes and self.session_id:
            text = await asyncio.to_thread(_text_of, path)
            if text is not None:
                await self._answer(self._client.write_text_file(session_id=self.session_id, path=path, content=text))
        return output

    def _inside(self, path: Any) -> str | None:
        if not isinstance(path, str) or not path or "\0" in path:
            return None
        whole = os.path.realpath(os.path.join(self._folder, path))
        return whole if whole.startswith(f"{self._folder}/") else None

    async def _read_unsaved(self, path: str) -> str | None:
        """Return the editor's text of a file where it differs from the file itself."""
        answer = await self._answer(self._client.read_text_file(session_id=self.session_id, path=path))
        text = getattr(answer, "content", None)
        if not isinstance(text, str) or len(text) > _TEXT_BYTES_MAX:
            return None
        saved = await asyncio.to_thread(_text_of, path)
        return text if saved is not None and text != saved else None

    async def _answer(self, asked: Any) -> Any:
        """Return the editor's answer; None where it has none in time."""
        try:
            async with asyncio.timeout(_EDITOR_S):
                return await asked
        except Exception:  # noqa: BLE001 - an editor may fail in any way; the file itself is what counts then
            return None


def _text_of(path: str) -> str | None:
    try:
        if os.path.getsize(path) > _TEXT_BYTES_MAX:
            return None
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
