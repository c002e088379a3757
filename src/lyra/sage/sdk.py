"""SageAgentSDK: the code agent as a library, with the same sessions, tools, permissions and sandbox as `sage`.

    sdk = SageAgentSDK(model="anthropic/claude-sonnet-4-5").with_working_directory("project").with_max_steps(20)
    result = await sdk.run("Fix the failing test")
    print(result.final_result, result.statistics)

Each run is its own session, which `with_session` continues with; inside `async with sdk:` all runs are turns of one
session. Without a permission callback a call that no rule allows is denied and the run continues. A run never raises
for what the agent did: that is in the ExecutionResult. `run_sync` and `query_sync` are for programs without an event
loop.

`Background` has what happens in a session beside the run: its notices, and questions of its background tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast

import msgspec

from lyra._version import __version__
from lyra.agents.agent import Agent
from lyra.agents.declaration.output import Content
from lyra.agents.headless.headless import Headless
from lyra.agents.headless.options import TURNS_MAX, HeadlessOptions
from lyra.agents.helpers.task import delegate
from lyra.agents.session.events import NoticeLine, QuestionLine, ResultLine
from lyra.agents.session.model_call import AgentExecution
from lyra.config import Config
from lyra.core.checking.check import check_integer, sendable_text
from lyra.core.message import Message
from lyra.core.tool import Tool, ToolCall, ToolResult
from lyra.errors import AgentFailed, ConfigError, LyraError
from lyra.sage.agent.live import LiveSession, SessionStart
from lyra.sage.agent.session_notices import SessionNotices
from lyra.tools.function import tool as tool_of
from lyra.tools.source import ToolSource

# ---------------------------------------------------------------- result

_WORDS: Final = {"success": "success", "interrupted": "interrupted", "max_turns": "max_steps_reached"}


class SageEvent(dict[str, Any]):
    """One event of a run, as on every surface: `event.type`, and its fields as attributes or keys."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"an event of type {self.get('type')} has no {name}") from None


class SageNotice(SageEvent):
    """An event of type `notice`: words for the user that are no part of the answer."""

    @property
    def text(self) -> str:
        return str(self["text"])

    @property
    def level(self) -> str:
        """`info`, `warning`, or `status`: what a hook does at this moment."""
        return str(self["level"])

    @property
    def source(self) -> str:
        """`hook`, `task` (a sub-agent or command in the background), or `extensions`."""
        return str(self.get("source", "hook"))

    @property
    def task(self) -> dict[str, Any] | None:
        """The record of the task in the background, with its `id`, `state` and `text`."""
        return self.get("task")


class ExecutionResult(msgspec.Struct, kw_only=True):
    """How a run ended, and the whole trace of it."""

    status: str
    final_result: str
    session_id: str
    events: list[SageEvent]
    messages: tuple[Message, ...] = ()
    output: Any = None  # the answer in the type that was asked for
    cost_usd: float | None = None
    duration_ms: int = 0
    usage: dict[str, int] = {}
    steps: int = 0  # calls of the model
    error: LyraError | None = None
    execution: AgentExecution | None = None

    @property
    def outcome(self) -> str:
        return _WORDS.get(self.status, "failed")

    @property
    def is_success(self) -> bool:
        return self.outcome == "success"

    @property
    def is_failed(self) -> bool:
        return self.outcome not in ("success", "interrupted")

    @property
    def is_interrupted(self) -> bool:
        return self.outcome == "interrupted"

    @property
    def tool_calls(self) -> list[ToolCall]:
        return [call for message in self.messages for call in message.tool_calls]

    @property
    def tool_results(self) -> list[ToolResult]:
        return [result for message in self.messages for result in message.tool_results]

    @property
    def error_steps(self) -> list[ToolResult]:
        """The calls that failed."""
        return [result for result in self.tool_results if result.is_error]

    @property
    def statistics(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "tool_calls": len(self.tool_calls),
            "tool_errors": len(self.error_steps),
            "cost_usd": self.cost_usd,
            "duration_ms": self.duration_ms,
            **self.usage,
        }

    @property
    def summary(self) -> str:
        """One line: the outcome, the steps, the tools, the cost."""
        cost = "?" if self.cost_usd is None else f"${self.cost_usd:.4f}"
        return f"{self.outcome}: {self.steps} steps, {len(self.tool_calls)} tool calls, {cost}, {self.duration_ms} ms"

    def require(self) -> ExecutionResult:
        """Return the result itself; raises its error unless it is a success."""
        if self.error is not None:
            raise self.error
        if not self.is_success:
            raise AgentFailed(f"the run ended without an answer: {self.status}", status=self.status)
        return self


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
        """Return the notices since the last call."""
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


