"""Headless: one agent with the built-in tools in a folder, without a person who answers questions.

    async with Headless(HeadlessOptions(model="sim/echo", folder=".")) as run:
        outcome = await run.ask("Fix the failing test", tell=print)

`tell` is called with every event as a plain mapping, `system` first and `result` last. A call that no rule
allows is denied, the model is told, and the run continues. The run is its own process kernel, and all that it
started ends with it.

`options` are what is asked for; `setup` makes of them the agent, what it may touch, and the logs of decisions. Next:
`lyra.cli.commands.agent`, which prints the events.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, cast

import msgspec

from lyra._version import __version__
from lyra.agents.declaration.hooks import AgentHooks, HookOutcome
from lyra.agents.declaration.output import Content
from lyra.agents.headless.options import HeadlessOptions
from lyra.agents.headless.setup import AuditLogs, HeadlessSetup, agent_of, all_tools, setup_of
from lyra.agents.session.agent_process import AgentProcess
from lyra.agents.session.events import (
    AgentEvent,
    AnswerDone,
    AnswerFailed,
    AnyLine,
    DeniedCall,
    ErrorLine,
    HookNotice,
    NoticeLine,
    Restart,
    ResultLine,
    SystemLine,
    ToolProgress,
    line_of,
)
from lyra.agents.session.replies import Stream
from lyra.agents.session.session import Metrics
from lyra.agents.session.shared import runtime_of
from lyra.config import Config
from lyra.core.budgets.budget import Limits
from lyra.core.event import Event
from lyra.core.ids import Entropy
from lyra.core.secrets.redact import redact, redact_data
from lyra.core.secrets.secret import Secret
from lyra.errors import AgentFailed, LimitExceeded, LyraError, SandboxUnavailable
from lyra.kernel.base.subsystem import State
from lyra.kernel.kernel import Kernel
from lyra.kernel.seams import Seams
from lyra.models.stream import CUT_BY_BUDGET, CUT_BY_PROVIDER

if TYPE_CHECKING:
    from lyra.agents.turn.unfinished import UnfinishedTurn


_NO_PERSON: Final = "no person is there to be asked"
_REPLAY_S: Final = 60.0  # for a conversation to be read back
_OUT_OF_TURNS: Final = "max_turns"


class Headless:
    """A kernel with one agent process in it, from `async with` to its end."""

    def __init__(
        self, options: HeadlessOptions, config: Config | None = None, *, states: tuple[State, ...] = ()
    ) -> None:
        """`states` keep facts of the layers above in the kernel's store."""
        self.options = options
        self.config = config if config is not None else Config.load(options.folder, trust=options.trust)
        self._logs = AuditLogs(options, self.config)
        self.setup: HeadlessSetup = setup_of(options, self.config, logs=self._logs.paths)
        # The agent has this name too: sessions of earlier runs in the same store have other names, and are not resumed.
        self.session_id = options.session or f"session-{Entropy().text(12)}"
        self.agent = agent_of(self.session_id, options, self.config, self.setup)
        # The program becomes known when the process is spawned: what an earlier run left unfinished is read before.
        self.kernel = Kernel.from_config(self.config, store=options.store, seams=Seams(states=states))
        self.process: AgentProcess | None = None
        self.hooks = None if options.hooks is None else SessionHooks(options.hooks, self.kernel, self.session_id)
        self.unfinished: UnfinishedTurn | None = None  # of an earlier run, which was cut off in the middle
        self._stream: Stream[Any, Any] | None = None
        self._is_stopped = False
        self.failure: LyraError | None = None  # of the last task
        self._seen = _SeenLines()  # of the last task
        self._metrics = Metrics()
        self._began_s = 0.0
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self.kernel)
            self._logs.attach(self.kernel)
            if not self.options.attended:
                stack.callback(self.kernel.on_event(self._on_question, kinds=("interrupt.created",)))
            stack.callback(self.kernel.on_event(self._regrant, kinds=("tools.changed",)))
            options = {"budget": self.options.budget} if self.options.budget is not None else {}
            self._stop_unfinished()
            self.process = await self.kernel.spawn(self.agent, pid=self.session_id, grant=self.setup.grant, **options)
            await self._wait_for_replay()
            if self.hooks is not None:
                hooks = self.hooks
                if self.options.attended:  # without a person a question is cancelled at once
                    stack.callback(hooks.listen())
                if not self.options.session:
                    await hooks.start("new", model=str(self.agent.model))
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

    def _stop_unfinished(self) -> None:
        """Stop a turn that an earlier run was in, instead of continuing it: the person who comes back says what comes
        next."""
        if not self.options.session or self.session_id not in self.kernel.processes:
            return
        from lyra.agents.turn.unfinished import find_unfinished_turn, withdraw, withdraw_order

        withdraw_order(self.kernel, self.session_id)
        self.unfinished = find_unfinished_turn(self.kernel, self.session_id)
        if self.unfinished is not None:
            withdraw(self.kernel, self.session_id, self.unfinished)

    async def _wait_for_replay(self) -> None:
        """Wait until a process of an earlier run has its conversation again. What it waits for then is a message."""
        assert self.process is not None
        process = self.kernel.processes.get(self.session_id)
        deadline_s = self.kernel.clock.monotonic() + _REPLAY_S
        while self.options.session and process is not None and process.replay is not None and process.exit is None:
            if self.kernel.clock.monotonic() > deadline_s:
                return
            await asyncio.sleep(0)

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
        say = awaiting(tell or (lambda _line: None))
        result: ResultLine | None = None
        if opening:
            await say(await self.opening())
        async with contextlib.aclosing(self.lines(task, beside=beside)) as lines:
            async for line in lines:
                await say(line)
                if line["type"] == "result":
                    result = line
        assert result is not None, "a run ends with its result"
        return HeadlessOutcome(result, self.failure)

    async def lines(
        self,
        task: Content,
        *,
        beside: str = "",
        own: str = "",
        budget: Limits | None = None,
        only: Sequence[str] | None = None,
    ) -> AsyncGenerator[AnyLine, None]:
        """Yield what happens while the agent works on a task, one mapping a line; the last one is the `result`. `own`
        is text beside the task that is of the user's own project, `beside` any other. `budget` is for this task alone,
        and so are the rules `only`: no other call is allowed."""
        assert self.process is not None
        if beside.strip() or own.strip():
            self.kernel.taint.mark(self.session_id, "text beside the task", own=not beside.strip())
            beside = "\n\n".join(filter(str.strip, (own, beside)))
            task = f"{task}\n\n{beside}" if isinstance(task, str) else [*_to_list(task), beside]
        self._began_s = self.kernel.clock.monotonic()
        if self.hooks is not None:
            self.hooks.work()
        context = "" if self.hooks is None else self.hooks.take_context()
        if context:
            task = f"{task}\n\n{context}" if isinstance(task, str) else [*_to_list(task), context]
        for notice in [*self._notices(), *await self._wait_for_servers()]:
            yield notice
        self._is_stopped, self.failure, self._seen = False, None, _SeenLines()
        text, value, status = "", None, "success"
        stream = self._stream = self.process.stream(task, events=True, budget=budget, only=only)
        try:
            async with contextlib.aclosing(aiter(stream)) as events:  # type: ignore[type-var]  # it is a generator
                async for event in events:
                    self._metrics = self.process.metrics if self.process.alive else self._metrics
                    if isinstance(event, AnswerDone):
                        text, status = event.text, event.status
                    line = event_line(event, progress=self.options.attended)
                    if line is not None:
                        self._seen.see(line)
                        yield line
            value = await stream
            if status == CUT_BY_PROVIDER:
                self.failure = cut_answer(self.agent.max_tokens)
        except LyraError as failure:
            self.failure = redact_error(self._limit(failure), runtime_of(self.kernel).known)
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
        yield self._last_line(text, value, status)

    async def _wait_for_servers(self) -> list[NoticeLine]:
        """Wait a few seconds for sources of tools that connect in the background, and tell which are left out."""
        late: list[str] = []
        for source in self.options.tools:
            if (settle := getattr(source, "settle", None)) is not None:
                late += await settle()
        return [{"type": "notice", "text": late_servers(late), "level": "warning", "source": "mcp"}] if late else []

    def _notices(self) -> list[NoticeLine]:
        """Return what hooks outside a turn have said to the user since the last line of this kind."""
        notices = [] if self.hooks is None else self.hooks.take_notices()
        return [{"type": "notice", "text": notice.text, "level": notice.level} for notice in notices]

    def stop(self) -> bool:
        """Stop the task that is under way: its `lines` end with the status `interrupted`. False where there is none."""
        stream = self._stream
        if stream is None or stream.pending is None:
            return False
        self._is_stopped = True
        return stream.pending.cancel()

    def _last_line(self, text: str, value: Any, ended: str) -> ResultLine:
        """Return the `result` line; `ended` is how the answer ended, also where it was cut off."""
        error = self.failure
        status = "interrupted" if self._is_stopped else "success" if error is None else status_of(error)
        result = self.result(status, text)
        if self.options.output is not None and (error is None or is_cut_answer(error)) and not self._is_stopped:
            result["output"] = msgspec.to_builtins(value)
        if value is not None and ended in (CUT_BY_PROVIDER, CUT_BY_BUDGET):
            result["cut_off"] = ended
        self._seen.add_to(result)
        return with_error(result, error)

    def _limit(self, failure: LyraError) -> LyraError:
        """Report an agent that used up its turns as a limit of this run."""
        if not isinstance(failure, AgentFailed) or failure.fields.get("status") != "max_iterations":
            return failure
        turns = self.options.max_turns
        message = f"the task was not done within {turns} turn{'' if turns == 1 else 's'} of the model"
        return LimitExceeded(
            message, hint="raise --max-turns, or give a smaller task", status=_OUT_OF_TURNS, limit=turns
        )

    async def opening(self) -> SystemLine:
        """Return the `system` line: the model, the folders, the tools, the permission mode and the sandbox."""
        line: SystemLine = {
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
        }
        return cast("SystemLine", {**line, **self.options.facts})

    def tool_names(self) -> list[str]:
        """Return the names of the tools there are now; a source may have others later."""
        return [*self.agent.tools, *(tool.name for tool in all_tools(self.agent.sources))]

    def result(self, status: str, text: str = "") -> ResultLine:
        """Return the `result` line, with the usage of the run so far."""
        return result_line(
            status,
            text,
            session_id=self.session_id,
            metrics=self._metrics,
            duration_s=self.kernel.clock.monotonic() - self._began_s if self._began_s else 0.0,
        )


