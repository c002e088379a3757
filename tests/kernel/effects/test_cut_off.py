"""Calls that a crash cut off: what was set aside for them stays charged, and they are not tried again for ever."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lyra.cli.app import Invocation
from lyra.cli.views.processes import ps
from lyra.core.effect import Effect
from lyra.errors import BudgetExceeded, EffectInDoubt
from lyra.kernel import Child, Kernel
from tests.kernel.conftest import Crash, run, settle

PERFORMED: list[str] = []
OPEN: list[bool] = []  # while it is empty, an act does not come to its end


@pytest.fixture(autouse=True)
def _nothing() -> None:
    PERFORMED.clear()
    OPEN.clear()


async def act(what: str) -> str:
    PERFORMED.append(what)
    if not OPEN:
        await asyncio.Event().wait()
    return what


PAY: Effect[Any, str] = Effect(act, name="pay", cost="$0.30")
FETCH: Effect[Any, str] = Effect(act, name="fetch", cost="$0.30", idempotent=True)
LOOK: Effect[Any, str] = Effect(act, name="look", idempotent=True)


async def pays(ctx: Any) -> str:
    paid: str = await ctx.do(PAY, "pay")
    return paid


async def pays_and_waits(ctx: Any) -> None:
    with suppress(EffectInDoubt):
        await ctx.do(PAY, "pay")
    await ctx.receive()


async def fetches(ctx: Any) -> str:
    fetched: str = await ctx.do(FETCH, "fetch")
    return fetched


async def looks(ctx: Any) -> str:
    seen: str = await ctx.do(LOOK, "look")
    return seen


async def parent(ctx: Any) -> str:
    """Starts a child that pays, and then spends what it is told to."""
    ctx.spawn(pays, pid="child")
    amount = await ctx.receive()
    spent: str = await ctx.do(Effect(act, name="spend", cost=amount), "spend")
    return spent


PROGRAMS: list[Any] = [pays, pays_and_waits, fetches, looks, parent]


def spent(kernel: Kernel, pid: str = "parent") -> str:
    return str(kernel.processes[pid].budget.used("usd"))


async def crash_inside(store: str, program: Callable[..., Any], *, pid: str = "parent", **options: Any) -> None:
    async with Crash(Kernel(store, programs=PROGRAMS)) as kernel:
        kernel.spawn(program, pid=pid, **options)
        await settle(kernel)


async def answer(kernel: Kernel, decision: str, pid: str) -> None:
    (question,) = kernel.interrupts.pending(pid)
    await kernel.resolve_interrupt(question.id, {"decision": decision})
    await settle(kernel)


# ---------------------------------------------------------------------- what stays charged


@pytest.mark.parametrize("decision", ["skip", "fail", "retry"])
def test_a_call_that_a_crash_cut_off_stays_charged(path: str, decision: str) -> None:
    """With $0.65, of which a child's call that was in flight at a crash has set aside $0.30, a sibling cannot spend
    $0.60: whatever a person says about the call, no more than the limit is spent."""

    async def main() -> None:
        await crash_inside(path, parent, budget="$0.65")
        OPEN.append(True)
        async with Kernel(path, programs=PROGRAMS) as kernel:
            await settle(kernel)
            assert spent(kernel) == "$0.30"
            kernel.send("parent", "$0.60")
            with pytest.raises(BudgetExceeded):
                raise (await kernel.process("parent").wait()).error or AssertionError
            await answer(kernel, decision, "child")
            assert spent(kernel) == ("$0.60" if decision == "retry" else "$0.30")
        async with Kernel(path, programs=PROGRAMS) as kernel:
            assert spent(kernel) == ("$0.60" if decision == "retry" else "$0.30")

    run(main())


@pytest.mark.parametrize("decision", ["skip", "fail", "retry"])
def test_a_settled_call_is_no_longer_counted_as_cut_off(path: str, decision: str) -> None:
    """A process that goes on after a person's answer has no call that crashes cut off."""

    async def main() -> None:
        await crash_inside(path, pays_and_waits)
        OPEN.append(True)
        async with Kernel(path, programs=PROGRAMS) as kernel:
            await settle(kernel)
            assert list((kernel.processes["parent"].attempts or {}).values()) == [1]
            await answer(kernel, decision, "parent")
            assert not kernel.processes["parent"].attempts
            assert kernel.processes["parent"].state == "waiting"

    run(main())


