"""SageAgentSDK: the code agent as a library, with the same sessions, tools, permissions and sandbox as `sage`.

    sdk = SageAgentSDK(model="anthropic/claude-sonnet-4-5").with_working_directory("project").with_max_steps(20)
    result = await sdk.run("Fix the failing test")
    print(result.final_result, result.statistics)

Each run is its own session, which `with_session` continues with; inside `async with sdk:` all runs are turns of one
session. Without a permission callback a call that no rule allows is denied and the run continues. A run never raises
for what the agent did: that is in the ExecutionResult. `run_sync` and `query_sync` are for programs without an event
loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Generator, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast

import msgspec

from lyra._version import __version__
from lyra.agents.declaration.output import Content
from lyra.agents.headless.options import TURNS_MAX, HeadlessOptions
from lyra.agents.session.events import ResultLine
from lyra.config import Config
from lyra.core.checking.check import check_integer, sendable_text
from lyra.core.tool import Tool
from lyra.errors import ConfigError, LyraError
from lyra.sage.agent.live import LiveSession, SessionStart
from lyra.sage.sdk.background import (
    Background,
    ExecutionResult,
    NoticeCallback,
    PermissionAnswer,
    PermissionCallback,
    PermissionRequest,
    SageEvent,
    SageNotice,
    answer_question,
    event_of,
    refuse,
)
from lyra.tools.function import tool as tool_of
from lyra.tools.source import ToolSource

__all__ = [
    "API_VERSION",
    "ExecutionResult",
    "PermissionAnswer",
    "PermissionRequest",
    "Query",
    "RunOptions",
    "SageAgentSDK",
    "SageEvent",
    "SageNotice",
    "UnifiedRunOptions",
    "query",
    "query_sync",
]

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
        from lyra.agents.headless.headless import Headless

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
        return _in_own_loop(self.run_with_options(task, options or RunOptions()))

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
        check_task(task)
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
                event = event_of(line)
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


def _in_own_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    coroutine.close()
    raise LyraError("a sync call cannot wait inside a running loop", hint="await the async method")


# ---------------------------------------------------------------- given


def check_task(task: Content) -> None:
    """Refuse a task that is empty, or that no journal can hold."""
    parts = task if isinstance(task, (list, tuple)) else [task]
    for part in parts:
        if isinstance(part, str):
            sendable_text(part, "the task")
    if not parts or all(isinstance(part, str) and not part.strip() for part in parts):
        raise ConfigError("the task is empty", key="task")


def tool_given(given: Any) -> Tool | ToolSource:
    """Return a tool from a function, a Tool, an Agent as a sub-agent, or a source of tools."""
    from lyra.agents.agent import Agent
    from lyra.agents.helpers.task import delegate

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
