"""How a provider refuses, and how the failure of a call is told to the client: in the provider's own words where the
client may have them, else in the vendor's shape."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core.budgets.money import Money
from lyra.errors import LyraError, ModelError, RateLimited
from lyra.models.wire.faults import UNREADABLE, from_status, retry_after
from lyra.models.wire.http import usual_sentence
from lyra.server.gateway.targets import answer_headers
from lyra.server.http.endpoint import RawAnswer
from lyra.server.http.problems import HttpProblem, error_body, problem_of

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.models.wire.http import UnreadAnswer
    from lyra.models.wire.remote import RemoteProvider


_HELD_RETRY_S: Final = 5.0  # when to ask again for money that calls in flight hold
_REFUSAL_BYTES_MAX: Final = 1024 * 1024  # of a longer one the client is told the status alone
_SERVER_KEY_REFUSED: Final = (401, 402, 403)  # about the server's key or account, not the client's

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


def money_held(micro_usd: int) -> RateLimited:
    """Return the refusal of a call for which the key's budget has the money, once calls in flight have ended."""
    return RateLimited(
        f"calls in flight hold {Money(micro_usd)} of the key's budget, which this call needs",
        hint="ask again when they have ended",
        retry_after_s=_HELD_RETRY_S,
        held=micro_usd,
    )


async def read_refusal(
    provider: RemoteProvider, answer: UnreadAnswer, model: str, now: float
) -> tuple[ModelError, RawAnswer | None]:
    """Return the error of an answer that is none, and the provider's own words for the client; None where it may not
    have them: of a redirect, and of what is about the server's key."""
    status, body = answer.status, await answer.read(_REFUSAL_BYTES_MAX)
    is_whole = len(body) <= _REFUSAL_BYTES_MAX
    try:
        data = msgspec.json.decode(body) if is_whole else None
    except UNREADABLE:
        data = None
    code, sentence = provider.sentence(status, data) if data is not None else usual_sentence(0, None)
    error = from_status(
        status,
        provider.http.clean(sentence) or f"{provider.name} answered with status {status}",
        code=provider.http.clean(code),
        provider=provider.name,
        model=model,
        retry_after_s=retry_after(answer.headers, now),
    )
    if status < 400 or status in _SERVER_KEY_REFUSED or not is_whole:
        return error, None
    media = answer.headers.get("content-type", "application/json")
    return error, RawAnswer(provider.http.redact(body), media, status, answer_headers(answer.headers))


def failure_answer(error: LyraError, vendor: str, kernel: Kernel) -> RawAnswer:
    """Return the answer to a call that failed before the client had a part of an answer."""
    refusal: Any = error.fields.get("refusal")
    if isinstance(refusal, RawAnswer):
        return refusal
    problem = _problem(error, kernel)
    return RawAnswer(
        msgspec.json.encode(error_body(problem, vendor)), "application/json", problem.status, problem.headers
    )


def failure_body(error: LyraError, vendor: str, kernel: Kernel) -> dict[str, Any]:
    """Return the body of a failure in the middle of a stream."""
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
