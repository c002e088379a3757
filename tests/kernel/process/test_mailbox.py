"""Mailboxes: order, bounds, back-pressure and what happens to unread messages."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lyra.errors import NoSuchProcess, Overloaded, ProcessError, ProcessExit
from lyra.kernel import Kernel
from lyra.testing import SimClock
from tests.kernel.conftest import pass_time, run, settle


async def collect(ctx, count):
    return [await ctx.receive() for _ in range(count)]


async def forever(ctx):
    await ctx.receive()
    await ctx.receive()


def test_messages_arrive_in_order(target):
    """First in, first out, from outside and from other processes."""

    async def talker(ctx, to):
        for number in range(50):
            await ctx.send(to, number)

    async def main():
        async with Kernel(target) as kernel:
            handle = kernel.spawn(collect, 52, name="ear")
            await kernel.send("ear", "first")
            await kernel.run(talker, "ear")
            await kernel.send(handle, "last")
            assert (await handle.wait()).result == ["first", *range(50), "last"]

    run(main())


def test_back_pressure(target):
    """A sender into a full mailbox waits until there is room; nothing is dropped."""
    progress = []

    async def talker(ctx, to):
        for number in range(6):
            await ctx.send(to, number)
            progress.append(number)

    async def slow(ctx):
        await ctx.ask("begin?")
        return [await ctx.receive() for _ in range(6)]

    async def main():
        async with Kernel(target, mailbox_messages_max=2) as kernel:
            ear = kernel.spawn(slow)
            kernel.spawn(talker, ear.pid)
            await settle(kernel)
            assert progress == [0, 1]
            outside = asyncio.ensure_future(_send(kernel, ear.pid))
            await settle(kernel)
            assert not outside.done()
            await kernel.resolve_interrupt(kernel.interrupts.pending(ear.pid)[0].id, {"text": "go"})
            await settle(kernel)
            assert (await ear.wait()).result == [0, 1, 2, "outside", 3, 4]
            await outside

    async def _send(kernel, pid):
        await kernel.send(pid, "outside")

    run(main())


def test_receive_with_a_time_limit(clock):
    """`receive(timeout=)` gives None when nothing came, and the message when one did."""

    async def program(ctx):
        first = await ctx.receive(timeout=2)
        second = await ctx.receive(timeout=2)
        third = await ctx.receive(timeout_s=0)
        return [first, second, third]

    async def main():
        async with Kernel(clock=clock) as kernel:
            handle = kernel.spawn(program)
            await pass_time(kernel, clock, 3)
            kernel.send(handle.pid, "hello")
            await pass_time(kernel, clock, 3)
            assert (await handle.wait()).result == [None, "hello", None]

    run(main())


def test_unread_messages_are_told(target):
    """What was in a mailbox when its process ended, or came later, is dropped with an Event."""

    async def main():
        seen = []
        async with Kernel(target) as kernel:
            kernel.on_event(lambda event: event.kind == "message.dropped" and seen.append(event.data["count"]))
            handle = kernel.spawn(collect, 1)
            for number in range(4):
                kernel.send(handle.pid, number)
            await handle.wait()
            assert seen == [3]
            await kernel.send(handle.pid, "late")
            assert seen == [3, 1]
            with pytest.raises(NoSuchProcess):
                kernel.send("missing", 1)

    run(main())


def test_a_waiting_sender_goes_on_when_the_receiver_dies(target):
    """No sender waits for ever on the mailbox of an ended process."""

    async def talker(ctx, to):
        for number in range(5):
            await ctx.send(to, number)
        return "done"

    async def deaf(ctx):
        await ctx.ask("?")

    async def main():
        async with Kernel(target, mailbox_messages_max=1) as kernel:
            ear = kernel.spawn(deaf)
            mouth = kernel.spawn(talker, ear.pid)
            await settle(kernel)
            assert mouth.alive
            kernel.kill(ear.pid)
            assert (await mouth.wait()).result == "done"

    run(main())


def test_one_receive_at_a_time():
    """Two branches of one process cannot both wait for a message."""

    async def program(ctx):
        async def branch():
            return await ctx.receive()

        with pytest.raises(ProcessError, match="receiving already"):
            await asyncio.gather(branch(), branch())

    async def main():
        async with Kernel() as kernel:
            await kernel.run(program)

    run(main())


def test_a_branch_may_receive(target):
    """A parallel branch waits for messages while the program waits for the branch."""

    async def program(ctx):
        async def listen():
            return [await ctx.receive(), await ctx.receive(timeout=5)]

        return await asyncio.gather(listen())

    async def main():
        async with Kernel(target) as kernel:
            handle = kernel.spawn(program)
            await settle(kernel)
            await kernel.send(handle, 1)
            await kernel.send(handle, 2)
            assert (await handle.wait()).result == [[1, 2]]

    run(main())


def test_a_child_handle_sends(target):
    """`child.send` is `ctx.send` to that child; `ctx.own_process` finds any process."""

    async def program(ctx):
        child = ctx.spawn(collect, 2, name="kid")
        child.send(1)
        ctx.process("kid").send(2)
        with pytest.raises(NoSuchProcess):
            ctx.process("missing").send(1)
        with pytest.raises(NoSuchProcess):
            await ctx.process("missing").wait()
        with pytest.raises(NoSuchProcess):
            ctx.send("missing", 1)
        return (await child.wait()).result

    async def main():
        async with Kernel(target) as kernel:
            assert await kernel.run(program) == [1, 2]

    run(main())


def test_an_unawaited_send_is_not_lost(target):
    """A send into a full mailbox that is not awaited arrives when there is room, in order."""

    async def talker(ctx, to):
        for number in range(6):
            ctx.send(to, number)

    async def slow(ctx):
        await ctx.ask("begin?")
        return [await ctx.receive() for _ in range(7)]

    async def main():
        async with Kernel(target, mailbox_messages_max=2) as kernel:
            ear = kernel.spawn(slow)
            await settle(kernel)
            await kernel.run(talker, ear.pid)
            kernel.send(ear, "last")
            await kernel.resolve_interrupt(kernel.interrupts.pending(ear.pid)[0].id, {"text": "go"})
            assert (await ear.wait()).result == [0, 1, 2, 3, 4, 5, "last"]

    run(main())


def test_the_line_for_a_mailbox_is_bounded(monkeypatch):
    """More waiting messages than the limit is Overloaded, not a full memory."""
    monkeypatch.setattr("lyra.kernel.process.mailbox.WAITING_SENDERS_MAX", 3)

    async def deaf(ctx):
        await ctx.ask("?")

    async def main():
        async with Kernel(mailbox_messages_max=1) as kernel:
            ear = kernel.spawn(deaf)
            for number in range(4):
                kernel.send(ear, number)
            with pytest.raises(Overloaded):
                kernel.send(ear, 5)

    run(main())


@pytest.mark.parametrize("how", ["cancelled", "closed"])
def test_a_message_that_waited_for_room_is_not_delivered_once_its_sender_was_told(tmp_path, how):
    """A sender that gives up, or is told at close, while its message waits for room: no kernel delivers it."""
    path = str(tmp_path / "run.db")
    read: list[Any] = []

    async def hold(ctx: Any) -> None:
        await ctx.sleep(60)
        while True:
            read.append(await ctx.receive())

    async def first() -> None:
        kernel = Kernel(path, mailbox_messages_max=1)
        await kernel.start()
        await kernel.spawn(hold, pid="h")
        await kernel.send("h", "first")
        waiting = asyncio.ensure_future(asyncio.wait_for(kernel.send("h", "second"), 0.02 if how == "cancelled" else 9))
        await asyncio.sleep(0.05)
        if how == "closed":
            await kernel.close()
        with pytest.raises(TimeoutError if how == "cancelled" else ProcessExit):
            await waiting
        await kernel.close()

    async def second() -> None:
        clock = SimClock(2_000_000_000.0)
        async with Kernel(path, clock, programs=[hold]) as kernel:
            await settle(kernel)
            clock.advance(120)
            await settle(kernel)

    asyncio.run(first())
    asyncio.run(second())
    assert read == ["first"]
