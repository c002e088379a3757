"""The kernel as one user may use it: `kernel.as_user("ann")` has its calls, and each is about what is ann's.

Every call that names a process, a pipeline, an envelope or a question checks its owner first: another user's, or one of
no user, is `Denied`, and one that does not exist is `NoSuchProcess` (`NoSuchEnvelope`, `NoSuchInterrupt`). What a user
makes is the user's from then on; lists and counts have what is the user's alone. A server makes one view for each
request, from the identity that it has checked. Calls about the whole kernel (services, status, shutdown) are not here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, TypeVar

from lyra.core.envelope import BoundsResult, Envelope
from lyra.errors import NoSuchProcess
from lyra.kernel.interrupts.interrupt import Answer, Interrupt
from lyra.kernel.pipelines.events import PipelineEvent
from lyra.kernel.pipelines.instruction import SessionState
from lyra.kernel.pipelines.single_agent import AgentRun
from lyra.kernel.programs.handle import Ack, Handle
from lyra.kernel.services.registry import InferenceResponse, ServiceResponse
from lyra.kernel.services.service import ServiceRequest
from lyra.kernel.worker_api import WorkerApi
from lyra.kernel.workers.entry import ProcessControlBlock, ProcessCounts
from lyra.kernel.workers.envelopes import with_ids
from lyra.kernel.workers.lifecycle import LifecycleManager
from lyra.kernel.workers.quota import check_owner, checked_user
from lyra.kernel.workers.rate_limits import RateLimitResult
from lyra.kernel.workers.usage import ResourceTracker

P = ParamSpec("P")
R = TypeVar("R")


def _owned(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """The call of the kernel by that name for a pid, its first argument, that is the user's."""
    name = method.__name__

    def call(self: UserKernel, /, *args: P.args, **kwargs: P.kwargs) -> R:
        pid: Any = args[0] if args else kwargs.get("pid")
        self.check(pid)
        result: R = getattr(self.kernel, name)(*args, **kwargs)
        return result

    update_wrapper(call, method)
    return call


