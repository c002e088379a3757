"""Hosts on a real Ray cluster: PostgreSQL decides about shards, whatever Ray has noticed."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

import lyra.cluster
from lyra.cluster.client import Cluster
from lyra.cluster.directory import DRAINING, HostRow, PostgresDirectory
from lyra.cluster.host import FORMAT
from lyra.store.postgres import PostgresStore
from tests.cluster.started import StartedHost
from tests.source import KEPT, PYTHONPATH
from verify.servers import PostgresServer, postgres_missing

_PROGRAMS: Final = Path(__file__).with_name("ray_programs.py")
_MODULE: Final = "lyra_server_setup"
_LEASE_S: Final = 2.0
_TAKEN_OVER_S: Final = _LEASE_S + 1.5
_SHARDS: Final = 6
_ANSWER_S: Final = 90.0  # of Ray's process to one command: longer than it lets a host join
_TEST_S: Final = 120.0
_FROZEN_S: Final = 45.0  # Ray calls a node dead that is frozen for a minute

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install 'lyra-agents[ray]'"
    ),
]


def _environment(**more: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return {**kept, "HOME": "/nonexistent", "PYTHONPATH": PYTHONPATH, "LC_ALL": "C.UTF-8", **more}


class RayNodes:
    """A Ray cluster, and two hosts of its nodes and one that was started by hand around one PostgreSQL."""

    def __init__(self, url: str, folder: str) -> None:
        self.url = url
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.ray_nodes", folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            # As older versions of Ray did, actors that ask for no graphics card are shown none.
            env=_environment(RAY_USAGE_STATS_ENABLED="0", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="1"),
            cwd=Path(__file__).parents[2],
        )
        assert self._process.stdout is not None
        assert json.loads(self._process.stdout.readline()) == "ready"

    def ask(self, command: str, **options: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({command: options}) + "\n")
        self._process.stdin.flush()
        readable, _, _ = select.select([self._process.stdout], [], [], _ANSWER_S)  # one line is all that comes
        assert readable, f"no answer to {command} within {_ANSWER_S:g} s"
        told = json.loads(self._process.stdout.readline())
        assert "error" not in told, told["error"]
        return told["answer"]

    def start(self) -> list[str]:
        options = {"load": [str(_PROGRAMS)], "shards": _SHARDS, "lease_s": _LEASE_S}
        return list(self.ask("start", url=self.url, **options))

    def close(self) -> None:
        try:
            self._process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            _signal_all(_family(self._process.pid), signal.SIGKILL)
            self._process.wait()
            raise


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    missing = postgres_missing()
    if missing:
        pytest.skip(missing)
    folder = tempfile.mkdtemp(prefix="lyra-ray-")
    with PostgresServer() as server:
        rayed = RayNodes(server.url, folder)
        try:
            yield rayed
        finally:
            rayed.close()
            shutil.rmtree(folder, ignore_errors=True)


def _family(pid: int) -> list[int]:
    """Return a process and all below it."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            after = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(after[1]), []).append(int(stat.parent.name))
    found = [pid]
    for member in found:
        found += children.get(member, [])
    return found


def _signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


async def _until(cluster: Cluster, holds: Callable[[Cluster], bool], within_s: float = 60.0) -> float:
    """Return the time it took until the directory is as wanted."""
    began = time.monotonic()
    while True:
        await cluster.refresh()
        if holds(cluster):
            return time.monotonic() - began
        assert time.monotonic() - began < within_s, cluster.view
        await asyncio.sleep(0.05)


def _shards_of(cluster: Cluster, host: str) -> list[str]:
    return [name for name, row in cluster.view.shards.items() if row.host == host]


def _all_have(*hosts: str) -> Callable[[Cluster], bool]:
    """Return whether these hosts, and no others, have the shards, each as many as the others or one more."""

    def holds(cluster: Cluster) -> bool:
        counts = [len(_shards_of(cluster, name)) for name in hosts]
        return sum(counts) == _SHARDS and max(counts) - min(counts) <= 1

    return holds


async def _until_open(cluster: Cluster, shards: list[str], hosts: list[str]) -> None:
    """Return when these hosts have opened the shards."""
    while True:
        answers = dict(await cluster.ask_hosts("status", {}, hosts=hosts))
        if set(shards) <= {
            shard for answer in answers.values() if isinstance(answer, dict) for shard in answer["shards"]
        }:
            return
        await asyncio.sleep(0.02)


async def _open_on(cluster: Cluster, shards: list[str]) -> None:
    """Return when each of the shards is open: a call that needs its kernel is answered."""
    for shard in shards:
        await (await cluster.spawn(f"{_MODULE}:where", shard=shard)).wait()


def _read(file: Path) -> list[list[str]]:
    return [line.split(":") for line in file.read_text().splitlines()] if file.exists() else []


