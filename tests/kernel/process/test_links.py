"""Links, monitors and trapped exits: Erlang's, and durable."""

from __future__ import annotations

import asyncio

import pytest

from lyra.errors import ConfigError, NoSuchProcess, ProcessExit
from lyra.kernel import Down, ExitSignal, Kernel
from tests.kernel.conftest import Crash, run, settle


async def forever(ctx):
    await ctx.receive()


async def ends(ctx):
    message = await ctx.receive()
    if message == "crash":
        raise ValueError("boom")
    return message


async def catches(ctx, count):
    ctx.trap_exit(True)
    signals = []
    for _ in range(count):
        signal = await ctx.receive()
        signals.append([type(signal).__name__, signal.pid, signal.reason])
    return signals


def test_an_abnormal_end_takes_the_linked_along(target):
    """A crash ends everything linked to it, along chains and round rings, with reason `linked`; others live."""

    async def main():
        async with Kernel(target) as kernel:
            ring = [kernel.spawn(ends) for _ in range(4)]
            bystander = kernel.spawn(forever)
            for process, next_process in zip(ring, ring[1:] + ring[:1], strict=True):
                kernel.link(process, next_process)
                kernel.link(next_process.pid, process.pid)
            await kernel.send(ring[0], "crash")
            reasons = [(await handle.wait()).reason for handle in ring]
            assert reasons == ["error", "linked", "linked", "linked"]
            assert bystander.alive
            assert kernel.links.list_linked(ring[0].pid) == []

    run(main())


def test_a_normal_end_does_not(target):
    """Ending normally leaves the linked process alone, and the link is gone."""

    async def main():
        async with Kernel(target) as kernel:
            ending, linked = kernel.spawn(ends), kernel.spawn(forever)
            kernel.link(ending, linked)
            kernel.send(ending, "done")
            await ending.wait()
            await settle(kernel)
            assert linked.alive
            assert kernel.links.list_linked(linked.pid) == []

    run(main())


def test_unlink(target):
    """After unlink nothing is shared any more."""

    async def main():
        async with Kernel(target) as kernel:
            ending, unlinked = kernel.spawn(ends), kernel.spawn(forever)
            kernel.link(ending, unlinked)
            await kernel.unlink(unlinked, ending)
            kernel.send(ending, "crash")
            await ending.wait()
            await settle(kernel)
            assert unlinked.alive

    run(main())


def test_trapped_exits_are_messages(target):
    """With trap_exit every end of a linked process, a normal one too, is an ExitSignal."""

    async def main():
        async with Kernel(target) as kernel:
            catcher = kernel.spawn(catches, 3)
            await settle(kernel)
            good, bad, killed = (kernel.spawn(ends) for _ in range(3))
            for handle in (good, bad, killed):
                kernel.link(catcher, handle)
            kernel.send(good, "done")
            await good.wait()
            kernel.send(bad, "crash")
            await bad.wait()
            kernel.kill(killed)
            assert (await catcher.wait()).result == [
                ["ExitSignal", good.pid, "normal"],
                ["ExitSignal", bad.pid, "error"],
                ["ExitSignal", killed.pid, "killed"],
            ]

    run(main())


def test_monitors_tell_once_and_kill_no_process(target):
    """A monitor is one Down message; demonitor takes it back; a monitor of the dead answers at once."""

    async def watcher(ctx, pid, dead):
        first = ctx.monitor(pid)
        second = ctx.monitor(pid)
        ctx.demonitor(second)
        late = ctx.monitor(dead)
        messages = [await ctx.receive(), await ctx.receive(), await ctx.receive(timeout=0.05)]
        assert all(isinstance(message, Down) for message in messages[:2])
        return [[m.ref == first, m.ref == late, m.pid, m.reason] for m in messages[:2]] + [messages[2]]

    async def main():
        async with Kernel(target) as kernel:
            dead = kernel.spawn(ends)
            kernel.send(dead, 1)
            await dead.wait()
            watched = kernel.spawn(ends)
            handle = kernel.spawn(watcher, watched.pid, dead.pid)
            await settle(kernel)
            kernel.send(watched, "crash")
            assert (await handle.wait()).result == [
                [False, True, dead.pid, "noproc"],
                [True, False, watched.pid, "error"],
                None,
            ]

    run(main())


