"""A process whose program its kernel does not know says so: an Event, and an error for callers that wait for it."""

from __future__ import annotations

import asyncio

import pytest

from lyra import Agent
from lyra.agents.session.agent_process import AgentProcess
from lyra.errors import ConfigError, ProcessExit
from lyra.kernel import Child, Kernel
from tests.agents.support import says
from tests.kernel.conftest import Crash, run, settle

HERE = "tests.kernel.programs.test_dormant"


async def answers(ctx):
    return await ctx.receive()


async def fails_when_told(ctx):
    await ctx.receive()
    raise ValueError("boom")


async def parent(ctx):
    """Its replay registers the program of its child."""
    child = ctx.spawn(answers, name="child")
    ended = await child.wait()
    return ended.result


async def kept(path, program=answers, **options):
    """A store with a live process `main` of that program."""
    async with Crash(Kernel(path)) as kernel:
        await kernel.spawn(program, pid="main", **options)
        await settle(kernel)


def test_waiting_for_it_is_an_error_at_once(path):
    """It names the process and the program, and says what to do; the process is unharmed."""

    async def main():
        await kept(path)
        async with Kernel(path) as kernel:
            handle = kernel.process("main")
            for _ in range(2):
                with pytest.raises(ConfigError, match="process main cannot go on") as refused:
                    await asyncio.wait_for(handle.wait(), 1)
                assert refused.value.fields == {"pid": "main", "program": f"{HERE}:answers"}
                assert "kernel.register(program)" in str(refused.value.hint)
            assert handle.alive

    run(main())


def test_an_event_tells_of_it(path):
    async def main():
        await kept(path)
        kernel, heard = Kernel(path), []
        kernel.on_event(heard.append, kinds=["process.dormant"])
        async with kernel:
            assert [(event.pid, event.data) for event in heard] == [("main", {"program": f"{HERE}:answers"})]
        heard.clear()
        kernel = Kernel(path, programs=[answers])
        kernel.on_event(heard.append, kinds=["process.dormant"])
        async with kernel:
            await settle(kernel)
        assert heard == []

    run(main())


def test_a_program_that_is_registered_later_brings_it_back(path):
    """Messages that were sent meanwhile are read, and waiting is no error any more."""

    async def main():
        await kept(path)
        async with Kernel(path) as kernel:
            handle = kernel.process("main")
            await handle.send("hello")
            with pytest.raises(ConfigError):
                await handle.wait()
            kernel.register(answers)
            assert (await handle.wait()).result == "hello"

    run(main())


def test_a_program_that_a_replay_registers_is_waited_for(path):
    """Right after the store is opened the parent has not come to its spawn again: that is no error."""

    async def main():
        await kept(path, parent)
        async with Kernel(path, programs=[parent]) as kernel:
            child = kernel.whereis("child")
            assert child.state == "new"
            waiting = asyncio.ensure_future(child.wait())
            await child.send("hello")
            assert (await waiting).result == "hello"
            assert (await kernel.process("main").wait()).result == "hello"

    run(main())


def test_a_child_of_a_dormant_parent_is_an_error_too(path):
    """Nothing will register its program: the parent does not run either."""

    async def main():
        await kept(path, parent)
        async with Kernel(path) as kernel:
            for name, program in (("main", "parent"), (kernel.whereis("child").pid, "answers")):
                with pytest.raises(ConfigError) as refused:
                    await asyncio.wait_for(kernel.process(name).wait(), 1)
                assert refused.value.program == f"{HERE}:{program}"

    run(main())


def test_a_program_waits_for_its_dormant_child(path):
    """Inside a program waiting is durable: it goes on when the program is there, and nothing is journaled before."""

    async def watcher(ctx):
        return (await ctx.process("main").wait()).result

    async def main():
        await kept(path)
        async with Kernel(path) as kernel:
            handle = kernel.spawn(watcher)
            await settle(kernel)
            assert handle.state == "waiting"
            await kernel.send("main", "hello")
            kernel.register(answers)
            assert (await handle.wait()).result == "hello"

    run(main())


