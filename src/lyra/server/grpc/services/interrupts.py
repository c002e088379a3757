"""The questions of SystemService: raised, answered, taken back and listed by their owner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lyra.errors import ConfigError
from lyra.kernel.interrupts.interrupt import Interrupt
from lyra.kernel.interrupts.service import unknown_interrupt
from lyra.server.generated import engine_pb2 as pb
from lyra.server.grpc.messages.enums import INTERRUPT_KIND, INTERRUPT_STATUS
from lyra.server.grpc.messages.fields import json_value, required
from lyra.server.grpc.messages.interrupts import answer_fields, interrupt_message
from lyra.server.grpc.services.owners import interrupt_owner, require_process

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.server.identity import Caller


class InterruptCalls:
    """See the module."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    async def create_interrupt(self, request: pb.CreateInterruptRequest, caller: Caller) -> pb.FlowInterrupt:
        pid = require_process(self._kernel, caller, required(request.pid, "pid"))
        interrupt = self._kernel.create_interrupt(
            pid,
            INTERRUPT_KIND.required(request.kind),
            request.message,
            question=request.question,
            data=json_value(request.data, "data"),
            **({"ttl_s": float(request.ttl_seconds)} if request.ttl_seconds else {}),
        )
        return interrupt_message(await interrupt)

    async def resolve_interrupt(self, request: pb.ResolveInterruptRequest, caller: Caller) -> pb.FlowInterrupt:
        interrupt = self._own(request.interrupt_id, caller)
        if not request.HasField("response"):
            raise ConfigError("response is required", key="response")
        answer = answer_fields(request.response, interrupt.kind)
        return interrupt_message(await self._kernel.interrupts.resolve_interrupt(interrupt.id, answer))

    async def cancel_interrupt(self, request: pb.CancelInterruptRequest, caller: Caller) -> pb.FlowInterrupt:
        interrupt = self._own(request.interrupt_id, caller)
        cancelled = self._kernel.interrupts.cancel_interrupt(interrupt.id, request.reason or "cancelled")
        return interrupt_message(await cancelled)

    async def list_interrupts(self, request: pb.ListInterruptsRequest, caller: Caller) -> pb.ListInterruptsResponse:
        if request.pid:
            require_process(self._kernel, caller, request.pid)
        status = INTERRUPT_STATUS.word(request.status)
        asked = self._kernel.interrupts.list_interrupts(request.pid or None, status=status)
        own = [interrupt for interrupt in asked if request.pid or caller.owns(interrupt_owner(self._kernel, interrupt))]
        return pb.ListInterruptsResponse(interrupts=map(interrupt_message, own))

    def _own(self, interrupt_id: str, caller: Caller) -> Interrupt:
        interrupt = self._kernel.interrupts.get_interrupt(required(interrupt_id, "interrupt_id"))
        caller.require_owner(interrupt_owner(self._kernel, interrupt), unknown_interrupt, interrupt_id)
        return interrupt
