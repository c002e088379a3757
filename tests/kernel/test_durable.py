"""Durable programs: what a restart repeats, remembers and refuses."""

from __future__ import annotations

import asyncio

import pytest

from lyra.core.effect import Effect
from lyra.core.faultpoint import SimulatedCrash, intercept
from lyra.errors import ConfigError, DeadlineExceeded, Divergence, EffectInDoubt, InvalidTransition, NoSuchInterrupt
from lyra.kernel import Kernel
from lyra.testing.clock import SimClock
from tests.kernel.conftest import Crash, crash, pass_time, run, settle

CALLS: list[object] = []


@pytest.fixture(autouse=True)
def _no_calls():
    CALLS.clear()


async def act(value):
    CALLS.append(value)
    return value


async def fail(value):
    CALLS.append(value)
    raise KeyError(value)


async def until_asked(ctx):
    first = await ctx.do(act, 1)
    try:
        await ctx.do(fail, 2)
    except KeyError as error:
        second = error.args[0]
    now, chance = ctx.now(), ctx.random()
    answer = await ctx.ask("go on?", kind="confirmation")
    third = await ctx.do(act, 3)
    return [first, second, third, now, chance, answer.approved, answer.text]


def test_finished_effects_are_not_performed_again(path):
    """After a crash the program gets journaled answers, errors, times and random numbers, and goes on from there."""

    async def main():
        async with Crash(Kernel(path)) as kernel:
            kernel.spawn(until_asked, pid="main")
            await settle(kernel)
        assert CALLS == [1, 2]
        async with Crash(Kernel(path, programs=[until_asked])) as kernel:
            await settle(kernel)
            (question,) = kernel.interrupts.pending("main")
            assert question.question == "go on?"
            await kernel.resolve_interrupt(question.id, {"approved": True, "text": "fine"})
            await settle(kernel)
        async with Kernel(path, programs=[until_asked]) as kernel:
            ended = await kernel.process("main").wait()
        first, second, third, now, chance, approved, text = ended.result
        assert (first, second, third, approved, text) == (1, 2, 3, True, "fine")
        assert 0 <= chance < 1 < now
        assert CALLS == [1, 2, 3]

    run(main())


def test_closing_in_order_keeps_processes(path):
    """`async with` ending does not end durable processes; waiting on one says that it goes on later."""

    async def main():
        async with Kernel(path) as kernel:
            handle = kernel.spawn(until_asked, pid="main")
            waiting = asyncio.ensure_future(handle.wait())
            await settle(kernel)
        with pytest.raises(Exception, match="kernel stopped"):
            await waiting
        with pytest.raises(Exception, match="kernel stopped"):
            await handle.wait()
        async with Kernel(path, programs=[until_asked]) as kernel:
            assert kernel.process("main").alive

    run(main())


def test_an_acknowledged_spawn_and_send_survive(path):
    """What was awaited is in the store: the process and its message are there after a crash."""

    async def ear(ctx):
        first = await ctx.receive()
        return [first, await ctx.receive()]

    async def main():
        kernel = Kernel(path)
        await kernel.start()
        handle = await kernel.spawn(ear, pid="ear")
        await kernel.send(handle, {"n": 1})
        await kernel.send(handle, {"n": 2})
        crash(kernel)
        async with Kernel(path) as kernel:
            assert (await kernel.spawn(ear, pid="ear").wait()).result == [{"n": 1}, {"n": 2}]

    run(main())


