"""TaskList: the sub-agents and background commands of an open session: listed, watched, answered, resumed, stopped.

    tasks = TaskList(definitions=…, folder=…)                            # before the kernel
    kernel = Kernel(…, seams=Seams(states=(tasks.state,)))
    …                                                                    # the agent has task_tools(tasks)
    tasks.open(process, agent)                                           # sub-agents of earlier lives continue

What happens to them is decided in `runs`, what is remembered in `state`; `worktrees` has the copies of the
project that some of them work in. A TaskList belongs to one kernel: a session that is opened again makes another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.agents.headless.headless import event_line, result_line
from lyra.agents.session.events import AgentEvent, AnswerDone, AnyLine, Interrupted, Retrying, ToolEnded, UsageTold
from lyra.agents.session.open_questions import scopes
from lyra.agents.session.shared import Notice, runtime_of
from lyra.core.budgets.budget import Budget
from lyra.core.budgets.money import Money
from lyra.errors import BudgetExceeded, ConfigError, Conflict, NoSuchProcess
from lyra.sage.agent.tasks.placed import PlacedTurns, Placer, find_obstacle, limits_for, tell_host
from lyra.sage.agent.tasks.runs import Outcome, TaskCommands, TaskRuns, TaskWorktrees
from lyra.sage.agent.tasks.state import (
    COUNTED,
    StoredRequest,
    StoredTask,
    TaskQuestion,
    TaskRecord,
    TaskState,
    answer_data,
    cost_usd,
    counts_of,
    usage_of,
    usage_words,
)
from lyra.sage.agent.tasks.sub_agents import GENERAL, TaskSpec, ToolsIn, grant_of, sub_agent, tools_of, worktree_tools
from lyra.sage.agent.worktrees.worktrees import Worktrees

if TYPE_CHECKING:
    from lyra.agents.declaration.agent import AgentDeclaration
    from lyra.agents.session.agent_process import AgentProcess
    from lyra.core.event import Event
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.process.process import Process
    from lyra.sage.extensions.agent_files import SubAgentDefinition

_GO_ON: Final = "Go on where you were stopped."
_STOP_S: Final = 10.0  # for a sub-agent to end its turn

Notify = Callable[[TaskRecord], object]


class TaskList:
    def __init__(
        self,
        *,
        definitions: Callable[[], Mapping[str, SubAgentDefinition]],
        folder: Path,
        pid: str = "sage",
        worktrees: Worktrees | None = None,
        tools_in: ToolsIn = worktree_tools,
        notify: Notify | None = None,
        budget: Callable[[], Budget | None] = lambda: None,
        placer: Placer | None = None,
    ) -> None:
        """`folder` is the session's own, for the output of commands; `pid` that of its agent's process. Without
        `worktrees` no sub-agent has one. `notify` is called with the task of each `task.notice`. `budget` gives what
        sub-agents may spend that no turn waits for: those that continue after a restart, or that a person asks.
        `placer` is the cluster that runs sub-agents in the background, where they can run there."""
        self._definitions = definitions
        self._pid = pid
        self._tools_in = tools_in
        self._notify = notify
        self.state = TaskState()
        self._budget = budget
        self.placer = placer
        self.runs = TaskRuns(
            self.state,
            self._build,
            ended=self._on_end,
            happened=self._on_event,
            budgets=self._budgets,
            placer=placer,
        )
        self.worktrees = TaskWorktrees(self.runs, worktrees)
        self.commands = TaskCommands(self.state, folder / "commands", pid, over=self._tell)
        self.records = TaskRecords(self.runs, self.commands)
        self._agent: AgentDeclaration | None = None
        self._agents: dict[bytes, AgentDeclaration] = {}
        self._kernel: Kernel | None = None
        self._opened: asyncio.Future[None] | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._reports: dict[str, Callable[[str, float | None], None]] = {}  # by request: a caller that shows progress

    # ------------------------------------------------------------------ opening and closing

    @property
    def definitions(self) -> dict[str, SubAgentDefinition]:
        return {GENERAL.name: GENERAL, **self._definitions()}

    def open(self, process: AgentProcess[Any], agent: AgentDeclaration) -> None:
        """Begin: sub-agents that an earlier life of the session left in the middle of their work continue."""
        kernel: Kernel = process.kernel
        if kernel.states.get(self.state.NAME) is not self.state:
            raise ConfigError("the kernel does not keep the facts of these tasks", hint="Seams(states=(tasks.state,))")
        self._kernel, self._agent = kernel, agent
        runtime = runtime_of(kernel)
        runtime.notices[self._pid] = TaskNotices(self._pid, self.runs, self.records.question_id)
        self.commands.open(kernel)
        self._unsubscribe = kernel.on_event(self._on_question, kinds=("interrupt.created",))
        self.runs.open(kernel)
        if self._opened is not None and not self._opened.done():
            self._opened.set_result(None)

    def close(self) -> None:
        self.runs.close()
        if self._unsubscribe is not None:
            self._unsubscribe()

    async def until_open(self) -> None:
        """Wait for `open`: a process that is replayed may be quicker than the session."""
        if self._kernel is None:
            self._opened = self._opened or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._opened)

    @property
    def kernel(self) -> Kernel:
        assert self._kernel is not None, "the session is not open"
        return self._kernel

    def _budgets(self) -> tuple[Budget, ...]:
        try:
            budget = self._budget()
        except BudgetExceeded as error:  # used up: its next call is refused, and says so
            return (Budget(usd=Money(0), name=str(error.fields.get("setting", ""))),)
        return () if budget is None else (budget,)

    def _build(self, spec: TaskSpec) -> AgentDeclaration:
        assert self._agent is not None
        # What sub-agents of one kind have in common: they share rate limits and circuit breakers.
        kind = msgspec.msgpack.encode(
            spec if spec.worktree or spec.placed else msgspec.structs.replace(spec, id="", description="")
        )
        if kind not in self._agents:
            agent = self._agents[kind] = sub_agent(spec, self._agent, self._tools_in)
            if spec.placed:
                agent.elsewhere = PlacedTurns(self.placer, spec).answer
        return self._agents[kind]

    # ------------------------------------------------------------------ looking

    def list(self) -> list[TaskRecord]:
        """Return all of them, oldest first."""
        return [self.records.build(task) for task in self.state.tasks.values()]

    def get(self, task_id: str) -> TaskRecord:
        return self.records.build(self.task(task_id))

    def task(self, task_id: str) -> StoredTask:
        task = self.state.tasks.get(task_id)
        if task is None:
            known = ", ".join(self.state.tasks) or "none"
            raise NoSuchProcess(f"there is no task {task_id[:80]!r}", hint=f"there are {known}", pid=task_id[:80])
        return task

    def costs(self) -> dict[str, dict[str, Any]]:
        """By pid: tokens, calls and dollars of the session's own agent without helpers, and of each sub-agent."""
        own = runtime_of(self.kernel).sessions.get(self._pid)
        usages = {self._pid: counts_of(own.metrics)} if own is not None else {}
        usages |= {task.id: usage_of(task, self.kernel) for task in self.state.tasks.values() if task.kind == "agent"}
        return {pid: {**usage, "cost_usd": cost_usd(usage)} for pid, usage in usages.items()}

    async def watch(self, task_id: str) -> AsyncGenerator[AnyLine, None]:
        """Yield what a sub-agent does from now on, one mapping a line as of a turn; the last is the `result` of its
        turn."""
        task = self.task(task_id)
        began_s = self.kernel.clock.monotonic()
        if task.kind == "agent" and task.open_request() and self.records.build(task).state != "failed":
            reader = self.runs.feed(task_id).read()
            try:
                async for event in reader:
                    line = event_line(event, progress=True)
                    if line is not None:
                        yield line
                    if isinstance(event, AnswerDone):
                        break
            finally:
                reader.close()
        record = self.records.build(self.task(task_id))
        session = runtime_of(self.kernel).sessions.get(task_id)
        yield result_line(
            "success" if record.state == "done" else record.state,
            record.text,
            session_id=task_id,
            metrics=session.metrics if session is not None else None,
            duration_s=self.kernel.clock.monotonic() - began_s,
        )

    # ------------------------------------------------------------------ acting

    async def send(self, task_id: str, message: str) -> None:
        """Put another message to a sub-agent; its answer comes as a notice."""
        task = self.task(task_id)
        process = self.idle_process(task)
        request_id = self.new_id("ask")
        self.runs.ask(process, request_id, message, background=True)
        await self.kernel.durable()

    async def resume(self, task_id: str, message: str = "") -> None:
        """Have a sub-agent continue that a failure, a rate limit or a person has stopped."""
        await self.send(task_id, message or _GO_ON)

    def idle_process(self, task: StoredTask) -> Process:
        """Return the process of a sub-agent that can be asked; an error says why it cannot."""
        if task.kind != "agent":
            raise ConfigError(f"{task.id} is a command, and cannot be asked anything")
        process = self.runs.process_of(task)
        if process is None or process.exit is not None:
            raise NoSuchProcess(f"the sub-agent {task.id} has ended for good", hint="start another", pid=task.id)
        if task.open_request():
            raise Conflict(f"the sub-agent {task.id} is still working", hint="wait for it, or stop it first")
        return process

    async def answer(
        self, task_id: str, decision: str = "", *, text: str = "", arguments: dict[str, Any] | None = None
    ) -> None:
        """Answer the question that a sub-agent waits on: allow, always, deny, never; text; or retry, skip, fail about
        an act of which it is not known whether it happened."""
        question = self.records.question(self.task(task_id))
        if question is None:
            raise ConfigError(f"the sub-agent {task_id} asks nothing")
        await self.kernel.resolve_interrupt(question.id, answer_data(decision, text, arguments))

    def stop_now(self, task_id: str) -> bool:
        """End what it does: the turn of a sub-agent, which can be resumed, or a command. False where it did nothing."""
        task = self.task(task_id)
        return self.commands.stop(task) if task.kind == "command" else self.runs.stop(task)

    async def stop(self, task_id: str) -> bool:
        """Return the same, and wait until it has ended."""
        request_id, was_working = self.task(task_id).open_request(), self.stop_now(task_id)
        if was_working and request_id:
            await self.runs.until_change(request_id, _STOP_S)
        await self.kernel.durable()
        return was_working

    async def place(self, spec: TaskSpec, caller: Process) -> str:
        """Have the cluster begin a sub-agent; gives its address."""
        assert self._agent is not None
        assert self.placer is not None
        session = runtime_of(self.kernel).sessions.get(caller.pid)
        tools = tools_of(spec, self._agent)
        narrowed = grant_of(spec)
        grant = caller.grant if narrowed is None else caller.grant.narrow(narrowed)
        permissions = self._agent.permissions if session is None else session.permissions
        told = tell_host(spec, tools, self._agent, permissions, grant, spec.limits)
        return await self.placer.place(f"{caller.core.store_id}-{spec.id}", told)

    def find_obstacle(self, spec: TaskSpec, caller: Process) -> str:
        """Return why a sub-agent runs here and not on the cluster; empty where it can run there."""
        assert self._agent is not None
        session = runtime_of(self.kernel).sessions.get(caller.pid)
        return find_obstacle(spec, tools_of(spec, self._agent), self._agent, session)

    def limits_for(self, spec: TaskSpec, caller: Process) -> dict[str, Any]:
        """Return the limits of a sub-agent on the cluster."""
        return limits_for(spec, caller, scopes.get())

    def new_id(self, kind: str) -> str:
        """Return an id that no process and no task of this store has."""
        while True:
            new_id = f"{kind.lower()}-{self.kernel.entropy.text(5)}"
            if new_id not in self.kernel.processes and new_id not in self.state.tasks:
                return new_id

    # ------------------------------------------------------------------ for the tools

    async def outcome(self, task_id: str, request_id: str, caller: Process) -> Outcome:
        """Wait until a request is over; gives how."""
        request = self.task(task_id).requests[request_id]
        if not request.over:
            try:
                await self.runs.until_ended(request_id)
            finally:
                self._reports.pop(request_id, None)
        return self.read(task_id, request_id, caller)

    def read(self, task_id: str, request_id: str, caller: Process) -> Outcome:
        """Return how a request ended, for its caller: text from outside that the sub-agent has read may be in it."""
        task = self.task(task_id)
        request = task.requests[request_id]
        self.kernel.taint.pass_on(task_id, caller.pid, "what came of")
        usage = {name: task.usage.get(name, 0) - task.counted.get(name, 0) for name in COUNTED}
        return {"status": request.status, "text": request.text, "usage": usage}

    def tell(self, task_id: str, request_id: str, caller: Process) -> None:
        """Note that the caller has the outcome of a request: there is nothing more to tell about it."""
        request = self.task(task_id).requests.get(request_id)
        if request is not None and "end" not in request.told:
            self.kernel.fact(self.state, caller.pid, "task.told", {"told": [[task_id, request_id, "end"]]})

    def show_progress(self, request_id: str, report: Callable[[str, float | None], None] | None) -> None:
        if report is not None:
            self._reports[request_id] = report

    # ------------------------------------------------------------------ what happens

    def _on_event(self, task: StoredTask, request_id: str, event: AgentEvent) -> None:
        """Show a caller that waits how far its sub-agent is, what it asks, and that it waits for its provider."""
        if isinstance(event, (Interrupted, Retrying)) and self.runs.is_awaited(request_id):
            session = runtime_of(self.kernel).sessions.get(task.caller)
            if session is not None and session.sink is not None:
                if isinstance(event, Interrupted):
                    about = {**event.about, "task": task.id, "agent": f"{task.name}: {task.description}"}
                    event = Interrupted(event.id, event.kind, event.question, event.message, about)
                session.sink.put(event)
        report = self._reports.get(request_id)
        if report is not None and isinstance(event, (ToolEnded, UsageTold)):
            report(usage_words(usage_of(task, self.kernel)), None)

    def _on_question(self, event: Event) -> None:
        task = self.state.tasks.get(event.pid)
        if task is not None:
            self.runs.wake_onlookers(task.open_request())
            if not self.runs.is_awaited(task.open_request()):
                self.kernel.loop.call_soon(self._tell, task)  # a listener must not act on the kernel

    def _on_end(self, task: StoredTask, request_id: str) -> None:  # noqa: ARG002 (the task's record says it)
        self._tell(task)

    def _tell(self, task: StoredTask) -> None:
        """Tell the user that a task in the background is over, or asks."""
        record = self.records.build(task)
        data = {"id": task.id, "name": task.name, "description": task.description, "state": record.state}
        if record.question is not None:
            data["question"] = record.question.id
        self.kernel.publish(task.id, "task.notice", data)
        if self._notify is not None:
            self._notify(record)


