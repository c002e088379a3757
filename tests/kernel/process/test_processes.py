"""Processes: spawning, ending, trees, names, rights and limits."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from lyra.core.faultpoint import SimulatedCrash
from lyra.errors import (
    BudgetExceeded,
    CapabilityDenied,
    ConfigError,
    DeadlineExceeded,
    Denied,
    InvalidTransition,
    NameTaken,
    NoSuchProcess,
    Overloaded,
    ProcessError,
)
from lyra.kernel import Kernel
from lyra.kernel.process.process import TRANSITIONS
from tests.kernel.conftest import pass_time, run, settle


async def double(number):
    return number * 2


async def answer(ctx, number):
    return await ctx.do(double, number)


async def boom(ctx):
    raise ValueError("boom")


async def forever(ctx):
    await ctx.receive()


def test_a_result_comes_back(target):
    """A program's return value is its process's result; the reason is `normal`."""

    async def main():
        async with Kernel(target) as kernel:
            handle = kernel.spawn(answer, 21)
            ended = await handle.wait()
            assert (ended.reason, ended.result, ended.error) == ("normal", 42, None)
            assert not handle.alive
            assert handle.state == "terminated"

    run(main())


def test_a_crash_is_contained(target):
    """An exception ends its own process with reason `error` and the exception; others go on."""

    async def main():
        async with Kernel(target) as kernel:
            other = kernel.spawn(forever)
            ended = await kernel.spawn(boom).wait()
            assert ended.reason == "error"
            assert isinstance(ended.error, ValueError)
            assert "boom" in str(ended.error)
            assert other.alive

    run(main())


def test_run_gives_the_result_or_raises(target):
    """`kernel.run` is spawn, wait and unwrap."""

    async def main():
        async with Kernel(target) as kernel:
            assert await kernel.run(answer, 1) == 2
            with pytest.raises(ValueError, match="boom"):
                await kernel.run(boom)

    run(main())


def test_exit_ends_from_any_depth(target):
    """`ctx.exit(reason)` leaves the program even through `except Exception`."""

    async def leaver(ctx):
        try:
            ctx.exit("enough")
        except Exception:
            return "swallowed"

    async def main():
        async with Kernel(target) as kernel:
            assert (await kernel.spawn(leaver).wait()).reason == "enough"

    run(main())


def test_children_have_parents_and_orphans_go_to_the_root(target):
    """A child belongs to its spawner; when that one ends, even by a crash, the child lives on under the root."""

    async def crashing_parent(ctx):
        ctx.spawn(forever, name="kid")
        await ctx.receive()
        raise RuntimeError("gone")

    async def main():
        async with Kernel(target) as kernel:
            parent = kernel.spawn(crashing_parent)
            await settle(kernel)
            kid = kernel.whereis("kid")
            assert kid is not None
            assert kid.parent == parent.pid
            assert parent.children == [kid.pid]
            await kernel.send(parent.pid, "go")
            await parent.wait()
            await settle(kernel)
            assert kid.alive
            assert kid.parent is None

    run(main())


def test_kill_goes_down_the_tree(target):
    """Killing a process stops everything it spawned, children first, and each sees CancelledError."""
    seen = []

    async def leaf(ctx, n):
        try:
            await ctx.receive()
        except asyncio.CancelledError:
            seen.append(n)
            raise

    async def branch(ctx):
        ctx.spawn(leaf, 1)
        ctx.spawn(leaf, 2)
        try:
            await ctx.receive()
        except asyncio.CancelledError:
            seen.append("branch")
            raise

    async def main():
        async with Kernel(target) as kernel:
            root = kernel.spawn(branch)
            bystander = kernel.spawn(forever)
            await settle(kernel)
            assert kernel.live == 4
            await kernel.kill(root.pid)
            assert (await root.wait()).reason == "killed"
            await settle(kernel)
            assert seen == [1, 2, "branch"]
            assert kernel.live == 1
            assert bystander.alive

    run(main())


def test_a_program_that_swallows_the_stop_is_ended_anyway(clock):
    """After a grace period a killed process is gone, whatever its program does."""

    async def stubborn(ctx):
        while True:
            with suppress(asyncio.CancelledError):
                await ctx.receive()

    async def main():
        async with Kernel(clock=clock) as kernel:
            handle = kernel.spawn(stubborn)
            await settle(kernel)
            kernel.kill(handle.pid)
            await settle(kernel)
            assert handle.alive
            await pass_time(kernel, clock, 6)
            assert (await handle.wait()).reason == "killed"

    run(main())


def test_killing_before_the_first_step(target):
    """A process killed before it ever ran ends without running."""
    ran = []

    async def eager(ctx):
        ran.append(1)

    async def main():
        async with Kernel(target) as kernel:
            handle = kernel.spawn(eager)
            kernel.kill(handle.pid)
            assert (await handle.wait()).reason == "killed"
            assert ran == []

    run(main())


def test_names(target):
    """A name finds its process, is unique among the living, and is free again after the end."""

    async def main():
        async with Kernel(target) as kernel:
            first = kernel.spawn(forever, name="lead")
            process = kernel.whereis("lead")
            assert process is not None
            assert process.pid == first.pid
            with pytest.raises(NameTaken):
                kernel.spawn(forever, name="lead")
            kernel.kill("lead")
            await first.wait()
            assert kernel.whereis("lead") is None
            kernel.spawn(forever, name="lead")

    run(main())


def test_an_existing_pid_gives_that_process(target):
    """Spawning under a pid that exists starts nothing and gives the process that has it."""

    async def main():
        async with Kernel(target) as kernel:
            first = kernel.spawn(forever, pid="main")
            assert kernel.spawn(forever, pid="main").pid == first.pid
            assert kernel.live == 1

    run(main())


@pytest.mark.parametrize("word", ["", "x" * 201, "a\nb", 7])
def test_bad_names_and_pids(word):
    """A name that cannot be printed, is empty or is too long is refused with a hint."""

    async def main():
        async with Kernel() as kernel:
            for key in ("name", "pid"):
                with pytest.raises(ConfigError, match=key):
                    kernel.spawn(forever, **{key: word})
            assert kernel.live == 0

    run(main())


def test_unknown_processes(target):
    """Send, kill and lookup of an unknown pid are NoSuchProcess and change nothing."""

    async def main():
        async with Kernel(target) as kernel:
            for call in (lambda: kernel.send("p99", 1), lambda: kernel.kill("p99"), lambda: kernel.process("p99")):
                with pytest.raises(NoSuchProcess, match="p99"):
                    call()
            assert kernel.whereis("missing") is None

    run(main())


def test_a_program_is_an_async_function():
    """Anything else is refused when it is handed in, with a hint."""

    async def main():
        async with Kernel() as kernel:
            for wrong in (lambda _ctx: 1, 7, None):
                with pytest.raises(ConfigError, match="async"):
                    kernel.spawn(wrong)  # type: ignore[arg-type,call-arg]
            with pytest.raises(ConfigError, match="cannot be called"):
                kernel.spawn(answer)  # type: ignore[arg-type,call-arg]
            assert kernel.live == 0
            assert kernel.processes == {}

    run(main())


def test_budgets_nest(target):
    """A child spends from its parent's budget too, and neither passes its limit."""

    async def pay(ctx, cents):
        await ctx.do(double, 1, cost=f"$0.{cents:02}")
        return str(ctx.budget.remaining())

    async def parent(ctx):
        first = await ctx.spawn(pay, 30, budget="$0.40").wait()
        second = await ctx.spawn(pay, 30, budget="$0.40").wait()
        return [first.result, second.reason, type(second.error).__name__, str(ctx.budget.remaining())]

    async def main():
        async with Kernel(target) as kernel:
            result = await kernel.run(parent, budget="$0.50")
            assert result == ["$0.10", "error", "BudgetExceeded", "$0.20"]

    run(main())