# ---------------------------------------------------------------- questions

_DECISIONS: Final = ("allow", "always", "deny", "never")


class PermissionRequest(msgspec.Struct, frozen=True):
    """A question of the agent. `tool` is empty for one in words, and for a call of a task in the background, which
    `question` and `message` describe. `always` is the rule that `always` would add; `task` the sub-agent that asks."""

    id: str
    kind: str
    question: str
    message: str = ""
    tool: str = ""
    arguments: dict[str, Any] = {}
    diff: str = ""
    rule: str | None = None
    always: str | None = None
    task: str = ""


class PermissionAnswer(msgspec.Struct, frozen=True):
    """`arguments` replace those of the call; rules that deny hold for them, too."""

    decision: str = "deny"
    text: str = ""
    arguments: dict[str, Any] | None = None


PermissionCallback = Callable[
    [PermissionRequest], bool | str | PermissionAnswer | Awaitable[bool | str | PermissionAnswer]
]


def refuse(request: PermissionRequest) -> PermissionAnswer:
    """Return the answers of a run that asks nothing, in a session that could."""
    is_call = request.tool or request.kind != "clarification"
    return PermissionAnswer("deny" if is_call else "", "this run asks no one; decide by yourself")


async def answer_question(session: LiveSession, line: QuestionLine, ask: PermissionCallback) -> None:
    """Put the question of an `interrupt` line to the function, and its answer to the session."""
    known: dict[str, Any] = {name: value for name, value in line.items() if name in PermissionRequest.__struct_fields__}
    request = PermissionRequest(**known)
    try:
        given = ask(request)
        value = await given if inspect.isawaitable(given) else given
    except Exception:  # noqa: BLE001 - a callback that fails denies
        _log.exception("the permission callback failed; the answer is no")
        value = False
    answer = _answer_of(value, is_call=bool(request.tool) or request.kind == "confirmation")
    await session.answer(request.id, answer.decision, text=answer.text, arguments=answer.arguments)


def _answer_of(value: Any, *, is_call: bool) -> PermissionAnswer:
    if isinstance(value, PermissionAnswer):
        return value
    if value is True:
        return PermissionAnswer("allow")
    if isinstance(value, str):
        if value in _DECISIONS:
            return PermissionAnswer(value)
        return PermissionAnswer("deny", value) if is_call else PermissionAnswer("", value)
    return PermissionAnswer("deny")


API_VERSION: Final = "1.0"
T = TypeVar("T")