def end_reason(error: BaseException | None) -> str:
    """Return the reason of a session's end, for its hooks."""
    if error is None:
        return "exit"
    return "cancelled" if isinstance(error, asyncio.CancelledError) else "error"


def _to_list(task: Content) -> list[Any]:
    return list(task) if isinstance(task, (list, tuple)) else [task]


async def _tier() -> str:
    """Return the sandbox tier that holds the commands of this run; `none` if there is none, and then no command
    runs."""
    from lyra.sandbox import Sandbox

    try:
        return await Sandbox().tier()
    except SandboxUnavailable:
        return "none"


def late_servers(names: Sequence[str]) -> str:
    """Return a sentence about MCP servers that a turn did not wait for."""
    return (
        f"MCP servers that do not answer yet: {', '.join(names)}; it goes on without them, and their tools come later"
    )


class _SeenLines:
    """What the `result` of a task says of the lines before it."""

    __slots__ = ("_calls", "_denied", "_retries")

    def __init__(self) -> None:
        self._calls: dict[str, dict[str, Any]] = {}  # arguments of calls under way, by id
        self._denied: list[DeniedCall] = []
        self._retries = 0

    def see(self, line: AnyLine) -> None:
        if line["type"] == "retry":
            self._retries += 1
        elif line["type"] == "tool_start":
            self._calls[line["id"]] = line["arguments"]
        elif line["type"] == "tool_end":
            arguments = self._calls.pop(line["id"], {})
            if line.get("error_code") == "permission_denied":
                reason = str(line["output"])
                self._denied.append({"tool": line["name"], "arguments": arguments, "reason": reason})

    def add_to(self, result: ResultLine) -> None:
        if self._denied:
            result["denied"] = self._denied
        if self._retries:
            result["retries"] = self._retries


