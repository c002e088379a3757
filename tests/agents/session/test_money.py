"""Money, time and records where calls fail, are cut off or have no room: all that is spent is counted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import lyra
from lyra import Agent, Kernel
from lyra.errors import DeadlineExceeded, LyraError
from tests.agents.support import calls, clock_here, run, says, virtual
from tests.agents.tries import BROKEN, Tries, counted

PRICE = {"price": {"input_usd_per_mtok": 3, "output_usd_per_mtok": 15}}
QUICK = {"max_attempts": 4, "backoff": {"initial_s": 0.01}}


def heard(kernel: Kernel, *kinds: str) -> list[Any]:
    seen: list[Any] = []
    kernel.on_event(lambda event: seen.append(event) if event.kind in kinds else None)
    return seen


# ---------------------------------------------------------------- failures and budgets
def test_a_try_that_failed_is_paid_for_where_the_next_has_no_room():
    """The retry is refused, and what the try before it cost stays spent: the budget ends the spending."""

    async def main() -> None:
        async with Kernel() as kernel:
            model = Tries([counted(100, 10), BROKEN])
            agent = Agent("a", model=model, budget="$0.0012", max_tokens=20, min_tokens=1, retry=QUICK)
            process = await kernel.spawn(agent)
            for _ in range(20):
                with pytest.raises(LyraError):
                    await process.send("word " * 120)
            paid = 100 * 3 + 10 * 15
            assert int(process.budget.used("usd")) == model.tries * paid <= 1200
            assert process.metrics.cost_micro_usd == model.tries * paid
            assert process.metrics.retries < model.tries
            assert int(process.budget.reserved("usd")) == 0

    run(main())


def test_a_provider_that_counts_more_surprises_once():
    """What it counted for a try that failed is known to the next: that one is refused before it is made."""

    async def main() -> None:
        async with Kernel() as kernel:
            model = Tries([counted(200, 1), BROKEN])
            process = await kernel.spawn(Agent("a", model=model, budget="$0.0008", max_tokens=20, retry=QUICK))
            for _ in range(5):
                with pytest.raises(LyraError):
                    await process.send("hi")
            assert (model.tries, int(process.budget.used("usd"))) == (1, 200 * 3 + 15)

    run(main())


def test_a_failed_model_is_paid_for_once_where_another_answers():
    """What the first model cost is not charged a second time with the answer of the next."""

    async def main() -> None:
        async with Kernel() as kernel:
            agent = Agent(
                "a",
                model=Tries([counted(100, 10), BROKEN]),
                fallback=[Tries([counted(10, 2), "yes"])],
                retry=None,
                max_tokens=50,
                budget="$1",
            )
            process = await kernel.spawn(agent)
            with lyra.budget("$1") as scope:
                assert await process.send("hi") == "yes"
            paid = 110 * 3 + 12 * 15
            assert int(scope.used) == int(process.budget.used("usd")) == process.metrics.cost_micro_usd == paid

    run(main())


# ---------------------------------------------------------------- scopes and tools
@pytest.mark.parametrize("kind", ["async", "sync", "ctx"])
def test_agents_asked_in_a_tool_draw_on_the_scope_around(kind):
    """Whatever the tool is like: `with lyra.budget` holds for every agent asked inside."""

    async def main() -> None:
        helper = Agent("helper", model=says("word " * 80, **PRICE), max_tokens=100)

        async def of_async() -> str:
            return str(await lyra.run(helper, "hey"))

        def of_sync() -> str:
            return str(lyra.run(helper, "hey"))

        async def of_ctx(ctx: lyra.Context) -> str:
            return str(await lyra.run(helper, "hey"))

        functions: dict[str, Any] = {"async": of_async, "sync": of_sync, "ctx": of_ctx}
        tool = lyra.tool(functions[kind], name="ask")
        async with Kernel() as kernel:
            process = await kernel.spawn(Agent("a", model=says(calls("ask"), "done"), tools=[tool]))
            with lyra.budget("$1") as scope:
                assert await process.send("go") == "done"
            assert scope.used > 0
            before = scope.used
            assert await process.send("again") == "done"
            assert scope.used == before

    run(main())


# ---------------------------------------------------------------- seconds
def test_the_seconds_of_an_agent_are_a_deadline_and_no_time_out_to_retry():
    """DeadlineExceeded where it waits; the model is asked once, no other model is, and the process is over."""

    async def main() -> None:
        async with Kernel(clock=clock_here()) as kernel:
            model, other = says({"text": "late", "first_s": 10}), says("other")
            agent = Agent("a", model=model, fallback=[other], retry=QUICK, budget={"seconds": 0.5})
            process = await kernel.spawn(agent)
            began_s = kernel.clock.monotonic()
            with pytest.raises(DeadlineExceeded):
                await process.send("hi")
            assert kernel.clock.monotonic() - began_s == pytest.approx(0.5)
            assert (len(model.requests), len(other.requests), process.metrics.retries) == (1, 0, 0)
            ended = await process.wait()
            assert isinstance(ended.error, DeadlineExceeded)
            with pytest.raises(DeadlineExceeded):
                await process.send("again")
            assert len(model.requests) == 1

    virtual(main())


def test_the_seconds_of_an_agent_end_a_tool_too():
    """The model is not told of it: there is no time left to do better."""

    async def main() -> None:
        async def slow() -> str:
            await asyncio.sleep(60)
            return "late"

        async with Kernel(clock=clock_here()) as kernel:
            model = says(calls("slow"), "done")
            process = await kernel.spawn(Agent("a", model=model, tools=[slow], budget={"seconds": 1}))
            with pytest.raises(DeadlineExceeded):
                await process.send("hi")
            assert len(model.requests) == 1
            assert not process.alive

    virtual(main())


@pytest.mark.parametrize("where", ["around", "send", "stream"])
def test_the_seconds_of_a_scope_are_a_deadline(where):
    """For every question inside, from the first one on; the process goes on with the next message."""

    async def main() -> None:
        async with Kernel(clock=clock_here()) as kernel:
            model = says({"text": "in time", "first_s": 0.6}, {"text": "late", "first_s": 0.6}, "later")
            process = await kernel.spawn(Agent("a", model=model, retry=QUICK))
            began_s = kernel.clock.monotonic()
            if where == "around":
                with lyra.budget(seconds=1):
                    assert await process.send("one") == "in time"
                    with pytest.raises(DeadlineExceeded):
                        await process.send("two")
                    with pytest.raises(DeadlineExceeded):
                        await process.send("never asked")
                    assert len(model.requests) == 2
            else:
                assert await process.send("one", budget={"seconds": 1}) == "in time"
                with pytest.raises(DeadlineExceeded):
                    if where == "send":
                        await process.send("two", budget={"seconds": 0.4})
                    else:
                        await process.stream("two", budget={"seconds": 0.4})
            assert kernel.clock.monotonic() - began_s == pytest.approx(1)
            assert await process.send("three") == "later"
            assert len(model.requests) == 3

    virtual(main())


def test_seconds_that_only_warn_end_nothing():
    async def main() -> None:
        async with Kernel(clock=clock_here()) as kernel:
            process = await kernel.spawn(Agent("a", model=says({"text": "late", "first_s": 2})))
            with lyra.budget(seconds=1, on_exceed="warn"):
                assert await process.send("hi") == "late"

    virtual(main())


# ---------------------------------------------------------------- records
def test_a_record_has_what_all_tries_took():
    """Tokens and money of those that failed, and the time from the first on."""

    async def main() -> None:
        async with Kernel(clock=clock_here()) as kernel:
            records = heard(kernel, "model.called")
            model = Tries([2.0, counted(100, 10), "a", BROKEN], [counted(100, 20), "a b"])
            process = await kernel.spawn(Agent("a", model=model, retry=QUICK))
            reply = await process.send("hi")
            (record,) = [event.data for event in records]
            assert (record["input_tokens"], record["output_tokens"]) == (200, 30)
            assert record["cost_usd"] == reply.cost_usd == (200 * 3 + 30 * 15) / 1e6
            assert record["latency_ms"] >= 2000
            assert (record["status"], record["retries"]) == ("ok", 1)

    virtual(main())


def test_a_record_of_a_failure_has_what_it_cost():
    async def main() -> None:
        async with Kernel() as kernel:
            records = heard(kernel, "model.called")
            process = await kernel.spawn(Agent("a", model=Tries([counted(100, 10), BROKEN]), retry=QUICK))
            with pytest.raises(LyraError):
                await process.send("hi")
            (record,) = [event.data for event in records]
            assert (record["input_tokens"], record["output_tokens"], record["retries"]) == (400, 40, 3)
            assert record["cost_usd"] == process.metrics.cost_usd == 4 * (100 * 3 + 10 * 15) / 1e6

    run(main())


@pytest.mark.parametrize("budget", [None, "$1"])
@pytest.mark.parametrize("how", ["timeout", "left"])
def test_a_call_that_is_cut_off_leaves_a_record_and_its_cost(how, budget):
    """Where money is limited, what was set aside is spent, in the metrics as in the budget; else what was counted."""

    async def main() -> None:
        async with Kernel(clock=clock_here()) as kernel:
            records = heard(kernel, "model.called", "budget.overrun")
            model = Tries([counted(100, 10), "a", 60.0, "b"])
            process = await kernel.spawn(Agent("a", model=model, max_tokens=50, budget=budget))
            if how == "timeout":
                with pytest.raises(DeadlineExceeded):
                    await process.send("hi", timeout=1)
            else:
                async for piece in process.stream("hi"):
                    assert piece == "a"
                    break
            await asyncio.sleep(0.1)
            (record,) = [event.data for event in records]
            assert record["status"] == "cancelled"
            assert (record["input_tokens"], record["output_tokens"]) == (100, 10)
            assert record["cost_usd"] == process.metrics.cost_micro_usd / 1e6 > 0
            if budget is not None:
                assert process.metrics.cost_micro_usd == int(process.budget.used("usd")) > 50 * 15
            else:
                assert process.metrics.cost_micro_usd == 100 * 3 + 10 * 15

    virtual(main())


@pytest.mark.parametrize(
    ("steps", "input_tokens"), [(["word " * 40, 60.0], None), ([counted(100, 1), "word " * 40, 60.0], 100)]
)
def test_a_cut_off_call_counts_the_input_and_what_arrived(steps, input_tokens):
    """The input as the stream's beginning told it, or estimated; at least the tokens of the partial text. The record
    says that it is an estimate; a budget without a limit is charged what the provider told."""

    async def main() -> None:
        async with Kernel(clock=clock_here()) as kernel:
            records = heard(kernel, "model.called")
            process = await kernel.spawn(Agent("a", model=Tries(steps), max_tokens=500))
            with pytest.raises(DeadlineExceeded):
                await process.send("a question of some words", timeout=1)
            await asyncio.sleep(0.1)
            (record,) = [event.data for event in records]
            assert record["estimated"] is True
            assert record["input_tokens"] == (input_tokens or record["input_tokens"]) > 5
            assert 40 <= record["output_tokens"] <= 120
            paid = record["input_tokens"] * 3 + record["output_tokens"] * 15
            assert record["cost_usd"] == process.metrics.cost_usd == paid / 1e6
            assert int(process.budget.used("usd")) == (100 * 3 + 1 * 15 if input_tokens else 0)
            assert process.metrics.estimated_calls == 1

    virtual(main())


def test_a_failure_before_any_answer_costs_nothing():
    """Its cost is known, also where the price of the model is not."""

    class Unpriced(Tries):
        def price(self, model: str) -> None:
            return None

    async def main() -> None:
        async with Kernel() as kernel:
            records = heard(kernel, "model.called")
            for number, model in enumerate((Tries([BROKEN]), Unpriced([BROKEN]))):
                process = await kernel.spawn(Agent(f"a{number}", model=model, retry=None))
                with pytest.raises(LyraError):
                    await process.send("hi")
            assert [event.data["cost_usd"] for event in records] == [0.0, 0.0]

    run(main())


def test_a_cut_off_call_pays_for_the_tries_before_it():
    """In the scope around it and in the process's own budget alike."""

    async def main() -> None:
        async with Kernel(clock=clock_here()) as kernel:
            model = Tries([counted(1000, 10), BROKEN], [60.0, "late"])
            process = await kernel.spawn(Agent("a", model=model, max_tokens=50, budget="$1", retry=QUICK))
            with lyra.budget("$1") as scope, pytest.raises(DeadlineExceeded):
                await process.send("hi", timeout=10)
            await asyncio.sleep(0.1)
            assert int(scope.used) == int(process.budget.used("usd")) == process.metrics.cost_micro_usd
            assert int(scope.used) >= 1000 * 3 + 10 * 15 + 50 * 15

    virtual(main())


