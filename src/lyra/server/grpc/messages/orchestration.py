"""Instructions for outside workers, their reports, and sessions."""

from __future__ import annotations

from typing import Any

from lyra.core.envelope import Envelope
from lyra.kernel.pipelines.instruction import Instruction, SessionState
from lyra.server.generated import engine_pb2 as pb
from lyra.server.grpc.messages.enums import INSTRUCTION_KIND, TERMINAL_REASON
from lyra.server.grpc.messages.fields import int32, int64, json_bytes, json_mapping, milliseconds, text
from lyra.server.grpc.messages.interrupts import question_message


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
