"""OrchestrationService: pipelines whose agents run in the caller, while the kernel says what comes next.

Asking twice gives the same instruction. A report that names its run (`run_id`) is taken once, also where a loop runs
the same agent again. A worker that names itself (`worker_id`) has a lease on what it is given: when it is silent for
longer, the stage goes to another worker or, where it must not be run twice, to a person.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lyra.core.envelope import Envelope
from lyra.kernel.pipelines.instruction import Instruction, SessionState
from lyra.server.generated import engine_pb2 as pb
from lyra.server.grpc.fields import (
    INSTRUCTION_KIND,
    TERMINAL_REASON,
    int32,
    int64,
    json_bytes,
    json_mapping,
    milliseconds,
    required,
    text,
)
from lyra.server.grpc.messages import json_envelope, question_message
from lyra.server.grpc.services.owners import chosen_pid, owned_envelope, require_process

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.server.identity import Caller


class OrchestrationCalls:
    """See the module."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    async def initialize_session(self, request: pb.InitializeSessionRequest, caller: Caller) -> pb.SessionState:
        pid = required(request.process_id, "process_id")
        config = json_mapping(request.pipeline_config, "pipeline_config")
        given = json_envelope(request.envelope)
        envelope = owned_envelope(caller, given or {})
        chosen_pid(self._kernel, caller, pid, envelope.get("user_id", ""))
        session = self._kernel.initialize_orchestration(pid, config, envelope, force=request.force)
        return session_message(await session)

    async def get_next_instruction(self, request: pb.GetNextInstructionRequest, caller: Caller) -> pb.Instruction:
        pid = self._own(request.process_id, caller)
        instruction = self._kernel.get_next_instruction(pid, *_lease(request.worker_id, request.lease_seconds))
        return instruction_message(await instruction)

    async def report_agent_result(self, request: pb.ReportAgentResultRequest, caller: Caller) -> pb.Instruction:
        pid = self._own(request.process_id, caller)
        lease = _lease(request.worker_id, request.lease_seconds)
        return instruction_message(await self._kernel.report_agent_result(pid, report_fields(request), *lease))

    async def get_session_state(self, request: pb.GetSessionStateRequest, caller: Caller) -> pb.SessionState:
        pid = self._own(request.process_id, caller)
        return session_message(self._kernel.get_orchestration_state(pid))

    def _own(self, pid: str, caller: Caller) -> str:
        return require_process(self._kernel, caller, required(pid, "process_id"))


def _lease(worker_id: str, seconds: int) -> tuple[str | None, float | None]:
    """The name of a worker and the lease that it wants; what is left out is the kernel's to choose."""
    return worker_id or None, float(seconds) if seconds else None


# ---------------------------------------------------------------- orchestration
# Instructions for outside workers, their reports, and sessions.


def instruction_message(instruction: Instruction) -> pb.Instruction:
    config = instruction.agent_config
    message = pb.Instruction(
        kind=INSTRUCTION_KIND.number(instruction.kind),
        agent_name=text(instruction.agent_name or ""),
        agent_config=json_bytes(config.to_data() if config is not None else None),
        envelope=_envelope_json(instruction.envelope),
        terminal_reason=TERMINAL_REASON.number(instruction.terminal_reason),
        termination_message=text(instruction.termination_message or ""),
        interrupt_pending=instruction.interrupt_pending,
        run_id=int64(instruction.run_id),
        stage=text(instruction.stage or ""),
        lease_expires_at_ms=milliseconds(instruction.lease.expires_at if instruction.lease is not None else None),
    )
    if instruction.interrupt is not None:
        message.interrupt.CopyFrom(question_message(instruction.interrupt, pending=instruction.interrupt_pending))
    return message


def session_message(session: SessionState) -> pb.SessionState:
    return pb.SessionState(
        process_id=text(session.process_id),
        current_stage=text(session.current_stage),
        stage_order=map(text, session.stage_order),
        envelope=_envelope_json(session.envelope),
        edge_traversals={text(edge): int32(count) for edge, count in session.edge_traversals.items()},
        terminated=session.terminated,
        terminal_reason=TERMINAL_REASON.number(session.terminal_reason),
    )


def _envelope_json(envelope: Envelope | None) -> bytes:
    return json_bytes(envelope.to_data() if envelope is not None else None)


def report_fields(request: pb.ReportAgentResultRequest) -> dict[str, Any]:
    """The report of a run as the kernel takes it. A failure is told by `success` or by `error`."""
    fields: dict[str, Any] = {
        "agent_name": request.agent_name,
        "output": json_mapping(request.output, "output"),
        "success": request.success,
        "metrics": {field.name: value for field, value in request.metrics.ListFields()},
    }
    if request.error:
        fields["error"] = request.error
    if request.error_code:
        fields["error_code"] = request.error_code
    if request.break_loop:
        fields["break_loop"] = True
    if request.run_id:
        fields["run_id"] = request.run_id
    return fields
