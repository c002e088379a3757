"""Processes, quotas, usage, rates."""

from __future__ import annotations

from typing import Any, Final

from lyra.kernel.workers.entry import ProcessControlBlock
from lyra.kernel.workers.quota import QuotaResult, RemainingBudget, ResourceQuota, ResourceUsage, SystemUsage
from lyra.kernel.workers.rate_limits import RateLimitResult, RateLimitUsage
from lyra.server.generated import engine_pb2 as pb
from lyra.server.grpc.messages.enums import PRIORITY, PROCESS_STATE
from lyra.server.grpc.messages.fields import int32, int64, json_bytes, milliseconds, text

_QUOTA: Final = tuple(field.name for field in pb.ResourceQuota.DESCRIPTOR.fields)
_USAGE: Final = tuple(field.name for field in pb.ResourceUsage.DESCRIPTOR.fields if field.name != "elapsed_seconds")
_AMOUNTS: Final = tuple(field.name for field in pb.RecordUsageRequest.DESCRIPTOR.fields if field.name != "pid")
_REMAINING: Final = tuple(
    field.name for field in pb.RemainingBudget.DESCRIPTOR.fields if field.name != "time_remaining_seconds"
)
_NOTHING_USED: Final = ResourceUsage()
_last_quota: Final[dict[str, Any]] = {"quota": None, "message": None}


def quota_message(quota: ResourceQuota) -> pb.ResourceQuota:
    """The message of a quota; most processes share the default, whose message is made once."""
    if quota is not _last_quota["quota"]:
        message = pb.ResourceQuota(**{name: int32(getattr(quota, name)) for name in _QUOTA})
        _last_quota.update(quota=quota, message=message)
    shared: pb.ResourceQuota = _last_quota["message"]
    return shared


def quota_fields(message: pb.ResourceQuota) -> dict[str, int]:
    """The fields that were given; those left out, or 0, take the kernel's defaults."""
    return {field.name: value for field, value in message.ListFields()}


def usage_message(usage: ResourceUsage | SystemUsage) -> pb.ResourceUsage:
    """What one process, one user or all have used; only a process has a time."""
    message = pb.ResourceUsage(elapsed_seconds=getattr(usage, "elapsed_seconds", 0.0))
    for name in _USAGE:
        amount = getattr(usage, name)
        if amount:
            setattr(message, name, int32(amount))
    return message


def usage_amounts(request: pb.RecordUsageRequest) -> dict[str, int]:
    return {name: amount for name in _AMOUNTS if (amount := getattr(request, name))}


def process_message(block: ProcessControlBlock) -> pb.ProcessControlBlock:
    message = pb.ProcessControlBlock()
    fill_process(message, block)
    return message


def fill_process(message: pb.ProcessControlBlock, block: ProcessControlBlock) -> None:
    """Write a process into an empty message. Lists have thousands: a field at its default is not set."""
    message.pid = text(block.pid)
    message.state = PROCESS_STATE.numbers[block.state]
    message.priority = PRIORITY.numbers[block.priority]
    message.created_at_ms = int((block.created_at or 0.0) * 1000)
    message.quota.CopyFrom(quota_message(block.quota))
    if block.usage == _NOTHING_USED:
        message.usage.SetInParent()
    else:
        message.usage.CopyFrom(usage_message(block.usage))
    if block.user_id:
        message.user_id = text(block.user_id)
    if block.request_id or block.session_id:
        message.request_id, message.session_id = text(block.request_id), text(block.session_id)
    if block.started_at is not None or block.completed_at is not None:
        message.started_at_ms = milliseconds(block.started_at)
        message.completed_at_ms = milliseconds(block.completed_at)
        message.last_scheduled_at_ms = milliseconds(block.last_scheduled_at)
    if block.current_stage or block.current_service or block.parent_pid:
        message.current_stage, message.current_service = text(block.current_stage), text(block.current_service)
        message.parent_pid = text(block.parent_pid)
    if block.pending_interrupt is not None or block.interrupt_data is not None:
        message.pending_interrupt = text(block.pending_interrupt or "")
        message.interrupt_data = json_bytes(block.interrupt_data)
    if block.child_pids:
        message.child_pids.extend(map(text, block.child_pids))


def quota_result_message(result: QuotaResult) -> pb.QuotaResult:
    return pb.QuotaResult(
        within_bounds=result.within_bounds,
        exceeded_reason=result.exceeded_reason,
        usage=usage_message(result.usage),
        quota=quota_message(result.quota),
    )


def rate_limit_message(result: RateLimitResult) -> pb.RateLimitResult:
    return pb.RateLimitResult(
        allowed=result.allowed,
        exceeded=result.exceeded,
        reason=text(result.reason),
        limit_type=result.limit_type,
        current_count=int32(result.current_count),
        limit=int32(result.limit),
        retry_after_seconds=result.retry_after_seconds,
        remaining=int32(result.remaining),
    )


def rate_usage_message(usage: RateLimitUsage) -> pb.RateLimitUsage:
    return pb.RateLimitUsage(minute=int32(usage.minute), hour=int32(usage.hour), day=int32(usage.day))


def remaining_message(budget: RemainingBudget) -> pb.RemainingBudget:
    message = pb.RemainingBudget(time_remaining_seconds=budget.time_remaining_seconds)
    for field in pb.RemainingBudget.DESCRIPTOR.fields:
        if field.name in _REMAINING:
            fit = int32 if field.type == field.TYPE_INT32 else int64
            setattr(message, field.name, fit(getattr(budget, field.name)))
    return message
