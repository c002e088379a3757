"""KernelService: processes that outside workers drive, their quotas, the rates of users."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, Final

from lyra.core.envelope import Envelope
from lyra.core.limits import SERVER_MESSAGE_BYTES_MAX
from lyra.errors import ConfigError, LimitExceeded, LyraError, NoSuchProcess
from lyra.kernel.pipelines.instruction import Instruction, SessionState
from lyra.server.generated import engine_pb2 as pb
from lyra.server.grpc.fields import (
    INSTRUCTION_KIND,
    PRIORITY,
    PROCESS_STATE,
    TERMINAL_REASON,
    int32,
    int64,
    json_bytes,
    json_mapping,
    milliseconds,
    required,
    text,
)
from lyra.server.grpc.messages import (
    agent_result_message,
    bounds_message,
    changed_fields,
    envelope_fields,
    envelope_message,
    event_message,
    fill_process,
    json_envelope,
    process_message,
    question_message,
    quota_fields,
    quota_result_message,
    rate_limit_message,
    usage_amounts,
    usage_message,
)
from lyra.server.grpc.services.owners import chosen_pid, owned_envelope, require_envelope, require_process

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.server.identity import Caller


_PROCESSES_A_TURN: Final = 500  # written into a list before other calls have their turn


class KernelCalls:
    """See the module."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    async def create_process(self, request: pb.CreateProcessRequest, caller: Caller) -> pb.ProcessControlBlock:
        pid = required(request.pid, "pid")
        caller = caller.acting_for(request.user_id)
        user_id = caller.require_user()
        chosen_pid(self._kernel, caller, pid)
        block = await self._kernel.submit(
            pid,
            request_id=request.request_id,
            user_id=user_id,
            session_id=caller.in_session(request.session_id),
            priority=PRIORITY.word(request.priority) or "normal",
            quota=quota_fields(request.quota),
        )
        return process_message(block)

    async def get_process(self, request: pb.GetProcessRequest, caller: Caller) -> pb.ProcessControlBlock:
        return process_message(self._kernel.get_process(self._own(request.pid, caller)))

    async def schedule_process(self, request: pb.ScheduleProcessRequest, caller: Caller) -> pb.ProcessControlBlock:
        return process_message(await self._kernel.schedule(self._own(request.pid, caller)))

    async def get_next_runnable(self, _request: pb.GetNextRunnableRequest, caller: Caller) -> pb.ProcessControlBlock:
        block = self._kernel.get_next_runnable(caller.user_id or None)
        if block is None:
            raise NoSuchProcess("no runnable process")
        return process_message(await block)

    async def transition_state(self, request: pb.TransitionStateRequest, caller: Caller) -> pb.ProcessControlBlock:
        pid = self._own(request.pid, caller)
        state = PROCESS_STATE.required(request.new_state)
        return process_message(await self._kernel.transition_state(pid, state, reason=request.reason))

    async def terminate_process(self, request: pb.TerminateProcessRequest, caller: Caller) -> pb.ProcessControlBlock:
        pid = self._own(request.pid, caller)
        return process_message(await self._kernel.terminate(pid, reason=request.reason, force=request.force))

    async def check_quota(self, request: pb.CheckQuotaRequest, caller: Caller) -> pb.QuotaResult:
        return quota_result_message(self._kernel.check_quota(self._own(request.pid, caller)))

    async def record_usage(self, request: pb.RecordUsageRequest, caller: Caller) -> pb.ResourceUsage:
        pid = self._own(request.pid, caller)
        return usage_message(await self._kernel.record_usage(pid, **usage_amounts(request)))

    async def check_rate_limit(self, request: pb.CheckRateLimitRequest, caller: Caller) -> pb.RateLimitResult:
        user_id = caller.acting_for(request.user_id).require_user()
        result = self._kernel.check_rate_limit(user_id, request.endpoint, record=request.record)
        return rate_limit_message(await result)

    async def list_processes(self, request: pb.ListProcessesRequest, caller: Caller) -> pb.ListProcessesResponse:
        user_id = caller.acting_for(request.user_id).user_id
        blocks = self._kernel.list_processes(state=PROCESS_STATE.word(request.state), user_id=user_id or None)
        response = pb.ListProcessesResponse()
        for place, block in enumerate(blocks, 1):
            fill_process(response.processes.add(), block)
            if place % _PROCESSES_A_TURN == 0:
                await asyncio.sleep(0)  # others have their turn
        return response

    async def get_process_counts(
        self, _request: pb.GetProcessCountsRequest, caller: Caller
    ) -> pb.ProcessCountsResponse:
        counts = self._kernel.get_process_counts(None if caller.is_operator else caller.user_id)
        return pb.ProcessCountsResponse(
            counts_by_state={state: int32(count) for state, count in counts.items()},
            total=int32(counts.total),
            queue_depth=int32(counts.queue_depth),
        )

    def _own(self, pid: str, caller: Caller) -> str:
        return require_process(self._kernel, caller, required(pid, "pid"))


