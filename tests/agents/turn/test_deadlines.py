"""Deadlines over a real HTTP provider: DeadlineExceeded, wherever in the exchange the time is up."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import lyra
from lyra import Agent, Kernel
from lyra.errors import DeadlineExceeded, ModelError
from lyra.models.client import LLMClient
from tests.models.server import Reply, Server, run, sse

PIECE = sse({"choices": [{"index": 0, "delta": {"content": "hi"}}]})
LIMIT_S = 0.3


@asynccontextmanager
async def no_room() -> AsyncIterator[str]:
    """An address that takes no further connection: its queue is full."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = [socket.socket() for _ in range(3)]
        for other in waiting:
            other.setblocking(False)
            other.connect_ex(listener.getsockname())
        try:
            yield f"http://localhost:{listener.getsockname()[1]}"
        finally:
            for other in waiting:
                other.close()


@asynccontextmanager
async def hanging(reply: Reply) -> AsyncIterator[str]:
    async with Server(reply) as server:
        yield server.url


PLACES = {
    "connecting": no_room,
    "before the answer": lambda: hanging(Reply(b"", delay_s=30)),
    "before the first piece": lambda: hanging(Reply(b"", hang=True)),
    "between two pieces": lambda: hanging(Reply(PIECE, hang=True)),
}


async def own_budget(kernel: Kernel, agent: Any) -> Any:
    return await (await kernel.spawn(agent(budget={"seconds": LIMIT_S}))).send("x")


async def own_budget_in_a_stream(kernel: Kernel, agent: Any) -> Any:
    return [piece async for piece in (await kernel.spawn(agent(budget={"seconds": LIMIT_S}))).stream("x")]


async def budget_of_a_task(kernel: Kernel, agent: Any) -> Any:
    ended = await (await kernel.spawn(agent(), "x", budget={"seconds": LIMIT_S})).wait()
    assert ended.error is not None
    raise ended.error


async def budget_of_a_call(kernel: Kernel, agent: Any) -> Any:
    return await (await kernel.spawn(agent())).send("x", budget={"seconds": LIMIT_S})


async def scope(kernel: Kernel, agent: Any) -> Any:
    with lyra.budget(seconds=LIMIT_S):
        return await (await kernel.spawn(agent())).send("x")


async def timeout_of_a_call(kernel: Kernel, agent: Any) -> Any:
    return await (await kernel.spawn(agent())).send("x", timeout=LIMIT_S)


async def budget_of_a_program(kernel: Kernel, agent: Any) -> Any:
    async def main(ctx: Any) -> Any:
        return await lyra.run(agent(), "x", on=ctx)

    ended = await kernel.spawn(main, budget={"seconds": LIMIT_S}).wait()
    assert ended.error is not None
    raise ended.error


WAYS = [
    own_budget,
    own_budget_in_a_stream,
    budget_of_a_task,
    budget_of_a_call,
    scope,
    timeout_of_a_call,
    budget_of_a_program,
]


@pytest.mark.parametrize(
    ("way", "place"),
    [*((way, "between two pieces") for way in WAYS), *((own_budget, place) for place in PLACES)],
    ids=lambda part: part if isinstance(part, str) else part.__name__,
)
def test_a_deadline_is_told_as_one(way, place):
    """Neither an error of the transport nor an ExceptionGroup, and not tried again."""

    async def main() -> None:
        async with PLACES[place]() as url, Kernel() as kernel:
            kernel.parts["models"] = client = LLMClient({"local": {"base_url": f"{url}/v1", "api_key": "none-needed"}})
            try:
                with pytest.raises(DeadlineExceeded):
                    await way(kernel, lambda **settings: Agent("a", model="local/x", **settings))
                while any(
                    process.alive and process.out_of_time for process in kernel.processes.present()
                ):  # a process that was told to end hangs up first
                    await asyncio.sleep(0.01)
            finally:
                await client.close()

    run(main())


def test_a_deadline_inside_a_task_group_of_an_effect_is_told_as_one():
    """A library may collect it in an ExceptionGroup, or make an error of its own from it."""

    async def grouped() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(30))
            await asyncio.sleep(30)

    async def renamed() -> None:
        try:
            await asyncio.sleep(30)
        except OSError as error:
            raise ValueError("the line broke") from error

    async def main() -> None:
        for effect in (grouped, renamed):

            async def program(ctx: Any, effect: Any = effect) -> None:
                await ctx.do(effect)

            async with Kernel() as kernel:
                ended = await kernel.spawn(program, budget={"seconds": 0.1}).wait()
                assert isinstance(ended.error, DeadlineExceeded)

    run(main())


def test_an_address_that_cannot_be_reached_is_named():
    with socket.socket() as closed:  # bound and not listening
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]

        async def main() -> None:
            url = f"http://127.0.0.1:{port}/v1"
            client = LLMClient({"local": {"base_url": url, "api_key": "none-needed"}})
            async with Kernel() as kernel:
                kernel.parts["models"] = client
                process = await kernel.spawn(Agent("a", model="local/x", retry={"max_attempts": 1}))
                with pytest.raises(ModelError) as caught:
                    await process.send("x")
                assert f"cannot be reached at http://127.0.0.1:{port}" in caught.value.message
                assert caught.value.kind == "connection"

        run(main())
