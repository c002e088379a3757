"""Headless: one agent with the built-in tools in a folder, asked with nobody there to be asked back.

    async with Headless(HeadlessOptions(model="sim/echo", folder=".")) as run:
        outcome = await run.ask("Fix the failing test", tell=print)

`tell` hears everything on the way as plain mappings, in this order: `system` once, then `text_delta`, `thinking_delta`,
`tool_start`, `tool_end`, `usage`, `interrupt` and `error` as they come, and `result` at the end. What is not allowed by
a rule is denied, the model is told, and the run goes on. What a failure is called is in `status_of`; the run is a
process of its own kernel, and all that it started ends with it.

What the agent may touch is gathered in `outfit`. Next: `lyra.cli.commands.agent`, which prints it.
"""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import msgspec

from lyra._version import __version__
from lyra.agents.declaration.agent import Agent
from lyra.agents.headless.default_prompt import default_prompt
from lyra.agents.headless.setup import Outfit, each_tool, outfit_of
from lyra.agents.session.agent_process import AgentProcess
from lyra.agents.session.events import AgentEvent, Done, Failed, Restart, ToolProgress
from lyra.agents.session.replies import Reply
from lyra.agents.session.session import Metrics
from lyra.config import KEYS, Config
from lyra.core.checking.check import whole
from lyra.core.event import Event
from lyra.core.ids import Entropy
from lyra.core.tool import Tool
from lyra.errors import AgentFailed, ConfigError, LimitExceeded, LyraError, SandboxUnavailable
from lyra.kernel.kernel import Kernel
from lyra.sandbox.protected import is_protected
from lyra.tools.source import ToolSource

__all__ = ["TURNS_MAX", "Headless", "HeadlessOptions", "Outcome", "error_line", "result_line", "status_of"]

TURNS_MAX: Final = 100  # model calls for one task, where nothing else is said
_ANSWER_TOKENS_MAX: Final = 8_192  # of one answer: a file that is written whole should fit, and most models give it
_NOBODY: Final = "nobody is there to be asked"
_OUT_OF_TURNS: Final = "max_turns"
_SILENT: Final = (Done, Failed, ToolProgress)  # the result and the error say the first two with more in them

Tell = Callable[[dict[str, Any]], Any]  # what it gives is waited for where it can be


class HeadlessOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is told. Empty means: what the configuration and the permission files say."""

    model: str = ""
    folder: str = "."
    also: tuple[str, ...] = ()  # more folders to work in
    system: str | None = None  # None is the default prompt
    mode: str | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    trusted: bool = False  # the project's own files may allow, and bring tools
    attended: bool = False  # somebody reads `interrupt` and answers it
    budget: Any = None  # money, or what a Budget is made of
    max_turns: int = TURNS_MAX
    output: Any = None  # the wanted type of the answer, as for an Agent
    store: str = "memory"
    audit: str = ""  # a file or folder for the log of what was decided; where empty, what the configuration names
    audit_level: str | None = None  # None: as the configuration says
    tools: tuple[Tool | ToolSource, ...] = ()  # beside the built-in ones
    facts: Mapping[str, Any] = {}  # more for the first line


class Outcome(NamedTuple):
    """The last line, and the error that it stands for."""

    result: dict[str, Any]
    error: LyraError | None = None


def status_of(error: LyraError) -> str:
    """The word for a failure: its code, or for an agent that gave no answer why it gave none."""
    told = error.fields.get("status") if type(error) in (AgentFailed, LimitExceeded) else None
    return str(told or error.code)


class Headless:
    """A kernel with one agent process in it, from `async with` to its end."""

    __slots__ = (
        "_began_s",
        "_metrics",
        "_stack",
        "agent",
        "config",
        "kernel",
        "options",
        "outfit",
        "process",
        "session_id",
    )

    def __init__(self, options: HeadlessOptions, config: Config | None = None) -> None:
        self.options = options
        self.config = config if config is not None else Config.load(options.folder)
        self.outfit: Outfit = outfit_of(options, logs=self._logs())
        # The agent goes by this name too: sessions of earlier runs in the same store are another's, and stay asleep.
        self.session_id = f"session-{Entropy().text(12)}"
        self.agent = _agent(self.session_id, options, self.config, self.outfit)
        self.kernel = Kernel.from_config(self.config, store=options.store, programs=[self.agent])
        self.process: AgentProcess | None = None
        self._metrics = Metrics()
        self._began_s = 0.0
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self.kernel)
            self._audit()
            if not self.options.attended:
                stack.callback(self.kernel.on_event(self._nobody, kinds=("interrupt.created",)))
            stack.callback(self.kernel.on_event(self._regrant, kinds=("tools.changed",)))
            options = {"budget": self.options.budget} if self.options.budget is not None else {}
            self.process = await self.kernel.spawn(self.agent, pid=self.session_id, grant=self.outfit.grant, **options)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async with self._stack:
            assert self.process is not None
            if self.process.alive and self.kernel.open:
                await self.process.stop()

    def _audit(self) -> None:
        for path in self._logs():
            self._attach_audit(path)

    def _logs(self) -> list[str]:
        """Where it was said; a log that the machine demands is written beside one's own."""
        mine = self.options.audit or self.config.audit.file
        demanded = self.config.demanded.get("audit.file")
        if mine:
            _check_log(mine, self.options.folder)
        logs = [path for path in dict.fromkeys((mine, demanded)) if path]
        if not logs and self.options.audit_level not in (None, "none"):
            raise ConfigError(
                f"--audit-level {self.options.audit_level} says how much is written to an audit log, and there is none",
                hint="name one with --audit FILE, or with file under [audit] in lyra.toml",
                key="--audit-level",
            )
        return logs

    def _attach_audit(self, path: str) -> None:
        from lyra.observe.audit import attach_audit

        try:
            attach_audit(self.kernel, path, level=self._audit_level())
        except OSError as error:
            raise ConfigError(f"the audit log {path} cannot be written: {error.strerror}", key="audit") from None

    def _audit_level(self) -> str:
        """What was asked for; a project or the machine that wants more than that has it."""
        asked = self.options.audit_level or self.config.audit.level
        least: str = self.config.demanded.get("audit.level", asked)
        return min(asked, least, key=KEYS["audit.level"].words.index)

    def _regrant(self, event: Event) -> None:
        """Tools came, went, or say something else: the rights are those of the tools there are now."""
        if self.process is not None and event.pid == self.session_id:
            self.process.regrant(self.outfit.grant)

    def _nobody(self, event: Event) -> None:
        """A question that no rule has answered finds nobody. Told later: a listener does not act at once."""
        self.kernel.loop.call_soon(self._cancel, str(event.data["id"]))

    def _cancel(self, interrupt_id: str) -> None:
        with contextlib.suppress(LyraError):  # it was answered, or is over
            self.kernel.interrupts.cancel(interrupt_id, _NOBODY)

    # ------------------------------------------------------------------ asking

    async def ask(self, task: str, tell: Tell | None = None, *, beside: str = "") -> Outcome:
        """Put a task to the agent; gives how it ended. An error of the run is in the outcome, not raised.

        `beside` is text to work on, which somebody else may have written: it marks the process like a file it reads.
        """
        assert self.process is not None
        say = _said(tell or _ignore)
        if beside.strip():
            self.kernel.taint.mark(self.session_id, "text beside the task")
            task = f"{task}\n\n{beside}"
        self._began_s = self.kernel.clock.monotonic()
        await say(await self.opening())
        text, error, value = "", None, None
        stream = self.process.stream(task, events=True)
        try:
            async with contextlib.aclosing(aiter(stream)) as events:  # type: ignore[type-var]  # it is a generator
                async for event in events:
                    self._metrics = self.process.metrics if self.process.alive else self._metrics
                    if isinstance(event, Done):
                        text = event.text
                    line = _line(event)
                    if line is not None:
                        await say(line)
            value = await stream
        except LyraError as failure:
            error = self._limit(failure)
        if error is not None:
            await say(error_line(error))
        result = self.result("success" if error is None else status_of(error), text)
        if error is None and self.options.output is not None:
            result["output"] = msgspec.to_builtins(value)
        if isinstance(value, Reply) and value.status != "success":  # an answer, but not to its end
            result["cut_off"] = value.status
        await say(result)
        return Outcome(result, error)

    def _limit(self, failure: LyraError) -> LyraError:
        """An agent that used up its turns met a limit of this run, and is told of by the limit's name."""
        if not isinstance(failure, AgentFailed) or failure.fields.get("status") != "max_iterations":
            return failure
        turns = self.options.max_turns
        said = f"the task was not done within {turns} turn{'' if turns == 1 else 's'} of the model"
        return LimitExceeded(said, hint="raise --max-turns, or give a smaller task", status=_OUT_OF_TURNS, limit=turns)

    async def opening(self) -> dict[str, Any]:
        """The first line: who works where, with what, held by what."""
        return {
            "type": "system",
            "session_id": self.session_id,
            "model": str(self.agent.model),
            "cwd": self.outfit.folder,
            "add_dirs": list(self.outfit.also),
            "tools": self.tool_names(),
            "permission_mode": self.outfit.permissions.mode,
            "sandbox": await _tier(),
            "mcp_servers": [],
            "version": __version__,
            **self.options.facts,
        }

    def tool_names(self) -> list[str]:
        """Of the tools there are now; those of a source may be others later."""
        return [*self.agent.tools, *(tool.name for tool in each_tool(self.agent.sources))]

    def result(self, status: str, text: str = "") -> dict[str, Any]:
        """The last line, with what the run has taken so far."""
        return result_line(
            status,
            text,
            session_id=self.session_id,
            metrics=self._metrics,
            duration_s=self.kernel.clock.monotonic() - self._began_s if self._began_s else 0.0,
        )


