"""Calls between hosts: who answers, how errors travel, and gRPC as the way to carry them.

A call names a method and has plain data; its answer is plain data or a LyraError. `Answer` is what a host does with a
call, `Carrier` how calls reach another host: gRPC here, Ray's actor calls in `ray_hosts`, a function in tests. A call
is not durable and is made at most once; whatever must not be lost is a post (`lyra.kernel.remote`), which repeats
itself. A call whose answer comes in pieces (`AnswerStream`) always goes over gRPC; it ends when its caller leaves.

Every call has the cluster's secret, which stands in the directory: who can read that can read everything else too. The
calls are not encrypted; hosts belong in one private network.
"""

from __future__ import annotations

import asyncio
import hmac
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Container
from contextlib import aclosing
from typing import Any, Final, NoReturn, Protocol

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
_STREAM: Final = "Stream"
_CONNECT_S: Final = 3.0  # until a host without a connection counts as unreachable
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
AnswerStream = Callable[[str, Any], AsyncGenerator[Any, None]]  # method and data → answer in pieces


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


async def stream_encoded(answer: AnswerStream, request: bytes) -> AsyncIterator[bytes]:
    """Yield the encoded pieces of an answer; an error is the last of them."""
    try:
        method, data = codec.decode(request)
        async with aclosing(answer(method, data)) as pieces:
            async for piece in pieces:
                yield codec.encode({"value": piece})
    except LyraError as error:
        yield codec.encode({"error": error_to_data(error)})
    except Exception as error:  # noqa: BLE001 - the caller is told; the host lives on
        unforeseen = InternalError(f"a peer failed in an unforeseen way: {type(error).__name__}: {error}")
        yield codec.encode({"error": error_to_data(unforeseen)})


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
        call = self._channel(address).unary_unary(f"/{SERVICE}/{_METHOD}")
        try:
            told = await call(codec.encode([method, data]), timeout=timeout_s, metadata=self._metadata())
        except self._grpc.aio.AioRpcError as error:
            if error.code() == self._grpc.StatusCode.DEADLINE_EXCEEDED:
                raise DeadlineExceeded(f"host {address} did not answer within {timeout_s:g} s") from None
            raise self._refusal(address, error) from None
        return read_answer(told)

    async def stream(self, address: str, method: str, data: Any) -> AsyncGenerator[Any, None]:
        """Yield the pieces of an answer. Unreachable has the field `unsent` where the host cannot have got the call."""
        await self._connect(address)
        call = self._channel(address).unary_stream(f"/{SERVICE}/{_STREAM}")
        pieces = call(codec.encode([method, data]), metadata=self._metadata())
        try:
            async for piece in pieces:
                yield read_answer(piece)
        except self._grpc.aio.AioRpcError as error:
            raise self._refusal(address, error) from None
        finally:
            pieces.cancel()

    async def _connect(self, address: str) -> None:
        """Return when there is a connection to a host."""
        channel, state = self._channel(address), self._grpc.ChannelConnectivity
        try:
            async with asyncio.timeout(_CONNECT_S):
                while (now := channel.get_state(try_to_connect=True)) is not state.READY:
                    if now is state.TRANSIENT_FAILURE:
                        break
                    await channel.wait_for_state_change(now)
                else:
                    return
        except TimeoutError:
            pass
        raise Unreachable(f"host {address} cannot be reached: there is no connection", unsent=True)

    def _channel(self, address: str) -> Any:
        channel = self._channels.get(address)
        if channel is None:
            target = address.rpartition("@")[2]  # a host of Ray's has its actor's name before it
            channel = self._channels[address] = self._grpc.aio.insecure_channel(target, options=_OPTIONS)
        return channel

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self._secret.reveal()}"),)

    def _refusal(self, address: str, error: Any) -> LyraError:
        """Return what an error of gRPC means for the caller."""
        if error.code() == self._grpc.StatusCode.UNAUTHENTICATED:
            return Denied(f"host {address} belongs to another cluster: it refuses this one's secret")
        return Unreachable(f"host {address} cannot be reached: {error.code().name.lower()}")

    async def close(self) -> None:
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()


def make_handler(answer: Answer, secret: Secret, stream: AnswerStream | None = None) -> Any:
    """Return the gRPC handler that answers the calls of other hosts; any gRPC server of asyncio can have it."""
    grpc = _grpc()

    async def check(context: Any) -> None:
        known = dict(context.invocation_metadata() or ()).get("authorization", "")
        if not hmac.compare_digest(str(known).encode(), f"Bearer {secret.reveal()}".encode()):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "not a host of this cluster")

    async def call(request: bytes, context: Any) -> bytes:
        await check(context)
        return await answer_encoded(answer, request)

    async def call_stream(request: bytes, context: Any) -> AsyncIterator[bytes]:
        await check(context)
        async for piece in stream_encoded(stream or refuse_stream, request):
            yield piece

    handlers = {
        _METHOD: grpc.unary_unary_rpc_method_handler(call),
        _STREAM: grpc.unary_stream_rpc_method_handler(call_stream),
    }
    return grpc.method_handlers_generic_handler(SERVICE, handlers)


def refuse_stream(method: str, _data: Any) -> NoReturn:
    """Refuse a call whose answer comes in pieces: this host has no such answers."""
    raise ConfigError(f"this host does not know the call {method!r}", hint="is it one of `lyra serve --cluster`?")


class GrpcListener:
    """The port at which a host answers the others."""

    def __init__(self, listen: str, advertise: str | None = None) -> None:
        self._listen = Address.parse(listen)
        self._advertise = advertise
        self._server: Any = None
        self.address = ""  # that the others call

    async def start(self, answer: Answer, secret: Secret, stream: AnswerStream | None = None) -> None:
        # A second host on the same port is an error: it would get a share of the calls for this one.
        server = _grpc().aio.server(options=(*_OPTIONS, ("grpc.so_reuseport", 0)))
        server.add_generic_rpc_handlers((make_handler(answer, secret, stream),))
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