@pytest.mark.parametrize(
    ("decision", "data", "result", "calls"),
    [
        ("retry", None, "did", ["did", "did"]),
        ("skip", "found by hand", "found by hand", ["did"]),
        ("fail", None, "EffectInDoubt", ["did"]),
    ],
)
def test_in_doubt(path, decision, data, result, calls):
    """An effect in flight at a crash that is not idempotent becomes a question: retry, skip or fail."""

    async def program(ctx):
        try:
            return await ctx.do(act, "did")
        except EffectInDoubt as error:
            return type(error).__name__

    async def main():
        async def dies():
            def hook(name):
                if name == "door.performed":
                    raise SimulatedCrash

            with intercept(hook):
                kernel = Kernel(path)
                await kernel.start()
                kernel.loop.set_exception_handler(lambda loop, context: None)
                await kernel.spawn(program, pid="main")
                await settle(kernel)
                crash(kernel)

        await dies()
        assert CALLS == ["did"]
        async with Crash(Kernel(path, programs=[program])) as kernel:
            await settle(kernel)
            (question,) = kernel.interrupts.pending("main")
            assert question.kind == "in_doubt"
            assert "in flight" in question.message
        async with Kernel(path, programs=[program]) as kernel:
            await settle(kernel)
            (question,) = kernel.interrupts.pending("main")
            with pytest.raises(ConfigError) as refused:
                kernel.resolve_interrupt(question.id, {"decision": "maybe"})
            assert refused.value.hint == "decide retry, skip or fail"
            await kernel.resolve_interrupt(question.id, {"decision": decision, "data": data})
            assert (await kernel.process("main").wait()).result == result
        assert calls == CALLS

    run(main())


def test_idempotent_effects_in_flight_are_retried(path):
    """An idempotent effect in flight at a crash is performed again without a question."""

    async def program(ctx):
        await ctx.do(act, "first")
        return await ctx.do(act, "did", idempotent=True)

    async def main():
        def hook(name):
            if name == "door.performed" and len(CALLS) == 2:
                raise SimulatedCrash

        with intercept(hook):
            kernel = Kernel(path)
            await kernel.start()
            kernel.loop.set_exception_handler(lambda loop, context: None)
            await kernel.spawn(program, pid="main")
            await settle(kernel)
            crash(kernel)
        async with Kernel(path, programs=[program]) as kernel:
            assert (await kernel.process("main").wait()).result == "did"
        assert CALLS == ["first", "did", "did"]

    run(main())


def _variant(name, body):
    """A program under the name `program`, whatever its body: the same program, changed."""
    body.__qualname__ = "program"
    body.__module__ = "shop"
    body.__name__ = name
    return body


async def original(ctx):
    await ctx.do(act, 1)
    await ctx.do(act, 2)
    ctx.now()
    await ctx.sleep(0)
    await ctx.ask("?")


async def other_arguments(ctx):
    await ctx.do(act, 7)


async def other_function(ctx):
    await ctx.do(fail, 1)


async def other_order(ctx):
    await ctx.do(act, 2)


async def one_less(ctx):
    await ctx.do(act, 1)
    ctx.now()


async def one_more(ctx):
    await ctx.do(act, 1)
    await ctx.do(act, 2)
    await ctx.do(act, 3)


async def ends_early(ctx):
    await ctx.do(act, 1)


async def other_kind(ctx):
    await ctx.do(act, 1)
    await ctx.do(act, 2)
    await ctx.sleep(1)


async def other_reading(ctx):
    await ctx.do(act, 1)
    await ctx.do(act, 2)
    ctx.budget.remaining()


async def spawns(ctx):
    ctx.spawn(ends_early)


async def receives(ctx):
    await ctx.receive()


async def sends(ctx):
    await ctx.do(act, 1)
    ctx.send(ctx.pid, 1)


