"""TaskRuns: the sub-agents of an open session as processes: begun, asked, followed, stopped.

A sub-agent is a conversation in its own process, a child of its caller. Its pid is the id of the task and stays.
Each message to it is a request; how that ended is a fact of `TaskState`, written in the same batch of the journal as
the end of its turn. A caller that waits takes it from there, so an answer that came before a crash is neither lost nor
given twice. What a turn without an answer had done stays in the conversation, for the message that resumes it. When a
session is opened again, sub-agents that were working continue as soon as `open` makes their program known.
`TaskCommands` has the background commands, `TaskWorktrees` the worktrees of sub-agents.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lyra.agents.session.agent_process import AgentProcess, EventFeed
from lyra.agents.session.events import AgentEvent
from lyra.agents.session.open_questions import scopes
from lyra.agents.session.replies import FeedSink, Pending, last_answer
from lyra.agents.session.shared import AgentRuntime, runtime_of
from lyra.agents.turn.tool_calls import cleanups_of
from lyra.core.own_files import make_folder
from lyra.core.policies.retry import RETRYABLE, error_class
from lyra.errors import CircuitOpen, ConfigError, LyraError, ModelError, Overloaded, RateLimited
from lyra.sage.agent.tasks.placed import Placer
from lyra.sage.agent.tasks.state import COUNTED, StoredTask, TaskState
from lyra.sage.agent.tasks.sub_agents import TaskSpec, grant_of
from lyra.sage.agent.worktrees.worktrees import Worktree, WorktreeChange, Worktrees

if TYPE_CHECKING:
    from lyra.agents.declaration.agent import AgentDeclaration
    from lyra.agents.turn.turn import Turn
    from lyra.core.budgets.budget import Budget
    from lyra.core.rights.capability import Capability
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.process.process import Process


KEPT_MAX: Final = 200  # sub-agents on record
TEXT_CHARS_MAX: Final = 100_000  # of an answer that is kept for its caller
_NOT_DONE: Final = "this call was stopped before it was done"
_PASSING: Final = (ModelError, RateLimited, CircuitOpen, Overloaded)  # where they are of a class that is retried
_WITHDRAWN: Final = "withdrawn"  # the status of a turn that was not begun

Outcome = dict[str, Any]  # status, text, usage: what a caller gets of a request


class TaskRuns:
    def __init__(
        self,
        state: TaskState,
        build: Callable[[TaskSpec], AgentDeclaration],
        *,
        ended: Callable[[StoredTask, str], None],
        happened: Callable[[StoredTask, str, AgentEvent], None],
        budgets: Callable[[], tuple[Budget, ...]],
        placer: Placer | None = None,
    ) -> None:
        """`ended` is told of a request that is over and that no caller waits for, `happened` of every event. `budgets`
        gives those that a request is charged to which no turn of the caller makes."""
        self.state = state
        self._build = build
        self._ended = ended
        self._happened = happened
        self._budgets = budgets
        self._placer = placer
        self.program = self._make_program()
        self._kernel: Kernel | None = None
        self._pending: dict[str, Pending[Any]] = {}  # by request
        self._waiters: dict[str, list[asyncio.Future[None]]] = {}  # by request: callers whose answer it is
        self._onlookers: dict[str, list[asyncio.Future[None]]] = {}  # by request: those who only look how it goes
        self._feeds: dict[str, EventFeed] = {}  # by task
        self._watched: set[str] = set()  # pids whose end is told

    def _make_program(self) -> Callable[..., Any]:
        from lyra.agents.turn.loop import serve

        async def sub_agent(ctx: Any, spec: dict[str, Any]) -> None:
            own = TaskSpec.from_data(spec)
            try:
                await serve(ctx, self._build(own), self._turn_ended)
            finally:
                if own.placed and self._placer is not None and not self.kernel.stopping:
                    self.kernel.tasks.start(self._placer.end(own.placed), name=f"lyra-end {own.placed}")

        vars(sub_agent)["__lyra_handle__"] = AgentProcess
        sub_agent.__module__, sub_agent.__qualname__ = "agent", "sage.task"
        return sub_agent

    # ------------------------------------------------------------------ opening and closing

    def open(self, kernel: Kernel) -> None:
        """Take up the requests of earlier lives, then let their processes run."""
        self._kernel = kernel
        for task in self.state.tasks.values():
            process, request_id = kernel.processes.get(task.id), task.open_request()
            if task.kind == "agent" and process is not None and request_id:
                if process.exit is None:
                    self._attend(process, request_id).scopes = self._budgets()
                else:
                    self._process_ended(process)
        kernel.register(self.program)

    def close(self) -> None:
        for feed in self._feeds.values():
            feed.close()

    @property
    def is_open(self) -> bool:
        return self._kernel is not None

    @property
    def kernel(self) -> Kernel:
        assert self._kernel is not None, "the session is not open"
        return self._kernel

    @property
    def runtime(self) -> AgentRuntime:
        return runtime_of(self.kernel)

    def process_of(self, task: StoredTask) -> Process | None:
        return None if self._kernel is None else self._kernel.processes.get(task.id)

    # ------------------------------------------------------------------ beginning and asking

    def begin(
        self, caller: Process, spec: TaskSpec, request_id: str, message: str, *, background: bool, worktree: Any = None
    ) -> None:
        """Start a sub-agent with its first message. All rows of it are in one batch of the journal."""
        self._forget_old()
        process = self.kernel.lifetimes.start(
            self.program, (spec.to_data(),), parent=caller, pid=spec.id, budget=spec.budget, grant=grant_of(spec)
        )
        facts = {"id": spec.id, "kind": "agent", "name": spec.type, "description": spec.description}
        self.kernel.fact(self.state, caller.pid, "task.began", {**facts, "worktree": worktree})
        self.ask(process, request_id, message, background=background, caller=caller)

    def _forget_old(self) -> None:
        """Keep the list short: sub-agents that ended long ago and have nothing left to tell or to take over end."""
        tasks = [task for task in self.state.tasks.values() if task.kind == "agent"]
        for task in tasks[: max(0, len(tasks) - KEPT_MAX + 1)]:
            if task.worktree is None and all("end" in request.told for request in task.requests.values()):
                process = self.process_of(task)
                if process is not None:
                    self.kernel.lifetimes.stop_tree(process, "shutdown")
                self.kernel.fact(self.state, task.id, "task.forgotten", {"id": task.id})

    def ask(
        self, process: Process, request_id: str, message: str, *, background: bool, caller: Process | None = None
    ) -> None:
        """Put a message to a sub-agent. Without a `caller` a person has sent it."""
        asked = {"lyra.ask": request_id, "content": self.runtime.clean(message)}
        self.kernel.mailboxes.deliver(process, asked, sender=caller)
        self.kernel.fact(
            self.state, process.pid, "task.asked", {"id": process.pid, "request": request_id, "background": background}
        )
        pending = self._attend(process, request_id)
        pending.scopes = self._budgets() if caller is None else scopes.get()
        if caller is not None and not background:  # given up together with the caller's turn
            pending.asker = caller.pid

    def _attend(self, process: Process, request_id: str) -> Pending[Any]:
        sink = FeedSink(self.kernel, partial(self._event, process.pid, request_id))
        pending = self._pending[request_id] = self.runtime.questions.attend(request_id, process, sink=sink)
        if process.pid not in self._watched:
            self._watched.add(process.pid)
            process.watch((self._process_ended, None))
        return pending

    def _event(self, task_id: str, request_id: str, event: AgentEvent) -> None:
        feed = self._feeds.get(task_id)
        if feed is not None:
            feed.put(event)
        task = self.state.tasks.get(task_id)
        if task is not None:
            self._happened(task, request_id, event)

    def feed(self, task_id: str) -> EventFeed:
        return self._feeds.setdefault(task_id, EventFeed())

    # ------------------------------------------------------------------ ending

    def _turn_ended(self, turn: Turn, request_id: str, mark: int, failure: BaseException | None) -> None:
        """Keep what a turn without an answer has done, and write down how it ended."""
        task, session = self.state.tasks.get(turn.ctx.pid), turn.session
        if failure is not None and turn.status != _WITHDRAWN and session.execution is not None:
            from lyra.agents.turn.unfinished import repair_messages

            session.revise(mark, repair_messages(list(session.execution.messages), {}, _NOT_DONE))
        if task is None or request_id not in task.requests:
            return
        usage = {name: getattr(session.metrics, name) for name in COUNTED}
        status, text = _status(failure)
        if failure is None:
            text = last_answer(session.messages)
        self._write_end(task, request_id, status, text, usage)

    def _process_ended(self, process: Process) -> None:
        """End the open requests of a process that has ended."""
        task, ended = self.state.tasks.get(process.pid), process.exit
        feed = self._feeds.pop(process.pid, None)
        if feed is not None:
            feed.close()
        if task is None or ended is None or self.kernel.stopping or ended.reason == "divergence":
            return
        for request_id in [request_id for request_id, request in task.requests.items() if not request.over]:
            status, text = _status(ended.error) if ended.error is not None else ("stopped", f"it ended: {ended.reason}")
            self._write_end(task, request_id, "failed" if status == "waiting" else status, text, None)

    def _write_end(
        self, task: StoredTask, request_id: str, status: str, text: str, usage: dict[str, int] | None
    ) -> None:
        self._pending.pop(request_id, None)
        if not task.requests[request_id].over:
            data = {"id": task.id, "request": request_id, "status": status, "text": text[:TEXT_CHARS_MAX]}
            self.kernel.fact(self.state, task.id, "task.ended", {**data, "usage": usage or task.usage})
        waiters = self._waiters.pop(request_id, [])
        _wake(waiters)
        self.wake_onlookers(request_id)
        if not waiters:
            self._ended(task, request_id)

    # ------------------------------------------------------------------ waiting and stopping

    def is_awaited(self, request_id: str) -> bool:
        return bool(self._waiters.get(request_id))

    async def until_ended(self, request_id: str) -> None:
        """Wait until a request is over. While a caller waits, the outcome is that caller's and no notice is given."""
        await self._wait(self._waiters, request_id)

    async def until_change(self, request_id: str, within_s: float) -> None:
        """Wait until a request is over, its sub-agent asks something, or so many seconds have passed."""
        await self._wait(self._onlookers, request_id, within_s)

    def wake_onlookers(self, request_id: str) -> None:
        _wake(self._onlookers.pop(request_id, []))

    async def _wait(
        self, waiting: dict[str, list[asyncio.Future[None]]], request_id: str, within_s: float | None = None
    ) -> None:
        waiter: asyncio.Future[None] = self.kernel.loop.create_future()
        waiters = waiting.setdefault(request_id, [])
        waiters.append(waiter)
        clock = self.kernel.clock
        timer = None if within_s is None else clock.call_at(clock.monotonic() + within_s, lambda: _wake([waiter]))
        try:
            await waiter
        finally:
            if timer is not None:
                timer.cancel()
            if waiter in waiters:
                waiters.remove(waiter)

    def stop(self, task: StoredTask) -> bool:
        """End the turn of a sub-agent and the commands that it left running. Its conversation stays, and it can be
        resumed. False where it did nothing."""
        process, request_id = self.process_of(task), task.open_request()
        if process is None or process.exit is not None:
            return False
        cleanups_of(self.kernel).end(process)
        pending = self._pending.get(request_id)
        return pending is not None and pending.cancel()


