"""Rate limits and circuit breakers over shards: the home of a limit lends shares of it, for a second.

A limit of effects or agents (`gates`) has one home shard, by its name. There it is a token bucket; the other shards,
and the home itself, borrow requests and tokens from it in shares. A share that is lent counts as in the bucket until it
was told to be used, or is over: what a bucket has and what is lent of it is never more than the bucket holds, so that
no period of any length sees more than the burst and what was refilled in it, whenever a share is used. What is not used
goes back with the next call, or when the share is over.

The calls are no posts. The home writes the level that is left before it answers, so a later life of it, which knows
nothing of the shares, lends nothing until they are over and goes on from there.

A circuit breaker stays local. When it opens or closes, a post tells the other shards, whose own does the same: late by
a message, and each is right about what it has seen itself.

Requests (`SharedRates`) are counted over shards: `kernel.check_rate_limit` of a shard is to be awaited, since it asks
the home of the user and the endpoint, where the four windows are as in one kernel, so that no period has more requests
than the limit. The limits that hold for the user where it is asked travel with the question; limits that are set on one
shard are posted to the others. A share that is lent would make a window inexact.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

import msgspec

from lyra.core.limits import EFFECTS_KEPT
from lyra.core.policies.policy import RateLimit
from lyra.errors import Conflict, LyraError, ProcessError, Unreachable
from lyra.kernel.remote.part import RemotePart
from lyra.kernel.workers.rate_limits import RateLimitConfig, RateLimiter, RateLimitResult

if TYPE_CHECKING:
    from lyra.kernel.assembly import KernelParts
    from lyra.kernel.remote.posts import Remote


SHARE_S: Final = 1.0  # that a share may be used, counted from before it was asked for
_GRACE_S: Final = 1.0  # longer that the home keeps it, for the answer what was used of it
_RETRY_S: Final = 0.1  # after a call of the home that failed
_WAITS_A_BURST: Final = 8  # the pause between two calls is at least this part of the time in which a bucket fills
_PAUSE_MOST_S: Final = 0.05
_FIRST_REQUESTS: Final = 4  # of a first share; the next one is twice as large where all was used

Call = Callable[..., Awaitable[Any]]
_PATIENCE_S: Final = 10.0  # while the home moves from one host to another
_PAUSE_S: Final = 0.1


class HomeBucket:
    """The bucket of one limit at its home: requests and tokens, infinite where there is no limit on them."""

    def __init__(self, limits: list[int | None], levels: list[float] | None, now: float, ready_s: float) -> None:
        self._take_limits(limits)
        self.level = [math.inf if math.isinf(most) else most for most in self.capacity]
        if levels is not None:
            self.level = [min(most, level) for most, level in zip(self.capacity, levels, strict=True)]
        self.ready_s = now if levels is None else ready_s  # lends nothing before, and is not refilled
        self.lent: dict[tuple[str, int], tuple[list[float], float]] = {}  # shard and number → amounts, when it is over
        self.refilled_s = self.ready_s
        self.number = 0

    def _take_limits(self, limits: list[int | None]) -> None:
        rpm, tpm, burst = self.limits = limits
        self.capacity = [float(burst or rpm) if rpm else math.inf, float(tpm) if tpm else math.inf]
        self.per_s = [(rpm or 0) / 60.0, (tpm or 0) / 60.0]

    def change(self, limits: list[int | None]) -> None:
        """Take other limits from now on: no more is left than fits beside what is lent, and nothing where there was no
        limit before."""
        before = self.capacity
        self._take_limits(limits)
        for place in (0, 1):
            lent = sum(amounts[place] for amounts, _ in self.lent.values())
            left = 0.0 if math.isinf(before[place]) else self.level[place]
            most = self.capacity[place]
            self.level[place] = most if math.isinf(most) else min(left, max(0.0, most - lent))

    def refill(self, now: float) -> None:
        passed_s = max(0.0, now - self.refilled_s)
        self.refilled_s = max(self.refilled_s, now)
        for place in (0, 1):
            if not math.isinf(self.capacity[place]):
                lent = sum(amounts[place] for amounts, _ in self.lent.values())
                most = self.capacity[place] - lent
                level = self.level[place]
                self.level[place] = max(level, min(most, level + passed_s * self.per_s[place]))
        for share in [share for share, (_, over_s) in self.lent.items() if over_s <= now]:
            del self.lent[share]

    def take_back(self, share: tuple[str, int], unused: list[float]) -> None:
        """Set free what was not used of a share; below zero, where more tokens were used than were lent."""
        kept = self.lent.pop(share, None)
        for place in (0, 1):
            if kept is not None or unused[place] < 0:
                self.level[place] += min(unused[place], math.inf if kept is None else kept[0][place])

    def lend(self, shard: str, need: list[float], want: list[float], now: float) -> list[float] | float:
        """Return what is lent, at least `need`, or the seconds until that fits."""
        wait_s = max(0.0, self.ready_s - now)
        for place in (0, 1):
            missing = min(need[place], self.capacity[place]) - self.level[place]
            if missing > 1e-6:
                wait_s = max(wait_s, missing / self.per_s[place])
        if wait_s > 0:
            return wait_s
        halves = [level / 2 for level in self.level]
        if not math.isinf(halves[0]):
            halves[0] = float(math.floor(halves[0]))
        amounts = [max(need[place], min(want[place], halves[place])) for place in (0, 1)]
        self.number += 1
        self.lent[shard, self.number] = (amounts, now + SHARE_S + _GRACE_S)
        for place in (0, 1):
            self.level[place] -= amounts[place]
        return amounts


class SharedBucket:
    """What a gate has of a limit in the place of a token bucket of its own: the share that this shard holds."""

    is_unused = False

    def __init__(self, shares: Shares, name: str, limit: RateLimit) -> None:
        self._shares = shares
        self._name = name
        self._limits = [limit.requests_per_minute, limit.tokens_per_minute, limit.burst]
        self._left = [0.0, 0.0]
        self._lent = [0.0, 0.0]
        self._number = 0  # of the share, 0 for none that is to be given back
        self._over_s = -math.inf
        self._fetching: asyncio.Task[float] | None = None
        per_s, most = (limit.requests_per_minute or 60) / 60.0, limit.burst or limit.requests_per_minute or 1
        self._pause_s = min(_PAUSE_MOST_S, most / per_s / _WAITS_A_BURST)

    def take(self, now: float, tokens: int = 0) -> float:
        """Take one request and `tokens` of the share, or give the seconds after which to ask again."""
        left = self._left
        if now < self._over_s and left[0] >= 1 and (left[1] >= tokens or self._limits[1] is None):
            left[0] -= 1
            left[1] -= tokens
            return 0.0
        return self._pause_s

    async def fetch(self, tokens: int) -> float:
        """Get a share; gives the seconds until one may be had. Callers at one time make one call."""
        if self._fetching is None:
            work = self._fetch([1.0, float(tokens)])
            self._fetching = self._shares.core.tasks.start(work, name=f"lyra-share {self._name}")
            self._fetching.add_done_callback(self._end_fetch)
        return await asyncio.shield(self._fetching)

    def _end_fetch(self, _: Any) -> None:
        self._fetching = None

    async def _fetch(self, need: list[float]) -> float:
        began_s = self._shares.now()
        used = self._lent[0] - self._left[0]
        requests = max(_FIRST_REQUESTS, 2 * used) if self._left[0] < 1 else max(1.0, used)
        want = [requests, max(need[1], requests * need[1])] if need[0] else [0.0, 0.0]
        data = {"limits": self._limits, "need": need, "want": want, **self._give_up()}
        try:
            answer = await self._shares.ask(self._name, data)
        except LyraError:
            return _RETRY_S
        if "wait_s" in answer:
            return max(float(answer["wait_s"]), self._pause_s)
        if need[0]:
            self._number, self._lent = answer["number"], [float(amount) for amount in answer["lent"]]
            self._left, self._over_s = list(self._lent), began_s + SHARE_S
            self._shares.call_at(self._over_s, partial(self._on_over, self._number))
        return 0.0

    def _give_up(self) -> dict[str, Any]:
        """Return what is told of the share that ends here."""
        told = {"number": self._number, "unused": self._left}
        self._number, self._left, self._lent, self._over_s = 0, [0.0, 0.0], [0.0, 0.0], -math.inf
        return told

    def _on_over(self, number: int) -> None:
        if number == self._number and self._fetching is None and not self._shares.core.stopping:
            self._fetching = self._shares.core.tasks.start(self._fetch([0.0, 0.0]), name=f"lyra-share {self._name}")
            self._fetching.add_done_callback(self._end_fetch)

    def refund(self, tokens: int = 0) -> None:
        """Give back the request and the tokens of a call that was never made."""
        if self._number:
            self._left[0] = min(self._left[0] + 1, self._lent[0])
            self.adjust(-tokens)

    def adjust(self, tokens: int) -> None:
        """Note that a call used `tokens` more (negative: fewer) than were taken for it."""
        self._left[1] = min(self._left[1] - tokens, self._lent[1])

    def ready_in(self, now: float, requests: int) -> float:  # noqa: ARG002 (as of a bucket)
        """Seconds until so many requests fit, as far as this shard knows."""
        return 0.0

    def to_data(self, now: float) -> list[float | None]:  # noqa: ARG002 (as of a bucket)
        """Return no levels: those are the home's."""
        return [None, None]

    def load(self, levels: list[float | None], now: float) -> None:
        """Load nothing: a share does not outlive its kernel."""


