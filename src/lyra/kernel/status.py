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
    from lyra.kernel.parts import WorkerParts


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


def system_status(parts: WorkerParts) -> SystemStatus:
    return SystemStatus(
        uptime_seconds=parts.core.clock.monotonic() - parts.core.started_s if parts.core.started else 0.0,
        process_counts=parts.lifecycle.get_process_counts(),
        total_processes=parts.lifecycle.total,
        queue_depth=parts.lifecycle.queue_depth,
        service_counts=_service_counts(parts),
        rate_limit_usage=parts.rate_limiter.get_usage_by_user(),
        resources=parts.resources.get_system_usage(),
        interrupts=parts.interrupts.get_counts(),
    )


def request_status(parts: WorkerParts, pid: str) -> RequestStatus:
    return RequestStatus(
        pcb=parts.lifecycle.get_process(pid),
        envelope=_envelope(parts, pid),
        pending_interrupt=parts.interrupts.get_pending_interrupt(pid),
        remaining_budget=parts.resources.get_remaining_budget(pid),
    )


def _service_counts(parts: WorkerParts) -> dict[str, int]:
    counts: dict[str, int] = {}
    for service in parts.services.state.services.values():
        counts[service["service_type"]] = counts.get(service["service_type"], 0) + 1
    return counts


def _envelope(parts: WorkerParts, pid: str) -> Any:
    try:
        return parts.orchestrator.get_session_state(pid).envelope
    except NoSuchProcess:  # no pipeline drives it
        return None
