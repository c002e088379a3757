"""What the simulation of supervisors and subsystems has found once, as small as it gets."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from lyra.kernel import Kernel
from lyra.kernel.pipelines.feeds import Feed
from lyra.store.memory import MemoryStore
from lyra.testing.clock import SimClock
from lyra.testing.loop import LoopClock, SimLoop
from tests.verify.simulation.test_regressions import Lives
from verify.simulation.sim import run_seed

FORK: dict[str, Any] = {
    "name": "fork",
    "agents": [
        {"name": "spread", "node_kind": "fork", "branches": ["a", "b", "c"], "default_next": "join"},
        {"name": "a"},
        {"name": "b", "default_next": "bx"},
        {"name": "bx", "default_next": "join"},
        {"name": "c"},
        {"name": "join"},
    ],
}


@pytest.fixture
def lives():
    lives = Lives()
    yield lives
    lives.bury()


def _register(kernel, calls, takes_s):
    def agent(name):
        async def call(_envelope):
            calls.append(name)
            await asyncio.sleep(takes_s.get(name, 0.0))
            if takes_s.get(name, 0.0) < 0:
                raise RuntimeError(name)
            return {}

        return call

    for stage in FORK["agents"]:
        kernel.register_agent(stage["name"], agent(stage["name"]), idempotent=True)


@pytest.mark.parametrize("takes_s", [{"a": 3.0, "bx": 50.0}, {"a": 50.0, "c": 2.0}, {"a": 3.0, "b": 1.0, "bx": 50.0}])
def test_branches_that_ended_out_of_order_are_not_run_again_after_a_restart(lives, takes_s):
    """The second branch was done before the first; a restart follows the order of then and runs only what is left."""
    calls: list[str] = []

    async def begin(kernel):
        _register(kernel, calls, takes_s)
        kernel.initialize_orchestration("flow", FORK)
        kernel.orchestrator.runner.start("flow", Feed())

    lives.crash_after(10.0, begin)
    unfinished = max(takes_s, key=lambda name: takes_s[name])
    before = list(calls)

    async def again(kernel):
        _register(kernel, calls, {})

    kernel = lives.crash_after(10.0, again)
    assert kernel.processes["flow"].exit is not None
    assert kernel.processes["flow"].exit.reason == "normal"
    later = calls[len(before) :]
    assert later.count(unfinished) == 1
    assert not set(later) & (set(before) - {unfinished})
    assert str(kernel.get_orchestration_state("flow").terminal_reason) == "completed"


async def _sleeper(ctx):
    try:
        await ctx.sleep(1000.0)
    finally:
        await ctx.sleep(3.0)  # still tidying up when its kernel dies


async def _partner(ctx):
    ctx.link("sleeper")
    await ctx.sleep(1000.0)


def test_a_store_opens_when_one_that_was_told_to_end_takes_a_linked_one_along(lives):
    """The first ends while the store is opened, and the second, which is linked to it, must not be started then."""

    async def begin(kernel):
        kernel.spawn(_sleeper, pid="sleeper")
        kernel.spawn(_partner, pid="partner")
        await asyncio.sleep(1.0)
        kernel.kill("sleeper")

    lives.crash_after(1.0, begin, programs=[_sleeper, _partner])
    kernel = lives.crash_after(10.0, programs=[_sleeper, _partner])
    assert kernel.processes["sleeper"].exit.reason == "killed"
    assert kernel.processes["partner"].exit.reason == "linked"


async def _child(ctx):
    ctx.ready()
    return await ctx.receive(timeout=500.0)


async def _parent(ctx):
    ctx.spawn(_child)
    return await ctx.receive(timeout=5.0) is not None


def test_a_process_that_told_a_parent_it_was_ready_replays_after_the_parent_has_ended(lives):
    """Whether there is a parent to tell may change; what the journal holds does not."""

    async def begin(kernel):
        kernel.spawn(_parent, pid="parent")

    lives.crash_after(20.0, begin, programs=[_parent, _child])
    kernel = lives.crash_after(1000.0, programs=[_parent, _child])
    ends = {process.program.partition(":")[2]: process.exit for process in kernel.processes.values()}
    assert ends["_parent"].result is True
    assert ends["_child"].reason == "normal"


def test_a_program_cancelled_twice_in_a_gather_leaves_no_error_unread():
    """Two time-outs at the same moment: the second finds the gather ending already."""
    clock = SimClock(1000.0)
    loop = SimLoop(clock)

    async def wait():
        async with asyncio.timeout(5.0):
            await asyncio.gather(asyncio.sleep(60.0), asyncio.sleep(60.0))

    async def program(_ctx):
        try:
            async with asyncio.timeout(5.0):
                await wait()
        except TimeoutError:
            return "late"

    async def main():
        async with Kernel(MemoryStore(), clock=LoopClock(clock, loop), programs=[program]) as kernel:
            handle = kernel.spawn(program)
            await asyncio.sleep(1.0)
            clock.stall(10.0)
            return (await handle.wait()).result

    assert loop.run_until_complete(main()) == "late"
    gc.collect()
    assert loop.complaints == []
    loop.close()


def test_asking_twice_for_an_instruction_is_the_same_also_when_a_question_has_just_run_out():
    """The first look ends the question; the same look already goes on."""
    clock = SimClock(1000.0)
    loop = SimLoop(clock)
    config = {"name": "q", "agents": [{"name": "one", "default_next": "clarification"}]}

    async def main():
        async with Kernel(MemoryStore(), clock=LoopClock(clock, loop)) as kernel:
            kernel.submit("p")
            kernel.initialize_orchestration("p", config)
            run = kernel.get_next_instruction("p").run_id
            asked = kernel.report_agent_result("p", {"agent_name": "one", "run_id": run, "output": {}})
            assert asked.kind == "wait_interrupt"
            clock.stall(10 * 24 * 3600.0)
            return [kernel.get_next_instruction("p").kind for _ in range(2)]

    first, second = loop.run_until_complete(main())
    assert first == second == "run_agent"
    loop.close()


def test_a_pipeline_with_nothing_to_run_and_nothing_to_ask_does_not_hold_the_kernel_up():
    """A plan that says `wait` while no question is open: the runner waits for a change instead of looking for ever."""
    report = run_seed(20882, cast=("pipelines",))
    assert report.violations == ()
    assert report.rows < 1_000
