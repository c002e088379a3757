"""The one place around every call: its message is read, its token checked, its end given a status and counted.

A handler gets the parsed request and the `Caller`, gives a message (or, for a stream, an async iterator of them), and
raises LyraErrors. Its work belongs to the trace that the metadata `traceparent` names. A call that is cancelled, or
whose deadline passes, cancels its handler, and with it the kernel work that the handler waits for; durable processes go
on. While the server drains, calls that begin something are refused and those that finish something are taken
(`FINISHING`).
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import grpc
import msgspec
from google.protobuf.message import DecodeError, Message

from lyra.core.clock import Clock
from lyra.core.kernel_calls import RPCS, list_marked
from lyra.core.secrets.process_keys import process_keys
from lyra.core.secrets.redact import redact, redact_data
from lyra.core.secrets.visible import visible
from lyra.errors import CODES, ConfigError, LyraError, Overloaded, error_to_data
from lyra.observe.otel.requests import grpc_span
from lyra.server.identity import Caller, TokenTable, bearer_token, outcome_of
from lyra.server.token_limit import TokenLimit

Metadata = Sequence[tuple[str, str | bytes]]
UnaryCall = Callable[[Any, Caller], Awaitable[Message]]
StreamCall = Callable[[Any, Caller], AsyncGenerator[Message, None]]
Observe = Callable[[str, str, float], Any]  # method, status code, seconds
TellAct = Callable[[Caller, str, dict[str, str], str], Awaitable[None]]  # who, method, target, outcome

# Codes that the convention for spans of servers counts as errors; others are the client's.
SERVER_FAULTS: Final = frozenset(
    {"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
)

FINISHING: Final = list_marked("finishes")  # taken while the server drains
READING: Final = list_marked("reads")  # all that a viewer may make
WAITING: Final = list_marked("waits")  # draining does not wait for them
# Calls by which people act, with the field that names the target: the audit log has them, also where they are refused.
# The others are the work of programs.
ACTS: Final = {rpc: call.acts_on for rpc, (_, call) in RPCS.items() if call.acts_on}


class Method(NamedTuple):
    """One RPC of the contract."""

    name: str  # KernelService/GetProcess
    request: type[Message]
    response: type[Message]


class CallGuard:
    """Wraps handlers; knows the calls in flight."""

    def __init__(
        self,
        tokens: TokenTable,
        clock: Clock,
        *,
        token_limit: TokenLimit | None = None,
        observe: Observe | None = None,
        tell_act: TellAct | None = None,
    ) -> None:
        self._token_limit = TokenLimit(clock) if token_limit is None else token_limit
        self._tell_act = tell_act
        self._tokens = tokens
        self._clock = clock
        self._observe = observe
        self.draining = False
        self.stopped = asyncio.Event()  # set when the calls in flight have ended: the standard services end, too
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def wait_idle(self) -> None:
        """Wait until no call is in flight but those that only wait."""
        await self._idle.wait()

    def caller(self, context: Any) -> Caller:
        """Who calls, by the metadata of the call. RateLimited where too many tokens from its address were not known."""
        fields = _texts(context.invocation_metadata())
        token = bearer_token(fields.get("authorization", ""))
        with self._token_limit.attempt(_address(context.peer()), token):
            return self._tokens.caller(
                token, user_id=fields.get("user_id", ""), session_id=fields.get("session_id", "")
            )

    def unary(self, method: Method, handler: UnaryCall) -> Callable[[bytes, Any], Awaitable[bytes]]:
        async def invoke(data: bytes, context: Any) -> bytes:
            with self._flight(method, context) as call:
                try:
                    caller = self.caller(context)
                    if method.name in ACTS and self._tell_act is not None:
                        response = await self._act(self._tell_act, method, handler, data, caller)
                    else:
                        response = await handler(self._admit(method, data, caller), caller)
                    return bytes(response.SerializeToString())
                except Exception as error:
                    await call.abort(error)
                    raise  # never reached: abort raises

        return invoke

    def stream(self, method: Method, handler: StreamCall) -> Callable[[bytes, Any], AsyncIterator[bytes]]:
        async def invoke(data: bytes, context: Any) -> AsyncIterator[bytes]:
            with self._flight(method, context) as call:
                try:
                    caller = self.caller(context)
                    request = self._admit(method, data, caller)
                    async with aclosing(handler(request, caller)) as messages:
                        async for message in messages:
                            yield message.SerializeToString()
                except Exception as error:  # noqa: BLE001 - every error has its status
                    await call.abort(error)

        return invoke

    async def _act(self, tell: TellAct, method: Method, handler: UnaryCall, data: bytes, caller: Caller) -> Message:
        """Carry an act out, and tell it with its outcome."""
        outcome = "failed"
        try:
            response = await handler(self._admit(method, data, caller), caller)
            outcome = "ok"
            return response
        except LyraError as error:
            outcome = outcome_of(error)
            raise
        finally:
            await tell(caller, method.name, _target(method, data), outcome)

    def _admit(self, method: Method, data: bytes, caller: Caller) -> Message:
        if method.name not in READING:
            caller.require_change()
        if self.draining and method.name not in FINISHING:
            raise Overloaded("the server is stopping", hint="try again when it is back")
        try:
            return method.request.FromString(data)
        except DecodeError:
            raise ConfigError(f"the request is no {method.request.DESCRIPTOR.name}") from None

    def _flight(self, method: Method, context: Any) -> _Flight:
        return _Flight(self, method.name, context)

    def begin(self, method: str) -> float:
        if method not in WAITING:
            self._in_flight += 1
            self._idle.clear()
        return self._clock.monotonic()

    def end(self, method: str, code: str, began: float) -> None:
        if method not in WAITING:
            self._in_flight -= 1
            if self._in_flight == 0:
                self._idle.set()
        if self._observe is not None:
            self._observe(method, code, self._clock.monotonic() - began)


class _Flight:
    """One call from its start to its end."""

    __slots__ = ("_began", "_context", "_guard", "_method", "_span", "_trace", "code")

    def __init__(self, guard: CallGuard, method: str, context: Any) -> None:
        self._guard = guard
        self._method = method
        self._context = context
        self.code = "OK"

    def __enter__(self) -> _Flight:
        self._began = self._guard.begin(self._method)
        traceparent = _texts(self._context.invocation_metadata()).get("traceparent", "")
        self._trace = grpc_span(self._method, traceparent)
        self._span = self._trace.__enter__()
        return self

    async def abort(self, error: Exception) -> None:
        ended = end_of(error, self._method)
        self.code = ended.code.name
        await self._context.abort(ended.code, ended.details, ended.metadata)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, (asyncio.CancelledError, GeneratorExit)):
            self.code = grpc.StatusCode.CANCELLED.name
        failure = self.code if self.code in SERVER_FAULTS else ""
        self._span.end_with({"rpc.response.status_code": self.code}, error=failure)
        try:
            self._trace.__exit__(kind, error, trace)
        finally:
            self._guard.end(self._method, self.code, self._began)


def _target(method: Method, data: bytes) -> dict[str, str]:
    """Return what an act is about, by the field that names it; nothing where the request cannot be read."""
    try:
        return {ACTS[method.name]: str(getattr(method.request.FromString(data), ACTS[method.name]))}
    except DecodeError:
        return {}


def _address(peer: str) -> str:
    """Return the address of a peer as gRPC writes it, without its port: of `ipv4:127.0.0.1:5` and
    `ipv6:%5B::1%5D:5`."""
    kind, _, rest = unquote(peer).partition(":")
    return rest.rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else rest


def _texts(metadata: Metadata) -> dict[str, str]:
    """Return the text values of metadata; of a key that comes twice, the first."""
    fields: dict[str, str] = {}
    for key, value in metadata:
        if isinstance(value, str):
            fields.setdefault(key, value)
    return fields


# ---------------------------------------------------------------- statuses
# An error as the end of a call: its status code, one sentence, and the facts in the trailing metadata.

ERROR_KEY: Final = "lyra-error-bin"
_DETAILS_CHARS_MAX: Final = 500
_MESSAGE_CHARS_MAX: Final = 10_000  # looked at, of a longer one
_ERROR_BYTES_MAX: Final = 2_000  # all metadata of a call is held to some kilobytes by most clients
_log: Final = logging.getLogger("lyra.server")


class CallEnd(NamedTuple):
    """How a call that failed is ended."""

    code: grpc.StatusCode
    details: str
    metadata: tuple[tuple[str, str | bytes], ...] = ()


def end_of(error: Exception, method: str) -> CallEnd:
    """Return the end of a call that raised this error."""
    if not isinstance(error, LyraError):
        _log.error("%s failed unexpectedly\n%s", method, _trace(error))
        return CallEnd(grpc.StatusCode.INTERNAL, "")
    code = grpc.StatusCode[CODES.get(error.code, CODES["lyra"]).grpc]
    if code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN):
        _log.error("%s failed\n%s", method, _trace(error))
    return CallEnd(code, _clip(error.message), ((ERROR_KEY, _error_bytes(error)),))


def _trace(error: Exception) -> str:
    return redact("".join(traceback.format_exception(error)), process_keys())


def _clip(message: str) -> str:
    line = visible(redact(" ".join(message[:_MESSAGE_CHARS_MAX].split()), process_keys()))
    short = line if len(line) <= _DETAILS_CHARS_MAX else line[: _DETAILS_CHARS_MAX - 1] + "…"
    return short.encode("utf-8", "replace").decode()


def _error_bytes(error: LyraError) -> bytes:
    data: dict[str, Any] = redact_data(error_to_data(error), process_keys())
    data["message"] = _clip(error.message)
    for left_out in ("", "fields", "hint", "place"):
        data.pop(left_out, None)
        encoded = _encode(data)
        if 0 < len(encoded) <= _ERROR_BYTES_MAX:
            return encoded
    return _encode({"code": error.code})


def _encode(data: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(data)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return b""
