"""Labels: the mark of text from outside goes where the text goes, and outlives every restart."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lyra.errors import ConfigError
from lyra.kernel import Kernel
from tests.kernel.conftest import settle


async def listener(ctx: Any) -> Any:
    while True:
        message = await ctx.receive()
        if message == "end":
            return "over"


async def sender(ctx: Any, to: str) -> None:
    await ctx.receive()
    await ctx.send(to, "hello")


async def parent(ctx: Any) -> str:
    await ctx.receive()
    child = ctx.spawn(listener)
    ctx.send(child, "end")
    ended = await child.wait()
    return f"{child.pid} {ended.result}"


PROGRAMS = [listener, sender, parent]


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 10))


def test_a_mark_goes_with_a_message_and_no_further():
    """The receiver is marked by who sent it; a process that was not sent anything is not."""

    async def work() -> None:
        async with Kernel() as kernel:
            receiver, other_receiver = await kernel.spawn(listener), await kernel.spawn(listener)
            plain, marked = await kernel.spawn(sender, receiver.pid), await kernel.spawn(sender, receiver.pid)
            kernel.taint.mark(marked.pid, "a page")
            plain.send("go")
            await plain.wait()
            assert not kernel.taint.is_tainted(receiver.pid)
            marked.send("go")
            await marked.wait()
            assert kernel.taint.state.pids[receiver.pid] == f"a message from {marked.pid}"
            assert not kernel.taint.is_tainted(other_receiver.pid)
            assert not kernel.taint.is_tainted(plain.pid)

    run(work())


def test_a_mark_goes_to_a_child_and_back_with_its_end():
    """What a child is given, and what it gives."""

    async def work() -> None:
        async with Kernel() as kernel:
            down = await kernel.spawn(parent)
            kernel.taint.mark(down.pid, "a page")
            down.send("go")
            ended = await down.wait()
            assert kernel.taint.is_tainted(ended.result.split()[0])

            up = await kernel.spawn(holder)
            while not up_child(kernel, up.pid):
                await asyncio.sleep(0)
            kernel.taint.mark(up_child(kernel, up.pid), "a page")
            kernel.send(up_child(kernel, up.pid), "end")
            await up.wait()
            assert kernel.taint.is_tainted(up.pid)

    def up_child(kernel: Kernel, pid: str) -> str:
        return next(iter(kernel.processes[pid].children or {}), "")

    async def holder(ctx: Any) -> None:
        child = ctx.spawn(listener)
        await child.wait()

    run(work())


@pytest.mark.parametrize("snapshot", [False, True])
def test_marks_outlive_their_kernel(tmp_path, snapshot):
    """From the journal, and from a snapshot."""
    path = str(tmp_path / "run.db")

    async def first() -> str:
        async with Kernel(path, programs=PROGRAMS) as kernel:
            process = await kernel.spawn(listener, pid="one")
            kernel.taint.mark(process.pid, "a page")
            kernel.taint.mark(process.pid, "another page")
            if snapshot:
                await settle(kernel)
                await kernel._snapshots.write()
            return process.pid

    async def second() -> dict[str, str]:
        async with Kernel(path, programs=PROGRAMS) as kernel:
            return dict(kernel.taint.state.pids)

    assert run(first()) == "one"
    assert run(second()) == {"one": "a page"}


def test_a_process_that_lives_keeps_its_mark():
    """No call takes it off."""

    async def main() -> bool:
        async with Kernel(programs=PROGRAMS) as kernel:
            process = await kernel.spawn(listener)
            kernel.taint.mark(process.pid, "a page")
            kernel.taint.forget(process.pid)
            return kernel.taint.is_tainted(process.pid)

    assert run(main())


def test_a_mark_is_forgotten_with_its_process():
    """And handed to a parent that could still ask what came of it."""

    async def work() -> None:
        async with Kernel() as kernel:
            process = await kernel.spawn(listener)
            kernel.taint.mark(process.pid, "a page")
            process.send("end")
            await process.wait()
            assert kernel.taint.is_tainted(process.pid)
            kernel.lifetimes.forget(process.pid)
            assert not kernel.taint.is_tainted(process.pid)

    run(work())


def test_a_memory_of_a_marked_process_carries_the_mark(tmp_path):
    """Also in the next life."""
    path = str(tmp_path / "run.db")

    async def first() -> None:
        async with Kernel(path, programs=PROGRAMS) as kernel:
            process = await kernel.spawn(listener, pid="one")
            kernel.memories.add("team", "before", pid=process.pid)
            kernel.taint.mark(process.pid, "a page")
            kernel.memories.add("team", "after", pid=process.pid)

    async def second() -> list[bool]:
        async with Kernel(path, programs=PROGRAMS) as kernel:
            return [item.tainted for item in kernel.memories.items("team")]

    run(first())
    assert run(second()) == [False, True]


@pytest.mark.parametrize("origin", [None, 3, {"decision": "retry"}, b"web"], ids=repr)
def test_an_origin_is_text(origin: Any) -> None:
    async def main() -> None:
        async with Kernel() as kernel:
            process = kernel.spawn(listener)
            with pytest.raises(ConfigError, match="an origin is text"):
                kernel.taint.mark(process.pid, origin)
            assert not kernel.taint.is_tainted(process.pid)

    run(main())