def _in_flight(performed: dict[str, int]) -> set[tuple[str, int]]:
    """Return the effects that may be performed twice, of programs that performed so many: the one that was under way,
    or the one before it, where it was done and that was not in the journal yet."""
    return {(name, step) for name, count in performed.items() for step in (count - 1, count)}


async def _start_work(cluster: Cluster, file: Path, programs: int, effects: int) -> list[Any]:
    """Start programs, equally many on each shard, and return when each has performed an effect."""
    handles = [
        await cluster.spawn(
            f"{_MODULE}:work", str(file), f"{file.stem}{number}", effects, shard=f"s{number % _SHARDS + 1}"
        )
        for number in range(programs)
    ]
    while len({name for name, *_ in _read(file)}) < programs:
        await asyncio.sleep(0.05)
    return handles


async def test_hosts_of_both_kinds_are_one_cluster(nodes: RayNodes, tmp_path: Path) -> None:
    """Hosts on Ray's nodes and one started by hand share the shards and reach each other: the first by actors, the
    other over gRPC. What Ray says that a node has decides where programs begin, and they see its graphics cards."""
    head = nodes.ask("head")["name"]
    second = nodes.ask("add", num_gpus=1, resources={"blue": 2})["name"]
    command = ["cluster", "start", "--store", nodes.url, "--ray", nodes.ask("address"), "--load", str(_PROGRAMS)]
    made = ["--shards", str(_SHARDS), "--lease", str(_LEASE_S), "--json"]
    started = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "lyra", *command, *made, stdout=subprocess.PIPE, env=_environment(), cwd=tmp_path
    )
    told, _ = await started.communicate()
    assert started.returncode == 0
    rows = [json.loads(line) for line in told.splitlines()]
    assert sorted(row["host"] for row in rows) == sorted([head, second])
    by_hand = StartedHost(tmp_path, nodes.url, "by-hand", "--load", str(_PROGRAMS), HOME="/nonexistent").until_joined()
    try:
        async with asyncio.timeout(_TEST_S), lyra.cluster.connect(nodes.url) as cluster:
            await _until(cluster, _all_have(head, second, "by-hand"))
            known = cluster.view.hosts
            assert known[second].resources["gpu"] == 1
            assert known[second].resources["blue"] == 2
            assert (known[head].resources["cpu"], known[head].resources["gpu"]) == (1, 0)
            assert known[head].address.startswith(f"ray:{head}@")
            homes = {host: _shards_of(cluster, host)[0] for host in (head, second, "by-hand")}
            at = {
                host: (await (await cluster.spawn(f"{_MODULE}:where", shard=shard)).wait()).result[0]
                for host, shard in homes.items()
            }
            assert len(set(at.values())) == 3
            placed = await (await cluster.spawn(f"{_MODULE}:where", resources={"blue": 1, "gpu": 1})).wait()
            assert placed.result == [at[second], None]  # not "": which hides all cards from CUDA
            for shard in homes.values():
                for other, there in homes.items():
                    job = await cluster.spawn(f"{_MODULE}:relay", there, shard=shard)
                    assert (await job.wait()).result[0] == at[other]
        for host in (head, second):
            carried = nodes.ask("carried", url=nodes.url, name=host)
            assert carried["ray"] >= 2
            assert carried["grpc"] >= 2
        assert nodes.ask("call", url=nodes.url, name=second, method="status", data={})["name"] == second
    finally:
        assert by_hand.stop()[0] == 0


async def test_frozen_node_is_taken_over_and_wakes_fenced(nodes: RayNodes, tmp_path: Path) -> None:
    """A node that stands still has its shards taken over when its leases are over, while Ray believes it to be alive;
    woken, it performs nothing but what it was at."""
    node = nodes.ask("add", resources={"frozen": 1})
    nodes.start()
    file = tmp_path / "frozen"
    async with asyncio.timeout(_TEST_S), lyra.cluster.connect(nodes.url) as cluster:
        await _until(cluster, lambda cluster: len(_shards_of(cluster, node["name"])) >= 2)
        shards = _shards_of(cluster, node["name"])
        await _open_on(cluster, shards)
        handles = await _start_work(cluster, file, 24, 20)
        family = _family(node["raylet"])
        _signal_all(family, signal.SIGSTOP)
        began = time.monotonic()
        performed = _read(file)
        at = dict(Counter(name for name, *_ in performed))
        try:
            async with asyncio.timeout(_FROZEN_S):
                await _until_open(cluster, shards, [name for name in cluster.view.hosts if name != node["name"]])
                took_s = time.monotonic() - began
                assert node["name"] in nodes.ask("alive")
                for handle in handles:
                    ended = await handle.wait()
                    assert (ended.reason, ended.result) == ("normal", 20)
                before = len(_read(file))
        finally:
            _signal_all(family, signal.SIGCONT)
        await _until(cluster, lambda cluster: len(_shards_of(cluster, node["name"])) >= 1)
        await _open_on(cluster, _shards_of(cluster, node["name"]))
        late = [(name, int(step)) for name, step, _ in _read(file)[before:]]
        assert set(late) <= set(at.items())  # each the effect that was in flight
        assert len(late) == len(set(late))
        twice = [step for step, times in Counter((name, step) for name, step, _ in _read(file)).items() if times > 1]
        assert {(name, int(step)) for name, step in twice} <= _in_flight(at)
    assert took_s < _TAKEN_OVER_S, f"taken over after {took_s:.1f} s"
    print(f"frozen node taken over after {took_s:.2f} s, {len(late)} effects in flight")


