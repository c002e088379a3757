"""OrchestrationService: pipelines whose agents run in the caller, while the kernel says what comes next.

Asking twice gives the same instruction. A report that names its run (`run_id`) is taken once, also where a loop runs
the same agent again. A worker that names itself (`worker_id`) has a lease on what it is given: when it is silent for
longer, the stage goes to another worker or, where it must not be run twice, to a person.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lyra.server.generated import engine_pb2 as pb
from lyra.server.grpc.messages.envelopes import json_envelope
from lyra.server.grpc.messages.fields import json_mapping, required
from lyra.server.grpc.messages.orchestration import instruction_message, report_fields, session_message
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
