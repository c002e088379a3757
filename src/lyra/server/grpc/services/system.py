"""SystemService: how the server and one request are doing, questions to people (`interrupts`), services (`registry`).

The operator sees the figures of all users; a user sees those of their own processes.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from lyra.server.generated import engine_pb2 as pb
from lyra.server.grpc.messages.envelopes import envelope_message
from lyra.server.grpc.messages.fields import int32, required
from lyra.server.grpc.messages.interrupts import interrupt_message
from lyra.server.grpc.messages.processes import (
    process_message,
    rate_usage_message,
    remaining_message,
    usage_message,
)
from lyra.server.grpc.services.interrupts import InterruptCalls
from lyra.server.grpc.services.owners import interrupt_owner, require_process
from lyra.server.grpc.services.registry import RegistryCalls

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.workers.quota import ResourceUsage, SystemUsage
    from lyra.server.identity import Caller


class SystemCalls(InterruptCalls, RegistryCalls):
    """See the module."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)

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
        message.usage.CopyFrom(usage_message(usage))
        for user, used in rates.items():
            message.rate_limit_usage[user].CopyFrom(rate_usage_message(used))
        return message

    async def get_request_status(self, request: pb.GetRequestStatusRequest, caller: Caller) -> pb.RequestStatus:
        pid = require_process(self._kernel, caller, required(request.pid, "pid"))
        status = self._kernel.get_request_status(pid)
        asked = status.pending_interrupt
        message = pb.RequestStatus(
            process=process_message(status.pcb),
            remaining_budget=remaining_message(status.remaining_budget),
            has_interrupt=asked is not None,
            state=status.pcb.state,
        )
        message.pid, message.current_stage = message.process.pid, message.process.current_stage
        if asked is not None:
            message.pending_interrupt.CopyFrom(interrupt_message(asked))
        if status.envelope is not None:
            message.envelope.CopyFrom(envelope_message(status.envelope))
        return message