def _wake(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)


def _status(failure: BaseException | None) -> tuple[str, str]:
    """Return the state that a failure comes to, and its words."""
    if failure is None:
        return "done", ""
    if isinstance(failure, asyncio.CancelledError):
        return "stopped", "it was stopped"
    if isinstance(failure, LyraError):
        text = f"{failure.message}. {failure.hint}" if failure.hint else failure.message
        passing = isinstance(failure, _PASSING) and error_class(failure) in RETRYABLE
        return ("waiting" if passing else "failed"), text
    return "failed", f"{type(failure).__name__}: {failure}"


OUTPUT_BYTES_MAX: Final = 30_000  # that are shown, from the end
_LINE_CHARS_MAX: Final = 10_000
_KEPT_MAX: Final = 200  # commands on record; the oldest that ended are forgotten


class TaskCommands:
    """The background commands of a session, on record: the line, how it ended, and its output in a file. A JobLog. The
    id of a command of the session's own agent is `bash_1`, that of a sub-agent's `PID.bash_1`.

    `over` is called with a command that has ended by itself; one that was stopped is no news."""

    def __init__(
        self, state: TaskState, folder: Path, own_pid: str, *, over: Callable[[StoredTask], object] | None = None
    ) -> None:
        self._state = state
        self._over = over
        self._folder = folder
        self._own_pid = own_pid
        self._kernel: Kernel | None = None
        self._running: dict[str, Callable[[], None]] = {}  # ids, in this life → what stops it

    def open(self, kernel: Kernel) -> None:
        self._kernel = kernel
        runtime_of(kernel).job_log = self

    def id_of(self, pid: str, number: int) -> str:
        return f"bash_{number}" if pid == self._own_pid else f"{pid}.bash_{number}"

    # ------------------------------------------------------------------ told by the tools

    def last(self, pid: str) -> int:
        return max((task.number for task in self._commands() if task.caller == pid), default=0)

    def copy_for(self, pid: str, number: int) -> str | None:
        with suppress(OSError):
            make_folder(self._folder, private=True)
            return str(self._file(self.id_of(pid, number)))
        return None

    def on_started(self, pid: str, number: int, command: str, stop: Callable[[], None]) -> None:
        kernel = self._kernel
        assert kernel is not None
        task_id = self.id_of(pid, number)
        self._forget_old()
        self._running[task_id] = stop
        line = runtime_of(kernel).clean(command)[:_LINE_CHARS_MAX]
        facts = {"id": task_id, "kind": "command", "name": "Bash", "description": line, "number": number}
        kernel.fact(self._state, pid, "task.began", facts)

    def on_ended(self, pid: str, number: int, status: str, how: str) -> None:
        kernel, task_id = self._kernel, self.id_of(pid, number)
        assert kernel is not None
        if kernel.stopping or kernel.failure is not None:  # it ends with its session, and the store takes no more
            return
        self._running.pop(task_id, None)
        text = runtime_of(kernel).clean(how)
        kernel.fact(self._state, pid, "task.ended", {"id": task_id, "status": status, "text": text})
        task = self._state.tasks.get(task_id)
        if task is not None and self._over is not None and status != "stopped":
            self._over(task)

    def earlier(self, pid: str, number: int) -> str | None:
        task = self._state.tasks.get(self.id_of(pid, number))
        if task is None or task.id in self._running:
            return None
        how = task.text if task.status else "it ended with the session that had started it"
        return f"{self.output(task)}\n[{task.id} does not run any more: {how}]".lstrip()

    # ------------------------------------------------------------------ shown

    def state_of(self, task: StoredTask) -> str:
        return task.status or ("running" if task.id in self._running else "lost")

    def stop(self, task: StoredTask) -> bool:
        """End a command and everything that it started; False where it does not run."""
        stop = self._running.get(task.id)
        if stop is not None:
            stop()
        return stop is not None

    def output(self, task: StoredTask, most_bytes: int = OUTPUT_BYTES_MAX) -> str:
        """Return the end of what a command has printed so far."""
        try:
            with open(self._file(task.id), "rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - most_bytes))
                text = file.read(most_bytes).decode("utf-8", "replace")
        except OSError:
            return ""
        left_out = f"… {size - most_bytes} bytes left out …\n" if size > most_bytes else ""
        return left_out + (runtime_of(self._kernel).clean(text) if self._kernel is not None else text)

    def _commands(self) -> Iterator[StoredTask]:
        return (task for task in self._state.tasks.values() if task.kind == "command")

    def _file(self, task_id: str) -> Path:
        return self._folder / f"{task_id}.txt"

    def _forget_old(self) -> None:
        """Keep the record short. The numbers of a process are not given again: its last command stays."""
        kernel = self._kernel
        assert kernel is not None
        known = list(self._commands())
        for task in known[: max(0, len(known) - _KEPT_MAX + 1)]:
            if task.id not in self._running and task.number != self.last(task.caller):
                kernel.fact(self._state, task.caller, "task.forgotten", {"id": task.id})
                with suppress(OSError):
                    self._file(task.id).unlink()


class TaskWorktrees:
    """The worktrees of a session's sub-agents, by the id of the task. Without `worktrees` no sub-agent has one."""

    def __init__(self, runs: TaskRuns, worktrees: Worktrees | None) -> None:
        self._runs = runs
        self._worktrees = worktrees

    @property
    def possible(self) -> bool:
        return self._worktrees is not None

    @property
    def rights(self) -> list[Capability]:
        """Return what the session's agent needs besides, so that its sub-agents can have it."""
        return [] if self._worktrees is None else self._worktrees.rights

    def _require(self) -> Worktrees:
        if self._worktrees is None:
            raise ConfigError("sub-agents of this session have no worktrees")
        return self._worktrees

    def get(self, task_id: str) -> Worktree:
        """Return the worktree of a sub-agent; ConfigError where it has none."""
        task = self._runs.state.tasks.get(task_id)
        if task is None or task.worktree is None:
            raise ConfigError(f"{task_id[:80]} has no worktree")
        return Worktree.from_data(task.worktree)

    async def create(self, task_id: str) -> Worktree:
        return await self._require().create(task_id)

    async def changes(self, task_id: str) -> list[WorktreeChange]:
        """Return the files that a sub-agent has changed and that were not taken over yet."""
        return await self._require().changes(self.get(task_id))

    async def take(self, task_id: str, paths: Iterable[str]) -> list[str]:
        """Take files over as they are in the worktree; see `Worktrees.take`."""
        return await self._require().take(self.get(task_id), paths)

    async def merge(self, task_id: str) -> list[str]:
        """Take over all changes, merged with what was committed since; see `Worktrees.merge`."""
        return await self._require().merge(self.get(task_id))

    async def discard(self, task_id: str) -> None:
        """Remove a worktree with all that is in it. Its sub-agent ends, and cannot be resumed."""
        worktree, kernel = self.get(task_id), self._runs.kernel
        process = kernel.processes.get(task_id)
        if process is not None and process.exit is None:
            await kernel.kill(task_id, "shutdown")
            await kernel.process(task_id).wait()
        await self._require().discard(worktree)
        kernel.fact(self._runs.state, task_id, "task.worktree", {"id": task_id, "worktree": None})
        await kernel.durable()

    async def clean_up(self) -> list[str]:
        """Remove worktrees that no task has; gives their ids."""
        if self._worktrees is None:
            return []
        return await self._worktrees.clean_up(task.id for task in self._runs.state.tasks.values() if task.worktree)
