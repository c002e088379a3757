"""What the hosts of `test_cluster_budget` run: a provider that writes down what it performed, outside all journals."""

from __future__ import annotations

import asyncio
from typing import Any

from lyra.core.budgets.budget import Usage
from lyra.core.policies.policy import RateLimit
from lyra.errors import BudgetExceeded, RateLimited

COST = 100  # micro-dollars


async def charge(file: str) -> int:
    _note(file)
    await asyncio.sleep(0.002)
    return COST


def _note(file: str) -> None:
    with open(file, "a", encoding="utf-8") as lines:
        lines.write(f"{COST}\n")


async def spend(ctx: Any, file: str) -> int:
    """Spend until the budget is over; gives how often that went well."""
    done = 0
    while True:
        try:
            await ctx.do(charge, file, cost=Usage(usd=COST), idempotent=True)
        except BudgetExceeded:
            return done
        done += 1


async def ask_often(ctx: Any, file: str, count: int) -> int:
    """Call what has a rate limit, and is refused beyond it; gives how often it was let through."""
    passed = 0
    limit = RateLimit(requests_per_minute=6, burst=12, strategy="reject")
    for _ in range(count):
        try:
            await ctx.do(charge, file, rate_limit=limit)
        except RateLimited:
            continue
        passed += 1
    return passed


def setup(kernel: Any) -> None:
    kernel.register(spend)
    kernel.register(ask_often)
