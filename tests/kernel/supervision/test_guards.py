"""A process with a supervision of its own is known by one pid, whichever of its runs is alive."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lyra.errors import InvalidTransition
from lyra.kernel import Kernel
from tests.kernel.conftest import Crash, pass_time, run, settle

AGAIN = {"strategy": "restart", "max_restarts": 5}


async def asks(ctx, question="go on?"):
    """Asks in one line and crashes in another when told to."""

    async def listen():
        await ctx.receive()
        raise ValueError("boom")

    async with asyncio.TaskGroup() as lines:
        asked = lines.create_task(_ask(ctx, question))
        listening = lines.create_task(listen())
        answer = await asked
        listening.cancel()
    return [ctx.pid, answer]


async def _ask(ctx, question):
    return (await ctx.ask(question, kind="confirmation")).text


async def asks_once(ctx):
    return [ctx.pid, await _ask(ctx, "go on?")]


async def tells_its_pid(ctx, friend):
    await ctx.send(friend, ctx.pid)
    message = await ctx.receive()
    if message == "crash":
        raise ValueError("boom")
    return [ctx.pid, message]


async def collects(ctx, count):
    return [await ctx.receive() for _ in range(count)]


def test_a_question_is_found_by_the_guards_pid(target):
    """Pending, listed, shown and answered under the pid that `spawn` gave; the run's own pid leads to the same."""

    async def main():
        async with Kernel(target) as kernel:
            handle = kernel.spawn(asks, pid="g", supervision=AGAIN)
            await settle(kernel)
            asked = kernel.get_pending_interrupt("g")
            assert asked is not None
            assert (asked.pid, asked.question) == ("g", "go on?")
            run_pid = handle.children[0]
            assert run_pid != "g"
            assert kernel.get_pending_interrupt(run_pid) == asked
            assert [interrupt.id for interrupt in kernel.interrupts.pending("g")] == [asked.id]
            assert [interrupt.id for interrupt in kernel.interrupts.list_interrupts("g")] == [asked.id]
            status = kernel.get_request_status("g")
            assert status.pending_interrupt == asked
            assert status.pcb.pending_interrupt == "confirmation"
            assert status.pcb.current_service == "tests.kernel.supervision.test_guards:asks"
            assert (status.pcb.state, handle.state) == ("waiting", "waiting")
            await kernel.resolve_interrupt(asked.id, {"text": "yes"}, user_id="anybody")
            assert (await handle.wait()).result == ["g", "yes"]
            assert kernel.interrupts.get_interrupt(asked.id).status == "resolved"
            assert kernel.get_pending_interrupt("g") is None

    run(main())


def test_a_crash_takes_its_question_back_and_no_other(target):
    """What a crashed run asked is cancelled; the next run's question, and one about the process, are open."""

    async def main():
        async with Kernel(target) as kernel:
            handle = kernel.spawn(asks, pid="g", supervision=AGAIN)
            await settle(kernel)
            first = kernel.get_pending_interrupt("g")
            about = kernel.create_interrupt(handle.children[0], "clarification", "who is this?")
            assert about.pid == "g"
            await kernel.send("g", "crash")
            await settle(kernel)
            assert kernel.interrupts.get_status(first.id) == "cancelled"
            with pytest.raises(InvalidTransition, match="cancelled already"):
                kernel.resolve_interrupt(first.id, {"text": "late"})
            assert kernel.get_pending_interrupt("g").id == about.id  # it has waited longest
            second = kernel.interrupts.pending("g")
            assert [interrupt.id for interrupt in kernel.interrupts.list_interrupts("g")] == [
                first.id,
                about.id,
                second[0].id,
            ]
            await kernel.resolve_interrupt(second[0].id, {"text": "yes"})
            assert (await handle.wait()).result == ["g", "yes"]
            assert kernel.interrupts.get_status(about.id) == "cancelled"  # its process has ended

    run(main())


def test_a_question_and_its_pid_survive_kill_9(path):
    """After a crash of the kernel the question is there under the guard's pid, once, and its answer arrives."""

    async def main():
        async with Crash(Kernel(path)) as kernel:
            await kernel.spawn(asks_once, pid="g", supervision=AGAIN)
            await settle(kernel)
            asked = kernel.get_pending_interrupt("g")
        async with Crash(Kernel(path, programs=[asks_once])) as kernel:
            assert kernel.get_pending_interrupt("g").id == asked.id
            await settle(kernel)
            assert [interrupt.id for interrupt in kernel.interrupts.pending("g")] == [asked.id]
            await kernel.resolve_interrupt(asked.id, {"text": "yes"})
        async with Kernel(path, programs=[asks_once]) as kernel:
            assert (await kernel.process("g").wait()).result == ["g", "yes"]
            assert kernel.interrupts.pending() == []

    run(main())


def test_a_program_tells_others_the_pid_that_lasts(target):
    """`ctx.pid` is where answers reach it, also after a restart."""

    async def main():
        async with Kernel(target) as kernel:
            friend = kernel.spawn(collects, 2)
            handle = kernel.spawn(tells_its_pid, friend.pid, supervision=AGAIN)
            await settle(kernel)
            await kernel.send(handle, "crash")
            told = (await friend.wait()).result
            assert told == [handle.pid, handle.pid]
            await kernel.send(told[0], "hello")
            assert (await handle.wait()).result == [handle.pid, "hello"]

    run(main())


def test_an_alert_has_the_guards_pid(target, clock):
    """Health is told about the process people know."""
    stuck: Any = None

    async def hang():
        await stuck

    async def works(ctx):
        await ctx.do(hang)

    async def main():
        nonlocal stuck
        stuck = asyncio.get_running_loop().create_future()
        async with Kernel(target, clock) as kernel:
            told = []
            kernel.on_event(lambda event: told.append(event.pid) if event.kind == "health.alert" else None)
            kernel.health.start(interval_s=10, thresholds={"stale_s": 60})
            kernel.spawn(works, pid="g", supervision=AGAIN)
            await pass_time(kernel, clock, 100, step_s=10)
            assert told == ["g"]
            stuck.set_result(None)
            await settle(kernel)

    run(main())
