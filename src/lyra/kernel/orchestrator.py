"""The orchestrator: says what a pipeline does next, takes what came of it, and remembers both across restarts.

    kernel.initialize_orchestration("p1", {"name": "review", "agents": [...]})
    instruction = kernel.get_next_instruction("p1")          # run_agent, wait_interrupt or terminate
    instruction = kernel.report_agent_result("p1", {"agent_name": "draft", "output": {...}})

A worker anywhere may drive a session with these calls; `execute_pipeline` drives one with agents registered here, as a
durable process (`pipeline_runner`). Asking changes nothing but what must be written down once (a stage is started, a
bound ends the pipeline): asked twice, the answer is the same. The moves themselves are pure and live in
`pipeline_session`; here are the checks around them, the questions to people, and the listeners.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core import codec
from lyra.core.check import known_keys, sendable_text, whole
from lyra.core.envelope import Envelope, TerminalReason
from lyra.core.limits import PIPELINE_SESSION_IDLE_S
from lyra.errors import ConfigError, InvalidTransition, LyraError, NameTaken, NoSuchProcess
from lyra.kernel.handle import Ack
from lyra.kernel.pipeline import AgentConfig, NodeKind, PipelineConfig
from lyra.kernel.pipeline_runner import Agents, Runner
from lyra.kernel.pipeline_session import (
    PipelineState,
    Session,
    Token,
    evaluate_routing,
    pack,
    session_data,
    unpack,
)

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel

__all__ = [
    "AgentExecutionMetrics",
    "Instruction",
    "InstructionKind",
    "Orchestrator",
    "PipelineEvent",
    "SessionState",
]

CHECKPOINT_VERSION: Final = "1.0"
_REPORT_KEYS: Final = ("agent_name", "output", "success", "error", "metrics", "run_id", "break_loop", "interrupt")
_RESPONSE_KEYS: Final = ("text", "approved", "decision", "data")


class InstructionKind(StrEnum):
    RUN_AGENT = "run_agent"
    TERMINATE = "terminate"
    WAIT_INTERRUPT = "wait_interrupt"

    @classmethod
    def _missing_(cls, value: object) -> InstructionKind | None:
        return cls._value2member_map_.get(value.lower()) if isinstance(value, str) else None  # type: ignore[return-value]


class AgentExecutionMetrics(msgspec.Struct, frozen=True):
    """What one run used."""

    llm_calls: int = 0
    tool_calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    duration_ms: int = 0


class Instruction(msgspec.Struct, kw_only=True):
    """What to do next. The envelope is a copy: what an agent does to it changes nothing."""

    kind: InstructionKind
    agent_name: str | None = None
    stage: str | None = None
    run_id: int = 0
    agent_config: AgentConfig | None = None
    envelope: Envelope | None = None
    terminal_reason: TerminalReason | None = None
    termination_message: str | None = None
    interrupt_pending: bool = False
    interrupt: dict[str, Any] | None = None

    def to_data(self) -> dict[str, Any]:
        data: dict[str, Any] = msgspec.to_builtins(self, builtin_types=(bytes,))
        return data


class SessionState(msgspec.Struct, kw_only=True):
    """A session as others may look at it: a copy."""

    process_id: str
    pipeline: str
    current_stage: str
    stage_order: list[str]
    active_stages: list[str]
    envelope: Envelope
    edge_traversals: dict[str, int]
    stage_visits: dict[str, int]
    terminated: bool
    terminal_reason: TerminalReason | None
    interrupt_pending: bool
    created_at: float
    last_activity_at: float

    def to_data(self) -> dict[str, Any]:
        data: dict[str, Any] = msgspec.to_builtins(self, builtin_types=(bytes,))
        return data


class PipelineEvent:
    """Something that happened in a pipeline, with the envelope as it was then."""

    __slots__ = ("_envelope", "_packed", "data", "pid", "stage", "type")

    def __init__(self, kind: str, stage: str, pid: str, envelope: Envelope, data: dict[str, Any]) -> None:
        self.type = kind
        self.stage = stage
        self.pid = pid
        self.data = data
        self._packed = pack(envelope)
        self._envelope: Envelope | None = None

    @property
    def envelope(self) -> Envelope:
        if self._envelope is None:  # most listeners look at few of them
            self._envelope = unpack(self._packed)
        return self._envelope

    def __repr__(self) -> str:
        return f"<PipelineEvent {self.type} {self.stage}>"

    def to_data(self) -> dict[str, Any]:
        envelope = self.envelope.to_data()
        return {"type": self.type, "stage": self.stage, "pid": self.pid, "envelope": envelope, "data": self.data}


class Orchestrator:
    """See the module. Its facts are in `state`; agents, listeners and runners belong to this kernel alone."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.state = PipelineState()
        self.state.tell = self._tell
        self.agents = Agents(kernel)
        self.runner = Runner(kernel, self)
        self._listeners: dict[str, list[asyncio.Queue[PipelineEvent | None]]] = {}

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
        row = {"config": checked.to_data(), "envelope": work.to_data()}
        self._fact(pid, "pipeline.initialized", codec.decode(codec.encode(row)))

    def get_session_state(self, pid: str) -> SessionState:
        session = self._session(pid)
        envelope = unpack(pack(session.envelope))
        return SessionState(
            process_id=pid,
            pipeline=session.pipeline_config.name,
            current_stage=envelope.current_stage,
            stage_order=envelope.stage_order,
            active_stages=[token.stage for token in session.tokens if token.state in ("ready", "running")],
            envelope=envelope,
            edge_traversals=dict(session.edge_traversals),
            stage_visits=dict(session.stage_visits),
            terminated=session.terminated,
            terminal_reason=session.terminal_reason,
            interrupt_pending=envelope.interrupt_pending,
            created_at=session.created_at,
            last_activity_at=session.last_activity_at,
        )

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
        self._fact(pid, "pipeline.forgotten", {})
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
        if not session.terminated and not self._is_held_up(pid):
            running = next((token for token in session.tokens if token.state == "running"), None)
            token = running or self._start_next(pid)
            if token is not None:
                return self._run_instruction(session, token)
        return self._other_instruction(session)

    def get_ready_instructions(self, pid: str) -> list[Instruction]:
        """All that may run at the same time (branches of a fork, stages in parallel mode), or the one other thing."""
        self._kernel._raise_if_closed()
        session = self._session(pid)
        self.start_ready(pid)
        if session.terminated or session.envelope.interrupt_pending:
            return [self._other_instruction(session)]
        return [self._run_instruction(session, token) for token in session.tokens if token.state == "running"]

    def report_agent_result(self, pid: str, result: Mapping[str, Any]) -> Instruction:
        """Take the result of a run and say what comes next. A run reported again changes nothing."""
        self._kernel._raise_if_closed()
        session = self._session(pid)
        row = _report(result)
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
        self._fact(pid, "pipeline.reported", {**row, "token": token.id})
        record_usage = getattr(self._kernel, "record_usage", None)
        if record_usage is not None:
            used = {key: metrics[key] for key in ("llm_calls", "tool_calls", "tokens_in", "tokens_out")}
            record_usage(pid, agent_hops=1, **used)

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

    def start_ready(self, pid: str) -> None:
        """Start every stage that may run now, within the bounds."""
        session = self._session(pid)
        if session.terminated or self._is_held_up(pid):
            return
        while self._start_next(pid) is not None:
            pass

    def _start_next(self, pid: str) -> Token | None:
        session = self._session(pid)
        token = next((token for token in session.tokens if token.state == "ready"), None)
        if token is None:
            return None
        bounds = session.envelope.check_bounds()
        if bounds.terminal_reason is not None:
            self._terminate(pid, bounds.terminal_reason, "")
            return None
        self._fact(pid, "pipeline.started", {"token": token.id})
        return session.token(token.id)

    def _run_instruction(self, session: Session, token: Token) -> Instruction:
        stage = session.pipeline_config.stage(token.stage)
        assert stage is not None, token.stage
        return Instruction(
            kind=InstructionKind.RUN_AGENT,
            agent_name=stage.agent_name,
            stage=stage.name,
            run_id=token.run,
            agent_config=stage,
            envelope=session.view(token),
        )

    def _other_instruction(self, session: Session) -> Instruction:
        envelope = unpack(pack(session.envelope))
        if session.terminated:
            return Instruction(
                kind=InstructionKind.TERMINATE,
                envelope=envelope,
                terminal_reason=session.terminal_reason,
                termination_message=envelope.termination_reason,
            )
        return Instruction(
            kind=InstructionKind.WAIT_INTERRUPT,
            envelope=envelope,
            interrupt_pending=True,
            interrupt=envelope.interrupt,
        )

    # ------------------------------------------------------------------ questions to people

    def resume_after_interrupt(self, pid: str, interrupt: Any, response: Any) -> Instruction:
        """The question a pipeline waits for was answered: go on at the stage the pipeline names for its kind."""
        self._kernel._raise_if_closed()
        session = self._session(pid)
        if session.terminated or not session.envelope.interrupt_pending:
            raise InvalidTransition(f"pipeline {pid} has no pending interrupt to resume", pid=pid)
        held = session.envelope.interrupt or {}
        given = _interrupt_data(interrupt) if interrupt is not None else held
        if given.get("id") and held.get("id") and given["id"] != held["id"]:
            raise InvalidTransition(
                f"pipeline {pid} does not wait for interrupt {given['id']}", pid=pid, id=given["id"]
            )
        self.resumed(pid, {**held, **given}, _response_data(response))
        return self.get_next_instruction(pid)

    def resumed(self, pid: str, interrupt: dict[str, Any], response: dict[str, Any] | None) -> None:
        interrupt.pop("response", None)
        self._fact(pid, "pipeline.resumed", {"interrupt": interrupt, "response": response})

    def _is_held_up(self, pid: str) -> bool:
        """Whether a question is open: one of the kernel's about this pid, or the envelope's own."""
        session = self._session(pid)
        self._clear_ended(pid, session)
        if session.terminated:
            return True
        pending = self._pending(pid)
        if pending is not None:
            if not session.envelope.interrupt_pending or not (session.envelope.interrupt or {}).get("id"):
                self._fact(pid, "pipeline.waiting", {"interrupt": pending})
        elif session.waiting is not None and not session.waiting["id"] and pid not in self._kernel.processes:
            self._ask_kernel(pid, session)
        return session.envelope.interrupt_pending

    def _clear_ended(self, pid: str, session: Session) -> None:
        """A question that the kernel knows by its id and that is over: resolved, expired or cancelled."""
        interrupt_id = session.waiting["id"] if session.waiting is not None else ""
        if not interrupt_id:
            return
        try:
            found = self._kernel.interrupts.get(interrupt_id)
        except LyraError:
            found = None  # ended so long ago that nobody remembers it
        if found is not None and found.status == "pending":
            return
        answer = found.response if found is not None and found.status == "resolved" else None
        response = _response_data(answer) if answer is not None else None
        self.resumed(pid, dict(session.envelope.interrupt or {}), response)

    def _pending(self, pid: str) -> dict[str, Any] | None:
        get = getattr(self._kernel, "get_pending_interrupt", None)
        try:
            found = get(pid) if get is not None else next(iter(self._kernel.interrupts.pending(pid)), None)
        except NoSuchProcess:
            return None
        if found is None or (found.kind == "in_doubt" and pid in self._kernel.processes):
            return None  # an effect in doubt is between its process and the human
        return _interrupt_data(found)

    def _ask_kernel(self, pid: str, session: Session) -> None:
        """A stage led to a question: make it one of the kernel's, where the kernel knows the pid."""
        create = getattr(self._kernel, "create_interrupt", None)
        asked = session.envelope.interrupt or {}
        if create is None:
            return
        try:
            made = create(pid, asked["kind"], str(asked.get("message", "")), question=str(asked.get("question", "")))
        except NoSuchProcess:
            return  # a session without a process: its envelope carries the question
        self._fact(pid, "pipeline.waiting", {"interrupt": {**asked, **_interrupt_data(made)}})

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
        self._fact(pid, "pipeline.restored", {"session": checkpoint["session"]})
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
        queue: asyncio.Queue[PipelineEvent | None] = asyncio.Queue()
        self._listeners.setdefault(pid, []).append(queue)
        try:
            if session is None:
                self._initialize(sendable_text(pid, "a pid"), checked, envelope)
            if self._session(pid).terminated:
                queue.put_nowait(self._last_event(pid))
            process = self.runner.start(pid, queue)
            async for event in self._events(queue):
                yield event
                if event.type == "pipeline_completed":
                    return
            self.runner.raise_unless_finished(process, pid)
        finally:
            self._listeners[pid].remove(queue)
            if not self._listeners[pid]:
                del self._listeners[pid]

    async def _events(self, queue: asyncio.Queue[PipelineEvent | None]) -> AsyncGenerator[PipelineEvent, None]:
        """What is told has happened for good: each event waits until its row is durable."""
        while (event := await queue.get()) is not None:
            journal = self._kernel.journal
            if journal is not None:
                await journal.acknowledged(int(event.data.get("seq", 0)))
            yield event

    def _last_event(self, pid: str) -> PipelineEvent:
        envelope = self._session(pid).envelope
        reason = envelope.terminal_reason.value if envelope.terminal_reason is not None else ""
        data = {"reason": reason, "message": envelope.termination_reason}
        return PipelineEvent("pipeline_completed", envelope.current_stage, pid, envelope, data)

    def _tell(self, pid: str, kind: str, stage: str, facts: dict[str, Any]) -> None:
        queues = self._listeners.get(pid)
        if not queues:
            return
        journal = self._kernel.journal
        seq = journal.seq + 1 if journal is not None else 0  # the row that is being applied
        envelope = self.state.sessions[pid].envelope
        event = PipelineEvent(kind, stage, pid, envelope, {**facts, "seq": seq})
        for queue in queues:
            queue.put_nowait(event)

    # ------------------------------------------------------------------ small things

    def read_metrics(self, metrics: Any) -> dict[str, int]:
        return metrics_data(metrics)

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
        return self._fact(pid, "pipeline.terminated", {"reason": reason.value, "message": message})

    def _fact(self, pid: str, kind: str, data: dict[str, Any]) -> int:
        return self._kernel.fact(self.state, pid, kind, {**data, "at": self._kernel.clock.now()})


