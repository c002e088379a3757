"""Calls between hosts: who answers, how errors travel, and gRPC as the way to carry them.

A call names a method and has plain data; its answer is plain data or a LyraError. `Answer` is what a host does with a
call, `Carrier` how calls reach another host: gRPC here, Ray's actor calls in `ray_hosts`, a function in tests. A call
is not durable and is made at most once; whatever must not be lost is a post (`lyra.kernel.remote`), which repeats
itself. A call whose answer comes in pieces (`AnswerStream`) always goes over gRPC; it ends when its caller leaves.

Every call has the cluster's secret, which stands in the directory: who can read that can read everything else too. With
`PeerTls` hosts and clients prove to each other that one authority has signed them both; without it the calls are not
encrypted, and hosts belong in one private network.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Container, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, Protocol

from lyra.core import codec
from lyra.core.address import Address
from lyra.core.secrets.secret import Secret
from lyra.errors import (
    ConfigError,
    DeadlineExceeded,
    Denied,
    InternalError,
    LyraError,
    Overloaded,
    Unreachable,
    error_from_data,
    error_to_data,
)
from lyra.kernel.base.tasks import Tasks

if TYPE_CHECKING:
    from lyra.config import Config

SERVICE: Final = "lyra.cluster.v1.Peer"
_METHOD: Final = "Call"
_STREAM: Final = "Stream"
_CONNECT_S: Final = 3.0  # until a host without a connection counts as unreachable
_BYTES_MAX: Final = 256 * 1024 * 1024
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", _BYTES_MAX),
    ("grpc.max_send_message_length", _BYTES_MAX),
    # A peer that is frozen, or cut off, is noticed after six seconds at the latest.
    ("grpc.keepalive_time_ms", 3_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.ping_timeout_ms", 3_000),  # the one above does not reach pings: theirs is a minute
    ("grpc.http2.max_pings_without_data", 0),  # else none is sent after two, while a call waits for its answer
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 2_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.min_reconnect_backoff_ms", 3_000),  # this is how long a connection may take to be made
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)

TLS: Final = "tls@"  # before the address of a host that takes calls over TLS only
_TLS_HINT: Final = (
    "one authority signs the certificates of all hosts and clients, each for the name that it is called by"
)
_UNPROVEN: Final = (
    "does not prove itself: the authority of cluster.tls_ca has not signed its certificate for that address"
)
_TLS_PROBLEMS: Final = (  # by the words of gRPC, which has no code for them
    ("WRONG_VERSION_NUMBER", "does not take calls over TLS"),
    ("handshake failed", _UNPROVEN),
    ("verification check failed", _UNPROVEN),
    ("Socket closed", "ended the connection: it may know no authority that has signed this certificate"),
)

Answer = Callable[[str, Any], Awaitable[Any]]  # method and data → answer
AnswerStream = Callable[[str, Any], AsyncGenerator[Any, None]]  # method and data → answer in pieces


class PeerTls(NamedTuple):
    """What a host or a client proves itself with, and knows the others by, as PEM: its certificate chain, the key of
    that, and the authority that has signed all of theirs."""

    cert: bytes
    key: bytes
    ca: bytes

    @classmethod
    def read(cls, cert: str | None = None, key: str | None = None, ca: str | None = None) -> PeerTls | None:
        """Read the files; None where none is named."""
        files = {"tls_cert": cert, "tls_key": key, "tls_ca": ca}
        missing = [name for name, file in files.items() if file is None]
        if len(missing) == len(files):
            return None
        if cert is None or key is None or ca is None:
            raise ConfigError(
                "TLS between hosts needs a certificate, its key and the authority of all hosts",
                hint=f"set cluster.{missing[0]}, too",
                key=f"cluster.{missing[0]}",
            )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:  # gRPC would take files that serve no connection
            context.load_cert_chain(cert, key, password=lambda: "")
            context.load_verify_locations(ca)
            return cls(*[Path(file).read_bytes() for file in (cert, key, ca)])
        except OSError as error:  # an SSLError is one
            reason = error.strerror if not isinstance(error, ssl.SSLError) else error.reason or str(error)
            names = ", ".join(files)
            raise ConfigError(
                f"the files of cluster.{names} cannot be used: {reason}", key="cluster.tls_cert"
            ) from None

    @classmethod
    def from_config(cls, config: Config) -> PeerTls | None:
        """Read the files of the settings."""
        settings = config.cluster
        return cls.read(settings.tls_cert, settings.tls_key, settings.tls_ca)

    @classmethod
    def load(cls, files: PeerTls | Mapping[str, str] | None) -> PeerTls | None:
        """Return what a caller names: files by `cert`, `key` and `ca`."""
        return files if files is None or isinstance(files, PeerTls) else cls.read(**files)


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

    def forget(self, alive: Container[str]) -> None:
        """Drop what is kept for all hosts but those that are alive, by their addresses."""
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

    def __init__(self, secret: Secret, tls: PeerTls | None = None) -> None:
        self._grpc = grpc = _grpc()
        self._secret = secret
        self._credentials = None if tls is None else grpc.ssl_channel_credentials(tls.ca, tls.key, tls.cert)
        self._channels: dict[str, Any] = {}
        self._closing = Tasks()

    async def call(self, address: str, method: str, data: Any, *, timeout_s: float) -> Any:
        call = self.open_channel(address).unary_unary(f"/{SERVICE}/{_METHOD}")
        try:
            told = await call(codec.encode([method, data]), timeout=timeout_s, metadata=self.metadata)
        except self._grpc.aio.AioRpcError as error:
            raise self.explain(error, address, timeout_s) from None
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            raise Unreachable(f"host {address} is no part of the cluster any more") from None  # `forget`
        return read_answer(told)

    async def stream(self, address: str, method: str, data: Any) -> AsyncGenerator[Any, None]:
        """Yield the pieces of an answer. Unreachable has the field `unsent` where the host cannot have got the call."""
        await self._connect(address)
        call = self.open_channel(address).unary_stream(f"/{SERVICE}/{_STREAM}")
        pieces = call(codec.encode([method, data]), metadata=self.metadata)
        try:
            async for piece in pieces:
                yield read_answer(piece)
        except self._grpc.aio.AioRpcError as error:
            raise self.explain(error, address, _CONNECT_S) from None
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            raise Unreachable(f"host {address} is no part of the cluster any more") from None  # `forget`
        finally:
            pieces.cancel()

    async def _connect(self, address: str) -> None:
        """Return when there is a connection to a host."""
        channel, state = self.open_channel(address), self._grpc.ChannelConnectivity
        try:
            async with asyncio.timeout(_CONNECT_S):
                while (now := channel.get_state(try_to_connect=True)) is not state.READY:
                    if now in (state.TRANSIENT_FAILURE, state.SHUTDOWN):
                        break
                    await channel.wait_for_state_change(now)
                else:
                    return
        except TimeoutError:
            pass
        raise Unreachable(f"host {address} cannot be reached: there is no connection", unsent=True)

    def open_channel(self, address: str) -> Any:
        """Return the channel to a host, which is made at its first call."""
        channel = self._channels.get(address)
        if channel is None:
            if address.startswith(TLS) and self._credentials is None:
                raise Unreachable(
                    f"host {address} takes calls over TLS only", hint="set cluster.tls_cert, tls_key and tls_ca"
                )
            target = address.rpartition("@")[2]  # a host of Ray's has its actor's name before it
            aio, credentials = self._grpc.aio, self._credentials
            channel = self._channels[address] = (
                aio.insecure_channel(target, options=_OPTIONS)
                if credentials is None
                else aio.secure_channel(target, credentials, options=_OPTIONS)
            )
        return channel

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return what each call says of its caller."""
        return (("authorization", f"Bearer {self._secret.reveal()}"),)

    def explain(self, error: Any, address: str, timeout_s: float) -> LyraError:
        """Return the error of a call that a host has not answered."""
        code, told = error.code(), str(error.details())
        if code == self._grpc.StatusCode.UNAUTHENTICATED:
            return Denied(f"host {address} belongs to another cluster: it refuses this one's secret")
        if code == self._grpc.StatusCode.DEADLINE_EXCEEDED:
            return DeadlineExceeded(f"host {address} did not answer within {timeout_s:g} s")
        if self._credentials is not None:
            problem = next((problem for words, problem in _TLS_PROBLEMS if words in told), "")
            if problem:
                return Unreachable(f"host {address} {problem}", hint=_TLS_HINT)
        return Unreachable(f"host {address} cannot be reached: {code.name.lower()}")

    def forget(self, alive: Container[str]) -> None:
        """Drop the channels to all hosts but those that are alive, by their addresses."""
        for address in [address for address in self._channels if address not in alive]:
            self._closing.start(self._channels.pop(address).close(), name=f"lyra-channel {address}")

    async def close(self) -> None:
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()
        await self._closing.close()


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
    raise Overloaded(
        f"the host that has the shard serves no requests ({method})", hint="start it with `lyra serve --cluster`"
    )


class GrpcListener:
    """The port at which a host answers the others."""

    def __init__(self, listen: str, advertise: str | None = None, tls: PeerTls | None = None) -> None:
        self._listen = Address.parse(listen)
        self._advertise = advertise
        self._tls = tls
        self._server: Any = None
        self.address = ""  # that the others call

    async def start(self, answer: Answer, secret: Secret, stream: AnswerStream | None = None) -> None:
        # A second host on the same port is an error: it would get a share of the calls for this one.
        grpc, tls, listen = _grpc(), self._tls, str(self._listen)
        server = grpc.aio.server(options=(*_OPTIONS, ("grpc.so_reuseport", 0)))
        server.add_generic_rpc_handlers((make_handler(answer, secret, stream),))
        try:
            if tls is None:
                port = server.add_insecure_port(listen)
            else:
                proof = grpc.ssl_server_credentials([(tls.key, tls.cert)], tls.ca, require_client_auth=True)
                port = server.add_secure_port(listen, proof)
        except RuntimeError:
            port = 0
        if port == 0:
            raise ConfigError(f"cannot listen on {self._listen}", hint="is the port taken, or the address not here?")
        self.address = ("" if tls is None else TLS) + (self._advertise or str(Address(self._listen.host, port)))
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
