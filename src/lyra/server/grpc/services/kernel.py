"""The calls of the contract that its table describes (`lyra.core.kernel_calls`), and those of envelopes and pipelines.

`table_call` makes the handler of an RPC by its row: it reads the parameters by the fields of the request, checks what
the row needs, makes the call, waits until the change is durable and writes the answer by its fields. An RPC whose
request or answer has its own form has a method in the class of its service. All of KernelService is by the table.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message_factory import GetMessageClass

from lyra.core.envelope import ANONYMOUS, Envelope
from lyra.core.kernel_calls import RPCS
from lyra.core.limits import SERVER_MESSAGE_BYTES_MAX
from lyra.errors import ConfigError, Denied, InternalError, LimitExceeded, LyraError, NoSuchProcess
from lyra.kernel.services.service import ServiceInfo
from lyra.kernel.workers.blocks import unknown_process
from lyra.kernel.workers.envelope_table import unknown_envelope
from lyra.server.generated import engine_pb2 as pb
from lyra.server.grpc.messages import (
    WORDS,
    envelope_fields,
    envelope_message,
    event_message,
    fields_of,
    fill,
    find_changed_fields,
    json_envelope,
    json_mapping,
    json_value,
    message_from,
    require,
)
from lyra.server.owners import OwnedPid, owner_if_known, require_question

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
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
