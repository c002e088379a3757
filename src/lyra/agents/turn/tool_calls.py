"""The tool calls of one answer of the model: run together, their results in call order.

Each call is its own Effect, so that it is allowed or denied by the Grant, counted, journaled and never
repeated. A function that is not async runs in a thread. A call that fails does not stop the others; the model is told.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import msgspec

from lyra.agents.declaration.output import parts_of, to_plain_or_text
from lyra.agents.session.events import ToolEnded, ToolProgress, ToolStarted
from lyra.agents.session.open_questions import scopes
from lyra.agents.session.records import Held, new_span, tell_tool_call, tool_record, turn_span
from lyra.agents.session.replies import Sink, show_question
from lyra.agents.session.shared import AgentRuntime, home
from lyra.core.effect import Effect
from lyra.core.message import Message
from lyra.core.rights.capability import Grant
from lyra.core.secrets.redact import redact
from lyra.core.secrets.visible import without_invisible
from lyra.core.tool import (
    Tool,
    ToolCall,
    ToolResult,
    admitted,
    answering,
    caller,
    ending,
    error_code,
    hides,
    job_log,
    opened,
    progress,
    rights,
    unheld,
)
from lyra.core.trace_context import OpenSpan, TraceSpan
from lyra.errors import BudgetExceeded, CapabilityDenied, Denied, Divergence, LyraError, StoreError, ToolError
from lyra.kernel.base.acting import act_as
from lyra.kernel.process.cut_short import cut_short
from lyra.kernel.process.process import GIVEN_UP, Process
from lyra.kernel.process.replay import comes_next, current_branch, next_key, upcoming
from lyra.kernel.programs.context import Context
from lyra.kernel.programs.journaled_call import journal_wait, once
from lyra.tools.registry import Turns
from lyra.tools.tool_search import searchable
from lyra.tools.wrapped import calling, contain, invoke

if TYPE_CHECKING:
    from lyra.agents.declaration.hooks import HookOutcome
    from lyra.agents.session.session import AgentSession
    from lyra.agents.turn.turn import Turn
    from lyra.kernel.interrupts.service import Answer
    from lyra.kernel.kernel import Kernel


_OUTPUT_CHARS_MAX: Final = 200_000  # of one result; a model reads less than that in one go
_PROGRESS_CHARS_MAX: Final = 2_000  # of one progress report
_GIVEN_UP: Final = "given_up"
_SHOWN: Final = 300  # characters of a call's arguments, for a person who decides about it
_KEY_IN_CALL: Final = "a key of a model provider is in its arguments, and keys are given to no tool"
_WITHOUT_KEY: Final = "leave the key out, or tell the user what you would need it for"
_ENDS_TURN: Final = (BudgetExceeded, Divergence, StoreError)  # not told to the model: no other call of it helps


class ToolUse:
    """One call as the argument of its effect; the journal knows it by name and arguments."""

    __slots__ = ("call", "runtime", "tool")

    def __init__(self, runtime: AgentRuntime, tool: Tool, call: ToolCall) -> None:
        self.runtime = runtime
        self.tool = tool
        self.call = call

    def to_data(self) -> list[Any]:
        return [self.call.name, self.call.arguments]


async def run_tools(turn: Turn, calls: tuple[ToolCall, ...]) -> Message:
    """Run the calls; gives the message that tells the model their results."""
    session, process = turn.session, turn.process
    session.metrics.tool_calls += len(calls)
    session.judged = session.tainted  # whether the model had read text from outside when it made these calls
    session.judged_own = session.judged and not session.has_outside_text
    session.sink = turn.sink
    if len(calls) == 1:
        return Message("tool", tool_results=(await _run(turn, calls[0]),))
    turns = Turns(turn.agent.max_parallel_tools)
    wanted = [session.tools.get(call.name) for call in calls]
    alike = all(tool is None or tool.concurrency == "parallel" for tool in wanted)

    ended = [asyncio.Event() for _ in calls]

    async def run(number: int, call: ToolCall, tool: Tool | None) -> ToolResult | BaseException:
        try:
            return await run_in_order(number, call, tool)
        finally:
            ended[number].set()

    async def run_in_order(number: int, call: ToolCall, tool: Tool | None) -> ToolResult | BaseException:
        if not alike:  # they may begin in another order than the model's: each takes its branch number here, in order
            current_branch(process)
        if _is_of_files(tool):  # a test that is run after an edit finds it made, and a file that is read then, too
            for before, event in zip(wanted[:number], ended, strict=False):
                if _is_of_files(before) and before.concurrency == "sequential":
                    await event.wait()
        async with turns.take_turn(tool):
            try:
                return await _run(turn, call)
            except _ENDS_TURN as error:
                return error

    if _was_given_up(process):
        raise asyncio.CancelledError(GIVEN_UP)
    # Not a TaskGroup: that the calls are given up has to be in the journal before they are cancelled (after a crash in
    # between, a replay would wait for ever), and a program that is closed must not wait for them.
    start = turn.runtime.kernel.tasks.start
    numbered = enumerate(zip(calls, wanted, strict=True))
    tasks = [start(run(number, call, tool), name=call.name) for number, (call, tool) in numbered]
    try:
        await asyncio.wait(tasks)
    except asyncio.CancelledError as cancelled:
        if cancelled.args == (GIVEN_UP,):
            once(process, _GIVEN_UP, str(process.branches), _nothing)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        raise
    results = [task.result() for task in tasks]
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return Message("tool", tool_results=tuple(result for result in results if isinstance(result, ToolResult)))


def _is_of_files(tool: Tool | None) -> TypeGuard[Tool]:
    """Return whether a tool of Lyra's own reads or changes files, or runs commands that may."""
    return tool is not None and tool.builtin and not tool.harmless


