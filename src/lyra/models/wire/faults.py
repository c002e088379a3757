"""Errors of model calls: one taxonomy for all providers.

`KINDS` is the table of `ModelError.kind`. `from_status` classifies an HTTP status, `from_code` an error inside
a stream; `truncated`, `malformed`, `unreachable` and the rest make the errors that the wire clients raise. An error
carries `kind`, `provider`, `model`, `status` where there was one and `retry_after_s` where the server said so; never a
header, a key or a body in full.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from lyra.core.policies.retry import error_attribute, error_class, error_text, http_status
from lyra.errors import LyraError, ModelError

# Raised when JSON is read: also for bytes that are no UTF-8, and for deep nesting.
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

KINDS: Final[dict[str, str]] = {
    "rate_limit": "too many requests or tokens; later will do",
    "overloaded": "the provider has no room now; later will do",
    "timeout": "no answer, or no next piece of it, in time",
    "connection": "the provider could not be reached, or the line broke before it answered",
    "stream_truncated": "the stream ended before the answer did",
    "malformed": "a piece of the answer cannot be read, a tool call is not valid JSON, or its stop reason is unknown",
    "temporary": "the provider failed and may not the next time",
    "auth": "the key is missing, wrong, or not for this model",
    "bad_request": "the provider refuses the request as it is",
    "not_found": "there is no such model, or no such address",
    "context_overflow": "the conversation is longer than the model can read",
    "content_filter": "the provider refuses the content",
    "bad_response": "what came back is not an answer of this provider",
}

_BY_STATUS: Final[dict[int, str]] = {
    400: "bad_request",
    401: "auth",
    402: "auth",  # no credit
    403: "auth",
    404: "not_found",
    408: "timeout",
    409: "temporary",
    413: "context_overflow",
    422: "bad_request",
    424: "temporary",
    425: "temporary",
    429: "rate_limit",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}
_BY_CODE: Final[dict[str, str]] = {  # where the provider's own code says more than the status
    "API_KEY_INVALID": "auth",
    "ExpiredTokenException": "auth",
    "InvalidSignatureException": "auth",
    "UnrecognizedClientException": "auth",
    "ServiceQuotaExceededException": "rate_limit",
    "insufficient_quota": "auth",  # OpenAI sends 429, but waiting does not help
    "billing_hard_limit_reached": "auth",
    "context_length_exceeded": "context_overflow",
    "content_filter": "content_filter",
}
_BY_WORD: Final[dict[str, str]] = {  # Anthropic's and OpenAI's, in a stream
    "overloaded_error": "overloaded",
    "server_overloaded": "overloaded",
    "server_is_overloaded": "overloaded",
    "rate_limit_error": "rate_limit",
    "rate_limit_exceeded": "rate_limit",
    "timeout_error": "timeout",
    "timeout": "timeout",
    "api_error": "temporary",
    "server_error": "temporary",
    "internal_error": "temporary",
    "authentication_error": "auth",
    "invalid_api_key": "auth",
    "permission_error": "auth",
    "billing_error": "auth",
    "not_found_error": "not_found",
    "model_not_found": "not_found",
    "request_too_large": "context_overflow",
    "context_length_exceeded": "context_overflow",
    "content_filter": "content_filter",
    "invalid_prompt": "bad_request",
    "invalid_request_error": "bad_request",
}
# A better kind than bad_request, by words of the provider's message.
_BY_SENTENCE: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    (
        "context_overflow",
        (
            "context length",
            "context window",
            "context_length",
            "context limit",
            "context size",
            "context_size",
            "too many tokens",
            "prompt is too long",
            "maximum context",
            "maximum number of tokens",
            "input is too long",
        ),
    ),
    ("content_filter", ("content_filter", "content management policy", "content filtering policy", "safety system")),
    ("not_found", ("model identifier is invalid",)),
)
_HINTS: Final[dict[str, str]] = {
    "auth": "look at the key and at what it may use",
    "not_found": "look at the model's name and at the base URL",
    "context_overflow": "send less, or compact the conversation",
    "connection": "is the address right and the server up?",
    "bad_response": "is the base URL that of the provider's API?",
}
_TRY_AGAIN: Final = re.compile(r"(?i)\btry again in (\d{1,9}(?:\.\d{1,9})?) ?(ms|s|second|minute|m)")
_SECONDS: Final[dict[str, float]] = {"ms": 0.001, "s": 1.0, "second": 1.0, "minute": 60.0, "m": 60.0}
_FAILED_STOPS: Final = (  # the server itself broke the answer off: OpenRouter, vLLM, DeepSeek, Zhipu
    "error",
    "abort",
    "insufficient_system_resource",
    "network_error",
)
_MOVED: Final = "the address leads elsewhere and a key is not sent on: set base_url to the right one"


def fault(kind: str, message: str, **fields: Any) -> ModelError:
    """Return a ModelError of one of KINDS, with the usual hint."""
    assert kind in KINDS, kind
    hint = fields.pop("hint", None) or _HINTS.get(kind)
    return ModelError(
        message, hint=hint, kind=kind, **{name: value for name, value in fields.items() if value not in (None, "")}
    )


def from_exception(error: BaseException, provider: str) -> LyraError | None:
    """Return the ModelError for an exception of a provider that a user wrote; None for a LyraError and a cancellation.

    It is sorted by its HTTP status, else by its type and its words. A mistake in the provider, such as a KeyError, is a
    `bad_response`, which is neither tried again nor hidden behind another model.
    """
    if isinstance(error, LyraError) or not isinstance(error, Exception):
        return None
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:  # a task group wraps what its task raised
        error = error.exceptions[0]
    if isinstance(error, LyraError):
        return error
    name = type(error).__name__
    message = f"{provider or 'the provider'} failed: {name}: {error_text(error)}".rstrip(": ")
    code = error_attribute(error, "code")
    status = http_status(error)
    if status is None and isinstance(code, int) and 400 <= code <= 599:  # Google's libraries
        status = code
    if status is not None:
        headers = error_attribute(error_attribute(error, "response"), "headers")
        # A date is read as no pause: nothing here knows the time.
        pause_s = retry_after(headers, math.inf) if isinstance(headers, Mapping) else None
        words = code if isinstance(code, str) else ""
        return from_status(status, message, code=words, retry_after_s=pause_s, provider=provider)
    if isinstance(error, TimeoutError) or "Timeout" in name:
        return fault("timeout", message, provider=provider)
    kind = _BY_CLASS.get(error_class(error), "bad_response")
    is_connection = isinstance(error, OSError) or "Connect" in name or any(map(_is_of_http, type(error).__mro__))
    if is_connection and kind != "auth":
        kind = "connection"
    hint = "look at the code of the provider" if kind == "bad_response" else None
    return fault(kind, message, provider=provider, hint=hint)


def _is_of_http(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in _HTTP_PACKAGES


_HTTP_PACKAGES: Final = frozenset({"httpx", "httpx2", "httpcore", "httpcore2", "aiohttp", "requests", "urllib3"})
_BY_CLASS: Final[dict[str, str]] = {  # of an exception without a status
    "rate_limit": "rate_limit",
    "overloaded": "overloaded",
    "timeout": "timeout",
    "temporary": "temporary",
    "authentication": "auth",
}


def from_status(status: int, message: str, *, code: str = "", **fields: Any) -> ModelError:
    """Return the error of an HTTP status, with the provider's own `code` and message."""
    if status < 400:
        return fault("bad_response", message, status=status, provider_code=code, hint=_MOVED, **fields)
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status) or ("temporary" if status >= 500 else "bad_request")
    if kind == "bad_request":
        kind = _by_sentence(f"{code} {message}")
    return fault(kind, message, status=status, provider_code=code, **fields)