def test_a_refused_effect_is_not_performed(target):
    """Over budget or without the right, nothing runs and nothing is spent."""
    calls = []

    async def act():
        calls.append(1)

    async def program(ctx):
        with pytest.raises(BudgetExceeded):
            await ctx.do(act, cost="$0.02")
        with pytest.raises(CapabilityDenied):
            await ctx.do(act, needs="fs.write:/etc/passwd")
        await ctx.do(act, needs="fs.read:/project/a.txt", cost="$0.01")

    async def main():
        async with Kernel(target) as kernel:
            await kernel.run(program, budget="$0.01", grant=["fs.read:/project/**"])
            assert calls == [1]

    run(main())


def test_a_grant_can_only_be_narrowed(target):
    """A child asked for with a wider Grant gets no more than its parent has."""

    async def child(ctx):
        await ctx.do(double, 1, needs="fs.read:/project/src/a.py")
        with pytest.raises(CapabilityDenied):
            await ctx.do(double, 1, needs="fs.read:/etc/passwd")

    async def parent(ctx):
        ended = await ctx.spawn(child, grant=["fs.read:/**"]).wait()
        assert ended.reason == "normal", ended

    async def main():
        async with Kernel(target) as kernel:
            await kernel.run(parent, grant={"allow": ["fs.read:/project/**", "process.spawn"]})

    run(main())


