"""Stopping: nothing new is taken, what is in flight finishes, waiting calls end, watchers are told."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from lyra.server.generated import engine_pb2 as pb
from lyra.server.grpc.guard import FINISHING
from tests.server.grpc.client import Client, on_loop, rest, serving

CONFIG = json.dumps({"name": "tea", "agents": [{"name": "brew"}]}).encode()


class _Slow:
    """An agent that waits until it is released."""

    def __init__(self) -> None:
        self.begun, self.release = asyncio.Event(), asyncio.Event()

    async def __call__(self, _envelope: Any) -> dict[str, Any]:
        self.begun.set()
        await self.release.wait()
        return {"cups": 1}


@on_loop
async def test_a_pipeline_in_flight_finishes_before_the_server_stops():
    """Its reader gets every event to the last, while new work is refused and health says NOT_SERVING."""
    slow = _Slow()
    async with serving() as (kernel, client):
        kernel.register_agent("brew", slow)
        kernel.submit("p1", user_id="alice")
        call = client("EngineService/ExecutePipeline", pipeline_config=CONFIG)
        await call.read()
        stopping = asyncio.ensure_future(client.face.stop(30.0))
        await slow.begun.wait()
        while not client.face._guard.draining:
            await asyncio.sleep(0)
        refused = await client.error("KernelService/CreateProcess", pid="p2", user_id="alice")
        assert refused == ("UNAVAILABLE", "the server is stopping")
        usage = await client("KernelService/RecordUsage", pid="p1", llm_calls=1)
        assert usage.llm_calls == 1
        health = await health_pb2_grpc.HealthStub(client.channel).Check(health_pb2.HealthCheckRequest())
        assert health.status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert not stopping.done()
        slow.release.set()
        assert (await rest(call))[-1].type == pb.PIPELINE_COMPLETED
        await stopping
        with pytest.raises(grpc.aio.AioRpcError):
            await Client(grpc.aio.insecure_channel(str(client.address)))("KernelService/GetProcessCounts", timeout=5.0)


@on_loop
async def test_subscriptions_end_at_once():
    """They would never end by themselves: the reader is told that the server stops."""
    async with serving() as (kernel, client):
        call = client("CommBusService/Subscribe", event_types=["e"])
        first = asyncio.ensure_future(call.read())
        while not kernel.bus.subscribers("e"):
            await asyncio.sleep(0.01)
        async with asyncio.timeout(10.0):
            await client.face.stop(60.0)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await first
        assert (error.value.code(), error.value.details()) == (
            grpc.StatusCode.UNAVAILABLE,
            "the server is stopping",
        )


@pytest.mark.slow
@on_loop
async def test_a_subscriber_that_reads_nothing_does_not_hold_the_stop_up():
    async with serving() as (kernel, client):
        call = client("CommBusService/Subscribe", event_types=["e"])
        while not kernel.bus.subscribers("e"):
            await asyncio.sleep(0.01)
        for _ in range(300):
            await kernel.bus.publish("e", "x" * 100_000)
        async with asyncio.timeout(30.0):
            await client.face.stop(300.0)
        call.cancel()


@on_loop
async def test_what_takes_longer_than_the_time_to_drain_is_cut_off():
    slow = _Slow()
    async with serving() as (kernel, client):
        kernel.register_agent("brew", slow)
        call = asyncio.ensure_future(client.status("EngineService/ExecuteAgent", agent_name="brew"))
        await slow.begun.wait()
        async with asyncio.timeout(30.0):
            await client.face.stop(0.1)
            assert await call in ("CANCELLED", "UNAVAILABLE")


@on_loop
async def test_stopping_twice_is_stopping_once():
    async with serving() as (_kernel, client):
        await client.face.stop(1.0)
        await client.face.stop(1.0)


def test_the_calls_that_a_draining_server_takes_exist():
    methods = {
        f"{name}/{rpc.name}" for name, service in pb.DESCRIPTOR.services_by_name.items() for rpc in service.methods
    }
    assert methods >= FINISHING
