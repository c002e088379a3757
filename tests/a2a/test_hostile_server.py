"""Servers that do not keep to the protocol: each answer is an error in words, bounded in time, bytes and requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from lyra import Kernel, a2a
from lyra.a2a import connection
from lyra.a2a.remote_agent import RemoteOrder
from lyra.errors import DeadlineExceeded, EffectFailed, OutcomeUnknown
from tests.a2a.hostile_server import HostileServer, RawHttp, result, stream_of
from tests.a2a.support import in_loop

SECRET = "secret-token-of-the-remote"
WORKING = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}


def answered(part: bytes) -> bytes:
    """A message with that part."""
    message = b'{"messageId": "m", "role": "ROLE_AGENT", "parts": [' + part + b"]}"
    return b'{"jsonrpc": "2.0", "id": 1, "result": {"message": ' + message + b"}}"


WRONG: dict[str, Any] = {
    "no JSON": b"<html>",
    "no text": b"\xff\xfe\xff",
    "a list": b"[]",
    "an empty object": b"{}",
    "no result": result(None),
    "a text as the result": result("x"),
    "a list as the result": result([1]),
    "neither task nor message": result({}),
    "an error of another shape": b'{"jsonrpc": "2.0", "id": 1, "error": {"code": "x", "data": [1, {"@type": 3}]}}',
    "deep JSON": b"[" * 200_000,
    "a deep part": answered(b'{"data": ' + b"[" * 90 + b"]" * 90 + b"}"),
    "half of a surrogate pair": answered(b'{"text": "a\\ud800b"}'),
    "not a number": answered(b'{"data": {"a": NaN}}'),
    "an endless number": answered(b'{"data": {"a": 1e999}}'),
    "a state that there is not": result({"task": {"id": "t", "contextId": "c", "status": {"state": 99}}}),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_answer_of_another_shape_is_an_error_of_the_call(name: str) -> None:
    """The caller is told that the server does not speak A2A, by an error of Lyra and no other; a process that stands
    for the agent lives on where its server answered at all."""

    async def main() -> None:
        async with HostileServer(SendMessage=WRONG[name]) as server, Kernel() as kernel:
            process = await kernel.spawn(server.remote())
            with pytest.raises(EffectFailed) as caught:
                await process.send("go")
            assert server.place in caught.value.message
            assert process.alive

    in_loop(main())


CARDS: dict[str, Any] = {
    "no JSON": b"<html>",
    "a list": b"[]",
    "deep JSON": b"[" * 200_000,
    "skills of another type": b'{"name": "x", "skills": [1]}',
    "interfaces of another type": b'{"name": "x", "supportedInterfaces": 5}',
    "no interface": b'{"name": "x"}',
    "too large": b'{"name": "' + b"x" * connection.CARD_BYTES_MAX + b'"}',
}


@pytest.mark.parametrize("name", CARDS)
def test_a_card_of_another_shape_is_refused(name: str) -> None:
    """`connect` fails with a sentence that names the place, and nothing but the card was asked for."""

    async def main() -> None:
        async with HostileServer() as server:
            server.card = CARDS[name]
            with pytest.raises(EffectFailed, match=server.place):
                await a2a.connect(f"http://{server.place}", inside=[server.place])
            assert server.hits == ["card"]

    in_loop(main())


def test_a_card_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that sends its card byte by byte holds `connect` up for a bounded time only."""
    monkeypatch.setattr(connection, "CARD_S", 0.3)

    async def drip() -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(0.02)

    async def main() -> None:
        async with HostileServer() as server:
            server.card = RawHttp(drip())
            with pytest.raises(EffectFailed, match=r"within 0\.3 s") as caught:
                await a2a.connect(f"http://{server.place}", inside=[server.place])
            assert connection.is_lost(caught.value)

    in_loop(main())


def test_the_words_of_a_card_are_cut_and_have_no_hidden_characters() -> None:
    """The description of a card is what a model and a screen are shown."""

    async def main() -> None:
        async with HostileServer() as server:
            server.card = server.own_card(
                name="a b\x1b[2J" + "x" * 500, description="Does\u202e it.\x1b[31m" + "y" * 9_000
            )
            remote = await a2a.connect(f"http://{server.place}", inside=[server.place])
            assert remote.name.startswith("a_b__2Jxxx")
            assert len(remote.name) <= 56
            assert remote.description.startswith("Does it.[31myyy")
            assert len(remote.description) <= 4_000

    in_loop(main())


