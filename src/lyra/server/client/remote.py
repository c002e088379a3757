"""A kernel in another program: its methods over gRPC, with the kernel's values and errors.

    async with lyra.connect("127.0.0.1:8420", user_id="ada") as kernel:
        process = await kernel.submit("job-1")
        async for event in kernel.execute_pipeline(config, "the input"):
            print(event.type, event.stage)

Every row of `lyra.core.kernel_calls` that has an RPC is a method; all are awaited, and streams are iterated.
`within(seconds)` gives the same connection with another deadline. A `ServerConnection` is the channel with who calls;
it repeats calls when the channel broke.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from lyra.core.address import Address
from lyra.core.clock import RunningClock
from lyra.core.ids import Entropy
from lyra.core.kernel_calls import CALLS, KernelCall
from lyra.core.limits import CLIENT_MESSAGE_BYTES_MAX, CLIENT_RECONNECT_S, CLIENT_TIMEOUT_S
from lyra.core.policies.retry import Backoff
from lyra.core.trace_context import outgoing
from lyra.errors import (
    ConfigError,
    Corrupt,
    DeadlineExceeded,
    Denied,
    EffectFailed,
    InternalError,
    LimitExceeded,
    LyraError,
    NameTaken,
    NoSuchProcess,
    Overloaded,
    ProcessError,
    Unauthenticated,
    error_from_data,
)
from lyra.server.identity import read_kept_token

if TYPE_CHECKING:
    from lyra.core.envelope import BoundsResult, Envelope
    from lyra.kernel.interrupts.interrupt import Answer, Interrupt
    from lyra.kernel.services.service import ServiceInfo, ServiceRequest, ServiceResponse
    from lyra.kernel.workers.entry import ProcessControlBlock, ProcessCounts
    from lyra.kernel.workers.quota import QuotaResult, ResourceQuota, ResourceUsage
    from lyra.kernel.workers.rate_limits import RateLimitResult
    from lyra.server.client.wire import RemoteRecord

    Input = Envelope | Mapping[str, Any] | str  # a text is the envelope's raw input
    Quota = ResourceQuota | Mapping[str, Any]


TlsChoice = bool | str | Mapping[str, str] | None
RECONNECT: Final = Backoff(initial_s=0.1, factor=2.0, max_s=2.0, jitter=0.3)
_PACKAGE: Final = "lyra.engine.v1"
_TLS_KEYS: Final = ("ca", "cert", "key")


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Where and as whom a client connects."""

    address: Address
    token: str = field(repr=False)
    others: tuple[Address, ...] = ()  # hosts of the same cluster, called where the first cannot be reached
    user_id: str = ""
    session_id: str = ""
    tls: TlsChoice = None
    plaintext: bool = False
    timeout_s: float | None = CLIENT_TIMEOUT_S
    long_timeout_s: float | None = None  # of calls that run agents and pipelines, and of subscriptions
    reconnect_s: float = CLIENT_RECONNECT_S

    def __post_init__(self) -> None:
        if not self.token:
            raise ConfigError(
                f"no token for the server at {self.address}", hint="give token=…, or set the variable LYRA_TOKEN"
            )
        for address in (self.address, *self.others):
            if not self.tls and not self.plaintext and not address.is_loopback:
                raise ConfigError(
                    f"{address} is another machine, and the token would travel as plain text",
                    hint="give tls=True (or the file of its authority); plaintext=True behind a proxy that does TLS",
                )

    @classmethod
    def from_address(cls, address: str, *, token: str | None = None, **options: Any) -> Self:
        """Return the settings; without a token the variable LYRA_TOKEN or the user's own token file has it. Of several
        addresses with commas between, each is a host of one cluster."""
        first, *others = [Address.parse(word) for word in address.split(",")]
        return cls(first, read_kept_token() if token is None else token, tuple(others), **options)