def _by_sentence(text: str) -> str:
    lower = text.lower()
    return next((kind for kind, words in _BY_SENTENCE if any(word in lower for word in words)), "bad_request")


def from_code(code: str, message: str, **fields: Any) -> ModelError:
    """Return the error that a provider sends in the middle of an answer, classified by its code, since there is no
    status.

    An unknown code counts as temporary: a wrong request is refused before an answer begins.
    """
    if code.isascii() and code.isdigit() and 400 <= int(code) <= 599:
        return from_status(int(code), message, **fields)
    kind = _BY_CODE.get(code) or _BY_WORD.get(code)
    if kind is None or kind == "bad_request":
        better = _by_sentence(f"{code} {message}")
        kind = better if better != "bad_request" else kind or "temporary"
    fields.setdefault("retry_after_s", pause_in(message))
    return fault(kind, message or code, provider_code=code, **fields)


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that the server asks to wait: `retry-after-ms`, `retry-after` in seconds or as a date."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        try:
            seconds = float(text) * unit
        except ValueError:
            seconds = _date(text, now) if name == "retry-after" else -1.0
        if 0.0 <= seconds < 1e9:
            return seconds
    return None


def pause_in(sentence: str) -> float | None:
    """Seconds that a sentence asks to wait, as OpenAI says it in a stream: "Please try again in 11.05s."."""
    match = _TRY_AGAIN.search(sentence)
    return float(match[1]) * _SECONDS[match[2].lower()] if match else None


def _date(text: str, now: float) -> float:
    from email.utils import parsedate_to_datetime  # rare, and not cheap to import

    try:
        return max(parsedate_to_datetime(text).timestamp() - now, 0.0)
    except (TypeError, ValueError, OverflowError):
        return -1.0


def stream_truncated(message: str, **fields: Any) -> ModelError:
    return fault("stream_truncated", message, **fields)


def answer_malformed(message: str, **fields: Any) -> ModelError:
    return fault("malformed", message, **fields)


def unknown_stop(reason: str) -> ModelError:
    """Return the error of an unknown stop reason: the answer may be incomplete, so it is never taken for a whole
    one."""
    kind = "temporary" if reason.lower() in _FAILED_STOPS else "malformed"
    return fault(kind, f"the answer ended for an unknown reason: {reason[:80]!r}", provider_code=reason[:80])


def unreachable(message: str, **fields: Any) -> ModelError:
    return fault("connection", message, **fields)


def not_an_answer(message: str, **fields: Any) -> ModelError:
    return fault("bad_response", message, **fields)


def too_large(limit: int, **fields: Any) -> ModelError:
    return fault(
        "bad_response",
        f"the answer is larger than {limit} bytes",
        hint="no model writes that much; is the base URL that of the provider's API?",
        **fields,
    )
