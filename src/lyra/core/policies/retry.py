"""Retries: which errors are retried, how often, and after what pause.

Owns the error classes (`error_class` sorts any exception into one of `ERROR_CLASSES`, by tables), `Backoff`
and `Retry`. Retry is for one act that failed; supervision (`restart`) is for a process that crashed. Never
waits and never draws its own randomness: the kernel waits, and hands in the generator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from lyra.core.checking.check import FrozenSettings, check_integer, one_of, real
from lyra.core.limits import RETRY_AFTER_S_MAX, RETRY_ATTEMPTS_MAX
from lyra.errors import (
    AgentFailed,
    BudgetExceeded,
    CircuitOpen,
    ConfigError,
    ContractViolation,
    DeadlineExceeded,
    Denied,
    Divergence,
    EffectInDoubt,
    InternalError,
    LimitExceeded,
    LyraError,
    ModelError,
    Overloaded,
    ProcessError,
    RateLimited,
    SourceError,
    StoreError,
    StoreFull,
)

ERROR_CLASSES: Final[dict[str, str]] = {
    "rate_limit": "too many requests; later will do",
    "overloaded": "the service has no room now; later will do",
    "timeout": "no answer in time; another try may have one",
    "temporary": "it went wrong and may go right next time",
    "invalid_request": "the same request will fail the same way",
    "authentication": "the caller has no right to it",
    "budget_exceeded": "a limit of our own was reached",
}
RETRYABLE: Final = ("rate_limit", "overloaded", "timeout", "temporary")

# Checked in this order: a kind, a status code, a type, then words in the message.
_BY_KIND: Final[dict[str, str]] = {
    "rate_limit": "rate_limit",
    "overloaded": "overloaded",
    "timeout": "timeout",
    "auth": "authentication",
    "bad_request": "invalid_request",
    "temporary": "temporary",
    "connection": "temporary",
    "stream_truncated": "temporary",
    "malformed": "temporary",
    "not_found": "invalid_request",
    "context_overflow": "invalid_request",
    "content_filter": "invalid_request",
    "bad_response": "invalid_request",
}
_BY_STATUS: Final[dict[int, str]] = {
    401: "authentication",
    402: "budget_exceeded",
    403: "authentication",
    408: "timeout",
    429: "rate_limit",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}
_BY_TYPE: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (RateLimited, "rate_limit"),
    (CircuitOpen, "overloaded"),
    (Overloaded, "overloaded"),
    (DeadlineExceeded, "timeout"),
    (BudgetExceeded, "budget_exceeded"),
    (LimitExceeded, "budget_exceeded"),
    (Denied, "authentication"),
    (EffectInDoubt, "invalid_request"),  # it may have happened: retried only after a person has answered
    (AgentFailed, "temporary"),
    (ConfigError, "invalid_request"),
    (SourceError, "invalid_request"),
    (ProcessError, "invalid_request"),
    (ContractViolation, "invalid_request"),
    (Divergence, "invalid_request"),
    (StoreFull, "temporary"),
    (StoreError, "invalid_request"),
    (InternalError, "invalid_request"),
    (TimeoutError, "timeout"),
    (FileNotFoundError, "invalid_request"),
    (FileExistsError, "invalid_request"),
    (IsADirectoryError, "invalid_request"),
    (NotADirectoryError, "invalid_request"),
    (PermissionError, "authentication"),
    (OSError, "temporary"),  # connections, mostly
    # A mistake in a program is the same mistake the second time.
    (TypeError, "invalid_request"),
    (ValueError, "invalid_request"),
    (LookupError, "invalid_request"),
    (AttributeError, "invalid_request"),
    (NameError, "invalid_request"),
    (ArithmeticError, "invalid_request"),
    (AssertionError, "invalid_request"),
    (ImportError, "invalid_request"),
    (NotImplementedError, "invalid_request"),
    (RecursionError, "invalid_request"),
)
_BY_TEXT: Final[tuple[tuple[str, str], ...]] = (
    ("rate limit", "rate_limit"),
    ("too many requests", "rate_limit"),
    ("overloaded", "overloaded"),
    ("capacity", "overloaded"),
    ("timeout", "timeout"),
    ("timed out", "timeout"),
    ("deadline exceeded", "timeout"),
    ("invalid", "invalid_request"),
    ("validation", "invalid_request"),
    ("unauthorized", "authentication"),
)


def error_class(error: BaseException) -> str:
    """One of ERROR_CLASSES. A BaseException that is no Exception (cancellation, exit) is never retried."""
    if not isinstance(error, Exception):
        return "invalid_request"
    if isinstance(error, StoreFull) and error.fields.get("stands"):
        return "invalid_request"  # what was asked is carried out when there is room: asked again, it would happen twice
    if isinstance(error, ModelError):
        kind = _BY_KIND.get(str(error.fields.get("kind")))
        if kind:
            return kind
    status = http_status(error)
    if status is not None:
        return _BY_STATUS.get(status) or ("temporary" if status >= 500 else "invalid_request")
    for error_type, name in _BY_TYPE:
        if isinstance(error, error_type):
            return name
    text = error_text(error).lower()
    return next((name for words, name in _BY_TEXT if words in text), "temporary")


def http_status(error: Exception) -> int | None:
    """Return the HTTP status that an error carries, which decides its class: a field of a LyraError, or an attribute of
    another library's error or of the response that it holds."""
    if isinstance(error, LyraError):
        return _read_failed_status(error.fields.get("status"))
    response = error_attribute(error, "response")
    if isinstance(response, Mapping):  # botocore's
        metadata = response.get("ResponseMetadata")
        return _read_failed_status(metadata.get("HTTPStatusCode")) if isinstance(metadata, Mapping) else None
    attributes = ((error, "status_code"), (error, "status"), (response, "status_code"))
    statuses = (_read_failed_status(_as_number(error_attribute(owner, name))) for owner, name in attributes)
    return next((status for status in statuses if status is not None), None)


