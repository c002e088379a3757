"""How the kernel is doing, and how one request is doing: pictures put together from the subsystems.

Owns no fact and changes nothing. What a picture shows is read from the lifecycle, the resources, the rates, the
questions, the services and the pipelines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from lyra.core.codec import to_plain
from lyra.errors import NoSuchProcess
from lyra.kernel.interrupts.service import Interrupt
from lyra.kernel.workers.lifecycle import ProcessControlBlock
from lyra.kernel.workers.rate_limits import RateLimitUsage
from lyra.kernel.workers.usage import RemainingBudget, SystemUsage

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel

__all__ = ["RequestStatus", "SystemStatus", "request_status", "system_status"]


class _Picture(msgspec.Struct, frozen=True):
    def to_data(self) -> dict[str, Any]:
        """Plain data, for a wire."""
        data: dict[str, Any] = msgspec.to_builtins(
            {name: getattr(self, name) for name in self.__struct_fields__}, enc_hook=to_plain
        )
        return data


class SystemStatus(_Picture, frozen=True):
    uptime_seconds: float
    process_counts: dict[str, int]  # by state
    total_processes: int
    queue_depth: int  # entries in line for a worker
    service_counts: dict[str, int]  # by type
    rate_limit_usage: dict[str, RateLimitUsage]  # by user
    resources: SystemUsage
    interrupts: dict[str, int]  # by status


class RequestStatus(_Picture, frozen=True):
    pcb: ProcessControlBlock
    envelope: Any  # of its pipeline; None when it has none
    pending_interrupt: Interrupt | None
    remaining_budget: RemainingBudget


def system_status(kernel: Kernel) -> SystemStatus:
    return SystemStatus(
        uptime_seconds=kernel.clock.monotonic() - kernel.started_s if kernel.started else 0.0,
        process_counts=kernel.lifecycle.get_process_counts(),
        total_processes=kernel.lifecycle.total,
        queue_depth=kernel.lifecycle.queue_depth,
        service_counts=_service_counts(kernel),
        rate_limit_usage=kernel.rate_limiter.get_usage_by_user(),
        resources=kernel.resources.get_system_usage(),
        interrupts=kernel.interrupts.get_counts(),
    )


def request_status(kernel: Kernel, pid: str) -> RequestStatus:
    return RequestStatus(
        pcb=kernel.lifecycle.get_process(pid),
        envelope=_envelope(kernel, pid),
        pending_interrupt=kernel.interrupts.get_pending_interrupt(pid),
        remaining_budget=kernel.resources.get_remaining_budget(pid),
    )


def _service_counts(kernel: Kernel) -> dict[str, int]:
    counts: dict[str, int] = {}
    for service in kernel.services.list_services():
        counts[service.service_type] = counts.get(service.service_type, 0) + 1
    return counts


def _envelope(kernel: Kernel, pid: str) -> Any:
    try:
        return kernel.orchestrator.get_session_state(pid).envelope
    except NoSuchProcess:  # no pipeline drives it
        return None
