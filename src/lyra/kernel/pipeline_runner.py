"""A pipeline as a durable process: the agents registered here run its stages, one effect a run.

`run_pipeline` is a program like any other. It reads what is due (a journaled reading, so a replay reads the same),
performs each run through the door (`ctx.do`, so a finished run is never repeated, and one that was in flight when its
kernel died is asked about unless it may be repeated), and reports it to the session. Reports that the session has are
passed over, which is all that a replay needs. Agents are looked up by name; after a restart a stage waits until its
agent is registered. Decides nothing about routes: `pipeline_session` does.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core.check import did_you_mean, short_text
from lyra.core.effect import Charged, Effect
from lyra.core.limits import EFFECTS_KEPT, NAME_LENGTH_MAX
from lyra.errors import AgentFailed, ConfigError, Divergence, LyraError, NameTaken, ProcessExit
from lyra.kernel.context import Context, read
from lyra.kernel.process import Process, resume, suspend

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.orchestrator import Orchestrator, PipelineEvent
    from lyra.kernel.pipeline import AgentConfig

__all__ = ["AgentResult", "Agents", "Runner", "run_pipeline"]

_POLL_S: Final = 0.1  # how often a runner looks whether a question from outside is over


class AgentResult(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent function may return instead of a plain mapping."""

    output: dict[str, Any] = {}
    success: bool = True
    error: str | None = None
    metrics: dict[str, Any] = {}
    break_loop: bool = False
    interrupt: dict[str, Any] | None = None


class _Agent(msgspec.Struct, frozen=True):
    call: Callable[[Any], Any]
    idempotent: bool