def _read_failed_status(value: object) -> int | None:
    return int(value) if isinstance(value, int) and 400 <= value <= 599 else None


def _as_number(value: object) -> object:
    """Return "503" as 503, and anything else as it is."""
    return int(value) if isinstance(value, str) and len(value) == 3 and value.isdecimal() else value


def error_attribute(owner: object, name: str) -> object:
    """Return an attribute of an error of the user's, None where there is none or its getter fails."""
    try:
        return getattr(owner, name, None)
    except Exception:  # noqa: BLE001 - a property of the user's
        return None


def error_text(error: object) -> str:
    """Return the text of an error of the user's, also where its `__str__` fails."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - __str__ is the user's
        return f"<{type(error).__name__} without a text>"


_KINDS: Final[dict[str, Callable[[Backoff, int], float]]] = {
    "exponential": lambda backoff, attempt: backoff.initial_s * backoff.factor ** (attempt - 1),
    "linear": lambda backoff, attempt: backoff.initial_s * attempt,
    "constant": lambda backoff, attempt: backoff.initial_s,  # noqa: ARG005 (one signature for the table)
}


class Backoff(FrozenSettings, frozen=True):
    """The pause before the next try. `jitter` 0.2: up to 20 % more or less, so that not all try at once."""

    WORD: ClassVar[str] = "backoff"

    kind: str = "exponential"
    initial_s: float = 1.0
    factor: float = 2.0
    max_s: float = 30.0
    jitter: float = 0.0

    def __post_init__(self) -> None:
        one_of(self.kind, _KINDS, "backoff kind")
        self._put(
            initial_s=real(self.initial_s, "initial_s"),
            factor=real(self.factor, "factor", least=1.0),
            max_s=real(self.max_s, "max_s"),
            jitter=real(self.jitter, "jitter", most=1.0),
        )

    @classmethod
    def of(cls, value: Any) -> Backoff:
        """Return a Backoff, the word of a kind, or a mapping."""
        if isinstance(value, Backoff):
            return value
        return cls(kind=value) if isinstance(value, str) else cls.from_data(value)

    def delay(self, attempt: int, rng: Callable[[], float]) -> float:
        """Seconds to wait after the `attempt`-th try (from 1); never negative, never above `max_s`."""
        try:
            pause = _KINDS[self.kind](self, attempt)
        except OverflowError:
            pause = self.max_s
        if self.jitter:
            pause = min(pause, self.max_s) * (1.0 + self.jitter * (2.0 * rng() - 1.0))
        return min(max(pause, 0.0), self.max_s)


class Retry(FrozenSettings, frozen=True):
    """Which errors are tried again, and how often. `max_attempts` counts calls: 3 is one and two more."""

    WORD: ClassVar[str] = "retry"

    max_attempts: int = 3
    backoff: Backoff = Backoff()
    on: tuple[str, ...] = RETRYABLE

    def __post_init__(self) -> None:
        on: object = self.on
        if not isinstance(on, (tuple, list)):
            raise ConfigError(f"retry 'on' is a list of error classes, not {self.on!r}", key="on")
        self._put(
            max_attempts=check_integer(self.max_attempts, "max_attempts", least=1, most=RETRY_ATTEMPTS_MAX),
            backoff=Backoff.of(self.backoff),
            on=tuple(one_of(word, ERROR_CLASSES, "an error class to retry on") for word in on),
        )

    @classmethod
    def of(cls, value: Any) -> Retry:
        """Return a Retry, a mapping, a number of attempts, or None: one call and no other."""
        if value is None:
            return _ONCE
        if isinstance(value, Retry):
            return value
        return cls.from_data(value) if isinstance(value, Mapping) else cls(max_attempts=value)

    def attempts_for(self, error: BaseException) -> int:  # noqa: ARG002 (one who has patience looks at it)
        """Return how many calls there are at most, where they end in such errors."""
        return self.max_attempts

    def should_retry(self, error: BaseException, attempt: int) -> bool:
        """Return whether to call again after `attempt` calls, the last of which ended in `error`."""
        is_over = not isinstance(error, Exception) or attempt >= self.attempts_for(error)
        return not is_over and error_class(error) in self.on

    def delay(self, attempt: int, rng: Callable[[], float], error: BaseException | None = None) -> float:
        """Seconds to wait after `attempt` calls: the back-off, or what the server asked for if longer."""
        return max(self.backoff.delay(attempt, rng), _read_retry_after(error))


def _read_retry_after(error: BaseException | None) -> float:
    asked = error.fields.get("retry_after_s") if isinstance(error, LyraError) else None
    if isinstance(asked, bool) or not isinstance(asked, (int, float)) or not asked >= 0:
        return 0.0
    return min(float(asked), RETRY_AFTER_S_MAX)


_ONCE: Final = Retry(max_attempts=1)
_BLIND_ATTEMPTS_MAX: Final = 4


class PatientRetry(Retry, frozen=True):
    """Many tries where a server has answered that it has no room now, or failed; few where nothing says that there is
    one."""

    WORD: ClassVar[str] = "retry"

    def attempts_for(self, error: BaseException) -> int:
        kind = error_class(error)
        answered = isinstance(error, Exception) and http_status(error) is not None
        return self.max_attempts if answered or kind in _NO_ROOM else min(self.max_attempts, _BLIND_ATTEMPTS_MAX)


_NO_ROOM: Final = ("rate_limit", "overloaded")