def _was_given_up(process: Process) -> bool:
    """Whether, on a replay, the journal says next that these calls were given up.

    Then they are not begun again: the journal has the results of some, the others are unknown, and no caller waits for
    either. Their branches count as used, so that later branches have the same numbers as before.
    """
    replay = process.replay
    entry = replay.get(process.keys) if replay else None
    if replay is None or entry is None or entry.kind != _GIVEN_UP:
        return False
    process.branches = int(entry.name)
    for key in [key for key in replay if isinstance(key, str) and _branch(key) < process.branches]:
        del replay[key]
    once(process, _GIVEN_UP, "", _nothing)
    return True


def _branch(key: str) -> int:
    number = key.partition("/")[0]
    return int(number) if number.isdecimal() else sys.maxsize  # the key of a question belongs to no branch


def _nothing() -> None:
    """Do nothing: the row is all."""


async def _run(turn: Turn, call: ToolCall) -> ToolResult:
    """Run one call. If events have a listener, it has a span: its own, or the turn's if tool events have none."""
    session, kernel = turn.session, turn.runtime.kernel
    heard = turn.process.core.agents_heard
    if not heard or turn.process.replay is not None:
        return await _call(turn, call)
    if "tool.called" not in heard:
        with OpenSpan(turn_span(kernel, session)):
            return await _call(turn, call)
    span_id, began_s = new_span(kernel), kernel.clock.monotonic()
    error, result = "cancelled", None
    try:
        with OpenSpan(TraceSpan(turn_span(kernel, session).trace_id, span_id, session.sampled)):
            result = await _call(turn, call)
        error = (result.error_code or "error") if result.is_error else ""
        return result
    except LyraError as failure:
        error = failure.code
        raise
    finally:
        if not kernel.stopping:
            tell_tool_call(turn.runtime, span_id, call, result)
            record = tool_record(kernel, session, call, span_id=span_id, began_s=began_s, error=error)
            kernel.publish(turn.ctx.pid, "tool.called", record)