# ---------------------------------------------------------------- what is told of budgets
@pytest.mark.parametrize("budget", [None, {"output_tokens": 1000}])
def test_no_overrun_is_published_for_a_dimension_without_a_limit(budget):
    async def main() -> None:
        async with Kernel() as kernel:
            told = heard(kernel, "budget.overrun")
            process = await kernel.spawn(Agent("a", model=says("word " * 20, **PRICE), max_tokens=100, budget=budget))
            await process.send("hi")
            assert [event.data for event in told] == []

    run(main())


def test_an_overrun_of_a_limit_is_told():
    """The provider counted more than the estimate."""

    async def main() -> None:
        async with Kernel() as kernel:
            told = heard(kernel, "budget.overrun")
            model = Tries([counted(100_000, 1), "yes"])
            process = await kernel.spawn(Agent("a", model=model, max_tokens=10, budget="$1"))
            await process.send("hi")
            (event,) = told
            assert event.data["overrun"]["usd"] > 200_000

    run(main())


@pytest.mark.parametrize("where", ["around", "send"])
def test_a_scope_that_warns_says_so(where):
    async def main() -> None:
        async with Kernel() as kernel:
            told = heard(kernel, "budget.warning")
            process = await kernel.spawn(Agent("a", model=says("word " * 80, **PRICE), max_tokens=100))
            if where == "around":
                with lyra.budget("$0.0001", on_exceed="warn"):
                    await process.send("hi")
            else:
                await process.send("hi", budget={"usd": "0.0001", "on_exceed": "warn"})
            (event,) = told
            assert event.pid == process.pid
            assert event.data["effect"].startswith("model:a:")
            assert [over["dimension"] for over in event.data["over"]] == ["usd"]
            await process.send("hi")
            assert len(told) == 1

    run(main())