def test_every_further_attempt_reserves_anew(path: str) -> None:
    """A call that may be repeated is made as often as its budget pays for, over any number of crashes: three times
    with $0.90, and then it is refused."""

    async def main() -> None:
        await crash_inside(path, fetches, budget="$0.90")
        for life in range(1, 6):
            async with Crash(Kernel(path, programs=PROGRAMS)) as kernel:
                await settle(kernel)
                assert spent(kernel) == f"${min(0.3 * life, 0.9):.2f}"
        async with Kernel(path, programs=PROGRAMS) as kernel:
            ended = await kernel.process("parent").wait()
        assert isinstance(ended.error, BudgetExceeded)
        assert PERFORMED == ["fetch"] * 3

    run(main())


def test_the_attempt_that_succeeds_costs_what_it_costs_beside_those_that_were_cut_off(path: str) -> None:
    """After two crashes and an answer, three attempts are charged, and the books of the next life say the same."""

    async def main() -> None:
        await crash_inside(path, fetches, budget="$2")
        await crash_inside(path, fetches)
        OPEN.append(True)
        for _ in range(2):
            async with Kernel(path, programs=PROGRAMS) as kernel:
                assert (await kernel.process("parent").wait()).result == "fetch"
                assert spent(kernel) == "$0.90"
                assert not int(kernel.processes["parent"].budget.reserved("usd") or 0)
        assert PERFORMED == ["fetch"] * 3

    run(main())


def test_limits_on_calls_hold_as_those_on_money_do(path: str) -> None:
    """Three tool calls are allowed, so a call that every life is cut off in is made three times."""
    calls: Effect[Any, str] = Effect(act, name="call", cost={"tool_calls": 1}, idempotent=True)

    async def counted(ctx: Any) -> None:
        await ctx.do(calls, "call")

    async def main() -> None:
        for _ in range(5):
            async with Crash(Kernel(path, programs=[counted])) as kernel:
                kernel.spawn(counted, pid="counted", budget={"tool_calls": 3})
                await settle(kernel)
        assert PERFORMED == ["call"] * 3

    run(main())


def test_a_snapshot_keeps_what_is_set_aside(path: str) -> None:
    """A crash right behind a snapshot is charged like any other, and once."""

    async def main() -> None:
        async with Crash(Kernel(path, programs=PROGRAMS)) as kernel:
            kernel.spawn(fetches, pid="parent", budget="$0.65")
            await settle(kernel)
            await kernel._snapshots.write()
        for charged in ("$0.30", "$0.60", "$0.60"):
            async with Crash(Kernel(path, programs=PROGRAMS)) as kernel:
                await settle(kernel)
                assert spent(kernel) == charged
                await kernel._snapshots.write()
        assert PERFORMED == ["fetch"] * 2

    run(main())


def test_closing_in_order_charges_what_was_left_in_flight(path: str) -> None:
    """A kernel that closes while a call is in flight leaves it charged: the call may have happened."""

    async def main() -> None:
        kernel = Kernel(path, programs=PROGRAMS)
        await kernel.start()
        kernel.spawn(fetches, pid="parent", budget="$0.65")
        await settle(kernel)
        await kernel.close(drain_s=0)
        async with Crash(Kernel(path, programs=PROGRAMS)) as kernel:
            assert spent(kernel) == "$0.30"

    run(main())


