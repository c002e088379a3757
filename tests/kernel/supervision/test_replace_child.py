"""`replace_child`: a person has one child of a supervisor stopped and started again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lyra.errors import InvalidTransition, NoSuchProcess
from lyra.kernel import Child, Kernel
from tests.kernel.conftest import crash, run


async def worker(ctx, label="w"):
    while True:
        message = await ctx.receive()
        if message == "crash":
            raise ValueError("boom")
        await ctx.send(message[0], [label, ctx.pid])


def _children(*labels: str, **settings: Any) -> list[Child]:
    return [Child(label, worker, (label,), **settings) for label in labels]


def test_the_child_is_another_process_and_the_others_stay(target):
    """It does not count as a failure: with `max_restarts=0` the supervisor goes on, whatever its strategy."""

    async def main():
        async with Kernel(target) as kernel:
            for strategy in ("one_for_one", "one_for_all", "stop"):
                sup = await kernel.supervise(_children("a", "b"), strategy=strategy, max_restarts=0)
                first, other = [child.pid for child in await sup.which_children()]
                handle = await sup.replace_child("a")
                after = [(child.id, child.pid, child.state) for child in await sup.which_children()]
                assert after == [("a", handle.pid, "running"), ("b", other, "running")]
                assert handle.pid != first
                assert first is not None
                assert not kernel.process(first).alive
                assert sup.alive

    run(main())


def test_a_stopped_child_and_one_that_waits_for_its_back_off_start_now(target):
    async def main():
        async with Kernel(target) as kernel:
            sup = await kernel.supervise(_children("a"), backoff={"kind": "constant", "initial_s": 1_000})
            await sup.terminate_child("a")
            assert (await sup.replace_child("a")).alive
            pid = sup.which_children()[0].pid
            assert pid is not None
            await kernel.send(pid, "crash")
            while sup.which_children()[0].state != "restarting":
                await asyncio.sleep(0)
            assert (await sup.replace_child("a")).alive
            assert [child.state for child in await sup.which_children()] == ["running"]

    run(main())


def test_a_child_that_is_never_started_again_is_refused_and_goes_on(target):
    async def main():
        async with Kernel(target) as kernel:
            sup = await kernel.supervise(_children("a", restart="temporary"))
            with pytest.raises(InvalidTransition):
                await sup.replace_child("a")
            with pytest.raises(NoSuchProcess):
                await sup.replace_child("z")
            assert [child.state for child in await sup.which_children()] == ["running"]

    run(main())


def test_the_run_of_a_guard_is_replaced_and_the_pid_stays(target):
    async def main():
        async with Kernel(target) as kernel:
            handle = kernel.spawn(worker, "a", supervision="restart", name="guarded")
            guard = kernel.supervisors.get(handle.pid)
            await guard
            before = kernel.processes[handle.pid].stands_for
            await guard.replace_child("process")
            assert kernel.processes[handle.pid].stands_for is not before
            assert handle.alive

    run(main())


def test_it_is_carried_out_after_a_kill(tmp_path):
    """The command is in the journal: a kernel that dies in the middle leaves no child stopped."""
    target = str(tmp_path / "run.db")

    async def before():
        kernel = Kernel(target, programs=[worker])
        await kernel.start()
        sup = await kernel.supervise(_children("a"), pid="sup")
        first = sup.which_children()[0].pid
        command = sup.replace_child("a")
        await asyncio.sleep(0)
        await kernel.journal.wait_until_durable(kernel.journal.seq)
        del command
        crash(kernel)
        return first

    async def after(first):
        async with Kernel(target, programs=[worker]) as kernel:
            sup = kernel.supervisors.get("sup")
            (child,) = await sup.which_children()
            assert child.state == "running"
            assert child.pid != first

    run(after(run(before())))
