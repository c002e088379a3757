"""`@lyra.parallel` against the function as it is written: what everyday code does between two agent calls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import lyra
from lyra import Agent, Kernel, tool
from lyra.agents.parallel.source.plan import plan_of
from lyra.models.script import Reply, ScriptedCall, ScriptedError
from lyra.models.sim import SimProvider
from lyra.testing.loop import run as run_in_virtual_time
from tests.agents.support import clock_here
from verify.planted import changed, planted
from verify.planted.agent_early_calls import BUGS, NO_SILENT_ERRORS


@pytest.fixture(autouse=True)
def loud():
    """An error of the look ahead itself is an error."""
    with changed(NO_SILENT_ERRORS):
        yield


class Box:
    """Something of the user's: it counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def find(self, what: str) -> str:
        self.asked += 1
        return f"{what}{self.asked}"

    @property
    def turn(self) -> str:
        return self.find("turn")

    def __add__(self, other: str) -> str:
        return self.find("sum") + other

    async def send(self, message: str) -> str:
        return self.find(message)


class World:
    def __init__(self, **parts: Any) -> None:
        self.__dict__.update(parts)


class Dying:
    """It reports when it is garbage-collected."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def __del__(self) -> None:
        self.log.append("gone")


def outcome(function: Any, **settings: Any) -> tuple[Any, float]:
    """What a function of one world comes to, with all that can be seen of it, and how long that takes."""

    async def main() -> tuple[Any, float]:
        async with Kernel(clock=clock_here()) as kernel:
            notes: list[str] = []

            @tool
            def note(what: str) -> str:
                """Note something."""
                notes.append(what)
                return "noted"

            def answer(request: Any) -> Reply:
                text = next(message.text for message in reversed(request.messages) if message.role == "user")
                if "FAIL" in text:
                    return Reply(error=ScriptedError(kind="bad_request"), first_s=1.0)
                if "NOTE" in text and request.tools and request.messages[-1].role == "user":
                    return Reply(tool_calls=(ScriptedCall("note", {"what": text}),), first_s=1.0)
                return Reply(text=f"<{text}>", first_s=1.0)

            def make_agent(name: str, **more: Any) -> Agent:
                return Agent(name, model=SimProvider(answer), retry={"max_attempts": 1}, **more)

            p, q, w = make_agent("p", **settings), make_agent("q", **settings), make_agent("w", tools=[note])
            env: Any = World(notes=notes, box=Box(), log=[], agent=make_agent("a"), clock=clock_here())
            env.p, env.q, env.w = [await kernel.spawn(agent) for agent in (p, q, w)]
            began = asyncio.get_running_loop().time()
            try:
                result = await function(env, env.p, env.q, env.w)
            except Exception as error:
                result = (type(error).__name__, str(error))
            took_s = asyncio.get_running_loop().time() - began
            conversations = [[message.text for message in process.messages] for process in (env.p, env.q, env.w)]
            spent = [process.metrics.calls for process in (env.p, env.q, env.w)]
            return [result, conversations, spent, notes, env.box.asked, env.log], took_s

    return run_in_virtual_time(main())


# ---------------------------------------------------------------- functions, and the seconds they take decorated


async def nested(env: Any, p: Any, q: Any, w: Any) -> Any:
    return await p.send(await q.send("1")), await p.send("more")


async def nested_in_a_loop(env: Any, p: Any, q: Any, w: Any) -> Any:
    answers = []
    for x in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]:
        y = await p.send(await q.send(x))
        answers.append(y)
    return answers


async def a_while_loop(env: Any, p: Any, q: Any, w: Any) -> Any:
    answers, left = [], 3
    while left:
        answers.append(await p.send(str(left)))
        left -= 1
    return answers, await q.send("after")


async def nested_and_failing(env: Any, p: Any, q: Any, w: Any) -> Any:
    a = await p.send("x" + await q.send("FAIL"))
    return a, await p.send("more")


async def nested_and_ordered(env: Any, p: Any, q: Any, w: Any) -> Any:
    a = await w.send(await q.send("NOTE 1"))
    b = await p.send("k")
    return a, b, await w.send(await p.send("NOTE 2"))


async def a_list_that_grows(env: Any, p: Any, q: Any, w: Any) -> Any:
    notes = []
    first = await p.send("read a")
    notes.append(first)
    second = await q.send("read b")
    notes.append(second)
    prompt = "\n".join(notes)
    return await p.send(prompt)


async def a_list_of_its_own(env: Any, p: Any, q: Any, w: Any) -> Any:
    words = ["a"]
    first = await p.send("1")
    words.append("b")
    return first, await q.send(" ".join(words))


async def the_length_of_an_answer(env: Any, p: Any, q: Any, w: Any) -> Any:
    length = len(await p.send("1"))
    return length, await q.send("2")


async def a_list_with_two_names(env: Any, p: Any, q: Any, w: Any) -> Any:
    xs: list[str] = []
    ys = xs
    zs = [xs, "k"]
    a = await p.send("1")
    xs.append(a)
    return await q.send(str(ys)), await p.send(str(zs))


async def an_iterator(env: Any, p: Any, q: Any, w: Any) -> Any:
    words = iter("abc")
    more = (word for word in ("x", "y"))
    a = await p.send(",".join(more))
    first, *rest = words
    b = await q.send(first)
    return a, b, rest, list(words), list(more)


async def an_ordered_call_in_between(env: Any, p: Any, q: Any, w: Any) -> Any:
    before = len(env.notes)
    await w.send("NOTE it")
    return await p.send(f"there were {before}, now {len(env.notes)}")


async def another_objects_send(env: Any, p: Any, q: Any, w: Any) -> Any:
    before = env.box.asked
    await env.box.send("x")
    return await p.send(f"was {before}"), await q.send(f"is {env.box.asked}")


async def a_method_that_counts(env: Any, p: Any, q: Any, w: Any) -> Any:
    doc = env.box.find("doc")
    a = await p.send(doc)
    b = await q.send(doc + "!")
    return a, b, doc


async def a_property_that_counts(env: Any, p: Any, q: Any, w: Any) -> Any:
    a = await p.send(env.box.turn)
    b = await q.send(env.box.turn)
    c = await p.send(env.box + "x")
    return a, b, c


class Reviewer:
    async def review(self, env: Any, p: Any, q: Any, w: Any) -> Any:
        text = """Review:
            - a
