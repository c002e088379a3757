"""The services of the contract, over one kernel: an RPC goes by its row in `lyra.core.kernel_calls`, or by a method.

`ServiceCalls` has the handler that is made of a row. Where a message has a form of its own there is a method: how the
server and one request are doing (`SystemCalls`: the operator sees the figures of all users, a user those of their own
processes), how programs that run agents and services claim work, renew their leases and deliver results
(`WorkerCalls`), envelopes, pipelines and the bus. A handler checks the caller and to whom a process, a question or a
service belongs, calls the kernel, waits until the change is durable and gives a message. It keeps nothing between two
calls.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message_factory import GetMessageClass

from lyra.core.checking.check import short_text
from lyra.core.envelope import ANONYMOUS, Envelope
from lyra.core.kernel_calls import RPCS
from lyra.core.limits import BUS_QUERY_TIMEOUT_S, NAME_LENGTH_MAX, SERVER_ID_CHARS_MAX, SERVER_MESSAGE_BYTES_MAX
from lyra.errors import (
    AgentFailed,
    ConfigError,
    Denied,
    EffectFailed,
    InternalError,
    LimitExceeded,
    LyraError,
    NoSuchProcess,
    Overloaded,
    error_from_data,
)
from lyra.kernel.bus.message import BusStream
from lyra.kernel.journal.rows import text_of
from lyra.kernel.pipelines.agents import AgentResult
from lyra.kernel.services.service import ServiceInfo
from lyra.kernel.workers.blocks import unknown_process
from lyra.kernel.workers.envelope_table import unknown_envelope
from lyra.server.generated import engine_pb2 as pb
from lyra.server.grpc.messages import (
    HEALTH,
    INTERRUPT_STATUS,
    WORDS,
    answer_fields,
    envelope_fields,
    envelope_message,
    event_message,
    fields_of,
    fill,
    find_changed_fields,
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
from lyra.server.owners import OwnedPid, interrupt_owner, owner_if_known, require_question
from lyra.server.work.desk import WorkDesk
from lyra.server.work.names import Claim, ServedName, WorkLease, is_offered, service_for

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.workers.quota import ResourceUsage, SystemUsage
    from lyra.server.identity import Caller


_ITEMS_A_TURN: Final = 500  # written into a list before other calls have their turn
TableCall = Callable[[Any, "Caller"], Awaitable[Any]]


def method_of(rpc: str) -> Any:
    """Return the descriptor of an RPC, SERVICE/Name."""
    service, _, name = rpc.partition("/")
    return pb.DESCRIPTOR.services_by_name[service].methods_by_name[name]


def table_call(kernel: Kernel, rpc: str) -> TableCall:
    """Return the handler of an RPC that its row describes."""
    if rpc not in RPCS:
        raise InternalError(f"the RPC {rpc} has no row in lyra/core/kernel_calls.py")
    name, row = RPCS[rpc]
    method, descriptor = row.method(kernel, name), method_of(rpc)
    fields = descriptor.input_type.fields_by_name
    readers = [(parameter, field, _reader(fields[field])) for parameter, field in row.fields.items()]
    must = row.required - {"user", "user_id"}  # the metadata may name the user
    is_change, answer = not row.is_marked("reads"), GetMessageClass(descriptor.output_type)

    async def perform(request: Any, caller: Caller) -> Any:
        given: dict[str, Any] = {}
        for parameter, field, read in readers:
            value = read(request)
            if value or value is False:
                given[parameter] = value
            elif parameter in must:
                raise ConfigError(f"{field} is required", key=field)
        _admit(row.needs, kernel, caller, given)
        result = method(**given)
        if result is None:
            raise NoSuchProcess("no runnable process")
        if is_change and hasattr(result, "__await__"):
            result = await result
        return await _list(answer(), row.gives, result) if row.gives else message_from(answer, result)

    return perform


async def _list(answer: Any, field: str, values: list[Any]) -> Any:
    items = getattr(answer, field)
    for place, value in enumerate(values, 1):
        fill(items.add(), value)
        if place % _ITEMS_A_TURN == 0:
            await asyncio.sleep(0)  # others have their turn
    return answer


def _reader(field: Any) -> Callable[[Any], Any]:
    """Return the function that gives the value of a field of a request; a field that is not set is empty."""
    get = attrgetter(field.name)
    if field.enum_type is not None:
        words = WORDS[field.enum_type.name]
        return lambda request: words.word(get(request))
    if field.message_type is not None:
        return lambda request: fields_of(get(request))
    return (lambda request: json_value(get(request), field.name)) if field.type == field.TYPE_BYTES else get


def _admit(needs: str, kernel: Kernel, caller: Caller, given: dict[str, Any]) -> None:
    """Check what a call with these arguments needs, and name its user."""
    if needs == "process":
        require_process(kernel, caller, given["pid"])
    elif needs == "question":
        require_question(kernel, caller, given["interrupt_id"])
    elif needs == "new process":
        caller = caller.acting_for(given.get("user_id", ""))
        given["user_id"] = caller.require_user()
        given["session_id"] = caller.in_session(given.get("session_id", ""))
        check_chosen_pid(kernel, caller, given["pid"])
    elif needs == "user":
        given["user_id"] = caller.acting_for(given.pop("user", "")).require_user()
    else:
        given["user_id"] = caller.acting_for(given.get("user_id", "")).user_id or None


# To whom processes, envelopes, questions and services belong, and the check of it. What has no user (programs that the
# server itself started, services of its own) belongs to the operator.

SERVICE_OWNER: Final = "owner"  # the key of a service's metadata that names the user who registered it


def exists(kernel: Kernel, pid: str) -> bool:
    """Return whether a pid is a process or the session of a pipeline."""
    return kernel.lifecycle.find(pid) is not None or pid in kernel.orchestrator.state.sessions


def owner_of(kernel: Kernel, pid: str) -> str:
    """Return the user of a process; "" for one without. NoSuchProcess if it does not exist."""
    user_id = kernel.lifecycle.user_of(pid) or owner_if_known(kernel, pid)
    return "" if user_id == ANONYMOUS else user_id


def check_chosen_pid(kernel: Kernel, caller: Caller, pid: str, user_id: str = "") -> str:
    """Return a pid that a client chose: one that the caller owns, or a new one, for `user_id`, that names no other
    user."""
    if exists(kernel, pid):
        is_free = caller.owns(owner_of(kernel, pid))
    else:
        owned = OwnedPid.read(pid)
        is_free = owned is None or owned.belongs_to(user_id or caller.user_id)
    if not is_free:
        raise Denied(f"the pid {pid} cannot be chosen", hint="choose another")
    return pid


def require_process(kernel: Kernel, caller: Caller, pid: str) -> str:
    """Return the pid of a process that the caller may see and change; NoSuchProcess also where it is another user's."""
    caller.require_owner(owner_of(kernel, pid), unknown_process, pid)
    return pid


