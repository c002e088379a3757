"""WorkerService: programs that run agents and services claim work, renew their leases and deliver results.

A token that is bound to a user, or that names one, claims and completes work of that user alone; what it announces is
there for that user alone, and its worker ids are the user's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from lyra.core.checking.check import short_text
from lyra.core.envelope import Envelope
from lyra.core.limits import NAME_LENGTH_MAX, SERVER_ID_CHARS_MAX
from lyra.errors import AgentFailed, ConfigError, EffectFailed, LyraError, error_from_data
from lyra.kernel.pipelines.agents import AgentResult
from lyra.server.generated import engine_pb2 as pb
from lyra.server.grpc.fields import int32, json_bytes, json_mapping, json_value, require, text
from lyra.server.grpc.services.kernel import ServiceCalls
from lyra.server.work.desk import Claim, WorkDesk
from lyra.server.work.piece import ServedName, WorkLease

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.server.identity import Caller


class WorkerCalls(ServiceCalls):
    """See the module."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self._desk = WorkDesk(kernel)

    def close(self) -> None:
        """End the claims that wait. While the server drains they are served: runs in flight need their workers."""
        self._desk.close()

    async def wait_idle(self) -> None:
        """Wait until what workers hold is delivered, or lost."""
        await self._desk.wait_idle()

    async def claim_work(self, request: pb.ClaimWorkRequest, caller: Caller) -> pb.WorkItem:
        names = [ServedName("agent", _name(name)) for name in request.agents]
        names += [ServedName("service", _name(name)) for name in request.services]
        if not request.wait_seconds >= 0:  # also not a number
            raise ConfigError("wait_seconds is a number from 0 on", key="wait_seconds")
        lease = await self._desk.claim(
            Claim(
                worker_id=_worker(request.worker_id, caller),
                names=frozenset(names),
                idempotent=frozenset(request.idempotent),
                user_id=caller.user_id,
                lease_s=_lease(request.lease_seconds),
                wait_s=request.wait_seconds,
                announce=request.announce,
            )
        )
        return pb.WorkItem() if lease is None else work_message(lease)

    async def renew_work(self, request: pb.RenewWorkRequest, caller: Caller) -> pb.RenewWorkResponse:
        held, cancelled = self._desk.renew(
            require(request.work_id, "work_id"),
            _worker(request.worker_id, caller),
            user_id=caller.user_id,
            lease_s=_lease(request.lease_seconds),
        )
        return pb.RenewWorkResponse(held=held, cancelled=cancelled)

    async def complete_work(self, request: pb.CompleteWorkRequest, caller: Caller) -> pb.CompleteWorkResponse:
        work_id, worker_id = require(request.work_id, "work_id"), _worker(request.worker_id, caller)
        kind, name = self._desk.find_served(work_id)
        value: Any = None
        error = None
        if not request.success:
            error = failure(request, name)
        elif kind == "service":
            value = service_response(request)
        else:
            value = agent_result(request)
        accepted = await self._desk.complete(work_id, worker_id, value, error=error, user_id=caller.user_id)
        return pb.CompleteWorkResponse(accepted=accepted)


def _worker(worker_id: str, caller: Caller) -> str:
    """Return the worker's id on the desk: each user's workers have names of their own."""
    given = short_text(require(worker_id, "worker_id"), "worker_id", most=SERVER_ID_CHARS_MAX)
    return f"{given}@{caller.user_id}" if caller.user_id else given


def _name(name: str) -> str:
    if not require(name, "a name").isprintable():
        raise ConfigError("the name of an agent or service is printable text", key="agents")
    return short_text(name, "a name", most=NAME_LENGTH_MAX)


def _lease(seconds: int) -> float:
    if seconds < 0:
        raise ConfigError("lease_seconds is a number from 0 on", key="lease_seconds")
    return float(seconds)


# ---------------------------------------------------------------- work
# Work for other programs: a lent piece as a message, and a worker's result from one.

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
    """Return the result of an agent that went well."""
    return AgentResult(
        output=json_mapping(request.output, "output") or {},
        metrics={name: amount for name in _METRICS if (amount := getattr(request.metrics, name))},
        break_loop=request.break_loop,
        interrupt=json_mapping(request.interrupt, "interrupt"),
    )


def service_response(request: pb.CompleteWorkRequest) -> dict[str, Any]:
    """Return the response of a service: a mapping of its fields; any other value is its metadata."""
    value = json_value(request.output, "output")
    if isinstance(value, Mapping) and set(value) <= {"envelope", "metadata", "error"}:
        return dict(value)
    return {"metadata": value if isinstance(value, dict) else {} if value is None else {"value": value}}


def failure(request: pb.CompleteWorkRequest, name: str) -> LyraError:
    """Return the error that a worker reports, with its class where it is one of Lyra's about an act outside."""
    message = request.error or f"{name} failed"
    error = error_from_data({"code": request.error_code, "message": message})
    return error if isinstance(error, EffectFailed) else AgentFailed(message)
