"""Modes and evidence of Vesper nodes are one over all shards, whichever host is killed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import lyra.cluster
from lyra import vesper
from lyra.cluster.directory import PostgresDirectory
from lyra.core import codec
from lyra.errors import ConfigError
from lyra.kernel import Kernel
from lyra.kernel.remote.part import home_of
from lyra.vesper.evidence.shared import PART
from tests.cluster.hosts_in_memory import MemoryCluster, run_cluster, until
from tests.cluster.node_host import WRONG_ABOVE, ShardNodes, executes, looks, moves
from verify.servers import PostgresServer, postgres_missing

SHARDS = ("s1", "s2", "s3", "s4")


def named(home: str) -> str:
    """Return the id of a node whose home is this shard."""
    names = (f"double_v{number}" for number in range(1, 1_000))
    return next(name for name in names if home_of(f"node {name}", SHARDS) == home)


def test_evidence_adds_up_and_a_promotion_holds_on_all_shards():
    """Two shards compare the same 700 inputs: that is evidence for 700, too little for a canary on either. With 400
    more on a third one the node may be promoted, on a fourth; every shard has the mode then, and the same figures."""

    async def main() -> None:
        nodes = ShardNodes(named("s1"))
        async with MemoryCluster("a", "b", setup=nodes.setup) as world:
            for shard in ("s2", "s3"):
                await nodes.execute(shard, range(700), "dual_verify")
            known = await nodes.evidence("s4")
            assert (known.compared, known.distinct, known.accepted) == (1_400, 700, 700)
            assert await asyncio.to_thread(nodes.runtimes["s4"].promote, nodes.node) == "shadow_direct"
            assert await asyncio.to_thread(nodes.runtimes["s4"].promote, nodes.node) == "shadow_direct"
            with pytest.raises(ConfigError, match="700 accepted inputs"):
                await asyncio.to_thread(nodes.runtimes["s3"].set_mode, nodes.node, "canary_direct")
            await nodes.execute("s1", range(600, 1_100), "dual_verify")
            assert await asyncio.to_thread(nodes.runtimes["s4"].promote, nodes.node) == "canary_direct"
            await until(lambda: {nodes.mode(shard) for shard in SHARDS} == {"canary_direct"})
            figures = [await nodes.evidence(shard) for shard in SHARDS]
            assert {(known.compared, known.distinct, known.successes) for known in figures} == {(1_900, 1_100, 1_100)}
            assert {known.confidence for known in figures} == {figures[0].confidence}
            assert all(known.history == figures[0].history for known in figures)
            for shard in SHARDS:
                kept = world.kernel(shard).core.remote.state
                assert kept.parts[PART].doubts == {}
                again = kept.fresh()  # as from a snapshot
                again.load(codec.decode(codec.encode(kept.dump())))
                assert again.parts[PART].state.by_digest == kept.parts[PART].state.by_digest

    run_cluster(main)


def test_a_divergence_that_the_home_has_settled_is_no_doubt():
    """What a shard says of its divergence may arrive after what the home says of it, and then changes nothing."""

    async def main() -> None:
        nodes = ShardNodes(named("s1"))
        async with MemoryCluster("a", setup=nodes.setup) as world:
            part = world.kernel("s3").core.remote.state.parts[PART]
            doubt = {"digest": "d", "n": 2}
            change = {
                "node": nodes.node.node_id,
                "digest": "d",
                "to": "direct_only",
                "why": "set by hand",
                "forced": True,
            }
            told = {"kind": "vesper.mode", "row": change, "at": 1.0}
            part.apply_taken("s1", "node.told", told)
            part.apply_taken("s2", "node.doubt", doubt)
            assert part.mode("d") == "shadow_direct"
            part.apply_taken("s1", "node.told", {**told, "of": ["s2", 1]})
            assert part.mode("d") == "shadow_direct"
            part.apply_taken("s1", "node.told", {**told, "of": ["s2", 2]})
            part.apply_taken("s2", "node.doubt", doubt)
            assert part.mode("d") == "direct_only"

    run_cluster(main)


def test_promotions_at_the_same_time_are_one_step():
    """All shards promote a node at once, as each has seen it in python_only: it goes up one step."""

    async def main() -> None:
        nodes = ShardNodes(named("s2"))
        async with MemoryCluster("a", "b", setup=nodes.setup) as world:
            await nodes.execute("s1", range(1_100), "dual_verify")
            known = await nodes.evidence("s1")
            parts = [world.kernel(shard).core.remote.state.parts[PART] for shard in SHARDS]
            asked = [part.ask("promote", known.node_id, known.digest, mode="python_only", least=1) for part in parts]
            assert await asyncio.gather(*asked) == ["shadow_direct"] * len(SHARDS)
            known = await nodes.evidence("s3")
            assert [change["to"] for change in known.history] == ["shadow_direct"]

    run_cluster(main)


def test_sensitive_inputs_count_once():
    """Inputs that no shard may tell another are known by a key of the cluster: equal ones count once."""

    async def main() -> None:
        nodes = ShardNodes(named("s1"))
        sensitive = nodes.node.document.text.replace("{type: integer}", "{type: integer, sensitive: true}")
        nodes.node = vesper.load(sensitive)
        async with MemoryCluster("a", "b", setup=nodes.setup):
            for shard in ("s2", "s3"):
                await nodes.execute(shard, range(50), "dual_verify")
            known = await nodes.evidence("s4")
            assert (known.compared, known.distinct) == (100, 50)

    run_cluster(main)


def test_a_divergence_takes_the_direct_path_out_of_use_while_the_home_is_dead():
    """The home's host is killed; a divergence on another shard reaches all that live in a message, and none of them
    runs the direct path for anybody. The home learns of it when it is open again; the evidence of before is there."""

    async def main() -> None:
        nodes = ShardNodes()
        async with MemoryCluster("a", "b", setup=nodes.setup) as world:
            home = next(iter(world.hosts["a"].kernels))
            nodes.node = ShardNodes(named(home)).node
            first, second = world.hosts["b"].kernels
            await nodes.execute(second, range(300), "dual_verify")
            runtime = nodes.runtimes[first]
            await asyncio.to_thread(runtime.set_mode, nodes.node, "direct_only", force=True)
            await until(lambda: {nodes.mode(shard) for shard in SHARDS} == {"direct_only"})
            await world.kill("a")
            await nodes_diverge(nodes, first)
            assert nodes.mode(first) == "shadow_direct"
            await until(lambda: nodes.mode(second) == "shadow_direct")
            assert home not in world.hosts["b"].kernels
            await world.until_open()
            await until(lambda: {nodes.mode(shard) for shard in SHARDS} == {"shadow_direct"})
            known = await nodes.evidence(second)
            assert (known.mode, known.divergences, known.blocked, known.distinct) == ("shadow_direct", 1, True, 300)
            assert [change["to"] for change in known.history] == ["direct_only", "shadow_direct"]
            parts = [world.kernel(shard).core.remote.state.parts[PART] for shard in SHARDS]
            await until(lambda: all(part.doubts == {} for part in parts))
            with pytest.raises(ConfigError, match="reproduced"):
                await asyncio.to_thread(nodes.runtimes[home].set_mode, nodes.node, "canary_direct")

    run_cluster(main)


async def nodes_diverge(nodes: ShardNodes, shard: str) -> None:
    """Execute with an input for which the direct path is wrong, and return when this shard has written that."""

    def run() -> None:
        nodes.runtimes[shard].execute(nodes.node, {"number": WRONG_ABOVE + 1}, "dual_verify")

    await asyncio.to_thread(run)


def test_a_runtime_needs_a_shard():
    """The kernel of a single server has nothing to share."""

    async def main() -> None:
        async with Kernel() as kernel:
            with pytest.raises(ConfigError, match="no shard"):
                vesper.Runtime(cluster=kernel)

    asyncio.run(main())


@pytest.mark.skipif(postgres_missing() is not None, reason=str(postgres_missing()))
def test_evidence_outlives_the_host_of_its_home():
    """Real hosts in PostgreSQL: the home's host dies by SIGKILL after a promotion by the evidence of two shards. The
    next host has mode and figures, an input that was counted counts no second time, and a divergence leads back
    everywhere."""
    with PostgresServer() as server:
        directory = PostgresDirectory(server.url, shards=len(SHARDS), lease_s=1.0)
        directory.close()
        argv = [sys.executable, "-m", "tests.cluster.node_host", server.url]
        cwd = Path(__file__).parents[2]
        hosts = {name: subprocess.Popen([*argv, name], cwd=cwd, stdout=subprocess.PIPE, text=True) for name in "ab"}
        try:
            for host in hosts.values():
                assert host.stdout is not None
                assert host.stdout.readline() == "ready\n"
            asyncio.run(asyncio.wait_for(_live_through(server.url, hosts), 60))
        finally:
            for host in hosts.values():
                host.kill()
                host.communicate()


async def _live_through(url: str, hosts: dict[str, Any]) -> None:
    async with lyra.cluster.connect(url) as cluster:

        async def run(program: Any, *args: Any, shard: str) -> Any:
            ended = await (await cluster.spawn(program, *args, shard=shard)).wait()
            assert ended.error is None
            return ended.result

        async def owners(number: int) -> Any:
            view = await cluster.refresh()
            held = {shard: row.host for shard, row in view.shards.items() if view.address_of(shard) is not None}
            share = len(SHARDS) // number
            return held if sorted(Counter(held.values()).values()) == [share] * number else None

        held = await until(lambda: owners(2), client=cluster)
        home = home_of("node double_v1", SHARDS)
        others = sorted(shard for shard in SHARDS if held[shard] != held[home])
        await run(executes, 0, 700, "dual_verify", shard=others[0])
        await run(executes, 400, 1_100, "dual_verify", shard=others[1])

        async def shows(shard: str, *expected: Any) -> bool:
            seen = await run(looks, shard=shard)
            return bool(seen[: len(expected)] == list(expected))

        await until(lambda: shows(others[1], "python_only", 1_400, 1_100, 0, False))
        assert await run(moves, "up", shard=others[0]) == "shadow_direct"
        assert await run(moves, "up", shard=others[1]) == "canary_direct"
        hosts[held[home]].kill()
        await until(lambda: owners(1), client=cluster)
        for shard in SHARDS:
            assert await run(looks, shard=shard) == ["canary_direct", 1_400, 1_100, 0, False]
        await run(executes, 0, 300, "dual_verify", shard=home)
        assert await run(looks, shard=others[0]) == ["canary_direct", 1_700, 1_100, 0, False]
        await run(executes, WRONG_ABOVE + 1, WRONG_ABOVE + 2, "dual_verify", shard=others[0])
        for shard in SHARDS:
            await until(partial(shows, shard, "shadow_direct"))
