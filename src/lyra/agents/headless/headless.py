"""Headless: one agent with the built-in tools in a folder, without a person who answers questions.

    async with Headless(HeadlessOptions(model="sim/echo", folder=".")) as run:
        outcome = await run.ask("Fix the failing test", tell=print)

`tell` is called with every event as a plain mapping, in this order: `system` once, then `text_delta`, `thinking_delta`,
`tool_start`, `tool_end`, `usage`, `interrupt`, `notice` and `error` as they come, and `result` at the end. A call that
no rule allows is denied, the model is told, and the run goes on. `status_of` names failures. The run is a process of
its own kernel, and all that it started ends with it.

`setup` puts together what the agent may touch. Next: `lyra.cli.commands.agent`, which prints the events.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import msgspec

from lyra._version import __version__
from lyra.agents.agent import Agent
from lyra.agents.declaration.content import Content
from lyra.agents.declaration.hooks import AgentHooks
from lyra.agents.declaration.memory import Memory
from lyra.agents.headless.default_prompt import default_prompt
from lyra.agents.headless.setup import HeadlessSetup, all_tools, setup_of
from lyra.agents.session.agent_process import AgentProcess
from lyra.agents.session.events import AgentEvent, AnswerDone, AnswerFailed, Restart, ToolProgress
from lyra.agents.session.provider_keys import check_model_name, known_to
from lyra.agents.session.replies import Reply, Stream
from lyra.agents.session.session import Metrics
from lyra.config import KEYS, Config
from lyra.core.budgets.budget import Limits
from lyra.core.checking.check import whole
from lyra.core.event import Event
from lyra.core.ids import Entropy
from lyra.core.rights.capability import Capability
from lyra.core.tool import Tool
from lyra.errors import AgentFailed, ConfigError, LimitExceeded, LyraError, SandboxUnavailable
from lyra.kernel.base.subsystem import State
from lyra.kernel.kernel import Kernel
from lyra.kernel.seams import Seams
from lyra.sandbox.protection.protected_names import NAMES
from lyra.tools.builtin.workspace import Workspace
from lyra.tools.source import ToolSource

if TYPE_CHECKING:
    from lyra.agents.headless.session_hooks import SessionHooks
    from lyra.agents.turn.unfinished import UnfinishedTurn

__all__ = [
    "TURNS_MAX",
    "Headless",
    "HeadlessOptions",
    "HeadlessOutcome",
    "Tell",
    "awaiting",
    "end_reason",
    "error_line",
    "event_line",
    "result_line",
    "status_of",
]

TURNS_MAX: Final = 100  # model calls for one task, unless the options say otherwise
_ANSWER_TOKENS_MAX: Final = 8_192  # of one answer: a file written whole should fit, and most models allow it
_NO_PERSON: Final = "no person is there to be asked"
_REPLAY_S: Final = 60.0  # for a conversation to be read back
_OUT_OF_TURNS: Final = "max_turns"
_SILENT: Final = (AnswerDone, AnswerFailed, ToolProgress)  # the lines `result` and `error` say more than the first two

Tell = Callable[[dict[str, Any]], Any]  # an awaitable result is awaited


class HeadlessOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a run. An empty one is taken from the configuration and the permission files."""

    model: str = ""
    folder: str = "."
    also: tuple[str, ...] = ()  # more folders to work in
    # Text, or a function of the agent's session that gives it for each turn; None is the default prompt.
    system: str | Callable[[Any], Any] | None = None
    mode: str | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    # True: the folder's own files may do more than tighten. False: those may that the user answered yes to.
    trusted: bool = False
    attended: bool = False  # a person reads `interrupt` events and answers
    budget: Any = None  # money, or what a Budget is made of
    max_turns: int = TURNS_MAX
    output: Any = None  # the wanted type of the answer, as for an Agent
    store: str = "memory"
    audit: str = ""  # a file or folder for the log of decisions; empty: the one that the configuration names
    audit_level: str | None = None  # None: as the configuration says
    # The name of a session: a later run with it on the same store goes on with its conversation.
    session: str = ""
    tools: tuple[Tool | ToolSource, ...] = ()  # beside the built-in ones
    # Tools made for the run's workspace, in place of Task.
    more_tools: Callable[[Workspace], Iterable[Tool | ToolSource]] | None = None
    rights: tuple[Capability, ...] = ()  # besides those of the folders and the tools
    wrap: Callable[[Iterable[Tool | ToolSource]], Iterable[Tool | ToolSource]] | None = None  # puts layers around tools
    hooks: AgentHooks | None = None  # of the agent and its session; those of the configuration are not added here
    memory: Memory | None = None  # None: items of its own store, recalled; a scope that is left out is the folder's
    facts: Mapping[str, Any] = {}  # more for the first line

    @property
    def trust(self) -> bool | None:
        """The word of the options for `trust_for`."""
        return True if self.trusted else None


