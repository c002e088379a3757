"""The errors of A2A: their codes in JSON-RPC, their status in HTTP+JSON, their reasons, and what an error of Lyra
becomes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lyra.a2a.content import UNREADABLE_PART
from lyra.errors import CapabilityDenied, ConfigError, LyraError
from lyra.server.http.problems import STATUS_NAMES, HttpRefusal, problem_of

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel


_ERROR_INFO: Final = "type.googleapis.com/google.rpc.ErrorInfo"
_DOMAIN: Final = "a2a-protocol.org"

# word → (code, reason, the usual sentence, the status and its name in HTTP+JSON)
ERRORS: Final[dict[str, tuple[int, str, str, int, str]]] = {
    "parse": (-32700, "PARSE_ERROR", "the body is not JSON", 400, "INVALID_ARGUMENT"),
    "invalid_request": (
        -32600,
        "INVALID_REQUEST",
        "the body is not a request of JSON-RPC 2.0",
        400,
        "INVALID_ARGUMENT",
    ),
    "no_such_method": (-32601, "METHOD_NOT_FOUND", "there is no such method", 404, "NOT_FOUND"),
    "invalid_params": (-32602, "INVALID_PARAMS", "the parameters cannot be used", 400, "INVALID_ARGUMENT"),
    "internal": (-32603, "INTERNAL_ERROR", "something went wrong in the server", 500, "INTERNAL"),
    "task_not_found": (-32001, "TASK_NOT_FOUND", "there is no such task", 404, "NOT_FOUND"),
    "not_cancelable": (-32002, "TASK_NOT_CANCELABLE", "the task has ended", 400, "FAILED_PRECONDITION"),
    "unsupported": (-32004, "UNSUPPORTED_OPERATION", "this cannot be done now", 400, "FAILED_PRECONDITION"),
    "content_type": (
        -32005,
        "CONTENT_TYPE_NOT_SUPPORTED",
        "a part of the message cannot be read",
        400,
        "INVALID_ARGUMENT",
    ),
    "version": (-32009, "VERSION_NOT_SUPPORTED", "this version of A2A is not spoken", 400, "FAILED_PRECONDITION"),
    "refused": (-32000, "REFUSED", "the server refuses it", 403, "PERMISSION_DENIED"),
}


class RpcError(Exception):
    """An error as a client of A2A is told it; `word` is a key of ERRORS."""

    def __init__(self, word: str, message: str = "", **facts: str) -> None:
        self.code, self.reason, usual, self.status, self.status_name = ERRORS[word]
        self.message = message or usual
        self.facts = facts
        super().__init__(self.message)

    def to_data(self) -> dict[str, Any]:
        """Return the error in JSON-RPC."""
        return {"code": self.code, "message": self.message, "data": [self._info()]}

    def to_http_data(self) -> dict[str, Any]:
        """Return the body of an answer in HTTP+JSON."""
        status = {"code": self.status, "status": self.status_name, "message": self.message}
        return {"error": {**status, "details": [self._info()]}}

    def _info(self) -> dict[str, Any]:
        info: dict[str, Any] = {"@type": _ERROR_INFO, "reason": self.reason, "domain": _DOMAIN}
        if self.facts:
            info["metadata"] = self.facts
        return info


def rpc_error_of(error: Exception, kernel: Kernel) -> RpcError:
    """Return how any error of a request is told."""
    if isinstance(error, RpcError):
        return error
    problem = problem_of(error, kernel)
    message = f"{problem.message} ({problem.hint})" if problem.hint else problem.message
    if isinstance(error, ConfigError) and error.fields.get("key") == UNREADABLE_PART:
        return RpcError("content_type", message)
    if isinstance(error, (ConfigError, CapabilityDenied)):
        return RpcError("invalid_params", message)
    if problem.status == 503 or (isinstance(error, (LyraError, HttpRefusal)) and problem.status < 500):
        refused = RpcError("refused", message, code=problem.code)
        refused.status, refused.status_name = problem.status, STATUS_NAMES.get(problem.status, refused.status_name)
        return refused
    return RpcError("internal", code=problem.code)
