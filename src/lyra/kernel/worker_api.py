"""The calls of workers outside the kernel: entries they drive, quotas and rates, questions, services, pipelines.

`WorkerApi` has those that do more than call one part: check that the kernel is open, make a value awaitable, put a
picture together. Those that only call one part are rows of `Kernel` (`forward`). Both are public as methods of Kernel.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import update_wrapper
from operator import attrgetter
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import msgspec

from lyra.core import limits
from lyra.core.checking.check import check_keys, real
from lyra.core.codec import to_plain
from lyra.core.envelope import Envelope
from lyra.errors import NoSuchProcess
from lyra.kernel.base.acting import require_signal
from lyra.kernel.cleanup import Rounds, WorkerParts, clean, shut_down
from lyra.kernel.interrupts.service import Answer, Interrupt
from lyra.kernel.journal.rows import durable_value
from lyra.kernel.pipelines.agents import AgentRun
from lyra.kernel.pipelines.feeds import PipelineEvent
from lyra.kernel.pipelines.instruction import Instruction, SessionState, WorkerLease
from lyra.kernel.programs.handle import Ack, acknowledge
from lyra.kernel.services.registry import InferenceResponse, ServiceResponse
from lyra.kernel.workers.envelope_table import with_ids
from lyra.kernel.workers.lifecycle import ProcessControlBlock
from lyra.kernel.workers.rate_limits import RateLimitUsage
from lyra.kernel.workers.usage import COUNTED, RemainingBudget, ResourceUsage, SystemUsage

P = ParamSpec("P")
R = TypeVar("R")

DRAIN_S: Final = 5.0
_QUESTION: Final = ("ttl_s", "user_id", "request_id", "session_id", "envelope_id", "trace_id", "span_id")
_DISPATCH: Final = ("timeout_s", "max_retries", "backoff")
_INFERENCE: Final = ("pid", "timeout_s", "max_retries")


def forward(part: str, method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Return a method of Kernel that calls the method of the same name of one of its parts."""
    bound = attrgetter(f"{part}.{method.__name__}")

    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = bound(self)(*args, **kwargs)
        return result

    update_wrapper(call, method)
    return call