# ---------------------------------------------------------------- lines
# The lines of a run: plain mappings that faces print or show, from events, from errors and from what was spent.

_SILENT: Final = (AnswerDone, AnswerFailed, ToolProgress)  # the lines `result` and `error` say more than the first two

Tell = Callable[[AnyLine], Any]  # an awaitable result is awaited


class HeadlessOutcome(NamedTuple):
    """The `result` line, and the error that it represents."""

    result: ResultLine
    error: LyraError | None = None

    @property
    def has_answer(self) -> bool:
        """Whether the text of the result is the model's answer, which may have been cut off."""
        return self.error is None or is_cut_answer(self.error)


def cut_answer(max_tokens: int | None) -> LimitExceeded:
    """Return the error beside an answer that its provider cut off at its longest."""
    longest = "" if max_tokens is None else f" of {max_tokens} tokens"
    return LimitExceeded(
        f"the answer was cut off at its longest{longest}",
        hint="ask it to go on, or for less at once",
        status=CUT_BY_PROVIDER,
        limit=max_tokens,
    )


def is_cut_answer(error: LyraError) -> bool:
    return type(error) is LimitExceeded and error.fields.get("status") == CUT_BY_PROVIDER


def status_of(error: LyraError) -> str:
    """Return the word for a failure: its code, or the status of an agent that gave no answer."""
    status = error.fields.get("status") if type(error) in (AgentFailed, LimitExceeded) else None
    return str(status or error.code)