async def _call(turn: Turn, asked: ToolCall) -> ToolResult:
    """Return the result of one call, as the model is told it; a tool's error is a result too."""
    session, sink = turn.session, turn.sink
    tool = session.tools.get(asked.name)
    problem = _problem(session, asked, tool)
    call, hook = asked, None
    may_run = not problem and not asked.masked
    if may_run and turn.has_hooks:
        from lyra.agents.turn.hook_points import before_tool

        call, hook = await before_tool(turn, asked)
    if sink is not None:
        sink.put(ToolStarted(call.id, call.name, turn.runtime.clean_data(call.arguments)))
    if tool is None or problem:
        code = "invalid_arguments" if call.problem else "not_found"
        result = ToolResult(call.id, call.name, turn.runtime.clean(problem), True, code)
    else:
        result, call = await _result(turn, tool, call, hook, asked=asked)
    if may_run and turn.has_hooks:
        from lyra.agents.turn.hook_points import after_tool

        result = await after_tool(turn, call, result, hook)
    if result.is_error:
        session.metrics.tool_errors += 1
    if sink is not None:
        sink.put(ToolEnded(result.id, result.name, result.output, result.is_error, result.error_code))
    return result


_CALL_AGAIN: Final = "Make the call again with valid JSON; where it is long, do it in several smaller calls."


def _problem(session: AgentSession, call: ToolCall, tool: Tool | None) -> str:
    """Return why a call cannot be made, in words for the model; "" where it can."""
    if call.problem:
        return f"the call was not run: {call.problem}. {_CALL_AGAIN}"
    if tool is None:
        known = ", ".join(session.tools.names) or "none"
        return f"there is no tool {call.name!r}; there are: {known}"
    if session.tools.is_hidden(tool, session.messages):
        return f"tool {call.name!r} has not been looked up; find it with ToolSearch: select:{call.name}"
    return ""


async def _result(
    turn: Turn, tool: Tool, call: ToolCall, hook: HookOutcome | None, *, asked: ToolCall
) -> tuple[ToolResult, ToolCall]:
    """Decide on a call and run it; gives its result, and the call as it ran. `hook` is what hooks decided before,
    `asked` the call as the model made it."""
    runtime, session, process = turn.runtime, turn.session, turn.process
    replaying, taints = turn.ctx.replaying, _taints(session, tool)
    is_changed = hook is not None and call.arguments != asked.arguments
    is_own_text = False
    deciding = call.masked  # while a call is decided on, error messages are Lyra's own words
    try:
        if call.masked:
            raise CapabilityDenied(f"{call.name} was not run: {_KEY_IN_CALL}", hint=_WITHOUT_KEY)
        is_stopped = hook is not None and hook.decision in ("deny", "ask")
        decided_on = session.judges(tool) or session.outer or session.limits or is_stopped
        if not decided_on and not (replaying and comes_next(process, "read")):
            output = await _output(turn, tool, call, process.grant)
        else:
            deciding = True
            caller.set(turn.ctx.pid)
            from lyra.agents.turn.admission import admit  # late: it brings the permission rules and their readers

            allowed = await admit(turn, tool, call, hook)
            deciding, call, is_changed = False, allowed.call, is_changed or allowed.is_edited
            is_own_text = allowed.is_own_text
            with (
                Held(admitted, allowed.path),
                Held(hides, allowed.hides),
                Held(opened, allowed.opened),
                Held(unheld, allowed.unheld),
            ):
                output = await _output(turn, tool, call, allowed.rights)
        if is_changed:
            output = _with_changes(call, output)
        result = ToolResult(call.id, call.name, _render_output(runtime, output))
    except _ENDS_TURN:
        raise
    except Exception as error:  # a tool may raise anything; the model is told
        if process.out_of_time:  # the agent's time is up, not the tool's: the turn ends
            raise
        result = ToolResult(call.id, call.name, _sentence(runtime, error), True, error_code(error))
        taints = taints and not (deciding and isinstance(error, (Denied, ToolError)))
        if result.error_code == "permission_denied" and not (replaying and turn.ctx.replaying):
            from lyra.agents.turn.approval import publish_refusal

            publish_refusal(runtime, process, call, error)
    if session.tools.shows_foreign(tool, result.output):
        session.taint(tool.name)
    elif taints:
        session.taint(tool.name, own=is_own_text and not _lists_packages(call, result))
    return result, call


