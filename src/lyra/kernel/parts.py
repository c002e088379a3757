"""The parts behind the calls of workers outside the kernel, as `status`, `cleanup` and `worker_api` need them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core
    from lyra.kernel.interrupts.service import InterruptService
    from lyra.kernel.pipelines.orchestrator import Orchestrator
    from lyra.kernel.process.process import Process
    from lyra.kernel.services.registry import ServiceRegistry
    from lyra.kernel.workers.envelope_table import EnvelopeTable
    from lyra.kernel.workers.lifecycle import LifecycleManager
    from lyra.kernel.workers.rate_limits import RateLimiter
    from lyra.kernel.workers.usage import ResourceTracker


class WorkerParts(NamedTuple):
    core: Core[Process]
    interrupts: InterruptService
    lifecycle: LifecycleManager
    resources: ResourceTracker
    rate_limiter: RateLimiter
    services: ServiceRegistry
    orchestrator: Orchestrator
    envelopes: EnvelopeTable