def test_a_redirect_is_not_followed() -> None:
    """Neither a card nor a request goes to another place by a redirect, also where that place may be reached; the
    token stays with its origin."""

    async def main() -> None:
        async with HostileServer() as server, HostileServer() as other:
            moved = RawHttp([b""], "307 Temporary Redirect", (f"location: http://{other.place}/rpc",))
            server.answers["SendMessage"] = moved
            settings: dict[str, Any] = {"inside": [server.place, other.place], "token": SECRET}
            async with Kernel() as kernel:
                process = await kernel.spawn(server.remote(**settings))
                with pytest.raises(EffectFailed, match="307"):
                    await process.send("go")
            server.card = moved
            with pytest.raises(EffectFailed, match="307"):
                await a2a.connect(f"http://{server.place}", **settings)
            assert server.tokens == [f"Bearer {SECRET}"] * len(server.tokens)
            assert other.hits == []

    in_loop(main())


def test_a_card_that_names_other_hosts_leads_nowhere() -> None:
    """Of the interfaces in a card the one of its own origin is used, also where another one stands first."""

    async def main() -> None:
        answer = {"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "here"}]}}
        async with HostileServer(SendMessage=result(answer)) as server, HostileServer() as other:
            server.card = server.own_card(other.place)
            inside = [server.place, other.place]
            async with Kernel() as kernel:
                process = await kernel.spawn(server.remote(inside=inside, token=SECRET))
                assert await process.send("go") == "here"
            assert other.hits == []

    in_loop(main())


def test_a_task_whose_stream_says_otherwise_is_not_asked_for_without_a_pause() -> None:
    """A server whose stream tells an end that the task does not have gets a handful of requests a second."""
    ended = {"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}}

    async def main() -> None:
        answers = {"SendMessage": result({"task": WORKING}), "GetTask": result(WORKING)}
        async with HostileServer(**answers, SubscribeToTask=stream_of(ended)) as server, Kernel() as kernel:
            process = await kernel.spawn(server.remote(timeout_s=1.0))
            with pytest.raises(DeadlineExceeded):
                await process.send("go")
            assert server.hits.count("GetTask") < 10

    in_loop(main())


def test_a_stream_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that tells the same status for ever is an error, not memory and not time."""
    monkeypatch.setattr(connection, "ANSWER_BYTES_MAX", 50_000)
    event = {"statusUpdate": {"taskId": "t", "contextId": "c", "status": WORKING["status"]}}

    def flood(request: dict[str, Any]) -> RawHttp:
        line = b"data: " + json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": event}).encode() + b"\n\n"

        async def lines() -> AsyncIterator[bytes]:
            while True:
                yield line

        return RawHttp(lines(), headers=("content-type: text/event-stream",))

    async def main() -> None:
        answers = {"SendMessage": result({"task": WORKING}), "GetTask": result(WORKING)}
        async with HostileServer(**answers, SubscribeToTask=flood) as server:
            with pytest.raises(EffectFailed, match="more than 50000 bytes"):
                await server.remote()._calls.wait("t")

    in_loop(main())


def test_a_cost_that_is_no_amount_is_not_charged() -> None:
    """True, a text, less than nothing and more than there is are no cost."""

    async def main() -> None:
        async with HostileServer() as server:
            calls = server.remote()._calls
            for cost in (True, "5", -1, 1e12, None, {"usd": 1}):
                task = {
                    **WORKING,
                    "status": {"state": "TASK_STATE_COMPLETED"},
                    "metadata": {"usage": {"cost_usd": cost}},
                }
                server.answers["GetTask"] = result(task)
                assert int((await calls.wait("t")).usage.usd) == 0, cost

    in_loop(main())


def test_an_answer_is_not_sent_again_where_the_task_may_ask_something_else_by_now() -> None:
    """After a kill the task asks: without its history it cannot be known whether it still asks the same. With it, the
    answer is sent again only if it is not there."""
    asks = {**WORKING, "status": {"state": "TASK_STATE_INPUT_REQUIRED"}}
    order = RemoteOrder("answer-1", "c", "yes", "t", False)

    async def main() -> None:
        async with HostileServer(GetTask=result(asks), SendMessage=result({"task": WORKING})) as server:
            calls = server.remote()._calls
            with pytest.raises(OutcomeUnknown, match="which answers"):
                await calls.find_out(order)
            assert "SendMessage" not in server.hits
            for message_id, sent in (("answer-1", 0), ("another", 1)):
                row = {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": "x"}]}
                server.answers["GetTask"] = result({**asks, "history": [row]})
                await calls.find_out(order)
                assert server.hits.count("SendMessage") == sent

    in_loop(main())
