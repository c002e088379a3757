"""64 spenders in nested Budgets: what one reserve and one settle cost when everybody's reservation is open at once."""

from __future__ import annotations

from benchmarks.measure import Row, Size, Stopwatch, Timing, interleave
from lyra.core.budgets.budget import Budget, Usage

_SPENDERS = 64


def _spend(rounds: int, depth: int) -> Timing:
    root = scope = Budget(usd="$1000000", llm_calls=10**12)
    for _ in range(depth - 2):
        scope = scope.child({"usd": "$500000"})
    leaves = [scope.child({"usd": "$10000"}) for _ in range(_SPENDERS)]
    cost = Usage(usd="$0.000010", llm_calls=1)
    with Stopwatch(rounds * _SPENDERS) as watch:
        for _ in range(rounds):
            held = [leaf.reserve(cost) for leaf in leaves]
            for leaf, reservation in zip(leaves, held, strict=True):
                leaf.settle(reservation, cost)
    assert root.usage["llm_calls"] == rounds * _SPENDERS
    return watch.timing


def _counters(rounds: int) -> Timing:
    """The least that could be called a budget: two counters, compared and raised."""
    usd, calls, most = [0] * _SPENDERS, [0] * _SPENDERS, 10**12
    with Stopwatch(rounds * _SPENDERS) as watch:
        for _ in range(rounds):
            for index in range(_SPENDERS):
                if usd[index] + 10 > most or calls[index] + 1 > most:
                    raise OverflowError
                usd[index] += 10
                calls[index] += 1
    return watch.timing


def run(size: Size) -> list[Row]:
    rounds = size.of(500, 3)
    best = interleave(
        {
            "two": lambda: _spend(rounds, 2),
            "four": lambda: _spend(rounds, 4),
            "counters": lambda: _counters(rounds),
        },
        size.repeats,
    )
    bare = "two bare counters"
    return [
        Row("reserve and settle, money and calls, 2 scopes deep", best["two"], bare, best["counters"]),
        Row("reserve and settle, money and calls, 4 scopes deep", best["four"], bare, best["counters"]),
    ]