class ServerConnection:
    """See the module. Opened at the first call."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self.settings = settings
        self._addresses = (settings.address, *settings.others)
        self._turn = 0  # of the addresses: the one that is called
        self._channels: dict[Address, Any] = {}
        self._rng = Entropy()
        self._clock = RunningClock()

    def with_timeout(self, timeout_s: float | None) -> ServerConnection:
        """Return the channel with another deadline."""
        other = ServerConnection(replace(self.settings, timeout_s=timeout_s, long_timeout_s=timeout_s))
        self._open()
        other._channels, other._turn = self._channels, self._turn
        return other

    async def close(self) -> None:
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

    async def call(
        self, rpc: str, request: Any, response: Any, *, may_repeat: bool = False, is_long: bool = False
    ) -> Any:
        """Make a call; gives its answer, raises its LyraError."""
        given_up_at = self._clock.monotonic() + self.settings.reconnect_s
        attempt = 0
        while True:
            try:
                return await self._call(rpc, request, response, is_long=is_long)
            except Overloaded:
                attempt += 1
                pause_s = self.pause_s(attempt)
                if not may_repeat or self._clock.monotonic() + pause_s >= given_up_at:
                    raise
                await asyncio.sleep(pause_s)

    async def _call(self, rpc: str, request: Any, response: Any, *, is_long: bool) -> Any:
        import grpc

        address, method = self._address, self._open().unary_unary(f"/{_PACKAGE}.{rpc}", _bytes, response.FromString)
        timeout_s = self.settings.long_timeout_s if is_long else self.settings.timeout_s
        try:
            return await method(request, metadata=self._metadata(), timeout=timeout_s)
        except grpc.RpcError as failure:
            raise self._error(failure, address) from None

    async def stream(self, rpc: str, request: Any, response: Any) -> AsyncIterator[Any]:
        """Make a call whose answers come one by one."""
        import grpc

        address, method = self._address, self._open().unary_stream(f"/{_PACKAGE}.{rpc}", _bytes, response.FromString)
        call = method(request, metadata=self._metadata(), timeout=self.settings.long_timeout_s)
        try:
            async for answer in call:
                yield answer
        except grpc.RpcError as failure:
            raise self._error(failure, address) from None
        finally:
            call.cancel()

    def pause_s(self, attempt: int) -> float:
        """Return how long to wait before the next attempt to reach the server."""
        return RECONNECT.delay(attempt, lambda: self._rng.bits(30) / (1 << 30))

    def _error(self, failure: Any, address: Address) -> LyraError:
        error = error_of(failure, str(address))
        if "address" in error.fields and address == self._address:  # it cannot be reached
            self._turn += 1
        return error

    @property
    def _address(self) -> Address:
        return self._addresses[self._turn % len(self._addresses)]

    def _metadata(self) -> list[tuple[str, str]]:
        settings = self.settings
        named = [("user_id", settings.user_id), ("session_id", settings.session_id)]
        headers = {"authorization": f"Bearer {settings.token}", **{key: value for key, value in named if value}}
        outgoing(headers)  # the trace that the caller is in
        return list(headers.items())

    def _open(self) -> Any:
        channel = self._channels.get(self._address)
        if channel is None:
            grpc = _grpc()
            options = [
                ("grpc.max_receive_message_length", CLIENT_MESSAGE_BYTES_MAX),
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.max_reconnect_backoff_ms", 2_000),
                ("grpc.keepalive_time_ms", 30_000),
                ("grpc.keepalive_timeout_ms", 10_000),
            ]
            target = str(self._address)
            if self.settings.tls:
                channel = grpc.aio.secure_channel(target, _credentials(grpc, self.settings.tls), options)
            else:
                channel = grpc.aio.insecure_channel(target, options)
            self._channels[self._address] = channel
        return channel


def _bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString())


def _grpc() -> Any:
    try:
        import grpc
        import grpc.aio
    except ImportError as error:
        raise ConfigError("a client needs the server extra", hint="pip install 'lyra-agents[server]'") from error
    return grpc


def _credentials(grpc: Any, tls: TlsChoice) -> Any:
    """True: the authorities of the system; a path: of that file; a mapping: files of `ca`, `cert` and `key`."""
    files: Mapping[str, str] = tls if isinstance(tls, Mapping) else {"ca": tls} if isinstance(tls, str) else {}
    unknown = [key for key in files if key not in _TLS_KEYS]
    if unknown:
        raise ConfigError(f"tls has no key {unknown[0]!r}", hint=f"one of {', '.join(_TLS_KEYS)}", key="tls")
    pem = {key: _read(path) for key, path in files.items()}
    return grpc.ssl_channel_credentials(pem.get("ca"), pem.get("key"), pem.get("cert"))


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", key="tls") from None


# How a call that failed is raised: the LyraError that the server raised, with its fields.

ERROR_KEY: Final = "lyra-error-bin"


_BY_STATUS: Final[dict[str, type[LyraError]]] = {
    "INVALID_ARGUMENT": ConfigError,
    "OUT_OF_RANGE": ConfigError,
    "UNIMPLEMENTED": ConfigError,
    "UNAUTHENTICATED": Unauthenticated,
    "PERMISSION_DENIED": Denied,
    "RESOURCE_EXHAUSTED": LimitExceeded,
    "DEADLINE_EXCEEDED": DeadlineExceeded,
    "NOT_FOUND": NoSuchProcess,
    "ALREADY_EXISTS": NameTaken,
    "FAILED_PRECONDITION": ProcessError,
    "ABORTED": EffectFailed,
    "DATA_LOSS": Corrupt,
}


def error_of(failure: Any, address: str) -> LyraError:
    """Return the LyraError of a failed call (an error of grpc)."""
    for key, value in failure.trailing_metadata() or ():
        if key == ERROR_KEY:
            try:
                return error_from_data(msgspec.json.decode(value, type=dict))
            except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError):
                return LyraError("the server's error could not be read")
    status = failure.code().name
    details = failure.details() or status
    if status == "UNAVAILABLE":
        return Overloaded(
            f"the server at {address} cannot be reached: {details}",
            hint="is `lyra serve` running there?",
            address=address,
        )
    return _BY_STATUS.get(status, InternalError)(f"the server at {address} answered {status}: {details}")


def connect(
    address: str,
    *,
    token: str | None = None,
    user_id: str | None = None,
    session_id: str | None = None,
    tls: TlsChoice = None,
    plaintext: bool = False,
    timeout_s: float | None = CLIENT_TIMEOUT_S,
    reconnect_s: float = CLIENT_RECONNECT_S,
) -> RemoteKernel:
    """Return a connection to the server at HOST:PORT; an async context manager.

    Without a token the variable LYRA_TOKEN or the user's own token file has it. `tls` is True for the authorities of
    the system, the file of one, or a mapping of files `ca`, `cert`, `key`. `timeout_s` bounds each call, `reconnect_s`
    how long a call that may be repeated waits for a server that cannot be reached.
    """
    return RemoteKernel(
        ServerConnection(
            ConnectionSettings.from_address(
                address,
                token=token,
                user_id=user_id or "",
                session_id=session_id or "",
                tls=tls,
                plaintext=plaintext,
                timeout_s=timeout_s,
                reconnect_s=reconnect_s,
            )
        )
    )


class RemoteKernel:
    """See the module."""

    def __init__(self, connection: ServerConnection) -> None:
        self.connection = connection

    async def __aenter__(self) -> RemoteKernel:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; calls in flight are cancelled."""
        await self.connection.close()

    def within(self, timeout_s: float | None) -> RemoteKernel:
        """Return the connection with a deadline for each call (None: no deadline)."""
        return RemoteKernel(self.connection.with_timeout(timeout_s))

    # The rows of CALLS as type checkers see them; a test compares names, parameters and values with the table. A
    # RemoteRecord stands where the contract has no value of the kernel's.
    if TYPE_CHECKING:

        async def submit(
            self,
            pid: str,
            request_id: str | None = None,
            user_id: str | None = None,
            session_id: str | None = None,
            priority: str | None = None,
            quota: Quota | None = None,
        ) -> ProcessControlBlock: ...
        async def get_process(self, pid: str) -> ProcessControlBlock: ...
        async def schedule(self, pid: str) -> ProcessControlBlock: ...
        async def get_next_runnable(self) -> ProcessControlBlock | None: ...
        async def transition_state(self, pid: str, state: str, reason: str | None = None) -> ProcessControlBlock: ...
        async def terminate(
            self, pid: str, reason: str | None = None, force: bool | None = None
        ) -> ProcessControlBlock: ...
        async def check_quota(self, pid: str) -> QuotaResult: ...
        async def record_usage(
            self,
            pid: str,
            llm_calls: int | None = None,
            tool_calls: int | None = None,
            agent_hops: int | None = None,
            tokens_in: int | None = None,
            tokens_out: int | None = None,
            inference_requests: int | None = None,
            inference_input_chars: int | None = None,
        ) -> ResourceUsage: ...
        async def check_rate_limit(
            self, user: str, endpoint: str | None = None, record: bool | None = None
        ) -> RateLimitResult: ...
        async def list_processes(
            self, state: str | None = None, user_id: str | None = None
        ) -> list[ProcessControlBlock]: ...
        async def get_process_counts(self) -> ProcessCounts: ...

        async def create_envelope(
            self,
            raw_input: str | None = None,
            user_id: str | None = None,
            session_id: str | None = None,
            request_id: str | None = None,
            metadata: Mapping[str, Any] | None = None,
            stage_order: Iterable[str] | None = None,
        ) -> Envelope: ...
        async def update_envelope(self, envelope: Envelope | Mapping[str, Any]) -> Envelope: ...
        async def clone_envelope(self, envelope: Envelope | Mapping[str, Any]) -> Envelope: ...
        async def check_bounds(self, envelope: Envelope | Mapping[str, Any]) -> BoundsResult: ...
        def execute_pipeline(
            self, config: Mapping[str, Any], envelope: Input | None = None, pid: str | None = None
        ) -> AsyncGenerator[RemoteRecord, None]: ...
        async def execute_agent(
            self, name: str, envelope: Input | None = None, config: Mapping[str, Any] | None = None
        ) -> RemoteRecord: ...

        async def initialize_orchestration(
            self, pid: str, config: Mapping[str, Any], envelope: Input | None = None, force: bool | None = None
        ) -> RemoteRecord: ...
        async def get_next_instruction(
            self, pid: str, worker: str | None = None, lease_s: float | None = None
        ) -> RemoteRecord: ...
        async def report_agent_result(self, pid: str, result: Mapping[str, Any]) -> RemoteRecord: ...
        async def get_orchestration_state(self, pid: str) -> RemoteRecord: ...

        async def publish(self, type: str, payload: Any = None) -> None: ...  # noqa: A002 (the kernel's word)
        async def send(self, type: str, payload: Any = None) -> None: ...  # noqa: A002 (the kernel's word)
        async def query(self, type: str, payload: Any = None, timeout_s: float | None = None) -> Any: ...  # noqa: A002 (the kernel's word)
        def subscribe(self, types: str | Iterable[str]) -> AsyncGenerator[RemoteRecord, None]: ...

        async def get_system_status(self) -> RemoteRecord: ...
        async def get_request_status(self, pid: str) -> RemoteRecord: ...
        async def create_interrupt(
            self,
            pid: str,
            kind: str,
            message: str | None = None,
            question: str | None = None,
            data: Any = None,
            ttl_s: float | None = None,
        ) -> Interrupt: ...
        async def resolve_interrupt(self, interrupt_id: str, response: Answer | Mapping[str, Any]) -> Interrupt: ...
        async def cancel_interrupt(self, interrupt_id: str, reason: str | None = None) -> Interrupt: ...
        async def list_interrupts(self, pid: str | None = None, status: str | None = None) -> list[Interrupt]: ...
        async def register_service(self, info: ServiceInfo | Mapping[str, Any]) -> ServiceInfo: ...
        async def unregister_service(self, name: str) -> ServiceInfo: ...
        async def update_health(self, name: str, status: str) -> ServiceInfo: ...
        async def list_services(self, service_type: str | None = None) -> list[ServiceInfo]: ...
        async def dispatch(
            self,
            service: str,
            request: ServiceRequest | Mapping[str, Any] | None = None,
            timeout_s: float | None = None,
            max_retries: int | None = None,
        ) -> ServiceResponse: ...