class SageAgentSDK:
    """The `with_…` methods change this object and give it back, so that they can be chained."""

    def __init__(
        self,
        config: Config | None = None,
        *,
        model: str = "",
        working_directory: str | Path = ".",
        permission_mode: str | None = None,
        allowed_tools: Iterable[str] = (),
        disallowed_tools: Iterable[str] = (),
        permission_callback: PermissionCallback | None = None,
        notice_callback: NoticeCallback | None = None,
        tools: Iterable[Any] = (),
        budget: Any = None,
        max_steps: int = TURNS_MAX,
        system: str | None = None,
        trusted: bool = False,
        sessions_folder: str | Path = "",
    ) -> None:
        self._config = config
        self._config_file: str | None = None
        self._flags: list[str] = []
        self._ask = permission_callback
        self._tell = notice_callback
        self._session: str | None = None
        self._sessions = str(sessions_folder)
        self._live: LiveSession | None = None
        self._background: Background | None = None
        self._options = HeadlessOptions(
            model=model,
            folder=str(working_directory),
            mode=permission_mode,
            allow=tuple(allowed_tools),
            deny=tuple(disallowed_tools),
            tools=tuple(tool_given(given) for given in tools),
            budget=budget,
            max_turns=check_integer(max_steps, "max_steps", least=1, most=10**6),
            system=system,
            trusted=trusted,
        )

    # ------------------------------------------------------------------ settings

    def _with(self, **changes: Any) -> Self:
        self._options = msgspec.structs.replace(self._options, **changes)
        return self

    def with_config(self, config: Config | Mapping[str, Any]) -> Self:
        """Use this configuration: a Config, or settings by their dotted names."""
        if isinstance(config, Config):
            self._config = config
        else:
            self._flags += [f"{key}={value}" for key, value in config.items()]
            self._config = None
        return self

    def with_config_file(self, path: str | Path) -> Self:
        """Use this file in place of the user's own `lyra.toml`."""
        if not Path(path).is_file():
            raise ConfigError(f"there is no configuration file {path}", place=str(path), key="config_file")
        self._config_file, self._config = str(path), None
        return self

    def with_provider_and_model(self, provider: str, model: str) -> Self:
        return self._with(model=f"{provider}/{model}")

    def with_working_directory(self, path: str | Path) -> Self:
        return self._with(folder=str(path))

    def with_max_steps(self, steps: int) -> Self:
        """At most so many calls of the model in a run."""
        return self._with(max_turns=check_integer(steps, "steps", least=1, most=10**6))

    def with_step_limit(self, steps: int | None) -> Self:
        """Return the same; None is the default of 100."""
        return self.with_max_steps(TURNS_MAX if steps is None else steps)

    def with_tools(self, *tools: Any) -> Self:
        """Further tools: functions, Tools, Agents (as sub-agents), sources of tools."""
        return self._with(tools=(*self._options.tools, *(tool_given(given) for given in tools)))

    def with_permission_callback(self, ask: PermissionCallback | None) -> Self:
        """Return the function that is asked where no rule decides."""
        self._ask = ask
        return self

    def with_notice_callback(self, tell: NoticeCallback | None) -> Self:
        """Return the function that is told at once what the user should know beside the answer; `notice` events say the
        same when a run has its next event."""
        self._tell = tell
        return self

    def with_budget(self, budget: Any) -> Self:
        return self._with(budget=budget)

    def with_session(self, session_id: str | None) -> Self:
        """Continue with this session in the next runs; "" is the newest one of the folder, None a new one each time."""
        self._session = session_id
        return self

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self._config_in(self._options.folder)

    def _config_in(self, folder: str) -> Config:
        if self._config is not None:
            return self._config
        return Config.load(
            folder, flags=self._flags, user_file=self._config_file, trust=self._options.trust, lenient=True
        )

    def validate_config(self) -> None:
        """Raise ConfigError where the configuration, the model or a setting of this object cannot be used."""
        Headless(self._options, self.config)

    @property
    def api_version(self) -> str:
        return API_VERSION

    def version_info(self) -> dict[str, str]:
        return {"lyra": __version__, "api": API_VERSION}

    def is_compatible_with(self, version: str) -> bool:
        """Return whether a program written for this version of the API runs with this one: same major, not newer."""
        try:
            asked = [int(part) for part in version.split(".")[:2]]
        except ValueError:
            raise ConfigError(f"{version!r} is not a version such as {API_VERSION}", key="version") from None
        own = [int(part) for part in API_VERSION.split(".")]
        return asked[0] == own[0] and asked <= own

    # ------------------------------------------------------------------ one session for several runs

    async def __aenter__(self) -> Self:
        live = await self._open(RunOptions(), interactive=True).__aenter__()
        self._live, self._background = live, Background(live, self._ask, self._tell)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        live, self._live, self._background = self._live, None, None
        if live is not None:
            await live.__aexit__(kind, error, trace)

    @property
    def session(self) -> LiveSession | None:
        """The session that is open, inside `async with`."""
        return self._live

    def _open(self, options: RunOptions, *, interactive: bool) -> LiveSession:
        given = {
            "folder": options.working_directory,
            "max_turns": options.max_steps,
            "budget": options.budget,
            "output": options.output,
        }
        changes = {name: value for name, value in given.items() if value is not None}
        attended = interactive and self._ask is not None
        headless = msgspec.structs.replace(self._options, attended=attended, **changes)
        resume = self._session if options.session is None else options.session
        return LiveSession(
            headless, self._config_in(headless.folder), start=SessionStart(resume=resume, root=self._sessions)
        )

    # ------------------------------------------------------------------ running

    async def run(self, task: Content) -> ExecutionResult:
        """Do a task."""
        return await self.run_with_options(task, RunOptions())

    async def run_with_options(self, task: Content, options: RunOptions) -> ExecutionResult:
        return await self._run_to_end(task, options, interactive=options.is_interactive)

    async def execute_unified(self, task: Content, options: UnifiedRunOptions | None = None) -> ExecutionResult:
        return await self.run_with_options(task, options or UnifiedRunOptions())

    async def execute_non_interactive(self, task: Content) -> ExecutionResult:
        """Do a task without asking: what no rule allows is denied."""
        return await self._run_to_end(task, RunOptions(), interactive=False)

    def run_sync(self, task: Content, options: RunOptions | None = None) -> ExecutionResult:
        """Return the same for a program without an event loop."""
        coroutine = self.run_with_options(task, options or RunOptions())
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(coroutine)
        coroutine.close()
        raise LyraError("a sync call cannot wait inside a running loop", hint="await the async method")

    async def stream(self, task: Content, options: RunOptions | None = None) -> AsyncGenerator[SageEvent, None]:
        """Do a task: its events as they come, the `result` last. Leaving the loop early interrupts the run."""
        chosen = options or RunOptions()
        async with contextlib.aclosing(self._events(task, chosen, interactive=chosen.is_interactive)) as events:
            async for event, _ in events:
                yield event

    async def interrupt(self) -> bool:
        """Stop the run that is under way in the open session."""
        return self._live is not None and await self._live.interrupt()

    async def _run_to_end(self, task: Content, options: RunOptions, *, interactive: bool) -> ExecutionResult:
        events: list[SageEvent] = []
        result: ExecutionResult | None = None
        async with contextlib.aclosing(self._events(task, options, interactive=interactive)) as source:
            async for event, ended in source:
                events.append(event)
                result = ended
        assert result is not None, "a run ends with its result"
        result.events = events
        return result

    async def _events(
        self, task: Content, options: RunOptions, *, interactive: bool
    ) -> AsyncGenerator[tuple[SageEvent, ExecutionResult | None], None]:
        # Refuse a task that is empty, or that no journal can hold.
        parts = task if isinstance(task, (list, tuple)) else [task]
        for part in parts:
            if isinstance(part, str):
                sendable_text(part, "the task")
        if not parts or all(isinstance(part, str) and not part.strip() for part in parts):
            raise ConfigError("the task is empty", key="task")
        async with contextlib.AsyncExitStack() as stack:
            live, background = self._live, self._background
            if live is None or background is None:
                live = await stack.enter_async_context(self._open(options, interactive=interactive))
                background = Background(live, self._ask, self._tell)
            else:
                options.require_none()
                background.look()
            before = len(live.messages)
            lines = await stack.enter_async_context(contextlib.aclosing(live.send(task)))
            async for line in lines:
                for notice in background.take():
                    yield notice, None
                event = SageNotice(line) if line["type"] == "notice" else SageEvent(line)
                if isinstance(event, SageNotice):
                    background.tell(event)
                if line["type"] == "interrupt" and self._ask is not None and live.options.attended:
                    await answer_question(live, line, self._ask if interactive else refuse)
                ended = _result(live, line, before) if line["type"] == "result" else None
                yield event, ended


