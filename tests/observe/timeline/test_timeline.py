"""The run of a process as steps, and how everything stood after each of them."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lyra import Agent, Kernel, tool
from lyra.cli.replay.command import conversation_lines
from lyra.core.event import Event
from lyra.errors import ConfigError, NoSuchProcess, ToolError
from lyra.models.sim import SimProvider
from lyra.observe.timeline.state import StoredRows
from lyra.observe.timeline.timeline import RunTimeline
from lyra.observe.timeline.travel import Breakpoints, Travel, compare_runs
from lyra.server.dashboard.run_view import moment_view
from lyra.store.protocol import Store
from lyra.store.space import open_to_read
from tests.agents.forks.programs import acts, book, booking, clerk, guide, opened, talk, team
from tests.store.conftest import postgres_server, postgres_url  # noqa: F401 - fixtures

_opened: list[Store] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


def rows(store: str) -> StoredRows:
    _opened.append(open_to_read(store))
    return StoredRows(_opened[-1])


def timeline(store: str, pid: str, **options: Any) -> RunTimeline:
    return RunTimeline(rows(store), pid, **options)


def kinds(run: RunTimeline) -> list[str]:
    return [step.kind for step in run.steps]


def test_a_conversation_is_messages_model_calls_tool_calls_and_turns(store: str) -> None:
    """With arguments, results, tokens and cost."""
    asyncio.run(talk(store))
    run = timeline(store, "talk")
    assert kinds(run) == ["began", "message", "model", "tool", "model", "turn", "message", "model", "turn"]
    _, message, model, tool, answer = run.steps[:5]
    assert message.request == "weather in Oslo?"
    assert model.agent == "guide"
    assert model.micro_usd > 0
    assert model.tokens > 0
    assert 'calls weather({"city":"Oslo"})' in model.result
    assert (tool.what, tool.request, tool.result) == ("weather", '{"city":"Oslo"}', "sunny in Oslo")
    assert answer.result == "It is sunny in Oslo."
    assert run.totals()["cost_usd"] == sum(step.micro_usd for step in run.steps) / 1_000_000


def test_at_each_step_the_conversation_is_as_it_was(store: str) -> None:
    """Nothing of what came later is in it, and the budget is what was used by then."""
    asyncio.run(talk(store))
    run = timeline(store, "talk")
    counts = [run.moment(number)["conversation"]["count"] for number in range(len(run.steps) + 1)]
    assert counts == [0, 0, 1, 2, 3, 4, 4, 5, 6, 6]
    moment = run.moment(4)
    assert [row["role"] for row in moment["conversation"]["messages"]] == ["user", "assistant", "tool"]
    assert moment["conversation"]["messages"][2]["tool_results"][0]["output"] == "sunny in Oslo"
    (scope,) = moment["budget"]
    assert scope["limits"]["usd"] == 500_000
    assert scope["used"]["usd"] == run.steps[2].micro_usd < run.moment(5)["budget"][0]["used"]["usd"]


def test_a_moment_is_the_same_whichever_was_looked_at_before(store: str) -> None:
    """Forwards, backwards and in any order."""
    asyncio.run(book(store))
    asyncio.run(talk(store))
    for pid in ("trip", "talk"):
        fresh = [timeline(store, pid).moment(number) for number in range(10)]
        run = timeline(store, pid)
        order = [*range(10), *reversed(range(10)), 3, 7, 7, 2, 9, 0, 5]
        assert [run.moment(number) for number in order] == [fresh[number] for number in order]


def test_a_model_call_under_way_has_its_cost_set_aside(store: str) -> None:
    """The row of its beginning says how much; the row of its end releases it."""
    asyncio.run(talk(store))
    run = timeline(store, "talk")
    state = run.state(2)
    for event in rows(store).rows(after=state.seq, upto=run.steps[2].seq):
        state.add(event)
    (scope,) = state.budget("talk")
    assert scope["reserved"]["usd"] > 0
    assert scope["used"] == {}
    assert run.moment(3)["budget"][0]["reserved"] == {}


def test_a_program_is_effects_children_and_messages(store: str) -> None:
    """With what its effects gave as its known variables, and its children in the tree."""
    asyncio.run(book(store))
    run = timeline(store, "trip")
    assert kinds(run) == ["began", "effect", "spawn", "effect", "effect", "exit", "wait", "message", "effect", "exit"]
    assert {step.pid for step in run.steps} == {"trip", run.steps[2].child}
    after_child = run.moment(7)
    assert after_child["variables"]["arguments"] == ["sea"]
    assert {"room": "sea"} in after_child["variables"].values()
    assert after_child["mailbox"] == {"messages": ['{"amount":120}'], "count": 1}
    assert [(row["depth"], row["state"]) for row in after_child["tree"]] == [(0, "running"), (1, "ended")]
    assert run.moment(8)["mailbox"]["count"] == 0
    assert run.moment(10)["variables"]["result"]["paid"] == 120
    assert run.ended_as == "normal"


def test_a_crash_and_the_restart_of_a_supervised_child_are_steps(store: str) -> None:
    """The tree shows both lives of the child, and how often it was started."""
    asyncio.run(team(store))
    run = timeline(store, "team")
    assert kinds(run).count("crash") == 1
    assert kinds(run).count("restart") == 1
    crash = next(step for step in run.steps if step.kind == "crash")
    assert "overloaded" in crash.error
    at_crash, at_end = run.moment(crash.number)["tree"], run.moment(len(run.steps))["tree"]
    assert [(row["state"], row["starts"]) for row in at_crash[1:]] == [("ended", 1)]
    assert [(row["state"], row["starts"]) for row in at_end[1:]] == [("ended", 1), ("running", 2)]


def test_looking_changes_no_byte_of_the_store(store: str) -> None:
    """Neither the file nor a log beside it."""
    asyncio.run(talk(store))
    before = hashlib.sha256(Path(store).read_bytes()).hexdigest()
    run = timeline(store, "talk")
    for number in range(len(run.steps) + 1):
        run.moment(number)
    assert hashlib.sha256(Path(store).read_bytes()).hexdigest() == before
    assert [path.name for path in Path(store).parent.glob("run.db*")] == ["run.db"]


def test_a_run_is_looked_at_while_its_kernel_runs_it(store: str) -> None:
    """And read on when there is more."""

    async def main() -> None:
        async with opened(store) as kernel:
            process = kernel.spawn(booking, "sea", pid="trip")
            while "mail-sea" not in acts():
                await asyncio.sleep(0.01)
            await kernel.durable()
            run = timeline(store, "trip")
            known = len(run.steps)
            assert run.ended_as == ""
            await kernel.send("trip", {"amount": 1})
            await process.wait()
            await kernel.durable()
            assert run.refresh() >= 2
            assert len(run.steps) > known
            assert run.ended_as == "normal"

    asyncio.run(main())


def test_a_long_run_is_read_a_page_at_a_time_and_bounded(store: str) -> None:
    """Steps past the bound are not held, and that is said."""

    async def many(ctx: Any) -> None:
        for number in range(30):
            await ctx.sleep(0.0001 * number)

    async def main() -> None:
        from lyra import Kernel

        async with Kernel(store, programs=[many]) as kernel:
            await kernel.spawn(many, pid="many").wait()

    asyncio.run(main())
    run = timeline(store, "many")
    assert len(run.steps) == 32
    assert [step.number for step in run.page(10, 5)] == [11, 12, 13, 14, 15]
    assert run.page(32, 5) == []
    short = timeline(store, "many", steps_max=10)
    assert (len(short.steps), short.is_cut) == (10, True)


def test_a_step_is_found_by_its_text(store: str) -> None:
    asyncio.run(talk(store))
    travel = Travel(timeline(store, "talk").steps)
    assert travel.find("sunny")
    assert travel.position == 4
    assert travel.find("SUNNY")
    assert travel.position == 5
    assert not travel.find("nowhere")
    assert travel.position == 5


def test_breakpoints_are_found_in_the_steps_of_any_run(store: str) -> None:
    """Where an agent is asked, and where so much is spent; in both directions."""
    asyncio.run(talk(store))
    run = timeline(store, "talk")
    breaks = Breakpoints(travel := Travel(run.steps))
    breaks.add("agent guide")
    stops = []
    while breaks.forward() is not None:
        stops.append(travel.position)
    assert stops == [step.number for step in run.steps if step.kind == "model"]
    assert travel.position == len(run.steps)
    assert breaks.backward() is not None
    assert travel.position == stops[-1]
    breaks.delete(1)
    half = run.totals()["usage"]["usd"] // 2
    breaks.add(f"cost ${half / 1_000_000:.6f}")
    travel.goto(0)
    assert breaks.forward() is not None
    assert run.totals(travel.position - 1)["usage"].get("usd", 0) < half <= run.totals(travel.position)["usage"]["usd"]


def test_the_whole_value_of_a_step_is_read_when_it_is_asked_for(store: str) -> None:
    """A value in a blob too; the short text in the list is cut."""

    async def long(ctx: Any) -> int:
        return len(await ctx.do(page))

    async def page() -> str:
        return "x" * 100_000

    async def main() -> None:
        from lyra import Kernel

        async with Kernel(store, programs=[long]) as kernel:
            await kernel.spawn(long, pid="long").wait()

    asyncio.run(main())
    run = timeline(store, "long")
    assert len(run.steps[1].result) <= 160
    assert run.detail(2)["value"].startswith("x" * 1_000)


def test_no_such_process_and_no_such_step_say_what_there_is(store: str) -> None:
    asyncio.run(talk(store))
    with pytest.raises(NoSuchProcess, match="tolk") as caught:
        timeline(store, "tolk")
    assert caught.value.hint == "did you mean 'talk'?"
    with pytest.raises(ConfigError, match="no step 99"):
        timeline(store, "talk").moment(99)


def test_two_runs_are_the_same_but_for_their_pids(store: str) -> None:
    """And differ from the first step that is not the same on."""
    asyncio.run(book(store, "one"))
    asyncio.run(book(store, "two"))
    same = compare_runs(timeline(store, "one"), timeline(store, "two"))
    assert same.first is None

    async def other() -> None:
        async with opened(store) as kernel:
            process = kernel.spawn(booking, "sea", pid="three")
            await kernel.send("three", {"amount": 7})
            await process.wait()

    asyncio.run(other())
    compared = compare_runs(timeline(store, "one"), timeline(store, "three"))
    assert compared.first == 8
    data = compared.to_data()
    assert [row["is_same"] for row in data["steps"]] == [True] * 7 + [False] * 3
    assert data["left"]["program"] == data["right"]["program"]


@pytest.mark.long
def test_a_run_of_a_postgresql_store_is_looked_at_the_same_way(postgres_url: str) -> None:  # noqa: F811
    asyncio.run(book(postgres_url))
    run = timeline(postgres_url, "trip")
    assert run.moment(7)["mailbox"]["count"] == 1
    assert run.ended_as == "normal"


def test_a_process_is_found_by_its_name(store: str) -> None:
    """The last process that had the name."""

    async def main() -> None:
        async with opened(store) as kernel:
            await kernel.spawn(clerk, "x", name="mailer").wait()
            await kernel.spawn(guide, pid="talk", name="host")

    asyncio.run(main())
    reader = rows(store)
    assert RunTimeline.from_name(reader, "host").pid == "talk"
    assert RunTimeline.from_name(reader, "mailer").program.endswith(":clerk")


async def _pay(ctx: Any, order: str) -> str:
    """Pay an order back."""
    answer = await ctx.ask(f"Pay {order}?", kind="confirmation")
    if order == "A-9":
        raise ToolError("no such order")
    return "paid" if answer.approved else "declined"


@pytest.mark.parametrize("orders", [("A-1",), ("A-1", "A-2"), ("A-9",)], ids=["one", "two at once", "one that fails"])
def test_a_tool_that_waits_for_a_person_has_no_result_yet(store: str, orders: tuple[str, ...]) -> None:
    """Neither in the conversation nor in its step; once the person has answered, both have it."""
    calls = [{"id": order, "name": "pay", "arguments": {"order": order}} for order in orders]
    script = {"sequence": [{"tool_calls": calls}, {"text": "Done."}]}
    desk = Agent("desk", model=SimProvider(script=script), tools=[tool(_pay, name="pay")])

    async def main() -> tuple[RunTimeline, RunTimeline]:
        async with Kernel(store) as kernel:
            process = await kernel.spawn(desk, pid="desk")
            reply = asyncio.ensure_future(process.send("pay back", wait_for_person=True))
            async with asyncio.timeout(30):
                while len(kernel.interrupts.pending()) < len(orders):
                    await asyncio.sleep(0)
                assert kernel.journal is not None
                kernel.journal.flush()
                waiting = timeline(store, "desk")
                for question in kernel.interrupts.pending():
                    kernel.interrupts.resolve(question.id, {"approved": True})
                await reply
        return waiting, timeline(store, "desk")

    waiting, over = asyncio.run(main())
    now = waiting.moment(len(waiting.steps))["conversation"]
    assert [result["is_open"] for result in now["messages"][-1]["tool_results"]] == [True] * len(orders)
    assert conversation_lines(now)[-1].strip() == "tool pay has no result yet"
    assert "no result yet" in str(moment_view(waiting.moment(len(waiting.steps))))
    assert [step.status for step in waiting.steps if step.kind == "tool"] == ["running"] * len(orders)

    tools = [step for step in over.steps if step.kind == "tool"]
    answered = next(step for step in over.steps if step.kind == "model" and step.result == "Done.")
    results = over.moment(answered.number - 1)["conversation"]["messages"][-1]["tool_results"]
    assert not any("is_open" in result for result in results)
    if orders == ("A-9",):
        assert "no such order" in tools[0].error
        assert "no such order" in results[0]["output"]
    else:
        assert [(step.status, step.result) for step in tools] == [("ok", "paid")] * len(orders)
        assert [result["output"] for result in results] == ["paid"] * len(orders)
        assert over.detail(tools[0].number)["value"] == "paid"


def test_a_tool_that_gives_nothing_is_done(store: str) -> None:
    """Nothing is a result, too: it is not taken for a tool at work."""
    script = {"sequence": [{"tool_calls": [{"id": "c1", "name": "rest", "arguments": {}}]}, {"text": "Rested."}]}

    async def rest() -> None:
        """Do nothing."""

    async def main() -> None:
        async with Kernel(store) as kernel:
            process = await kernel.spawn(Agent("idler", model=SimProvider(script=script), tools=[rest]), pid="idler")
            await process.send("rest")

    asyncio.run(main())
    run = timeline(store, "idler")
    (step,) = [step for step in run.steps if step.kind == "tool"]
    assert (step.status, step.result) == ("ok", "")
    (result,) = run.moment(step.number)["conversation"]["messages"][-1]["tool_results"]
    assert result == {"id": "c1", "name": "rest", "output": None}


class CountingRows(StoredRows):
    """Counts how many rows of the store are looked at, wanted or not."""

    looked_at = 0

    def rows(self, *, wanted: Any = None, **places: Any) -> Iterator[Event]:
        def counted(pid: str, kind: str) -> bool:
            self.looked_at += 1
            return wanted is None or wanted(pid, kind)

        return super().rows(wanted=counted, **places)


def test_rows_of_other_runs_are_looked_at_once(store: str) -> None:
    """However long a journal grows behind a run, reading on and going from step to step look at few rows."""
    asyncio.run(talk(store))

    async def others() -> None:
        async with opened(store) as kernel:
            for _ in range(50):
                await kernel.spawn(clerk, "x").wait()

    asyncio.run(others())
    reader = CountingRows(rows(store)._store)
    run = RunTimeline(reader, "talk")
    assert reader.looked_at > 300
    reader.looked_at = 0
    assert run.refresh() == 0
    assert reader.looked_at == 0
    for number in range(len(run.steps) + 1):
        run.moment(number)
    assert reader.looked_at < 150


def test_a_run_is_read_on_from_where_it_was_left(store: str) -> None:
    """Also where rows of others came between, and where the bound of steps was met in the middle."""
    asyncio.run(talk(store, "first"))
    short = timeline(store, "first", steps_max=4)
    assert short.refresh() == 0
    run = timeline(store, "first")
    asyncio.run(talk(store, "second"))
    assert run.refresh() == 0

    async def more() -> None:
        async with opened(store) as kernel:
            await kernel.agent("first").send("more")

    asyncio.run(more())
    assert run.refresh() == 3
    assert [step.to_data() for step in run.steps] == [step.to_data() for step in timeline(store, "first").steps]
