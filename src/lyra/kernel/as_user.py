"""The kernel as one user may use it: `kernel.as_user("ann")` has its calls, and each is about what is ann's.

Every call that names a process, a pipeline, an envelope or a question checks its owner first: another user's, or one of
no user, is `Denied`, and one that does not exist is `NoSuchProcess` (`NoSuchEnvelope`, `NoSuchInterrupt`). What a user
makes is the user's from then on; lists and counts have what is the user's alone. A server makes one view for each
request, from the identity that it has checked. What a call needs is a column of `lyra.core.kernel_calls`. Calls about
the whole kernel (services, status, shutdown) are not here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, TypeVar

from lyra.core.envelope import Envelope
from lyra.core.kernel_calls import CALLS
from lyra.errors import NoSuchProcess
from lyra.kernel.interrupts.interrupt import Interrupt
from lyra.kernel.interrupts.service import InterruptService
from lyra.kernel.programs.handle import Ack, Handle
from lyra.kernel.services.registry import InferenceResponse, ServiceResponse
from lyra.kernel.services.service import ServiceRequest
from lyra.kernel.worker_api import WorkerApi
from lyra.kernel.workers.envelope_table import EnvelopeTable, with_ids
from lyra.kernel.workers.lifecycle import LifecycleManager
from lyra.kernel.workers.quota import check_owner, check_user
from lyra.kernel.workers.rate_limits import RateLimitResult
from lyra.kernel.workers.usage import ResourceTracker

P = ParamSpec("P")
R = TypeVar("R")


def _as_user(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Return the call of the kernel by that name, with what its row in `CALLS` needs checked first."""
    name, signature = method.__name__, inspect.signature(method)
    row = CALLS[name]

    def call(self: UserKernel, /, *args: P.args, **kwargs: P.kwargs) -> R:
        given = signature.bind(self, *args, **kwargs)
        self._admit(row.needs, given.arguments)
        if "user_id" in signature.parameters:
            given.arguments["user_id"] = self.user_id
        elif "envelope" in signature.parameters:
            given.arguments["envelope"] = self._claim_envelope(given.arguments)
        result: R = row.method(self.kernel, name)(*given.args[1:], **given.kwargs)
        return result

    update_wrapper(call, method)
    return call


class UserKernel:
    """See the module. `kernel` is the kernel itself, `user_id` the user."""

    __slots__ = ("_lifecycle", "kernel", "user_id")

    def __init__(self, kernel: Any, user_id: str) -> None:
        self.kernel = kernel
        self.user_id = check_user(user_id)
        self._lifecycle: LifecycleManager = kernel.lifecycle

    def check(self, pid: str) -> None:
        """Raise NoSuchProcess if there is no such process, Denied if it is not the user's."""
        check_owner(self._lifecycle.user_of(pid), self.user_id, f"process {pid}")

    def _admit(self, needs: str, given: Mapping[str, Any]) -> None:
        """Check what a call with these arguments needs."""
        if needs == "process":
            self.check(given["pid"])
        elif needs == "question":
            interrupt = self.kernel.interrupts._find(given["interrupt_id"])
            check_owner(self._owner_of(interrupt), self.user_id, f"interrupt {interrupt.id}")
        elif needs == "new process":
            if given.get("pid"):
                with suppress(NoSuchProcess):
                    self.check(given["pid"])
            if given.get("parent_pid"):
                self.check(given["parent_pid"])

    def _claim_envelope(self, given: Mapping[str, Any]) -> Envelope:
        envelope = self.kernel.orchestrator.envelope_of(given.get("envelope"), given.get("pid") or "")
        return with_ids(envelope, {"user_id": self.user_id})

    def _owner_of(self, interrupt: Interrupt) -> str:
        try:
            return interrupt.user_id or self._lifecycle.user_of(interrupt.pid)
        except NoSuchProcess:  # its process was cleaned up
            return ""

    def spawn(self, program: Any, *args: Any, pid: str | None = None, **options: Any) -> Any:
        """`Kernel.spawn` of a process that is the user's; an existing pid gives that process, if it is."""
        self._admit("new process", {"pid": pid})
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

    submit = _as_user(LifecycleManager.submit)
    schedule = _as_user(LifecycleManager.schedule)
    get_next_runnable = _as_user(LifecycleManager.get_next_runnable)
    transition_state = _as_user(LifecycleManager.transition_state)
    terminate = _as_user(LifecycleManager.terminate)
    get_process = _as_user(LifecycleManager.get_process)
    list_processes = _as_user(LifecycleManager.list_processes)
    get_process_counts = _as_user(LifecycleManager.get_process_counts)
    cleanup_process = _as_user(WorkerApi.cleanup_process)
    get_request_status = _as_user(WorkerApi.get_request_status)

    check_quota = _as_user(ResourceTracker.check_quota)
    record_usage = _as_user(WorkerApi.record_usage)
    record_tool_call = _as_user(ResourceTracker.record_tool_call)
    record_agent_hop = _as_user(ResourceTracker.record_agent_hop)
    get_remaining_budget = _as_user(ResourceTracker.get_remaining_budget)
    adjust_quota = _as_user(ResourceTracker.adjust_quota)

    def check_rate_limit(self, endpoint: str = "", *, record: bool = True) -> RateLimitResult:
        limited: RateLimitResult = self.kernel.check_rate_limit(self.user_id, endpoint, record=record)
        return limited

    create_interrupt = _as_user(WorkerApi.create_interrupt)
    get_pending_interrupt = _as_user(WorkerApi.get_pending_interrupt)
    get_interrupt = _as_user(InterruptService.get_interrupt)
    resolve_interrupt = _as_user(WorkerApi.resolve_interrupt)
    cancel_interrupt = _as_user(InterruptService.cancel_interrupt)

    def list_interrupts(self, pid: str | None = None, *, status: str | None = None) -> list[Interrupt]:
        """Questions of one of the user's processes, or of all of them."""
        if pid is not None:
            self.check(pid)
        asked: list[Interrupt] = self.kernel.interrupts.list_interrupts(pid, status=status)
        return [interrupt for interrupt in asked if self._owner_of(interrupt) == self.user_id]

    get_next_instruction = _as_user(WorkerApi.get_next_instruction)
    report_agent_result = _as_user(WorkerApi.report_agent_result)
    renew_lease = _as_user(WorkerApi.renew_lease)
    release_lease = _as_user(WorkerApi.release_lease)
    get_envelope = _as_user(WorkerApi.get_envelope)
    store_envelope = _as_user(WorkerApi.store_envelope)
    get_orchestration_state = _as_user(WorkerApi.get_orchestration_state)
    initialize_orchestration = _as_user(WorkerApi.initialize_orchestration)
    execute_pipeline = _as_user(WorkerApi.execute_pipeline)
    execute_agent = _as_user(WorkerApi.execute_agent)
    create_envelope = _as_user(WorkerApi.create_envelope)
    update_envelope = _as_user(WorkerApi.update_envelope)
    clone_envelope = _as_user(WorkerApi.clone_envelope)
    check_bounds = _as_user(EnvelopeTable.check_bounds)

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
