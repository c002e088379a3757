"""How an MCP server is: one word of `STATES`, and where something is wrong a `Failure` that says what.

`failure_of` turns whatever a connection ended with into a Failure. Its sentences never hold a header, a token or what
the server itself said beyond a line.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from lyra.core.naming import named
from lyra.core.secrets.redact import redact
from lyra.errors import ConfigError, LyraError, SandboxUnavailable

__all__ = ["STATES", "AuthRequired", "Failed", "Failure", "ServerState", "failure_of"]

STATES: Final[dict[str, str]] = {
    "disabled": "the settings leave it out",
    "disconnected": "nobody has asked for it yet, or it was closed",
    "connecting": "it is being started or reached",
    "connected": "its tools can be called",
    "auth_required": "it wants a token or a login that is not there",
    "consent_required": "a project names it, and nobody has agreed to that",
    "connection_error": "it could not be reached, or it died too often",
    "schema_error": "what it says of its tools, or its entry in a file says of it, cannot be read",
    "unsupported_transport": "it wants to be spoken to in a way that is not spoken",
}
_SENTENCE_CHARS_MAX: Final = 300


class Failure(msgspec.Struct, frozen=True):
    """Why a server is not connected. `recoverable`: trying again may help, without a person changing anything."""

    kind: str
    code: str
    message: str
    recoverable: bool = False

    def to_data(self) -> dict[str, Any]:
        return msgspec.structs.asdict(self)


class ServerState(msgspec.Struct, frozen=True):
    """A server as it is now; `withheld` are tools that changed since somebody agreed to them."""

    name: str
    state: str
    transport: str
    origin: str
    line: str
    failure: Failure | None = None
    tools: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    protocol: str = ""
    restarts: int = 0

    def to_data(self) -> dict[str, Any]:
        data = msgspec.structs.asdict(self)
        return {**data, "failure": self.failure.to_data() if self.failure else None}


@named("mcp:Failed")
class Failed(Exception):
    """A connection that ends with a known Failure; `state` is the state that this puts the server into."""

    def __init__(self, failure: Failure, state: str = "connection_error") -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.state = state


@named("mcp:AuthRequired")
class AuthRequired(Failed):
    """Nobody is there to log in, or the token is not there."""

    def __init__(self, message: str, code: str = "no_token") -> None:
        super().__init__(Failure("auth", code, message), "auth_required")


def failure_of(error: BaseException) -> Failed:
    """What a connection ended with, in one form."""
    error = _first(error)
    if isinstance(error, Failed):
        return error
    if isinstance(error, TimeoutError):
        return Failed(Failure("timeout", "connect_timeout", "it did not answer in time", recoverable=True))
    if isinstance(error, asyncio.CancelledError):
        return Failed(Failure("crash", "closed", "it hung up", recoverable=True))
    if isinstance(error, SandboxUnavailable):
        return Failed(Failure("sandbox", error.code, _line(f"{error.message}: {error.hint}")))
    if isinstance(error, ConfigError):
        return Failed(
            Failure("config", error.code, _line(f"{error.message}: {error.hint}" if error.hint else error.message))
        )
    if isinstance(error, LyraError):
        return Failed(Failure("connect", error.code, _line(error.message), recoverable=True))
    name = type(error).__name__
    if name == "ValidationError":
        return Failed(Failure("schema", "schema_error", "what it says cannot be read as MCP"), "schema_error")
    if name.startswith("OAuth"):
        return Failed(Failure("auth", name, _line(str(error) or name)), "auth_required")
    if name == "MCPError":
        code = str(getattr(error, "code", ""))
        return Failed(Failure("protocol", code, _line(str(error)), recoverable=True))
    return Failed(Failure("connect", name, _line(str(error) or name), recoverable=True))


def _first(error: BaseException) -> BaseException:
    """Out of the groups that it comes wrapped in; what is known is preferred to what followed from it."""
    found = list(_leaves(error))
    return next((each for each in found if isinstance(each, Failed)), found[0])


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in _leaves(each)]
    return [error]


def _line(text: str) -> str:
    line = redact(" ".join(text.split()))
    return line if len(line) <= _SENTENCE_CHARS_MAX else f"{line[:_SENTENCE_CHARS_MAX]}…"