def awaiting(tell: Tell) -> Callable[[AnyLine], Awaitable[None]]:
    """Return the function as one that is always awaited."""

    async def say(line: AnyLine) -> None:
        result = tell(line)
        if inspect.isawaitable(result):
            await result

    return say


def event_line(event: AgentEvent, *, progress: bool) -> AnyLine | None:
    if isinstance(event, _SILENT) and not (progress and isinstance(event, ToolProgress)):
        return None
    if isinstance(event, Restart):  # the text so far is withdrawn: a reader that joins the pieces has to know
        message = "the answer broke off and begins again"
        return {"type": "error", "code": "restart", "message": message, "retracted": event.text}
    return line_of(event)


def redact_error(error: LyraError, secrets: Iterable[str | Secret]) -> LyraError:
    """Mask keys in the words and fields of an error: a provider may repeat the key that it refuses."""
    known = tuple(secrets)
    error.message = redact(error.message, known)
    error.args = (error.message,)
    error.hint = redact(error.hint, known) if error.hint else error.hint
    error.place = redact(error.place, known) if error.place else error.place
    error.fields = redact_data(error.fields, known)
    return error


def error_line(error: LyraError, secrets: Iterable[str | Secret] = ()) -> ErrorLine:
    """Return the data of an `error` line, with the secrets and everything in the form of a key masked."""
    known = tuple(secrets)
    line: ErrorLine = {"type": "error", "code": status_of(error), "message": redact(error.message, known)}
    if error.hint:
        line["hint"] = redact(error.hint, known)
    if error.place:
        line["place"] = redact(error.place, known)
    if error.fields.get("kind"):
        line["kind"] = redact(str(error.fields["kind"]), known)
    return line


def with_error(result: ResultLine, error: LyraError | None) -> ResultLine:
    """Return the `result` of a run with its error, if there is one; then it also has the denied calls and the tries."""
    if error is not None:
        line = error_line(error)
        result["error"] = {"code": line["code"], "message": line["message"]}
        if "hint" in line:
            result["error"]["hint"] = line["hint"]
        result.setdefault("denied", [])
        result.setdefault("retries", 0)
    return result


def result_line(
    status: str, text: str = "", *, session_id: str = "", metrics: Metrics | None = None, duration_s: float = 0.0
) -> ResultLine:
    """Return the data of a `result` line. `turns` are model calls; `usage` and `cost_usd` include helpers."""
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


