"""Calls between hosts: who answers, how errors travel, and gRPC as the way to carry them.

A call names a method and has plain data; its answer is plain data or a LyraError. `Answer` is what a host does with a
call, `Carrier` how calls reach another host: gRPC here, Ray's actor calls in `ray_hosts`, a function in tests. A call
is not durable and is made at most once; whatever must not be lost is a post (`lyra.kernel.remote`), which repeats
itself.

Every call has the cluster's secret, which stands in the directory: who can read that can read everything else too. The
calls are not encrypted; hosts belong in one private network.
"""

from __future__ import annotations

import asyncio
import hmac
import os
from collections.abc import Awaitable, Callable, Container
from typing import Any, Final, Protocol

from lyra.core import codec
from lyra.core.address import Address
from lyra.core.secrets.secret import Secret
from lyra.errors import (
    ConfigError,
    DeadlineExceeded,
    Denied,
    InternalError,
    LyraError,
    Unreachable,
    error_from_data,
    error_to_data,
)
from lyra.kernel.base.tasks import Tasks

SERVICE: Final = "lyra.cluster.v1.Peer"
_METHOD: Final = "Call"
_BYTES_MAX: Final = 256 * 1024 * 1024
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", _BYTES_MAX),
    ("grpc.max_send_message_length", _BYTES_MAX),
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 2_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)

Answer = Callable[[str, Any], Awaitable[Any]]  # method and data → answer


class CallsUnderWay:
    """Calls under way, by the address that they wait for: a host that is frozen or cut off answers none of them, and
    its shards are open elsewhere soon."""

    def __init__(self) -> None:
        self._tasks = Tasks()
        self._waiting: dict[str, set[asyncio.Task[Any]]] = {}
        self._given_up: set[asyncio.Task[Any]] = set()

    async def call(self, carrier: Carrier, address: str, method: str, data: Any, *, timeout_s: float) -> Any:
        """Call a host; Unreachable where the call is given up."""
        work = carrier.call(address, method, data, timeout_s=timeout_s)
        call = self._tasks.start(work, name=f"lyra-call {method} {address}")
        waiting = self._waiting.setdefault(address, set())
        waiting.add(call)
        try:
            return await call
        except asyncio.CancelledError:
            if call in self._given_up:
                raise Unreachable(f"host {address} did not answer while its shards moved to others") from None
            call.cancel()
            raise
        finally:
            self._given_up.discard(call)
            waiting.discard(call)
            if not waiting:
                self._waiting.pop(address, None)

    def give_up(self, alive: Container[str]) -> None:
        """Give up the calls to all hosts but those that are alive, by their addresses."""
        for address in [address for address in self._waiting if address not in alive]:
            for call in self._waiting[address]:
                self._given_up.add(call)
                call.cancel()

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    async def close(self) -> None:
        await self._tasks.close()


class Carrier(Protocol):
    async def call(self, address: str, method: str, data: Any, *, timeout_s: float) -> Any:
        """Call a host; raises the LyraError that it answered, or Unreachable."""
        ...

    async def close(self) -> None: ...


async def answer_encoded(answer: Answer, request: bytes) -> bytes:
    """Answer an encoded call with an encoded answer; every error is part of it."""
    try:
        method, data = codec.decode(request)
        return codec.encode({"value": await answer(method, data)})
    except LyraError as error:
        return codec.encode({"error": error_to_data(error)})
    except Exception as error:  # noqa: BLE001 - the caller is told; the host lives on
        unforeseen = InternalError(f"a peer failed in an unforeseen way: {type(error).__name__}: {error}")
        return codec.encode({"error": error_to_data(unforeseen)})


def read_answer(data: bytes) -> Any:
    """Return the value of an encoded answer, or raise its error."""
    told = codec.decode(data)
    if "error" in told:
        raise error_from_data(told["error"])
    return told["value"]


class GrpcCarrier:
    """Carries calls over gRPC, one channel a host."""

    def __init__(self, secret: Secret) -> None:
        self._grpc = _grpc()
        self._secret = secret
        self._channels: dict[str, Any] = {}

    async def call(self, address: str, method: str, data: Any, *, timeout_s: float) -> Any:
        channel = self._channels.get(address)
        if channel is None:
            target = address.rpartition("@")[2]  # a host of Ray's has its actor's name before it
            channel = self._channels[address] = self._grpc.aio.insecure_channel(target, options=_OPTIONS)
        call = channel.unary_unary(f"/{SERVICE}/{_METHOD}")
        metadata = (("authorization", f"Bearer {self._secret.reveal()}"),)
        try:
            told = await call(codec.encode([method, data]), timeout=timeout_s, metadata=metadata)
        except self._grpc.aio.AioRpcError as error:
            if error.code() == self._grpc.StatusCode.UNAUTHENTICATED:
                raise Denied(f"host {address} belongs to another cluster: it refuses this one's secret") from None
            if error.code() == self._grpc.StatusCode.DEADLINE_EXCEEDED:
                raise DeadlineExceeded(f"host {address} did not answer within {timeout_s:g} s") from None
            raise Unreachable(f"host {address} cannot be reached: {error.code().name.lower()}") from None
        return read_answer(told)

    async def close(self) -> None:
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()


def make_handler(answer: Answer, secret: Secret) -> Any:
    """Return the gRPC handler that answers the calls of other hosts; any gRPC server of asyncio can have it."""
    grpc = _grpc()

    async def call(request: bytes, context: Any) -> bytes:
        known = dict(context.invocation_metadata() or ()).get("authorization", "")
        if not hmac.compare_digest(str(known).encode(), f"Bearer {secret.reveal()}".encode()):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "not a host of this cluster")
        return await answer_encoded(answer, request)

    return grpc.method_handlers_generic_handler(SERVICE, {_METHOD: grpc.unary_unary_rpc_method_handler(call)})


class GrpcListener:
    """The port at which a host answers the others."""

    def __init__(self, listen: str, advertise: str | None = None) -> None:
        self._listen = Address.parse(listen)
        self._advertise = advertise
        self._server: Any = None
        self.address = ""  # that the others call

    async def start(self, answer: Answer, secret: Secret) -> None:
        # A second host on the same port is an error: it would get a share of the calls for this one.
        server = _grpc().aio.server(options=(*_OPTIONS, ("grpc.so_reuseport", 0)))
        server.add_generic_rpc_handlers((make_handler(answer, secret),))
        try:
            port = server.add_insecure_port(str(self._listen))
        except RuntimeError:
            port = 0
        if port == 0:
            raise ConfigError(f"cannot listen on {self._listen}", hint="is the port taken, or the address not here?")
        self.address = self._advertise or str(Address(self._listen.host, port))
        self._server = server
        await server.start()

    async def close(self, grace_s: float = 0.5) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop(grace_s)


def _grpc() -> Any:
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its own lines on stderr are no log of Lyra's
    try:
        import grpc
        import grpc.aio
    except ImportError as error:
        raise ConfigError("a cluster needs the server extra", hint="pip install 'lyra-agents[cluster]'") from error
    return grpc