def _lists_packages(call: ToolCall, result: ToolResult) -> bool:
    """Return whether a search has found something in installed packages."""
    if call.name not in ("Grep", "Glob") or not isinstance(result.output, str):
        return False
    from lyra.tools.permissions.subjects import names_packages

    return names_packages(result.output)


def _with_changes(call: ToolCall, output: Any) -> Any:
    """Return the output behind a line that tells the model which arguments the call really had."""
    told = f"(the call was changed before it ran, to {msgspec.json.encode(call.arguments).decode()})"
    if _has_image(output):
        return [{"type": "text", "text": told}, *output]
    return f"{told}\n{output if isinstance(output, str) else msgspec.json.encode(output, enc_hook=str).decode()}"


class _ToolContext(Context):
    """The agent's ctx as a tool gets it: its questions are events of the answer's stream, too."""

    __slots__ = ("_call", "_sink")

    def __init__(self, ctx: Context, sink: Sink | None, call: ToolCall) -> None:
        super().__init__(ctx.own_process)
        self._sink = sink
        self._call = call

    @property
    def call_id(self) -> str:
        """The id of the tool call, as the model gave it."""
        return self._call.id

    def ask(self, question: str, kind: str = "clarification", *, message: str = "") -> Awaitable[Answer]:
        process = self.own_process
        answer: Awaitable[Answer] = process.kernel.interrupts.ask(
            process, kind=kind, key=next_key(process), question=question, message=message, asked=self._tell
        )
        return answer

    def _tell(self, interrupt_id: str) -> bool:
        about = {"call_id": self._call.id}
        return show_question(self._sink, self.own_process, interrupt_id, about)


class _ProgressReports:
    """Puts a running tool's progress reports into the answer's stream, from any thread."""

    __slots__ = ("_call", "_runtime", "_sink")

    def __init__(self, runtime: AgentRuntime, sink: Sink, call: ToolCall) -> None:
        self._runtime = runtime
        self._sink = sink
        self._call = call

    def __call__(self, text: str, fraction: float | None = None) -> None:
        if fraction is not None:
            fraction = min(1.0, max(0.0, float(fraction)))
        text = self._runtime.clean(str(text))[:_PROGRESS_CHARS_MAX]
        event = ToolProgress(self._call.id, self._call.name, text, fraction)
        loop = self._runtime.kernel.loop
        if asyncio._get_running_loop() is loop:
            self._put(event)
        else:
            with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
                loop.call_soon_threadsafe(self._put, event)

    def _put(self, event: ToolProgress) -> None:
        if not self._sink.full:  # a slow reader misses progress reports, not results
            self._sink.put(event)


def _taints(session: AgentSession, tool: Tool) -> bool:
    """Return whether the tool's output taints the session: where calls are decided on, the output of every tool does
    that is not declared trusted."""
    return tool.untrusted or (not tool.trusted and session.is_wary)


