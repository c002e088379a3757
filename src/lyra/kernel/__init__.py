"""Processes and the door: the part of Lyra that everything else runs on.

Read `effects.door` first (one list, in order), then `process.process` (what is stepped), `process.scheduler` (in which
order), `journal.journal` (what is kept), `recovery` and `journal.history` (how it comes back), `opening` (from owning
the store to giving it back), `base.core` (what every part shares), `assembly` (the parts) and `kernel` (the face).
Programs hold a `programs.context.Context`.
"""

from lyra.core.envelope import BoundsResult, Envelope, TerminalReason
from lyra.core.event import Event
from lyra.kernel.as_user import UserKernel
from lyra.kernel.base.listeners import EventHandler
from lyra.kernel.bus.bus import BusMessage, BusStream, CircuitBreakerMiddleware, CommBus
from lyra.kernel.health import HealthThresholds
from lyra.kernel.interrupts.service import (
    KINDS,
    Answer,
    FlowInterrupt,
    Interrupt,
    InterruptConfig,
    InterruptKind,
    InterruptService,
    InterruptStatus,
)
from lyra.kernel.kernel import Kernel
from lyra.kernel.pipelines.agents import AgentResult, AgentRun
from lyra.kernel.pipelines.declaration import AgentConfig, EdgeLimit, PipelineConfig, RoutingRule
from lyra.kernel.pipelines.feeds import PipelineEvent
from lyra.kernel.pipelines.instruction import (
    AgentExecutionMetrics,
    Instruction,
    InstructionKind,
    SessionState,
    WorkerLease,
)
from lyra.kernel.pipelines.orchestrator import Orchestrator
from lyra.kernel.pipelines.runner import run_pipeline
from lyra.kernel.process.links import Down, ExitSignal
from lyra.kernel.process.process import Exit
from lyra.kernel.programs.handle import Ack, Handle
from lyra.kernel.services.registry import (
    InferenceResponse,
    ServiceHandler,
    ServiceInfo,
    ServiceRegistry,
    ServiceRequest,
    ServiceResponse,
    ServiceStatus,
)
from lyra.kernel.shared.groups import Group
from lyra.kernel.supervision.child import Child
from lyra.kernel.supervision.handle import ChildInfo, SupervisorHandle
from lyra.kernel.worker_api import RequestStatus, SystemStatus
from lyra.kernel.workers.entry import ProcessCounts, ProcessState, SchedulingPriority
from lyra.kernel.workers.lifecycle import LifecycleManager, ProcessControlBlock
from lyra.kernel.workers.rate_limits import RateLimitConfig, RateLimiter, RateLimitResult, RateLimitUsage
from lyra.kernel.workers.usage import QuotaResult, RemainingBudget, ResourceQuota, ResourceTracker, ResourceUsage

# Further public names of the same classes.
KernelInterrupt = Interrupt
InterruptResponse = Answer
OrchestrationSession = SessionState
AgentExecutionResult = AgentResult
KernelEvent = Event
KernelEventHandler = EventHandler
DEFAULT_INTERRUPT_CONFIGS = KINDS

__all__ = [
    "DEFAULT_INTERRUPT_CONFIGS",
    "Ack",
    "AgentConfig",
    "AgentExecutionMetrics",
    "AgentExecutionResult",
    "AgentResult",
    "AgentRun",
    "Answer",
    "BoundsResult",
    "BusMessage",
    "BusStream",
    "Child",
    "ChildInfo",
    "CircuitBreakerMiddleware",
    "CommBus",
    "Down",
    "EdgeLimit",
    "Envelope",
    "Event",
    "Exit",
    "ExitSignal",
    "FlowInterrupt",
    "Group",
    "Handle",
    "HealthThresholds",
    "InferenceResponse",
    "Instruction",
    "InstructionKind",
    "Interrupt",
    "InterruptConfig",
    "InterruptKind",
    "InterruptResponse",
    "InterruptService",
    "InterruptStatus",
    "Kernel",
    "KernelEvent",
    "KernelEventHandler",
    "KernelInterrupt",
    "LifecycleManager",
    "OrchestrationSession",
    "Orchestrator",
    "PipelineConfig",
    "PipelineEvent",
    "ProcessControlBlock",
    "ProcessCounts",
    "ProcessState",
    "QuotaResult",
    "RateLimitConfig",
    "RateLimitResult",
    "RateLimitUsage",
    "RateLimiter",
    "RemainingBudget",
    "RequestStatus",
    "ResourceQuota",
    "ResourceTracker",
    "ResourceUsage",
    "RoutingRule",
    "SchedulingPriority",
    "ServiceHandler",
    "ServiceInfo",
    "ServiceRegistry",
    "ServiceRequest",
    "ServiceResponse",
    "ServiceStatus",
    "SessionState",
    "SupervisorHandle",
    "SystemStatus",
    "TerminalReason",
    "UserKernel",
    "WorkerLease",
    "run_pipeline",
]
