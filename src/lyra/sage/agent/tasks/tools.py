"""The tools by which a model has sub-agents: Task, TaskOutput and TaskStop.

    Agent("sage", model=…, tools=[*builtin_tools(folder), *task_tools(tasks)])

They are parts of the caller's program: what they decide is journaled, so that a replay starts no second sub-agent and a
finished one is not asked again. A sub-agent that fails is an error of the call, told to the model like any other; the
caller and the other sub-agents continue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.agents.session.shared import runtime_of
from lyra.core.effect import Effect
from lyra.core.tool import Tool, progress
from lyra.errors import AgentFailed, LyraError, ToolError
from lyra.kernel.base.acting import acting
from lyra.kernel.programs.journaled_call import journal_wait, once
from lyra.sage.agent.tasks.state import TaskRecord, usage_of, usage_words
from lyra.sage.agent.tasks.sub_agents import TaskSpec, spec_of
from lyra.sage.agent.tasks.task_list import TaskList
from lyra.tools.function import tool

if TYPE_CHECKING:
    from lyra.kernel.process.process import Process
    from lyra.sage.extensions.agent_files import SubAgentDefinition

RUNNING_MAX: Final = 16  # sub-agents at a time
_PROMPT_CHARS_MAX: Final = 100_000
_DESCRIPTION_CHARS_MAX: Final = 200
_WAIT_S: Final = 30.0
_WAIT_S_MAX: Final = 600.0
_STEPS_SHOWN: Final = 5
_FILES_SHOWN: Final = 50
_ROW: Final = "task"


def task_tools(tasks: TaskList) -> list[Tool]:
    """Return the three tools over a session's tasks. The sub-agents that Task describes are those of now."""
    tools = _TaskTools(tasks)
    # A tainted sub-agent taints its caller; its own calls are decided one by one, as the caller's are.
    task: Tool = tool(tools.task, name="Task", harmless=True, trusted=True)
    output: Tool = tool(tools.output, name="TaskOutput", harmless=True, trusted=True, polling=True)
    stop: Tool = tool(tools.stop, name="TaskStop", harmless=True, trusted=True)
    return [_with_types(task, tasks.definitions).mark_builtin(), output.mark_builtin(), stop.mark_builtin()]


def _with_types(task: Tool, definitions: Mapping[str, SubAgentDefinition]) -> Tool:
    """Return the tool Task with the names of the sub-agents there are."""
    listed = "\n".join(f"- {name}: {definition.description}" for name, definition in definitions.items())
    return msgspec.structs.replace(task, description=f"{task.description}\n\nThe types of sub-agents:\n{listed}")