class Agents:
    """Agents by name."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._by_name: dict[str, _Agent] = {}
        self._waiters: dict[str, list[Any]] = {}

    def register(self, name: str, agent: Any, *, idempotent: bool = False) -> None:
        """Make an agent known: an async function of the envelope, or an object with such a `run`."""
        short_text(name, "an agent's name", most=NAME_LENGTH_MAX)
        if not name:
            raise ConfigError("an agent needs a name", key="name")
        call = agent if callable(agent) and not isinstance(agent, type) else getattr(agent, "run", None)
        if not callable(call):
            raise ConfigError(f"an agent is an async function of the envelope, not {agent!r}", key="agent")
        self._by_name[name] = _Agent(call, idempotent)
        for waker in self._waiters.pop(name, []):
            resume(waker)

    def unregister(self, name: str) -> bool:
        return self._by_name.pop(name, None) is not None

    def names(self) -> list[str]:
        return sorted(self._by_name)

    def check(self, names: Iterable[str]) -> None:
        """Refuse a pipeline whose agents are not all here."""
        missing = [name for name in names if name not in self._by_name]
        if missing:
            near = did_you_mean(missing[0], self._by_name)
            hint = f"did you mean {near!r}?" if near else "kernel.register_agent(name, fn) makes one known"
            raise ConfigError(f"no agent is registered as {missing[0]!r}", hint=hint, key=missing[0], missing=missing)

    def get(self, name: str) -> _Agent:
        self.check([name])
        return self._by_name[name]

    async def wait_for(self, process: Process, name: str) -> _Agent:
        """The agent, as soon as it is registered; not journaled."""
        while name not in self._by_name:
            self._kernel.publish(process.pid, "process.dormant", {"agent": name})
            await suspend(process, self._waiters.setdefault(name, []))
        return self._by_name[name]


class Runner:
    """Runs sessions of one kernel as processes."""

    def __init__(self, kernel: Kernel, orchestrator: Orchestrator) -> None:
        self._kernel = kernel
        self._orchestrator = orchestrator
        self._effects: dict[Any, Effect] = {}  # one for each way that an agent is run

    # ------------------------------------------------------------------ from outside

    def start(self, pid: str, queue: asyncio.Queue[PipelineEvent | None]) -> Process:
        """The process that runs a session; the queue gets a None when it ends."""
        kernel = self._kernel
        handle = kernel.spawn(run_pipeline, pid=pid)
        process = kernel.find(handle.pid)
        if process.program != kernel.programs.name(run_pipeline):
            raise NameTaken(f"process {pid} is no pipeline", hint="use another pid", pid=pid)
        if process.exit is not None:
            queue.put_nowait(None)
            return process
        ended: asyncio.Future[None] = kernel.loop.create_future()

        def tell(future: asyncio.Future[None]) -> None:
            if not future.cancelled():
                future.exception()  # looked at: the listener learns why from the process
            queue.put_nowait(None)

        ended.add_done_callback(tell)
        process.watch(ended)
        return process

    def stop(self, pid: str, reason: str) -> None:
        """End the process of a session that is over: what its agents still do is not waited for."""
        process = self._kernel.processes.get(pid)
        if process is not None and process.exit is None and process.program == self._kernel.programs.name(run_pipeline):
            self._kernel.kill(pid, reason)

    def raise_unless_finished(self, process: Process, pid: str) -> None:
        self._kernel.raise_if_failed()
        ended = process.exit
        if ended is not None and ended.error is not None:
            raise ended.error
        reason = ended.reason if ended is not None else "stopped"
        raise ProcessExit(f"pipeline {pid} ended early: {reason}", reason=reason, pid=pid)

    # ------------------------------------------------------------------ the program

    async def run(self, ctx: Context) -> dict[str, Any]:
        """Until the session is over: run what is due, report it, ask what is to be asked."""
        process = ctx._process
        while True:
            plan = read(process, "pipeline", lambda: self._plan(process.pid))
            word = plan[0]
            if word == "done":
                return {"reason": plan[1], "message": plan[2]}
            if word == "ask":
                await self._ask(ctx, kind=plan[1], question=plan[2], message=plan[3])
            elif word == "wait":
                await self._kernel.pause(process, _POLL_S)
            elif len(plan[1]) == 1:
                run, stage = plan[1][0]
                await self._perform(ctx, run, stage)
            else:
                await self._run_together(ctx, plan)

    def _plan(self, pid: str) -> list[Any]:
        """What is due, as plain data."""
        orchestrator = self._orchestrator
        session = orchestrator.state.sessions.get(pid)
        if session is None:
            return ["done", "forgotten", "the session was cleaned up"]
        orchestrator.start_ready(pid)
        if session.terminated:
            reason = session.terminal_reason.value if session.terminal_reason is not None else ""
            return ["done", reason, session.envelope.termination_reason]
        running = [[token.run, token.stage] for token in session.tokens if token.state == "running"]
        if running:  # also while a question is open: what is under way goes on
            return ["run", running]
        asked = session.envelope.interrupt or {}
        if session.waiting is not None and not session.waiting["id"]:
            return ["ask", session.waiting["kind"], str(asked.get("question", "")), str(asked.get("message", ""))]
        return ["wait"]

    async def _run_together(self, ctx: Context, plan: list[Any]) -> None:
        """Branches of a fork, or stages in parallel mode. One reading of the plan for each run that ends, so that a
        replay, where they end in another order, reads as often."""
        process = ctx._process
        tasks: dict[int, asyncio.Task[None]] = {}
        try:
            while plan[0] == "run":
                alive = {run for run, _ in plan[1]}
                for run in [run for run in tasks if run not in alive]:
                    tasks.pop(run).cancel()
                for run, stage in plan[1]:
                    if run not in tasks:
                        work = self._perform(ctx, run, stage)
                        tasks[run] = self._kernel.tasks.start(work, name=f"{process.pid} {stage}")
                done, _ = await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_COMPLETED)
                first = min(run for run, task in tasks.items() if task in done)
                tasks.pop(first).result()
                plan = read(process, "pipeline", lambda: self._plan(process.pid))
        finally:  # nothing is awaited here: the kernel may be closing the program
            for task in tasks.values():
                task.cancel()

    async def _perform(self, ctx: Context, run: int, stage_name: str) -> None:
        """One run through the door, and its report."""
        process = ctx._process
        session = self._orchestrator.state.sessions[process.pid]
        stage = session.pipeline_config.stage(stage_name)
        assert stage is not None, stage_name
        agent = await self._orchestrator.agents.wait_for(process, stage.agent_name)
        effect = self._effect(stage, session.pipeline_config.default_timeout_seconds, agent)
        try:
            result = await ctx.do(effect, process.pid, run, stage_name)
        except (Divergence, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever an agent raises is a failed stage
            result = {"success": False, "error": str(error) or type(error).__name__}
        self._report(process.pid, run, result)

    def _report(self, pid: str, run: int, result: Mapping[str, Any]) -> None:
        """Once: a replay comes here again with what the session has long been told."""
        session = self._orchestrator.state.sessions.get(pid)
        token = session.running(run=run) if session is not None else None
        if token is None:
            return
        row = {"agent_name": token.stage, "run_id": run, "output": {}, "success": True, "error": None, **result}
        row.setdefault("break_loop", False)
        row.setdefault("interrupt", None)
        row["metrics"] = self._orchestrator.read_metrics(row.get("metrics"))
        self._orchestrator.record_report(pid, token, row)

    def _effect(self, stage: AgentConfig, default_timeout_s: float, agent: _Agent) -> Effect:
        retry = stage.retry
        # A stage that may be run again after a failure may be run again after a crash.
        idempotent = retry is not None or agent.idempotent
        timeout_s = stage.timeout_seconds or default_timeout_s
        key = (stage.agent_name, idempotent, retry, timeout_s)
        found = self._effects.get(key)
        if found is None:
            if len(self._effects) >= EFFECTS_KEPT:
                self._effects.clear()
            name = f"pipeline:{stage.agent_name}"
            found = Effect(self._run_agent, name=name, idempotent=idempotent, retry=retry, timeout_s=timeout_s)
            self._effects[key] = found
        return found

    async def _run_agent(self, pid: str, run: int, stage_name: str) -> Any:
        """Call the agent with its view of the envelope; what it gives becomes plain data."""
        session = self._orchestrator.state.sessions[pid]
        token = session.running(run=run)
        stage = session.pipeline_config.stage(stage_name)
        assert stage is not None, stage_name
        if token is None:
            raise AgentFailed(f"nobody waits for run {run} of {stage_name} any more")
        agent = self._orchestrator.agents.get(stage.agent_name)
        clock = self._kernel.clock
        began = clock.monotonic()
        value = agent.call(session.view(token))
        if inspect.isawaitable(value):
            value = await value
        usage = None
        if isinstance(value, Charged):
            value, usage = value.value, value.usage
        result = _result(stage, value)
        metrics = result["metrics"] = {"duration_ms": round((clock.monotonic() - began) * 1000), **result["metrics"]}
        if usage is None:
            return result
        spent = {"llm_calls": "llm_calls", "tool_calls": "tool_calls", "tokens_in": "input_tokens"}
        for name, dimension in (*spent.items(), ("tokens_out", "output_tokens")):
            metrics.setdefault(name, usage[dimension])
        return Charged(result, usage)

    async def _ask(self, ctx: Context, *, kind: str, question: str, message: str) -> None:
        process = ctx._process
        response: dict[str, Any] | None = None
        try:
            answer = await ctx.ask(question or f"{kind}?", kind=kind, message=message)
            response = {
                "text": answer.text,
                "approved": answer.approved,
                "decision": answer.decision,
                "data": answer.data,
            }
        except LyraError as error:  # it expired, or was taken back
            if isinstance(error, Divergence):
                raise
        session = self._orchestrator.state.sessions.get(process.pid)
        waiting = session.waiting if session is not None else None
        if session is not None and waiting is not None and not waiting["id"]:
            self._orchestrator.resumed(process.pid, dict(session.envelope.interrupt or {}), response)


async def run_pipeline(ctx: Context) -> dict[str, Any]:
    """The program of every pipeline; its session has the pid of its process."""
    return await ctx._process.kernel.orchestrator.runner.run(ctx)


def _result(stage: AgentConfig, value: Any) -> dict[str, Any]:
    """What an agent gave, as a report; a failure it only states is raised, so that it is retried like any other."""
    if not isinstance(value, AgentResult):
        if value is not None and not isinstance(value, Mapping):
            raise AgentFailed(
                f"{stage.agent_name} gave {type(value).__name__}, not a mapping", hint="return a dict or an AgentResult"
            )
        value = AgentResult(output=dict(value or {}))
    if not value.success or value.error:
        raise AgentFailed(value.error or f"{stage.agent_name} failed")
    missing = [name for name in stage.required_output_fields if name not in value.output]
    if missing:
        raise AgentFailed(f"the output of {stage.agent_name} has no {', '.join(missing)}")
    data: dict[str, Any] = {"output": value.output, "metrics": dict(value.metrics)}
    if value.break_loop:
        data["break_loop"] = True
    if value.interrupt:
        data["interrupt"] = dict(value.interrupt)
    return data
