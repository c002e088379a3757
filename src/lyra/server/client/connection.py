"""The connection of a client: the channel, who calls, deadlines, and calls that are repeated when it broke.

A call that may be repeated is tried again with a growing pause while the server cannot be reached, until `reconnect_s`
have passed; any other call fails at once, for it may have been carried out. A token is sent without TLS only to this
machine, or where `plaintext` says that a proxy does TLS.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from lyra.core.address import Address
from lyra.core.clock import RunningClock
from lyra.core.ids import Entropy
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

TlsChoice = bool | str | Mapping[str, str] | None
RECONNECT: Final = Backoff(initial_s=0.1, factor=2.0, max_s=2.0, jitter=0.3)
_PACKAGE: Final = "lyra.engine.v1"
_TLS_KEYS: Final = ("ca", "cert", "key")


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Where and as whom a client connects."""

    address: Address
    token: str = field(repr=False)
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
        if not self.tls and not self.plaintext and not self.address.is_loopback:
            raise ConfigError(
                f"{self.address} is another machine, and the token would travel as plain text",
                hint="give tls=True (or the file of its authority); plaintext=True behind a proxy that does TLS",
            )

    @classmethod
    def from_address(cls, address: str, *, token: str | None = None, **options: Any) -> Self:
        """Return the settings; without a token the variable LYRA_TOKEN or the user's own token file has it."""
        return cls(Address.parse(address), read_kept_token() if token is None else token, **options)


class ServerConnection:
    """See the module. Opened at the first call."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self.settings = settings
        self._channel: Any = None
        self._rng = Entropy()
        self._clock = RunningClock()

    def with_timeout(self, timeout_s: float | None) -> ServerConnection:
        """Return the channel with another deadline."""
        other = ServerConnection(replace(self.settings, timeout_s=timeout_s, long_timeout_s=timeout_s))
        other._channel = self._open()
        return other

    async def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
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

        method = self._open().unary_unary(f"/{_PACKAGE}.{rpc}", _bytes, response.FromString)
        timeout_s = self.settings.long_timeout_s if is_long else self.settings.timeout_s
        try:
            return await method(request, metadata=self._metadata(), timeout=timeout_s)
        except grpc.RpcError as failure:
            raise self._error(failure) from None

    async def stream(self, rpc: str, request: Any, response: Any) -> AsyncIterator[Any]:
        """Make a call whose answers come one by one."""
        import grpc

        method = self._open().unary_stream(f"/{_PACKAGE}.{rpc}", _bytes, response.FromString)
        call = method(request, metadata=self._metadata(), timeout=self.settings.long_timeout_s)
        try:
            async for answer in call:
                yield answer
        except grpc.RpcError as failure:
            raise self._error(failure) from None
        finally:
            call.cancel()

    def pause_s(self, attempt: int) -> float:
        """Return how long to wait before the next attempt to reach the server."""
        return RECONNECT.delay(attempt, lambda: self._rng.bits(30) / (1 << 30))

    def _error(self, failure: Any) -> LyraError:
        return error_of(failure, str(self.settings.address))

    def _metadata(self) -> list[tuple[str, str]]:
        settings = self.settings
        named = [("user_id", settings.user_id), ("session_id", settings.session_id)]
        headers = {"authorization": f"Bearer {settings.token}", **{key: value for key, value in named if value}}
        outgoing(headers)  # the trace that the caller is in
        return list(headers.items())

    def _open(self) -> Any:
        if self._channel is None:
            grpc = _grpc()
            options = [
                ("grpc.max_receive_message_length", CLIENT_MESSAGE_BYTES_MAX),
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.max_reconnect_backoff_ms", 2_000),
                ("grpc.keepalive_time_ms", 30_000),
                ("grpc.keepalive_timeout_ms", 10_000),
            ]
            target = str(self.settings.address)
            if self.settings.tls:
                self._channel = grpc.aio.secure_channel(target, _credentials(grpc, self.settings.tls), options)
            else:
                self._channel = grpc.aio.insecure_channel(target, options)
        return self._channel


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
