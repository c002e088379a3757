"""Calls between hosts over real gRPC."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lyra.cluster.client import Cluster
from lyra.cluster.directory import HostRow, MemoryDirectory
from lyra.cluster.peers import GrpcCarrier, GrpcListener
from lyra.cluster.ray_calls import actor_name, ray_address

pytestmark = pytest.mark.anyio


async def test_call_moves_with_its_shard() -> None:
    """A call to a host that stands still is made again on the one that has taken the shard over, long before it times
    out; a call to one that is slow is not."""
    loop = asyncio.get_running_loop()
    directory = MemoryDirectory(["s1"], loop.time, lease_s=0.4)
    asked: list[str] = []
    reached = asyncio.Event()

    async def stand_still(method: str, data: Any) -> Any:
        asked.append("frozen")
        reached.set()
        await asyncio.Event().wait()

    async def answer_slowly(method: str, data: Any) -> Any:
        asked.append("next")
        await asyncio.sleep(1.0)
        return "done"

    listeners = [GrpcListener("127.0.0.1:0"), GrpcListener("127.0.0.1:0")]
    for name, listener, answer in zip(("frozen", "next"), listeners, (stand_still, answer_slowly), strict=True):
        await listener.start(answer, directory.secret)
        directory.join(HostRow(name, name, ray_address(name, listener.address), "1", 1))
    directory.lease_s = 60.0  # the rows of both live on
    for name in ("frozen", "next"):
        directory.renew(directory.view().hosts[name], directory.view())
    assert directory.assign("s1", "frozen", 0)
    directory.lease_s = 0.4
    async with Cluster(directory, GrpcCarrier(directory.secret)) as cluster:
        calling = loop.create_task(cluster.call_shard("s1", "anything", {}, timeout_s=30.0))
        await reached.wait()
        assert directory.assign("s1", "next", 1)
        assert await asyncio.wait_for(calling, 15.0) == "done"
    assert asked == ["frozen", "next"]
    for listener in listeners:
        await listener.close(0.0)


def test_addresses_of_both_kinds() -> None:
    """An address says by which actor a host of Ray's is called; one that was started by hand has none."""
    assert actor_name(ray_address("ray-0a1b", "10.0.0.7:4100")) == "ray-0a1b"
    assert actor_name("10.0.0.7:4100") == ""
