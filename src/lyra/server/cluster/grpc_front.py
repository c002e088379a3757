"""GrpcFront: the gRPC face of a host of a cluster. Each call goes to the services of the shard that it belongs to.

A process is named by its address; a bare pid that a client chose lives at its home. What begins without a name is
placed, lists are those of all shards. A worker serves all shards (`server.grpc.shared_work`). The message bus of
clients is that of one shard. The same port answers the calls of hosts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1.health import aio as health_aio

from lyra.core.address import Address
from lyra.core.clock import SystemClock
from lyra.core.ids import to_address
from lyra.errors import Conflict, LyraError, NoSuchProcess, Overloaded
from lyra.kernel.remote.part import home_of, split_address
from lyra.server.cluster.grpc_site import CallRefused
from lyra.server.cluster.sites import GRPC_CALL
from lyra.server.grpc.face import (
    SERVICES,
    behavior_of,
    handlers_of,
    listen_for_grpc,
    make_server,
    service_names,
    standard_handlers,
)
from lyra.server.grpc.guard import FINISHING, WAITING, CallGuard, Method, end_of
from lyra.server.grpc.shared_work import SharedWorkerCalls

if TYPE_CHECKING:
    from lyra.server.cluster.reach import Reach
    from lyra.server.settings import ServeSettings

_LOOK_S: Final = 0.02
_FLUSH_S: Final = 2.0
_PIDS: Final = frozenset({"pid", "process_id", "parent_pid", "child_pids"})

WORKERS: Final = "WorkerService"
# Of each RPC but those of workers: the field that says where it goes, or a word for those that no field leads.
ALL: Final = "(all)"  # merged
ANY: Final = "(any)"
FIND: Final = "(find)"  # asked of one after the other until one knows what is asked for
NEW: Final = "(new)"
BUS: Final = "(bus)"
PLACES: Final[dict[str, str]] = {
    "KernelService/CreateProcess": "pid",
    "KernelService/GetProcess": "pid",
    "KernelService/ScheduleProcess": "pid",
    "KernelService/GetNextRunnable": FIND,
    "KernelService/TransitionState": "pid",
    "KernelService/TerminateProcess": "pid",
    "KernelService/CheckQuota": "pid",
    "KernelService/RecordUsage": "pid",
    "KernelService/CheckRateLimit": ANY,
    "KernelService/ListProcesses": ALL,
    "KernelService/GetProcessCounts": ALL,
    "EngineService/CreateEnvelope": ANY,
    "EngineService/UpdateEnvelope": FIND,
    "EngineService/CheckBounds": ANY,
    "EngineService/ExecutePipeline": "thread_id",
    "EngineService/ExecuteAgent": NEW,
    "EngineService/CloneEnvelope": FIND,
    "OrchestrationService/InitializeSession": "process_id",
    "OrchestrationService/GetNextInstruction": "process_id",
    "OrchestrationService/ReportAgentResult": "process_id",
    "OrchestrationService/GetSessionState": "process_id",
    "CommBusService/Publish": BUS,
    "CommBusService/Send": BUS,
    "CommBusService/Query": BUS,
    "CommBusService/Subscribe": BUS,
    "SystemService/GetSystemStatus": ALL,
    "SystemService/GetRequestStatus": "pid",
    "SystemService/CreateInterrupt": "pid",
    "SystemService/ResolveInterrupt": "interrupt_id",
    "SystemService/CancelInterrupt": "interrupt_id",
    "SystemService/ListInterrupts": ALL,
    "SystemService/RegisterService": "service",
    "SystemService/UnregisterService": "name",
    "SystemService/UpdateServiceHealth": "name",
    "SystemService/ListServices": ALL,
    "SystemService/DispatchService": "pid",
}
# What a client names that is not there yet: it is made at its home, and looked for nowhere else.
_MADE: Final = frozenset(
    {
        "KernelService/CreateProcess",
        "EngineService/ExecutePipeline",
        "OrchestrationService/InitializeSession",
        "SystemService/RegisterService",
    }
)


class GrpcFront:
    """See the module. `peers` is the handler of the calls of hosts."""

    def __init__(self, reach: Reach, settings: ServeSettings, peers: Any) -> None:
        self._reach = reach
        self._settings = settings
        self._peers = peers
        self._clock = SystemClock()
        self._guard = CallGuard(settings.tokens, self._clock)  # of workers and reflection; else each shard has its own
        self._workers = SharedWorkerCalls(reach.host)
        self._health: Any = None
        self._server: Any = None
        self._in_flight = 0
        self._endless: set[asyncio.Task[Any]] = set()

    async def start(self) -> Address:
        """Listen; gives the address with the port that was chosen."""
        assert self._settings.grpc is not None
        self._server = server = make_server(self._settings)
        self._health = health_aio.HealthServicer()
        server.add_generic_rpc_handlers((self._peers,))
        for name in SERVICES:
            make = self._make_worker_behavior if name == WORKERS else self._make_behavior
            server.add_generic_rpc_handlers((handlers_of(name, make),))
        server.add_generic_rpc_handlers(standard_handlers(self._health, self._guard))
        port = listen_for_grpc(server, self._settings)
        await server.start()
        for name in service_names():
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        return Address(self._settings.grpc.host, port)

    async def drain(self) -> None:
        """Refuse what is new, tell health watchers, end subscriptions. A second call changes nothing."""
        if self._server is None or self._guard.draining:
            return
        self._guard.draining = True
        await self._health.enter_graceful_shutdown()
        for task in list(self._endless):
            task.cancel()

    async def wait_idle(self) -> None:
        """Wait until no call is in flight but those that only wait."""
        while self._in_flight:  # noqa: ASYNC110 - no event tells the last
            await asyncio.sleep(_LOOK_S)

    async def stop(self, drain_s: float) -> None:
        """Refuse what is new, let calls in flight finish within `drain_s`, close. A second call changes nothing."""
        await self.drain()
        server, self._server = self._server, None
        if server is None:
            return
        grace_s = _FLUSH_S
        try:
            async with asyncio.timeout(drain_s):
                await self.wait_idle()
        except TimeoutError:
            grace_s = 0.0
        self._workers.close()
        self._guard.stopped.set()
        await server.stop(grace_s)

    # ------------------------------------------------------------------ calls

    def _make_worker_behavior(self, method: Method, streams: bool) -> Any:
        """Return what answers a worker: this host asks the desks of all shards."""
        service: Any = self._workers
        return behavior_of(method, service, self._guard, streams=streams)

    def _make_behavior(self, method: Method, streams: bool) -> Any:
        async def stream(data: bytes, context: Any) -> AsyncIterator[bytes]:
            counts = method.name not in WAITING
            task = asyncio.current_task()
            self._in_flight += counts
            if not counts and task is not None:
                self._endless.add(task)
            try:
                async with aclosing(self._answer(method, data, context)) as messages:
                    async for message in messages:
                        yield message
            except CallRefused as refused:
                await context.abort(grpc.StatusCode[refused.code], refused.details, refused.metadata)
            except LyraError as error:
                await context.abort(*end_of(error, method.name))
            finally:
                self._in_flight -= counts
                if task is not None:
                    self._endless.discard(task)

        async def unary(data: bytes, context: Any) -> bytes:
            async with aclosing(stream(data, context)) as messages:  # type: ignore[type-var]  # it is a generator
                return await anext(messages)

        return stream if streams else unary

    async def _answer(self, method: Method, data: bytes, context: Any) -> AsyncGenerator[bytes, None]:
        """Yield the messages of an answer, from wherever the call belongs."""
        if self._guard.draining and method.name not in FINISHING:
            raise Overloaded("the server is stopping", hint="ask again: another host answers")
        await self._reach.until_placed()
        request = method.request.FromString(data)
        call = _Call(method, [list(pair) for pair in context.invocation_metadata()], context.peer())
        field = PLACES[method.name]
        if field == ALL:
            yield await self._merge(call, request)
        else:
            shards = self._find_shards(method.name, field, request)
            is_new = field == NEW or (method.name in _MADE and len(shards) > 1)
            data = request.SerializeToString()
            async with aclosing(self._read_first(call, shards, data, is_new=is_new)) as messages:
                async for message in messages:
                    yield message

    def _find_shards(self, rpc: str, field: str, request: Any) -> tuple[str, ...]:
        """Return the shards that are asked, one after the other. An address in the request becomes the bare pid."""
        names = self._reach.shards
        if field == ANY:
            return names[:1]
        if field == FIND:
            return names
        if field == BUS:
            return (home_of("bus", names),)
        named = "" if field == NEW else request.service.name if field == "service" else getattr(request, field)
        if not named:
            return names[:1] if rpc in _MADE and field != "thread_id" else self._reach.pick()
        shard, pid = split_address(named) if field in _PIDS or field == "thread_id" else ("", named)
        if shard:
            if shard not in names:
                raise NoSuchProcess(f"there is no shard {shard[:80]!r}", pid=named[:200])
            setattr(request, field, pid)
            return (shard,)
        home = home_of(named, names)
        return (home,) if rpc in _MADE else (home, *(name for name in names if name != home))

    async def _read_first(
        self, call: _Call, shards: tuple[str, ...], data: bytes, *, is_new: bool = False
    ) -> AsyncGenerator[bytes, None]:
        """Yield the answer of the first shard that knows what is asked for, or can take new work."""
        for shard in shards:
            has_begun, is_last = False, shard == shards[-1]
            try:
                wait_s = 0.0 if is_new and not is_last else None
                async with aclosing(self._read(call, shard, data, wait_s)) as messages:
                    async for message in messages:
                        has_begun = True
                        yield call.name_processes(shard, message)
            except CallRefused as refused:
                if has_begun or is_new or refused.code != "NOT_FOUND" or is_last:
                    raise
            except Overloaded as error:
                if has_begun or is_last or not is_new or "unsent" not in error.fields:
                    raise
            else:
                return

    async def _read(
        self, call: _Call, shard: str, data: bytes, wait_s: float | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Yield the messages of a shard's answer."""

        async def begin(address: str | None) -> AsyncGenerator[bytes, None]:
            if address is None:
                site = self._reach.sites.find_grpc(shard)
                if site is None:
                    raise Conflict(f"shard {shard} is open on no host at the moment", elsewhere=True, shard=shard)
                async with aclosing(site.read(call.method.name, data, call.metadata, call.peer)) as messages:
                    async for message in messages:
                        yield message
                return
            sent = {"shard": shard, "method": call.method.name, "data": data, "metadata": call.metadata}
            async with aclosing(self._reach.stream(address, GRPC_CALL, {**sent, "peer": call.peer})) as pieces:
                async for piece in pieces:
                    if not isinstance(piece, bytes):
                        raise CallRefused(*piece)
                    yield piece

        async with aclosing(self._reach.read_from(shard, begin, wait_s=wait_s)) as messages:
            async for message in messages:
                yield message

    # ------------------------------------------------------------------ calls of all shards

    async def _merge(self, call: _Call, request: Any) -> bytes:
        """Return the answers of all shards as one: lists together, numbers added. One that does not answer in time
        refuses the call, which the client repeats."""
        shards, pid = self._reach.shards, getattr(request, "pid", "")
        if pid:
            shards = self._find_shards(call.method.name, "pid", request)
        data = request.SerializeToString()

        async def ask(shard: str) -> Any:
            async with aclosing(self._read(call, shard, data)) as messages:
                return call.method.response.FromString(call.name_processes(shard, await anext(messages)))

        if pid:
            async with aclosing(self._read_first(call, shards, data)) as messages:
                return await anext(messages)
        answers = await asyncio.gather(*(ask(shard) for shard in shards))
        whole = answers[0]
        for answer in answers[1:]:
            add_message(whole, answer)
        return bytes(whole.SerializeToString())


