"""The mark of text from outside goes every way that text can go from one process to another, and only there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from lyra import Agent, Kernel
from lyra.kernel.process.links import Down
from tests.agents.support import says
from tests.kernel.conftest import settle

# A way: makes text of the process `giver` reach the process `taker`, given the kernel and an effect runner of each.
Do = Callable[[Callable[[Any], Any]], Awaitable[Any]]
Way = Callable[[Kernel, str, Do, str, Do], Awaitable[None]]


async def listener(ctx: Any) -> None:
    while True:
        await ctx.receive()


async def performer(ctx: Any) -> None:
    """Performs the functions that it is sent, each as an effect, and answers the future that comes with it."""
    while not isinstance(request := await ctx.receive(), Down):
        function, done = request

        async def call(function: Any = function) -> None:
            result = function(ctx)
            if hasattr(type(result), "__await__"):
                result = await result

        await ctx.do(call)
        done.set_result(None)


async def message(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    await gives(lambda ctx: ctx.send(taker, (lambda _: None, asyncio.get_running_loop().create_future())))


async def sent_by_kernel(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    await gives(lambda ctx: kernel.send(taker, (lambda _: None, asyncio.get_running_loop().create_future())))


async def broadcast(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    kernel.groups.create("desk")
    kernel.groups.join("desk", taker)
    text = (lambda _: None, asyncio.get_running_loop().create_future())
    await gives(lambda ctx: kernel.groups.broadcast("desk", text))


async def blackboard(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    kernel.groups.create("desk")
    await gives(lambda ctx: kernel.groups.bb_set("desk", "key", "text"))
    await takes(lambda ctx: kernel.groups.bb_get("desk", "key"))


async def blackboard_whole(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    kernel.groups.create("desk")
    await gives(lambda ctx: kernel.groups.bb_set("desk", "key", "text"))
    await takes(lambda ctx: kernel.groups.bb_snapshot("desk"))


async def memory(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    await gives(lambda ctx: kernel.memories.add("us", "text"))
    await takes(lambda ctx: kernel.memories.items("us"))


async def memory_search(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    await gives(lambda ctx: kernel.memories.add("us", "text"))
    await takes(lambda ctx: kernel.memories.search("us", "text"))


async def published(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    await takes(lambda ctx: kernel.bus.subscribe("news", lambda _: None))
    await gives(lambda ctx: kernel.bus.publish("news", "text"))


async def streamed(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    streams: list[Any] = []
    await takes(lambda ctx: streams.append(kernel.bus.stream("news")))
    await gives(lambda ctx: kernel.bus.publish("news", "text"))


async def commanded(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    await takes(lambda ctx: kernel.bus.register_handler("news", lambda _: None))
    await gives(lambda ctx: kernel.bus.send("news", "text"))


async def queried(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    """The answer to a query goes back to the process that asked."""
    await gives(lambda ctx: kernel.bus.register_handler("news", lambda _: "text"))
    await takes(lambda ctx: kernel.bus.query("news", 1))


async def requested(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    kernel.register_service({"name": "printer", "service_type": "worker", "status": "healthy"})
    await takes(lambda ctx: kernel.register_handler("printer", lambda _: None))
    await gives(lambda ctx: kernel.dispatch("printer", {"metadata": {"text": "text"}}))


async def served(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    """The response of a service goes back to the process that asked."""
    kernel.register_service({"name": "printer", "service_type": "worker", "status": "healthy"})
    await gives(lambda ctx: kernel.register_handler("printer", lambda _: {"text": "text"}))
    await takes(lambda ctx: kernel.dispatch("printer"))


async def waited_for(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    """How a process ended, with its result, read by another."""
    kernel.kill(giver)
    await takes(lambda ctx: kernel.process(giver).wait())


async def signalled(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    """The text of the error that a monitored process ended with."""
    await takes(lambda ctx: kernel.links.monitor(ctx.own_process, kernel.processes[giver], "ref"))

    def fail(_ctx: Any) -> None:
        raise RuntimeError("text")

    kernel.send(giver, (fail, None))
    await settle(kernel)
    assert kernel.processes[giver].exit is not None


async def asked_agent(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    """A question to an agent, and its answer to another process."""
    helper = await kernel.spawn(Agent("helper", model=says("text")))
    await gives(lambda ctx: helper.send("hello"))
    assert kernel.taint.tainted(helper.pid) is kernel.taint.tainted(giver)
    await takes(lambda ctx: helper.send("hello"))


async def piped(kernel: Kernel, giver: str, gives: Do, taker: str, takes: Do) -> None:
    """A pipeline that one process begins, and whose events another reads."""

    async def stage(envelope: Any) -> dict[str, Any]:
        return {"text": "text"}

    async def read(_ctx: Any) -> None:
        async for _ in kernel.execute_pipeline(config, pid="line"):
            pass

    kernel.register_agent("first", stage)
    config = {"name": "review", "agents": [{"name": "first"}]}
    await gives(read)
    await takes(read)


WAYS = [
    *(message, sent_by_kernel, broadcast, blackboard, blackboard_whole, memory, memory_search, published, streamed),
    *(commanded, queried, requested, served, waited_for, signalled, asked_agent, piped),
]


@pytest.mark.parametrize("marked", [True, False], ids=["marked", "plain"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_the_mark_goes_with_the_text(way: Way, marked: bool) -> None:
    """A process that gets text of a marked one is marked; one that gets text of another is not, nor is a bystander."""

    async def main() -> None:
        async with Kernel() as kernel:
            giver, taker = await kernel.spawn(performer), await kernel.spawn(performer)
            bystander = await kernel.spawn(listener)
            if marked:
                kernel.taint.mark(giver.pid, "a page")

            def runner(process: Any) -> Do:
                async def do(function: Callable[[Any], Any]) -> None:
                    done = kernel.loop.create_future()
                    await kernel.send(process, (function, done))
                    await done

                return do

            await way(kernel, giver.pid, runner(giver), taker.pid, runner(taker))
            await settle(kernel)
            assert kernel.taint.tainted(taker.pid) is marked
            assert not kernel.taint.tainted(bystander.pid)

    asyncio.run(asyncio.wait_for(main(), 20))


async def board_writer(ctx: Any) -> None:
    kernel = ctx.own_process.kernel
    await ctx.receive()

    async def write() -> None:
        kernel.groups.bb_set("desk", "key", "text")

    await ctx.do(write)


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_marked_value_of_a_blackboard_outlives_its_kernel(tmp_path: Any, snapshot: bool) -> None:
    """After a restart a value still marks the process that reads it; written anew by another, it does not."""
    path = str(tmp_path / "run.db")

    async def first() -> None:
        async with Kernel(path) as kernel:
            kernel.groups.create("desk")
            writer = await kernel.spawn(board_writer)
            kernel.taint.mark(writer.pid, "a page")
            writer.send("go")
            await writer.wait()
            if snapshot:
                await settle(kernel)
                await kernel._recovery.snapshot()

    async def second() -> list[bool]:
        async with Kernel(path) as kernel:
            marks = []
            for _ in range(2):
                reader = await kernel.spawn(board_reader)
                await reader.wait()
                marks.append(kernel.taint.tainted(reader.pid))
                kernel.groups.bb_set("desk", "key", "the user's own")
            return marks

    async def board_reader(ctx: Any) -> None:
        async def read() -> Any:
            return ctx.own_process.kernel.groups.bb_get("desk", "key")

        await ctx.do(read)

    asyncio.run(asyncio.wait_for(first(), 20))
    assert asyncio.run(asyncio.wait_for(second(), 20)) == [True, False]