class UserKernel:
    """See the module. `kernel` is the kernel itself, `user_id` the user."""

    __slots__ = ("_lifecycle", "kernel", "user_id")

    def __init__(self, kernel: Any, user_id: str) -> None:
        self.kernel = kernel
        self.user_id = checked_user(user_id)
        self._lifecycle: LifecycleManager = kernel.lifecycle

    def check(self, pid: str) -> None:
        """Raise NoSuchProcess if there is no such process, Denied if it is not the user's."""
        check_owner(self._lifecycle.user_of(pid), self.user_id, f"process {pid}")

    def _check_if_known(self, pid: str | None) -> None:
        """Check a pid that may be new."""
        if pid:
            try:
                self.check(pid)
            except NoSuchProcess:
                return

    def _own_envelope(self, envelope: Any, pid: str = "") -> Envelope:
        return with_ids(self.kernel.orchestrator.envelope_of(envelope, pid), {"user_id": self.user_id})

    # ------------------------------------------------------------------ processes

    def submit(self, pid: str, **given: Any) -> ProcessControlBlock:
        """`Kernel.submit` for the user; a pid of another's is refused."""
        self._check_if_known(pid)
        parent_pid = given.get("parent_pid")
        if parent_pid:
            self.check(parent_pid)
        block: ProcessControlBlock = self.kernel.submit(pid, **{**given, "user_id": self.user_id})
        return block

    def spawn(self, program: Any, *args: Any, pid: str | None = None, **options: Any) -> Any:
        """`Kernel.spawn` of a process that is the user's; an existing pid gives that process, if it is."""
        self._check_if_known(pid)
        handle: Handle = self.kernel.spawn(program, *args, pid=pid, **options)
        self._lifecycle.set_owner(handle.pid, self.user_id)
        return handle

    def process(self, pid: str) -> Handle:
        self.check(pid)
        handle: Handle = self.kernel.process(pid)
        return handle

    def agent(self, pid: str) -> Any:
        self.check(pid)
        return self.kernel.agent(pid)

    def kill(self, pid: str, reason: str = "killed") -> Ack:
        self.check(pid)
        ended: Ack = self.kernel.kill(pid, reason)
        return ended

    def send(self, pid: str, message: Any) -> Ack:
        self.check(pid)
        sent: Ack = self.kernel.send(pid, message)
        return sent

    def get_next_runnable(self) -> ProcessControlBlock | None:
        """Take the user's entry whose turn it is."""
        return self._lifecycle.get_next_runnable(self.user_id)

    def list_processes(self, state: str | None = None) -> list[ProcessControlBlock]:
        return self._lifecycle.list_processes(state, self.user_id)

    def get_process_counts(self) -> ProcessCounts:
        return self._lifecycle.get_process_counts(self.user_id)

    schedule = _owned(LifecycleManager.schedule)
    transition_state = _owned(LifecycleManager.transition_state)
    terminate = _owned(LifecycleManager.terminate)
    get_process = _owned(LifecycleManager.get_process)
    cleanup_process = _owned(WorkerApi.cleanup_process)
    get_request_status = _owned(WorkerApi.get_request_status)

    check_quota = _owned(ResourceTracker.check_quota)
    record_usage = _owned(WorkerApi.record_usage)
    record_tool_call = _owned(ResourceTracker.record_tool_call)
    record_agent_hop = _owned(ResourceTracker.record_agent_hop)
    get_remaining_budget = _owned(ResourceTracker.get_remaining_budget)
    adjust_quota = _owned(ResourceTracker.adjust_quota)

    def check_rate_limit(self, endpoint: str = "", *, record: bool = True) -> RateLimitResult:
        limited: RateLimitResult = self.kernel.check_rate_limit(self.user_id, endpoint, record=record)
        return limited

    # ------------------------------------------------------------------ questions

    create_interrupt = _owned(WorkerApi.create_interrupt)
    get_pending_interrupt = _owned(WorkerApi.get_pending_interrupt)

    def get_interrupt(self, interrupt_id: str) -> Interrupt:
        self._check_question(interrupt_id)
        interrupt: Interrupt = self.kernel.interrupts.get_interrupt(interrupt_id)
        return interrupt

    def list_interrupts(self, pid: str | None = None, *, status: str | None = None) -> list[Interrupt]:
        """Questions of one of the user's processes, or of all of them."""
        if pid is not None:
            self.check(pid)
        asked: list[Interrupt] = self.kernel.interrupts.list_interrupts(pid, status=status)
        return [interrupt for interrupt in asked if self._owner_of(interrupt) == self.user_id]

    def resolve_interrupt(self, interrupt_id: str, response: Answer | Mapping[str, Any]) -> Ack:
        self._check_question(interrupt_id)
        answered: Ack = self.kernel.resolve_interrupt(interrupt_id, response, self.user_id)
        return answered

    def cancel_interrupt(self, interrupt_id: str, reason: str = "cancelled") -> Interrupt:
        self._check_question(interrupt_id)
        interrupt: Interrupt = self.kernel.interrupts.cancel_interrupt(interrupt_id, reason)
        return interrupt

    def _check_question(self, interrupt_id: str) -> None:
        interrupt = self.kernel.interrupts._find(interrupt_id)
        check_owner(self._owner_of(interrupt), self.user_id, f"interrupt {interrupt_id}")

    def _owner_of(self, interrupt: Interrupt) -> str:
        try:
            return interrupt.user_id or self._lifecycle.user_of(interrupt.pid)
        except NoSuchProcess:  # its process was cleaned up
            return ""

    # ------------------------------------------------------------------ pipelines, agents, envelopes

    get_next_instruction = _owned(WorkerApi.get_next_instruction)
    report_agent_result = _owned(WorkerApi.report_agent_result)
    renew_lease = _owned(WorkerApi.renew_lease)
    release_lease = _owned(WorkerApi.release_lease)
    get_envelope = _owned(WorkerApi.get_envelope)
    get_orchestration_state = _owned(WorkerApi.get_orchestration_state)

    def store_envelope(self, pid: str, envelope: Any) -> Envelope:
        self.check(pid)
        kept: Envelope = self.kernel.store_envelope(pid, self._own_envelope(envelope, pid))
        return kept

    def initialize_orchestration(
        self, pid: str, config: Any, envelope: Any = None, force: bool = False
    ) -> SessionState:
        self._check_if_known(pid)
        session: SessionState = self.kernel.initialize_orchestration(
            pid, config, self._own_envelope(envelope, pid), force
        )
        return session

    def execute_pipeline(
        self, config: Any, envelope: Any = None, *, pid: str | None = None
    ) -> AsyncGenerator[PipelineEvent, None]:
        self._check_if_known(pid)
        events: AsyncGenerator[PipelineEvent, None] = self.kernel.execute_pipeline(
            config, self._own_envelope(envelope), pid=pid
        )
        return events

    def execute_agent(
        self, name: str, envelope: Any = None, config: Any = None, *, pid: str | None = None, **given: Any
    ) -> Coroutine[Any, Any, AgentRun]:
        self._check_if_known(pid)
        run: Coroutine[Any, Any, AgentRun] = self.kernel.execute_agent(
            name, envelope, config, pid=pid, **{**given, "user_id": self.user_id}
        )
        return run

    def create_envelope(self, fields: Any = None, *, request_id: str = "", session_id: str = "") -> Envelope:
        envelope: Envelope = self.kernel.create_envelope(
            fields, user_id=self.user_id, request_id=request_id, session_id=session_id
        )
        return envelope

    def update_envelope(self, changes: Envelope | Mapping[str, Any]) -> Envelope:
        envelope: Envelope = self.kernel.update_envelope(changes, user_id=self.user_id)
        return envelope

    def clone_envelope(self, envelope: Envelope | Mapping[str, Any] | str) -> Envelope:
        copy: Envelope = self.kernel.clone_envelope(envelope, user_id=self.user_id)
        return copy

    def check_bounds(self, envelope: Envelope | Mapping[str, Any] | str) -> BoundsResult:
        left: BoundsResult = self.kernel.check_bounds(envelope, user_id=self.user_id)
        return left

    # ------------------------------------------------------------------ services

    async def dispatch(self, service: str, request: Any = None, **options: Any) -> ServiceResponse:
        """`Kernel.dispatch`; a pid in the request is the user's."""
        pid = request.pid if isinstance(request, ServiceRequest) else None
        if isinstance(request, Mapping):
            pid = request.get("pid")
        if pid:
            self.check(pid)
        response: ServiceResponse = await self.kernel.dispatch(service, request, **options)
        return response

    async def dispatch_inference(self, model: str, input: Any, *, pid: str = "", **options: Any) -> InferenceResponse:  # noqa: A002
        if pid:
            self.check(pid)
        response: InferenceResponse = await self.kernel.dispatch_inference(model, input, pid=pid, **options)
        return response