class Query:
    """A task on its way: `await` gives the ExecutionResult, `async for` the events."""

    def __init__(self, sdk: SageAgentSDK, task: Content) -> None:
        self._sdk = sdk
        self._task = task

    def __await__(self) -> Generator[Any, None, ExecutionResult]:
        return self._sdk.run(self._task).__await__()

    def __aiter__(self) -> AsyncIterator[SageEvent]:
        return self._sdk.stream(self._task)


def query(task: Content, **settings: Any) -> Query:
    """Do one task: `await query("…", model=…)`, or `async for event in query("…")`. Takes what SageAgentSDK takes."""
    return Query(SageAgentSDK(**settings), task)


def query_sync(task: Content, **settings: Any) -> ExecutionResult:
    """Return the same for a program without an event loop."""
    return SageAgentSDK(**settings).run_sync(task)


def _result(live: LiveSession, line: ResultLine, before: int) -> ExecutionResult:
    return ExecutionResult(
        status=line["status"],
        final_result=line["text"],
        session_id=live.id,
        events=[],
        messages=live.messages[before:],
        output=line.get("output"),
        cost_usd=line["cost_usd"],
        duration_ms=line["duration_ms"],
        usage=cast("dict[str, int]", line["usage"]),
        steps=line["turns"],
        error=live.headless.failure,
        execution=live.process.execution,
    )


# ---------------------------------------------------------------- given


def tool_given(given: Any) -> Tool | ToolSource:
    """Return a tool from a function, a Tool, an Agent as a sub-agent, or a source of tools."""
    if isinstance(given, Agent):
        return delegate(given)
    if isinstance(given, Tool) or hasattr(given, "__lyra_tools__"):
        return given  # type: ignore[no-any-return]  # checked above
    return tool_of(given)


# ---------------------------------------------------------------- options


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What may differ from run to run; what is left out is as the SDK was told."""

    working_directory: str | None = None
    max_steps: int | None = None
    budget: Any = None
    output: Any = None  # the wanted type of the answer
    session: str | None = None  # the id of a session to continue with

    @property
    def is_interactive(self) -> bool:
        return True

    def require_none(self) -> None:
        """Refuse options for a session that is open: it was opened without them."""
        given = [name for name in RunOptions.__struct_fields__ if getattr(self, name) is not None]
        if given:
            raise ConfigError(
                f"{given[0]} cannot change in a session that is open",
                hint="tell the SDK before `async with`, or run outside of it",
                key=given[0],
            )


class UnifiedRunOptions(RunOptions, frozen=True, kw_only=True):
    """`interactive`: the permission callback is asked; False denies what no rule allows."""

    interactive: bool = True

    @property
    def is_interactive(self) -> bool:
        return self.interactive
