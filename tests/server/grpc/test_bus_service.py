"""CommBusService: events, commands, queries; a slow reader loses events, is told how many, and holds nothing up."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.server.grpc.client import ALICE, BOB, OPERATOR, Client, on_loop, serving


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
        as_alice = client.as_(OPERATOR, user_id="alice")
        answer = await as_alice("CommBusService/Publish", event_type="tick", payload=b'{"n": 1}')
        assert answer.success
        event = await first
        assert (event.event_type, json.loads(event.payload), event.dropped) == ("tick", {"n": 1}, 0)
        assert event.timestamp_ms > 0
        await kernel.bus.publish("tock", [2], user_id="alice")
        assert json.loads((await _call.read()).payload) == [2]
        assert inside == [{"n": 1}]


@on_loop
async def test_a_user_hears_the_events_of_their_own_bus_alone():
    """What bob, the operator or the server publish does not reach alice; what is published for her does. The operator
    hears all of it, with the user whose event it is, and hears one user where the call names one."""
    async with serving() as (kernel, client):
        alice, bob = client.as_(ALICE), client.as_(BOB)
        hers, first = await _subscribed(kernel, alice, "tick")
        all_of_them, first_of_all = await _subscribed(kernel, client, "tick")
        his, first_of_his = await _subscribed(kernel, client.as_(OPERATOR, user_id="bob"), "tick")
        await bob("CommBusService/Publish", event_type="tick", payload=b'"of bob"')
        await client("CommBusService/Publish", event_type="tick", payload=b'"of the operator"')
        await kernel.bus.publish("tick", "of the server")
        await alice("CommBusService/Publish", event_type="tick", payload=b'"of alice"')
        await client.as_(OPERATOR, user_id="alice")("CommBusService/Publish", event_type="tick", payload=b'"for alice"')
        assert [json.loads((await first).payload), json.loads((await hers.read()).payload)] == ["of alice", "for alice"]
        assert json.loads((await first_of_his).payload) == "of bob"
        heard = [await first_of_all, *[await all_of_them.read() for _ in range(4)]]
        assert [event.user_id for event in heard] == ["bob", "", "", "alice", "alice"]
        for call in (hers, all_of_them, his):
            call.cancel()


@on_loop
async def test_a_handler_knows_in_whose_name_a_command_or_a_query_is_sent():
    """The user comes from the token, not from the payload; a token of bob's sends nothing in the name of alice."""
    async with serving() as (kernel, client):
        names: list[str] = []
        kernel.bus.register_handler("pay", lambda message: names.append(message.user_id))
        kernel.bus.register_handler("who", lambda message: message.user_id)
        for caller in (client.as_(BOB), client.as_(ALICE), client, client.as_(OPERATOR, user_id="carol")):
            await caller("CommBusService/Send", command_type="pay", payload=b'{"user_id": "alice"}')
            names.append(json.loads((await caller("CommBusService/Query", query_type="who")).result))
        assert names == ["bob", "bob", "alice", "alice", "", "", "carol", "carol"]
        as_alice = client.as_(BOB, user_id="alice")
        for method, fields in (("Send", {"command_type": "pay"}), ("Query", {"query_type": "who"})):
            assert await as_alice.status(f"CommBusService/{method}", **fields) == "PERMISSION_DENIED"
        assert len(names) == 8


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
