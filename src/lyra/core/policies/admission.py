"""Admission: the state of one effect's rate limit and circuit breaker, and how long it lasts.

A kernel makes an Admission at its first use of an effect. An effect that outlives kernels (that of an Agent, used by
many calls of `lyra.run`) keeps its own in an `Admissions`: one for the machine's clock, and one for a clock that a test
moves, since the times of two clocks cannot be compared.
"""

from __future__ import annotations

from lyra.core.clock import Clock, SystemClock
from lyra.core.policies.breaker import Breaker, CircuitBreaker
from lyra.core.policies.rate import RateLimit, TokenBucket


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
        """The Admission whose times are from that clock."""
        if isinstance(clock, SystemClock):
            if self._real is None:
                self._real = Admission(self._limit, self._breaker)
            return self._real
        if self._moved is None or self._clock is not clock:
            self._moved, self._clock = Admission(self._limit, self._breaker), clock
        return self._moved