def _check_log(path: str, folder: str) -> None:
    """A project says where its log is; it must not become a file that programs act on, or a key."""
    parts = os.path.relpath(os.path.realpath(path), os.path.realpath(folder)).split("/")
    bad = next((part for part in parts if part != ".lyra" and is_protected(part)), None)
    if ".." not in parts and bad is not None:
        raise ConfigError(
            f"the audit log {path} cannot be there: {bad} is protected", hint="such as .lyra/audit/", key="audit"
        )


def _ignore(_line: dict[str, Any]) -> None:
    """Nobody listens."""


def _said(tell: Tell) -> Callable[[dict[str, Any]], Awaitable[None]]:
    async def say(line: dict[str, Any]) -> None:
        came = tell(line)
        if inspect.isawaitable(came):
            await came

    return say


def _agent(name: str, options: HeadlessOptions, config: Config, outfit: Outfit) -> Agent:
    model = options.model or config.agent.model
    if not model:
        raise ConfigError(
            "no model is named",
            hint='say --model PROVIDER/MODEL, set LYRA_AGENT_MODEL, or write model = "…" under [agent] in lyra.toml',
            key="model",
        )
    system = options.system
    if system is None:
        system = default_prompt(outfit.folder, outfit.also, attended=options.attended)
    return Agent(
        name,
        model=model,
        system=system,
        tools=outfit.tools,
        permissions=outfit.permissions,
        memory=outfit.memory,
        max_iterations=whole(options.max_turns, "max_turns", least=1, most=10**6),
        max_tokens=_ANSWER_TOKENS_MAX,
        output=options.output,
    )


async def _tier() -> str:
    """What holds the commands of this run; `none` where nothing does, and so none runs."""
    from lyra.sandbox import Sandbox

    try:
        return await Sandbox().tier()
    except SandboxUnavailable:
        return "none"


# ---------------------------------------------------------------------- lines


def _line(event: AgentEvent) -> dict[str, Any] | None:
    if isinstance(event, _SILENT):
        return None
    if isinstance(event, Restart):  # the pieces so far do not hold: who joins them has to know
        said = "the answer broke off and begins again"
        return {"type": "error", "code": "restart", "message": said, "retracted": event.text}
    return event.to_data()


def error_line(error: LyraError) -> dict[str, Any]:
    line = {"type": "error", "code": status_of(error), "message": error.message}
    for key, value in (("hint", error.hint), ("place", error.place), ("kind", error.fields.get("kind"))):
        if value:
            line[key] = str(value)
    return line


def result_line(
    status: str, text: str = "", *, session_id: str = "", metrics: Metrics | None = None, duration_s: float = 0.0
) -> dict[str, Any]:
    """`turns` are the calls of the model; `usage` and `cost_usd` are with those of its helpers."""
    spent = metrics or Metrics()
    tokens_in, tokens_out, _, _ = spent.totals
    return {
        "type": "result",
        "status": status,
        "text": text,
        "session_id": session_id,
        "cost_usd": spent.cost_usd,
        "usage": {
            "input_tokens": tokens_in,
            "output_tokens": tokens_out,
            "cache_read_tokens": spent.cache_read_tokens,
            "cache_write_tokens": spent.cache_write_tokens,
            "tool_calls": spent.tool_calls,
            "tool_errors": spent.tool_errors,
        },
        "duration_ms": round(duration_s * 1000),
        "turns": spent.calls,
    }
