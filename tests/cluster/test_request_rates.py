"""Requests of users and of callers are counted over all shards of a cluster, at one place for each."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import httpx
import pytest

import lyra.server
from lyra.errors import ProcessError
from lyra.server.identity import TokenTable
from tests.cluster.hosts_in_memory import MemoryCluster, run_cluster, until

ADA = "ada-token-0123456789"
LIMITS = {"requests_per_minute": 0, "requests_per_hour": 60, "requests_per_day": 0, "burst_size": 0}


async def _ask(kernel: Any, user: str = "ada", endpoint: str = "chat", *, record: bool = True) -> Any:
    return await kernel.check_rate_limit(user, endpoint, record=record)


def test_a_limit_holds_over_all_shards_and_all_of_it_is_used() -> None:
    """Four shards ask at once, as fast as they can; also a shard that was taken over counts on."""

    async def main() -> None:
        async with MemoryCluster("a", "b") as world:
            kernels = [world.kernel(shard) for shard in world.stores]
            kernels[0].rate_limiter.set_user_limits("ada", LIMITS)
            await until(lambda: all("ada" in kernel.rate_limiter.state.users for kernel in kernels))
            results = await asyncio.gather(*[_ask(kernels[number % 4]) for number in range(40)])
            assert all(result.allowed for result in results)
            assert sorted(result.current_count for result in results) == list(range(1, 41))  # each once
            home = kernels[0].core.remote.home_of("rate chat ada")
            await world.kill(world.host_of(home))
            await world.until_open()
            kernels = [world.kernel(shard) for shard in world.stores]
            results = await asyncio.gather(*[_ask(kernels[number % 4]) for number in range(40)])
            assert sum(result.allowed for result in results) == 20
            refused = next(result for result in results if not result.allowed)
            assert (refused.limit_type, refused.current_count, refused.limit) == ("hour", 60, 60)
            assert 3_500 < refused.retry_after_seconds <= 3_600
            assert (await _ask(kernels[1], "bob")).allowed
            for kernel in kernels:
                assert not (await _ask(kernel, record=False)).allowed

    run_cluster(main)


def test_a_limit_that_is_changed_on_one_shard_holds_on_all() -> None:
    async def main() -> None:
        async with MemoryCluster("a", "b") as world:
            kernels = [world.kernel(shard) for shard in world.stores]
            known = [kernel.rate_limiter for kernel in kernels]

            def is_known(limit: int) -> bool:
                return {limiter.get_config("", "chat").limit("hour") for limiter in known} == {limit}

            for limit in (3, 5, 4):
                kernels[limit % 4].rate_limiter.set_endpoint_limits("chat", {**LIMITS, "requests_per_hour": limit})
                await until(partial(is_known, limit))
                for number in range(20):
                    await _ask(kernels[number % 4], f"user {limit}")
                counts = [limiter.get_usage(f"user {limit}", "chat").hour for limiter in known]
                assert sorted(counts) == [0, 0, 0, limit]
            kernels[0].rate_limiter.set_endpoint_limits("chat", None)
            await until(lambda: not any(kernel.rate_limiter.state.endpoints for kernel in kernels))

    run_cluster(main)


def test_what_the_home_has_answered_is_durable() -> None:
    """Else a home that dies would forget requests that were admitted."""

    async def main() -> None:
        async with MemoryCluster("a", shards=2) as world:
            home = world.kernel("s1").core.remote.home_of("rate chat ada")
            for count in range(1, 4):
                await _ask(world.kernel(home))
                assert len(list(world.stores[home].read(kind="rate.counted"))) == count

    run_cluster(main)


def test_an_answer_that_is_not_awaited_says_so() -> None:
    """Rather than count each shard by itself."""

    async def main() -> None:
        async with MemoryCluster("a", shards=2) as world:
            question = world.kernel("s1").check_rate_limit("ada", "chat")
            with pytest.raises(ProcessError, match="has to be asked") as told:
                assert question.allowed
            assert told.value.hint == "await kernel.check_rate_limit(…)"

    run_cluster(main)


def test_the_requests_of_a_caller_are_counted_wherever_they_arrive() -> None:
    """One token on all shards: `requests_per_minute` is what all of them answer together."""

    async def main() -> None:
        async with MemoryCluster("a", "b") as world:
            statuses: list[int] = []
            tokens = TokenTable({ADA: "ada"})
            clients = []
            for shard in world.stores:
                app = lyra.server.app(world.kernel(shard), tokens=tokens, hosts=["localhost"], requests_per_minute=50)
                headers = {"authorization": f"Bearer {ADA}"}
                transport = httpx.ASGITransport(app=app)
                clients.append(httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers))
            answers = await asyncio.gather(*[clients[number % 4].get("/api/processes") for number in range(80)])
            statuses = sorted(answer.status_code for answer in answers)
            assert statuses == [200] * 50 + [429] * 30
            refused = next(answer for answer in answers if answer.status_code == 429)
            assert 1 <= int(refused.headers["retry-after"]) <= 60
            usage = [world.kernel(shard).rate_limiter.get_usage_by_user() for shard in world.stores]
            assert usage == [{}] * 4  # no user of the kernel's

    run_cluster(main)