async def _output(turn: Turn, tool: Tool, call: ToolCall, grant: Grant) -> Any:
    """Run a tool as one effect. A tool that takes `ctx` is a part of the program instead: an effect admits it, then it
    runs in place, so that each act through `ctx` is an effect, a question or its own process."""
    runtime, sink = turn.runtime, turn.sink
    caller.set(turn.ctx.pid)
    act_as(turn.process)
    home.set(runtime)
    rights.set(grant)
    ending.set(partial(cleanups_of(runtime.kernel).add, turn.process))
    job_log.set(runtime.job_log)
    searchable.set(turn.session.tools.list_deferred)
    if tool.guarded:
        from lyra.agents.turn.callbacks import Callbacks

        answering.set(Callbacks(turn))
    if sink is not None:
        progress.set(_ProgressReports(runtime, sink, call))
    use = ToolUse(runtime, tool, call)
    inside = "ctx" in getattr(tool.run, "takes", ())
    with Held(scopes, turn.scopes):  # agents that the tool asks draw on the caller's budgets too
        output = await turn.ctx.do(_effect(turn.session, tool, inside=inside), use)
        if not inside or output is not None:  # in a fork the journal may have another output of a tool inside
            return output
        assert tool.run is not None
        work = contain(tool, tool.run(**call.arguments, ctx=_ToolContext(turn.ctx, sink, call)))
        return await record_output(turn.process, work, runtime.clean_data)


def _effect(session: AgentSession, tool: Tool, *, inside: bool) -> Effect:
    known = session.tool_effects.get(tool.name)
    if known is None or known[0] is not tool:  # new, or another tool under its name since its file has changed
        keyed = "idempotency_key" in getattr(tool.run, "takes", ())
        effect = Effect(
            _admit if inside else _perform_keyed if keyed else _perform,
            name=f"tool:{tool.name}",
            needs=tool.needs_for({}) if tool.needs_of is None else lambda use: tool.needs_for(use.call.arguments),
            idempotent=inside or tool.idempotent,
            cost={"tool_calls": 1},
            timeout_s=tool.timeout_s,
            about=_about,
        )
        known = session.tool_effects[tool.name] = (tool, effect)
    return known[1]


def _about(use: ToolUse) -> str:
    """Return the call as a person reads it, known keys masked."""
    given = ", ".join(f"{name}: {value!r}" for name, value in use.call.arguments.items())
    shown = redact(given, use.runtime.known)
    return f"tool:{use.tool.name}({shown if len(shown) <= _SHOWN else shown[:_SHOWN] + '…'})"


async def _admit(use: ToolUse) -> None:
    """Do nothing: the effect only has the call allowed, counted and journaled."""


async def _perform_keyed(use: ToolUse, idempotency_key: str) -> Any:
    return await _perform(use, idempotency_key=idempotency_key)


async def _perform(use: ToolUse, **hidden: str) -> Any:
    calling.set(use.call)
    arguments = {**use.call.arguments, **hidden}
    try:
        return use.runtime.clean_data(parts_of(await invoke(use.tool, arguments, threads=use.runtime.threads)))
    except Exception as error:
        message = str(error)
        if use.runtime.clean(message) == message:
            raise
        # The message goes into the journal and to the model: without the key that is in it.
        raise ToolError(use.runtime.clean(f"{type(error).__name__}: {message}"), tool=use.tool.name) from None


def _render_output(runtime: AgentRuntime, output: Any) -> Any:
    """Return the output as the model reads it: text, images among texts, or JSON of anything else; known keys masked,
    characters that no screen shows left out, long text shortened."""
    if _has_image(output):
        return [_text_shown(runtime, part) for part in output]
    if output is None:
        text = ""
    elif isinstance(output, str):
        text = output
    else:
        text = msgspec.json.encode(output, enc_hook=to_plain_or_text).decode()
    text = runtime.clean(text)
    if len(text) > _OUTPUT_CHARS_MAX:
        half = _OUTPUT_CHARS_MAX // 2
        text = f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"
    # The text without invisible characters, and how many there were: an edit of a file has to know.
    visible_text = without_invisible(text, keep_controls=True)
    count = len(text) - len(visible_text)
    return f"{visible_text}\n({count} invisible characters were left out)" if count else text


def _has_image(output: Any) -> bool:
    if not isinstance(output, list):
        return False
    kinds = [part.get("type") if isinstance(part, dict) else None for part in output]
    return "image" in kinds and all(kind in ("image", "text") for kind in kinds)


