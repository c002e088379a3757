"""What a call costs, beside a bare echo of the same library in the same process."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc.aio
import pytest

from lyra.core.clock import cpu_time
from lyra.server.generated import engine_pb2 as pb
from tests.limits import within
from tests.server.grpc.client import on_loop, serving

pytestmark = [pytest.mark.timed, pytest.mark.slow]


async def _seconds_for(call: Any, data: bytes, metadata: Any, count: int) -> float:
    async def some(number: int) -> None:
        for _ in range(number):
            await call(data, metadata=metadata)

    await some(50)
    began = cpu_time()
    await asyncio.gather(*(some(count // 10) for _ in range(10)))
    return cpu_time() - began


@on_loop
async def test_a_unary_call_costs_at_most_twice_an_echo():
    """CPU of client and server together, the best of three."""

    async def echo(data: bytes, _context: Any) -> bytes:
        return data

    bare = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(echo)
    bare.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", {"Echo": handler}),))
    port = bare.add_insecure_port("127.0.0.1:0")
    await bare.start()
    async with serving() as (kernel, client), grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        kernel.submit("p1", user_id="alice")
        data = pb.GetProcessRequest(pid="p1").SerializeToString()
        calls = {
            "echo": channel.unary_unary("/test.Echo/Echo"),
            "get": client.channel.unary_unary("/lyra.engine.v1.KernelService/GetProcess"),
        }
        spent = {
            name: min([await _seconds_for(call, data, client.metadata, 500) for _ in range(3)])
            for name, call in calls.items()
        }
        within(spent["get"], 2 * spent["echo"], spent)
    await bare.stop(None)


@on_loop
async def test_ten_thousand_processes_are_listed_in_200_ms():
    """CPU of the whole call, its client included."""
    async with serving() as (kernel, client):
        for number in range(10_000):
            kernel.submit(f"p{number}", user_id="alice")
        began = cpu_time()
        listed = await client("KernelService/ListProcesses", user_id="alice")
        spent_s = cpu_time() - began
        assert len(listed.processes) == 10_000
        within(spent_s, 0.2)