def test_linking_the_dead_and_the_unknown(target):
    """Linking a dead process is an exit signal `noproc`; an unknown one is NoSuchProcess; oneself is nothing."""

    async def links_dead(ctx, pid):
        ctx.trap_exit()
        ctx.link(ctx.pid)
        with pytest.raises(NoSuchProcess):
            ctx.link("missing")
        with pytest.raises(NoSuchProcess):
            ctx.monitor("missing")
        ctx.link(pid)
        return (await ctx.receive()).reason

    async def dies_of_it(ctx, pid):
        ctx.link(pid)
        await ctx.receive()

    async def main():
        async with Kernel(target) as kernel:
            dead = kernel.spawn(ends)
            kernel.send(dead, 1)
            await dead.wait()
            assert await kernel.run(links_dead, dead.pid) == "noproc"
            assert (await kernel.spawn(dies_of_it, dead.pid).wait()).reason == "linked"
            with pytest.raises(NoSuchProcess):
                kernel.link(dead.pid, "missing")

    run(main())


def test_ties_survive_a_restart(path):
    """Links, monitors, trapping and signals not yet read come back; nothing is told twice."""

    async def ward(ctx, pid):
        ctx.trap_exit(True)
        ctx.link(pid)
        ref = ctx.monitor(pid)
        first = await ctx.receive()
        await ctx.ask("?")
        second = await ctx.receive()
        assert isinstance(first, ExitSignal)
        assert isinstance(second, Down)
        return [first.pid, first.reason, second.ref == ref, second.reason, second.message]

    async def main():
        async with Crash(Kernel(path)) as kernel:
            kernel.spawn(ends, pid="ward")
            kernel.spawn(ward, "ward", pid="guard")
            kernel.spawn(ends, pid="a")
            kernel.spawn(forever, pid="b")
            kernel.link("a", "b")
            await settle(kernel)
        async with Crash(Kernel(path, programs=[ends, ward, forever])) as kernel:
            kernel.send("ward", "crash")
            kernel.send("a", "crash")
            await settle(kernel)
            assert not kernel.process("b").alive
        async with Kernel(path, programs=[ends, ward, forever]) as kernel:
            await kernel.resolve_interrupt(kernel.interrupts.pending()[0].id, {"text": "on"})
            ended = await kernel.process("guard").wait()
            assert ended.result == ["ward", "error", True, "error", "boom"], ended

    run(main())


def test_who_ended_by_a_link_knows_why(target):
    """The error names the link it came through, and who died first of what, also at the end of a chain."""

    async def main():
        async with Kernel(target) as kernel:
            first, middle, last = (kernel.spawn(ends) for _ in range(3))
            kernel.link(first, middle)
            kernel.link(middle, last)
            await kernel.send(first, "crash")
            for handle, through in ((middle, first), (last, middle)):
                ended = await handle.wait()
                assert ended.reason == "linked"
                assert isinstance(ended.error, ProcessExit)
                assert (ended.error.linked, ended.error.origin) == (through.pid, first.pid)
                assert (ended.error.origin_reason, ended.error.cause) == ("error", "boom")
                assert str(ended.error) == "a linked process ended: error: boom"
            late = kernel.spawn(forever)
            kernel.link(late, first)
            ended = await late.wait()
            assert (ended.error.origin, ended.error.origin_reason) == (first.pid, "noproc")

    run(main())


def test_the_cause_survives_a_crash(path):
    """Told to end by a link and killed with its kernel while it tidied up: it still knows why."""

    async def tidies(ctx):
        try:
            await ctx.receive()
        finally:
            await ctx.sleep(1_000)

    async def main():
        async with Crash(Kernel(path)) as kernel:
            kernel.spawn(ends, pid="a")
            kernel.spawn(tidies, pid="b")
            kernel.link("a", "b")
            await settle(kernel)
            await kernel.send("a", "crash")
            await settle(kernel)
            assert kernel.process("b").alive
        for _ in range(2):
            async with Kernel(path, programs=[ends, tidies]) as kernel:
                ended = await kernel.process("b").wait()
                assert (ended.reason, ended.error.origin, ended.error.cause) == ("linked", "a", "boom")

    run(main())