@pytest.mark.parametrize(
    "changed",
    [
        other_arguments,
        other_function,
        other_order,
        one_less,
        one_more,
        ends_early,
        other_kind,
        other_reading,
        spawns,
        receives,
        sends,
    ],
)
def test_divergence(path, changed, caplog):
    """A program that asks for something else than its journal holds stops with Divergence; the journal is unhurt, and
    a line in the log says why."""
    before = _variant("before", original)
    after = _variant("after", changed)

    async def main():
        async with Crash(Kernel(path)) as kernel:
            kernel.spawn(before, pid="main")
            await settle(kernel)
        CALLS.clear()
        async with Crash(Kernel(path, programs=[after])) as kernel:
            seen = []
            kernel.on_event(lambda event: seen.append(event.kind))
            rows = kernel.journal.seq
            ended = await kernel.process("main").wait()
            assert ended.reason == "divergence"
            assert isinstance(ended.error, Divergence)
            assert ended.error.expected != ended.error.actual or "other arguments" in str(ended.error)
            await settle(kernel)
            assert kernel.journal.seq == rows
            assert "process.diverged" in seen
            assert ended.error.message in caplog.messages
        assert CALLS == []
        async with Kernel(path, programs=[before]) as kernel:
            await settle(kernel)
            assert kernel.process("main").alive
            assert [question.question for question in kernel.interrupts.pending()] == ["?"]

    run(main())


def test_parallel_branches_replay_whichever_was_faster(path):
    """Keys follow the program's structure: branches that finished in another order than begun replay all the same."""
    gates = {}

    async def slow(name):
        CALLS.append(name)
        if name in gates:
            await gates[name].wait()
        return name

    async def branch(ctx, name):
        first = await ctx.do(slow, name + "1")
        second = await ctx.do(slow, name + "2")
        inner = await asyncio.gather(ctx.do(slow, name + "3"), ctx.do(slow, name + "4"))
        return [first, second, ctx.random() < 2, *inner]

    async def program(ctx):
        result = await asyncio.gather(branch(ctx, "a"), branch(ctx, "b"), branch(ctx, "c"))
        await ctx.ask("?")
        return result

    async def main():
        gates["a1"] = asyncio.Event()
        gates["b2"] = asyncio.Event()
        async with Crash(Kernel(path)) as kernel:
            kernel.spawn(program, pid="main")
            for _ in range(5):
                await settle(kernel)
            gates["b2"].set()
            await settle(kernel)
            gates["a1"].set()
            for _ in range(5):
                await settle(kernel)
            assert kernel.interrupts.pending()
        performed = list(CALLS)
        assert performed.index("b2") < performed.index("a2")
        gates.clear()
        async with Kernel(path, programs=[program]) as kernel:
            await settle(kernel)
            await kernel.resolve_interrupt(kernel.interrupts.pending()[0].id, {"text": "ok"})
            result = (await kernel.process("main").wait()).result
            assert result == [[f"{x}1", f"{x}2", True, f"{x}3", f"{x}4"] for x in "abc"]
        assert performed == CALLS

    run(main())


def test_a_cancelled_loser_of_a_race_replays(path):
    """An effect that the program itself cancelled is finished: a restart neither repeats nor questions it."""
    never = asyncio.Event

    async def hang():
        CALLS.append("hang")
        await never().wait()

    async def program(ctx):
        quick = asyncio.ensure_future(ctx.do(act, "quick"))
        slow = asyncio.ensure_future(ctx.do(hang))
        done, _ = await asyncio.wait([quick, slow], return_when=asyncio.FIRST_COMPLETED)
        slow.cancel()
        await asyncio.gather(slow, return_exceptions=True)
        await ctx.ask("?")
        return [task.result() for task in done]

    async def main():
        async with Crash(Kernel(path)) as kernel:
            kernel.spawn(program, pid="main")
            for _ in range(5):
                await settle(kernel)
            assert kernel.interrupts.pending()
        async with Kernel(path, programs=[program]) as kernel:
            for _ in range(5):
                await settle(kernel)
            (question,) = kernel.interrupts.pending()
            assert question.kind == "clarification"
            await kernel.resolve_interrupt(question.id, {"text": "ok"})
            assert (await kernel.process("main").wait()).result == ["quick"]
        assert sorted(CALLS) == ["hang", "quick"]

    run(main())


