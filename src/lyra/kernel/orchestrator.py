"""The orchestrator: says what a pipeline does next, takes what came of it, and remembers both across restarts.

    kernel.initialize_orchestration("p1", {"name": "review", "agents": [...]})
    instruction = kernel.get_next_instruction("p1")          # run_agent, wait_interrupt or terminate
    instruction = kernel.report_agent_result("p1", {"agent_name": "draft", "output": {...}})

A worker anywhere may drive a session with these calls; `execute_pipeline` drives one with agents registered here, as a
durable process (`pipeline_runner`). Asking changes nothing but what must be written down once (a stage is started, a
bound ends the pipeline): asked twice, the answer is the same. The moves themselves are pure (`pipeline_moves`), what
is said to and by workers is in `instruction`, questions to people in `pipeline_questions`; here are the calls.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core import codec
from lyra.core.check import sendable_text
from lyra.core.envelope import Envelope, TerminalReason
from lyra.core.limits import PIPELINE_SESSION_IDLE_S
from lyra.errors import ConfigError, InvalidTransition, NameTaken, NoSuchProcess
from lyra.kernel.handle import Ack
from lyra.kernel.instruction import (
    Instruction,
    SessionState,
    other_instruction,
    report_row,
    run_instruction,
    session_state,
)
from lyra.kernel.pipeline import PipelineConfig
from lyra.kernel.pipeline_events import Feed, PipelineEvent
from lyra.kernel.pipeline_keys import NodeKind
from lyra.kernel.pipeline_questions import Questions
from lyra.kernel.pipeline_runner import Agents, Runner
from lyra.kernel.pipeline_session import Session, Token, evaluate_routing, session_data
from lyra.kernel.pipeline_state import PipelineState

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel

__all__ = ["Orchestrator"]

CHECKPOINT_VERSION: Final = "1.0"


class Orchestrator:
    """See the module. Its facts are in `state`; agents, listeners and runners belong to this kernel alone."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.state = PipelineState()
        self.state.tell = self._tell
        self.agents = Agents(kernel)
        self.questions = Questions(kernel, self)
        self.runner = Runner(kernel, self)
        self._feeds: dict[str, list[Feed]] = {}

    # ------------------------------------------------------------------ sessions

    def initialize_session(
        self, pid: str, config: Any, envelope: Envelope | Mapping[str, Any] | None = None, force: bool = False
    ) -> SessionState:
        """Begin a pipeline for a pid. One that has a session already keeps it, unless `force` begins anew."""
        self._kernel._raise_if_closed()
        if not sendable_text(pid, "a pid"):
            raise ConfigError("a session needs a pid", key="pid")
        self._initialize(pid, PipelineConfig.of(config), envelope, force=force)
        return self.get_session_state(pid)

    def _initialize(self, pid: str, checked: PipelineConfig, envelope: Any, *, force: bool = False) -> None:
        work = self._envelope(envelope)
        if pid in self.state.sessions and not force:
            raise NameTaken(f"there is a pipeline session for {pid} already", hint="force=True begins it anew", pid=pid)
        row: dict[str, Any] = {"config": checked, "envelope": work}
        if self._kernel.journal is None and self._kernel.listening:
            row = codec.decode(codec.encode(row))  # listeners get plain data, as they would from a journal
        self.fact(pid, "pipeline.initialized", row)

    def get_session_state(self, pid: str) -> SessionState:
        return session_state(self._session(pid))

    def terminate_session(self, pid: str, reason: str = "user_cancelled", message: str = "") -> Ack:
        """End a pipeline, and the process that runs it; one that has ended keeps its reason."""
        session = self._session(pid)
        try:
            word = TerminalReason(reason)
        except ValueError:
            words = ", ".join(TerminalReason)
            raise ConfigError(f"there is no terminal reason {reason!r}", hint=f"one of {words}", key="reason") from None
        seq = 0 if session.terminated else self._terminate(pid, word, sendable_text(message, "a message"))
        self.runner.stop(pid, f"pipeline terminated: {session.envelope.termination_reason}")
        return Ack(self._kernel, seq)

    def cleanup_session(self, pid: str) -> bool:
        """Forget a session; False if there is none. One that a process of this kernel still runs is refused."""
        self._kernel._raise_if_closed()
        session = self.state.sessions.get(pid)
        if session is None:
            return False
        process = self._kernel.processes.get(pid)
        if not session.terminated and process is not None and process.exit is None:
            raise InvalidTransition(f"pipeline {pid} is under way", hint="terminate_session ends it", pid=pid)
        self.fact(pid, "pipeline.forgotten", {})
        return True

    def cleanup_stale_sessions(self, idle_s: float = PIPELINE_SESSION_IDLE_S) -> int:
        """Forget sessions that ended, and those that nobody touched for `idle_s` and no process runs."""
        self._kernel._raise_if_closed()
        forgotten = 0
        for pid in list(self.state.idle_since(self._kernel.clock.now() - idle_s)):
            process = self._kernel.processes.get(pid)
            if process is None or process.exit is not None:
                forgotten += self.cleanup_session(pid)
        return forgotten

    # ------------------------------------------------------------------ the step calls

    def get_next_instruction(self, pid: str) -> Instruction:
        """What to do now; asked again, the same."""
        self._kernel._raise_if_closed()
        session = self._session(pid)
        if not session.terminated and not self.questions.hold_up(session):
            token = session.first("running") or self._start_next(session)
            if token is not None:
                return run_instruction(session, token)
        return other_instruction(session)

    def get_ready_instructions(self, pid: str) -> list[Instruction]:
        """All that may run at the same time (branches of a fork, stages in parallel mode), or the one other thing."""
        self._kernel._raise_if_closed()
        session = self._session(pid)
        self.start_ready(session)
        if session.terminated or session.envelope.interrupt_pending:
            return [other_instruction(session)]
        return [run_instruction(session, token) for token in session.tokens if token.state == "running"]

    def report_agent_result(self, pid: str, result: Mapping[str, Any]) -> Instruction:
        """Take the result of a run and say what comes next. A run reported again changes nothing."""
        self._kernel._raise_if_closed()
        session = self._session(pid)
        row = report_row(result)
        if not session.terminated:
            token = self._reported_token(session, row)
            if token is not None:
                self.record_report(pid, token, row)
        return self.get_next_instruction(pid)

    def _reported_token(self, session: Session, row: dict[str, Any]) -> Token | None:
        agent, run = row["agent_name"], row["run_id"]
        token = session.running(run=run, agent=agent)
        if token is not None and (not agent or session.running(agent=agent) is not None):
            return token
        again = 0 < run <= session.runs if run else session.ran_before(agent)
        if again and token is None:
            return None
        waits = ", ".join(each.stage for each in session.tokens if each.state in ("ready", "running")) or "nothing"
        raise InvalidTransition(
            f"pipeline {session.process_id} does not wait for {agent or f'run {run}'}",
            hint=f"it waits for {waits}",
            pid=session.process_id,
            agent_name=agent,
        )

    def record_report(self, pid: str, token: Token, row: dict[str, Any]) -> None:
        metrics = row["metrics"]
        self.fact(pid, "pipeline.reported", {**row, "token": token.id})
        used = {name: metrics[name] for name in ("llm_calls", "tool_calls", "tokens_in", "tokens_out") if metrics[name]}
        self._kernel.resources.count(pid, {"agent_hops": 1, **used})

    def evaluate_routing(self, pid: str, agent_name: str | None = None) -> str:
        """Where the pipeline would go if that stage (the current one unless said) ended well as its output stands."""
        session = self._session(pid)
        name = agent_name or session.envelope.current_stage
        stage = session.pipeline_config.stage(name)
        if stage is None:
            raise ConfigError(f"pipeline {session.pipeline_config.name} has no stage {name!r}", key="agent_name")
        token = Token(0, stage.name, last=stage.agent_name)
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
            reached = session.envelope.bound_reached()
            if reached is not None:
                self._terminate(session.process_id, reached, "")
                return None
            self.fact(session.process_id, "pipeline.started", {"token": token.id})
            if token.state == "running" and token in session.tokens:  # else its context was too large, and it failed
                return token
        return None

    # ------------------------------------------------------------------ questions to people

    def resume_after_interrupt(self, pid: str, interrupt: Any, response: Any) -> Instruction:
        """The question a pipeline waits for was answered: go on at the stage the pipeline names for its kind."""
        self._kernel._raise_if_closed()
        self.questions.resume(self._session(pid), interrupt, response)
        return self.get_next_instruction(pid)

    # ------------------------------------------------------------------ checkpoints

    def checkpoint(self, pid: str) -> dict[str, Any]:
        """The whole session as plain data, to be kept anywhere and resumed from under any pid."""
        session = self._session(pid)
        data = session_data(session)
        return {
            "version": CHECKPOINT_VERSION,
            "envelope": data["envelope"],
            "session": data,
            "edge_traversals": data["edge_traversals"],
            "stage_visits": data["stage_visits"],
        }

    def resume_from_checkpoint(self, pid: str, checkpoint: Any, *, force: bool = False) -> SessionState:
        """A session that goes on where the checkpoint was taken."""
        self._kernel._raise_if_closed()
        if not isinstance(checkpoint, Mapping) or checkpoint.get("version") != CHECKPOINT_VERSION:
            raise ConfigError(f"not a checkpoint of version {CHECKPOINT_VERSION}", key="version")
        if pid in self.state.sessions and not force:
            raise NameTaken(f"there is a pipeline session for {pid} already", hint="force=True replaces it", pid=pid)
        try:
            msgspec.convert(checkpoint.get("session"), Session)
        except msgspec.ValidationError as error:
            raise ConfigError(f"not a checkpoint: {error}", key="session") from None
        self.fact(pid, "pipeline.restored", {"session": checkpoint["session"]})
        return self.get_session_state(pid)

    # ------------------------------------------------------------------ running with agents of this kernel

    async def execute_pipeline(
        self, config: Any, envelope: Envelope | Mapping[str, Any] | None = None, *, pid: str | None = None
    ) -> AsyncGenerator[PipelineEvent, None]:
        """Run a pipeline as a durable process and tell what happens. The same pid again goes on where it was."""
        checked = PipelineConfig.of(config)
        self.agents.check(stage.agent_name for stage in checked.agents if stage.node_kind is NodeKind.AGENT)
        kernel = self._kernel
        kernel._raise_if_closed()
        pid = pid or f"pipeline_{kernel.entropy.text(16)}"
        session = self.state.sessions.get(pid)
        if session is not None and session.pipeline_config != checked:
            raise NameTaken(f"{pid} runs another pipeline", hint="use another pid, or the same declaration", pid=pid)
        feed = Feed()
        self._feeds.setdefault(pid, []).append(feed)
        try:
            if session is None:
                self._initialize(sendable_text(pid, "a pid"), checked, envelope)
            if self._session(pid).terminated:
                feed.put(self._last_event(pid))
            process = self.runner.start(pid, feed)
            while True:
                if not feed.events:
                    await feed.more()
                event = feed.events.popleft()
                if event is None:
                    break
                if kernel.journal is not None:  # what is told has happened for good
                    await kernel.journal.acknowledged(int(event.data.get("seq", 0)))
                yield event
                if event.type == "pipeline_completed":
                    return
            self.runner.raise_unless_finished(process, pid)
        finally:
            self._feeds[pid].remove(feed)
            if not self._feeds[pid]:
                del self._feeds[pid]

    def _last_event(self, pid: str) -> PipelineEvent:
        envelope = self._session(pid).envelope
        reason = envelope.terminal_reason.value if envelope.terminal_reason is not None else ""
        data = {"reason": reason, "message": envelope.termination_reason}
        return PipelineEvent("pipeline_completed", envelope.current_stage, pid, envelope, data)

    def _tell(self, pid: str, kind: str, stage: str, facts: dict[str, Any]) -> None:
        feeds = self._feeds.get(pid)
        if not feeds:
            return
        journal = self._kernel.journal
        seq = journal.seq + 1 if journal is not None else 0  # the row that is being applied
        envelope = self.state.sessions[pid].envelope
        facts["seq"] = seq
        event = PipelineEvent(kind, stage, pid, envelope, facts)
        for feed in feeds:
            feed.put(event)

    # ------------------------------------------------------------------ small things

    def sessions(self) -> Iterator[str]:
        return iter(self.state.sessions)

    def _session(self, pid: Any) -> Session:
        session = self.state.sessions.get(pid) if isinstance(pid, str) else None
        if session is None:
            raise NoSuchProcess(f"there is no pipeline session for {pid!r}", hint="initialize_orchestration", pid=pid)
        return session

    def _envelope(self, value: Envelope | Mapping[str, Any] | str | None) -> Envelope:
        if isinstance(value, Envelope):
            return value
        if isinstance(value, str):
            value = {"raw_input": value}
        return Envelope.create(self._kernel.entropy, now=self._kernel.clock.now(), **dict(value or {}))

    def _terminate(self, pid: str, reason: TerminalReason, message: str) -> int:
        return self.fact(pid, "pipeline.terminated", {"reason": reason.value, "message": message})

    def fact(self, pid: str, kind: str, data: dict[str, Any]) -> int:
        """A session changes: a row, and a runner that waits for a change looks again."""
        seq = self._kernel.fact(self.state, pid, kind, {**data, "at": self._kernel.clock.now()})
        self.runner.look_again(pid)
        return seq
