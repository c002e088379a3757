"""Policy: how the kernel handles failures and limits around one effect.

`Policy` joins what the kernel's door does around one effect: try again (`retry`), slow down (`rate`), stop
asking (`breaker`), give up (`timeout_s`). `Supervision` (`restart`) is about whole processes and stands
beside it. All of these are frozen declarations; the state machines next to them take `now` and never wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

from lyra.core.checking.check import FrozenSettings, real
from lyra.core.policies.breaker import Breaker, CircuitBreaker, counts_as_failure
from lyra.core.policies.rate import RateLimit, TokenBucket
from lyra.core.policies.restart import RestartWindow, Supervision
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
        """A Policy from a Policy, a mapping, or None (an empty one)."""
        if value is None:
            return _PLAIN
        return value if isinstance(value, Policy) else cls.from_data(value)


_PLAIN: Final = Policy()
