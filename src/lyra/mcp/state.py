"""The state of an MCP server: one word of `STATES`, and a `Failure` if something is wrong.

`failure_of` turns the exception that ended a connection into a Failure. Its messages never hold a header or a token,
and at most one line of the server's own output.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from lyra.core.naming import give_name
from lyra.core.secrets.redact import redact
from lyra.errors import ConfigError, LyraError, SandboxUnavailable

STATES: Final[dict[str, str]] = {
    "disabled": "the settings leave it out",
    "disconnected": "it was not needed yet, or it was closed",
    "connecting": "it is being started or reached",
    "connected": "its tools can be called",
    "auth_required": "it wants a token or a login that is not there",
    "consent_required": "a project names it, and no person has agreed to that or trusts the folder",
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
    """A server as it is now; `withheld` are tools that changed since a person agreed to them."""

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


@give_name("lyra:mcp.Failed")
class ServerFailed(Exception):
    """A connection that ends with a known Failure; `state` is the state that this puts the server into."""

    def __init__(self, failure: Failure, state: str = "connection_error") -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.state = state


@give_name("lyra:mcp.AuthRequired")
class AuthRequired(ServerFailed):
    """A login is needed and no person can log in, or the token is missing."""

    def __init__(self, message: str, code: str = "no_token") -> None:
        super().__init__(Failure("auth", code, message), "auth_required")


def failure_of(error: BaseException) -> ServerFailed:
    """Return the failure behind any exception that ended a connection."""
    # The exception inside exception groups; a ServerFailed goes before other exceptions.
    leaves = list(_leaves(error))
    error = next((leaf for leaf in leaves if isinstance(leaf, ServerFailed)), leaves[0])
    if isinstance(error, ServerFailed):
        return error
    if isinstance(error, TimeoutError):
        return ServerFailed(Failure("timeout", "connect_timeout", "it did not answer in time", recoverable=True))
    if isinstance(error, asyncio.CancelledError):
        return ServerFailed(Failure("crash", "closed", "it hung up", recoverable=True))
    if isinstance(error, SandboxUnavailable):
        return ServerFailed(Failure("sandbox", error.code, _line(f"{error.message}: {error.hint}")))
    if isinstance(error, ConfigError):
        return ServerFailed(
            Failure("config", error.code, _line(f"{error.message}: {error.hint}" if error.hint else error.message))
        )
    if isinstance(error, LyraError):
        return ServerFailed(Failure("connect", error.code, _line(error.message), recoverable=True))
    name = type(error).__name__
    if name == "ValidationError":
        return ServerFailed(Failure("schema", "schema_error", "what it says cannot be read as MCP"), "schema_error")
    if name.startswith("OAuth"):
        return ServerFailed(Failure("auth", name, _line(str(error) or name)), "auth_required")
    if name == "MCPError":
        code = str(getattr(error, "code", ""))
        return ServerFailed(Failure("protocol", code, _line(str(error)), recoverable=True))
    return ServerFailed(Failure("connect", name, _line(str(error) or name), recoverable=True))


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]


def _line(text: str) -> str:
    line = redact(" ".join(text.split()))
    return line if len(line) <= _SENTENCE_CHARS_MAX else f"{line[:_SENTENCE_CHARS_MAX]}…"
