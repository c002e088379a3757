"""Orchestration: batch, parallel, pipeline, fan_out, fan_in, router, map_reduce."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

import lyra
from lyra import Agent, Kernel
from lyra.errors import AgentFailed, ConfigError, ModelError
from tests.agents.support import Recorded, run, says, virtual
from tests.kernel.conftest import Crash


def echo(name: str, template: str) -> Agent:
    """An agent that answers with its template, in which {user} is what it was asked."""
    return Agent(name, model=says(template))


async def later(value: Any, seconds: float) -> Any:
    await asyncio.sleep(seconds)
    if isinstance(value, Exception):
        raise value
    return value


@dataclass
class Town:
    name: str
    people: int


# ---------------------------------------------------------------------- in order


def test_results_come_in_call_order():
    """Results are in call order, whichever call is quicker."""
    assert virtual(lyra.parallel(later("a", 3), later("b", 1), later("c", 2))) == ["a", "b", "c"]
    assert virtual(lyra.batch([later("a", 3), later("b", 1)])) == ["a", "b"]
    assert virtual(lyra.parallel()) == []


@pytest.mark.parametrize("limit", [1, 3, 20])
def test_no_more_at_a_time_than_the_limit(limit):
    """`limit` bounds what runs together, and they begin in order."""
    running, most, begun = 0, 0, []

    async def work(n: int) -> int:
        nonlocal running, most
        begun.append(n)
        running += 1
        most = max(most, running)
        await asyncio.sleep(10 - n)
        running -= 1
        return n

    async def main():
        return await lyra.batch(*(work(n) for n in range(10)), limit=limit)

    assert virtual(main()) == list(range(10))
    assert most == min(limit, 10)
    assert begun == list(range(10))


def test_the_first_error_in_call_order_is_raised():
    """Call 2 fails before call 1, and call 1's error is the one that is seen; what came after was cancelled."""
    ended = []

    async def cancelled() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(asyncio.get_running_loop().time())

    async def main():
        began = asyncio.get_running_loop().time()
        with pytest.raises(ValueError, match="one"):
            await lyra.parallel(later("fine", 4), later(ValueError("one"), 3), later(ValueError("two"), 1), cancelled())
        return asyncio.get_running_loop().time() - began, ended[0] - began

    assert virtual(main()) == (4.0, 1.0)


def test_what_was_not_begun_is_not_begun():
    """After a failure nothing later starts, and its coroutine is closed without a warning."""
    begun = []

    async def work(n: int) -> None:
        begun.append(n)
        raise ValueError(str(n))

    async def main():
        with pytest.raises(ValueError, match="0"):
            await lyra.batch([work(n) for n in range(5)], limit=1)

    virtual(main())
    assert begun == [0]


def test_cancelling_the_whole_cancels_each():
    """Nothing is left running."""
    ended = []

    async def work(n: int) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(n)

    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await lyra.parallel(*(work(n) for n in range(3)))

    virtual(main())
    assert ended == [0, 1, 2]


def test_what_cannot_be_called_is_refused():
    """With its place in the list."""
    with pytest.raises(ConfigError, match="call 1"):
        run(lyra.parallel(later(1, 0), 7))  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="limit"):
        run(lyra.batch(later(1, 0), limit=0))


# ---------------------------------------------------------------------- agents


def test_batch_of_questions():
    """Pending answers of processes, pairs of whom and what, and functions, mixed."""

    async def main():
        async with Kernel() as kernel:
            first = await kernel.spawn(echo("one", "one: {user}"))
            results = await lyra.batch(
                first.send_async("a"),
                (echo("two", "two: {user}"), "b"),
                (first, "c"),
                lambda: "d",
                on=kernel,
            )
            return results, [process.program for process in kernel.processes.values() if process.exit is None]

    results, alive = run(main())
    assert results == ["one: a", "two: b", "one: c", "d"]
    assert alive == ["agent:one"]


def test_without_a_kernel_one_is_made():
    """Agents alone are enough."""
    assert run(lyra.batch([(echo("a", "a {user}"), "1"), (echo("b", "b {user}"), "2")])) == ["a 1", "b 2"]


def test_a_failing_agent_stops_the_others():
    """The rest are cancelled where they are, and their processes stopped."""
    slow = Agent("slow", model=says({"text": "x", "first_s": 60}))
    bad = Agent("bad", model=says({"error": {"kind": "auth"}}))

    async def main():
        async with Kernel() as kernel:
            with pytest.raises(ModelError):
                await lyra.batch((bad, "1"), (slow, "2"), on=kernel)
            return [process for process in kernel.processes.values() if process.exit is None]

    assert run(main()) == []


