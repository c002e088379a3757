"""Retry, rate limit and circuit breaker around a service that fails.

    python examples/flaky_service.py

The service answers every third call and is down for a while in the middle. Retries take care of the first; the breaker
notices the second and stops asking; the rate limit holds all processes together to 600 calls a minute.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from lyra import Backoff, CircuitBreaker, Context, Kernel, RateLimit, Retry, effect
from lyra.errors import CircuitOpen, LyraError

calls: Counter[str] = Counter()


class Unavailable(Exception):
    """A foreign error with an HTTP status: Retry reads it."""

    status = 503


@effect(
    idempotent=True,
    timeout_s=1.0,
    retry=Retry(max_attempts=4, backoff=Backoff(initial_s=0.01, factor=2, max_s=0.1)),
    rate_limit=RateLimit(requests_per_minute=600, burst=20),
    circuit_breaker=CircuitBreaker(threshold=6, reset_after=0.2),
)
async def fetch(item: int, *, down: bool = False) -> str:
    calls["made"] += 1
    if down or calls["made"] % 3:
        raise Unavailable("503 service unavailable")
    return f"item {item}"


async def client(ctx: Context) -> dict[str, Any]:
    got = [await ctx.do(fetch, item) for item in range(3)]
    refused = ""
    for item in range(3, 6):
        try:
            await ctx.do(fetch, item, down=True)
        except CircuitOpen as error:
            refused = f"{error.code}: {error}"
        except (LyraError, Unavailable):
            pass  # four tries, four failures
    await ctx.sleep(0.3)  # the breaker lets a probe through after 0.2 s
    while True:
        try:
            got.append(await ctx.do(fetch, 6))
            break
        except CircuitOpen:
            await ctx.sleep(0.25)
    return {"got": got, "refused": refused}


async def main() -> dict[str, Any]:
    async with Kernel() as kernel:
        kernel.on_event(lambda event: calls.update([event.kind]))
        result: dict[str, Any] = await kernel.run(client)
        print(", ".join(result["got"]))
        print(result["refused"])
        print(f"{calls['made']} calls, {calls['effect.retried']} retries")
        return result


if __name__ == "__main__":
    asyncio.run(main())