def _dispatch(fields: dict[str, Any]) -> dict[str, Any]:
    request = fields.pop("request", None)
    if request is None:
        return fields
    if not isinstance(request, Mapping):
        request = {name: getattr(request, name) for name in ("pid", "envelope", "metadata") if hasattr(request, name)}
    return {**fields, **{name: value for name, value in request.items() if value}}


def _report(fields: dict[str, Any]) -> dict[str, Any]:
    result = dict(fields.pop("result"))
    result.setdefault("success", not result.get("error"))
    return {**fields, **result}


# Calls whose fields are changed before they are sent.
_ARRANGED: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {
    "check_rate_limit": lambda fields: {"record": True, **fields},
    "check_bounds": lambda fields: fields["envelope"],
    "report_agent_result": _report,
    "query": lambda fields: {name: value * 1000 if name == "timeout_ms" else value for name, value in fields.items()},
    "dispatch": _dispatch,
}


def _value_in(call: KernelCall, answer: Any) -> Any:
    """Return the method's value in an answer; an answer that tells of a failure is raised."""
    if isinstance(answer, dict) and answer.get("success") is False and call.gives:
        raise EffectFailed(answer["error"] or f"{call.rpc} failed")
    if not call.gives:
        return answer
    return None if call.gives == "nothing" else answer[call.gives]


