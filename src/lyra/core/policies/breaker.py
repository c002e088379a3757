"""The circuit breaker: after too many failures in a row, stop asking for a while.

`CircuitBreaker` is the declaration, `Breaker` its state, and `TRANSITIONS` the whole behaviour:

    closed     calls pass; `threshold` failures in a row open it (a success in between starts the count again)
    open       calls are refused with CircuitOpen until `reset_after` seconds have passed
    half_open  at most `half_open_max` probes at a time; a success closes it, a failure opens it again

Only failures of the service count (`counts_as_failure`): a bad request says nothing about its health. Takes
`now`, never waits. A callback runs after the state has changed, so one that raises cannot leave the breaker
half-way; with `tells=False` the owner of the breaker runs the callback, for the new state that it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

from lyra.core.checking.check import FrozenSettings, check_integer, real
from lyra.core.clock import Clock, SystemClock
from lyra.core.policies.rate import RateLimit, TokenBucket
from lyra.core.policies.retry import RETRYABLE, error_class
from lyra.errors import CircuitOpen, ConfigError

# (state, event) → next state. A pair that is missing changes nothing: it comes from a call that was
# made before the breaker opened.
TRANSITIONS: Final[dict[tuple[str, str], str]] = {
    ("closed", "threshold"): "open",
    ("open", "reset"): "half_open",
    ("half_open", "success"): "closed",
    ("half_open", "failure"): "open",
}


def counts_as_failure(error: BaseException) -> bool:
    """Return whether an error says something about the service's health: only errors that a later try may not have."""
    return isinstance(error, Exception) and not isinstance(error, CircuitOpen) and error_class(error) in RETRYABLE


class CircuitBreaker(FrozenSettings, frozen=True):
    """`threshold` failures in a row open it (0: never), for `reset_after` seconds.

    What counts as one is every try (`per="try"`), or a call that failed after all its retries (`per="call"`).
    """

    CALLBACKS: ClassVar[tuple[str, ...]] = ("on_open", "on_close")
    WORD: ClassVar[str] = "circuit_breaker"

    threshold: int = 5
    reset_after: float = 30.0
    half_open_max: int = 1
    on_open: Callable[[], object] | None = None
    on_close: Callable[[], object] | None = None
    per: str = "try"

    def __post_init__(self) -> None:
        self._put(
            threshold=check_integer(self.threshold, "threshold", most=10**9),
            reset_after=real(self.reset_after, "reset_after"),
            half_open_max=check_integer(self.half_open_max, "half_open_max", least=1, most=10**9),
        )
        if self.per not in ("try", "call"):
            raise ConfigError('per is "try" or "call"', key="per")
        for name in self.CALLBACKS:
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                raise ConfigError(f"{name} is a function without arguments", key=name)

    def callback(self, state: str) -> Callable[[], object] | None:
        """Return the callback for that state, if there is one."""
        return {"open": self.on_open, "closed": self.on_close}.get(state)

    @classmethod
    def of(cls, value: Any) -> CircuitBreaker:
        return value if isinstance(value, CircuitBreaker) else cls.from_data(value)


class Breaker:
    """The state of one CircuitBreaker. Each `admit` is followed by a `success`, `failure` or `abandon`."""

    __slots__ = ("_opened_at", "_probes", "_tells", "circuit_breaker", "failures", "state")

    def __init__(self, circuit_breaker: CircuitBreaker, *, tells: bool = True) -> None:
        self.circuit_breaker = circuit_breaker
        self._tells = tells
        self.state = "closed"
        self.failures = 0  # in a row
        self._opened_at = 0.0
        self._probes = 0  # in flight while half open

    def admit(self, now: float) -> None:
        """Return if a call may be made now, or raise CircuitOpen with `retry_after_s`."""
        if self.state == "closed":
            return
        wait = self._opened_at + self.circuit_breaker.reset_after - now
        if self.state == "open":
            if wait > 0.0:
                raise CircuitOpen(
                    "the circuit breaker is open", hint="wait, or look at the service", retry_after_s=wait
                )
            self._move("reset", now)
        if self._probes >= self.circuit_breaker.half_open_max:
            raise CircuitOpen("the circuit breaker is waiting for its probe", retry_after_s=max(wait, 0.0))
        self._probes += 1

    def ready_in(self, now: float) -> float:
        """Seconds until it admits a call again."""
        left = self._opened_at + self.circuit_breaker.reset_after - now
        return max(left, 0.0) if self.state == "open" else 0.0

    @property
    def at_rest(self) -> bool:
        """Closed without failures or probes, so that another success changes nothing."""
        return self.state == "closed" and not self.failures and not self._probes

    def success(self, now: float) -> str | None:
        """Record a successful call; gives the new state if that changed it."""
        self.failures = 0
        if self.state == "closed":
            self._probes = 0
            return None
        self._end_probe()
        return self._move("success", now)

    def failure(self, now: float) -> str | None:
        """Record a failed call that counts; gives the new state if that changed it."""
        self._end_probe()
        self.failures += 1
        if self.state == "closed" and not 0 < self.circuit_breaker.threshold <= self.failures:
            return None
        return self._move("threshold" if self.state == "closed" else "failure", now)

    def abandon(self) -> None:
        """End a call that says nothing about the service (it was cancelled); its probe is free again."""
        self._end_probe()

    def to_data(self, now: float) -> list[Any]:
        """Its state, the failures in a row, and how long it has been open. Probes are not saved: they belong to
        calls."""
        return [self.state, self.failures, now - self._opened_at if self.state != "closed" else 0.0]

    def load(self, data: list[Any], now: float) -> None:
        """Restore what `to_data` gave; the caller has added the time since then to the last item."""
        self.state, self.failures = str(data[0]), int(data[1])
        self._opened_at = now - float(data[2])

    def readmit(self) -> None:
        """Count a resumed call that was admitted before a restart."""
        if self.state == "half_open":
            self._probes += 1

    def _end_probe(self) -> None:
        self._probes = max(self._probes - 1, 0)

    def _move(self, happened: str, now: float) -> str | None:
        state = TRANSITIONS.get((self.state, happened))
        if state is None:
            return None
        self.state = state
        self._probes = 0
        if state == "open":
            self._opened_at = now
        callback = self.circuit_breaker.callback(state) if self._tells else None
        if callback is not None:
            callback()
        return state


# Admission: the state of one effect's rate limit and circuit breaker, and how long it lasts.


class Admission:
    """The token bucket and the circuit breaker of one effect; None where it has none."""

    __slots__ = ("breaker", "bucket")

    def __init__(self, limit: RateLimit | None, circuit_breaker: CircuitBreaker | None) -> None:
        self.bucket = TokenBucket(limit) if limit is not None else None
        self.breaker = Breaker(circuit_breaker, tells=False) if circuit_breaker is not None else None


class Admissions:
    """The Admissions of one effect, by clock."""

    __slots__ = ("_breaker", "_clock", "_limit", "_moved", "_real")

    def __init__(self, limit: RateLimit | None, circuit_breaker: CircuitBreaker | None) -> None:
        self._limit = limit
        self._breaker = circuit_breaker
        self._real: Admission | None = None
        self._moved: Admission | None = None
        self._clock: Clock | None = None

    def on(self, clock: Clock) -> Admission:
        """Return the Admission whose times are from that clock."""
        if isinstance(clock, SystemClock):
            if self._real is None:
                self._real = Admission(self._limit, self._breaker)
            return self._real
        if self._moved is None or self._clock is not clock:
            self._moved, self._clock = Admission(self._limit, self._breaker), clock
        return self._moved