def test_checkpoint_restarts_from_state(path):
    """After a checkpoint a restart begins with the kept state; effects before it are gone and not repeated."""

    async def counter(ctx):
        state = ctx.restored or {"n": 0}
        while state["n"] < 6:
            if state["n"] == 3:
                await ctx.ask("?")
            state["n"] += await ctx.do(act, 1)
            await ctx.checkpoint(state)
        return state["n"]

    async def main():
        async with Crash(Kernel(path)) as kernel:
            kernel.spawn(counter, pid="main")
            await settle(kernel)
            assert len(CALLS) == 3
        async with Kernel(path, programs=[counter]) as kernel:
            await settle(kernel)
            assert CALLS == [1, 1, 1]
            await kernel.resolve_interrupt(kernel.interrupts.pending()[0].id, {"text": "ok"})
            ended = await kernel.process("main").wait()
            assert ended.result == 6, ended
        assert len(CALLS) == 6

    run(main())


def test_sleep_waits_only_for_what_is_left(path):
    """A restart in the middle of a sleep sleeps the rest of it."""

    async def program(ctx):
        await ctx.sleep(10)
        return ctx.now()

    async def main():
        clock = SimClock(1000.0)
        async with Crash(Kernel(path, clock)) as kernel:
            kernel.spawn(program, pid="main")
            await pass_time(kernel, clock, 6)
        clock = SimClock(1007.0)
        async with Kernel(path, clock, programs=[program]) as kernel:
            await pass_time(kernel, clock, 2)
            assert kernel.process("main").alive
            await pass_time(kernel, clock, 2)
            assert (await kernel.process("main").wait()).result == pytest.approx(1010, abs=1)

    run(main())


def test_questions_expire_across_restarts(path):
    """A question's time to live runs on while the kernel is down; then the program meets DeadlineExceeded."""

    async def program(ctx):
        try:
            await ctx.ask("anyone?", kind="timeout")
        except DeadlineExceeded as error:
            return str(error)

    async def main():
        clock = SimClock(1000.0)
        async with Crash(Kernel(path, clock)) as kernel:
            kernel.spawn(program, pid="main")
            await pass_time(kernel, clock, 10)
        clock = SimClock(1250.0)
        async with Crash(Kernel(path, clock, programs=[program])) as kernel:
            await pass_time(kernel, clock, 40)
            assert kernel.process("main").alive
            await pass_time(kernel, clock, 20)
            ended = await kernel.process("main").wait()
            assert "no answer" in ended.result
        async with Kernel(path, SimClock(1400.0), programs=[program]) as kernel:
            assert "no answer" in (await kernel.process("main").wait()).result
            assert kernel.interrupts.pending() == []

    run(main())


def test_a_question_is_answered_once(path):
    """A second answer, an empty answer and an unknown question are refused and change nothing."""

    async def program(ctx):
        return (await ctx.ask("sure?", kind="confirmation")).decision

    async def main():
        async with Kernel(path) as kernel:
            handle = kernel.spawn(program)
            await settle(kernel)
            (question,) = kernel.interrupts.pending(handle.pid)
            with pytest.raises(ConfigError, match="needs an answer"):
                kernel.resolve_interrupt(question.id, {})
            with pytest.raises(ConfigError, match="not an answer"):
                kernel.resolve_interrupt(question.id, {"text": 7})
            with pytest.raises(NoSuchInterrupt, match="no interrupt"):
                kernel.resolve_interrupt("int_nothing", {"text": "x"})
            await kernel.resolve_interrupt(question.id, {"decision": "yes"})
            with pytest.raises(InvalidTransition, match="resolved already"):
                kernel.resolve_interrupt(question.id, {"decision": "no"})
            assert (await handle.wait()).result == "yes"

    run(main())


def test_answering_before_the_program_is_back(path):
    """A restored question may be answered before its program is back where it asks; no is an answer."""

    async def program(ctx):
        await ctx.do(act, 1)
        return (await ctx.ask("sure?", kind="confirmation")).approved

    async def main():
        async with Crash(Kernel(path)) as kernel:
            kernel.spawn(program, pid="main")
            await settle(kernel)
        async with Kernel(path, programs=[program]) as kernel:
            await kernel.resolve_interrupt(kernel.interrupts.pending()[0].id, {"approved": False})
            assert (await kernel.process("main").wait()).result is False

    run(main())


