"""What went wrong, as a response: the status from the table of errors, the body in the shape that the client reads.

Lyra's own shape is `{"error": {"code", "message", "hint"}}`; below `/v1/` it is that of the vendor whose client asks. A
response never has a traceback, and an error that is not Lyra's is told as `internal` alone.
"""

from __future__ import annotations

import logging
import math
import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lyra.core.secrets.process_keys import mask_process_keys
from lyra.errors import CODES, InternalError, LyraError, Overloaded, RateLimited

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel


_log: Final = logging.getLogger("lyra.server")
_WHY_INTERNAL: Final = "something went wrong in the server"
_RETRY_S: Final = 1  # where an error says that it passes, and not when


class HttpRefusal(Exception):
    """A request that HTTP itself refuses: too large, too slow, of another host. `status` is its own."""

    def __init__(self, status: int, message: str, *, hint: str | None = None, headers: Mapping[str, str] | None = None):
        super().__init__(message)
        self.status = status
        self.message = message
        self.hint = hint
        self.headers = dict(headers or {})


class HttpProblem(NamedTuple):
    status: int
    code: str
    message: str
    hint: str
    headers: dict[str, str]


# Codes of refusals that no error of the table has, by status.
_REFUSALS: Final = {
    404: "not_found",
    405: "method_not_allowed",
    408: "timeout",
    410: "gone",
    413: "too_large",
    415: "unsupported_media_type",
    421: "misdirected",
    403: "denied",
    502: "unreachable",
    503: "overloaded",
}


def problem_of(error: BaseException, kernel: Kernel | None = None) -> HttpProblem:
    """Return how an error is told to the client."""
    if isinstance(error, HttpRefusal):
        code = _REFUSALS.get(error.status, "config")
        return HttpProblem(error.status, code, error.message, error.hint or "", error.headers)
    if not isinstance(error, LyraError):
        _log_error(error)
        return HttpProblem(500, "internal", _WHY_INTERNAL, "the log of the server has more", {})
    status = CODES[error.code].http
    headers = _headers(error, status)
    if isinstance(error, InternalError):
        _log_error(error)
        return HttpProblem(status, error.code, _WHY_INTERNAL, error.hint or "", headers)
    return HttpProblem(status, error.code, _clean(error.message, kernel), _clean(error.hint or "", kernel), headers)


def _log_error(error: BaseException) -> None:
    """Log the class of an error and where it came from; its words may hold a secret."""
    place = "".join(traceback.format_tb(error.__traceback__))
    _log.error("a request failed: %s\n%s", type(error).__name__, place)


def _headers(error: LyraError, status: int) -> dict[str, str]:
    if status == 401:
        return {"www-authenticate": "Bearer"}
    if status not in (429, 503):
        return {}
    wait_s = next((error.fields[name] for name in ("retry_after_s", "retry_after_seconds") if name in error.fields), 0)
    if status == 503 and not error.retryable:
        return {}
    return {"retry-after": str(max(_RETRY_S, math.ceil(wait_s or 0)))}


def _clean(text: str, kernel: Kernel | None) -> str:
    """Return the text without known keys of model providers."""
    runtime = None if kernel is None else kernel.parts.get("agents")
    return mask_process_keys(text) if runtime is None else runtime.clean(text)


def too_many(wait_s: float, what: str) -> RateLimited:
    return RateLimited(f"too many requests: {what}", hint="wait, then ask again", retry_after_s=wait_s)


def store_lost() -> Overloaded:
    """Of a request to a server whose store another server has taken over, or that has failed."""
    return Overloaded("this server has lost its store, and stops", hint="ask again: another server may be in its place")


def vendor_of(path: str, headers: Mapping[str, str]) -> str:
    """Whose shape a client reads: `anthropic`, `openai`, `jsonrpc`, `a2a` (its HTTP+JSON binding) or `lyra`."""
    if path.startswith("/v1/messages") or (path.startswith("/v1/models") and "anthropic-version" in headers):
        return "anthropic"
    if path.startswith("/a2a/"):
        return "a2a" if path.count("/") > 2 else "jsonrpc"
    return "openai" if path.startswith("/v1/") else "lyra"


_ANTHROPIC_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_OPENAI_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "insufficient_quota",
    403: "permission_error",
    404: "invalid_request_error",
    429: "rate_limit_error",
}


# The names of statuses in the errors of A2A's HTTP+JSON binding.
STATUS_NAMES: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}
_JSONRPC_INTERNAL: Final = -32603
_JSONRPC_REFUSED: Final = -32000


def error_body(problem: HttpProblem, vendor: str) -> dict[str, Any]:
    """Return the body of a problem in the shape of a vendor."""
    message = f"{problem.message} ({problem.hint})" if problem.hint else problem.message
    if vendor == "anthropic":
        kind = _ANTHROPIC_TYPES.get(problem.status, "invalid_request_error" if problem.status < 500 else "api_error")
        return {"type": "error", "error": {"type": kind, "message": message}}
    if vendor == "openai":
        kind = _OPENAI_TYPES.get(problem.status, "invalid_request_error" if problem.status < 500 else "server_error")
        return {"error": {"message": message, "type": kind, "param": None, "code": problem.code}}
    if vendor == "jsonrpc":
        code = _JSONRPC_INTERNAL if problem.status >= 500 else _JSONRPC_REFUSED
        return {
            "jsonrpc": "2.0",
            "id": None,
            "error": {"code": code, "message": message, "data": {"code": problem.code}},
        }
    if vendor == "a2a":
        name = STATUS_NAMES.get(problem.status, "INTERNAL" if problem.status >= 500 else "FAILED_PRECONDITION")
        return {"error": {"code": problem.status, "status": name, "message": message, "details": []}}
    return {"error": {"code": problem.code, "message": problem.message, "hint": problem.hint}}
