"""Values between the orchestrator and its workers: instructions out, reports in, and the view of a session.

`report_row` and the functions beside it turn a worker's values into checked plain data of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from math import isfinite
from typing import Any, Final

import msgspec

from lyra.core import codec
from lyra.core.checking.check import check_integer, check_keys, sendable_text
from lyra.core.envelope import Envelope, OpenQuestion, TerminalReason
from lyra.errors import ConfigError
from lyra.kernel.interrupts.interrupt import KINDS, check_word
from lyra.kernel.journal.rows import DurableValue
from lyra.kernel.pipelines.declaration import AgentConfig
from lyra.kernel.pipelines.session import Session, Token

_REPORT_KEYS: Final = (
    "agent_name",
    "output",
    "success",
    "error",
    "metrics",
    "run_id",
    "break_loop",
    "interrupt",
    "error_code",
)
_RESPONSE_KEYS: Final = ("text", "approved", "decision", "data")


class InstructionKind(StrEnum):
    RUN_AGENT = "run_agent"
    TERMINATE = "terminate"
    WAIT_INTERRUPT = "wait_interrupt"

    @classmethod
    def _missing_(cls, value: object) -> InstructionKind | None:
        return cls._value2member_map_.get(value.lower()) if isinstance(value, str) else None  # type: ignore[return-value]


class AgentExecutionMetrics(msgspec.Struct, frozen=True):
    """The usage of one run; `duration_ms` is how long the agent worked, 0 where that was not measured."""

    llm_calls: int = 0
    tool_calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    duration_ms: int = 0


class WorkerLease(msgspec.Struct, frozen=True):
    """A worker's hold on a run: until `expires_at` (wall-clock seconds), unless it is renewed."""

    worker: str
    lease_s: float
    expires_at: float


class Instruction(DurableValue, msgspec.Struct, kw_only=True, dict=True):
    """What to do next. The envelope is a copy: what an agent does to it changes nothing. `lease` is the worker's hold
    on the run; in a wait without a question it is that of the worker which has it."""

    kind: InstructionKind
    agent_name: str | None = None
    stage: str | None = None
    run_id: int = 0
    agent_config: AgentConfig | None = None
    envelope: Envelope | None = None
    terminal_reason: TerminalReason | None = None
    termination_message: str | None = None
    interrupt_pending: bool = False
    interrupt: OpenQuestion | None = None
    lease: WorkerLease | None = None

    def to_data(self) -> dict[str, Any]:
        data: dict[str, Any] = msgspec.to_builtins(self, builtin_types=(bytes,))
        return data


class SessionState(DurableValue, msgspec.Struct, kw_only=True, dict=True):
    """A session as others may look at it: a copy. `interrupts` are the open questions, oldest first."""

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
    interrupts: list[OpenQuestion]
    created_at: float
    last_activity_at: float

    def to_data(self) -> dict[str, Any]:
        data: dict[str, Any] = msgspec.to_builtins(self, builtin_types=(bytes,))
        return data


# ------------------------------------------------------------------ out
def run_instruction(session: Session, token: Token, lease: WorkerLease | None = None) -> Instruction:
    stage = session.pipeline_config.by_name[token.stage]
    return Instruction(
        kind=InstructionKind.RUN_AGENT,
        agent_name=stage.agent_name,
        stage=stage.name,
        run_id=token.run,
        agent_config=stage,
        envelope=session.view(token),
        lease=lease,
    )


def make_wait_instruction(session: Session, lease: WorkerLease) -> Instruction:
    """Return the instruction for a worker where all that may run has been given to others: wait, and ask again."""
    return Instruction(kind=InstructionKind.WAIT_INTERRUPT, envelope=session.envelope.copy(), lease=lease)


def other_instruction(session: Session) -> Instruction:
    """Return the instruction when nothing can be run: the pipeline has ended, or waits for an answer."""
    envelope = session.envelope.copy()
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


def session_state(session: Session) -> SessionState:
    envelope = session.envelope.copy()
    return SessionState(
        process_id=session.process_id,
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
        interrupts=[OpenQuestion(codec.decode(codec.encode(question.interrupt))) for question in session.waiting],
        created_at=session.created_at,
        last_activity_at=session.last_activity_at,
    )


# ------------------------------------------------------------------ in
def report_row(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result as a row."""
    if not isinstance(result, Mapping):
        raise ConfigError(f"a result is a mapping with agent_name and output, not {result!r}")
    check_keys(result, _REPORT_KEYS, "a result")
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
    return {
        "agent_name": agent,
        "run_id": check_integer(run, "run_id"),
        "output": codec.decode(codec.encode(dict(output))) if output else {},
        "success": success,
        "error": None if error is None else str(error),
        "error_code": sendable_text(result.get("error_code") or "", "error_code"),
        "metrics": metrics_data(result.get("metrics")),
        "break_loop": bool(result.get("break_loop", False)),
        "interrupt": check_question(result.get("interrupt")),
    }


_NOTHING_USED: Final = dict.fromkeys(AgentExecutionMetrics.__struct_fields__, 0)


def metrics_data(metrics: Any) -> dict[str, int]:
    if not metrics:
        return dict(_NOTHING_USED)
    if isinstance(metrics, msgspec.Struct):
        metrics = msgspec.to_builtins(metrics)
    if not isinstance(metrics, Mapping):
        raise ConfigError(f"an agent's metrics are a mapping, not {metrics!r}", key="metrics")
    used = dict(_NOTHING_USED)
    for name, value in metrics.items():
        if name not in used:
            check_keys(metrics, _NOTHING_USED, "an agent's metrics")
        used[name] = check_integer(_round(value), name)
    return used


def _round(value: Any) -> Any:
    """Return a float rounded to a whole number, and None, for a metric that was not counted, as 0."""
    if isinstance(value, float) and isfinite(value):
        return round(value)
    return 0 if value is None else value


def check_question(interrupt: Any) -> dict[str, Any] | None:
    """Return the checked question that a run ended with; None if it had none."""
    if not interrupt:
        return None
    if not isinstance(interrupt, Mapping):
        raise ConfigError(f"an interrupt is a mapping with kind and question, not {interrupt!r}", key="interrupt")
    asked: dict[str, Any] = codec.decode(codec.encode(dict(interrupt)))
    asked["kind"] = check_word(asked.get("kind") or "clarification", KINDS, "an interrupt's kind")
    return asked


def interrupt_data(interrupt: Any) -> dict[str, Any]:
    """Return the fields of a question that a pipeline keeps."""
    if isinstance(interrupt, Mapping):
        return dict(interrupt)
    return {name: str(getattr(interrupt, name)) for name in ("id", "kind", "question", "message")}


def response_data(response: Any) -> dict[str, Any]:
    if isinstance(response, Mapping):
        check_keys(response, (*_RESPONSE_KEYS, "received_at"), "an answer")
        return {name: response.get(name) for name in _RESPONSE_KEYS}
    return {name: getattr(response, name, None) for name in _RESPONSE_KEYS}