def test_pipeline():
    """Each answer is the next one's message; functions and pipelines are stages too."""
    write, edit = echo("write", "draft of {user}"), echo("edit", "{user}, edited")
    flow = lyra.pipeline(write, edit, str.upper)
    assert run(flow("bees")) == "DRAFT OF BEES, EDITED"
    assert run(lyra.pipeline(str.strip, flow)("  wasps ")) == "DRAFT OF WASPS, EDITED"
    with pytest.raises(ConfigError):
        lyra.pipeline()  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="7"):
        lyra.pipeline(write, 7)  # type: ignore[call-overload]


@dataclass
class Plan:
    steps: list[str]


def test_structured_answers_are_passed_on_as_json():
    """A value that is no text becomes the JSON of it."""
    plan = Agent("plan", model=says('{"steps": ["a"]}'), output=Plan)
    assert run(lyra.pipeline(plan, echo("do", "did {user}"))("go")) == 'did {"steps":["a"]}'


def test_fan_out_and_in():
    """The same to all, then all to one: an agent gets a message, a function the list."""
    reviewers = [echo("a", "a on {user}"), echo("b", "b on {user}")]
    judge = Agent("judge", model=says("{user}"))

    async def main():
        answers = await lyra.fan_out("it", reviewers)
        return answers, await lyra.fan_in(answers, judge, task="Judge."), await lyra.fan_in(answers, len)

    answers, judged, count = run(main())
    assert answers == ["a on it", "b on it"]
    assert judged == "Judge.\n\n1.\na on it\n\n2.\nb on it"
    assert count == 2


def test_router_by_function_and_by_agent():
    """Only the route that was chosen is asked."""
    billing = Agent("billing", model=says("paid"), description="money")
    tech = Agent("tech", model=says("fixed"), description="machines")
    routes = {"billing": billing, "tech": tech}
    assert run(lyra.router("my invoice", routes, by=lambda text: "billing" if "invoice" in text else "tech")) == "paid"
    clerk = says(" Tech.\n")
    assert run(lyra.router("it is broken", routes, by=Agent("clerk", model=clerk))) == "fixed"
    asked = clerk.requests[0].messages[0].text
    assert "- tech: machines" in asked
    assert "it is broken" in asked


def test_a_choice_that_is_no_route():
    """The default, or an error that names the choice."""
    routes = {"a": echo("a", "A"), "b": echo("b", "B")}
    assert run(lyra.router("x", routes, by=lambda _: "c", default="b")) == "B"
    with pytest.raises(AgentFailed, match="'c'") as caught:
        run(lyra.router("x", routes, by=lambda _: "c"))
    assert caught.value.fields["status"] == "no_route"
    with pytest.raises(ConfigError):
        run(lyra.router("x", routes, by=lambda _: "a", default="z"))


def test_map_reduce():
    """One question for each item, one for all of the answers."""
    summary, editor = echo("summary", "sum of {user}"), Agent("editor", model=says("{user}"))
    assert run(lyra.map_reduce(["x", "y"], summary, " + ".join)) == "sum of x + sum of y"
    assert "2.\nsum of y" in run(lyra.map_reduce(["x", "y"], summary, editor))
    assert run(lyra.map_reduce([], summary, len)) == 0


# ---------------------------------------------------------------------- inside a program


def test_inside_a_program_everything_is_durable(tmp_path):
    """With `on=ctx` agents are children; after a crash, those that answered are not asked again."""
    models = {name: Recorded([{"text": f"{name} says"}] * 3) for name in "abc"}
    models["c"] = says({"text": "hangs", "first_s": 60}, "c says")
    agents = {name: Agent(name, model=model, retry=None) for name, model in models.items()}

    async def review(ctx: Any) -> list[str]:
        first = await lyra.fan_out("look", [agents["a"], agents["b"]], on=ctx)
        last = await lyra.batch((agents["c"], "judge"), on=ctx)
        return [*first, *last]

    store = str(tmp_path / "run.db")

    async def first():
        async with Crash(Kernel(store)) as kernel:
            await kernel.spawn(review, pid="review")
            while not models["c"].requests:
                await asyncio.sleep(0.001)
            assert kernel.processes["review"].children

    async def second():
        async with Kernel(store, programs=[review, *agents.values()]) as kernel:
            return (await kernel.spawn(review, pid="review").wait()).result

    run(first())
    assert run(second()) == ["a says", "b says", "c says"]
    assert [len(models[name].requests) for name in "abc"] == [1, 1, 2]


def test_a_cancelled_program_stops_its_agents():
    """Children of a call that is cancelled do not go on."""
    slow = Agent("slow", model=says({"text": "x", "first_s": 60}))

    async def work(ctx: Any) -> str:
        try:
            async with asyncio.timeout(0.05):
                await lyra.batch((slow, "a"), (slow, "b"), on=ctx)
        except TimeoutError:
            return "late"
        return "done"

    async def main():
        async with Kernel() as kernel:
            assert await kernel.run(work) == "late"
            await asyncio.sleep(0.01)
            return [process.program for process in kernel.processes.values() if process.exit is None]

    assert run(main()) == []


