"""Rate limits: how many requests and tokens a minute, declared and counted.

`RateLimit` is the declaration, `TokenBucket` its state: one bucket of requests and one of tokens, both
refilled steadily. A bucket answers "now" or "in so many seconds" and never waits; the kernel decides which
callers wait, and in which order (`strategy`: `queue` waits its turn, `reject` raises RateLimited,
`backpressure` waits and tells the callers behind it).
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from lyra.core.checking.check import FrozenSettings, check_integer, one_of
from lyra.errors import ConfigError

STRATEGIES: Final = ("queue", "reject", "backpressure")
_SLACK: Final = 1e-6  # of one request: clocks are floats, and after the wait it was told a caller must pass
_WAIT_S_MIN: Final = 1e-4  # a shorter wait may not move a float clock at all


class RateLimit(FrozenSettings, frozen=True):
    """At most so many requests and tokens a minute; `burst` requests at once (unsaid, a minute's worth)."""

    WORD: ClassVar[str] = "rate_limit"

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    burst: int | None = None
    strategy: str = "queue"

    def __post_init__(self) -> None:
        for name in ("requests_per_minute", "tokens_per_minute", "burst"):
            if getattr(self, name) is not None:
                self._put(**{name: check_integer(getattr(self, name), name, least=1, most=10**12)})
        if self.requests_per_minute is None and self.tokens_per_minute is None:
            raise ConfigError(
                "a rate limit says requests_per_minute, tokens_per_minute or both", key="requests_per_minute"
            )
        if self.burst is not None and self.requests_per_minute is None:
            raise ConfigError("burst is a number of requests: it needs requests_per_minute", key="burst")
        one_of(self.strategy, STRATEGIES, "strategy")

    @classmethod
    def of(cls, value: Any) -> RateLimit:
        return value if isinstance(value, RateLimit) else cls.from_data(value)


class _Bucket:
    """One level between `capacity` and, in debt, below zero. Each call that is admitted passes here three times, so
    the arithmetic is written out in TokenBucket."""

    __slots__ = ("capacity", "level", "per_s")

    def __init__(self, capacity: float, per_minute: float) -> None:
        self.capacity = self.level = float(capacity)
        self.per_s = per_minute / 60.0

    def wait(self, amount: float) -> float:
        """Seconds until `amount` fits; what is more than a full bucket fits then, and leaves it in debt."""
        if amount <= self.level:
            return 0.0
        missing = min(amount, self.capacity) - self.level
        return 0.0 if missing <= _SLACK else max(missing / self.per_s, _WAIT_S_MIN)


class TokenBucket:
    """The state of one RateLimit; starts full."""

    __slots__ = ("_buckets", "_refilled_at", "_requests", "_tokens")

    def __init__(self, rate_limit: RateLimit) -> None:
        rpm, tpm = rate_limit.requests_per_minute, rate_limit.tokens_per_minute
        self._requests = _Bucket(rate_limit.burst or rpm, rpm) if rpm else None
        self._tokens = _Bucket(tpm, tpm) if tpm else None
        self._buckets = tuple([bucket for bucket in (self._requests, self._tokens) if bucket is not None])
        self._refilled_at: float | None = None

    def take(self, now: float, tokens: int = 0) -> float:
        """Take one request and `tokens` and give 0.0, or take nothing and give the seconds to wait."""
        self._refill(now)
        requests, counted = self._requests, self._tokens
        wait = 0.0 if requests is None or requests.level >= 1 else requests.wait(1)
        if counted is not None and counted.level < tokens:
            wait = max(wait, counted.wait(tokens))
        if wait == 0.0:
            if requests is not None:
                requests.level -= 1
            if counted is not None:
                counted.level -= tokens
        return wait

    def ready_in(self, now: float, requests: int) -> float:
        """Seconds until so many requests fit (at most a full bucket) and the bucket of tokens is full."""
        if self.is_unused:  # still full
            return 0.0
        self._refill(now)
        wait = 0.0 if self._requests is None else self._requests.wait(requests)
        return wait if self._tokens is None else max(wait, self._tokens.wait(self._tokens.capacity))

    def refund(self, tokens: int = 0) -> None:
        """Give back the request and the tokens of a call that was never made."""
        requests = self._requests
        if requests is not None:
            requests.level = min(requests.capacity, requests.level + 1)
        self.adjust(-tokens)

    def adjust(self, tokens: int) -> None:
        """Correct the level: the call used `tokens` more (negative: fewer) than were taken for it."""
        counted = self._tokens
        if counted is not None:
            level = counted.level - tokens
            counted.level = level if level < counted.capacity else counted.capacity

    def to_data(self, now: float) -> list[float | None]:
        """Return the levels as they are now: of requests, of tokens."""
        self._refill(now)
        return [None if bucket is None else bucket.level for bucket in (self._requests, self._tokens)]

    def load(self, levels: list[float | None], now: float) -> None:
        """Restore the levels as of the time `now`, on the clock of `take`."""
        for bucket, level in zip((self._requests, self._tokens), levels, strict=True):
            if bucket is not None and level is not None:
                bucket.level = min(float(level), bucket.capacity)
        self._refilled_at = now

    @property
    def is_unused(self) -> bool:
        return self._refilled_at is None

    def _refill(self, now: float) -> None:
        elapsed = 0.0 if self._refilled_at is None else now - self._refilled_at
        if self._refilled_at is None or elapsed > 0.0:  # a clock that went back refills nothing
            self._refilled_at = now
            for bucket in self._buckets:
                level = bucket.level + elapsed * bucket.per_s
                bucket.level = level if level < bucket.capacity else bucket.capacity
