"""The orchestrator: gives the next instruction of a pipeline, takes the results, and keeps both across restarts.

    kernel.initialize_orchestration("p1", {"name": "review", "agents": [...]})
    instruction = kernel.get_next_instruction("p1")          # run_agent, wait_interrupt or terminate
    instruction = kernel.report_agent_result("p1", {"agent_name": "draft", "output": {...}})

A worker anywhere may drive a session with these calls; `execute_pipeline` drives one with agents registered here, as a
durable process (`runner`). Asking for an instruction only writes what must be written once (a stage is started, a bound
ends the pipeline): asked twice, the answer is the same. The changes themselves are pure (`moves`), the values exchanged
with workers are in `instruction`, questions to people in `questions`, what listeners are told in `feeds`; this module
has the calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from lyra.core import codec
from lyra.core.checking.check import sendable_text
from lyra.core.envelope import ANONYMOUS, Envelope, TerminalReason
from lyra.core.limits import PIPELINE_EVENTS_UNREAD_MAX, PIPELINE_SESSION_IDLE_S
from lyra.errors import ConfigError, InvalidTransition, NameTaken, NoSuchProcess, Overloaded, ProcessExit
from lyra.kernel.base.acting import require, require_signal
from lyra.kernel.base.subsystem import Subsystem
from lyra.kernel.pipelines.agents import AgentRun, Agents, agent_run, pipeline_of
from lyra.kernel.pipelines.declaration import AgentConfig, PipelineConfig
from lyra.kernel.pipelines.feeds import PipelineEvent, PipelineFeeds, last_event
from lyra.kernel.pipelines.instruction import (
    Instruction,
    SessionState,
    WorkerLease,
    make_wait_instruction,
    other_instruction,
    report_row,
    run_instruction,
    session_state,
)
from lyra.kernel.pipelines.questions import Questions
from lyra.kernel.pipelines.routing import NodeKind
from lyra.kernel.pipelines.runner import Runner
from lyra.kernel.pipelines.session import (
    Session,
    Token,
    check_version,
    checkpoint_of,
    evaluate_routing,
    session_data,
    session_in,
    unmergeable,
)
from lyra.kernel.pipelines.state import LeaseRequest, PipelineState, WorkerLeases
from lyra.kernel.programs.handle import Ack
from lyra.kernel.workers.envelope_table import envelope_of

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core
    from lyra.kernel.interrupts.service import InterruptService
    from lyra.kernel.process.process import Exit, Process
    from lyra.kernel.programs.lifetime import Lifetimes
    from lyra.kernel.programs.registry import Programs
    from lyra.kernel.workers.lifecycle import LifecycleManager
    from lyra.kernel.workers.usage import ResourceTracker


# Rows with text of the process that makes them; the others say how far the pipeline is.
_WITH_TEXT: Final = frozenset(
    f"pipeline.{word}" for word in ("initialized", "reported", "restored", "waiting", "resumed", "terminated")
)


# Dimension of a Budget → (field of a quota, field of the usage).
_LEFT: Final = {
    "llm_calls": ("max_llm_calls", "llm_calls"),
    "tool_calls": ("max_tool_calls", "tool_calls"),
    "input_tokens": ("max_input_tokens", "tokens_in"),
    "output_tokens": ("max_output_tokens", "tokens_out"),
}


class Orchestrator(Subsystem):
    """See the module. Its facts are in `state`; agents, listeners and runners belong to this kernel alone."""

    NAME: ClassVar[str] = "pipelines"

    def __init__(
        self,
        core: Core[Process],
        programs: Programs,
        lifetimes: Lifetimes,
        interrupts: InterruptService,
        lifecycle: LifecycleManager,
        resources: ResourceTracker,
    ) -> None:
        self._core = core
        self._interrupts = interrupts
        self._lifecycle = lifecycle
        self._resources = resources
        self.state = PipelineState()
        self.agents = Agents(core, programs.name)
        self.questions = Questions(core, interrupts, self)
        self._feeds = PipelineFeeds(core, self.state, interrupts, self.questions)
        self.runner = Runner(core, programs, lifetimes, interrupts, self)
        self.leases = WorkerLeases(core, self)
        lifecycle.pipelines = self
        interrupts.on_answered.append(self.runner.look_again)
        interrupts.on_doubt.append(self._feeds.tell_doubt)
        interrupts.on_program_asked.append(self._feeds.tell_question)
        self._restored_at: float | None = None
        self._restored_seq = 0  # the last row of an earlier kernel

    def on_restored(self) -> None:
        self._restored_at = self._core.now()
        self._restored_seq = 0 if self._core.journal is None else self._core.journal.seq
        self.leases.on_restored()

    def stop(self) -> None:
        self.leases.stop()
        self.runner.threads.close()

    # ------------------------------------------------------------------ sessions

    def initialize_session(
        self, pid: str, config: Any, envelope: Envelope | Mapping[str, Any] | None = None, force: bool = False
    ) -> SessionState:
        """Begin a pipeline for a pid. One that has a session already keeps it, unless `force` begins anew."""
        self._core.raise_if_closed()
        if not sendable_text(pid, "a pid"):
            raise ConfigError("a session needs a pid", key="pid")
        checked = PipelineConfig.of(config)
        require("process.spawn", checked.name)
        work = self.envelope_of(envelope, pid)
        if pid in self.state.sessions and not force:
            raise NameTaken(f"there is a pipeline session for {pid} already", hint="force=True begins it anew", pid=pid)
        self._must_be_driven_outside(pid)
        with self._core.listeners.act:
            self._make_known(pid, work)
            self._begin(pid, checked, work)
        return self.get_session_state(pid)

    def _begin(self, pid: str, checked: PipelineConfig, work: Envelope) -> None:
        row: dict[str, Any] = {"config": checked, "envelope": work}
        if self._core.journal is None and self._core.listening:
            row = codec.decode(codec.encode(row))  # listeners get plain data, as they would from a journal
        self.fact(pid, "pipeline.initialized", row)

    def _make_known(self, pid: str, work: Envelope) -> None:
        """Give a pid that was not submitted an entry of the process table, for as long as its pipeline is known."""
        lifecycle = self._lifecycle
        if lifecycle.came_with_pipeline(pid) and not lifecycle.is_live(pid):
            lifecycle.forget_with_pipeline(pid)  # of a pipeline that ended
        if lifecycle.find(pid) is None:
            user_id = "" if work.user_id == ANONYMOUS else work.user_id
            lifecycle.enter_with_pipeline(pid, request_id=work.request_id, user_id=user_id, session_id=work.session_id)

    def get_session_state(self, pid: str) -> SessionState:
        return session_state(self._read(pid))

    def store_envelope(self, pid: str, envelope: Any) -> Envelope:
        """Replace the envelope of a session, which stays at its stage; an ended session keeps its own."""
        require_signal(pid)
        session = self._session(pid)
        if session.terminated:
            raise InvalidTransition(f"pipeline {pid} is over", hint="initialize_orchestration begins one", pid=pid)
        data = session_data(session)
        data["envelope"] = self.envelope_of(envelope, pid).to_data()
        self.fact(pid, "pipeline.restored", {"session": data})
        return self.get_session_state(pid).envelope

    def terminate_session(self, pid: str, reason: str = "user_cancelled", message: str = "") -> Ack:
        """End a pipeline, and the process that runs it; one that has ended keeps its reason."""
        require_signal(pid)
        session = self._session(pid)
        try:
            word = TerminalReason(reason)
        except ValueError:
            words = ", ".join(TerminalReason)
            raise ConfigError(f"there is no terminal reason {reason!r}", hint=f"one of {words}", key="reason") from None
        seq = 0 if session.terminated else self._terminate(pid, word, sendable_text(message, "a message"))
        self.runner.stop(pid, f"pipeline terminated: {session.envelope.termination_reason}")
        return Ack(self._core, seq)

    def process_ended(self, process: Process, ended: Exit) -> None:
        """End the pipeline of a process that ended before it. A process that diverged is resumed later."""
        if process.pid not in self.state.sessions or ended.reason == "divergence":
            return
        core = self._core
        if core.stopping or core.draining or core.failure is not None or not self.runner.runs(process):
            return
        session = self.state.sessions[process.pid]
        if not session.terminated:
            told = ended.error is None
            reason = TerminalReason.USER_CANCELLED if told else TerminalReason.TOOL_FAILED_FATALLY
            self._terminate(process.pid, reason, f"its process ended: {ended.error or ended.reason}")

    def cleanup_session(self, pid: str) -> bool:
        """Forget a session, and the entry that came with it; False if there is none. One that a process of this kernel
        still runs is refused."""
        with self._core.listeners.act:
            forgotten = self.forget_session(pid)
            if forgotten:
                self._lifecycle.forget_with_pipeline(pid)
            return forgotten

    def forget_session(self, pid: str) -> bool:
        """Forget a session and keep the entry of its process; False where there is none."""
        self._core.raise_if_closed()
        session = self.state.sessions.get(pid)
        if session is None:
            return False
        process = self._core.processes.get(pid)
        if not session.terminated and process is not None and process.exit is None:
            raise InvalidTransition(f"pipeline {pid} is under way", hint="terminate_session ends it", pid=pid)
        self.fact(pid, "pipeline.forgotten", {})
        return True

    def cleanup_stale_sessions(self, idle_s: float = PIPELINE_SESSION_IDLE_S) -> int:
        """Forget sessions that ended, and those that no worker touched for `idle_s`, drives or waits in
        for an answer. Their entries end, and are kept as long as others."""
        core = self._core
        core.raise_if_closed()
        forgotten = 0
        now = core.now()
        for pid in list(self.state.idle_since(now - idle_s, lambda moment: self._not_ahead(moment, now))):
            if self.state.sessions[pid].terminated or not self._is_alive(pid):
                process = core.processes.get(pid)
                if process is None or process.exit is not None:
                    if not self.state.sessions[pid].terminated and self._lifecycle.came_with_pipeline(pid):
                        self._terminate(pid, TerminalReason.USER_CANCELLED, f"no worker drove it for {idle_s:g} s")
                    forgotten += self.forget_session(pid)
        return forgotten

    def _is_alive(self, pid: str) -> bool:
        """Return whether a worker drives it, or a person may still answer what it asks."""
        core, session = self._core, self.state.sessions[pid]
        driven = self._lifecycle.is_live(pid) and not self._lifecycle.came_with_pipeline(pid)
        if driven or self._interrupts.has_pending(pid):
            return True
        idle_s = core.now() - session.last_activity_at
        return any(self._interrupts.lives_longer(question.kind, idle_s) for question in session.waiting)

    def entry_ended(self, pid: str, reason: str) -> None:
        """End the pipeline of an entry that was ended."""
        session = self.state.sessions.get(pid)
        if session is not None and not session.terminated:
            self._terminate(pid, TerminalReason.USER_CANCELLED, reason)

    # ------------------------------------------------------------------ the step calls

    def get_next_instruction(self, pid: str, worker: str | None = None, lease_s: float | None = None) -> Instruction:
        """Return what to do now; asked again, the same. A worker that gives its name has a lease on the run."""
        require_signal(pid)
        wanted = LeaseRequest.check(worker, lease_s)
        self._core.raise_if_closed()
        session = self._session(pid)
        self.leases.end_late(session)
        return self._next(session, wanted)

    def _next(self, session: Session, wanted: LeaseRequest | None) -> Instruction:
        self._read(session.process_id)
        if not session.terminated and not self.questions.hold_up(session):
            token = session.running_for(wanted.worker if wanted is not None else "") or self._start_next(session)
            if token is not None:
                return self._run_instruction(session, token, wanted)
            held = session.first("running")
            lease = self.leases.lease_of(session, held) if held is not None else None
            if lease is not None:
                return make_wait_instruction(session, lease)
        return other_instruction(session)

    def _run_instruction(self, session: Session, token: Token, wanted: LeaseRequest | None) -> Instruction:
        lease = self.leases.grant(session, token, wanted) if wanted is not None else None
        return run_instruction(session, token, lease)

    def get_ready_instructions(
        self, pid: str, worker: str | None = None, lease_s: float | None = None
    ) -> list[Instruction]:
        """All that may run at the same time (branches of a fork, stages in parallel mode), or the one other thing."""
        wanted = LeaseRequest.check(worker, lease_s)
        self._core.raise_if_closed()
        session = self._read(pid)
        self.leases.end_late(session)
        self.start_ready(session)
        name = wanted.worker if wanted is not None else ""
        running = [token for token in session.tokens if token.state == "running" and token.worker in ("", name)]
        if session.terminated or session.held_up or not running:
            return [self._next(session, wanted)]
        return [self._run_instruction(session, token, wanted) for token in running]

    def report_agent_result(
        self, pid: str, result: Mapping[str, Any], worker: str | None = None, lease_s: float | None = None
    ) -> Instruction:
        """Take the result of a run and say what comes next. A run reported again changes nothing, nor does the report
        of a worker that has lost its lease to another."""
        require_signal(pid)
        wanted = LeaseRequest.check(worker, lease_s)
        self._core.raise_if_closed()
        session = self._session(pid)
        row = report_row(result)
        if not session.terminated:
            self._must_be_driven_outside(pid)
            self.leases.end_late(session)
        if not session.terminated:
            token = self._find_reported_token(session, row, wanted)
            if token is not None:
                row["retry"] = True
                self.record_report(pid, token, row)
        return self._next(session, wanted)

    def renew_lease(self, pid: str, worker: str, lease_s: float | None = None) -> list[WorkerLease]:
        """More time for the runs that a worker has; InvalidTransition if it has none any more."""
        require_signal(pid)
        self._core.raise_if_closed()
        session = self._session(pid)
        self.leases.end_late(session)
        wanted = LeaseRequest.check(worker, lease_s)
        assert wanted is not None
        return self.leases.renew(session, wanted)

    def release_lease(self, pid: str, worker: str) -> int:
        """Take back what a worker has not begun; the next that asks is given it. Gives how many runs."""
        require_signal(pid)
        self._core.raise_if_closed()
        return self.leases.release(self._session(pid), sendable_text(worker, "a worker"))

    def is_run_here(self, pid: str) -> bool:
        """Return whether a process of this kernel runs the pipeline, and limits the time of its runs itself."""
        process = self._core.processes.get(pid)
        return process is not None and self.runner.runs(process)

    def may_repeat(self, session: Session, token: Token) -> bool:
        """Return whether a run that may have been performed is performed again without asking a person."""
        stage = session.pipeline_config.by_name[token.stage]
        agent = self.agents.find(stage.agent_name)
        return stage.idempotent or stage.retry is not None or (agent is not None and agent.idempotent)

    def _not_ahead(self, began_at: float, now: float) -> float:
        """When something began. A clock that was ahead in an earlier life put it into the future: then it is when this
        kernel opened."""
        return began_at if began_at <= now or self._restored_at is None else self._restored_at

    def _find_reported_token(self, session: Session, row: dict[str, Any], wanted: LeaseRequest | None) -> Token | None:
        agent, run = row["agent_name"], row["run_id"]
        token = session.running(run=run, agent=agent)
        if token is not None and wanted is not None and token.worker not in ("", wanted.worker):
            return None  # another worker has it by now
        if token is not None and (not agent or session.running(agent=agent) is not None):
            return token
        doubted = session.in_doubt(run=run, agent=agent) if token is None else None
        if doubted is not None and (wanted is None or doubted.worker == wanted.worker):
            return doubted  # its worker is back, and says what became of it
        again = 0 < run <= session.runs if run else session.ran_before(agent)
        if again and token is None:
            return None
        waits = ", ".join(other.stage for other in session.tokens if other.state in ("ready", "running")) or "nothing"
        raise InvalidTransition(
            f"pipeline {session.process_id} does not wait for {agent or f'run {run}'}",
            hint=f"it waits for {waits}",
            pid=session.process_id,
            agent_name=agent,
        )

    def record_report(self, pid: str, token: Token, row: dict[str, Any]) -> None:
        metrics, session = row["metrics"], self.state.sessions[pid]
        if session.pipeline_config.state_schema and row["success"]:
            wrong = unmergeable(session, token, row["output"])
            row = {**row, "success": False, "error": wrong} if wrong else row
        self.fact(pid, "pipeline.reported", {**row, "token": token.id})
        used = {name: metrics[name] for name in ("llm_calls", "tool_calls", "tokens_in", "tokens_out") if metrics[name]}
        self._resources.count(pid, {"agent_hops": 1, **used})

    def evaluate_routing(self, pid: str, agent_name: str | None = None) -> str:
        """Return the target that the pipeline would go to if that stage (by default the current one) succeeded now."""
        session = self._session(pid)
        name = agent_name or session.envelope.current_stage
        stage = session.pipeline_config.stage(name)
        if stage is None:
            raise ConfigError(f"pipeline {session.pipeline_config.name} has no stage {name!r}", key="agent_name")
        known = session.envelope.outputs
        token = Token(0, stage.name, last=stage.name if stage.name in known else stage.agent_name)
        return evaluate_routing(stage, session.facts(token))[0]

    # ------------------------------------------------------------------ what may run

    def start_ready(self, session: Session) -> None:
        """Start every stage that may run now, within the bounds."""
        if session.terminated or self.questions.hold_up(session):
            return
        while self._start_next(session) is not None:
            pass

    def _start_next(self, session: Session) -> Token | None:
        while (token := session.first("ready")) is not None:
            reached, message = session.envelope.find_reached_bound(), ""
            if reached is None:
                reached, message = self._quota_reached(session.process_id)
            if reached is not None:
                self._terminate(session.process_id, reached, message)
                return None
            self.fact(session.process_id, "pipeline.started", {"token": token.id})
            if (
                token.state == "running" and token in session.tokens
            ):  # else its context was too large and the stage failed
                return token
        return None

    def _quota_reached(self, pid: str) -> tuple[TerminalReason | None, str]:
        """Return the quota that a pipeline runs under, except its time: that is told, not enforced."""
        resources = self._resources
        if not self._has_own_quota(pid):
            return None, ""  # the pipeline's bounds apply
        reason = resources.first_over(pid, timed=False)
        if not reason:
            return None, ""
        words = TerminalReason.__members__.values()
        return next((word for word in words if word.value == reason), TerminalReason.POLICY_VIOLATION), reason

    def _has_own_quota(self, pid: str) -> bool:
        """Return whether it was submitted, or given another quota than the default."""
        entry = self._lifecycle.state.entries.get(pid)
        if entry is not None and not entry.pipeline:
            return True
        return self._resources.get_quota(pid) != self._resources.default_quota

    def quota_left(self, pid: str) -> dict[str, Any]:
        """Return what is left of the quota of a pipeline that has its own, as the limits of a Budget."""
        if not self._has_own_quota(pid):
            return {}
        quota, usage = self._resources.get_quota(pid), self._resources.get_usage(pid)
        left = {name: max(0, getattr(quota, limit) - getattr(usage, used)) for name, (limit, used) in _LEFT.items()}
        return {**left, "seconds": max(0.001, quota.timeout_seconds - usage.elapsed_seconds)}

    # ------------------------------------------------------------------ questions to people

    def resume_after_interrupt(self, pid: str, interrupt: Any, response: Any) -> Instruction:
        """Take the answer to the question that a pipeline waits for: continue at the stage the pipeline names for its
        kind."""
        require_signal(pid)
        self._core.raise_if_closed()
        self.questions.resume(self._session(pid), interrupt, response)
        return self.get_next_instruction(pid)

    # ------------------------------------------------------------------ checkpoints

    def checkpoint(self, pid: str) -> dict[str, Any]:
        """Return the whole session as plain data, to be kept anywhere and resumed from under any pid."""
        return checkpoint_of(self._read(pid))

    def resume_from_checkpoint(self, pid: str, checkpoint: Any, *, force: bool = False) -> SessionState:
        """Return a session that continues where the checkpoint was taken."""
        require_signal(pid)
        self._core.raise_if_closed()
        check_version(checkpoint)
        if pid in self.state.sessions and not force:
            raise NameTaken(f"there is a pipeline session for {pid} already", hint="force=True replaces it", pid=pid)
        self._must_be_driven_outside(pid)
        kept, work = session_in(checkpoint)
        with self._core.listeners.act:
            self._make_known(pid, work)
            self.fact(pid, "pipeline.restored", {"session": kept})
        return self.get_session_state(pid)

    # ------------------------------------------------------------------ running with agents of this kernel

    async def execute_pipeline(
        self, config: Any, envelope: Envelope | Mapping[str, Any] | None = None, *, pid: str | None = None
    ) -> AsyncGenerator[PipelineEvent, None]:
        """Run a pipeline as a durable process and give its events. A known pid continues where it was."""
        checked = PipelineConfig.of(config)
        require("process.spawn", checked.name)
        core = self._core
        pid = pid or f"pipeline_{core.entropy.text(16)}"
        session = self.state.sessions.get(pid)
        work: Envelope | None = None
        if session is None:  # a stage of one that was begun waits for its agent
            work = self.envelope_of(envelope)
            wanted = [stage.agent_name for stage in checked.agents if stage.node_kind is NodeKind.AGENT]
            self.agents.check(wanted, _user_of(work))
            if self._lifecycle.find(self._lifecycle.check_pid(pid)) is not None:
                raise NameTaken(f"process {pid} is no pipeline of this kernel", hint="use another pid", pid=pid)
        core.raise_if_closed()
        if session is not None and not session.pipeline_config.means_the_same(checked):
            raise NameTaken(f"{pid} runs another pipeline", hint="use another pid, or the same declaration", pid=pid)
        feed = self._feeds.open(pid)
        try:
            if session is None:
                assert work is not None
                self._begin(sendable_text(pid, "a pid"), checked, work)
            else:
                self.take_over(session)
                self._feeds.tell_where_it_stands(session, feed)
            if self._session(pid).terminated:
                feed.put(last_event(self._session(pid)))
            process = self.runner.start(pid, feed)
            while True:
                if not feed.events:
                    await feed.more()
                if feed.overrun:
                    raise Overloaded(
                        f"the listener of pipeline {pid} is too slow: {PIPELINE_EVENTS_UNREAD_MAX} events are unread",
                        hint="the run goes on; execute_pipeline with the same pid tells where it stands",
                        pid=pid,
                    )
                event = feed.events.popleft()
                if event is None:
                    break
                if core.journal is not None:  # what is told has happened for good
                    await core.journal.wait_until_durable(int(event.data.get("seq", 0)))
                core.taint.pass_on_to_here(pid, "what came of")
                yield event
                if event.type == "pipeline_completed":
                    return
            self.runner.raise_unless_finished(process, pid)
        finally:
            self._feeds.close(pid, feed)

    def _begin_spawned(self, pid: str, config: Any, envelope: Any) -> None:
        """Begin the pipeline of a process that was spawned with its declaration."""
        checked = PipelineConfig.of(config)
        require("process.spawn", checked.name)
        work = self.envelope_of(envelope)
        if self._core.processes[pid].life > self._restored_seq:
            wanted = [stage.agent_name for stage in checked.agents if stage.node_kind is NodeKind.AGENT]
            self.agents.check(wanted, _user_of(work))
            if pid in self.state.sessions:
                raise NameTaken(f"there is a pipeline session for {pid} already", hint="use another pid", pid=pid)
        elif pid in self.state.sessions:  # of an earlier kernel, which may have begun it; its agents come back later
            return
        self._begin(pid, checked, work)

    def _describe_end(self, pid: str) -> dict[str, Any]:
        """Return the last envelope of a pipeline that is over, the code of its error, and what it asks."""
        session = self._session(pid)
        asked = dict(session.waiting[0].interrupt) if session.waiting else None
        return {"envelope": session.envelope.to_data(), "error_code": session.error_code, "interrupt": asked}

    def _describe_abroad(self, pid: str, run: int) -> list[Any]:
        """Return a shard that has the agent of a run, and the pipeline that runs it there with its envelope."""
        work = self.runner.work_of(pid, run)
        stage = msgspec.convert(work["stage"], AgentConfig)
        settings = {key: value for key, value in work["stage"].items() if value is not None and key != "output_key"}
        config = pipeline_of(stage.agent_name, settings, Envelope.from_data(work["envelope"]))
        work["envelope"]["interrupt_pending"] = False  # what other stages ask is not asked there
        return [self._core.remote.agents.choose(stage.agent_name), config, work["envelope"]]

    async def execute_agent(
        self,
        name: str,
        envelope: Envelope | Mapping[str, Any] | str | None = None,
        config: Any = None,
        *,
        pid: str | None = None,
        quota: Any = None,
    ) -> AgentRun:
        """Run one agent as a pipeline of one stage, in its own process."""
        self._core.raise_if_closed()
        work = self.envelope_of(envelope)
        self.agents.must_exist(name, _user_of(work))
        if work.terminated:
            raise InvalidTransition(f"envelope {work.envelope_id} is over", hint="clone_envelope makes a new one")
        checked = PipelineConfig.of(pipeline_of(name, config, work))
        is_known = bool(pid)
        pid = pid or f"agent_{self._core.entropy.text(16)}"
        if quota is not None and pid not in self.state.sessions:
            quota = self._resources.resolve(quota)
            self._resources.open(self._lifecycle.check_pid(pid), quota, user_id=_user_of(work))
        failure = ""
        try:
            async for _event in self.execute_pipeline(checked, work, pid=pid):
                pass
        except ProcessExit as error:  # killed while it ran: the session says what it got to
            failure = error.message
        except asyncio.CancelledError:
            if not is_known and not self._core.stopping:  # no caller can ask for the result any more
                self.runner.stop(pid, "its caller left")
            raise
        return agent_run(name, work, self._session(pid), failure)

    def take_over(self, session: Session) -> None:
        """From a worker outside: its entry makes way for the process, which asks the open questions itself."""
        pid, core = session.process_id, self._core
        if self._lifecycle.came_with_pipeline(pid):
            with core.listeners.act:
                for question in [question for question in session.waiting if question.token and question.id]:
                    known, unasked = question.id, {**question.interrupt, "id": ""}
                    self.fact(pid, "pipeline.waiting", {"interrupt": unasked, "question": question.number})
                    self.questions.withdraw(known, "its process asks it again")
                self._lifecycle.make_way(pid)

    def tell_token(self, pid: str, stage: str, delta: str, *, debug: bool) -> None:
        """Pass a piece of an answer to the listeners of a pipeline; it is not kept."""
        self._feeds.tell_token(pid, stage, delta, debug=debug)

    # ------------------------------------------------------------------ helpers

    def sessions(self) -> Iterator[str]:
        return iter(self.state.sessions)

    def _session(self, pid: Any) -> Session:
        session = self.state.sessions.get(pid) if isinstance(pid, str) else None
        if session is None:
            raise NoSuchProcess(f"there is no pipeline session for {pid!r}", hint="initialize_orchestration", pid=pid)
        return session

    def _read(self, pid: Any) -> Session:
        """Return a session whose text goes to the process that runs here."""
        session = self._session(pid)
        self._core.taint.pass_on_to_here(pid, "the pipeline of")
        return session

    def envelope_of(self, value: Envelope | Mapping[str, Any] | str | None, pid: str = "") -> Envelope:
        """Return an envelope as it is; text and mappings as a new one, with the ids of the pid's entry where they say
        none."""
        return envelope_of(self._core, self._lifecycle, value, pid)

    def _must_be_driven_outside(self, pid: str) -> None:
        """Refuse reports into, and replacement of, a pipeline that a process of this kernel runs."""
        process = self._core.processes.get(pid)
        if pid in self.state.sessions and process is not None and process.exit is None and self.runner.runs(process):
            hint = "its agents report by themselves; terminate_session ends it"
            raise InvalidTransition(f"pipeline {pid} is run by a process of this kernel", hint=hint, pid=pid)

    def _terminate(self, pid: str, reason: TerminalReason, message: str) -> int:
        return self.fact(pid, "pipeline.terminated", {"reason": reason.value, "message": message})

    def fact(self, pid: str, kind: str, data: dict[str, Any]) -> int:
        """Write a row of a session that changes; a runner that waits for a change looks again."""
        with self._core.listeners.act:
            was = self.state.sessions.get(pid)
            before, over = (was.waiting, was.terminated) if was is not None else ((), False)
            if kind in _WITH_TEXT:
                self._core.taint.pass_on_from_here(pid, "the pipeline's text from")
            seq = self._core.fact(self.state, pid, kind, {**data, "at": self._core.now()})
            session = self.state.sessions.get(pid)
            if before:
                self.questions.cancel_dropped(before, session.waiting if session is not None else ())
            if session is not None and session.terminated and not (over and session is was):
                self._write_end(session)
            self.leases.watch(pid)
            self.runner.look_again(pid)
            return seq

    def _write_end(self, session: Session) -> None:
        """Write `pipeline.ended` for a session that the last row ended, and end its entry."""
        pid, message = session.process_id, session.envelope.termination_reason
        reason = session.terminal_reason.value if session.terminal_reason is not None else ""
        seconds = max(self._core.now() - session.created_at, 0.0)
        row = {"reason": reason, "message": message, "pipeline": session.pipeline_config.name}
        self._core.fact(self.state, pid, "pipeline.ended", {**row, "latency_ms": int(seconds * 1000)})
        self._lifecycle.pipeline_over(pid, reason or message)


def _user_of(envelope: Envelope) -> str:
    return "" if envelope.user_id == ANONYMOUS else envelope.user_id
