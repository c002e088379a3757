"""The gRPC server over one kernel: it listens, holds its limits and drains.

Health and reflection, under both of its names, are on. `Health.Check` takes no token, as load balancers have none; all
else needs one: a watch and reflection hold a stream open, or tell what there is. A watch sees NOT_SERVING while the
server drains, and ends with it.

A connection that sends nothing, a peer that is gone and one that reads nothing are dropped by the limits of `_options`.
Stopping refuses new work at once, tells health watchers, ends subscriptions, and waits for the calls in flight.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from lyra.core.address import Address
from lyra.core.limits import (
    SERVER_CALLS_MAX,
    SERVER_GRPC_IDLE_S,
    SERVER_HANDSHAKE_S,
    SERVER_KEEPALIVE_S,
    SERVER_METADATA_BYTES_MAX,
    SERVER_PING_INTERVAL_S,
    SERVER_STREAMS_MAX,
)
from lyra.errors import ConfigError, LyraError
from lyra.server.identity import Caller

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # gRPC's own lines on stderr are no log of Lyra's; errors are raised

try:
    import grpc
    import grpc.aio
    from google.protobuf.message_factory import GetMessageClass
    from grpc_health.v1 import health_pb2
    from grpc_health.v1.health import SERVICE_NAME as HEALTH_SERVICE
    from grpc_health.v1.health import aio as health_aio
    from grpc_reflection.v1alpha import reflection, reflection_pb2
except ImportError as error:
    raise ConfigError("the gRPC server needs the server extra", hint="pip install 'lyra-agents[server]'") from error

from lyra.server.generated import engine_pb2 as pb
from lyra.server.grpc.guard import CallGuard, Method, Observe, end_of
from lyra.server.grpc.services import (
    BusCalls,
    EngineCalls,
    OrchestrationCalls,
    ServiceCalls,
    SystemCalls,
    WorkerCalls,
)
from lyra.server.identity import record_act
from lyra.server.token_limit import TokenLimit

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.server.settings import ServeSettings


PACKAGE: Final = pb.DESCRIPTOR.package
_REFLECTION: Final = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")
SERVICES: Final[Mapping[str, Any]] = {
    "KernelService": ServiceCalls,
    "EngineService": EngineCalls,
    "OrchestrationService": OrchestrationCalls,
    "CommBusService": BusCalls,
    "SystemService": SystemCalls,
    "WorkerService": WorkerCalls,
}
_SECOND_MS: Final = 1000
_FLUSH_S: Final = 2.0  # for the last answers to reach their clients, at most


class GrpcFace:
    """See the module. `observe` is told of each call: method, status code, seconds."""

    def __init__(
        self,
        kernel: Kernel,
        settings: ServeSettings,
        *,
        observe: Observe | None = None,
    ) -> None:
        self._kernel = kernel
        self._settings = settings
        self._guard = CallGuard(
            settings.tokens,
            kernel.clock,
            token_limit=TokenLimit.get_shared(kernel),
            observe=observe,
            tell_act=self._tell_act,
        )
        self._services: dict[str, Any] = {}
        self._health: Any = None
        self._server: Any = None

    async def _tell_act(self, caller: Caller, method: str, target: dict[str, str], outcome: str) -> None:
        record_act(self._kernel, caller, method, target, outcome)
        await self._kernel.durable()

    async def start(self) -> Address:
        """Listen; gives the address with the port that was chosen."""
        wanted = self._settings.grpc
        assert wanted is not None
        self._server = make_server(self._settings)
        self._health = health_aio.HealthServicer()
        self._services = {name: make(self._kernel) for name, make in SERVICES.items()}
        for name, service in self._services.items():

            def make(method: Method, streams: bool, service: ServiceCalls = service) -> Any:
                return behavior_of(method, service, self._guard, streams=streams)

            self._server.add_generic_rpc_handlers((handlers_of(name, make),))
        self._server.add_generic_rpc_handlers(standard_handlers(self._health, self._guard))
        port = listen_for_grpc(self._server, self._settings)
        await self._server.start()
        for name in service_names():
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        return Address(wanted.host, port)

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
            grace_s = 0.0  # what has not ended by now is cut off; durable work continues when the store is opened again
        for service in self._services.values():
            if hasattr(service, "close"):
                service.close()  # claims that wait end now
        self._guard.stopped.set()
        await server.stop(grace_s)

    async def drain(self) -> None:
        """Refuse what is new, tell health watchers, end subscriptions. A second call changes nothing."""
        if self._server is None or self._guard.draining:
            return
        self._guard.draining = True
        await self._health.enter_graceful_shutdown()
        for service in self._services.values():
            if hasattr(service, "drain"):
                await service.drain()  # subscriptions end now

    async def wait_idle(self) -> None:
        """Wait until no call is in flight but those that only wait, and what workers hold is delivered."""
        await self._guard.wait_idle()
        for service in self._services.values():
            if hasattr(service, "wait_idle"):
                await service.wait_idle()


def make_server(settings: ServeSettings) -> Any:
    return grpc.aio.server(options=_options(settings), maximum_concurrent_rpcs=SERVER_CALLS_MAX)


def listen_for_grpc(server: Any, settings: ServeSettings) -> int:
    """Have a gRPC server listen as the settings say; gives the port."""
    wanted, tls = settings.grpc, settings.tls
    try:
        if tls is None:
            return int(server.add_insecure_port(str(wanted)))
        return int(server.add_secure_port(str(wanted), _credentials(*tls.read())))
    except RuntimeError:
        hint = "is another server there? port 0 chooses a free one"
        if tls is not None:
            hint += "; are the TLS files PEM, and do the certificate and its key belong together?"
        raise ConfigError(f"cannot listen for gRPC on {wanted}", hint=hint) from None


def _options(settings: ServeSettings) -> list[tuple[str, int]]:
    """Return the limits of connections, streams and messages, as channel arguments of gRPC."""
    return [
        ("grpc.so_reuseport", 0),  # a second server on the same port is an error, not a share of the calls
        ("grpc.max_receive_message_length", settings.message_bytes_max),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", SERVER_METADATA_BYTES_MAX),
        ("grpc.absolute_max_metadata_size", SERVER_METADATA_BYTES_MAX),
        ("grpc.max_allowed_incoming_connections", settings.connections_max),
        ("grpc.max_concurrent_streams", SERVER_STREAMS_MAX),
        ("grpc.server_handshake_timeout_ms", int(SERVER_HANDSHAKE_S * _SECOND_MS)),
        ("grpc.max_connection_idle_ms", int(SERVER_GRPC_IDLE_S * _SECOND_MS)),
        ("grpc.keepalive_time_ms", int(SERVER_KEEPALIVE_S * _SECOND_MS)),
        ("grpc.keepalive_timeout_ms", int(SERVER_HANDSHAKE_S * _SECOND_MS)),
        ("grpc.http2.ping_timeout_ms", int(SERVER_HANDSHAKE_S * _SECOND_MS)),  # the one above does not reach pings
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", int(SERVER_PING_INTERVAL_S * _SECOND_MS)),
        ("grpc.http2.max_ping_strikes", 2),
    ]


def _credentials(cert: bytes, key: bytes, client_ca: bytes | None) -> Any:
    if client_ca is not None and not client_ca.strip():
        raise ConfigError("the file of client authorities is empty", hint="see [server] tls_client_ca")
    return grpc.ssl_server_credentials(
        ((key, cert),), root_certificates=client_ca, require_client_auth=client_ca is not None
    )


# ---------------------------------------------------------------- handlers
# An RPC is the method of its service's class in snake case, else it is made by the table of calls. One that has neither
# is an error when the server starts, not when it is called.


def service_names() -> list[str]:
    """Return the full names of the services that are served."""
    return [f"{PACKAGE}.{name}" for name in SERVICES]


def methods_of(name: str) -> list[tuple[Method, bool]]:
    """Return the RPCs of a service, and whether each answers with a stream."""
    return [
        (
            Method(f"{name}/{rpc.name}", GetMessageClass(rpc.input_type), GetMessageClass(rpc.output_type)),
            bool(rpc.server_streaming),
        )
        for rpc in pb.DESCRIPTOR.services_by_name[name].methods
    ]


def behavior_of(method: Method, service: ServiceCalls, guard: CallGuard, *, streams: bool) -> Any:
    """Return what answers an RPC: from the bytes of a request and the context of the call."""
    rpc = method.name.partition("/")[2]
    own_name = re.sub(r"(?<!^)(?=[A-Z])", "_", rpc).lower()  # CheckQuota is check_quota
    call: Any = getattr(service, own_name, None) or service.by_table(method.name)
    return guard.stream(method, call) if streams else guard.unary(method, call)


def handlers_of(name: str, make: Callable[[Method, bool], Any]) -> grpc.GenericRpcHandler:
    """Return the handlers of one service; `make` gives what answers an RPC."""
    handlers: dict[str, Any] = {}
    for method, streams in methods_of(name):
        to_handler = grpc.unary_stream_rpc_method_handler if streams else grpc.unary_unary_rpc_method_handler
        handlers[method.name.partition("/")[2]] = to_handler(make(method, streams))
    return grpc.method_handlers_generic_handler(f"{PACKAGE}.{name}", handlers)


def standard_handlers(servicer: Any, guard: CallGuard) -> tuple[grpc.GenericRpcHandler, ...]:
    """Return the handlers of health and reflection."""
    names = [*service_names(), HEALTH_SERVICE]
    return (health_handlers(servicer, guard), *reflection_handlers(names, guard))


def health_handlers(servicer: Any, guard: CallGuard) -> grpc.GenericRpcHandler:
    async def watch(request: Any, context: Any) -> None:
        await _require_token(guard, context)
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(servicer.Watch(request, context))
            await guard.stopped.wait()
            watching.cancel()

    serving = {
        "Check": grpc.unary_unary_rpc_method_handler(
            servicer.Check, health_pb2.HealthCheckRequest.FromString, health_pb2.HealthCheckResponse.SerializeToString
        ),
        "Watch": grpc.unary_stream_rpc_method_handler(
            watch, health_pb2.HealthCheckRequest.FromString, health_pb2.HealthCheckResponse.SerializeToString
        ),
    }
    return grpc.method_handlers_generic_handler(HEALTH_SERVICE, serving)


def reflection_handlers(names: Sequence[str], guard: CallGuard) -> list[grpc.GenericRpcHandler]:
    """Return the handlers of reflection: version 1 has the messages of its alpha, under another name."""
    servicer = reflection.aio.ReflectionServicer((*names, *_REFLECTION))

    async def info(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        await _require_token(guard, context)
        async for response in servicer.ServerReflectionInfo(requests, context):
            yield response

    handler = grpc.stream_stream_rpc_method_handler(
        info,
        reflection_pb2.ServerReflectionRequest.FromString,
        reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return [grpc.method_handlers_generic_handler(name, {"ServerReflectionInfo": handler}) for name in _REFLECTION]


async def _require_token(guard: CallGuard, context: Any) -> None:
    try:
        guard.caller(context)
    except LyraError as error:
        ended = end_of(error, "token")
        await context.abort(ended.code, ended.details, ended.metadata)