def test_other_rights_from_outside(target):
    """Inside the kernel's, and never for a child, whose rights are its parent's affair."""

    async def program(ctx):
        ctx.spawn(forever, name="child")
        await ctx.receive()
        await ctx.do(double, 1, needs="fs.read:/b/x")
        with pytest.raises(CapabilityDenied):
            await ctx.do(double, 1, needs="fs.read:/a/x")
        with pytest.raises(CapabilityDenied):
            await ctx.do(double, 1, needs="net.http:a.test")

    async def main():
        async with Kernel(target, grant=["fs.read:/**", "process.spawn"]) as kernel:
            handle = await kernel.spawn(program, grant=["fs.read:/a/**", "process.spawn"])
            await settle(kernel)
            with pytest.raises(Denied):
                kernel.process("child").regrant(["fs.read:/b/**"])
            handle.regrant(["fs.read:/b/**", "net.http"])
            handle.send("go")
            assert (await handle.wait()).reason == "normal"

    run(main())


def test_a_time_limit_ends_a_process(clock):
    """`seconds` in a budget is a deadline: the program meets DeadlineExceeded where it waits."""

    async def main():
        async with Kernel(clock=clock) as kernel:
            handle = kernel.spawn(forever, budget={"seconds": 3})
            await pass_time(kernel, clock, 2)
            assert handle.alive
            await pass_time(kernel, clock, 2)
            ended = await handle.wait()
            assert isinstance(ended.error, DeadlineExceeded)

    run(main())


def test_a_time_limit_reaches_into_an_effect():
    """The deadline also ends a process whose effect never answers."""

    async def hang():
        await asyncio.sleep(3600)

    async def program(ctx):
        await ctx.do(hang)

    async def main():
        async with Kernel() as kernel:
            ended = await kernel.spawn(program, budget={"seconds": 0.05}).wait()
            assert isinstance(ended.error, DeadlineExceeded)
            assert kernel.core.in_flight == 0

    run(main())


def test_how_many_and_how_deep():
    """Too many processes, or a runaway recursion of spawns, is Overloaded, not a full memory."""

    async def deeper(ctx, depth):
        ended = await ctx.spawn(deeper, depth + 1).wait()
        if ended.error is not None:
            raise ended.error
        return ended.result

    async def main():
        async with Kernel(processes_max=3) as kernel:
            for _ in range(3):
                kernel.spawn(forever)
            with pytest.raises(Overloaded):
                kernel.spawn(forever)
        async with Kernel() as kernel:
            with pytest.raises(Overloaded, match="nest"):
                await kernel.run(deeper, 0)

    run(main())


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_an_exit_of_the_interpreter_is_not_contained(kind):
    """The process that raises it is killed, and it goes on to whoever runs the loop."""
    ended = []

    async def exits(ctx):
        raise kind

    async def main():
        async with Kernel() as kernel:
            kernel.on_event(lambda event: ended.append(event.data["reason"]), kinds=["process.terminated"])
            kernel.spawn(exits)
            await asyncio.Event().wait()

    with pytest.raises(kind):
        run(main())
    assert ended[0] == "killed"