_OUTPUT_SHOWN: Final = 500  # bytes of a command's output in a list


class TaskRecords:
    """Makes the record of a task from what is remembered of it and what its process does now."""

    def __init__(self, runs: TaskRuns, commands: TaskCommands) -> None:
        self._runs = runs
        self._commands = commands

    def build(self, task: StoredTask) -> TaskRecord:
        usage, request = usage_of(task, self._runs.kernel if self._runs.is_open else None), task.last
        question = self.question(task)
        command = task.kind == "command"
        text = request.text if request is not None else task.text
        if command:
            text = self._commands.output(task, _OUTPUT_SHOWN) or task.text
        return TaskRecord(
            id=task.id,
            kind=task.kind,
            name=task.name,
            description=task.description,
            state=self._commands.state_of(task) if command else self._state(task, question),
            caller=task.caller,
            began_at=task.began_at,
            ended_at=None if task.open_request() else task.ended_at,
            background=command or self._is_in_background(task),
            tools=usage["tool_calls"],
            tokens=usage["input_tokens"] + usage["output_tokens"],
            cost_usd=cost_usd(usage),
            worktree=str(task.worktree["folder"]) if task.worktree else "",
            question=question,
            text=text or self._why_it_stands(task),
        )

    def _is_in_background(self, task: StoredTask) -> bool:
        """Return whether no caller waits for it: that was asked for, or the call that started it was cut off."""
        request_id, request = task.open_request(), task.last
        return request is not None and (
            request.background or (bool(request_id) and not self._runs.is_awaited(request_id))
        )

    def _why_it_stands(self, task: StoredTask) -> str:
        """Return why a sub-agent cannot continue, of which there is no row."""
        process = self._runs.process_of(task)
        error = process.exit.error if process is not None and process.exit is not None else None
        return "" if error is None else str(error)

    def _state(self, task: StoredTask, question: TaskQuestion | None) -> str:
        if not task.open_request():
            return task.last.status if task.last is not None else "running"
        process = self._runs.process_of(task)
        if process is None:
            return "waiting"  # the session is not open
        if process.exit is not None:  # without a row of its end: its program does not fit its journal
            return "failed"
        return "running" if question is None else "asks"

    def question(self, task: StoredTask) -> TaskQuestion | None:
        """Return the oldest question that a sub-agent waits on."""
        if not self._runs.is_open or task.kind != "agent":
            return None
        asked = self._runs.kernel.interrupts._open_questions(task.id)
        return TaskQuestion(asked[0].id, asked[0].kind, asked[0].question, asked[0].message) if asked else None

    def question_id(self, task: StoredTask) -> str:
        question = self.question(task)
        return "" if question is None else question.id