def _method(name: str, call: KernelCall) -> Callable[..., Any]:
    """Return the method of one row."""
    from lyra.server.client.wire import answer_class, message_of, request_class, value_of

    arrange = _ARRANGED.get(name)
    options = {"may_repeat": call.is_marked("repeats"), "is_long": call.is_marked("long")}

    def request_of(args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        """Return the request for these arguments; TypeError where they do not fit."""
        given = call.signature.bind(*args, **named).arguments
        fields = {call.fields[name]: value for name, value in given.items() if value is not None}
        return message_of(request_class(call.rpc).DESCRIPTOR, fields if arrange is None else arrange(fields))

    async def ask(self: RemoteKernel, *args: Any, **named: Any) -> Any:
        try:
            answer = await self.connection.call(call.rpc, request_of(args, named), answer_class(call.rpc), **options)
        except NoSuchProcess:
            if call.is_marked("maybe"):
                return None
            raise
        return _value_in(call, value_of(answer))

    async def read(self: RemoteKernel, *args: Any, **named: Any) -> AsyncIterator[Any]:
        async for answer in self.connection.stream(call.rpc, request_of(args, named), answer_class(call.rpc)):
            yield value_of(answer)

    method = read if call.is_marked("streams") else ask
    method.__name__ = name
    method.__qualname__ = f"RemoteKernel.{name}"
    method.__doc__ = f"`Kernel.{name}` over gRPC ({call.rpc})."
    return method


class _Lazy:
    """A method that is made at its first use: the messages are not imported before."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: RemoteKernel | None, owner: type[RemoteKernel]) -> Any:
        method = _method(self._name, CALLS[self._name])
        setattr(owner, self._name, method)
        return getattr(owner if instance is None else instance, self._name)


for _name, _call in CALLS.items():
    if _call.rpc:
        setattr(RemoteKernel, _name, _Lazy(_name))
