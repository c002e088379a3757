"""SystemService: how the server and one request are doing, questions to people (`interrupts`), services (`registry`).

The operator sees the figures of all users; their own user sees those processes.

WorkerService: programs that run agents and services claim work, renew their leases and deliver results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any, Final

from lyra.core.checking.check import short_text
from lyra.core.envelope import Envelope
from lyra.core.limits import BUS_QUERY_TIMEOUT_S, NAME_LENGTH_MAX, SERVER_ID_CHARS_MAX
from lyra.errors import AgentFailed, ConfigError, Denied, EffectFailed, LyraError, Overloaded, error_from_data
from lyra.kernel.bus.message import BusStream
from lyra.kernel.journal.rows import text_of
from lyra.kernel.pipelines.agents import AgentResult
from lyra.kernel.services.service import ServiceInfo
from lyra.server.generated import engine_pb2 as pb
from lyra.server.grpc.messages import (
    HEALTH,
    INTERRUPT_STATUS,
    answer_fields,
    fields_of,
    fill,
    int32,
    json_bytes,
    json_envelope,
    json_mapping,
    json_value,
    message_from,
    milliseconds,
    require,
    text,
)
from lyra.server.grpc.services.kernel import SERVICE_OWNER, ServiceCalls, claim_envelope, require_process, service_owner
from lyra.server.owners import interrupt_owner, require_question
from lyra.server.work.desk import Claim, WorkDesk
from lyra.server.work.names import ServedName, WorkLease, is_offered, service_for

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.workers.quota import ResourceUsage, SystemUsage
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


# The services of SystemService: registered, reported on, listed and dispatched to.


class SystemCalls(ServiceCalls):
    """See the module."""

    async def register_service(self, request: pb.RegisterServiceRequest, caller: Caller) -> pb.ServiceInfo:
        fields = service_fields(request.service)
        name = require(fields["name"], "service.name")
        if name in self._kernel.services.state.services and not caller.owns(
            service_owner(self._kernel.services.get_service(name))
        ):
            raise Denied(f"the service {name} cannot be chosen", hint="choose another name")
        if caller.user_id:
            fields["metadata"][SERVICE_OWNER] = caller.user_id
        await self._kernel.register_service(fields)
        return self._service(name)

    async def unregister_service(self, request: pb.UnregisterServiceRequest, caller: Caller) -> pb.ServiceInfo:
        info = self._require_owner(require(request.name, "name"), caller)
        await self._kernel.unregister_service(info.name)
        return message_from(pb.ServiceInfo, info)

    async def update_service_health(self, request: pb.UpdateServiceHealthRequest, caller: Caller) -> pb.ServiceInfo:
        info = self._require_owner(require(request.name, "name"), caller)
        await self._kernel.services.update_health(info.name, HEALTH.require(request.status))
        return self._service(info.name)

    async def list_services(self, request: pb.ListServicesRequest, caller: Caller) -> pb.ListServicesResponse:
        services = self._kernel.services
        infos = (
            services.list_services_by_type(request.service_type) if request.service_type else services.list_services()
        )
        seen = [info for info in infos if is_offered(self._kernel, info, caller)]
        return pb.ListServicesResponse(services=[message_from(pb.ServiceInfo, info) for info in seen])

    async def dispatch_service(self, request: pb.DispatchServiceRequest, caller: Caller) -> pb.DispatchServiceResponse:
        name = require(request.service, "service")
        if request.pid:
            require_process(self._kernel, caller, request.pid)
        given = json_envelope(request.envelope)
        work = {
            "pid": request.pid,
            "envelope": claim_envelope(caller, given) if given is not None else None,
            "user_id": caller.user_id,
            "metadata": json_mapping(request.metadata, "metadata") or {},
        }
        try:
            response = await self._kernel.dispatch(
                name, work, timeout_s=request.timeout_seconds or None, max_retries=request.max_retries
            )
        except EffectFailed as error:  # the handler's own: the answer tells
            return pb.DispatchServiceResponse(success=False, error=text(error.message))
        return message_from(pb.DispatchServiceResponse, response)

    def _require_owner(self, name: str, caller: Caller) -> ServiceInfo:
        info = service_for(self._kernel, caller, name)
        if not caller.owns(service_owner(info)):
            raise Denied(f"service {name} belongs to another user")
        return info

    def _service(self, name: str) -> pb.ServiceInfo:
        return message_from(pb.ServiceInfo, self._kernel.services.get_service(name))

    async def resolve_interrupt(self, request: pb.ResolveInterruptRequest, caller: Caller) -> pb.FlowInterrupt:
        interrupt_id = require(request.interrupt_id, "interrupt_id")
        interrupt = require_question(self._kernel, caller, interrupt_id)
        if not request.HasField("response"):
            raise ConfigError("response is required", key="response")
        answer = answer_fields(request.response, interrupt.kind)
        resolved = await self._kernel.interrupts.resolve_interrupt(interrupt.id, answer)
        return message_from(pb.FlowInterrupt, resolved)

    async def list_interrupts(self, request: pb.ListInterruptsRequest, caller: Caller) -> pb.ListInterruptsResponse:
        if request.pid:
            require_process(self._kernel, caller, request.pid)
        status = INTERRUPT_STATUS.word(request.status)
        asked = self._kernel.interrupts.list_interrupts(request.pid or None, status=status)
        own = [interrupt for interrupt in asked if request.pid or caller.owns(interrupt_owner(self._kernel, interrupt))]
        return pb.ListInterruptsResponse(interrupts=[message_from(pb.FlowInterrupt, interrupt) for interrupt in own])

    async def get_system_status(self, _request: pb.GetSystemStatusRequest, caller: Caller) -> pb.SystemStatus:
        kernel = self._kernel
        status = kernel.get_system_status()
        message = pb.SystemStatus(
            uptime_seconds=status.uptime_seconds,
            service_counts={kind: int32(count) for kind, count in status.service_counts.items()},
        )
        usage: ResourceUsage | SystemUsage
        if caller.is_operator:
            counts, pending = status.process_counts, status.interrupts["pending"]
            usage, rates = status.resources, status.rate_limit_usage
        else:
            own = kernel.list_processes(user_id=caller.user_id)
            counts = dict(Counter(block.state for block in own))
            asked = kernel.interrupts.list_interrupts(status="pending")
            pending = sum(caller.owns(interrupt_owner(kernel, interrupt)) for interrupt in asked)
            usage = kernel.resources.get_user_usage(caller.user_id)
            rates = {user: used for user, used in status.rate_limit_usage.items() if user == caller.user_id}
        message.total_processes = int32(sum(counts.values()))
        message.queue_depth = int32(counts.get("ready", 0))
        message.process_counts.update({state: int32(count) for state, count in counts.items()})
        message.pending_interrupts = int32(pending)
        message.usage.SetInParent()
        fill(message.usage, usage)
        for user, used in rates.items():
            fill(message.rate_limit_usage[user], used)
        return message


def service_fields(message: pb.ServiceInfo) -> dict[str, Any]:
    """Return a registration; its load and its last check are the kernel's to say."""
    fields = {"name": "", "capabilities": [], "metadata": {}, **fields_of(message)}
    return {name: value for name, value in fields.items() if name not in ("current_load", "last_health_check")}


