"""KernelService: processes that outside workers drive, their quotas, the rates of users."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from lyra.errors import NoSuchProcess
from lyra.server.generated import engine_pb2 as pb
from lyra.server.grpc.fields import PRIORITY, PROCESS_STATE, int32, required
from lyra.server.grpc.messages import (
    fill_process,
    process_message,
    quota_fields,
    quota_result_message,
    rate_limit_message,
    usage_amounts,
    usage_message,
)
from lyra.server.grpc.services.owners import chosen_pid, require_process

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
