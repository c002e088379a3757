"""A pipeline as a durable process: the agents registered here run its stages, one effect or one process a run.

`run_pipeline` is a program like any other. It reads what is due (a journaled reading, so a replay reads the same),
performs each run through the door (`ctx.do`: a finished run is never repeated, and for a run that was in flight when
its kernel died a person is asked, unless it may be repeated) or as a child process (`run_stage_process`), and reports
it to the session. Reports that the session has already are ignored, which is all that a replay needs. Agents are looked
up by name (`agents`); after a restart a stage waits until its agent is registered. Routes are decided in `moves`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lyra.core import codec
from lyra.core.budgets.budget import Budget, Usage
from lyra.core.checking.check import sendable_text
from lyra.core.effect import Charged, Effect, canonical_hash
from lyra.core.envelope import TerminalReason
from lyra.core.faultpoint import point
from lyra.core.limits import EFFECTS_KEPT
from lyra.core.naming import PIPELINE, give_name
from lyra.errors import AgentFailed, Divergence, EffectFailed, LyraError, NameTaken, ProcessExit
from lyra.kernel.base.tasks import BlockingCalls
from lyra.kernel.base.waiting import in_time, resume, suspend
from lyra.kernel.journal.rows import text_of
from lyra.kernel.pipelines.agents import OutsideStages, RegisteredAgent, make_skipped_result, result_data
from lyra.kernel.pipelines.instruction import metrics_data, response_data
from lyra.kernel.process.process import Process
from lyra.kernel.process.replay import current_branch, next_key, upcoming
from lyra.kernel.programs.context import Context, OwnContext
from lyra.kernel.programs.journaled_call import read

if TYPE_CHECKING:
    from lyra.core.envelope import Envelope
    from lyra.kernel.base.core import Core
    from lyra.kernel.interrupts.service import InterruptService
    from lyra.kernel.pipelines.declaration import AgentConfig
    from lyra.kernel.pipelines.feeds import Feed
    from lyra.kernel.pipelines.orchestrator import Orchestrator
    from lyra.kernel.pipelines.session import Question, Session, Token
    from lyra.kernel.programs.handle import ChildHandle
    from lyra.kernel.programs.lifetime import Lifetimes
    from lyra.kernel.programs.registry import Programs


_WENT_WELL: Final[dict[str, Any]] = {
    "output": {},
    "success": True,
    "error": None,
    "metrics": None,
    "break_loop": False,
    "interrupt": None,
}

_BEGIN: Final = "pipeline.begin"  # readings in the journal
_END: Final = "pipeline.end"
_ABROAD: Final = "pipeline.abroad"
_ASKS: Final = "asks"  # why a stage of a pipeline elsewhere ended
_Numbered: TypeAlias = "asyncio.Future[None]"  # done when a branch has its number in the journal keys


class Runner:
    """Runs sessions of one kernel as processes."""

    def __init__(
        self,
        core: Core[Process],
        programs: Programs,
        lifetimes: Lifetimes,
        interrupts: InterruptService,
        orchestrator: Orchestrator,
    ) -> None:
        self._core = core
        self._programs = programs
        self._lifetimes = lifetimes
        self._interrupts = interrupts
        self._orchestrator = orchestrator
        self._effects: dict[Any, Effect] = {}  # by agent name, idempotency and retry policy
        self._waiters: dict[str, list[Any]] = {}  # pid → runners that wait for a change of their session
        self.threads = BlockingCalls("lyra-stage")

    # ------------------------------------------------------------------ start and stop

    def start(self, pid: str, feed: Feed) -> Process:
        """Return the process that runs a session; the feed gets a None when it ends."""
        core = self._core
        self._orchestrator.take_over(self._orchestrator.state.sessions[pid])
        process = core.processes.get(pid)
        if process is None:
            process = self._lifetimes.start(run_pipeline, (), parent=None, pid=pid)
        if not self.runs(process):
            raise NameTaken(f"process {pid} is no pipeline", hint="use another pid", pid=pid)
        if process.exit is not None:
            feed.put(None)
            return process
        ended: asyncio.Future[None] = core.loop.create_future()

        def tell(future: asyncio.Future[None]) -> None:
            if not future.cancelled():
                future.exception()  # retrieved, so that asyncio does not warn; the listener reads it from the process
            feed.put(None)

        ended.add_done_callback(tell)
        process.watch(ended)
        return process

    def stop(self, pid: str, reason: str) -> None:
        """End the process of a session that is over: what its agents still do is not waited for."""
        process = self._core.processes.get(pid)
        if process is not None and process.exit is None and self.runs(process):
            self._core.raise_if_closed()
            self._lifetimes.stop_tree(process, sendable_text(reason, "a reason to kill"))

    def runs(self, process: Process) -> bool:
        """Return whether that process is a pipeline's."""
        return process.program == self._programs.name(run_pipeline)

    def raise_unless_finished(self, process: Process, pid: str) -> None:
        self._core.raise_if_failed()
        ended = process.exit
        if ended is not None and ended.error is not None:
            raise ended.error
        reason = ended.reason if ended is not None else "stopped"
        raise ProcessExit(f"pipeline {pid} ended early: {reason}", reason=reason, pid=pid)

    # ------------------------------------------------------------------ the program

    async def run(self, ctx: Context, *, is_stage: bool = False) -> dict[str, Any]:
        """Run and report what is due, and ask its questions, until the session has ended; one that is a stage of a
        pipeline elsewhere ends with its question, which that one asks."""
        process = ctx.own_process
        while True:
            plan = read(process, "pipeline", lambda: self._plan(process.pid))
            word = plan[0]
            if word == "done":
                return {"reason": plan[1], "message": plan[2]}
            if word == "ask" and is_stage:
                return {"reason": _ASKS, "message": ""}
            if word == "ask":
                await self._ask(ctx, plan[1:])
            elif word == "wait":
                await self._wait(process)
            elif word == "run" and len(plan[1]) == 1:
                await self._perform(ctx, *plan[1][0])
            else:
                await self._run_together(ctx, plan)

    def look_again(self, pid: str) -> None:
        """Wake the runner of a session that changed, or whose question has ended."""
        if pid in self._waiters:
            for waker in self._waiters.pop(pid):
                resume(waker)

    async def _wait(self, process: Process) -> None:
        """Wait until no question from outside holds the session up. Not journaled: the next reading of the plan is."""
        orchestrator = self._orchestrator
        while True:
            session = orchestrator.state.sessions.get(process.pid)
            if session is None:
                return
            held_up = not session.terminated and orchestrator.questions.hold_up(session)
            if session.terminated or (not held_up and self._may_go_on(process, session)):
                return
            await suspend(process, self._waiters.setdefault(process.pid, []))

    @staticmethod
    def _may_go_on(process: Process, session: Session) -> bool:
        """Something can run or be asked, or the journal knows what came next; else a new look would be the same."""
        entry = process.replay.get(process.keys) if process.replay is not None else None
        return entry is not None or any(token.state in ("ready", "running", "waiting") for token in session.tokens)

    def _plan(self, pid: str, *, beside: bool = False) -> list[Any]:
        """Return what is due, as plain data; `beside`: other runs or questions of this pipeline are in progress."""
        orchestrator = self._orchestrator
        session = orchestrator.state.sessions.get(pid)
        if session is None:
            return ["done", "forgotten", "the session was cleaned up"]
        orchestrator.start_ready(session)
        if session.terminated:
            reason = session.terminal_reason.value if session.terminal_reason is not None else ""
            return ["done", reason, session.envelope.termination_reason]
        running = [
            [token.run, token.stage, *self._digest_request(session, token)]
            for token in session.tokens
            if token.state == "running"
        ]
        asks = [_question_row(question) for question in session.waiting if question.token]
        if not asks:  # also while a question from outside is open: runs in progress continue
            return ["run", running] if running else ["wait"]
        if beside or running or len(asks) > 1 or session.first("ready") is not None:
            return ["together", running, asks]
        return ["ask", *asks[0]]

    async def _run_together(self, ctx: Context, plan: list[Any]) -> None:
        """Perform runs, and questions of branches (numbered below zero), at the same time. The plan is read again after
        each of them ends, or when something else changed what is due; the reading names which, so that a replay, where
        they may end in another order, continues in the journaled order."""
        process = ctx.own_process
        tasks: dict[int, asyncio.Task[None]] = {}
        begun: set[int] = set()
        try:
            while plan[0] in ("run", "together"):
                due = self._due(ctx, plan)
                for key in [key for key in tasks if key not in due]:
                    tasks.pop(key).cancel()
                new = {key: self._core.loop.create_future() for key in due if key not in begun}
                for key, numbered in new.items():
                    tasks[key] = self._core.tasks.start(due[key](numbered), name=f"{process.pid} {key}")
                begun.update(new)
                for numbered in new.values():  # before waiting for an end, which a replay may know at once
                    await numbered
                first = await self._first_end(process, tasks, begun)
                if first:
                    tasks.pop(first).result()
                after = {"after": first}
                plan = read(  # called at once, so that the lambda sees the current values
                    process,
                    "pipeline",
                    lambda: [*self._plan(process.pid, beside=bool(tasks)), after],  # noqa: B023
                )
        finally:  # no await here: the kernel may be closing the program
            for task in tasks.values():
                task.cancel()

    def _due(self, ctx: Context, plan: list[Any]) -> dict[int, Callable[[_Numbered], Coroutine[Any, Any, None]]]:
        """Return the work that a plan names, by its key among the tasks."""
        asks = plan[2] if plan[0] == "together" else []
        works: dict[int, Callable[[], Coroutine[Any, Any, None]]] = {
            **{run[0]: partial(self._perform, ctx, *run) for run in plan[1]},
            **{-ask[-1]: partial(self._ask, ctx, ask) for ask in asks},
        }
        return {key: partial(self._branch, ctx, work) for key, work in works.items()}

    async def _first_end(self, process: Process, tasks: dict[int, asyncio.Task[None]], begun: set[int]) -> int:
        """Return the key of the task that ended first, or 0 when something else changed what is due; on replay as
        journaled."""
        # On replay: what ended before the next reading of the plan (0: nothing did); None: not journaled.
        entry = process.replay.get(process.keys) if process.replay is not None else None
        last = codec.decode(bytes(entry.value))[-1] if entry is not None and entry.name == "pipeline" else None
        then = int(last["after"]) if isinstance(last, dict) else None
        if then == 0:
            return 0
        if then in tasks:
            await asyncio.wait([tasks[then]])
            return then
        session = self._orchestrator.state.sessions.get(process.pid)
        if session is None or not session.waiting:  # only its own tasks can change it
            await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_COMPLETED)
        while not any(task.done() for task in tasks.values()):
            if self._has_changed(process.pid, begun, tasks):
                return 0
            change = self._core.loop.create_future()
            waiters = self._waiters.setdefault(process.pid, [])
            waiters.append(change)
            try:
                await asyncio.wait([*tasks.values(), change], return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not change.done() and change in waiters:
                    waiters.remove(change)
        return min(key for key, task in tasks.items() if task.done())

    def _has_changed(self, pid: str, begun: set[int], tasks: Collection[int]) -> bool:
        """Return whether what is due differs from what is in progress."""
        orchestrator = self._orchestrator
        session = orchestrator.state.sessions.get(pid)
        if session is None or session.terminated:
            return True
        if session.first("ready") is not None and not orchestrator.questions.hold_up(session):
            return True
        runs = {token.run for token in session.tokens if token.state == "running"}
        due = runs | {-question.number for question in session.waiting if question.token}
        return not due <= begun or not due >= set(tasks)

    async def _branch(self, ctx: Context, work: Callable[[], Coroutine[Any, Any, None]], numbered: _Numbered) -> None:
        """One run or question among several. Its branch gets its number before it waits for anything, so in the order
        of the plan."""
        current_branch(ctx.own_process)
        numbered.set_result(None)
        await work()

    def _digest_request(self, session: Session, token: Token) -> tuple[str, ...]:
        """Return the digest of what a run asks of an agent in another program, for its idempotency key. It stands in
        the plan, since a replay must have the same; a plan of an earlier version has none."""
        stage = session.pipeline_config.by_name[token.stage]
        agent = self._orchestrator.agents.find(stage.agent_name)
        if agent is not None and agent.outside is None:
            return ()
        view = session.view(token)
        answer = view.interrupt.get("response") if view.interrupt is not None else None
        asked = (view.raw_input, view.outputs, view.metadata, view.iteration, view.loop_feedback, answer)
        return (canonical_hash(stage.agent_name, (*asked, stage.to_data()), {}).hex(),)

    async def _perform(self, ctx: Context, run: int, stage_name: str, *asked: str) -> None:
        """One run through the door, and its report; `asked` as in the plan."""
        process = ctx.own_process
        session = self._orchestrator.state.sessions[process.pid]
        stage = session.pipeline_config.stage(stage_name)
        assert stage is not None, stage_name
        agents = self._orchestrator.agents
        begun, agent = upcoming(process), None  # what the journal has of this run
        if begun is None or begun.name != _ABROAD:
            agent = agents.find(stage.agent_name)
            if agent is None:
                agent = await agents.wait_for(process, stage.agent_name, may_be_abroad=begun is None)
        try:
            if agent is None:
                result = await run_stage_abroad(ctx, self._orchestrator, stage, run)
            elif agent.program is not None:
                result = await run_stage_process(ctx, self._orchestrator, agent, stage, run)
            else:
                result = await ctx.do(self._effect(stage, agent), process.pid, run, stage_name, *asked)
        except (Divergence, asyncio.CancelledError):
            raise
        except Exception as error:  # any error of an agent is a failed stage
            if process.out_of_time:  # the pipeline's time is up, not the stage's: no route leads on from here
                raise
            result = {"success": False, "error": text_of(error) or type(error).__name__, **_facts_of(error)}
        point("pipeline.answered")
        self._report(process.pid, run, result)

    def _report(self, pid: str, run: int, result: Mapping[str, Any]) -> None:
        """Report a run once: on replay the session has the report already."""
        session = self._orchestrator.state.sessions.get(pid)
        token = session.running(run=run) if session is not None else None
        if token is None:
            return
        row = {**_WENT_WELL, "agent_name": token.stage, "run_id": run, **result}
        row["metrics"] = metrics_data(row["metrics"])
        self._orchestrator.record_report(pid, token, row)

    def _effect(self, stage: AgentConfig, agent: RegisteredAgent) -> Effect:
        retry = stage.retry
        # A stage that may be run again after a failure may be run again after a crash.
        idempotent = retry is not None or agent.idempotent or stage.idempotent
        key = (stage.agent_name, idempotent, retry, agent.outside)
        effect = self._effects.get(key)
        if effect is None:
            if len(self._effects) >= EFFECTS_KEPT:
                self._effects.clear()
            outside = None if agent.outside is None else OutsideStages(self, agent.outside)
            effect = self._effects[key] = Effect(
                self._run_agent if outside is None else outside.run,
                name=effect_name(stage),
                idempotent=idempotent,
                retry=retry,
                skipped=make_skipped_result,
                outside=outside,
            )
        return effect

    def run_key(self, pid: str, run: int, idempotency_key: str) -> str:
        """Return the key of a run, the same in every lifetime of the kernel: that of its call. A run that began under
        an earlier version, or in a kernel without a journal, is known by its number."""
        if self._core.call_named(idempotency_key)[0]:
            return idempotency_key
        return self._core.idempotency_key(pid, f"run-{run}", self._core.processes[pid].life)

    async def _run_agent(self, pid: str, run: int, stage_name: str, *_asked: str) -> Any:
        """Call the agent that is registered here."""

        def work(envelope: Envelope, stage: AgentConfig) -> Awaitable[Any]:
            agent = self._orchestrator.agents.get(stage.agent_name)
            self._core.taint.pass_on(agent.owner, pid, "an agent of")
            return agent.run(envelope, stage, self.threads)

        return await self.perform(pid, run, stage_name, work)

    async def perform(
        self, pid: str, run: int, stage_name: str, work: Callable[[Envelope, AgentConfig], Awaitable[Any]]
    ) -> Any:
        """Call an agent with its view of the envelope; its result becomes plain data."""
        session = self._orchestrator.state.sessions[pid]
        token = session.running(run=run)
        stage = session.pipeline_config.stage(stage_name)
        assert stage is not None, stage_name
        if token is None:
            raise AgentFailed(f"run {run} of {stage_name} is no longer needed")
        clock = self._core.clock
        began = clock.monotonic()
        timeout_s = stage.timeout_seconds or session.pipeline_config.default_timeout_seconds
        value = await in_time(clock, work(session.view(token), stage), timeout_s, stage.agent_name)
        usage = None
        if isinstance(value, Charged):
            value, usage = value.value, value.usage
        result = result_data(stage, value)
        metrics = result["metrics"] = {"duration_ms": round((clock.monotonic() - began) * 1000), **result["metrics"]}
        if usage is not None:
            for name, dimension in SPENT.items():
                metrics.setdefault(name, usage[dimension])
        if self._core.journal is None:  # what the door makes of it for a journal: plain, and the session's own
            result = codec.decode(codec.encode(result))
        return result if usage is None else Charged(result, usage)

    def work_of(self, pid: str, run: int) -> dict[str, Any]:
        """Return the envelope and the stage of a run, as plain data for the process that runs it."""
        session = self._orchestrator.state.sessions.get(pid)
        token = session.running(run=run) if session is not None else None
        if session is None or token is None:
            raise AgentFailed(f"run {run} of pipeline {pid} is no longer needed")
        self._core.taint.pass_on_to_here(pid, "the envelope of")
        return {
            "envelope": session.view(token).to_data(),
            "stage": session.pipeline_config.by_name[token.stage].to_data(),
        }

    async def _ask(self, ctx: Context, ask: list[Any]) -> None:
        """Put a branch's question to a human, and report its end to the session."""
        process, questions = ctx.own_process, self._orchestrator.questions
        kind, text, message = ask[:3]
        number = ask[3] if len(ask) > 3 else self._number_of(process.pid, ask)
        response: dict[str, Any] | None = None
        unanswered = ""
        try:
            answer = await self._interrupts.ask(
                process,
                kind=kind,
                key=next_key(process),
                question=text or f"{kind}?",
                message=message,
                asked=lambda interrupt_id: questions.record_id(process.pid, number, interrupt_id),
            )
            response = response_data(answer)
        except LyraError as error:  # it expired, or was cancelled
            if isinstance(error, Divergence) or process.out_of_time:
                raise
            unanswered = error.message
        session = self._orchestrator.state.sessions.get(process.pid)
        question = session.question(number) if session is not None else None
        if question is not None:  # else it has ended in the session: this is a replay, or it was answered there
            questions.over(process.pid, question, response, unanswered=unanswered)

    def _number_of(self, pid: str, ask: list[Any]) -> int:
        """Return the number of a question in a plan of an older version, which had none: the last with the same
        text."""
        session = self._orchestrator.state.sessions.get(pid)
        waiting = session.waiting if session is not None else []
        return next((question.number for question in reversed(waiting) if _question_row(question)[:3] == ask[:3]), 0)


def effect_name(stage: AgentConfig) -> str:
    """Return the name of the effect of a run of the stage."""
    return f"pipeline:{stage.agent_name}"


def _facts_of(error: Exception) -> dict[str, Any]:
    """Return what a report says of an error besides its text: its code, and what the failed run has used."""
    facts: dict[str, Any] = {"error_code": error.code if isinstance(error, LyraError) else EffectFailed.code}
    usage = getattr(error, "usage", None)
    if isinstance(usage, Usage):
        facts["metrics"] = {name: usage[dimension] for name, dimension in SPENT.items()}
    return facts


def _question_row(question: Question) -> list[Any]:
    asked = question.interrupt
    return [question.kind, str(asked.get("question", "")), str(asked.get("message", "")), question.number]


@give_name(PIPELINE)
async def run_pipeline(
    ctx: Context, config: Any = None, envelope: Any = None, is_stage: bool = False
) -> dict[str, Any]:
    """Run a pipeline, as the program of every one; its session has the pid of its process.

    A process begins one by `ctx.spawn(run_pipeline, config, envelope, shard=…)`: then the result has the last envelope.
    """
    process = ctx.own_process
    pipelines: Orchestrator = process.core.subsystems.find_by_name("pipelines")
    if config is None:
        return await pipelines.runner.run(ctx)
    read(process, _BEGIN, lambda: pipelines._begin_spawned(process.pid, config, envelope))
    ended = await pipelines.runner.run(ctx, is_stage=is_stage)
    return {**ended, **read(process, _END, lambda: pipelines._describe_end(process.pid))}


run_pipeline.__lyra_spawns__ = lambda _kernel, _args: ()  # type: ignore[attr-defined]  # asked about by its own name


# The child reads the envelope itself (`Runner.work_of`), as a journaled reading, so that a replay has the same. Its
# effects are its own: after a crash it continues where it was, and only an effect that was in flight is in doubt.

# Metric of a run → dimension of the usage that it was charged.
SPENT: Final = {
    "llm_calls": "llm_calls",
    "tool_calls": "tool_calls",
    "tokens_in": "input_tokens",
    "tokens_out": "output_tokens",
}


async def run_stage_process(
    ctx: Context, orchestrator: Orchestrator, agent: RegisteredAgent, stage: AgentConfig, run: int
) -> dict[str, Any]:
    """Return the report of a run, tried again as the stage says; the last error is raised, with what the try has
    used."""
    retry, attempt = stage.retry, 1
    program: Any = agent.program
    while True:
        child = ctx.spawn(program, ctx.pid, run, stage.name, budget=_budget(orchestrator, ctx.pid, agent, stage, run))
        try:
            return await _outcome(ctx, child, stage)
        except Exception as error:
            if retry is None or not retry.should_retry(error, attempt) or ctx.own_process.out_of_time:
                raise
            await ctx.sleep(retry.delay(attempt, lambda: 0.5, error))
            attempt += 1


async def _outcome(ctx: Context, child: ChildHandle[Any], stage: AgentConfig) -> dict[str, Any]:
    try:
        ended = await child.wait()
    except asyncio.CancelledError:
        OwnContext(ctx.own_process).stop(child)
        raise
    error = ended.error
    if error is None and ended.reason != "normal":
        error = AgentFailed(f"agent {stage.agent_name} ended: {ended.reason}", status=ended.reason, pid=child.pid)
    process = child._look_up()
    if error is not None:
        if process is not None:
            error.usage = process.budget.usage  # type: ignore[attr-defined]  # for the report's metrics
        raise error
    result: dict[str, Any] = ended.result
    if process is not None:  # calls that a crash cut off are charged, and the program does not know of them
        counted = result["metrics"]
        charged = {name: max(counted.get(name) or 0, process.spent[dimension]) for name, dimension in SPENT.items()}
        result = {**result, "metrics": {**counted, **{name: used for name, used in charged.items() if used}}}
    wrong = stage.wrong_with(result["output"])
    if wrong is not None:
        raise AgentFailed(f"the output of {stage.agent_name} {wrong}")
    return result


# Metric of a run → field of an envelope that counts it.
_COUNTED: Final = {
    "llm_calls": "llm_call_count",
    "tool_calls": "tool_call_count",
    "tokens_in": "tokens_in",
    "tokens_out": "tokens_out",
}


async def run_stage_abroad(ctx: Context, orchestrator: Orchestrator, stage: AgentConfig, run: int) -> dict[str, Any]:
    """Return the report of a run by an agent of another shard: there it is a pipeline of one stage, which keeps the
    stage's time and retries. What it asks is asked here."""
    process = ctx.own_process
    name = stage.agent_name
    shard, config, given = read(process, _ABROAD, lambda: orchestrator._describe_abroad(process.pid, run))
    budget = _budget(orchestrator, process.pid, None, stage, run)
    child = ctx.spawn(run_pipeline, config, given, True, shard=shard, budget=budget)
    try:
        ended = await child.wait()
    except asyncio.CancelledError:
        OwnContext(process).stop(child)
        raise
    if ended.error is not None:
        raise ended.error
    if ended.reason != "normal":
        raise AgentFailed(f"agent {name} on shard {shard} ended: {ended.reason}", status=ended.reason, pid=child.pid)
    told: dict[str, Any] = ended.result
    after = told["envelope"]
    records = after["processing_history"][len(given["processing_history"]) :]
    metrics = {metric: after[field] - given[field] for metric, field in _COUNTED.items()}
    metrics["duration_ms"] = sum(record["duration_ms"] for record in records)
    if told["reason"] not in (TerminalReason.COMPLETED, TerminalReason.BREAK_REQUESTED, _ASKS):
        error = after["failed_stages"].get(name) or told["message"] or str(told["reason"])
        code = told["error_code"] or AgentFailed.code
        return {"success": False, "error": error, "error_code": code, "metrics": metrics}
    went_well = {"output": after["outputs"].get(name, {}), "metrics": metrics}
    if told["reason"] == _ASKS:
        return {**went_well, "interrupt": told["interrupt"]}
    return {**went_well, "break_loop": True} if told["reason"] == TerminalReason.BREAK_REQUESTED else went_well


def _budget(
    orchestrator: Orchestrator, pid: str, agent: RegisteredAgent | None, stage: AgentConfig, run: int
) -> Budget:
    """Return the limits of one run: the agent's own, the stage's time, and what is left of the pipeline's quota."""
    session = orchestrator.state.sessions.get(pid)
    default_s = session.pipeline_config.default_timeout_seconds if session is not None else None
    limits: dict[str, Any] = {"name": f"{stage.name} run {run}", **orchestrator.quota_left(pid)}
    seconds = [value for value in (stage.timeout_seconds or default_s, limits.get("seconds")) if value is not None]
    if seconds:
        limits["seconds"] = min(seconds)
    return Budget.of(None if agent is None else agent.budget).child(limits).within_parent()