def test_the_end_of_a_process_cancels_its_questions(target):
    """No user is asked on behalf of an ended process, and an unknown kind of question is an error."""

    async def program(ctx):
        with pytest.raises(ConfigError, match="no interrupt kind"):
            await ctx.ask("?", kind="whatever")
        await ctx.ask("sure?")

    async def main():
        async with Kernel(target) as kernel:
            handle = kernel.spawn(program)
            await settle(kernel)
            (question,) = kernel.interrupts.pending()
            kernel.kill(handle.pid)
            await handle.wait()
            assert kernel.interrupts.pending() == []
            assert kernel.interrupts.get(question.id).status == "cancelled"

    run(main())


def test_unknown_programs_stay_dormant(path):
    """A process whose program is unknown waits unharmed until someone registers or spawns it."""

    async def main():
        async with Crash(Kernel(path)) as kernel:
            kernel.spawn(until_asked, pid="main")
            await settle(kernel)
        async with Kernel(path) as kernel:
            await settle(kernel)
            handle = kernel.process("main")
            assert handle.state == "new"
            assert kernel.interrupts.pending("main")
            kernel.register(until_asked)
            await settle(kernel)
            assert handle.state == "waiting"
        async with Kernel(path) as kernel:
            handle = kernel.process("main")
            kernel.kill("main")
            assert (await handle.wait()).reason == "killed"
        async with Kernel(path) as kernel:
            assert kernel.process("main").state == "terminated"

    run(main())


def test_children_come_back_under_their_parents(path):
    """A tree is rebuilt: parents, names, budgets with what was spent, results of children that ended."""

    async def kid(ctx, n):
        await ctx.do(act, n, cost="$0.10")
        if n == 2:
            await ctx.receive()
        return n

    async def parent(ctx):
        child = ctx.spawn(kid, 1, budget="$0.30")
        ctx.spawn(kid, 2, name="two")
        ended = await child.wait()
        await ctx.ask("?")
        return [ended.result, str(ctx.budget.used())]

    async def main():
        async with Crash(Kernel(path)) as kernel:
            kernel.spawn(parent, pid="main", budget="$1")
            await settle(kernel)
        async with Kernel(path, programs=[parent]) as kernel:
            await settle(kernel)
            handle = kernel.process("main")
            two = kernel.whereis("two")
            assert two is not None
            assert two.parent == "main"
            assert two.state == "waiting"
            assert str(handle.budget.used()) == "$0.20"
            assert str(handle.budget.remaining()) == "$0.80"
            await kernel.resolve_interrupt(kernel.interrupts.pending("main")[0].id, {"text": "ok"})
            assert (await handle.wait()).result == [1, "$0.20"]
        assert sorted(CALLS) == [1, 2]

    run(main())


def test_what_a_process_spent_is_told_apart_from_others(path):
    """A process without a budget of its own counts what it and those below it spent, and nothing of its neighbours,
    also after a crash and when the child has ended."""
    pay = Effect(act, name="pay", cost="$0.10")

    async def kid(ctx):
        await ctx.do(pay, "kid")

    async def parent(ctx):
        await ctx.spawn(kid).wait()
        await ctx.do(pay, "parent")
        await ctx.receive()

    async def neighbour(ctx):
        for number in range(5):
            await ctx.do(pay, number)
        await ctx.receive()

    def spent(kernel):
        return [str(kernel.processes[pid].spent.usd) for pid in ("main", "next")]

    async def main():
        async with Crash(Kernel(path)) as kernel:
            kernel.spawn(parent, pid="main")
            kernel.spawn(neighbour, pid="next")
            await settle(kernel)
            assert spent(kernel) == ["$0.20", "$0.50"]
            assert str(kernel.budget.used()) == "$0.70"
        async with Kernel(path, programs=[parent, kid, neighbour]) as kernel:
            assert spent(kernel) == ["$0.20", "$0.50"]
            assert not kernel.processes["main"].has_own_budget

    run(main())