class WorkerApi:
    """See the module. `kernel.worker_api`."""

    __slots__ = (
        "_close",
        "_core",
        "_interrupts",
        "_lifecycle",
        "_orchestrator",
        "_resources",
        "_rounds",
        "_services",
        "parts",
    )

    def __init__(self, parts: WorkerParts, rounds: Rounds, close: Callable[..., Awaitable[None]]) -> None:
        self.parts = parts
        self._rounds = rounds
        self._close = close  # Kernel.close
        self._core = parts.core
        self._interrupts = parts.interrupts
        self._lifecycle = parts.lifecycle
        self._orchestrator = parts.orchestrator
        self._resources = parts.resources
        self._services = parts.services

    def cleanup_process(self, pid: str) -> Ack:
        self._lifecycle.cleanup_process(pid)
        return acknowledge(self._core)

    def record_usage(self, /, pid: str, **amounts: int) -> ResourceUsage:
        """Add to what a process has used: llm_calls, tool_calls, agent_hops, iterations, tokens_in, tokens_out, …"""
        check_keys(amounts, COUNTED, "usage")
        return self._resources.record_usage(pid, **amounts)

    # ------------------------------------------------------------------ questions

    def create_interrupt(
        self, /, pid: str, kind: str, message: str = "", *, question: str = "", data: Any = None, **more: Any
    ) -> Interrupt:
        """Put a question about a process to a human; `more` as in `InterruptService.create_interrupt`."""
        check_keys(more, _QUESTION, "a question")
        return self._interrupts.create_interrupt(pid, kind, message, question=question, data=data, **more)

    def resolve_interrupt(
        self, interrupt_id: str, response: Answer | Mapping[str, Any], user_id: str | None = None
    ) -> Ack:
        """Answer a question; awaiting it waits until the answer is durable."""
        self._core.raise_if_closed()
        return Ack(self._core, self._interrupts.resolve(interrupt_id, response, user_id=user_id))

    def get_pending_interrupt(self, pid: str) -> Interrupt | None:
        """Return the oldest question of a process that can still be answered."""
        self._lifecycle.must_exist(pid)
        return self._interrupts.get_pending_interrupt(pid)

    # ------------------------------------------------------------------ how it is doing, and tidying up

    def get_system_status(self) -> SystemStatus:
        return system_status(self.parts)

    def get_request_status(self, pid: str) -> RequestStatus:
        return request_status(self.parts, pid)

    def cleanup(self, *, older_than_s: float | None = None) -> dict[str, int]:
        """Forget what was over long ago; gives how many of each. `older_than_s` is the age of processes, pipelines,
        questions and envelopes alike; by default each has its own (24 h, 1 h, 1 h, 24 h)."""
        self._core.raise_if_closed()
        if older_than_s is None:
            return clean(self.parts)
        age_s = real(older_than_s, "older_than_s")
        return clean(self.parts, processes_s=age_s, interrupts_s=age_s, sessions_s=age_s, envelopes_s=age_s)

    def cleanup_every(self, seconds: float = limits.CLEANUP_INTERVAL_S) -> None:
        """Clean up every so many seconds from now on."""
        self._core.raise_if_closed()
        self._rounds.begin(real(seconds, "seconds", above=0.0))

    async def shutdown(self, reason: str = "shutdown", *, drain_s: float = DRAIN_S) -> None:
        """Take nothing new, let what is in flight finish, close. What a store keeps continues when it is opened again:
        entries that run are put back in line, those that wait keep their questions. Without a store entries end. A
        second call changes nothing."""
        require_signal("kernel")
        await shut_down(self.parts, self._close, reason=reason, drain_s=drain_s)

    # ------------------------------------------------------------------ services

    async def dispatch(self, /, service: str, request: Any = None, **options: Any) -> ServiceResponse:
        """Have a service do a piece of work (`timeout_s`, `max_retries`, `backoff`)."""
        check_keys(options, _DISPATCH, "a dispatch")
        return await self._services.dispatch(service, request, **options)

    async def dispatch_inference(self, /, model: str, input: Any, **options: Any) -> InferenceResponse:  # noqa: A002
        """Ask the least busy inference service that has this model (`pid`, `timeout_s`, `max_retries`)."""
        check_keys(options, _INFERENCE, "an inference request")
        return await self._services.dispatch_inference(model, input, **options)

    # ------------------------------------------------------------------ pipelines

    def initialize_orchestration(
        self, pid: str, config: Any, envelope: Any = None, force: bool = False
    ) -> SessionState:
        """Begin a pipeline for a pid; a second time only with `force`, and never for a process that has ended."""
        self._core.raise_if_closed()
        self._lifecycle.raise_if_closing("pipeline")
        self._lifecycle.raise_if_ended(pid)
        return durable_value(self._core, self._orchestrator.initialize_session(pid, config, envelope, force))

    def get_next_instruction(self, pid: str, worker: str | None = None, lease_s: float | None = None) -> Instruction:
        """Return what a pipeline's worker does next; asked again, the same. A `worker` that gives its name has a lease
        of `lease_s` on the run, and asking again renews it."""
        return durable_value(self._core, self._orchestrator.get_next_instruction(pid, worker, lease_s))

    def report_agent_result(
        self, pid: str, result: Mapping[str, Any], worker: str | None = None, lease_s: float | None = None
    ) -> Instruction:
        """Return the outcome of a run, and what comes next, with a lease for a worker with a name; a run reported again
        changes nothing."""
        return durable_value(self._core, self._orchestrator.report_agent_result(pid, result, worker, lease_s))

    def renew_lease(self, pid: str, worker: str, lease_s: float | None = None) -> list[WorkerLease]:
        """More time for the runs that a worker has: its sign of life. InvalidTransition if it has lost them."""
        return self._orchestrator.renew_lease(pid, worker, lease_s)

    def release_lease(self, pid: str, worker: str) -> int:
        """Take back the runs that a worker has not begun; gives how many."""
        return self._orchestrator.release_lease(pid, worker)

    def store_envelope(self, pid: str, envelope: Any) -> Envelope:
        """Put another envelope in the place of a pipeline's; an envelope, a mapping or text. The pipeline continues
        with its inputs, outputs and counts."""
        self._core.raise_if_closed()
        return self._orchestrator.store_envelope(pid, envelope)

    def get_envelope(self, pid: str) -> Envelope:
        """Return a pipeline's envelope as it stands: a copy."""
        return self._orchestrator.get_session_state(pid).envelope

    def create_envelope(
        self,
        fields: Envelope | Mapping[str, Any] | str | None = None,
        *,
        user_id: str = "",
        request_id: str = "",
        session_id: str = "",
    ) -> Envelope:
        """Make an envelope without a pipeline, and keep it."""
        return self.parts.envelopes.create(fields, user_id=user_id, request_id=request_id, session_id=session_id)

    def update_envelope(self, changes: Envelope | Mapping[str, Any], *, user_id: str | None = None) -> Envelope:
        """Change the envelope whose `envelope_id` is among the changes: fields that are not given keep their values,
        and mappings are merged by key."""
        return self.parts.envelopes.update(changes, user_id=user_id)

    def clone_envelope(self, envelope: Envelope | Mapping[str, Any] | str, *, user_id: str | None = None) -> Envelope:
        """Keep a copy of an envelope under a new id."""
        return self.parts.envelopes.clone(envelope, user_id=user_id)

    def get_orchestration_state(self, pid: str) -> SessionState:
        return self._orchestrator.get_session_state(pid)

    def register_agent(
        self,
        name: str,
        agent: Any,
        *,
        idempotent: bool = False,
        prompts: Mapping[str, Any] | None = None,
        models: Mapping[str, Any] | None = None,
    ) -> None:
        """Make an agent known to pipelines and `execute_agent`: an async function of the envelope that gives a mapping,
        or an Agent. `prompts` are system prompts of an Agent by `prompt_key`, `models` its models by `model_role`."""
        self._core.raise_if_elsewhere()
        self._orchestrator.agents.register(name, agent, idempotent=idempotent, prompts=prompts, models=models)

    async def execute_agent(
        self,
        name: str,
        envelope: Any = None,
        config: Any = None,
        *,
        user_id: str = "",
        request_id: str = "",
        session_id: str = "",
        pid: str | None = None,
        quota: Any = None,
    ) -> AgentRun:
        """Run one registered agent as a durable process, with the settings of a stage in `config` and a `quota`. An
        agent that fails is a result without `success`, not an error; a known pid gives the result of that run. Where
        the call is cancelled, a run without a pid of the caller's ends, and one with a pid continues."""
        self._lifecycle.raise_if_closing("agent")
        given = {"user_id": user_id, "request_id": request_id, "session_id": session_id}
        work = with_ids(self._orchestrator.envelope_of(envelope), given)
        return await self._orchestrator.execute_agent(name, work, config, pid=pid, quota=quota)

    def execute_pipeline(
        self, config: Any, envelope: Any = None, *, pid: str | None = None
    ) -> AsyncGenerator[PipelineEvent, None]:
        """Run a pipeline as a durable process with the registered agents, and tell what happens."""
        self._lifecycle.raise_if_closing("pipeline")
        return self._orchestrator.execute_pipeline(config, envelope, pid=pid)


# ---------------------------------------------------------------- status
# How the kernel is doing, and how one request is doing: pictures put together from the subsystems.


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