def require_envelope(kernel: Kernel, caller: Caller, envelope_id: str) -> Envelope:
    """Return an envelope that the kernel keeps for the caller; NoSuchEnvelope also where it is another user's."""
    envelope = kernel.envelopes.get(envelope_id)
    caller.require_owner(envelope.user_id, unknown_envelope, envelope_id)
    return envelope


def service_owner(info: ServiceInfo) -> str:
    owner = info.metadata.get(SERVICE_OWNER)
    return owner if isinstance(owner, str) else ""


def claim_envelope(caller: Caller, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an envelope with the ids of the caller; a user that the caller may not act for is Denied."""
    owned = dict(fields)
    for name in ("user_id", "session_id"):
        if not isinstance(owned.get(name, ""), str):
            raise ConfigError(f"an envelope's {name} is text", key=name)
    caller = caller.acting_for(owned.get("user_id", ""))
    for name in ("user_id", "session_id"):
        if not owned.get(name) and getattr(caller, name):
            owned[name] = getattr(caller, name)
    return owned


class ServiceCalls:
    """The calls of a service: a method of its class where it has one, else by the table."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def by_table(self, rpc: str) -> TableCall:
        return table_call(self._kernel, rpc)


# EngineService: envelopes, and runs of pipelines and agents inside the kernel.


class EngineCalls(ServiceCalls):
    """See the module."""

    async def create_envelope(self, request: pb.CreateEnvelopeRequest, caller: Caller) -> pb.Envelope:
        caller = caller.acting_for(request.user_id)
        fields: dict[str, Any] = {"raw_input": request.raw_input, "metadata": dict(request.metadata)}
        if request.stage_order:
            fields["stage_order"] = list(request.stage_order)
        envelope = self._kernel.create_envelope(
            fields,
            user_id=caller.require_user(),
            request_id=request.request_id,
            session_id=caller.in_session(request.session_id),
        )
        return await self._render_durable(envelope)

    async def update_envelope(self, request: pb.UpdateEnvelopeRequest, caller: Caller) -> pb.Envelope:
        given = envelope_fields(request.envelope)
        envelope_id = require(request.envelope.envelope_id, "envelope_id")
        held = envelope_message(require_envelope(self._kernel, caller, envelope_id))
        if held.ByteSize() + request.ByteSize() > SERVER_MESSAGE_BYTES_MAX:
            raise LimitExceeded(
                f"envelope {envelope_id} would be larger than a message may be", envelope_id=envelope_id
            )
        changes = find_changed_fields(given, envelope_fields(held))
        envelope = self._kernel.update_envelope({**changes, "envelope_id": envelope_id})
        return await self._render_durable(envelope)

    async def clone_envelope(self, request: pb.CloneRequest, caller: Caller) -> pb.Envelope:
        envelope_id = require(request.envelope.envelope_id, "envelope_id")
        require_envelope(self._kernel, caller, envelope_id)
        return await self._render_durable(self._kernel.clone_envelope(envelope_id))

    async def check_bounds(self, request: pb.Envelope, caller: Caller) -> pb.BoundsResult:
        return message_from(pb.BoundsResult, self._envelope(request, caller).check_bounds())

    async def _render_durable(self, envelope: Envelope) -> pb.Envelope:
        """Return the message of an envelope, once the store has it."""
        await self._kernel.durable()
        return envelope_message(envelope)

    async def execute_pipeline(
        self, request: pb.ExecuteRequest, caller: Caller
    ) -> AsyncGenerator[pb.ExecutionEvent, None]:
        config = json_mapping(request.pipeline_config, "pipeline_config")
        if config is None:
            raise ConfigError("pipeline_config is required", key="pipeline_config")
        pid = request.thread_id
        envelope = self._envelope(request.envelope, caller)
        if pid:
            check_chosen_pid(self._kernel, caller, pid, envelope.user_id)
        async with aclosing(self._kernel.execute_pipeline(config, envelope, pid=pid or None)) as events:
            async for event in events:
                message = event_message(event, self._kernel.core.now())
                if message is not None:
                    yield message

    async def execute_agent(self, request: pb.ExecuteAgentRequest, caller: Caller) -> pb.AgentResult:
        name = require(request.agent_name, "agent_name")
        config = json_mapping(request.agent_config, "agent_config")
        pid = f"agent_{self._kernel.entropy.text(16)}"
        try:
            run = await self._kernel.execute_agent(name, self._envelope(request.envelope, caller), config, pid=pid)
        except asyncio.CancelledError:
            self._end_run(pid)
            raise
        return message_from(pb.AgentResult, run)

    def _envelope(self, message: pb.Envelope, caller: Caller) -> Envelope:
        fields = claim_envelope(caller, envelope_fields(message))
        return Envelope.create(self._kernel.entropy, now=self._kernel.core.now(), **fields)

    def _end_run(self, pid: str) -> None:
        """End the run of an agent whose caller went away; one that a stopping server cut off continues later."""
        if self._kernel.core.stopping or pid not in self._kernel.orchestrator.state.sessions:
            return
        with suppress(LyraError):  # it has ended by itself
            self._kernel.orchestrator.terminate_session(pid, "user_cancelled", "its caller went away")


# OrchestrationService: pipelines whose agents run in the caller, while the kernel says what comes next.


class OrchestrationCalls(ServiceCalls):
    """See the module."""

    async def initialize_session(self, request: pb.InitializeSessionRequest, caller: Caller) -> pb.SessionState:
        pid = require(request.process_id, "process_id")
        config = json_mapping(request.pipeline_config, "pipeline_config")
        given = json_envelope(request.envelope)
        envelope = claim_envelope(caller, given or {})
        check_chosen_pid(self._kernel, caller, pid, envelope.get("user_id", ""))
        session = self._kernel.initialize_orchestration(pid, config, envelope, force=request.force)
        return message_from(pb.SessionState, await session)

    async def report_agent_result(self, request: pb.ReportAgentResultRequest, caller: Caller) -> pb.Instruction:
        """Report a result; a failure is told by `success` or by `error`."""
        output = json_mapping(request.output, "output")
        report = {"metrics": {}, **fields_of(request), "output": output, "success": request.success}
        pid = require_process(self._kernel, caller, require(report.pop("process_id", ""), "process_id"))
        worker, lease_s = report.pop("worker_id", None), report.pop("lease_seconds", None)
        return message_from(pb.Instruction, await self._kernel.report_agent_result(pid, report, worker, lease_s))


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
        lease = await self._desk.claim(_claim(request, caller))
        return pb.WorkItem() if lease is None else work_message(lease)

    async def watch_work(self, request: pb.ClaimWorkRequest, caller: Caller) -> pb.RenewWorkResponse:
        """Wait until there is work for a worker, and lend it nothing: it asks the desks of several shards. `held` says
        whether there is some."""
        return pb.RenewWorkResponse(held=await self._desk.watch(_claim(request, caller)))

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


def _claim(request: pb.ClaimWorkRequest, caller: Caller) -> Claim:
    names = [ServedName("agent", _name(name)) for name in request.agents]
    names += [ServedName("service", _name(name)) for name in request.services]
    if not request.wait_seconds >= 0:  # also not a number
        raise ConfigError("wait_seconds is a number from 0 on", key="wait_seconds")
    return Claim(
        worker_id=_worker(request.worker_id, caller),
        names=frozenset(names),
        idempotent=frozenset(request.idempotent),
        user_id=caller.user_id,
        lease_s=_lease(request.lease_seconds),
        wait_s=request.wait_seconds,
        announce=request.announce,
    )


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