def test_budget_readings_replay(path):
    """A program that decides by what is left decides the same way on replay, whatever others spent since."""

    async def spender(ctx):
        await ctx.do(act, "spend", cost="$0.60")

    async def careful(ctx):
        before = str(ctx.budget.remaining())
        await ctx.ask("?")
        return [before, str(ctx.budget.remaining())]

    async def parent(ctx):
        ctx.spawn(careful, pid="careful")
        await ctx.receive()
        ctx.spawn(spender)
        await ctx.receive()

    async def main():
        async with Crash(Kernel(path)) as kernel:
            kernel.spawn(parent, pid="main", budget="$1")
            await settle(kernel)
            kernel.send("main", "spend")
            await settle(kernel)
        async with Kernel(path, programs=[parent, careful, spender]) as kernel:
            await settle(kernel)
            await kernel.resolve_interrupt(kernel.interrupts.pending("careful")[0].id, {"text": "ok"})
            assert (await kernel.process("careful").wait()).result == ["$1.00", "$0.40"]

    run(main())


def test_snapshots(path):
    """Every so many rows the journal is folded; a restart reads the fold and the tail, and old rows go."""

    async def program(ctx):
        total = 0
        for _ in range(200):
            total += await ctx.do(act, 1)
        await ctx.ask("?")
        return total

    async def main():
        kernel = Kernel(path, snapshot_every_events=100, retention_s=0)
        await kernel.start()
        kernel.spawn(program, pid="main")
        for _ in range(200):
            await asyncio.sleep(0)
            if kernel.interrupts.pending():
                break
        while kernel._snapshots.is_writing:
            await asyncio.sleep(0.001)
        store = kernel.journal.store
        assert store.load_snapshots().seq >= 100
        assert store.first_seq() > 100
        crash(kernel)
        async with Kernel(path, programs=[program]) as kernel:
            await settle(kernel)
            await kernel.resolve_interrupt(kernel.interrupts.pending()[0].id, {"text": "ok"})
            assert (await kernel.process("main").wait()).result == 200
        assert len(CALLS) == 200

    run(main())


def test_user_exceptions_replay_as_themselves(path):
    """An `except` clause that caught an effect's error live catches it on replay."""

    async def program(ctx):
        try:
            await ctx.do(fail_with_own)
        except OwnError as error:
            kind = [type(error).__name__, error.args]
        await ctx.ask("?")
        return kind

    async def main():
        async with Crash(Kernel(path)) as kernel:
            kernel.spawn(program, pid="main")
            await settle(kernel)
        async with Kernel(path, programs=[program]) as kernel:
            await settle(kernel)
            await kernel.resolve_interrupt(kernel.interrupts.pending()[0].id, {"text": "ok"})
            ended = await kernel.process("main").wait()
            assert ended.result == ["OwnError", ["a", 7]], ended

    run(main())


class OwnError(Exception):
    def __init__(self, text, number):
        super().__init__(text, number)


async def fail_with_own():
    raise OwnError("a", 7)


def test_refusals_replay(path):
    """A refusal depends on what others did at the time, so it is journaled and comes back the same."""

    async def program(ctx):
        try:
            await ctx.do(act, 1, cost="$2")
        except Exception as error:
            first = type(error).__name__
        await ctx.ask("?")
        return first

    async def main():
        async with Crash(Kernel(path, budget="$1")) as kernel:
            kernel.spawn(program, pid="main")
            await settle(kernel)
        async with Kernel(path, programs=[program], budget="$100") as kernel:
            await settle(kernel)
            await kernel.resolve_interrupt(kernel.interrupts.pending()[0].id, {"text": "ok"})
            assert (await kernel.process("main").wait()).result == "BudgetExceeded"
        assert CALLS == []

    run(main())