def test_a_program_that_awaits_in_spite_of_all_and_fails_at_last_is_gone(clock):
    """Its clean-up sees its own process as the task it runs in, and the error that it ends with is told; a process
    beside it is ended, too."""
    tasks, told = [], []

    async def clings(ctx):
        tasks.append(asyncio.current_task())
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass
            except GeneratorExit:
                tasks.append(asyncio.current_task())
                raise ValueError("cannot be tidied up") from None

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(str(context["exception"])))
        async with Kernel(clock=clock) as kernel:
            handles = [kernel.spawn(clings) for _ in range(2)]
            await settle(kernel)
            for handle in handles:
                handle.kill()
            await settle(kernel)
            assert all(handle.alive for handle in handles)
            await pass_time(kernel, clock, 6)
            assert [(await handle.wait()).reason for handle in handles] == ["killed"] * 2
        assert tasks[2:] == tasks[:2]
        assert told == ["cannot be tidied up"] * 2

    run(main())


def test_a_crash_that_a_test_acts_out_ends_no_process():
    """The loop's handler of exceptions hears of it, and the process stays as it was."""
    heard = []

    async def crashes(ctx):
        raise SimulatedCrash

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context["exception"]))
        async with Kernel() as kernel:
            handle = kernel.spawn(crashes)
            await settle(kernel)
            assert (handle.alive, [type(error) for error in heard]) == (True, [SimulatedCrash])

    run(main())


def test_a_closed_kernel_starts_nothing():
    """Spawning before opening and after closing is refused in one sentence."""

    async def main():
        kernel = Kernel()
        with pytest.raises(ProcessError, match="not open"):
            kernel.spawn(forever)
        async with kernel:
            handle = kernel.spawn(forever)
        with pytest.raises(ProcessError, match="stopping"):
            kernel.spawn(forever)
        assert (await handle.wait()).reason == "shutdown"
        await kernel.close()

    run(main())


def test_only_legal_transitions():
    """A move outside the table is InvalidTransition and changes nothing."""

    async def main():
        async with Kernel() as kernel:
            kernel.spawn(forever, pid="x")
            process = kernel.processes["x"]
            for old, allowed in TRANSITIONS.items():
                for new in TRANSITIONS:
                    process.state = old
                    if new in allowed:
                        process.move(new)
                        assert process.state == new
                    else:
                        with pytest.raises(InvalidTransition):
                            process.move(new)
                        assert process.state == old
            process.state = "waiting"

    run(main())


def test_ended_processes_do_not_pile_up(monkeypatch):
    """The table keeps the last few that ended and lets the rest go."""
    monkeypatch.setattr("lyra.core.limits.ENDED_PROCESSES_KEPT", 5)

    async def main():
        async with Kernel() as kernel:
            for number in range(20):
                await kernel.run(answer, number)
            assert len(kernel.processes) == 5

    run(main())


def test_context_knows_itself(target):
    """pid, name, parent and grant are the process's own."""

    async def child(ctx):
        return [ctx.pid, ctx.name, ctx.parent]

    async def parent(ctx):
        kid = await ctx.spawn(child, name="kid")
        assert "kid" in repr(kid)
        return [ctx.pid, kid.pid, kid.name, (await kid.wait()).result]

    async def main():
        async with Kernel(target) as kernel:
            pid, kid, name, inner = await kernel.run(parent)
            assert name == "kid"
            assert inner == [kid, "kid", pid]

    run(main())


def test_a_child_ends_with_the_reason_its_parent_gave(target):
    """`ctx.stop(child, reason=…)`: who waits for the child sees it."""

    async def child(ctx):
        await ctx.receive()

    async def parent(ctx):
        spawned = ctx.spawn(child)
        ctx.stop(spawned, reason="not needed")
        return (await spawned.wait()).reason

    async def main():
        async with Kernel(target, programs=[child, parent]) as kernel:
            return await kernel.run(parent)

    assert run(main()) == "not needed"


def test_a_child_may_do_what_its_grant_says_and_no_more(target):
    """Of what its parent may do itself."""

    async def child(ctx):
        await ctx.do(double, 1, needs="fs.read:/project/a/x")
        with pytest.raises(CapabilityDenied):
            await ctx.do(double, 1, needs="fs.read:/project/b/x")

    async def parent(ctx):
        await ctx.do(double, 1, needs="fs.read:/project/b/x")
        assert (await ctx.spawn(child, grant=["fs.read:/project/a/**"]).wait()).reason == "normal"

    async def main():
        async with Kernel(target) as kernel:
            await kernel.run(parent, grant={"allow": ["fs.read:/project/**", "process.spawn"]})

    run(main())
