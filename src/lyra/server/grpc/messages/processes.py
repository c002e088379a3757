"""Processes, quotas, usage, rates."""

from __future__ import annotations

from typing import Any, Final

from lyra.kernel.workers.entry import ProcessControlBlock
from lyra.kernel.workers.quota import QuotaResult, RemainingBudget, ResourceQuota, ResourceUsage
from lyra.kernel.workers.rate_limits import RateLimitResult, RateLimitUsage
from lyra.server.generated import engine_pb2 as pb
from lyra.server.grpc.messages.enums import PRIORITY, PROCESS_STATE
from lyra.server.grpc.messages.fields import int32, int64, json_bytes, milliseconds, text

__all__ = [
    "process_message",
    "quota_fields",
    "quota_result_message",
    "rate_limit_message",
    "rate_usage_message",
    "remaining_message",
    "usage_amounts",
    "usage_message",
]

_QUOTA: Final = tuple(field.name for field in pb.ResourceQuota.DESCRIPTOR.fields)
_USAGE: Final = tuple(field.name for field in pb.ResourceUsage.DESCRIPTOR.fields if field.name != "elapsed_seconds")
_AMOUNTS: Final = tuple(field.name for field in pb.RecordUsageRequest.DESCRIPTOR.fields if field.name != "pid")
_REMAINING: Final = tuple(
    field.name for field in pb.RemainingBudget.DESCRIPTOR.fields if field.name != "time_remaining_seconds"
)
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


def usage_message(usage: ResourceUsage) -> pb.ResourceUsage:
    message = pb.ResourceUsage(elapsed_seconds=usage.elapsed_seconds)
    for name in _USAGE:
        amount = getattr(usage, name)
        if amount:
            setattr(message, name, int32(amount))
    return message


def usage_amounts(request: pb.RecordUsageRequest) -> dict[str, int]:
    return {name: amount for name in _AMOUNTS if (amount := getattr(request, name))}


def process_message(block: ProcessControlBlock) -> pb.ProcessControlBlock:
    message = pb.ProcessControlBlock(
        pid=text(block.pid),
        state=PROCESS_STATE.number(block.state),
        priority=PRIORITY.number(block.priority),
        quota=quota_message(block.quota),
        usage=usage_message(block.usage),
        created_at_ms=milliseconds(block.created_at),
    )
    for name in ("request_id", "user_id", "session_id", "current_stage", "current_service", "parent_pid"):
        value = getattr(block, name)
        if value:
            setattr(message, name, text(value))
    for name in ("started_at", "completed_at", "last_scheduled_at"):
        moment = getattr(block, name)
        if moment is not None:
            setattr(message, f"{name}_ms", milliseconds(moment))
    if block.pending_interrupt is not None:
        message.pending_interrupt = text(block.pending_interrupt)
    if block.interrupt_data is not None:
        message.interrupt_data = json_bytes(block.interrupt_data)
    if block.child_pids:
        message.child_pids.extend(map(text, block.child_pids))
    return message


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