def _text_shown(runtime: AgentRuntime, part: dict[str, Any]) -> dict[str, Any]:
    return part if part["type"] == "image" else {**part, "text": _render_output(runtime, part.get("text"))}


def _sentence(runtime: AgentRuntime, error: Exception) -> str:
    if isinstance(error, LyraError):
        sentence = f"{error.message}. {error.hint}" if error.hint else error.message
    else:
        sentence = f"{type(error).__name__}: {error}"
    return without_invisible(runtime.clean(sentence), keep_controls=True)


# The output of a tool that is a part of the program (it takes `ctx`), on record.

OUTPUT: Final = "output"  # the row


async def record_output(process: Process, work: Awaitable[Any], clean: Callable[[Any], Any]) -> Any:
    """Return the output of the tool, once its row is written; an error has a row, too. `clean` masks keys in plain
    data."""
    try:
        output = parts_of(await work)
    except (Divergence, StoreError):  # no outcome of the tool: the process stands still
        raise
    except Exception as error:
        if _has_row(process):
            cut_short(process, next_key(process), error, form="read", name=OUTPUT)
        raise
    if process.core.journal is not None and _has_row(process):

        async def row() -> Any:
            return clean(_to_builtins(output))

        await journal_wait(process, OUTPUT, row)
    return output


def _to_builtins(output: Any) -> Any:
    try:
        return msgspec.to_builtins(output, enc_hook=to_plain_or_text)
    except (TypeError, ValueError, RecursionError):
        return str(output)


def _has_row(process: Process) -> bool:
    """Return whether a row is to be written, or the journal has it next."""
    entry = upcoming(process)
    return entry is None or (entry.kind, entry.name) == ("read", OUTPUT)


# Cleanups: what has to stop when a process ends, such as a command that a tool left running in the background.

_PART: Final = "endings"
_CLOSE_S: Final = 5.0
_log: Final = logging.getLogger("lyra.agents")


def cleanups_of(kernel: Kernel) -> Cleanups:
    cleanups: Cleanups | None = kernel.parts.get(_PART)
    if cleanups is None:
        cleanups = kernel.parts[_PART] = Cleanups()
    return cleanups


class Cleanups:
    """The cleanups of one kernel's processes; closed with the kernel."""

    __slots__ = ("_by_pid",)

    def __init__(self) -> None:
        self._by_pid: dict[str, list[Callable[[], Any]]] = {}

    def add(self, process: Process, cleanup: Callable[[], Any]) -> None:
        cleanups = self._by_pid.get(process.pid)
        if cleanups is None:
            cleanups = self._by_pid[process.pid] = []
            process.watch((self._process_ended, None))
        cleanups.append(cleanup)

    def end(self, process: Process) -> None:
        """Run the cleanups of a process that lives on. Those that it adds later run when it ends."""
        cleanups = self._by_pid.get(process.pid)
        if cleanups:
            _run_cleanup(cleanups)
            cleanups.clear()

    def _process_ended(self, process: Process) -> None:
        _run_cleanup(self._by_pid.pop(process.pid, ()))

    async def close(self) -> None:
        waiting = _run_cleanup([cleanup for cleanups in self._by_pid.values() for cleanup in cleanups])
        self._by_pid.clear()
        if waiting:
            await asyncio.wait(waiting, timeout=_CLOSE_S)


def _run_cleanup(cleanups: Iterable[Callable[[], Any]]) -> list[asyncio.Future[Any]]:
    """Call each of them, also where another one fails; gives the futures to wait for."""
    waiting: list[asyncio.Future[Any]] = []
    for cleanup in cleanups:
        try:
            waiting += cleanup() or ()
        except Exception:  # noqa: BLE001 - a cleanup that fails must not keep the others from running
            _log.exception("what a tool left running could not be ended")
    return waiting