def test_a_store_may_be_a_path(tmp_path):
    """A pathlib.Path is as good as its text."""

    async def main():
        async with Kernel(tmp_path / "run.db") as kernel:
            await kernel.durable()

    asyncio.run(main())
    assert (tmp_path / "run.db").exists()


def test_what_a_skipped_effect_gives_is_made_of_the_decision(path):
    """`Effect(skipped=…)` makes the value that the program expects of the data that a person typed."""
    effect = Effect(act, name="act", skipped=lambda data: {"by hand": data})

    async def program(ctx):
        return await ctx.do(effect, "did")

    async def main():
        def hook(name):
            if name == "door.performed":
                raise SimulatedCrash

        with intercept(hook):
            kernel = Kernel(path)
            await kernel.start()
            kernel.loop.set_exception_handler(lambda loop, context: None)
            await kernel.spawn(program, pid="main")
            await settle(kernel)
            crash(kernel)
        async with Kernel(path, programs=[program]) as kernel:
            await settle(kernel)
            (question,) = kernel.interrupts.pending("main")
            await kernel.resolve_interrupt(question.id, {"decision": "skip", "data": "seen"})
            return (await kernel.process("main").wait()).result

    assert run(main()) == {"by hand": "seen"}


def test_a_question_brings_its_message(target):
    """The person who is asked sees the longer text beside the question."""

    async def program(ctx):
        return (await ctx.ask("Go on?", message="Two files would be deleted.")).text

    async def main():
        async with Kernel(target, programs=[program]) as kernel:
            kernel.spawn(program, pid="main")
            await settle(kernel)
            (question,) = kernel.interrupts.pending("main")
            return question.question, question.message

    assert run(main()) == ("Go on?", "Two files would be deleted.")


def test_a_program_knows_that_it_replays(path):
    """What it said before a crash it does not say again."""
    said = []

    async def program(ctx):
        for number in range(2):
            if not ctx.replaying:
                said.append(number)
            await ctx.do(act, number)
        await ctx.ask("go on?", kind="confirmation")
        said.append("answered" if not ctx.replaying else "replayed")  # type: ignore[arg-type]

    async def main():
        async with Crash(Kernel(path)) as kernel:
            await kernel.spawn(program, pid="main")
            while not kernel.interrupts.pending():
                await asyncio.sleep(0.001)
        async with Kernel(path, programs=[program]) as kernel:
            await settle(kernel)
            await kernel.resolve_interrupt(kernel.interrupts.pending()[0].id, {"approved": True})
            await kernel.process("main").wait()
        assert said == [0, 1, "answered"]

    run(main())


def test_an_end_on_purpose_is_no_failure_after_a_restart_either(path):
    """One that was killed for a reason has not failed; one that left for a reason of its own has."""

    async def leave(ctx):
        ctx.exit("no budget")

    async def main():
        async with Kernel(path, programs=[leave]) as kernel:
            await kernel.spawn(until_asked, pid="killed").kill("budget review")
            await kernel.spawn(leave, pid="left").wait()
            await kernel.process("killed").wait()
            assert [kernel.processes[pid].has_failed for pid in ("killed", "left")] == [False, True]
        async with Kernel(path, programs=[leave, until_asked]) as kernel:
            assert [kernel.processes[pid].has_failed for pid in ("killed", "left")] == [False, True]

    run(main())


def test_an_effect_passes_each_point_of_the_door_in_order(path):
    visited = []

    async def program(ctx):
        return await ctx.do(act, 1)

    async def main():
        async with Kernel(path) as kernel:
            with intercept(visited.append):
                await kernel.spawn(program, pid="main").wait()

    run(main())
    points = [name for name in visited if name.startswith("door.")]
    assert points == ["door.admitted", "door.started", "door.performed", "door.finished"]
