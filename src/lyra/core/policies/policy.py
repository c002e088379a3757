"""Policy: how the kernel handles failures and limits around one effect.

`Policy` joins what the kernel's door does around one effect: try again (`retry`), slow down (`rate`), stop
asking (`breaker`), give up (`timeout_s`). `Supervision` is about whole processes and
stands beside it, with the window that counts restarts. All of these are frozen declarations; the state machines next to
them take `now` and never wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final

from lyra.core.checking.check import FrozenSettings, check_integer, one_of, real
from lyra.core.policies.breaker import Breaker, CircuitBreaker, counts_as_failure
from lyra.core.policies.rate import RateLimit, TokenBucket
from lyra.core.policies.retry import ERROR_CLASSES, Backoff, Retry, error_class

__all__ = [
    "ERROR_CLASSES",
    "Backoff",
    "Breaker",
    "CircuitBreaker",
    "Policy",
    "RateLimit",
    "RestartWindow",
    "Retry",
    "Supervision",
    "TokenBucket",
    "counts_as_failure",
    "error_class",
]

_PARTS: Final[dict[str, Callable[[Any], Any]]] = {
    "retry": Retry.of,
    "rate_limit": RateLimit.of,
    "circuit_breaker": CircuitBreaker.of,
    "timeout_s": lambda value: real(value, "timeout_s", above=0.0),
}


class Policy(FrozenSettings, frozen=True):
    """The declarations around one effect; a part left out does nothing. Each part may be given as a mapping."""

    WORD: ClassVar[str] = "policy"

    retry: Retry | None = None
    rate_limit: RateLimit | None = None
    circuit_breaker: CircuitBreaker | None = None
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        for name, read in _PARTS.items():
            value = getattr(self, name)
            if value is not None:
                self._put(**{name: read(value)})

    @classmethod
    def of(cls, value: Any) -> Policy:
        """Return a Policy from a Policy, a mapping, or None (an empty one)."""
        if value is None:
            return _PLAIN
        return value if isinstance(value, Policy) else cls.from_data(value)


_PLAIN: Final = Policy()


# Supervision as a declaration, and the window that counts restarts.

STRATEGIES: Final[dict[str, str]] = {
    "restart": "start the crashed process again",
    "restart_all": "stop all children of the supervisor and start them again",
    "rest_for_one": "stop the children started after the crashed one, and start it and them again",
    "stop": "do not start it again; tell the parent",
    "escalate": "the supervisor itself fails",
}
OTP: Final[dict[str, str]] = {"one_for_one": "restart", "one_for_all": "restart_all"}  # their names in Erlang/OTP


class Supervision(FrozenSettings, frozen=True):
    """`max_restarts` within `window_s` seconds: 0 none, -1 without limit."""

    WORD: ClassVar[str] = "supervision"

    strategy: str = "restart"
    max_restarts: int = 3
    window_s: float = 60.0
    backoff: Backoff | None = None

    def __post_init__(self) -> None:
        given: object = self.strategy  # user input: it may have any type
        self._put(
            strategy=OTP.get(word := one_of(given, (*STRATEGIES, *OTP), "strategy"), word),
            max_restarts=check_integer(self.max_restarts, "max_restarts", least=-1, most=1_000_000),
            window_s=real(self.window_s, "window_s"),
            backoff=None if self.backoff is None else Backoff.of(self.backoff),
        )

    @classmethod
    def of(cls, value: Any) -> Supervision:
        """Return a Supervision, the word of a strategy, a mapping, or None: the defaults."""
        if value is None:
            return cls()
        if isinstance(value, Supervision):
            return value
        return cls.from_data(value) if isinstance(value, Mapping) else cls(strategy=value)


class RestartWindow:
    """The times of the restarts that still count."""

    __slots__ = ("_times", "supervision")

    def __init__(self, supervision: Supervision, times: Iterable[float] = ()) -> None:
        self.supervision = supervision
        self._times = deque(times)

    @property
    def times(self) -> tuple[float, ...]:
        return tuple(self._times)

    def record(self, now: float) -> bool:
        """Count one crash at `now`; True if the process may start again."""
        most = self.supervision.max_restarts
        if most < 0:
            return True
        while self._times and self._times[-1] > now:  # recorded before the clock was set back
            self._times.pop()
        while self._times and now - self._times[0] > self.supervision.window_s:
            self._times.popleft()
        self._times.append(now)
        allowed = len(self._times) <= most
        if not allowed:  # the newest max_restarts + 1 decide; older ones never matter again
            self._times.popleft()
        return allowed