def test_a_counted_call_begins_when_a_restart_will_know_of_it(path: str) -> None:
    """A call that counts against a limit is in the store before it is made: no crash can forget it."""

    async def main() -> None:
        async with Crash(Kernel(path, programs=PROGRAMS)) as kernel:
            seen: list[int] = []
            journal = kernel.journal
            assert journal is not None

            async def look(what: str) -> str:
                seen.append(journal.seq - journal.durable_seq)
                return what

            async def program(ctx: Any) -> None:
                await ctx.do(Effect(look, name="look", cost="$0.01", idempotent=True), "look")

            await kernel.run(program, budget="$1")
            assert seen == [0]

    run(main())


# ---------------------------------------------------------------------- how often it is tried again


def test_a_call_that_crashes_cut_off_every_time_stops_its_process(path: str) -> None:
    """A call is made again `recovery_attempts` times; then its process stops with an error that says so, once."""

    async def main() -> None:
        for _ in range(6):
            async with Crash(Kernel(path, programs=PROGRAMS, recovery_attempts=3)) as kernel:
                kernel.spawn(looks, pid="looks")
                await settle(kernel)
        async with Kernel(path, programs=PROGRAMS) as kernel:
            ended = await kernel.process("looks").wait()
        assert (ended.reason, type(ended.error)) == ("error", EffectInDoubt)
        assert "look was cut off by a crash 4 times" in str(ended.error)
        assert PERFORMED == ["look"] * 4

    run(main())


def test_ten_attempts_are_made_where_nothing_else_is_said(path: str) -> None:
    """The default is ten recovery attempts."""

    async def main() -> None:
        for _ in range(13):
            async with Crash(Kernel(path, programs=PROGRAMS)) as kernel:
                kernel.spawn(looks, pid="looks")
                await settle(kernel)
        assert PERFORMED == ["look"] * 11

    run(main())


async def starts(ctx: Any) -> None:
    ctx.spawn(looks, pid="own", recovery_attempts=0)
    ctx.spawn(looks, pid="inherited")
    await ctx.receive()


def test_a_spawn_and_what_it_starts_have_their_own_number_of_attempts(path: str) -> None:
    """`recovery_attempts` of a spawn holds for the process and those that it starts, across restarts, unless they say
    otherwise."""

    async def main() -> None:
        for _ in range(4):
            async with Crash(Kernel(path, programs=[starts, looks])) as kernel:
                kernel.spawn(starts, pid="starts", recovery_attempts=1)
                await settle(kernel)
        assert not kernel.processes["own"].alive
        assert not kernel.processes["inherited"].alive
        assert PERFORMED == ["look"] * 3

    run(main())


def test_a_supervisor_sees_that_its_child_was_given_up(path: str) -> None:
    """A child with `recovery_attempts` that is cut off too often ends by an error, and its supervisor restarts it as
    after any other crash."""

    async def main() -> None:
        seen: list[str] = []
        for _ in range(3):
            kernel = Kernel(path, programs=PROGRAMS)
            kernel.on_event(lambda event: seen.append(str(event.data)), ["child.restarting"])
            async with Crash(kernel):
                kernel.supervise([Child("looks", looks, recovery_attempts=1)], pid="top")
                await settle(kernel)
        assert len(seen) == 1
        assert PERFORMED == ["look"] * 3

    run(main())


def test_kernels_that_closed_in_order_are_no_crashes(path: str) -> None:
    """A call that lasts for ever is begun again as often as its kernel is closed and opened."""

    async def main() -> None:
        for _ in range(4):
            kernel = Kernel(path, programs=PROGRAMS, recovery_attempts=1)
            await kernel.start()
            kernel.spawn(looks, pid="looks")
            await settle(kernel)
            await kernel.close(drain_s=0)
        assert PERFORMED == ["look"] * 4

    run(main())


def test_a_call_that_rejoins_what_it_waits_for_is_no_attempt(path: str) -> None:
    """An effect that finds what it waits for after a crash is begun again after every one."""
    waits: Effect[Any, str] = Effect(act, name="waits", idempotent=True, rejoins=True)

    async def waiting(ctx: Any) -> None:
        await ctx.do(waits, "waits")

    async def main() -> None:
        for _ in range(4):
            async with Crash(Kernel(path, programs=[waiting], recovery_attempts=1)) as kernel:
                kernel.spawn(waiting, pid="waiting")
                await settle(kernel)
        assert PERFORMED == ["waits"] * 4

    run(main())


