"""Work for other programs: a lent piece as a message, and a worker's result from one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lyra.core.envelope import Envelope
from lyra.errors import AgentFailed, EffectFailed, LyraError, error_from_data
from lyra.kernel.pipelines.agents import AgentResult
from lyra.server.generated import engine_pb2 as pb
from lyra.server.grpc.messages.fields import int32, json_bytes, json_mapping, json_value, text
from lyra.server.work.piece import WorkLease

_METRICS: Final = tuple(field.name for field in pb.AgentExecutionMetrics.DESCRIPTOR.fields)


def work_message(lease: WorkLease) -> pb.WorkItem:
    piece = lease.piece
    message = pb.WorkItem(
        work_id=lease.work_id,
        attempt=piece.attempt,
        lease_seconds=int32(lease.lease_s),
        idempotency_key=text(piece.id),
    )
    run, request = piece.payload.stage_run, piece.payload.request
    if run is not None:
        message.agent_name = text(piece.served.name)
        message.process_id = text(run.pid)
        message.agent_config = json_bytes(run.stage.to_data())
    else:
        message.service_name = text(piece.served.name)
        message.process_id = text(request.pid)
        message.metadata = json_bytes(request.metadata)
    envelope: Envelope | None = run.envelope if run is not None else request.envelope
    if envelope is not None:
        message.envelope = json_bytes(envelope.to_data())
    message.traceparent = text(piece.payload.traceparent)
    return message


def agent_result(request: pb.CompleteWorkRequest) -> AgentResult:
    """The result of an agent that went well."""
    return AgentResult(
        output=json_mapping(request.output, "output") or {},
        metrics={name: amount for name in _METRICS if (amount := getattr(request.metrics, name))},
        break_loop=request.break_loop,
        interrupt=json_mapping(request.interrupt, "interrupt"),
    )


def service_response(request: pb.CompleteWorkRequest) -> dict[str, Any]:
    """The response of a service: a mapping of its fields; any other value is its metadata."""
    value = json_value(request.output, "output")
    if isinstance(value, Mapping) and set(value) <= {"envelope", "metadata", "error"}:
        return dict(value)
    return {"metadata": value if isinstance(value, dict) else {} if value is None else {"value": value}}


def failure(request: pb.CompleteWorkRequest, name: str) -> LyraError:
    """The error that a worker reports, with its class where it is one of Lyra's about an act outside."""
    message = request.error or f"{name} failed"
    error = error_from_data({"code": request.error_code, "message": message})
    return error if isinstance(error, EffectFailed) else AgentFailed(message)