# ---------------------------------------------------------------- session hooks
# SessionHooks: the hooks of a session outside its turns: SessionStart, SessionEnd and Notification.

_END_S: Final = 5.0  # for all hooks of SessionEnd: the user waits for the program to end
_NOTICES_MAX: Final = 100
_IDLE_S: Final = 60.0  # without a message, until hooks are told of it
_IDLE: Final = "the session waits for a message"


class SessionHooks:
    def __init__(self, hooks: AgentHooks, kernel: Kernel, session_id: str) -> None:
        self._hooks = hooks
        self._kernel = kernel
        self.session_id = session_id
        self._context: list[str] = []
        self._notices: list[HookNotice] = []
        self._idle: asyncio.TimerHandle | None = None

    async def start(self, source: str, *, model: str) -> None:
        """Tell the hooks that a session begins (`new`), continues after a restart (`resume`), or has an empty
        conversation (`clear`)."""
        outcome = await self._run("SessionStart", {"source": source, "model": model})
        if outcome is not None and outcome.context:
            self._context.append(f"[added by a hook]\n{outcome.context}")
            if outcome.tainted:
                self._kernel.taint.mark(self.session_id, "hook for SessionStart")

    async def end(self, reason: str) -> None:
        """Tell the hooks that the session ends: `exit`, `error`, `cancelled` or `clear`."""
        self.work()
        try:
            async with asyncio.timeout(_END_S):
                await self._run("SessionEnd", {"reason": reason})
        except TimeoutError:
            self._notices.append(HookNotice(f"the hooks for SessionEnd took longer than {_END_S:g} s", "warning"))

    def notify(self, kind: str, message: str) -> None:
        """Tell hooks that the user is waited for, in a task of the kernel: `question` or `idle`."""
        fields = {"kind": kind, "message": message}
        self._kernel.tasks.start(self._run("Notification", fields), name="hook for Notification")

    def wait(self) -> None:
        """Note that a turn is over: notify hooks if no message comes for a minute."""
        self.work()
        self._idle = self._kernel.loop.call_later(_IDLE_S, self.notify, "idle", _IDLE)

    def work(self) -> None:
        """Stop waiting for the user: a turn begins, or there will be none."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def listen(self) -> Callable[[], None]:
        """Notify hooks of each question to a person; gives the function that ends this."""
        return self._kernel.on_event(self._on_question, kinds=("interrupt.created",))

    def _on_question(self, event: Event) -> None:
        """Later: a listener must not act on the kernel."""
        self._kernel.loop.call_soon(self.notify, "question", str(event.data["question"]))

    def take_context(self) -> str:
        """Return what hooks have added for the model since the last call."""
        context, self._context = "\n\n".join(self._context), []
        return context

    def take_over(self, earlier: SessionHooks) -> None:
        """Take over what waits in another one: the session continues in another kernel."""
        self._context += earlier._context
        self._notices += earlier._notices

    def take_notices(self) -> list[HookNotice]:
        """Return what hooks have said to the user since the last call."""
        notices, self._notices = self._notices[-_NOTICES_MAX:], []
        return notices

    async def _run(self, event: str, fields: dict[str, Any]) -> HookOutcome | None:
        runtime = runtime_of(self._kernel)
        data = runtime.clean_data({"event": event, "session_id": self.session_id, **fields})
        if self._hooks.status_for(event, data) is None:
            return None
        try:
            outcome = await self._hooks.run(event, data)
        except Exception as error:  # noqa: BLE001 - outside a turn there is nothing to deny: the session continues
            outcome = HookOutcome(warnings=(f"the hooks for {event} failed: {type(error).__name__}: {error}",))
        from lyra.agents.turn.hook_points import safe_outcome  # not before there are hooks

        outcome = safe_outcome(runtime, outcome)
        self._notices += [HookNotice(text) for text in outcome.messages]
        self._notices += [HookNotice(text, "warning") for text in outcome.warnings]
        return outcome
