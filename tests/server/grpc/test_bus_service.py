"""CommBusService: events, commands, queries; a slow reader loses events, is told how many, and holds nothing up."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.server.grpc.client import ALICE, Client, on_loop, serving


async def _subscribed(kernel: Any, client: Client, *types: str) -> Any:
    before = kernel.bus.subscribers(types[0])
    call = client("CommBusService/Subscribe", event_types=list(types))
    first = asyncio.ensure_future(call.read())
    while kernel.bus.subscribers(types[0]) == before:
        await asyncio.sleep(0.01)
    return call, first


@on_loop
async def test_an_event_reaches_subscribers_over_grpc_and_inside():
    async with serving() as (kernel, client):
        inside: list[Any] = []
        kernel.bus.subscribe("tick", lambda message: inside.append(message.payload))
        _call, first = await _subscribed(kernel, client.as_(ALICE), "tick", "tock")
        answer = await client("CommBusService/Publish", event_type="tick", payload=b'{"n": 1}')
        assert answer.success
        event = await first
        assert (event.event_type, json.loads(event.payload), event.dropped) == ("tick", {"n": 1}, 0)
        assert event.timestamp_ms > 0
        await kernel.bus.publish("tock", [2])
        assert json.loads((await _call.read()).payload) == [2]
        assert inside == [{"n": 1}]


@on_loop
async def test_a_slow_reader_loses_events_is_told_how_many_and_holds_nothing_up():
    """Events beyond the room of one subscription are dropped, oldest first; a publisher does not wait for it."""
    async with serving() as (kernel, client):
        call, first = await _subscribed(kernel, client, "tick")
        size, count = 20_000, 2_000
        for number in range(count):
            await kernel.bus.publish("tick", {"n": number, "text": "x" * size})
        await kernel.bus.publish("tick", "last")
        numbers, dropped = [json.loads((await first).payload)["n"]], 0
        while (event := await call.read()) and event.payload != b'"last"':
            numbers.append(json.loads(event.payload)["n"])
            dropped = event.dropped
        assert numbers == sorted(numbers)
        assert 0 < event.dropped <= count
        assert len(numbers) + event.dropped == count
        assert dropped <= event.dropped


@on_loop
async def test_a_subscription_ends_with_its_call():
    async with serving() as (kernel, client):
        call, first = await _subscribed(kernel, client, "tick")
        call.cancel()
        await asyncio.wait([first])
        async with asyncio.timeout(30.0):
            while kernel.bus.subscribers("tick"):
                await asyncio.sleep(0.01)


@on_loop
async def test_a_command_runs_its_handler_and_tells_how_it_went():
    async with serving() as (kernel, client):
        done: list[Any] = []
        kernel.bus.register_handler("do", lambda message: done.append(message.payload))

        def fails(_message: Any) -> None:
            raise ValueError("the disk is full")

        kernel.bus.register_handler("fail", fails)
        assert (await client("CommBusService/Send", command_type="do", payload=b"[1]")).success
        assert done == [[1]]
        answer = await client("CommBusService/Send", command_type="fail")
        assert (answer.success, "the disk is full" in answer.error) == (False, True)


@on_loop
async def test_a_query_has_an_answer_or_runs_out_of_time():
    """`timeout_ms` bounds the handler; a deadline of the call does, too."""
    async with serving() as (kernel, client):

        async def never(_message: Any) -> None:
            await asyncio.Event().wait()

        kernel.bus.register_handler("double", lambda message: message.payload * 2)
        kernel.bus.register_handler("never", never)
        answer = await client("CommBusService/Query", query_type="double", payload=b"21")
        assert (answer.success, json.loads(answer.result)) == (True, 42)
        code, details = await client.error("CommBusService/Query", query_type="never", timeout_ms=50)
        assert (code, details) == ("DEADLINE_EXCEEDED", "query never timed out after 0.05s")
        assert await client.status("CommBusService/Query", query_type="never", timeout=0.2) == "DEADLINE_EXCEEDED"
