"""A worker: runs agents and services for the kernel of a server, and survives restarts of it.

    worker = Worker("127.0.0.1:8420")
    worker.register_agent("summarise", summarise, idempotent=True)
    await worker.run()

Agents are functions of the envelope, or Agents, as with `Kernel.register_agent`; `LocalWork` runs them. Each slot
claims a piece of work, keeps its lease while the work runs, and delivers the result until the server has it. When the
server cannot be reached the work continues; when it is back, the worker says first what it serves, so that the server
gives it back what it holds. `stop` claims nothing more and finishes what the worker holds.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core.checking.check import check_integer, real
from lyra.core.clock import RunningClock
from lyra.core.effect import Charged
from lyra.core.envelope import Envelope
from lyra.core.ids import unique_id
from lyra.core.limits import WORK_CLAIM_WAIT_S_MAX, WORK_LEASE_S, WORK_LEASE_S_MAX, WORK_LEASE_S_MIN, WORK_SLOTS_MAX
from lyra.core.trace_context import continued
from lyra.errors import ConfigError, DeadlineExceeded, LyraError, Overloaded
from lyra.kernel.base.tasks import BlockingCalls
from lyra.kernel.kernel import Kernel
from lyra.kernel.pipelines.agents import result_data
from lyra.kernel.pipelines.declaration import AgentConfig
from lyra.kernel.pipelines.runner import SPENT
from lyra.kernel.services.service import ServiceRequest, ServiceResponse
from lyra.server.client.remote import ConnectionSettings, ServerConnection

if TYPE_CHECKING:
    from lyra.server.generated import engine_pb2 as pb


_log: Final = logging.getLogger("lyra.worker")
_RENEWALS_PER_LEASE: Final = 3
_CLAIM_WAIT_S: Final = WORK_CLAIM_WAIT_S_MAX / 2
_STOP_S: Final = 30.0  # for results that a server cannot take when the worker stops


class CurrentWork:
    """The piece of work that the running code belongs to. `idempotency_key` is the same in every attempt."""

    __slots__ = ("attempt", "idempotency_key", "work_id")

    def __init__(self, work_id: str, attempt: int, idempotency_key: str) -> None:
        self.work_id = work_id
        self.attempt = attempt
        self.idempotency_key = idempotency_key


_current: ContextVar[CurrentWork | None] = ContextVar("lyra-current-work", default=None)


def current_work() -> CurrentWork | None:
    """Return the piece of work that a worker runs here; None outside one."""
    return _current.get()


class Worker:
    """See the module."""

    def __init__(
        self,
        address: str,
        *,
        worker_id: str | None = None,
        concurrency: int = 1,
        lease_s: float = WORK_LEASE_S,
        kernel: Kernel | None = None,
        **connection: Any,
    ) -> None:
        """`address` is that of a server, or those of hosts of a cluster with commas between: the next one is called
        where one cannot be reached. `connection` as in `lyra.connect`; `kernel` runs the Agents, by default one in
        memory."""
        self.id = worker_id or f"{socket.gethostname()}-{os.getpid()}-{unique_id()[:6]}"
        self.address = address
        self._concurrency = check_integer(concurrency, "concurrency", least=1, most=WORK_SLOTS_MAX)
        self._lease_s = real(lease_s, "lease_s", least=WORK_LEASE_S_MIN, most=WORK_LEASE_S_MAX)
        self._connection = ServerConnection(ConnectionSettings.from_address(address, **connection))
        self._work = LocalWork(kernel)
        self._stopping = asyncio.Event()
        self._is_announced = False
        self.done = 0  # pieces of work whose result was taken

    # ------------------------------------------------------------------ what it serves

    def register_agent(self, name: str, agent: Any, *, idempotent: bool = False, **options: Any) -> None:
        """Serve an agent: a function of the envelope, or an Agent (`prompts`, `models` as in the kernel). An
        `idempotent` one is run again by another worker when this one is lost; otherwise a person is asked."""
        self._work.add_agent(name, agent, idempotent=idempotent, **options)

    def register_service(self, name: str, handler: Callable[..., Any], *, idempotent: bool = False) -> None:
        """Serve a service: a function of a ServiceRequest."""
        self._work.add_service(name, handler, idempotent=idempotent)

    @property
    def agents(self) -> list[str]:
        return sorted(self._work.agents)

    @property
    def services(self) -> list[str]:
        return sorted(self._work.services)

    # ------------------------------------------------------------------ running

    def stop(self) -> None:
        """Claim nothing more; `run` returns when what the worker holds is finished."""
        self._stopping.set()

    async def run(self, ready: Callable[[], None] | None = None) -> None:
        """Work until `stop`. `ready` is called when the server knows the worker."""
        if not self.agents and not self.services:
            raise ConfigError("the worker serves nothing", hint="call worker.register_agent(name, fn) in setup(worker)")
        async with self._work:
            try:
                await self._announce(is_first=True)
                if ready is not None:
                    ready()
                async with asyncio.TaskGroup() as slots:
                    slots.create_task(self._leave_when_told())
                    for _ in range(self._concurrency):
                        slots.create_task(self._slot())
            except* LyraError as group:
                raise group.exceptions[0] from None
            finally:
                await self._connection.close()

    async def _leave_when_told(self) -> None:
        await self._stopping.wait()
        with suppress(LyraError):  # a server that is not there sees that nothing is claimed any more
            await self._call("ClaimWork", {"announce": True})  # claims that wait end without work

    async def _slot(self) -> None:
        attempt = 0
        while not self._stopping.is_set():
            try:
                item = await self._call("ClaimWork", {**self._describe_served(), "wait_seconds": _CLAIM_WAIT_S})
                attempt = 0
            except (Overloaded, DeadlineExceeded):
                attempt += 1
                self._is_announced = False
                await self._pause(attempt)
                continue
            if item.work_id:
                # Run a piece of work while its lease is kept, and deliver the result.
                name = item.agent_name or item.service_name
                _log.info("%s begins (%s)", name, item.work_id)
                _current.set(CurrentWork(item.work_id, item.attempt, item.idempotency_key))
                with continued(item.traceparent or None):
                    result = await self._result_of(item)
                await self._deliver(item, result)

    def _describe_served(self) -> dict[str, Any]:
        return {
            "agents": self.agents,
            "services": self.services,
            "idempotent": sorted(self._work.idempotent),
            "lease_seconds": max(1, round(self._lease_s)),
        }

    async def _announce(self, *, is_first: bool = False) -> None:
        """Tell the server what is served; before anything else when it is back after a restart."""
        await self._call("ClaimWork", {**self._describe_served(), "announce": True}, may_repeat=is_first)
        self._is_announced = True

    async def _pause(self, attempt: int) -> None:
        """Wait before the next attempt to reach the server, or until the worker stops."""
        try:
            await asyncio.wait_for(self._stopping.wait(), self._connection.pause_s(attempt))
        except TimeoutError:
            return

    # ------------------------------------------------------------------ one piece of work

    async def _result_of(self, item: pb.WorkItem) -> WorkResult:
        async with asyncio.TaskGroup() as group:
            run = group.create_task(self._work.run(item))
            keeper = group.create_task(self._keep(item, run))
            run.add_done_callback(lambda _: keeper.cancel())
            await asyncio.wait([run])
        if run.cancelled():
            _log.warning("%s was cancelled", item.work_id)
            return WorkResult(success=False, error="cancelled by the server")
        return run.result()

    async def _keep(self, item: pb.WorkItem, run: asyncio.Task[WorkResult]) -> None:
        """Renew the lease until the work is done. Work that is cancelled, or that another worker has now, is ended."""
        pause_s = max(1, item.lease_seconds) / _RENEWALS_PER_LEASE
        may_repeat = (item.agent_name or item.service_name) in self._work.idempotent
        while not run.done():
            await asyncio.sleep(pause_s)
            try:
                if "/" in item.work_id:  # of a shard: the others, at which it claims nothing now, shall know it
                    await self._announce()
                renewal = await self._call_known("RenewWork", {"work_id": item.work_id})
            except LyraError as error:
                _log.warning("the lease of %s could not be renewed: %s", item.work_id, error.message)
                continue
            if renewal.cancelled or (not renewal.held and may_repeat):
                run.cancel()
                return

    async def _deliver(self, item: pb.WorkItem, result: WorkResult) -> None:
        """Report the result until the server has taken or refused it."""
        fields = {"work_id": item.work_id, **result.fields()}
        attempt, loop = 0, asyncio.get_running_loop()
        stopped_at: float | None = None
        while True:
            try:
                answer = await self._call_known("CompleteWork", fields)
            except (Overloaded, DeadlineExceeded):
                attempt += 1
                if self._stopping.is_set():
                    stopped_at = stopped_at or loop.time()
                    if loop.time() - stopped_at > _STOP_S:
                        _log.error("the result of %s could not be delivered", item.work_id)
                        return
                await asyncio.sleep(self._connection.pause_s(attempt))
                continue
            except LyraError as error:
                _log.error("the result of %s was refused: %s", item.work_id, error.message)
                return
            self.done += answer.accepted
            if not answer.accepted:
                _log.warning("the result of %s is not wanted any more", item.work_id)
            return

    async def _call_known(self, rpc: str, fields: dict[str, Any]) -> Any:
        """Return a call about work that the worker holds; a server that was restarted is told first what is served."""
        try:
            if not self._is_announced:
                await self._announce()
            return await self._call(rpc, fields)
        except (Overloaded, DeadlineExceeded):
            self._is_announced = False
            raise

    async def _call(self, rpc: str, fields: dict[str, Any], *, may_repeat: bool = False) -> Any:
        from lyra.server.client.wire import answer_class, message_of, request_class

        method = f"WorkerService/{rpc}"
        request = message_of(request_class(method).DESCRIPTOR, {**fields, "worker_id": self.id})
        return await self._connection.call(method, request, answer_class(method), may_repeat=may_repeat)


# ---------------------------------------------------------------- local work
# What a worker runs: agents and services by name, in its own kernel.


class WorkResult(msgspec.Struct, kw_only=True):
    """The outcome of a piece of work, as it is reported."""

    output: Any = None
    metrics: dict[str, Any] = {}
    success: bool = True
    error: str = ""
    error_code: str = ""
    break_loop: bool = False
    interrupt: dict[str, Any] | None = None

    def fields(self) -> dict[str, Any]:
        """Return the fields that are set."""
        fields = {name: value for name, value in msgspec.structs.asdict(self).items() if value not in ("", None, False)}
        return {**fields, "success": self.success, "metrics": _select_counts(self.metrics)}


class LocalWork:
    """See the module."""

    def __init__(self, kernel: Kernel | None = None) -> None:
        self._kernel = Kernel() if kernel is None else kernel
        self._owns_kernel = kernel is None or not kernel.started
        self._threads = BlockingCalls("lyra-worker")
        self.agents: set[str] = set()
        self.services: dict[str, Callable[..., Any]] = {}
        self.idempotent: set[str] = set()

    async def __aenter__(self) -> LocalWork:
        if self._owns_kernel:
            await self._kernel.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self._threads.close()
        if self._owns_kernel:
            await self._kernel.close()

    def add_agent(self, name: str, agent: Any, *, idempotent: bool, **options: Any) -> None:
        self._kernel.register_agent(name, agent, idempotent=idempotent, **options)
        self.agents.add(name)
        self._mark(name, idempotent=idempotent)

    def add_service(self, name: str, handler: Callable[..., Any], *, idempotent: bool) -> None:
        if not callable(handler):
            raise ConfigError(f"a handler is a function of one request, not {handler!r}", name=name)
        self.services[name] = handler
        self._mark(name, idempotent=idempotent)

    def _mark(self, name: str, *, idempotent: bool) -> None:
        if not isinstance(idempotent, bool):
            raise ConfigError(f"idempotent is {idempotent!r}", hint="say True or False")
        if idempotent:
            self.idempotent.add(name)
        else:
            self.idempotent.discard(name)

    async def run(self, item: pb.WorkItem) -> WorkResult:
        """Run a piece of work; an error of it is a result."""
        clock = RunningClock()
        began = clock.monotonic()
        try:
            result = await (self._run_agent(item) if item.agent_name else self._run_service(item))
        except Exception as error:  # noqa: BLE001 - any error of an agent is reported
            code = error.code if isinstance(error, LyraError) else ""
            result = WorkResult(success=False, error=str(error) or type(error).__name__, error_code=code)
        result.metrics.setdefault("duration_ms", round((clock.monotonic() - began) * 1000))
        return result

    async def _run_agent(self, item: pb.WorkItem) -> WorkResult:
        agent = self._kernel.orchestrator.agents.get(item.agent_name)
        envelope = Envelope.from_data(_json(item.envelope))
        config = _json(item.agent_config) or {}
        if agent.program is not None:
            run = await self._kernel.execute_agent(item.agent_name, envelope, config)
            metrics = {metric: getattr(run, metric) for metric in (*SPENT, "duration_ms")}
            if run.success:
                return WorkResult(output=run.output, metrics=metrics)
            return WorkResult(success=False, error=run.error, error_code=run.error_code, metrics=metrics)
        stage = msgspec.convert(config, AgentConfig)
        value = await agent.run(envelope, stage, self._threads)
        spent: dict[str, int] = {}
        if isinstance(value, Charged):
            spent = {name: value.usage[dimension] for name, dimension in SPENT.items()}
            value = value.value
        data = result_data(stage, value)
        return WorkResult(
            output=data["output"],
            metrics={**spent, **data["metrics"]},
            break_loop=bool(data.get("break_loop")),
            interrupt=data.get("interrupt"),
        )

    async def _run_service(self, item: pb.WorkItem) -> WorkResult:
        handler = self.services[item.service_name]
        given = _json(item.envelope)
        request = ServiceRequest(
            pid=item.process_id,
            envelope=None if given is None else Envelope.from_data(given),
            metadata=_json(item.metadata) or {},
        )
        call = handler if iscoroutinefunction(handler) else partial(self._threads.call, handler)
        value = await call(request)
        return WorkResult(output=_response(await value if hasattr(value, "__await__") else value, request))


def _response(value: Any, request: ServiceRequest) -> dict[str, Any]:
    """Return what a handler gave, as the fields of a response."""
    if value is None:
        value = request.envelope
    if isinstance(value, Envelope):
        return {"envelope": value.to_data()}
    if isinstance(value, ServiceResponse):
        value = {"envelope": value.envelope, "metadata": value.metadata, "error": value.error}
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError(f"a service gave {type(value).__name__}, not a mapping", hint="give a ServiceResponse")
    if not set(value) <= {"envelope", "metadata", "error"}:
        return {"metadata": dict(value)}
    return {name: part.to_data() if isinstance(part, Envelope) else part for name, part in value.items() if part}


def _json(data: bytes) -> Any:
    return msgspec.json.decode(data) if data else None


def _select_counts(metrics: Mapping[str, Any]) -> dict[str, int]:
    return {name: int(amount) for name, amount in metrics.items() if name in {*SPENT, "duration_ms"}}