# ---------------------------------------------------------------- engine
# EngineService: envelopes, and runs of pipelines and agents inside the kernel.


class EngineCalls:
    """See the module."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

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
        return await self._kept(envelope)

    async def update_envelope(self, request: pb.UpdateEnvelopeRequest, caller: Caller) -> pb.Envelope:
        given = envelope_fields(request.envelope)
        envelope_id = required(request.envelope.envelope_id, "envelope_id")
        held = envelope_message(require_envelope(self._kernel, caller, envelope_id))
        if held.ByteSize() + request.ByteSize() > SERVER_MESSAGE_BYTES_MAX:
            raise LimitExceeded(
                f"envelope {envelope_id} would be larger than a message may be", envelope_id=envelope_id
            )
        changes = changed_fields(given, envelope_fields(held))
        envelope = self._kernel.update_envelope({**changes, "envelope_id": envelope_id})
        return await self._kept(envelope)

    async def clone_envelope(self, request: pb.CloneRequest, caller: Caller) -> pb.Envelope:
        envelope_id = required(request.envelope.envelope_id, "envelope_id")
        require_envelope(self._kernel, caller, envelope_id)
        return await self._kept(self._kernel.clone_envelope(envelope_id))

    async def check_bounds(self, request: pb.Envelope, caller: Caller) -> pb.BoundsResult:
        return bounds_message(self._envelope(request, caller).check_bounds())

    async def _kept(self, envelope: Envelope) -> pb.Envelope:
        """The message of an envelope, once the store has it."""
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
            chosen_pid(self._kernel, caller, pid, envelope.user_id)
        async with aclosing(self._kernel.execute_pipeline(config, envelope, pid=pid or None)) as events:
            async for event in events:
                message = event_message(event, self._kernel.core.now())
                if message is not None:
                    yield message

    async def execute_agent(self, request: pb.ExecuteAgentRequest, caller: Caller) -> pb.AgentResult:
        name = required(request.agent_name, "agent_name")
        config = json_mapping(request.agent_config, "agent_config")
        pid = f"agent_{self._kernel.entropy.text(16)}"
        try:
            run = await self._kernel.execute_agent(name, self._envelope(request.envelope, caller), config, pid=pid)
        except asyncio.CancelledError:
            self._end_run(pid)
            raise
        return agent_result_message(run)

    def _envelope(self, message: pb.Envelope, caller: Caller) -> Envelope:
        fields = owned_envelope(caller, envelope_fields(message))
        return Envelope.create(self._kernel.entropy, now=self._kernel.core.now(), **fields)

    def _end_run(self, pid: str) -> None:
        """End the run of an agent whose caller went away; one that a stopping server cut off goes on later."""
        if self._kernel.core.stopping or pid not in self._kernel.orchestrator.state.sessions:
            return
        with suppress(LyraError):  # it has ended by itself
            self._kernel.orchestrator.terminate_session(pid, "user_cancelled", "its caller went away")


# ---------------------------------------------------------------- orchestration
# OrchestrationService: pipelines whose agents run in the caller, while the kernel says what comes next.


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