def test_trap_exit_takes_true_or_false(target):
    """A word is not an answer; it is refused and the program goes on."""

    async def traps(ctx):
        with pytest.raises(ConfigError, match="True or False, not 'x'"):
            ctx.trap_exit("x")
        return ctx.own_process.traps

    async def main():
        async with Kernel(target) as kernel:
            assert await kernel.run(traps) is False

    run(main())


def test_a_handle_names_its_process(target):
    """Where a pid is wanted, a handle will do: outside and in a program."""

    async def waits(ctx, pid):
        return (await ctx.process(ctx.process(pid)).wait()).reason

    async def main():
        async with Kernel(target) as kernel:
            handle = kernel.spawn(ends)
            assert kernel.process(handle).pid == handle.pid
            waiting = kernel.spawn(waits, handle.pid)
            kernel.send(kernel.process(handle), "done")
            assert (await waiting.wait()).result == "normal"
            sup = await kernel.supervise([], pid="sup")
            assert kernel.supervisor(sup).pid == "sup"
            with pytest.raises(NoSuchProcess):
                kernel.process(17)  # type: ignore[arg-type]

    run(main())


def test_a_program_unlinks_itself(target):
    """The end of the other is no longer its own."""

    async def tied(ctx, other):
        ctx.link(other)
        ctx.unlink(other)
        await ctx.receive()

    async def main():
        async with Kernel(target) as kernel:
            ending = kernel.spawn(ends)
            handle = kernel.spawn(tied, ending.pid)
            await settle(kernel)
            kernel.send(ending, "crash")
            await ending.wait()
            await settle(kernel)
            assert handle.alive
            assert kernel.links.list_linked(handle.pid) == []

    run(main())


def test_the_outside_monitors_a_process(target):
    """`kernel.monitor` calls a function once when a process has ended, also if that was before; a callable ends the
    watch, and a function that fails harms nothing."""

    async def main():
        downs: list[tuple[str, str, str]] = []
        failures: list[object] = []

        async def later(down):
            await asyncio.sleep(0)
            downs.append(("later", down.reason, down.message))

        async with Kernel(target) as kernel:
            kernel.loop.set_exception_handler(lambda _loop, context: failures.append(context["exception"]))
            crashed, quiet, fine = kernel.spawn(ends), kernel.spawn(ends), kernel.spawn(ends)
            kernel.monitor(crashed, lambda down: downs.append((down.pid, down.reason, down.message)))
            kernel.monitor(crashed.pid, later)
            kernel.monitor(quiet, lambda _down: downs.append(("never", "", "")))()
            kernel.monitor(fine, lambda _down: 1 / 0)
            for process, word in ((crashed, "crash"), (quiet, "crash"), (fine, "well")):
                await process.send(word)
                await process.wait()
            await settle(kernel)
            kernel.monitor(crashed, lambda down: downs.append(("after", down.reason, down.message)))
            await settle(kernel)
            with pytest.raises(NoSuchProcess):
                kernel.monitor("nobody", print)
            with pytest.raises(ConfigError, match="function"):
                kernel.monitor(fine, "print")  # type: ignore[arg-type]
            assert sorted(downs) == sorted(
                [(crashed.pid, "error", "boom"), ("later", "error", "boom"), ("after", "error", "boom")]
            )
            assert [type(failure) for failure in failures] == [ZeroDivisionError]

    run(main())


def test_a_watch_ends_silently_with_its_kernel(target):
    """A kernel that closes while a monitored process lives calls nothing, and that is no failure."""

    async def main():
        told: list[object] = []
        async with Kernel(target) as kernel:
            kernel.loop.set_exception_handler(lambda _loop, context: told.append(context))
            kernel.monitor(kernel.spawn(ends), told.append)  # and closes before that watch has begun
        await asyncio.sleep(0)
        assert told == []

    run(main())