class HeadlessOutcome(NamedTuple):
    """The `result` line, and the error that it stands for."""

    result: dict[str, Any]
    error: LyraError | None = None


def status_of(error: LyraError) -> str:
    """The word for a failure: its code, or the status of an agent that gave no answer."""
    status = error.fields.get("status") if type(error) in (AgentFailed, LimitExceeded) else None
    return str(status or error.code)


class Headless:
    """A kernel with one agent process in it, from `async with` to its end."""

    __slots__ = (
        "_began_s",
        "_is_stopped",
        "_metrics",
        "_stack",
        "_stream",
        "agent",
        "config",
        "failure",
        "hooks",
        "kernel",
        "options",
        "process",
        "session_id",
        "setup",
        "unfinished",
    )

    def __init__(
        self, options: HeadlessOptions, config: Config | None = None, *, states: tuple[State, ...] = ()
    ) -> None:
        """`states` keep facts of the layers above in the kernel's store."""
        self.options = options
        self.config = config if config is not None else Config.load(options.folder, trust=options.trust)
        self.setup: HeadlessSetup = setup_of(options, logs=self._logs())
        # The agent has this name too: sessions of earlier runs in the same store have other names, and are not resumed.
        self.session_id = options.session or f"session-{Entropy().text(12)}"
        self.agent = _agent(self.session_id, options, self.config, self.setup)
        # The program becomes known when the process is spawned: what an earlier run left unfinished is read before.
        self.kernel = Kernel.from_config(self.config, store=options.store, seams=Seams(states=states))
        self.process: AgentProcess | None = None
        self.hooks = None if options.hooks is None else _session_hooks(options.hooks, self)
        self.unfinished: UnfinishedTurn | None = None  # of an earlier run, which was cut off in the middle
        self._stream: Stream[Any, Any] | None = None
        self._is_stopped = False
        self.failure: LyraError | None = None  # of the last task
        self._metrics = Metrics()
        self._began_s = 0.0
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self.kernel)
            self._audit()
            if not self.options.attended:
                stack.callback(self.kernel.on_event(self._on_question, kinds=("interrupt.created",)))
            stack.callback(self.kernel.on_event(self._regrant, kinds=("tools.changed",)))
            options = {"budget": self.options.budget} if self.options.budget is not None else {}
            self._stop_unfinished()
            self.process = await self.kernel.spawn(self.agent, pid=self.session_id, grant=self.setup.grant, **options)
            await self._caught_up()
            if self.hooks is not None:
                await self._begin_hooks(self.hooks, stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async with self._stack:
            assert self.process is not None
            if self.hooks is not None:
                self.hooks.work()
                if self.kernel.open and not self.options.session:
                    await self.hooks.end(end_reason(error))
            if self.process.alive and self.kernel.open and not self.options.session:
                await self.process.stop()

    async def _begin_hooks(self, hooks: SessionHooks, stack: contextlib.AsyncExitStack) -> None:
        """A run of its own is a session from here to its end; the program that names a session says when it begins."""
        if self.options.attended:  # without a person a question is cancelled at once
            stack.callback(hooks.listen())
        if not self.options.session:
            await hooks.start("new", model=str(self.agent.model))

    def _stop_unfinished(self) -> None:
        """A turn that an earlier run was in is not gone on with: the person who comes back says what comes next."""
        if not self.options.session or self.session_id not in self.kernel.processes:
            return
        from lyra.agents.turn.unfinished import unfinished_turn, withdraw, withdraw_order

        withdraw_order(self.kernel, self.session_id)
        self.unfinished = unfinished_turn(self.kernel, self.session_id)
        if self.unfinished is not None:
            withdraw(self.kernel, self.session_id, self.unfinished)

    async def _caught_up(self) -> None:
        """Wait until a process of an earlier run has its conversation again. What it waits for then is a message."""
        assert self.process is not None
        process = self.kernel.processes.get(self.session_id)
        deadline_s = self.kernel.clock.monotonic() + _REPLAY_S
        while self.options.session and process is not None and process.replay is not None and process.exit is None:
            if self.kernel.clock.monotonic() > deadline_s:
                return
            await asyncio.sleep(0)

    def _audit(self) -> None:
        for path in self._logs():
            self._attach_audit(path)

    def _logs(self) -> list[str]:
        """The paths of the audit logs: the user's own, and one that the machine's policy demands."""
        own = self.options.audit or self.config.audit.file
        demanded = self.config.demanded.get("audit.file")
        if own:
            _check_log(own, self.options.folder)
        logs = [path for path in dict.fromkeys((own, demanded)) if path]
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
        """The level that was asked for, or a higher one that the project or the machine demands."""
        asked = self.options.audit_level or self.config.audit.level
        least: str = self.config.demanded.get("audit.level", asked)
        return min(asked, least, key=KEYS["audit.level"].words.index)

    def _regrant(self, event: Event) -> None:
        """Tools have changed: give the process the rights of the tools there are now."""
        if self.process is not None and event.pid == self.session_id:
            self.process.regrant(self.setup.grant)

    def _on_question(self, event: Event) -> None:
        """Cancel a question, as no person is there to answer; later, because a listener must not act on the kernel."""
        self.kernel.loop.call_soon(self.withdraw, str(event.data["id"]))

    def withdraw(self, interrupt_id: str) -> None:
        """Cancel a question that no person will answer: the model is told so."""
        with contextlib.suppress(LyraError):  # it was answered, or is over
            self.kernel.interrupts._withdraw(interrupt_id, _NO_PERSON)

    # ------------------------------------------------------------------ asking

    async def ask(
        self, task: Content, tell: Tell | None = None, *, beside: str = "", opening: bool = True
    ) -> HeadlessOutcome:
        """Put a task to the agent. An error of the run is in the outcome, not raised.

        `beside` is text to work on, which may come from outside: it taints the process like a file that it reads. The
        `system` line is left out where no `opening` is wanted: it names the sandbox, which has to be tried for that.
        """
        say = awaiting(tell or _ignore)
        line: dict[str, Any] = {}
        if opening:
            await say(await self.opening())
        async with contextlib.aclosing(self.lines(task, beside=beside)) as lines:
            async for line in lines:
                await say(line)
        return HeadlessOutcome(line, self.failure)

    async def lines(
        self, task: Content, *, beside: str = "", budget: Limits | None = None, only: Sequence[str] | None = None
    ) -> AsyncGenerator[dict[str, Any], None]:
        """What happens while the agent works on a task, one mapping a line; the last one is the `result`. `budget` is
        for this task alone, and so are the rules `only`: no other call is allowed."""
        assert self.process is not None
        if beside.strip():
            self.kernel.taint.mark(self.session_id, "text beside the task")
            task = f"{task}\n\n{beside}" if isinstance(task, str) else [*_listed(task), beside]
        self._began_s = self.kernel.clock.monotonic()
        if self.hooks is not None:
            self.hooks.work()
        context = "" if self.hooks is None else self.hooks.take_context()
        if context:
            task = f"{task}\n\n{context}" if isinstance(task, str) else [*_listed(task), context]
        for notice in self._notices():
            yield notice
        self._is_stopped, self.failure = False, None
        text, value = "", None
        stream = self._stream = self.process.stream(task, events=True, budget=budget, only=only)
        try:
            async with contextlib.aclosing(aiter(stream)) as events:  # type: ignore[type-var]  # it is a generator
                async for event in events:
                    self._metrics = self.process.metrics if self.process.alive else self._metrics
                    if isinstance(event, AnswerDone):
                        text = event.text
                    line = event_line(event, progress=self.options.attended)
                    if line is not None:
                        yield line
            value = await stream
        except LyraError as failure:
            self.failure = self._limit(failure)
        except asyncio.CancelledError:
            if not self._is_stopped:
                raise
        finally:
            self._stream = None
        for notice in self._notices():
            yield notice
        if self.hooks is not None and self.options.attended:
            self.hooks.wait()
        if self.failure is not None:
            yield error_line(self.failure)
        yield self._last_line(text, value)

    def _notices(self) -> list[dict[str, Any]]:
        """What hooks outside a turn have said to the user since the last line of this kind."""
        return [] if self.hooks is None else [notice.to_data() for notice in self.hooks.take_notices()]

    def stop(self) -> bool:
        """Stop the task that is under way: its `lines` end with the status `interrupted`. False where there is none."""
        stream = self._stream
        if stream is None or stream.pending is None:
            return False
        self._is_stopped = True
        return stream.pending.cancel()

    def _last_line(self, text: str, value: Any) -> dict[str, Any]:
        error = self.failure
        status = "interrupted" if self._is_stopped else "success" if error is None else status_of(error)
        result = self.result(status, text)
        if status == "success" and self.options.output is not None:
            result["output"] = msgspec.to_builtins(value)
        if isinstance(value, Reply) and value.status != "success":  # an answer that was cut off
            result["cut_off"] = value.status
        return result

    def _limit(self, failure: LyraError) -> LyraError:
        """Report an agent that used up its turns as a limit of this run."""
        if not isinstance(failure, AgentFailed) or failure.fields.get("status") != "max_iterations":
            return failure
        turns = self.options.max_turns
        message = f"the task was not done within {turns} turn{'' if turns == 1 else 's'} of the model"
        return LimitExceeded(
            message, hint="raise --max-turns, or give a smaller task", status=_OUT_OF_TURNS, limit=turns
        )

    async def opening(self) -> dict[str, Any]:
        """The `system` line: the model, the folders, the tools, the permission mode and the sandbox."""
        return {
            "type": "system",
            "session_id": self.session_id,
            "model": str(self.agent.model),
            "cwd": self.setup.folder,
            "add_dirs": list(self.setup.also),
            "tools": self.tool_names(),
            "permission_mode": self.setup.permissions.mode,
            "sandbox": await _tier(),
            "mcp_servers": [],
            "version": __version__,
            **self.options.facts,
        }

    def tool_names(self) -> list[str]:
        """The names of the tools there are now; a source may have others later."""
        return [*self.agent.tools, *(tool.name for tool in all_tools(self.agent.sources))]

    def result(self, status: str, text: str = "") -> dict[str, Any]:
        """The `result` line, with the usage of the run so far."""
        return result_line(
            status,
            text,
            session_id=self.session_id,
            metrics=self._metrics,
            duration_s=self.kernel.clock.monotonic() - self._began_s if self._began_s else 0.0,
        )


def _session_hooks(hooks: AgentHooks, run: Headless) -> SessionHooks:
    from lyra.agents.headless.session_hooks import SessionHooks  # most runs have no hooks

    return SessionHooks(hooks, run.kernel, run.session_id)


def end_reason(error: BaseException | None) -> str:
    """The reason of a session's end, for its hooks."""
    if error is None:
        return "exit"
    return "cancelled" if isinstance(error, asyncio.CancelledError) else "error"


def _check_log(path: str, folder: str) -> None:
    """Refuse a log file that a project has put where programs act on it, or in place of a key."""
    parts = os.path.relpath(os.path.realpath(path), os.path.realpath(folder)).split("/")
    bad = NAMES.part("/".join(part for part in parts if part != ".lyra"))
    if ".." not in parts and bad is not None:
        raise ConfigError(
            f"the audit log {path} cannot be there: {bad} is protected", hint="such as .lyra/audit/", key="audit"
        )


def _listed(task: Content) -> list[Any]:
    return list(task) if isinstance(task, (list, tuple)) else [task]


def _ignore(_line: dict[str, Any]) -> None:
    """Drop the line."""


def awaiting(tell: Tell) -> Callable[[dict[str, Any]], Awaitable[None]]:
    async def say(line: dict[str, Any]) -> None:
        result = tell(line)
        if inspect.isawaitable(result):
            await result

    return say


def _agent(name: str, options: HeadlessOptions, config: Config, setup: HeadlessSetup) -> Agent:
    model = options.model or config.agent.model
    if not model:
        raise ConfigError(
            "no model is named",
            hint='say --model PROVIDER/MODEL, set LYRA_AGENT_MODEL, or write model = "…" under [agent] in lyra.toml',
            key="model",
        )
    check_model_name(model, known_to(config))
    system = options.system
    if system is None:
        system = default_prompt(setup.folder, setup.also, attended=options.attended)
    return Agent(
        name,
        model=model,
        system=system,
        tools=setup.tools,
        permissions=setup.permissions,
        memory=setup.memory,
        hooks=options.hooks,
        max_iterations=whole(options.max_turns, "max_turns", least=1, most=10**6),
        max_tokens=_ANSWER_TOKENS_MAX,
        output=options.output,
    )


async def _tier() -> str:
    """The sandbox tier that holds the commands of this run; `none` if there is none, and then no command runs."""
    from lyra.sandbox import Sandbox

    try:
        return await Sandbox().tier()
    except SandboxUnavailable:
        return "none"


# ---------------------------------------------------------------------- lines


def event_line(event: AgentEvent, *, progress: bool) -> dict[str, Any] | None:
    if isinstance(event, _SILENT) and not (progress and isinstance(event, ToolProgress)):
        return None
    if isinstance(event, Restart):  # the text so far is withdrawn: a reader that joins the pieces has to know
        message = "the answer broke off and begins again"
        return {"type": "error", "code": "restart", "message": message, "retracted": event.text}
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
    """The data of a `result` line. `turns` are model calls; `usage` and `cost_usd` include helpers."""
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
