"""Shards killed at random places, alone or together, with the way between them cut now and then: messages arrive once
and in order for each pair, programs begin once, ends are told once."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from lyra.core import codec
from lyra.core.faultpoint import SimulatedCrash, intercept
from lyra.errors import LyraError
from lyra.kernel.process.links import Down, ExitSignal
from tests.kernel.remote.world import Shards, run

NAMES = ("s1", "s2", "s3")
MESSAGES = 25
JOBS = 4
KILLS = 8


async def listen(ctx, total):
    """Return what came from whom, as it came."""
    came = []
    for _ in range(total):
        came.append(await ctx.receive())
        if len(came) % 7 == 0:
            await ctx.sleep(0.3)
    await ctx.sleep(20.0)  # long enough for anything that comes twice
    while (more := await ctx.receive(timeout=1.0)) is not None:
        came.append(more)
    return came


async def talk(ctx, addresses):
    for number in range(MESSAGES):
        for address in addresses:
            await ctx.send(address, [ctx.address, number])
        if number % 5 == 0:
            await ctx.sleep(0.2)
    return "talked"


async def job(ctx, number):
    await ctx.sleep(0.5 * number)
    if number % 4 == 3:
        raise ValueError(f"job {number}")
    return "x" * 100_000 if number % 4 == 2 else number * number


async def endless(ctx):
    await ctx.receive()


async def boss(ctx, shards):
    """Spawn jobs and tie to them; return how each ended, and how often each end was told."""
    ctx.trap_exit(True)
    told: dict[str, int] = {}
    ends = []
    children = []
    for number in range(JOBS):
        child = ctx.spawn(job, number, shard=shards[number % len(shards)])
        ctx.link(child)
        ctx.monitor(child)
        children.append(child)
    kept = ctx.spawn(endless, shard=shards[0])
    ctx.monitor(kept)
    gone = ctx.monitor(kept)
    ctx.demonitor(gone)
    ended = await asyncio.gather(*[child.wait() for child in children])
    ends += [[end.reason, str(end.error or ""), len(str(end.result or ""))] for end in ended]
    ctx.stop(kept)
    ends.append([(await kept.wait()).reason, "", 0])
    await ctx.sleep(20.0)
    while (signal := await ctx.receive(timeout=1.0)) is not None:
        if isinstance(signal, (Down, ExitSignal)):
            key = f"{type(signal).__name__} {signal.pid} {signal.reason}"
            told[key] = told.get(key, 0) + 1
    return [ends, told, [child.pid for child in children]]


async def fire(world: Shards, rng: Random, kills: list[str]) -> None:
    """Cut the way between two shards now and then."""
    while True:
        await asyncio.sleep(rng.uniform(0.5, 3.0))
        pair = (rng.choice(NAMES), rng.choice(NAMES))
        world.cut.add(pair)
        await asyncio.sleep(rng.uniform(0.1, 1.0))
        world.cut.discard(pair)


def under_fire(world: Shards, rng: Random, kills: list[str]):
    def reopen(names: list[str]) -> None:
        async def open_all() -> None:
            for name in names:
                while True:
                    try:
                        await world.open(name)
                    except (SimulatedCrash, LyraError):
                        await asyncio.sleep(0.1)
                    else:
                        break
                world.reopening.pop(name, None)

        task = asyncio.ensure_future(open_all())
        for name in names:
            world.reopening[name] = task

    def hook(point: str) -> None:
        if len(kills) >= KILLS or rng.random() > 0.004:
            return
        here = world.shard_here()
        if here is None:
            return
        names = [here] if rng.random() < 0.6 else sorted({here, *rng.sample(NAMES, 2)} & world.kernels.keys())
        kills.append(f"{point} {'+'.join(names)}")
        for name in names:
            world.kill(name)
        asyncio.get_running_loop().call_later(rng.uniform(0.05, 3.0), lambda: reopen(names))
        raise SimulatedCrash

    return hook


async def one_world(seed: int) -> list[str]:
    rng = Random(seed)
    kills: list[str] = []
    limit = rng.choice([4, 16, 1_000])
    options: dict[str, Any] = {"mailbox_messages_max": limit, "snapshot_every_events": rng.choice([40, 10_000])}
    async with Shards(*NAMES, programs=[listen, talk, job, endless, boss], **options) as world:
        ears = [f"{name}/ear" for name in NAMES]
        for name in NAMES:
            world[name].spawn(listen, MESSAGES * 2, pid="ear")
        for name in NAMES:
            others = [address for address in ears if not address.startswith(name)]
            world[name].spawn(talk, others, pid="mouth")
            world[name].spawn(boss, [other for other in NAMES if other != name], pid="boss")
        for kernel in world.kernels.values():
            await kernel.durable()
        cutting = asyncio.ensure_future(fire(world, rng, kills))
        wanted = [(name, pid) for name in NAMES for pid in ("ear", "mouth", "boss")]
        with intercept(under_fire(world, rng, kills)):
            for _ in range(20_000):
                await asyncio.sleep(0.1)
                with suppress(KeyError):
                    if not world.reopening and all(world[name].processes[pid].exit for name, pid in wanted):
                        break
            else:
                alive = [
                    f"{name}/{pid}"
                    for name, kernel in world.kernels.items()
                    for pid, process in kernel.processes.items()
                    if process.exit is None
                ]
                raise AssertionError(f"seed {seed}: {alive} did not end; kills: {kills}")
        cutting.cancel()
        world.cut.clear()
        await asyncio.sleep(5.0)
        check(world, seed)
        return kills


def check(world: Shards, seed: int) -> None:
    created = []
    for name in NAMES:
        kernel = world[name]
        came = kernel.processes["ear"].exit.result
        for sender in NAMES:
            numbers = [number for address, number in came if address == f"{sender}/mouth"]
            assert numbers == ([] if sender == name else list(range(MESSAGES))), (seed, name, sender, numbers)
        ends, told, pids = kernel.processes["boss"].exit.result
        assert ends == [
            ["normal", "", 0],
            ["normal", "", 1],
            ["normal", "", 100_000],
            ["error", "job 3", 0],
            ["shutdown", "", 0],
        ], (seed, name, ends)
        assert set(told.values()) == {1}, (seed, name, told)
        kinds = [key.split()[0] for key in told]
        assert kinds.count("ExitSignal") == JOBS, (seed, name, told)
        assert kinds.count("Down") == JOBS + 1, (seed, name, told)
        assert len(set(pids)) == JOBS
        remote = kernel.core.remote
        assert not remote.state.posts, (seed, name, remote.state.posts)
        assert not remote.ties.links, (seed, name, remote.ties.links)
        assert not remote.ties.watchers, (seed, name, remote.ties.watchers)
        assert not remote.ties.awaited, (seed, name, remote.ties.awaited)
        created += [
            f"{name}/{process.pid}" for process in kernel.processes.values() if process.program.endswith(":job")
        ]
        for row in world.stores[name].read(kind="remote.taken"):
            assert "exception" not in codec.decode(row.data)
    assert len(created) == JOBS * len(NAMES), (seed, created)


@pytest.mark.parametrize("seed", range(12))
def test_random_kills(seed):
    """Some seeds of the long one."""
    assert run(one_world(seed), expected=("failed while it was closed", "_GatheringFuture"))


@pytest.mark.long
@pytest.mark.parametrize("hundred", range(10))
def test_a_thousand_seeds(hundred):
    """A thousand worlds, each with up to eight kills."""
    for seed in range(100 * hundred + 100, 100 * hundred + 200):
        run(one_world(seed), expected=("failed while it was closed", "_GatheringFuture"))