def test_the_question_says_how_often_and_what_stays_charged(path: str) -> None:
    """A person who is asked about a call sees which attempt it was, and what is charged for all of them."""

    async def main() -> None:
        await crash_inside(path, pays, budget="$2")
        for _ in range(3):  # crashes while the question waits are no attempts
            async with Crash(Kernel(path, programs=PROGRAMS)) as kernel:
                await settle(kernel)
        async with Crash(Kernel(path, programs=PROGRAMS)) as kernel:
            await settle(kernel)
            (question,) = kernel.interrupts.pending("parent")
            assert question.message.endswith("stopped; $0.30 that was set aside for it stays charged")
            await answer(kernel, "retry", "parent")
        async with Kernel(path, programs=PROGRAMS) as kernel:
            await settle(kernel)
            (question,) = kernel.interrupts.pending("parent")
            assert question.message.endswith("(attempt 2); $0.60 that was set aside for it stays charged")

    run(main())


def test_lists_of_processes_show_attempts(path: str) -> None:
    """`lyra ps`, with `--json` too, shows how often the call that a process is at was cut off, what that cost, and no
    more of it once the call is over; also where a snapshot is all there is."""

    def listed() -> str:
        return " ".join(CliRunner().invoke(ps, [path], obj=Invocation()).stdout.split())

    async def main() -> None:
        for _ in range(3):
            await crash_inside(path, fetches, budget="$2")
        assert "$0.6000 a call was cut off by a crash, attempt 3" in listed()
        (row,) = json.loads(CliRunner().invoke(ps, [path, "--json"], obj=Invocation()).stdout)
        assert row["attempts"] == {"0": 2}
        async with Crash(Kernel(path, programs=PROGRAMS)) as kernel:
            await settle(kernel)
            await kernel._snapshots.write()
            await kernel.core.call(kernel.journal.store.compact, before=2e9, epoch=kernel.journal.epoch)
        assert "$0.9000 a call was cut off by a crash, attempt 4" in listed()
        OPEN.append(True)
        async with Kernel(path, programs=PROGRAMS) as kernel:
            await kernel.process("parent").wait()
        assert "attempt" not in listed()

    run(main())


# ---------------------------------------------------------------------- by a real kill

_CHILD = """
import asyncio, os, sys
from lyra.kernel import Kernel
from lyra.core.effect import Effect

async def call():
    with open(sys.argv[2], "a") as provider:
        provider.write("call\\n")
    os.kill(os.getpid(), 9)

async def program(ctx):
    await ctx.do(Effect(call, name="call", cost="$0.004", idempotent=True))

async def main():
    async with Kernel(sys.argv[1], programs=[program], lease_s=0.2) as kernel:
        ended = await kernel.spawn(program, pid="main", budget="$0.01").wait()
        print(type(ended.error).__name__, kernel.processes["main"].budget.used("usd"))

asyncio.run(main())
"""


def test_a_crash_loop_spends_no_more_than_the_budget(tmp_path: Path) -> None:
    """A program with $0.01 that is killed inside a call of $0.004, again and again, makes it twice."""
    script = tmp_path / "program.py"
    script.write_text(_CHILD)
    command = [sys.executable, str(script), str(tmp_path / "run.db"), str(tmp_path / "provider")]
    lives = [subprocess.run(command, capture_output=True, text=True, timeout=60, check=False) for _ in range(3)]
    assert [life.returncode for life in lives] == [-signal.SIGKILL, -signal.SIGKILL, 0], lives[-1].stderr
    assert lives[-1].stdout.split() == ["BudgetExceeded", "$0.008"]
    assert (tmp_path / "provider").read_text().count("call") == 2