async def test_a_host_whose_name_is_taken_joins_when_that_one_has_left(nodes: RayNodes) -> None:
    """The actor of a host tries again for as long as another host of its name is in the cluster."""
    node = nodes.ask("add", resources={"late": 1})
    with closing(PostgresDirectory(nodes.url, shards=_SHARDS, lease_s=_LEASE_S)) as directory:
        other = HostRow(node["name"], "another life", "nowhere:1", "1", FORMAT, DRAINING)
        known = directory.join(other)
        starting = asyncio.create_task(asyncio.to_thread(nodes.start))
        async with asyncio.timeout(_TEST_S):
            for _ in range(30):  # a host waits for one lease and some by itself; here it is more than three
                await asyncio.sleep(_LEASE_S / 6)
                known = directory.renew(other, known)
                assert not starting.done(), await starting
            directory.leave(other)
            assert node["name"] in await starting
        assert directory.view().hosts[node["name"]].life != other.life


@pytest.mark.long
async def test_killed_node_is_taken_over(nodes: RayNodes, tmp_path: Path) -> None:
    """A raylet and its workers that are killed lose no finished effect, and are taken over within a lease."""
    node = nodes.ask("add", resources={"killed": 1})
    nodes.start()
    file = tmp_path / "killed"
    async with asyncio.timeout(_TEST_S), lyra.cluster.connect(nodes.url) as cluster:
        await _until(cluster, lambda cluster: len(_shards_of(cluster, node["name"])) >= 1)
        shards = _shards_of(cluster, node["name"])
        await _open_on(cluster, shards)
        handles = await _start_work(cluster, file, 24, 20)
        _signal_all(_family(node["raylet"]), signal.SIGKILL)
        began = time.monotonic()
        at = dict(Counter(name for name, *_ in _read(file)))
        await _until_open(cluster, shards, [name for name in cluster.view.hosts if name != node["name"]])
        took_s = time.monotonic() - began
        for handle in handles:
            ended = await handle.wait()
            assert (ended.reason, ended.result) == ("normal", 20)
    counted = Counter((name, int(step)) for name, step, _ in _read(file))
    assert len(counted) == 24 * 20
    assert {step for step, times in counted.items() if times > 1} <= _in_flight(at)
    assert took_s < _TAKEN_OVER_S, f"taken over after {took_s:.1f} s"
    print(f"killed node taken over after {took_s:.2f} s")


@pytest.mark.long
async def test_restarted_actor_joins_anew(nodes: RayNodes) -> None:
    """A host whose process is killed alone is started again by Ray, and joins under its name with another life."""
    head = nodes.ask("head")["name"]
    assert head in nodes.start()
    async with asyncio.timeout(_TEST_S), lyra.cluster.connect(nodes.url) as cluster:
        await _until(cluster, lambda cluster: bool(_shards_of(cluster, head)))
        shards = _shards_of(cluster, head)
        life = cluster.view.hosts[head].life
        ((pid, _),) = [(await (await cluster.spawn(f"{_MODULE}:where", shard=shards[0])).wait()).result]
        os.kill(pid, signal.SIGKILL)
        await _until(cluster, lambda cluster: cluster.view.is_alive(head) and cluster.view.hosts[head].life != life)
        await _until(cluster, lambda cluster: bool(_shards_of(cluster, head)))
        again = await (await cluster.spawn(f"{_MODULE}:where", shard=_shards_of(cluster, head)[0])).wait()
        assert again.result[0] != pid


async def test_stopped_hosts_give_their_shards_back(nodes: RayNodes) -> None:
    """`lyra cluster stop-ray` has the hosts leave in order: none is alive, and no lease of a shard has to run out."""
    started = nodes.start()
    async with asyncio.timeout(_TEST_S), lyra.cluster.connect(nodes.url) as cluster:
        await _until(cluster, _all_have(*started))
    command = ["cluster", "stop-ray", "--store", nodes.url, "--ray", nodes.ask("address")]
    stopping = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "lyra", *command, stdout=subprocess.PIPE, env=_environment()
    )
    told, _ = await stopping.communicate()
    assert stopping.returncode == 0
    assert set(told.decode().splitlines()) >= {f"host {name} has left" for name in started}
    directory = PostgresDirectory(nodes.url, make=False)
    assert not directory.view().alive()
    for number in range(1, _SHARDS + 1):
        store = PostgresStore(nodes.url, schema=f"{directory.schema}_s{number}")
        assert store.holder() is None
        store.close()
    directory.close()