class Shares(RemotePart):
    """See the module."""

    NAME: ClassVar[str] = "shares"
    SENDS: ClassVar[frozenset[str]] = frozenset({"breaker.moved"})

    def __init__(self, parts: KernelParts, remote: Remote) -> None:
        self.core = parts.core
        self._declared = parts.declared
        self._remote = remote
        self.call: Call | None = None  # filled in by the cluster
        self.levels: dict[str, list[float]] = {}  # by limit, as of the last share that was lent
        self._buckets: dict[str, HomeBucket] = {}
        self._opened_s = 0.0

    def apply_noted(self, pid: str, time: float, data: dict[str, Any]) -> None:  # noqa: ARG002 (one signature)
        self.levels.pop(data["limit"], None)
        self.levels[data["limit"]] = data["levels"]
        if len(self.levels) > EFFECTS_KEPT:
            del self.levels[next(iter(self.levels))]

    def dump(self) -> Any:
        return {"levels": self.levels}

    def load(self, data: Any) -> None:
        self.levels = {str(name): [float(level) for level in levels] for name, levels in data["levels"].items()}

    def on_restored(self) -> None:
        self._opened_s = self.now()

    def now(self) -> float:
        return self.core.elapsed()

    def call_at(self, when_s: float, callback: Callable[[], None]) -> None:
        clock = self.core.clock
        clock.call_at(clock.monotonic() + max(0.0, when_s - self.now()), callback)

    def make_bucket(self, name: str, limit: RateLimit) -> SharedBucket | None:
        """Return what a gate uses for a limit that holds over all shards; None where there is no cluster to ask."""
        return None if self.call is None else SharedBucket(self, name, limit)

    def tell_breaker(self, gate: str, state: str, failures: int) -> None:
        """Tell the other shards that a breaker has opened or closed here."""
        data = {"gate": gate, "breaker": [state, failures, 0.0]}
        for shard in self._remote.shards:
            if shard != self._remote.shard:
                self._remote.post(shard, "breaker.moved", data, refusable=False)

    def take(self, sender: str, what: str, data: dict[str, Any], before: Any) -> None:  # noqa: ARG002 (one signature)
        """Move the breaker of that gate, or have the gate begin so when its first call is made."""
        gate = next((gate for gate in self._declared.gates.values() if gate.label == data["gate"]), None)
        if gate is None:
            row = {"gate": data["gate"], "levels": None, "breaker": data["breaker"]}
            self.core.fact(self._declared.gate_state, "", "gate.moved", row)
        else:
            gate.move_breaker(data["breaker"])

    async def ask(self, name: str, data: dict[str, Any]) -> dict[str, Any]:
        """Ask the home of a limit for a share."""
        assert self.call is not None
        home = self._remote.home_of(f"rate {name}")
        asked = {**data, "shard": home, "name": name, "from": self._remote.shard}
        answer: dict[str, Any] = await self.call(home, "share", asked)
        return answer

    async def answer(self, data: dict[str, Any]) -> dict[str, Any]:
        """Lend a share of a limit, as its home."""
        core, name, now = self.core, data["name"], self.now()
        core.raise_if_closed()
        bucket = self._buckets.get(name)
        if bucket is None:
            if len(self._buckets) >= EFFECTS_KEPT:
                self._buckets = {kept: lending for kept, lending in self._buckets.items() if lending.lent}
            ready_s = max(self._opened_s, now) + SHARE_S if name in self.levels else now
            bucket = self._buckets[name] = HomeBucket(data["limits"], self.levels.get(name), now, ready_s)
        bucket.refill(now)
        if bucket.limits != data["limits"]:
            bucket.change(data["limits"])
        if data["number"]:
            bucket.take_back((data["from"], data["number"]), data["unused"])
        if not data["need"][0]:
            return {}
        lent = bucket.lend(data["from"], data["need"], data["want"], now)
        if isinstance(lent, float):
            return {"wait_s": lent}
        number = bucket.number
        row = self._remote.note(self, {"limit": name, "levels": [min(level, 1e18) for level in bucket.level]})
        if core.journal is not None:
            await core.journal.wait_until_durable(row)
        return {"number": number, "lent": [min(amount, 1e18) for amount in lent]}