def _report(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result as a row: checked, and nothing shared with what was handed in."""
    if not isinstance(result, Mapping):
        raise ConfigError(f"a result is a mapping with agent_name and output, not {result!r}")
    known_keys(result, _REPORT_KEYS, "a result")
    agent, run = result.get("agent_name") or "", result.get("run_id") or 0
    if not isinstance(agent, str) or not (agent or run):
        raise ConfigError("a result needs agent_name, the agent that ran", key="agent_name")
    output = result.get("output")
    if output is not None and not isinstance(output, Mapping):
        raise ConfigError(f"an output is a mapping, not {output!r}", key="output")
    error = result.get("error")
    success = result.get("success", not error)
    if not isinstance(success, bool):
        raise ConfigError(f"success is true or false, not {success!r}", key="success")
    row = {
        "agent_name": agent,
        "run_id": whole(run, "run_id"),
        "output": dict(output or {}),
        "success": success,
        "error": None if error is None else str(error),
        "metrics": metrics_data(result.get("metrics")),
        "break_loop": bool(result.get("break_loop", False)),
        "interrupt": result.get("interrupt"),
    }
    plain: dict[str, Any] = codec.decode(codec.encode(row))
    return plain


def metrics_data(metrics: Any) -> dict[str, int]:
    if isinstance(metrics, msgspec.Struct):
        metrics = msgspec.to_builtins(metrics)
    fields = AgentExecutionMetrics.__struct_fields__
    given = dict(metrics or {})
    known_keys(given, fields, "an agent's metrics")
    return {name: whole(round(given.get(name) or 0), name) for name in fields}


def _interrupt_data(interrupt: Any) -> dict[str, Any]:
    """What a pipeline keeps of a question."""
    if isinstance(interrupt, Mapping):
        return dict(interrupt)
    return {name: str(getattr(interrupt, name)) for name in ("id", "kind", "question", "message")}


def _response_data(response: Any) -> dict[str, Any]:
    if isinstance(response, Mapping):
        known_keys(response, (*_RESPONSE_KEYS, "received_at"), "an answer")
        return {name: response.get(name) for name in _RESPONSE_KEYS}
    return {name: getattr(response, name, None) for name in _RESPONSE_KEYS}