class _Call:
    """What a call keeps on its way to shards."""

    __slots__ = ("metadata", "method", "peer")

    def __init__(self, method: Method, metadata: list[Any], peer: str) -> None:
        self.method = method
        self.metadata = metadata
        self.peer = peer

    def name_processes(self, shard: str, data: bytes) -> bytes:
        """Return a message of a shard with addresses in place of pids."""
        message = self.method.response.FromString(data)
        _name_in(message, shard)
        return bytes(message.SerializeToString())


def _name_in(message: Any, shard: str) -> None:
    for field, value in message.ListFields():
        if field.name in _PIDS:
            if isinstance(value, str):
                setattr(message, field.name, to_address(shard, value))
            else:
                value[:] = [to_address(shard, pid) for pid in value]
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for part in [value] if hasattr(value, "ListFields") else value:
                _name_in(part, shard)


def add_message(whole: Any, other: Any) -> None:
    """Add the numbers of a message to those of another, and put its rows behind those; a service is told once."""
    for field, value in other.ListFields():
        known = getattr(whole, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for key, amount in value.items():
                if hasattr(amount, "ListFields"):
                    add_message(known[key], amount)
                else:
                    known[key] += amount
        elif hasattr(value, "ListFields"):
            add_message(known, value)
        elif not isinstance(value, (int, float, str, bytes)):
            names = {row.name for row in known if hasattr(row, "service_type")}
            known.extend(row for row in value if getattr(row, "name", None) not in names)
        elif field.name == "uptime_seconds":
            whole.uptime_seconds = max(known, value)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            setattr(whole, field.name, known + value)