_ENDS: Final = {
    "done": "is done; TaskOutput gives its answer",
    "waiting": "was stopped by a passing failure; TaskOutput says which, Task with resume goes on with it",
    "failed": "failed; TaskOutput says why",
    "stopped": "was stopped; Task with resume goes on with it",
}
_SEPARATOR: Final = "\n"  # in no id


class TaskNotices:
    """What a session's model is told of its sub-agents between its own calls, each thing once. A NoticeSource for the
    process with this pid."""

    def __init__(self, pid: str, runs: TaskRuns, question_of: Callable[[StoredTask], str]) -> None:
        """`question_of` gives the id of a task's open question; empty where it asks nothing."""
        self._pid = pid
        self._runs = runs
        self._question_of = question_of

    def waiting(self) -> list[Notice]:
        tasks = [task for task in self._runs.state.tasks.values() if task.caller == self._pid and task.kind == "agent"]
        return [
            Notice(_SEPARATOR.join((task.id, request_id, word)), text)
            for task in tasks
            for request_id, request in task.requests.items()
            if not self._runs.is_awaited(request_id)
            for word, text in self._about(task, request)
            if word not in request.told
        ]

    def _about(self, task: StoredTask, request: StoredRequest) -> Iterator[tuple[str, str]]:
        who = f"The sub-agent {task.id} ({task.description!r})"
        if request.over:
            yield "end", f"{who} {_ENDS[request.status]}."
            return
        if not request.background:
            yield "on", f"{who} goes on in the background: the call that started it was cut off."
        question = self._question_of(task)
        if question:
            yield question, f"{who} waits for an answer of the user."

    def on_taken(self, keys: Iterable[str]) -> None:
        told = [key.split(_SEPARATOR, 2) for key in keys]
        new = [entry for entry in told if self._is_new(*entry)]
        if new:
            self._runs.kernel.fact(self._runs.state, self._pid, "task.told", {"told": new})

    def _is_new(self, task_id: str, request_id: str, word: str) -> bool:
        task = self._runs.state.tasks.get(task_id)
        request = task.requests.get(request_id) if task is not None else None
        return request is not None and word not in request.told
