"""Rate limits that hold over all shards of a cluster."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from lyra.core.policies.policy import CircuitBreaker, RateLimit
from lyra.errors import CircuitOpen, ModelError, ProcessError, RateLimited
from lyra.testing import run_in_virtual_time
from tests.kernel.remote.budget_shards import Shards

CALLS: list[float] = []


async def ping() -> None:
    CALLS.append(asyncio.get_running_loop().time())


async def ping_on(ctx, until_s, limit):
    """Call as fast as the limit allows."""
    loop = asyncio.get_running_loop()
    while loop.time() < until_s:
        await ctx.do(ping, rate_limit=RateLimit(**limit))


async def ping_many(ctx, count, limit):
    passed = 0
    for _ in range(count):
        try:
            await ctx.do(ping, rate_limit=RateLimit(**limit))
        except RateLimited:
            continue
        passed += 1
    return passed


async def ping_in_bursts(ctx, seed, until_s, limit):
    """Call many times at once, after pauses of any length."""
    rng, loop = random.Random(seed), asyncio.get_running_loop()
    while loop.time() < until_s:
        await asyncio.sleep(rng.random() * 1.5)
        for _ in range(rng.randint(1, 8)):
            await ctx.do(ping, rate_limit=RateLimit(**limit))


PROGRAMS: list[Any] = [ping_on, ping_many, ping_in_bursts]


class RatedShards(Shards):
    """Shards that ask each other for shares; a call takes a moment each way."""

    async def open(self, name: str) -> Any:
        kernel = await super().open(name)
        kernel.core.remote.shares.call = self._call
        return kernel

    async def _call(self, shard: str, method: str, data: dict[str, Any]) -> Any:
        assert method == "share"
        await asyncio.sleep(0.002)
        kernel = self.kernels.get(shard)
        if kernel is None:
            raise ProcessError(f"shard {shard} is not open")
        answer = await kernel.core.remote.shares.answer(data)
        await asyncio.sleep(0.002)
        return answer


def most_above(calls: list[float], per_s: float) -> float:
    """Return by how much the calls of any period are more than those that it refills."""
    most = lowest = 0.0
    for number, at in enumerate(calls):
        lowest = min(lowest, number - at * per_s)
        most = max(most, number + 1 - at * per_s - lowest)
    return most


@pytest.mark.parametrize(("rpm", "burst"), [(6_000, 50), (600, None), (60, 5)])
def test_no_period_has_more_than_the_limit_and_nearly_all_of_it_is_used(rpm, burst):
    """Four shards call as fast as they may: what any period sees is inside the limit, and 99 % of it is used."""
    CALLS.clear()
    seconds = 60.0

    async def main():
        limit = {"requests_per_minute": rpm, **({} if burst is None else {"burst": burst})}
        async with RatedShards("a", "b", "c", "d", programs=PROGRAMS) as shards:
            handles = [kernel.spawn(ping_on, seconds, limit) for kernel in shards.kernels.values()]
            for handle in handles:
                await handle.wait()

    run_in_virtual_time(main())
    calls = [at for at in CALLS if at <= seconds]
    assert most_above(CALLS, rpm / 60) <= (burst or rpm) + 1e-3
    assert len(calls) >= 0.99 * ((burst or rpm) + rpm / 60 * seconds) - 4


def test_a_limit_of_tokens_alone_lets_requests_through():
    CALLS.clear()

    async def main():
        async with RatedShards("a", "b", "c", programs=PROGRAMS) as shards:
            limit = {"tokens_per_minute": 1_000}
            for kernel in shards.kernels.values():
                assert (await kernel.spawn(ping_many, 20, limit).wait()).result == 20

    run_in_virtual_time(main())
    assert len(CALLS) == 60


def test_a_share_that_is_used_late_is_no_second_burst():
    """Programs that wait with a share in hand, while the bucket would refill, do not pass the limit together."""
    CALLS.clear()

    async def main():
        limit = {"requests_per_minute": 6_000, "burst": 10}
        async with RatedShards("a", "b", "c", programs=PROGRAMS) as shards:
            handles = [
                kernel.spawn(ping_in_bursts, seed, 30.0, limit) for seed, kernel in enumerate(shards.kernels.values())
            ]
            for handle in handles:
                await handle.wait()

    run_in_virtual_time(main())
    assert len(CALLS) > 200
    assert most_above(CALLS, 100) <= 10 + 1e-3


@pytest.mark.parametrize("seed", range(4))
def test_the_limit_holds_when_its_home_dies(seed):
    """The home moves again and again: its next life lends nothing until the shares of the last one are over."""
    CALLS.clear()
    rng = random.Random(seed)

    async def main():
        async with RatedShards("a", "b", "c", programs=PROGRAMS, lease_s=5.0) as shards:
            for kernel in shards.kernels.values():
                kernel.spawn(ping_on, 40.0, {"requests_per_minute": 6_000, "burst": 60})
            for _ in range(8):
                await asyncio.sleep(1 + rng.random() * 3)
                shards.crash_and_reopen(rng.choice(list(shards.kernels)), rng.random() * 0.6)
                await asyncio.gather(*shards._reopening)
            await asyncio.sleep(20)

    run_in_virtual_time(main())
    assert len(CALLS) > 1_000
    assert most_above(CALLS, 100) <= 60 + 1e-3


async def ping_twice(ctx, count, at_s, limit):
    """Call once, and at a later time so often that the rest of the share is used."""
    await ctx.do(ping, rate_limit=RateLimit(**limit))
    await asyncio.sleep(max(0.0, at_s - asyncio.get_running_loop().time()))
    for _ in range(count):
        await ctx.do(ping, rate_limit=RateLimit(**limit))


PROGRAMS += [ping_twice]


def test_a_new_home_waits_until_the_shares_of_the_old_one_are_over():
    """The home dies when it has lent a share, and comes back at once: it lends, and refills, nothing that is still to
    be used."""
    CALLS.clear()
    limit = {"requests_per_minute": 600, "burst": 10}

    async def main():
        loop = asyncio.get_running_loop()
        async with RatedShards("a", "b", "c", programs=PROGRAMS, lease_s=5.0) as shards:
            await shards.kernels["a"].spawn(ping_many, 1, limit).wait()
            (home,) = [name for name, kernel in shards.kernels.items() if kernel.core.remote.shares._buckets]
            holder, other = [name for name in shards.names if name != home]
            await asyncio.sleep(3.0)
            CALLS.clear()
            began_s = loop.time()
            first = shards.kernels[holder].spawn(ping_twice, 3, began_s + 0.9, limit)
            await shards.until(lambda: len(CALLS) == 1)
            shards.crash(home)
            await shards.open(home)
            assert loop.time() < began_s + 0.2
            await asyncio.sleep(0.5)
            second = shards.kernels[other].spawn(ping_on, began_s + 4.0, limit)
            for handle in (first, second):
                await handle.wait()
            return began_s

    began_s = run_in_virtual_time(main())
    assert most_above(CALLS, 10) <= 10 + 1e-3
    assert sum(at - began_s < 1.0 for at in CALLS) == 4  # the share of the old home, and nothing else
    assert len(CALLS) > 20


def test_a_call_that_is_not_to_wait_is_refused_by_what_all_shards_have_used():
    CALLS.clear()

    async def main():
        limit = {"requests_per_minute": 60, "burst": 10, "strategy": "reject"}
        async with RatedShards("a", "b", "c", programs=PROGRAMS) as shards:
            passed = []
            for kernel in shards.kernels.values():
                passed.append((await kernel.spawn(ping_many, 20, limit).wait()).result)
                await asyncio.sleep(0.2)
            return passed

    passed = run_in_virtual_time(main())
    assert passed[0] == 10
    assert sum(passed) <= 12


STATE = {"is_up": False}


async def fragile() -> str:
    CALLS.append(asyncio.get_running_loop().time())
    if not STATE["is_up"]:
        raise ModelError("it is down", kind="overloaded")
    return "fine"


async def try_often(ctx, count, pause_s):
    """Call a service that has a breaker; gives what came of each call."""
    seen = []
    for _ in range(count):
        try:
            seen.append(await ctx.do(fragile, circuit_breaker=CircuitBreaker(threshold=3, reset_after=10.0)))
        except (CircuitOpen, ModelError) as error:
            seen.append(error.code)
        await ctx.sleep(pause_s)
    return seen


@pytest.mark.parametrize("was_used", [True, False])
def test_a_breaker_that_opens_or_closes_tells_the_other_shards(was_used):
    """Failures on one shard open the breaker of all, also where it was not used before; a success there closes all."""
    CALLS.clear()
    STATE["is_up"] = False

    async def main():
        async with RatedShards("a", "b", programs=[try_often]) as shards:
            a, b = shards.kernels["a"], shards.kernels["b"]
            first = (await b.spawn(try_often, 1, 0.0).wait()).result if was_used else []
            await a.spawn(try_often, 3, 0.0).wait()
            await shards.until(lambda: shards.told["breaker.moved"] == 1)
            refused = (await b.spawn(try_often, 1, 0.0).wait()).result
            STATE["is_up"] = True
            await asyncio.sleep(11)
            closed = (await a.spawn(try_often, 1, 0.0).wait()).result
            await shards.until(lambda: shards.told["breaker.moved"] == 2)
            again = (await b.spawn(try_often, 2, 0.0).wait()).result
            return first, refused, closed, again

    first, refused, closed, again = run_in_virtual_time(main())
    assert first == (["model_error"] if was_used else [])
    assert refused == ["circuit_open"]
    assert closed == ["fine"]
    assert again == ["fine", "fine"]


@pytest.mark.parametrize(
    ("before", "after"), [((6_000, None), (60, 5)), ((60, 5), (6_000, 50)), ((None, None), (60, 5))]
)
def test_a_limit_that_is_changed_holds_at_its_home(before, after):
    """What the home lends follows the limit that is asked for last: less at once, more as it is refilled."""

    async def main():
        async with RatedShards("a", "b", programs=PROGRAMS) as shards:
            home, numbers = shards.kernels["a"].core.remote.shares, [0]

            async def lend(want, rpm, burst):
                limits = [rpm, None if rpm else 10_000, burst]
                data = {"name": "x", "limits": limits, "need": [1.0, 0.0], "want": [want, 0.0], "from": "b"}
                answer = await home.answer({**data, "number": numbers[-1], "unused": [0.0, 0.0]})
                numbers.append(answer.get("number", 0))
                return answer.get("lent", [0.0])[0]

            await lend(100.0, *before)
            await asyncio.sleep(0.1)
            lent = 0.0
            for _ in range(30):
                lent += await lend(100.0, *after)
            rpm, burst = after
            assert lent <= burst
            for _ in range(600):
                await asyncio.sleep(0.1)
                lent += await lend(100.0, *after)
            assert 0.95 * rpm <= lent <= rpm + burst

    run_in_virtual_time(main())
