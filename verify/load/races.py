"""Races for money: many spenders, nested budgets, every interleaving a function of its seed.

Each spender is a generator that reserves, yields, and then settles, releases or reserves more; a seeded
generator picks who goes next, which is all that concurrency on one loop can do. After every step no scope
may hold more than its limit, and at the end each scope must have used exactly what was spent in it and
below it. `run` prints nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from lyra.core.budgets.budget import DIMENSIONS, NOTHING, Budget, Reservation, Usage
from lyra.core.ids import ProcessRandom, make_random
from lyra.core.policies.policy import RateLimit, TokenBucket
from lyra.errors import BudgetExceeded

__all__ = ["RacesResult", "budget_race", "rate_race", "run"]

SPENDERS = 64


class RacesResult(NamedTuple):
    """How many schedules ran, from which seed, and what went wrong (a sentence and the seed of each)."""

    schedules: int
    seed: int
    failures: list[str]


def run(schedules: int, seed: int = 0) -> RacesResult:
    """Run that many schedules; schedule i is a function of `seed + i`."""
    failures: list[str] = []
    for offset in range(schedules):
        for race in (budget_race, rate_race):
            problem = race(seed + offset)
            if problem:
                failures.append(f"{race.__name__} seed {seed + offset}: {problem}")
    return RacesResult(schedules, seed, failures)


# ---------------------------------------------------------------- budgets
def budget_race(seed: int) -> str | None:
    """One schedule of 64 spenders over a random tree of scopes; the first broken promise, or None."""
    rng = make_random(seed)
    scopes = _random_tree(rng)
    spent: dict[int, dict[str, int]] = {id(scope): dict.fromkeys(DIMENSIONS, 0) for scope in scopes}
    spenders = [_spend(rng.choice(scopes), rng, spent) for _ in range(SPENDERS)]
    while spenders:
        spender = rng.choice(spenders)
        if next(spender, None) is None:
            spenders.remove(spender)
        problem = _over_limit(scopes)
        if problem:
            return problem
    return _not_conserved(scopes, spent)


def _random_tree(rng: ProcessRandom) -> list[Budget]:
    scopes = [Budget(**_random_limits(rng), name="root")]
    for index in range(rng.randrange(1, 9)):
        scopes.append(rng.choice(scopes).child(**_random_limits(rng), name=f"scope-{index}"))
    return scopes


def _random_limits(rng: ProcessRandom) -> dict[str, Any]:
    chosen = rng.sample(DIMENSIONS, rng.randrange(1, 4))
    return {dimension: rng.randrange(0, 60) for dimension in {"usd", *chosen}}


def _spend(scope: Budget, rng: ProcessRandom, spent: dict[int, dict[str, int]]) -> Iterator[bool]:
    """Reserve, wait, settle with no more than was reserved, or release; a few times."""
    for _ in range(rng.randrange(1, 4)):
        asked = Usage(**{name: rng.randrange(0, 9) for name in rng.sample(DIMENSIONS, rng.randrange(1, 3))})
        try:
            reservation = scope.reserve(asked)
        except BudgetExceeded:
            yield True
            continue
        yield True
        _finish(scope, reservation, rng, spent)
        yield True


def _finish(scope: Budget, reservation: Reservation, rng: ProcessRandom, spent: dict[int, dict[str, int]]) -> None:
    asked = reservation.usage
    choice = rng.randrange(3)
    if choice == 0:
        scope.release(reservation)
        actual = NOTHING
    elif choice == 1:
        scope.settle(reservation)
        actual = asked
    else:
        actual = Usage(**{name: rng.randrange(0, amount + 1) for name, amount in asked.to_data().items()})
        scope.settle(reservation, actual)
    holder: Budget | None = scope
    while holder is not None:
        for name, amount in actual.to_data().items():
            spent[id(holder)][name] += amount
        holder = holder.parent


def _over_limit(scopes: list[Budget]) -> str | None:
    return next((f"{scope!r} is over a limit" for scope in scopes if not scope.within()), None)


def _not_conserved(scopes: list[Budget], spent: dict[int, dict[str, int]]) -> str | None:
    for scope in scopes:
        for name in DIMENSIONS:
            if scope.used(name) != spent[id(scope)][name] or scope.reserved(name) != 0:
                return f"{scope.name} counts {scope.used(name)} {name}, {spent[id(scope)][name]} were spent"
    return None


# ---------------------------------------------------------------- rates
def rate_race(seed: int) -> str | None:
    """64 calls by callers of random patience: in any t seconds at most burst + rate × t of them pass."""
    rng = make_random(seed)
    limit = RateLimit(
        requests_per_minute=rng.randrange(1, 600),
        tokens_per_minute=rng.randrange(100, 10_000),
        burst=rng.randrange(1, 20),
    )
    bucket = TokenBucket(limit)
    now = rng.uniform(0, 2e9)
    admitted: list[tuple[float, int]] = []
    for _ in range(SPENDERS):
        tokens = rng.randrange(0, 100)
        wait = bucket.take(now, tokens)
        if wait == 0.0:
            admitted.append((now, tokens))
        now += wait * rng.uniform(0, 1.2) if wait else rng.uniform(0, 0.5)
    return _too_fast(admitted, limit)


def _too_fast(admitted: list[tuple[float, int]], limit: RateLimit) -> str | None:
    requests_per_s = (limit.requests_per_minute or 0) / 60
    tokens_per_s = (limit.tokens_per_minute or 0) / 60
    for first in range(len(admitted)):
        tokens = 0
        for last in range(first, len(admitted)):
            seconds = admitted[last][0] - admitted[first][0]
            tokens += admitted[last][1]
            if last - first + 1 > (limit.burst or 0) + requests_per_s * seconds + 1e-3:
                return f"{last - first + 1} requests in {seconds:.3f} s"
            if tokens > (limit.tokens_per_minute or 0) + tokens_per_s * seconds + 1e-3:
                return f"{tokens} tokens in {seconds:.3f} s"
    return None