# CommBusService: events to all subscribers, commands and queries to one handler.

_TYPES_MAX: Final = 1_000  # of one subscription


class BusCalls(ServiceCalls):
    """See the module."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self._streams: set[BusStream] = set()

    async def drain(self) -> None:
        """End the subscriptions: the server stops."""
        for stream in list(self._streams):
            await stream.aclose()

    async def publish(self, request: pb.CommBusPublishRequest, caller: Caller) -> pb.CommBusPublishResponse:
        event_type = require(request.event_type, "event_type")
        await self._kernel.bus.publish(event_type, json_value(request.payload, "payload"), user_id=caller.user_id)
        return pb.CommBusPublishResponse(success=True)

    async def send(self, request: pb.CommBusSendRequest, caller: Caller) -> pb.CommBusSendResponse:
        command_type = require(request.command_type, "command_type")
        payload = json_value(request.payload, "payload")
        try:
            await self._kernel.bus.send(command_type, payload, user_id=caller.user_id)
        except LyraError:
            raise
        except Exception as error:  # noqa: BLE001 - of the handler: the answer tells
            return pb.CommBusSendResponse(success=False, error=text(text_of(error)))
        return pb.CommBusSendResponse(success=True)

    async def query(self, request: pb.CommBusQueryRequest, caller: Caller) -> pb.CommBusQueryResponse:
        query_type = require(request.query_type, "query_type")
        payload = json_value(request.payload, "payload")
        timeout_s = request.timeout_ms / 1000 if request.timeout_ms else BUS_QUERY_TIMEOUT_S
        try:
            result = await self._kernel.bus.query(query_type, payload, timeout_s=timeout_s, user_id=caller.user_id)
        except LyraError:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            return pb.CommBusQueryResponse(success=False, error=text(text_of(error)))
        return pb.CommBusQueryResponse(success=True, result=json_bytes(result))

    async def subscribe(
        self, request: pb.CommBusSubscribeRequest, caller: Caller
    ) -> AsyncGenerator[pb.CommBusEvent, None]:
        if not 0 < len(request.event_types) <= _TYPES_MAX:
            raise ConfigError(f"event_types has 1 to {_TYPES_MAX} types", key="event_types")
        stream = self._kernel.bus.stream(list(request.event_types), user_id=caller.user_id)
        self._streams.add(stream)
        try:
            async for message in stream:
                yield pb.CommBusEvent(
                    event_type=text(message.type),
                    payload=json_bytes(message.payload),
                    timestamp_ms=milliseconds(message.timestamp),
                    dropped=stream.dropped,
                    user_id=text(message.user_id),
                )
        finally:
            self._streams.discard(stream)
            await stream.aclose()
        raise Overloaded("the server is stopping", hint="subscribe again when it is back")
