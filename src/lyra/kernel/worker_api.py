"""Document 002's calls on the kernel: one line each, to the subsystem that does it.

`Requests` is the half of `Kernel` that workers outside use: entries they drive, quotas and rates, questions, services,
pipelines, status and tidying up. It has no state of its own and decides nothing; what a call means is in the subsystem.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any, Final

from lyra.core import limits
from lyra.core.checking.check import known_keys, real
from lyra.core.envelope import Envelope
from lyra.core.naming import named
from lyra.kernel.cleanup import Rounds, clean, shut_down
from lyra.kernel.interrupts.service import Answer, Interrupt, InterruptService
from lyra.kernel.journal.durable_value import kept
from lyra.kernel.pipelines.events import PipelineEvent
from lyra.kernel.pipelines.instruction import Instruction, SessionState
from lyra.kernel.pipelines.orchestrator import Orchestrator
from lyra.kernel.programs.handle import Ack
from lyra.kernel.services.registry import (
    InferenceResponse,
    ServiceHandler,
    ServiceInfo,
    ServiceRegistry,
    ServiceResponse,
)
from lyra.kernel.status import RequestStatus, SystemStatus, request_status, system_status
from lyra.kernel.workers.lifecycle import LifecycleManager, ProcessControlBlock
from lyra.kernel.workers.rate_limits import RateLimiter, RateLimitResult
from lyra.kernel.workers.usage import (
    COUNTED,
    QuotaResult,
    RemainingBudget,
    ResourceQuota,
    ResourceTracker,
    ResourceUsage,
)

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel

__all__ = ["DRAIN_S", "Requests"]

DRAIN_S: Final = 5.0
_QUESTION: Final = ("ttl_s", "user_id", "request_id", "session_id", "envelope_id", "trace_id", "span_id")
_DISPATCH: Final = ("timeout_s", "max_retries", "backoff")
_INFERENCE: Final = ("pid", "timeout_s", "max_retries")


class Requests:
    """Mixed into Kernel, which makes the parts."""

    interrupts: InterruptService
    lifecycle: LifecycleManager
    orchestrator: Orchestrator
    rate_limiter: RateLimiter
    resources: ResourceTracker
    services: ServiceRegistry
    _rounds: Rounds

    def _acknowledge(self) -> Ack:
        raise NotImplementedError

    def _raise_if_closed(self) -> None:
        raise NotImplementedError

    @property
    def _kernel(self) -> Kernel:
        return self  # type: ignore[return-value]  # mixed into it

    # ------------------------------------------------------------------ entries that somebody outside drives

    def submit(
        self,
        pid: str,
        *,
        request_id: str = "",
        user_id: str = "",
        session_id: str = "",
        priority: str = "normal",
        quota: ResourceQuota | Mapping[str, Any] | None = None,
        parent_pid: str = "",
    ) -> ProcessControlBlock:
        """Put an entry in the process table, as `new`; a pid that is there already gives what is there."""
        return self.lifecycle.submit(
            pid,
            request_id=request_id,
            user_id=user_id,
            session_id=session_id,
            priority=priority,
            quota=quota,
            parent_pid=parent_pid,
        )

    def schedule(self, pid: str) -> ProcessControlBlock:
        return self.lifecycle.schedule(pid)

    def get_next_runnable(self) -> ProcessControlBlock | None:
        return self.lifecycle.get_next_runnable()

    def transition_state(self, pid: str, state: str, reason: str = "") -> ProcessControlBlock:
        return self.lifecycle.transition_state(pid, state, reason)

    def terminate(self, pid: str, reason: str = "", *, force: bool = False) -> ProcessControlBlock:
        return self.lifecycle.terminate(pid, reason, force=force)

    def get_process(self, pid: str) -> ProcessControlBlock:
        return self.lifecycle.get_process(pid)

    def list_processes(self, state: str | None = None, user_id: str | None = None) -> list[ProcessControlBlock]:
        return self.lifecycle.list_processes(state, user_id)

    def get_process_counts(self) -> dict[str, int]:
        return self.lifecycle.get_process_counts()

    def cleanup_process(self, pid: str) -> Ack:
        self.lifecycle.cleanup_process(pid)
        return self._acknowledge()

    # ------------------------------------------------------------------ quotas and rates

    def check_quota(self, pid: str) -> QuotaResult:
        return self.resources.check_quota(pid)

    def record_usage(self, pid: str, **amounts: int) -> ResourceUsage:
        """Add to what a process has used: llm_calls, tool_calls, agent_hops, iterations, tokens_in, tokens_out, …"""
        known_keys(amounts, COUNTED, "usage")
        return self.resources.record_usage(pid, **amounts)

    def record_tool_call(self, pid: str) -> ResourceUsage:
        return self.resources.record_tool_call(pid)

    def record_agent_hop(self, pid: str) -> ResourceUsage:
        return self.resources.record_agent_hop(pid)

    def get_remaining_budget(self, pid: str) -> RemainingBudget:
        return self.resources.get_remaining_budget(pid)

    def adjust_quota(self, pid: str, changes: Mapping[str, Any]) -> ResourceQuota:
        return self.resources.adjust_quota(pid, changes)

    def check_rate_limit(self, user_id: str, endpoint: str = "", *, record: bool = True) -> RateLimitResult:
        return self.rate_limiter.check_rate_limit(user_id, endpoint, record=record)

    # ------------------------------------------------------------------ questions

    def create_interrupt(
        self, pid: str, kind: str, message: str = "", *, question: str = "", data: Any = None, **more: Any
    ) -> Interrupt:
        """Put a question about a process to a human; `more` as in `InterruptService.create_interrupt`."""
        known_keys(more, _QUESTION, "a question")
        return self.interrupts.create_interrupt(pid, kind, message, question=question, data=data, **more)

    def resolve_interrupt(
        self, interrupt_id: str, response: Answer | Mapping[str, Any], user_id: str | None = None
    ) -> Ack:
        """Answer a question; awaiting it waits until the answer is durable."""
        self._raise_if_closed()
        return Ack(self._kernel, self.interrupts.resolve(interrupt_id, response, user_id=user_id))

    def get_pending_interrupt(self, pid: str) -> Interrupt | None:
        """The oldest question of a process that can still be answered."""
        self.lifecycle.must_exist(pid)
        return self.interrupts.get_pending_interrupt(pid)

    # ------------------------------------------------------------------ how it is doing, and tidying up

    def get_system_status(self) -> SystemStatus:
        return system_status(self._kernel)

    def get_request_status(self, pid: str) -> RequestStatus:
        return request_status(self._kernel, pid)

    def cleanup(self) -> dict[str, int]:
        """Forget what was over long ago; gives how many of each."""
        self._raise_if_closed()
        return clean(self._kernel)

    def cleanup_every(self, seconds: float = limits.CLEANUP_INTERVAL_S) -> None:
        """Clean up every so many seconds from now on."""
        self._raise_if_closed()
        self._rounds.begin(real(seconds, "seconds", above=0.0))

    async def shutdown(self, reason: str = "shutdown", *, drain_s: float = DRAIN_S) -> None:
        """Take nothing new, let what is in flight finish, close. What a store keeps goes on when it is opened again:
        entries that run are put back in line, those that wait keep their questions. Without a store entries end. A
        second call changes nothing."""
        await shut_down(self._kernel, reason=reason, drain_s=drain_s)

    # ------------------------------------------------------------------ services

    def register_service(self, info: ServiceInfo | Mapping[str, Any]) -> Ack:
        """Make a service known; awaiting it waits until that is durable."""
        return self.services.register_service(info)

    def unregister_service(self, name: str) -> Ack:
        return self.services.unregister_service(name)

    def register_handler(self, name: str, handler: ServiceHandler) -> None:
        """Say what runs a service's requests; again after each restart."""
        self.services.register_handler(name, handler)

    @named("lyra:Kernel.dispatch")
    async def dispatch(self, service: str, request: Any = None, **options: Any) -> ServiceResponse:
        """Have a service do a piece of work (`timeout_s`, `max_retries`, `backoff`)."""
        known_keys(options, _DISPATCH, "a dispatch")
        return await self.services.dispatch(service, request, **options)

    @named("lyra:Kernel.dispatch_inference")
    async def dispatch_inference(self, model: str, input: Any, **options: Any) -> InferenceResponse:  # noqa: A002
        """Ask the least busy inference service that has this model (`pid`, `timeout_s`, `max_retries`)."""
        known_keys(options, _INFERENCE, "an inference request")
        return await self.services.dispatch_inference(model, input, **options)

    # ------------------------------------------------------------------ pipelines

    def initialize_orchestration(
        self, pid: str, config: Any, envelope: Any = None, force: bool = False
    ) -> SessionState:
        """Begin a pipeline for a pid; a second time only with `force`, and never for a process that has ended."""
        self._raise_if_closed()
        self.lifecycle.raise_if_closing("pipeline")
        self.lifecycle.raise_if_ended(pid)
        return kept(self._kernel, self.orchestrator.initialize_session(pid, config, envelope, force))

    def get_next_instruction(self, pid: str) -> Instruction:
        """What a pipeline's worker does next; asked again, the same."""
        return kept(self._kernel, self.orchestrator.get_next_instruction(pid))

    def report_agent_result(self, pid: str, result: Mapping[str, Any]) -> Instruction:
        """What came of a run, and what comes next; a run reported again changes nothing."""
        return kept(self._kernel, self.orchestrator.report_agent_result(pid, result))

    def store_envelope(self, pid: str, envelope: Any) -> Envelope:
        """Put another envelope in the place of a pipeline's; an envelope, a mapping or text. The pipeline goes on with
        its inputs, outputs and counts."""
        self._raise_if_closed()
        return self.orchestrator.store_envelope(pid, envelope)

    def get_envelope(self, pid: str) -> Envelope:
        """A pipeline's envelope as it stands: a copy."""
        return self.orchestrator.get_session_state(pid).envelope

    def get_orchestration_state(self, pid: str) -> SessionState:
        return self.orchestrator.get_session_state(pid)

    def register_agent(self, name: str, agent: Any, *, idempotent: bool = False) -> None:
        """Make an agent known to pipelines: an async function of the envelope that gives a mapping."""
        self.orchestrator.agents.register(name, agent, idempotent=idempotent)

    def execute_pipeline(
        self, config: Any, envelope: Any = None, *, pid: str | None = None
    ) -> AsyncGenerator[PipelineEvent, None]:
        """Run a pipeline as a durable process with the registered agents, and tell what happens."""
        self.lifecycle.raise_if_closing("pipeline")
        return self.orchestrator.execute_pipeline(config, envelope, pid=pid)
