"""A program and its effects are ordinary asyncio: timeouts, task groups, gather, context variables, other libraries."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest

from lyra.errors import ProcessError
from lyra.kernel import Kernel
from tests.kernel.conftest import run, settle

where: ContextVar[str] = ContextVar("where", default="nowhere")


async def act(value, delay_s=0.0):
    await asyncio.sleep(delay_s)
    return value


def test_timeout_around_a_park(target):
    """asyncio.timeout works around ctx calls: the process is the current task, and only it is cancelled."""

    async def program(ctx):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await ctx.receive()
        return await ctx.receive()

    async def main():
        async with Kernel(target) as kernel:
            handle = kernel.spawn(program)
            await asyncio.sleep(0.05)
            assert handle.alive
            await kernel.send(handle, "later")
            assert (await handle.wait()).result == "later"

    run(main())


def test_timeout_inside_an_effect(target):
    """The same inside an effect that waits for a real future."""

    async def slow():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.sleep(10)
        return "rescued"

    async def program(ctx):
        return await ctx.do(slow)

    async def main():
        async with Kernel(target) as kernel:
            assert await kernel.run(program) == "rescued"

    run(main())


def test_task_groups(target):
    """A TaskGroup's tasks are branches; one that fails cancels the others and the error comes out of the group."""

    async def program(ctx):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ctx.do(act, number, 0.001)) for number in range(3)]
        results = [task.result() for task in tasks]
        with pytest.raises(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(ctx.do(act, 1, 10))
                group.create_task(fails(ctx))
        return results

    async def fails(ctx):
        await ctx.do(act, 1)
        raise ValueError("no")

    async def main():
        async with Kernel(target) as kernel:
            assert await kernel.run(program) == [0, 1, 2]
            assert kernel.core.in_flight == 0

    run(main())


def test_killing_a_process_with_branches(target):
    """A kill reaches the branches through gather; no effect is left in flight."""

    async def program(ctx):
        await asyncio.gather(ctx.do(act, 1, 100), ctx.do(act, 2, 100))

    async def main():
        async with Kernel(target) as kernel:
            handle = kernel.spawn(program)
            await asyncio.sleep(0.02)
            assert kernel.core.in_flight == 2
            await kernel.kill(handle)
            assert (await handle.wait()).reason == "killed"
            await settle(kernel)
            assert kernel.core.in_flight == 0

    run(main())


def test_context_variables_stay_in_their_process():
    """Each process has its own copy, made when it was spawned."""

    async def program(ctx, name):
        before = where.get()
        where.set(name)
        await ctx.sleep(0)
        return [before, where.get()]

    async def main():
        where.set("outside")
        async with Kernel() as kernel:
            handles = [kernel.spawn(program, name) for name in ("a", "b")]
            assert [(await handle.wait()).result for handle in handles] == [["outside", "a"], ["outside", "b"]]
        assert where.get() == "outside"

    run(main())


def test_a_raw_future_may_be_awaited():
    """Awaiting asyncio's own things works in a program (it is only not replayed)."""
    event = asyncio.Event()

    async def program(ctx):
        await asyncio.sleep(0)
        await event.wait()
        return asyncio.current_task().get_name()

    async def main():
        async with Kernel() as kernel:
            handle = kernel.spawn(program, name="me")
            await settle(kernel)
            event.set()
            assert (await handle.wait()).result == "me"

    run(main())


def test_awaiting_something_foreign_is_an_error():
    """A yield that no waiter takes ends the process, not the kernel."""

    class Odd:
        def __await__(self):
            yield "what is this?"

    async def program(ctx):
        await Odd()

    async def main():
        async with Kernel() as kernel:
            ended = await kernel.spawn(program).wait()
            assert "neither asyncio's nor Lyra's" in str(ended.error)

    run(main())


def test_ctx_outside_its_program():
    """ctx is good only inside the program and its branches."""
    kept = []

    async def program(ctx):
        kept.append(ctx)

    async def main():
        async with Kernel() as kernel:
            await kernel.run(program)
            with pytest.raises(ProcessError, match="outside its program"):
                await kept[0].sleep(1)

    run(main())


def test_a_process_is_a_task_to_asyncio():
    """What asyncio and libraries on top ask of a task, a process answers."""

    async def program(ctx):
        task = asyncio.current_task()
        assert task.get_coro() is not None
        assert task.get_loop() is asyncio.get_running_loop()
        assert not task.done()
        assert not task.cancelled()
        assert task.cancelling() == 0
        task.set_name("ignored")
        called = []
        task.add_done_callback(called.append)
        assert task.remove_done_callback(called.append) == 1
        task.add_done_callback(finished.append)
        assert task.get_context() is not None
        return 1

    finished: list[object] = []

    async def main():
        async with Kernel() as kernel:
            handle = kernel.spawn(program)
            assert (await handle.wait()).result == 1
            await asyncio.sleep(0)
            assert len(finished) == 1
            process = kernel.processes[handle.pid]
            assert process.done()
            assert not process.cancel()
            process.add_done_callback(finished.append)
            await asyncio.sleep(0)
            assert len(finished) == 2

    run(main())


def test_anyio_inside_an_effect(target):
    """Libraries on anyio (HTTP clients among them) run inside effects: task groups, cancel scopes, sleeps."""
    anyio = pytest.importorskip("anyio")

    async def library():
        numbers = []

        async def job(number):
            await anyio.sleep(0.001)
            numbers.append(number)

        async with anyio.create_task_group() as group:
            for number in range(3):
                group.start_soon(job, number)
        with anyio.move_on_after(0.01) as scope:
            await anyio.sleep(10)
        assert scope.cancelled_caught
        with pytest.raises(TimeoutError), anyio.fail_after(0.01):
            await anyio.Event().wait()
        return sorted(numbers)

    async def program(ctx):
        both = await asyncio.gather(ctx.do(library), ctx.do(library))
        return [await ctx.do(library), *both]

    async def main():
        async with Kernel(target) as kernel:
            assert await kernel.run(program) == [[0, 1, 2]] * 3

    run(main())


def test_effects_of_killed_processes_clean_up(target):
    """An effect's `finally` runs, and may await, when its process is killed."""
    steps = []

    async def careful():
        try:
            await asyncio.sleep(100)
        finally:
            steps.append("closing")
            await asyncio.sleep(0.001)
            steps.append("closed")

    async def program(ctx):
        await ctx.do(careful)

    async def main():
        async with Kernel(target) as kernel:
            handle = kernel.spawn(program)
            await asyncio.sleep(0.02)
            kernel.kill(handle)
            assert (await handle.wait()).reason == "killed"
            assert steps == ["closing", "closed"]

    run(main())


def test_closing_drains_effects_in_flight(target):
    """Leaving the kernel lets an effect in flight finish first."""
    done = []

    async def short():
        await asyncio.sleep(0.05)
        done.append(1)
        return 1

    async def program(ctx):
        await ctx.do(short)
        await ctx.do(short)

    async def main():
        async with Kernel(target) as kernel:
            kernel.spawn(program, pid="main")
            await asyncio.sleep(0.01)
        assert done == [1]
        if target != "memory":
            async with Kernel(target, programs=[program]) as kernel:
                assert (await kernel.process("main").wait()).reason == "normal"
            assert done == [1, 1]

    run(main())


def test_a_cancellation_keeps_its_message():
    """Also where the program was about to go on: what it meets is what was said."""

    async def main():
        seen: list[tuple[object, ...]] = []
        async with Kernel() as kernel:
            gate: asyncio.Future[None] = kernel.loop.create_future()

            async def waits(ctx):
                try:
                    await gate
                except asyncio.CancelledError as cancelled:
                    seen.append(cancelled.args)

            handle = kernel.spawn(waits)
            await settle(kernel)
            gate.set_result(None)
            await asyncio.sleep(0)  # it is awake, and has not gone on
            kernel.processes[handle.pid].cancel("why")
            await handle.wait()
        return seen

    assert run(main()) == [("why",)]