def test_the_handle_of_a_guard_says_it_too(path):
    """A guard runs; what it stands for does not."""

    async def main():
        await kept(path, supervision={"max_restarts": 1})
        async with Kernel(path) as kernel:
            with pytest.raises(ConfigError, match="process main cannot go on") as refused:
                await asyncio.wait_for(kernel.process("main").wait(), 1)
            assert refused.value.program == f"{HERE}:answers"
            await kernel.send("main", "hello")
            kernel.register(answers)
            assert (await kernel.process("main").wait()).result == "hello"

    run(main())


def test_a_guard_that_cannot_start_its_process_again(path):
    """Callers that waited before the guard came to that are told, as those that come later are."""

    async def main():
        async with Crash(Kernel(path)) as kernel:
            pause = {"max_restarts": 1, "backoff": {"initial_s": 0.3, "max_s": 0.3, "jitter": 0}}
            handle = await kernel.spawn(fails_when_told, pid="main", supervision=pause)
            await settle(kernel)
            kernel.send("main", "fail")
            await settle(kernel)
            assert handle.alive
            assert handle.children == []
            await kernel.durable()
        async with Kernel(path) as kernel:
            waiting = asyncio.ensure_future(kernel.process("main").wait())
            await settle(kernel)
            assert not waiting.done()  # the pause before the restart is not over
            for wait in (waiting, kernel.process("main").wait()):
                with pytest.raises(ConfigError) as refused:
                    await asyncio.wait_for(wait, 2)
                assert refused.value.program == f"{HERE}:fails_when_told"
            kernel.register(fails_when_told)
            await settle(kernel)
            assert kernel.process("main").state == "waiting"

    run(main())


def test_a_supervisor_lives_on_with_dormant_children(path):
    """It is no error to wait for a supervisor: its other children and its commands work."""

    async def main():
        async with Crash(Kernel(path, programs=[answers])) as kernel:
            await kernel.supervise([Child("a", answers)], pid="sup")
        async with Kernel(path) as kernel:
            waiting = asyncio.ensure_future(kernel.process("sup").wait())
            await settle(kernel)
            assert not waiting.done()
            await kernel.supervisor("sup").stop()
            assert (await waiting).reason == "shutdown"

    run(main())


def test_asking_a_dormant_agent_is_an_error(path):
    """send, send_async and stream: each at once, and nothing is put in its mailbox."""

    async def main():
        agent = Agent("helper", model=says("one", "two"))
        async with Kernel(path) as kernel:
            process = await kernel.spawn(agent, pid="helper")
            assert await process.send("first") == "one"
        async with Kernel(path) as kernel:
            process = AgentProcess(kernel, kernel.find("helper"))
            seq = kernel.journal.seq
            with pytest.raises(ConfigError, match="'agent:helper'"):
                await asyncio.wait_for(process.send("second"), 1)
            with pytest.raises(ConfigError, match="'agent:helper'"):
                await asyncio.wait_for(process.send_async("second"), 1)
            with pytest.raises(ConfigError, match="'agent:helper'"):
                async for _ in process.stream("second"):
                    pass
            assert kernel.journal.seq == seq
            kernel.register(agent)
            assert await process.send("second") == "two"

    run(main())


def test_a_kernel_that_closes_lets_waiters_go(path):
    """One that waits for a replay to register the program is told that the kernel stopped, or that it is unknown."""

    async def main():
        await kept(path, parent)
        kernel = Kernel(path, programs=[parent])
        await kernel.start()
        waiting = asyncio.ensure_future(kernel.whereis("child").wait())
        await asyncio.sleep(0)
        await kernel.close()
        with pytest.raises((ProcessExit, ConfigError)):
            await asyncio.wait_for(waiting, 2)

    run(main())