class RateQuestion:
    """What `check_rate_limit` gives in a shard: await it for the result."""

    __slots__ = ("_ask",)

    def __init__(self, ask: Callable[[], Awaitable[RateLimitResult]]) -> None:
        self._ask = ask

    def __await__(self) -> Generator[Any, None, RateLimitResult]:
        return self._ask().__await__()

    def __getattr__(self, name: str) -> NoReturn:
        raise ProcessError(
            "requests of a cluster are counted at their home, which has to be asked",
            hint="await kernel.check_rate_limit(…)",
        )


class SharedRates(RemotePart):
    """See the module."""

    SENDS: ClassVar[frozenset[str]] = frozenset({"rate.limited"})

    def __init__(self, parts: KernelParts, remote: Remote) -> None:
        self._parts = parts
        self._remote = remote
        self.call: Callable[..., Awaitable[Any]] | None = None  # filled in by the cluster

    @property
    def _limiter(self) -> RateLimiter:
        return self._parts.rate_limiter

    def ask(self, user_id: str, endpoint: str, config: RateLimitConfig, *, record: bool) -> Any:
        return RateQuestion(lambda: self.check(user_id, endpoint, config, record=record))

    async def check(
        self, user_id: str, endpoint: str, config: RateLimitConfig, *, record: bool = True, durable: bool = True
    ) -> RateLimitResult:
        """Ask the home whether one more request fits, and count it there. A question whose answer was lost may have
        been counted; it is asked again."""
        if self.call is None:
            return self._limiter._check_with(config, user_id, endpoint, record=record)
        home = self._remote.home_of(f"rate {endpoint} {user_id}")
        data = {"user": user_id, "endpoint": endpoint, "config": config.to_data(), "record": record, "durable": durable}
        clock = self._parts.core.clock
        until_s = clock.monotonic() + _PATIENCE_S
        while True:
            try:
                return msgspec.convert(await self.call(home, "rate", {**data, "shard": home}), RateLimitResult)
            except (Conflict, Unreachable) as error:
                lost: LyraError = error
            if clock.monotonic() >= until_s:
                raise lost
            await asyncio.sleep(_PAUSE_S)

    async def answer(self, data: dict[str, Any]) -> dict[str, Any]:
        """Check a limit as the home of its user and endpoint."""
        config = RateLimitConfig(**data["config"])
        result = self._limiter._check_with(config, data["user"], data["endpoint"], record=data["record"])
        if data["durable"]:
            await result
        told: dict[str, Any] = msgspec.to_builtins(result)
        return told

    def tell_limits(self, data: dict[str, Any]) -> None:
        """Have the other shards set the limits that were set here."""
        for shard in self._remote.shards:
            if shard != self._remote.shard:
                self._remote.post(shard, "rate.limited", data, refusable=False)

    def take(self, sender: str, what: str, data: dict[str, Any], before: Any) -> None:  # noqa: ARG002 (one signature)
        """Set limits that another shard has set."""
        self._parts.core.fact(self._limiter.state, "", "rate.limited", data)
