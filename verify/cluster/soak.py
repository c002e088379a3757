"""A long run of a cluster whose hosts are killed again and again: nothing is lost or done twice, and money is exact.

Three hosts run shoppers. Each shopper buys from a provider outside (a process of its own that counts by idempotency
key), within a budget, and tells the ledger of another shard of each purchase by a
message. Every 20 seconds one host is killed with SIGKILL and started again. At the end all shoppers have ended, the
provider has one charge for each purchase, and each ledger has each message once, in the order of its sender.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, Final, NamedTuple

import lyra.cluster
from lyra import Effect
from lyra.core.ids import make_random
from lyra.kernel.process.process import Exit
from lyra.kernel.programs.context import Context
from verify.cluster import provider
from verify.cluster.hosts import TestCluster
from verify.servers import PostgresServer

__all__ = ["ClusterSoak", "run"]

HOSTS: Final = ("a", "b", "c")
SHARDS: Final = 6
PURCHASES: Final = 5
COST_MICRO_USD: Final = 1_000
_ENDS_S: Final = 60.0  # at most, after the last one began
_PAUSE_S: Final = 0.2  # between two purchases
_EVERY_S: Final = 0.15  # a shopper begins


class ClusterSoak(NamedTuple):
    seconds: float
    kills: int
    shoppers: int
    repeated: int  # requests that reached the provider once more
    slowest_s: float  # until all shards of a killed host were open again
    failures: list[str]


# ---------------------------------------------------------------------- what the hosts run


async def _charge(port: int, idempotency_key: str) -> int:
    return await provider.charge(port, idempotency_key, COST_MICRO_USD)


CHARGE: Final = Effect(_charge, name="charge", cost={"usd": COST_MICRO_USD}, idempotent=True)


async def shopper(ctx: Context, port: int, ledger: str) -> int:
    """Buy, tell the ledger, and again; gives the sum of the receipts."""
    paid = 0
    for number in range(PURCHASES):
        paid += await ctx.do(CHARGE, port)
        ctx.send(ledger, [ctx.pid, number])
        await ctx.sleep(_PAUSE_S)
    return paid


async def ledger(ctx: Context) -> list[Any]:
    """Return all entries that came before the one that closes the book after so many."""
    entries: list[Any] = []
    wanted = None
    while wanted is None or len(entries) < wanted:
        message = await ctx.receive()
        if isinstance(message, int):
            wanted = message
        else:
            entries.append(message)
    return entries


PROGRAMS: Final = (shopper, ledger)


# ---------------------------------------------------------------------- the run


async def _soak(cluster: TestCluster, port: int, seconds: float, kill_every_s: float, seed: int) -> ClusterSoak:
    rng = make_random(seed)
    failures: list[str] = []
    handles: list[lyra.cluster.RemoteHandle] = []
    told: dict[str, int] = defaultdict(int)  # shard of a ledger → messages that it gets
    killed: list[tuple[float, list[str]]] = []
    async with lyra.cluster.connect(cluster.url, patience_s=60.0) as client:
        ledgers = [
            await client.spawn("verify.cluster.soak:ledger", shard=f"s{number + 1}", pid="ledger")
            for number in range(SHARDS)
        ]
        began_s = time.monotonic()
        next_kill_s = began_s + kill_every_s / 2
        spawning: set[asyncio.Task[Any]] = set()
        number = 0
        while (now_s := time.monotonic()) < began_s + seconds:
            if now_s >= next_kill_s:
                next_kill_s += kill_every_s
                victim = rng.choice(HOSTS)
                killed.append((now_s, cluster.shards_of(victim)))
                await asyncio.to_thread(cluster.hosts[victim].kill)
                cluster.begin(victim)
            shard, book = f"s{number % SHARDS + 1}", ledgers[(number + 1 + number // SHARDS) % SHARDS]
            told[book.shard] += PURCHASES
            spawn = client.spawn(
                "verify.cluster.soak:shopper",
                port,
                book.address,
                shard=shard,
                pid=f"shopper{number}",
                budget={"usd": 2 * PURCHASES * COST_MICRO_USD},  # attempts that a kill cut off count, too
            )
            spawning.add(asyncio.create_task(spawn))
            number += 1
            await asyncio.sleep(_EVERY_S)
        handles = list(await asyncio.gather(*spawning))
        for handle in handles:
            end = await _wait(client, handle)
            if end.result != PURCHASES * COST_MICRO_USD:
                failures.append(f"{handle.address} ended as {end.reason} with {end.result}: {end.error}")
        for book in ledgers:
            await client.send(book.address, told[book.shard])
            entries = (await _wait(client, book)).result
            failures += _check_entries(book.address, entries, told[book.shard])
    totals = await provider.totals(port)
    purchases = len(handles) * PURCHASES
    if totals["keys"] != purchases or totals["usd"] != purchases * COST_MICRO_USD or totals["changed"]:
        failures.append(f"{purchases} purchases for {purchases * COST_MICRO_USD} µ$; the provider has {totals}")
    slowest_s = max((_opened_after(cluster, *kill) for kill in killed), default=0.0)
    return ClusterSoak(seconds, len(killed), len(handles), totals["repeated"], slowest_s, failures)


async def _wait(client: lyra.cluster.Cluster, handle: lyra.cluster.RemoteHandle) -> Exit[Any]:
    """Return how a process ended; where it does not end, fail with what the hosts know."""
    try:
        return await asyncio.wait_for(handle.wait(), _ENDS_S)
    except TimeoutError:
        live = [row for row in await client.processes() if row["address"] == handle.address]
        state = await client.ask_hosts("status", {})
        raise AssertionError(f"{handle.address} has not ended within {_ENDS_S:g} s: {live}; {state}") from None


def _check_entries(name: str, entries: list[Any], wanted: int) -> list[str]:
    """Return what is wrong with the entries of a ledger."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for pid, number in entries:
        numbers[pid].append(number)
    faults = [f"{name} has {len(entries)} messages, not {wanted}"] if len(entries) != wanted else []
    wrong = [f"{name} got {got} from {pid}" for pid, got in numbers.items() if got != list(range(PURCHASES))]
    return faults + wrong[:5]


def _opened_after(cluster: TestCluster, killed_s: float, shards: list[str]) -> float:
    """Return how long after a kill the last of these shards was open again."""
    opened: dict[str, float] = {}
    for report in cluster.of_kind("open", after_s=killed_s):
        opened.setdefault(report.words[0], report.at_s - killed_s)
    return max((opened.get(shard, float("inf")) for shard in shards), default=0.0)


def run(seconds: float, kill_every_s: float = 20.0, seed: int = 1, lease_s: float = 3.0) -> ClusterSoak:
    with tempfile.TemporaryDirectory(prefix="lyra-soak-") as folder, PostgresServer() as server:
        command = [sys.executable, "-m", "verify.cluster.provider"]
        with subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE) as outside:
            try:
                assert outside.stdout is not None
                port = int(outside.stdout.readline())
                with TestCluster(
                    f"{server.url}&schema=soak",
                    Path(folder),
                    shards=SHARDS,
                    lease_s=lease_s,
                    programs="verify.cluster.soak",
                ) as cluster:
                    cluster.start(*HOSTS)
                    return asyncio.run(_soak(cluster, port, seconds, kill_every_s, seed))
            finally:
                outside.kill()