class _TaskTools:
    def __init__(self, tasks: TaskList) -> None:
        self._tasks = tasks
        self._worktree = Effect(self._make_worktree, name="sage:worktree", idempotent=True)
        self._place = Effect(self._place_task, name="sage:place", idempotent=True)
        self._changes = Effect(self._describe_changes, name="sage:changes", idempotent=True)

    async def task(
        self,
        ctx: Any,
        description: str,
        prompt: str,
        subagent_type: str = "general",
        run_in_background: bool = False,
        worktree: bool = False,
        resume: str = "",
    ) -> str:
        """Have a sub-agent do a piece of work that takes many steps, and get its answer. It sees nothing of this
        conversation. Several in one turn work side by side.

        Args:
            description: the work in a few words
            prompt: what is to be done and what the answer has to hold, complete in itself
            subagent_type: which sub-agent
            run_in_background: return at once; you are told when it is done, TaskOutput gives its answer
            worktree: it works in a copy of the project of its own; the user takes its changes over
            resume: the id of a sub-agent that has ended; it gets the prompt as its next message
        """
        await self._tasks.until_open()
        process: Process = ctx.own_process
        plan = ctx.journaled_read(
            _ROW,
            lambda: self._plan(process, description, prompt, subagent_type, run_in_background, worktree, resume),
        )
        if "refused" in plan:
            raise ToolError(plan["refused"], hint=plan["hint"], reason="invalid_arguments")
        task_id, request_id, background = plan["id"], plan["request"], plan["background"]
        where = ""
        if "spec" in plan:
            where = await self._begin(ctx, plan, prompt)
        else:
            asked = partial(self._tasks.runs.ask, request_id=request_id, message=prompt, background=background)
            child = process.kernel.processes.get(task_id)
            once(process, _ROW, request_id, partial(asked, child, caller=process))
        if background:
            told = "you are told when it is done, TaskOutput gives its answer"
            return f"started in the background as {task_id}{where}; {told}"
        self._tasks.show_progress(request_id, progress.get())
        return await self._answer(ctx, task_id, request_id)

    def _plan(
        self,
        process: Process,
        description: str,
        prompt: str,
        subagent_type: str,
        background: bool,
        worktree: bool,
        resume: str,
    ) -> dict[str, Any]:
        """Return what a call comes to, as its row: an id and a spec, or why not."""
        tasks = self._tasks
        try:
            if not prompt.strip() or len(prompt) > _PROMPT_CHARS_MAX:
                raise ToolError(f"a prompt has between 1 and {_PROMPT_CHARS_MAX} characters")
            running = [record for record in tasks.list() if record.kind == "agent" and record.open]
            if len(running) >= RUNNING_MAX:
                raise ToolError(f"{RUNNING_MAX} sub-agents are working already", hint="wait for one with TaskOutput")
            request_id = tasks.new_id("ask")
            if resume:
                tasks.idle_process(tasks.task(resume))
                return {"id": resume, "request": request_id, "background": background}
            definition = tasks.definitions.get(subagent_type)
            if definition is None:
                raise ToolError(
                    f"there is no sub-agent {subagent_type[:80]!r}", hint=f"there are {', '.join(tasks.definitions)}"
                )
            session = runtime_of(process.kernel).sessions.get(process.pid)
            permissions = session.permissions if session is not None else None
            mode = "" if permissions is None else permissions.mode
            own = worktree or definition.worktree
            if own and (mode == "plan" or not tasks.worktrees.possible):
                why = "the mode is plan" if mode == "plan" else "the session has none"
                raise ToolError(f"the sub-agent can have no worktree: {why}", hint="call it without")
            spec = spec_of(
                definition,
                tasks.new_id(definition.name),
                description[:_DESCRIPTION_CHARS_MAX],
                caller_mode=mode,
                caller_model=_model(process),
            )
            background = background or definition.background
            plan = {"id": spec.id, "request": request_id, "background": background, "worktree": own}
            if background and tasks.placer is not None:
                here = "it has a worktree" if own else tasks.find_obstacle(spec, process)
                if here:
                    plan["here"] = here
                else:
                    plan["placed"] = True
                    spec = msgspec.structs.replace(spec, limits=tasks.limits_for(spec, process))
            return {**plan, "spec": spec.to_data()}
        except LyraError as error:
            return {"refused": error.message, "hint": error.hint}

    async def _begin(self, ctx: Any, plan: dict[str, Any], prompt: str) -> str:
        """Start a sub-agent; says where, in a session that has a cluster."""
        process, spec = ctx.own_process, TaskSpec.from_data(plan["spec"])
        worktree = None
        if plan["worktree"]:
            worktree = await ctx.do(self._worktree, spec.id)
            spec = msgspec.structs.replace(spec, worktree=worktree["folder"], repository=worktree["repository"])
        where = f", on this machine and not on the cluster: {plan['here']}" if plan.get("here") else ""
        if plan.get("placed"):
            placed = await ctx.do(self._place, spec.to_data())
            where = f", on the cluster ({placed['address']})"
            if not placed["address"]:
                where = f", on this machine: the cluster did not take it ({placed['refused']})"
            spec = msgspec.structs.replace(spec, placed=placed["address"])
        begin = partial(self._tasks.runs.begin, background=plan["background"], worktree=worktree)
        once(process, _ROW, spec.id, lambda: begin(process, spec, plan["request"], prompt))
        return where

    async def _place_task(self, spec: dict[str, Any]) -> dict[str, Any]:
        process = acting()
        assert process is not None
        try:
            return {"address": await self._tasks.place(TaskSpec.from_data(spec), process), "refused": ""}
        except LyraError as error:
            return {"address": "", "refused": error.message}

    async def _make_worktree(self, task_id: str) -> dict[str, Any]:
        return (await self._tasks.worktrees.create(task_id)).to_data()

    async def _answer(self, ctx: Any, task_id: str, request_id: str) -> str:
        process, tasks = ctx.own_process, self._tasks
        try:
            outcome = await journal_wait(process, _ROW, lambda: tasks.outcome(task_id, request_id, process))
        except asyncio.CancelledError:
            if not process.kernel.stopping:  # the caller's turn was given up: so is what it waits for
                tasks.stop_now(task_id)
            raise
        changed = await ctx.do(self._changes, task_id)
        usage = outcome["usage"]
        session = runtime_of(process.kernel).sessions.get(ctx.pid)
        if session is not None:
            counts = (usage["input_tokens"], usage["output_tokens"], usage["cost_micro_usd"], usage["unpriced_calls"])
            session.metrics.add_helper(counts)
        tasks.tell(task_id, request_id, process)  # in one batch of the journal with the output of this call
        if outcome["status"] != "done":
            raise AgentFailed(
                f"the sub-agent {task_id} gave no answer ({outcome['status']}): {outcome['text']}",
                hint=f'{changed}Task with resume="{task_id}" goes on with it',
                status=outcome["status"],
            )
        return f'{outcome["text"]}\n\n({changed}Task with resume="{task_id}" asks this sub-agent more.)'

    async def _describe_changes(self, task_id: str) -> str:
        """Return a sentence about the files that a sub-agent has changed in its worktree; empty where it has none."""
        task = self._tasks.state.tasks.get(task_id)
        if task is None or task.worktree is None:
            return ""
        changes = await self._tasks.worktrees.changes(task_id)
        named = ", ".join(
            f"{change.path} (+{change.counts[0]} −{change.counts[1]})" for change in changes[:_FILES_SHOWN]
        )
        more = f" and {len(changes) - _FILES_SHOWN} more" if len(changes) > _FILES_SHOWN else ""
        return f"Changed in its worktree, for the user to take over: {named or 'nothing'}{more}. "

    async def output(self, ctx: Any, id: str, wait_s: float = _WAIT_S) -> str:  # noqa: A002 - the model's word for it
        """Return the answer of a sub-agent in the background, or how far it is.

        Args:
            id: the sub-agent's
            wait_s: how many seconds to wait for its end, at most 600
        """
        await self._tasks.until_open()
        if not 0 <= wait_s <= _WAIT_S_MAX:
            raise ToolError(f"wait_s is between 0 and {_WAIT_S_MAX:g}", reason="invalid_arguments")
        told = await journal_wait(ctx.own_process, _ROW, lambda: self._wait_and_describe(ctx.own_process, id, wait_s))
        if "refused" in told:
            raise ToolError(told["refused"], hint=told["hint"], reason="not_found")
        return str(told["text"])

    async def _wait_and_describe(self, process: Process, task_id: str, wait_s: float) -> dict[str, Any]:
        tasks = self._tasks
        try:
            task = tasks.task(task_id)
            if task.kind != "agent":
                raise ToolError(f"{task_id} is a command", hint="use BashOutput")
        except LyraError as error:
            return {"refused": error.message, "hint": error.hint}
        request_id = task.open_request()
        if request_id and wait_s and tasks.records.question(task) is None:
            await tasks.runs.until_change(request_id, wait_s)
        request = task.last
        used = usage_words(usage_of(task, tasks.kernel))
        if request is None or not request.over:
            return {"text": f"{_describe_unfinished(tasks.get(task_id))} ({used}). {self._steps(task_id)}".rstrip()}
        changed = await self._describe_changes(task_id)
        last_id = next(reversed(task.requests))
        answer = tasks.read(task_id, last_id, process)["text"]
        tasks.tell(task_id, last_id, process)
        text = answer if request.status == "done" else f"It gave no answer: {answer}."
        return {"text": f"{text}\n\n({task_id} is {request.status}: {used}. {changed})"}

    def _steps(self, task_id: str) -> str:
        """Return the last calls of a sub-agent that is at work."""
        session = runtime_of(self._tasks.kernel).sessions.get(task_id)
        execution = session.execution if session is not None else None
        calls = [call.name for step in (execution.steps if execution is not None else ()) for call in step.tool_calls]
        return f"Its last calls: {', '.join(calls[-_STEPS_SHOWN:])}." if calls else ""

    async def stop(self, ctx: Any, id: str) -> str:  # noqa: A002 - the model's word for it
        """Stop a sub-agent that is at work. What it has done stays, and Task with resume continues with it.

        Args:
            id: the sub-agent's
        """
        await self._tasks.until_open()
        told = ctx.journaled_read(_ROW, lambda: self._stop(id))
        if "refused" in told:
            raise ToolError(told["refused"], hint=told["hint"], reason="not_found")
        return str(told["text"])

    def _stop(self, task_id: str) -> dict[str, Any]:
        try:
            was_working = self._tasks.stop_now(task_id)
        except LyraError as error:
            return {"refused": error.message, "hint": error.hint}
        return {"text": f"{task_id} was stopped" if was_working else f"{task_id} was not at work"}


def _model(process: Process) -> str:
    """Return the caller's model; empty where it is no name but an object."""
    session = runtime_of(process.kernel).sessions.get(process.pid)
    model = session.agent.model if session is not None else ""
    return model if isinstance(model, str) else ""


def _describe_unfinished(record: TaskRecord) -> str:
    if record.state == "asks":
        return f"{record.id} waits for an answer of the user"
    return f"{record.id} is {record.state}"