- b
    end"""
        return await p.send(text), await q.send(text)


async def a_chained_comparison(env: Any, p: Any, q: Any, w: Any) -> Any:
    x = (await p.send("1")) == "no" == (await q.send("2"))
    return x, await p.send("3"), await q.send("4"), (await p.send("5")) or (await q.send("6"))


async def a_dict_display(env: Any, p: Any, q: Any, w: Any) -> Any:
    return {await p.send("k1"): await w.send("NOTE v1"), await p.send("k2"): await w.send("v2")}


async def the_tool_adds_to_what_is_looped_over(env: Any, p: Any, q: Any, w: Any) -> Any:
    env.notes.append("one NOTE")
    done = []
    for task in env.notes:
        if len(done) < 4:
            done.append(await w.send(task))
    return done


async def a_list_that_shrinks(env: Any, p: Any, q: Any, w: Any) -> Any:
    team = [p, q, p, q]
    asyncio.get_running_loop().call_later(0.5, team.clear)
    answers = []
    for member in team:
        answer = await member.send("hi")
        answers.append(answer)
    env.log.append(len(p.messages) + len(q.messages))
    return answers


async def a_generator_that_is_left(env: Any, p: Any, q: Any, w: Any) -> Any:
    def items() -> Any:
        try:
            yield from ("a", "b", "c")
        finally:
            env.log.append("closed")

    for x in items():
        a = await p.send(x)
        if x == "b":
            break
    env.log.append("after")
    return a, await q.send("1")


async def without_a_value(env: Any, p: Any, q: Any, w: Any) -> Any:
    a = await p.send("1")
    b = await q.send(later)  # type: ignore[used-before-def,has-type]  # noqa: F821
    later = "x"
    return a, b, later


async def deleted(env: Any, p: Any, q: Any, w: Any) -> Any:
    x = "1"
    a = await p.send(x)
    del x
    b = await q.send("2")
    return a, b, await p.send(x)  # noqa: F821 - that is the point


async def something_goes(env: Any, p: Any, q: Any, w: Any) -> Any:
    held: Any = Dying(env.log)
    a = await p.send("1")
    held = a
    env.log.append(len(q.messages))
    b = await q.send("2")
    return held, b


async def caught(env: Any, p: Any, q: Any, w: Any) -> Any:
    try:
        a = await p.send("FAIL")
        b = await q.send("2")
        return a, b
    except Exception as error:
        env.log.append(f"{type(error).__name__} {len(q.messages)}")
        c = await p.send("again")
        d = await q.send("again")
        return c, d
    finally:
        env.log.append(f"{len(p.messages)} {len(q.messages)}")


async def a_computed_error(env: Any, p: Any, q: Any, w: Any) -> Any:
    try:
        a = await p.send("1")
        n = int(a)
        return n, await q.send("2")
    except ValueError:
        env.log.append(len(q.messages))
        return await q.send("3")


async def known_branches(env: Any, p: Any, q: Any, w: Any) -> Any:
    total = ""
    for index, x in enumerate(("a", "b", "c")):
        if index % 2 == 0:
            total += await p.send(x)
        else:
            total += await q.send(x)
    return total, [await lyra.run(env.agent, x, clock=env.clock) for x in "xyz"]


async def zipped(env: Any, p: Any, q: Any, w: Any) -> Any:
    answers = {}
    for member, x in zip([p, q], ["a", "b"], strict=False):
        answers[x] = await member.send(x)
    for key, value in answers.items():
        answers[key] = await p.send(value)
    return answers


SAME = [
    (nested, 3.0),
    (nested_in_a_loop, 11.0),
    (a_while_loop, 3.0),
    (nested_and_failing, 1.0),
    (nested_and_ordered, 7.0),
    (a_list_that_grows, 2.0),
    (a_list_of_its_own, 1.0),
    (the_length_of_an_answer, 1.0),
    (a_list_with_two_names, 2.0),
    (an_iterator, 2.0),
    (an_ordered_call_in_between, 3.0),
    (another_objects_send, 1.0),
    (a_method_that_counts, 1.0),
    (a_property_that_counts, 3.0),
    (Reviewer().review, 1.0),
    (a_chained_comparison, 3.0),
    (a_dict_display, 5.0),
    (the_tool_adds_to_what_is_looped_over, None),
    (a_list_that_shrinks, 1.0),
    (a_generator_that_is_left, 3.0),
    (without_a_value, 1.0),
    (deleted, 2.0),
    (something_goes, 2.0),
    (caught, 2.0),
    (a_computed_error, 2.0),
    (known_branches, 2.0),
    (zipped, None),
]


@pytest.mark.parametrize(("function", "seconds"), SAME, ids=[function.__name__ for function, _ in SAME])
def test_it_comes_to_the_same(function: Any, seconds: float | None):
    written, took_s = outcome(function)
    bound = getattr(function, "__self__", None)
    decorated = lyra.parallel(getattr(function, "__func__", function))
    early, early_s = outcome(decorated.__get__(bound) if bound is not None else decorated)
    assert early == written
    assert early_s <= took_s + 0.001
    if seconds is not None:
        assert early_s == pytest.approx(seconds, abs=0.01)


@pytest.mark.parametrize(
    "settings",
    [
        {"rate_limit": {"requests_per_minute": 60, "burst": 1, "strategy": "reject"}},
        {"circuit_breaker": {"threshold": 2}},
    ],
)
def test_limits_of_an_agent_are_met_in_order(settings: dict[str, Any]):
    async def three(env: Any, p: Any, q: Any, w: Any) -> Any:
        answers = [await p.send("1")]
        for x in ("FAIL 1", "FAIL 2", "3"):
            try:
                answers.append(await q.send(x))
                answers.append(await p.send(x))
            except Exception as error:
                answers.append(str(error))
        return answers

    written, took_s = outcome(three, **settings)
    early, early_s = outcome(lyra.parallel(three), **settings)
    assert early == written
    assert early_s == pytest.approx(took_s, abs=0.01)


def test_what_was_foreseen_wrongly_is_taken_back_and_made_again():
    """The list changes while the first call is under way: no conversation keeps the questions for its old items."""

    async def changes(env: Any, p: Any, q: Any, w: Any) -> Any:
        docs = env.notes
        docs += ["one", "two"]
        asyncio.get_running_loop().call_later(0.5, docs.__setitem__, 1, "other")
        a = await p.send(docs[0])
        b = await q.send(docs[1])
        env.log.append([message.text for message in q.messages])
        return a, b

    written, _ = outcome(changes)
    early, _ = outcome(lyra.parallel(changes))
    assert early == written
    assert early[0] == ("<one>", "<other>")


def test_nothing_is_made_early_across_what_may_do_anything():
    async def looks(env: Any, p: Any, q: Any, w: Any) -> Any:
        a = await p.send("1")
        b = await p.send("2")
        env.log.append(len(q.messages))
        return a, b, await q.send("3")

    written, _ = outcome(looks)
    assert outcome(lyra.parallel(looks))[0] == written
    with planted(BUGS, "in place"):
        assert outcome(lyra.parallel(looks))[0] != written


PLANNED = """
import lyra
fast = lyra.parallel