# ---------------------------------------------------------------- with a store
def test_what_a_cut_off_call_cost_is_in_the_journal(tmp_path):
    """A restart finds the same spending; the tries that failed before it was cut off are part of it."""

    async def main() -> None:
        agent = Agent(
            "a", model=Tries([counted(1000, 10), BROKEN], [60.0, "late"]), max_tokens=50, budget="$1", retry=QUICK
        )
        path = str(tmp_path / "agents.db")
        async with Kernel(store=path) as kernel:
            process = await kernel.spawn(agent, pid="one")
            with pytest.raises(DeadlineExceeded):
                await process.send("hi", timeout=0.3)
            await asyncio.sleep(0.05)
            used = int(process.budget.used("usd"))
            assert used == process.metrics.cost_micro_usd >= 1000 * 3 + 10 * 15 + 50 * 15
        async with Kernel(store=path) as kernel:
            process = await kernel.spawn(agent, pid="one")
            assert int(process.budget.used("usd")) == used

    run(main())


def test_a_deadline_of_a_durable_agent_holds_after_a_restart(tmp_path):
    """It is over, and stays so."""

    async def main() -> None:
        model = says({"text": "late", "first_s": 30})
        agent = Agent("a", model=model, retry=QUICK, budget={"seconds": 0.3})
        path = str(tmp_path / "agents.db")
        async with Kernel(store=path) as kernel:
            process = await kernel.spawn(agent, pid="one")
            with pytest.raises(DeadlineExceeded):
                await process.send("hi")
        async with Kernel(store=path) as kernel:
            process = await kernel.spawn(agent, pid="one")
            with pytest.raises(LyraError):
                await process.send("again")
            assert len(model.requests) == 1

    run(main())