def test_an_agent_spawned_with_a_task_answers_and_ends():
    """`spawn(agent, task)` is a process whose result is the answer, and whose error is why there is none."""

    async def main():
        async with Kernel() as kernel:
            good = await kernel.spawn(echo("a", "did {user}"), "it").wait()
            bad = await kernel.spawn(Agent("b", model=says("")), "it").wait()
            return good.result, bad.error.fields["status"]

    assert run(main()) == ("did it", "empty")


def test_an_agent_gives_its_output_type(tmp_path):
    """`kernel.run(agent, task)` and `spawn(agent, task).wait()` give the declared type, also after a restart and where
    two agents share a name; in a program, too. Without an output it is a Reply with its figures."""
    town = Agent("same", model=says('{"name": "Oslo", "people": 700000}'), output=Town)
    number = Agent("same", model=says("41"), output=int)
    plain = Agent("plain", model=says("hello"))

    async def program(ctx: Any) -> str:
        return repr((await ctx.spawn(town, "which?").wait()).result)

    async def first():
        async with Kernel(tmp_path / "run.db", programs=[program]) as kernel:
            early = kernel.spawn(town, "which?", pid="town")
            assert await kernel.run(number, "how many?") == 41
            assert (await early.wait()).result == await kernel.run(town, "which?") == Town("Oslo", 700000)
            reply = await kernel.run(plain, "hi")
            assert (type(reply), reply, reply.status, reply.cost_usd) == (lyra.Reply, "hello", "success", 0.0)
            assert reply.output_tokens > 0
            assert await kernel.run(program) == "Town(name='Oslo', people=700000)"

    async def second():
        async with Kernel(tmp_path / "run.db") as kernel:
            assert (await kernel.spawn(town, "which?", pid="town").wait()).result == Town("Oslo", 700000)

    run(first())
    run(second())


def test_a_batch_gives_its_errors_where_it_is_asked_to():
    """With `return_exceptions` every call is made, and the error of one stands in its place."""
    bad = Agent("bad", model=says(""))
    calls = [(echo("a", "a {user}"), "1"), (bad, "2"), (echo("c", "c {user}"), "3")]
    first, error, last = run(lyra.batch(calls, limit=1, return_exceptions=True))
    assert (first, type(error), last) == ("a 1", AgentFailed, "c 3")


def test_the_error_of_a_batch_names_its_call_and_has_the_results():
    """Without `return_exceptions` the error says which call failed and what was asked, and carries the results."""
    bad = Agent("bad", model=says(""))
    calls = [(echo("a", "a {user}"), "1"), (bad, "the second question"), (echo("c", "c {user}"), "3")]
    with pytest.raises(AgentFailed) as caught:
        run(lyra.batch(calls, limit=1))
    notes = " / ".join(caught.value.__notes__)
    assert "bad was asked: the second question" in notes
    assert "call 1 of 3" in notes
    assert (caught.value.call, caught.value.results) == (1, {0: "a 1"})
    with pytest.raises(ValueError, match="no number") as other:
        run(lyra.parallel(later(1, 0), later(ValueError("no number"), 0.01)))
    assert vars(other.value) == {"call": 1, "results": {0: 1}, "__notes__": other.value.__notes__}


# ---------------------------------------------------------------------- where they run, and how many at a time
CLERK, WRITER = echo("clerk", "writer"), echo("writer", "about {user}")
TEAMS: dict[str, Any] = {
    "fan_in": (lambda on: lyra.fan_in(["x"], WRITER, on=on), ["agent:writer"]),
    "map_reduce": (lambda on: lyra.map_reduce(["x"], WRITER, len, on=on), ["agent:writer"]),
    "router": (lambda on: lyra.router("x", {"writer": WRITER}, by=CLERK, on=on), ["agent:clerk", "agent:writer"]),
}


@pytest.mark.parametrize("team", TEAMS)
def test_a_team_runs_in_the_kernel_it_is_given(team):
    """By `on`: its agents are processes of that kernel, under its budget and its rights."""
    ask, agents = TEAMS[team]

    async def main():
        begun: list[str] = []
        async with Kernel() as kernel:
            kernel.on_event(lambda event: begun.append(event.data["program"]), ["process.created"])
            await ask(kernel)
        return begun

    assert run(main()) == agents


@pytest.mark.parametrize("team", ["fan_out", "map_reduce"])
def test_a_team_asks_no_more_at_a_time_than_its_limit(team):
    """The others wait for their turn."""
    running, most = 0, 0

    async def member(message: Any) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(1)
        running -= 1
        return message

    async def main():
        if team == "fan_out":
            return await lyra.fan_out("x", [member] * 6, limit=2)
        return await lyra.map_reduce(range(6), member, len, limit=2)

    virtual(main())
    assert most == 2
