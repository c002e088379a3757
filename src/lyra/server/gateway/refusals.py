"""How the failure of a call is told to the client: in the provider's own words, or in the vendor's shape."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.errors import LyraError, ModelError
from lyra.server.http.endpoint import RawAnswer
from lyra.server.http.problems import HttpProblem, error_body, problem_of

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel

__all__ = ["failure_answer", "failure_body"]

# Statuses of failures of which the provider's own answer is not passed on: it spoke another format, or the connection
# failed. `auth` is about the server's key and not the client's.
_STATUSES: Final[dict[str, int]] = {
    "rate_limit": 429,
    "overloaded": 503,
    "timeout": 504,
    "bad_request": 400,
    "not_found": 404,
    "context_overflow": 400,
    "content_filter": 400,
}


# What the client is told of failures whose sentence names the server's own addresses or keys.
_SENTENCES: Final[dict[str, str]] = {
    "connection": "the model's provider cannot be reached",
    "auth": "the model's provider refused the key of this server",
    "bad_response": "what came from the model's provider is not an answer",
}


def failure_answer(error: LyraError, vendor: str, kernel: Kernel) -> RawAnswer:
    """The answer to a call that failed before the client had a part of an answer."""
    refusal: Any = error.fields.get("refusal")
    if isinstance(refusal, RawAnswer):
        return refusal
    problem = _problem(error, kernel)
    return RawAnswer(
        msgspec.json.encode(error_body(problem, vendor)), "application/json", problem.status, problem.headers
    )


def failure_body(error: LyraError, vendor: str, kernel: Kernel) -> dict[str, Any]:
    """The same for the middle of a stream."""
    return error_body(_problem(error, kernel), vendor)


def _problem(error: LyraError, kernel: Kernel) -> HttpProblem:
    problem = problem_of(error, kernel)
    if not isinstance(error, ModelError):
        return problem
    kind = str(error.fields.get("kind"))
    if kind in _SENTENCES:
        return problem._replace(message=_SENTENCES[kind], hint="")
    status = _STATUSES.get(kind)
    if status is None:
        return problem
    wait_s = error.fields.get("retry_after_s")
    headers = {"retry-after": str(math.ceil(wait_s))} if isinstance(wait_s, (int, float)) else {}
    return problem._replace(status=status, hint="", headers=headers)
