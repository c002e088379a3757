"""What a worker runs: agents and services by name, in a kernel of its own.

A function is called with the envelope as in the server's kernel; an Agent runs as a process of the worker's kernel,
which is in memory unless another is given. A result is plain data, with what it used; an error keeps its code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

import msgspec

from lyra.core.clock import RunningClock
from lyra.core.effect import Charged
from lyra.core.envelope import Envelope
from lyra.errors import ConfigError, LyraError
from lyra.kernel.base.tasks import BlockingCalls
from lyra.kernel.kernel import Kernel
from lyra.kernel.pipelines.agents import RegisteredAgent, result_data
from lyra.kernel.pipelines.declaration import AgentConfig
from lyra.kernel.pipelines.stage_process import SPENT
from lyra.kernel.services.service import ServiceRequest, ServiceResponse

if TYPE_CHECKING:
    from lyra.server.generated import engine_pb2 as pb


class WorkResult(msgspec.Struct, kw_only=True):
    """What came of a piece of work, as it is reported."""

    output: Any = None
    metrics: dict[str, Any] = {}
    success: bool = True
    error: str = ""
    error_code: str = ""
    break_loop: bool = False
    interrupt: dict[str, Any] | None = None

    def fields(self) -> dict[str, Any]:
        """The fields that are set."""
        fields = {name: value for name, value in msgspec.structs.asdict(self).items() if value not in ("", None, False)}
        return {**fields, "success": self.success, "metrics": _counted(self.metrics)}


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
            return await self._run_process(item.agent_name, envelope, config)
        stage = msgspec.convert(config, AgentConfig)
        return await self._run_function(agent, envelope, stage)

    async def _run_function(self, agent: RegisteredAgent, envelope: Envelope, stage: AgentConfig) -> WorkResult:
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

    async def _run_process(self, name: str, envelope: Envelope, config: dict[str, Any]) -> WorkResult:
        run = await self._kernel.execute_agent(name, envelope, config)
        metrics = {metric: getattr(run, metric) for metric in (*SPENT, "duration_ms")}
        if run.success:
            return WorkResult(output=run.output, metrics=metrics)
        return WorkResult(success=False, error=run.error, error_code=run.error_code, metrics=metrics)

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
    """What a handler gave, as the fields of a response."""
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


def _counted(metrics: Mapping[str, Any]) -> dict[str, int]:
    return {name: int(amount) for name, amount in metrics.items() if name in {*SPENT, "duration_ms"}}
