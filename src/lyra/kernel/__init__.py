"""Processes and the door: the part of Lyra that everything else runs on.

Read `door` first (one list, in order), then `process` (what is stepped), `scheduler` (in which order), `journal`
(what is kept), `recovery` and `recall` (how it comes back), `kernel` (the table and the face). Programs hold a
`context`.
"""

from lyra.core.envelope import Envelope, TerminalReason
from lyra.core.event import Event
from lyra.kernel.bus import BusMessage, BusStream, CircuitBreakerMiddleware, CommBus
from lyra.kernel.child import Child
from lyra.kernel.groups import Group
from lyra.kernel.handle import Ack, Handle
from lyra.kernel.health import HealthThresholds
from lyra.kernel.instruction import AgentExecutionMetrics, Instruction, InstructionKind, SessionState
from lyra.kernel.interrupts import (
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
from lyra.kernel.lifecycle import LifecycleManager, ProcessControlBlock
from lyra.kernel.links import Down, ExitSignal
from lyra.kernel.listeners import EventHandler
from lyra.kernel.orchestrator import Orchestrator
from lyra.kernel.pcb import ProcessState, SchedulingPriority
from lyra.kernel.pipeline import AgentConfig, EdgeLimit, PipelineConfig, RoutingRule
from lyra.kernel.pipeline_events import PipelineEvent
from lyra.kernel.pipeline_runner import AgentResult
from lyra.kernel.process import Exit
from lyra.kernel.rates import RateLimitConfig, RateLimiter, RateLimitResult, RateLimitUsage
from lyra.kernel.resources import QuotaResult, RemainingBudget, ResourceQuota, ResourceTracker, ResourceUsage
from lyra.kernel.services import (
    InferenceResponse,
    ServiceHandler,
    ServiceInfo,
    ServiceRegistry,
    ServiceRequest,
    ServiceResponse,
    ServiceStatus,
)
from lyra.kernel.status import RequestStatus, SystemStatus
from lyra.kernel.supervisor_handle import ChildInfo, SupervisorHandle

# The requirement document's words for the same things.
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
    "Answer",
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
]