@fast
async def one(p, q, xs, box):
    a = await p.send("1")
    b = await p.send("2")
    c = await p.send("3") if len(xs) else await q.send("4")
    for i, x in enumerate(xs):
        d = await lyra.run(q, x)
    rs = [await lyra.run(p, x) for x in xs]
    box.say(rs)
    t = ""
    for x in xs:
        t = await lyra.run(q, t + x)
    box.say(t)
    e = await p.send("5")
    await asyncio.gather(p.send("6"))
    async def inner():
        return await p.send("7")
    return await inner()

async def later(p, q):
    a = await p.send("1")
    b = await q.send("2")

later = lyra.parallel(later)
"""


def test_a_plan_names_every_call_and_a_true_reason():
    picture = plan_of(PLANNED, "x.py")
    early = {(name, call.line) for name, _, calls in picture.groups for call in calls}
    alone = {(name, call.line): why for name, call, why in picture.alone}
    asked = [7, 8, 9, 11, 12, 16, 18, 19, 21]
    assert {line for name, line in early | alone.keys() if name == "one"} == set(asked)
    assert {("later", 25), ("later", 26), ("one", 11), ("one", 12)} <= early
    assert alone["one", 8] == "`p` answers line 7 first: one process is one conversation"
    assert alone["one", 16] == "each turn of the loop needs the answer of the one before"
    assert "`box.say(t)` in line 17 may do anything" in alone["one", 18]
    assert alone["one", 19] == "it is not awaited by itself, but made where it stands"
    assert alone["one", 21] == "it belongs to the function in line 20, which is its own affair"
