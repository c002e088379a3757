"""`@lyra.parallel`: the same results, prints, errors and conversations; only the waiting overlaps."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import traceback
from contextvars import copy_context
from typing import Any

import pytest

import lyra
from lyra import Agent, Kernel, run, tool
from lyra.agents.parallel import safe_values
from lyra.agents.parallel.safe_values import StopLookahead
from lyra.agents.parallel.source.plan import plan_of
from lyra.agents.session.model_call import AgentState
from lyra.errors import ConfigError, DeadlineExceeded, LyraError, ParseError
from lyra.models.script import Reply, ScriptedError
from lyra.models.sim import SimProvider
from lyra.testing.loop import run as run_in_virtual_time
from tests.agents.support import clock_here
from tests.cases import cases
from tests.limits import within
from verify.compare.python_parallel import check, took
from verify.planted import planted
from verify.planted.agent_early_calls import BUGS, RULES

COUNT = int(os.environ.get("LYRA_OVERLAP") or cases(100))
SEED = int(os.environ.get("LYRA_SEED", "1"))


def model(text: str = "", *, wait_s: float = 1.0, fails: bool = False) -> SimProvider:
    def answer(request: Any) -> Reply:
        if fails:
            return Reply(error=ScriptedError(kind="bad_request"), first_s=wait_s)
        return Reply(text=text or f"<{request.messages[-1].text}>", first_s=wait_s)

    return SimProvider(answer)


def agent(name: str, **settings: Any) -> Agent:
    keep = {key: settings.pop(key) for key in ("wait_s", "fails", "text") if key in settings}
    return Agent(name, model=model(**keep), retry={"max_attempts": 1}, **settings)


def timed(function: Any, *agents: Agent, expect: type[Exception] | None = None) -> tuple[Any, float, list[list[str]]]:
    """What a function of processes comes to, how long it takes, and what the processes remember."""

    async def main() -> tuple[Any, float, list[list[str]]]:
        async with Kernel(clock=clock_here()) as kernel:
            processes = [await kernel.spawn(agent_) for agent_ in agents]
            began = asyncio.get_running_loop().time()
            try:
                result = await function(*processes)
            except LyraError as error:
                if expect is None or not isinstance(error, expect):
                    raise
                result = error.message
            elapsed = asyncio.get_running_loop().time() - began
            return result, elapsed, [[message.text for message in process.messages] for process in processes]

    return run_in_virtual_time(main())


# ---------------------------------------------------------------- what overlaps


@lyra.parallel
async def review(agent_a: Any, agent_b: Any, agent_c: Any, last: Any) -> str:
    """Three reviews and a summary."""
    first = await agent_a.send("security")
    second = await agent_b.send("style")
    third: str = await agent_c.send("speed")
    everything = f"{first} {second} {third}"
    return str(await last.send(everything))


def test_three_reviews_and_a_summary_take_one_and_one():
    result, took_s, conversations = timed(review, *(agent(name) for name in "abcd"))
    assert result == "<<security> <style> <speed>>"
    assert took_s == pytest.approx(2.0, rel=0.01)
    assert conversations[3] == ["<security> <style> <speed>", result]


def test_it_is_still_the_same_function():
    assert review.__name__ == "review"
    assert review.__doc__ == "Three reviews and a summary."
    assert list(inspect.signature(review).parameters) == ["agent_a", "agent_b", "agent_c", "last"]
    assert inspect.iscoroutinefunction(review)
    assert review.__annotations__["return"] == "str"


def test_turns_of_a_loop_overlap():
    asked = agent("a")

    @lyra.parallel
    async def every(process: Any) -> list[str]:
        answers = []
        for item in ["x", "y", "z"]:
            answer = await run(asked, item, clock=process._kernel.clock)
            answers.append(answer)
        return answers

    result, took_s, _ = timed(every, agent("p"))
    assert result == ["<x>", "<y>", "<z>"]
    assert took_s == pytest.approx(1.0, rel=0.01)


def test_calls_inside_an_expression_overlap():
    @lyra.parallel
    async def both(agent_a: Any, agent_b: Any) -> Any:
        return (await agent_a.send("a")) + "-" + (await agent_b.send("b"))

    result, took_s, _ = timed(both, agent("a"), agent("b"))
    assert result == "<a>-<b>"
    assert took_s == pytest.approx(1.0, rel=0.01)


@pytest.mark.timed
def test_a_plain_function_overlaps_too():
    agent_a, agent_b = agent("a", wait_s=0.3), agent("b", wait_s=0.3)

    @lyra.parallel
    def both(text: str) -> Any:
        first = lyra.run(agent_a, text)
        second = lyra.run(agent_b, text)
        return first + second

    import time

    began = time.monotonic()
    assert both("x") == "<x><x>"
    within(time.monotonic() - began, 0.55)


# ---------------------------------------------------------------- what does not


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"memory": True}, "it keeps notes"),
        ({"system": lambda: "now"}, "its prompt is made anew"),
    ],
)
def test_some_agents_are_asked_in_their_turn(settings: dict[str, Any], why: str):
    @lyra.parallel
    async def both(agent_a: Any, agent_b: Any) -> list[str]:
        first = await agent_a.send("a")
        second = await agent_b.send("b")
        return [first, second]

    _, took_s, _ = timed(both, agent("a"), agent("b", **settings))
    assert took_s == pytest.approx(2.0, rel=0.01), why


@pytest.mark.parametrize("in_kernel", [True, False])
def test_a_model_that_answers_by_the_order_of_its_questions_is_asked_in_order(in_kernel: bool):
    async def agent_c(agent_a: Any, agent_b: Any, again: Any) -> list[str]:
        first = await agent_a.send("1")
        second = await agent_b.send(first)
        third = await again.send("3")
        return [first, second, third]

    @lyra.parallel
    async def runs(agent_a: Any, agent_b: Any, again: Any) -> list[str]:
        first = await run(agent_a, "1")
        second = await run(agent_b, first)
        third = await run(again, "3")
        return [first, second, third]

    script = SimProvider({"first_s": 0.01, "sequence": ["one", "two", "three"]})
    agents = [Agent(name, model=script) for name in "abc"]
    answers = timed(lyra.parallel(agent_c), *agents)[0] if in_kernel else asyncio.run(runs(*agents))
    assert answers == ["one", "two", "three"]


@tool
def noted(text: str) -> str:
    """Takes a note."""
    return text


async def limited_between(agent_a: Any, agent_b: Any, limited: Any) -> list[str]:
    answers = [await limited.send("1", timeout=0.7)]
    answers.append(await agent_a.send("2"))
    answers.append(await agent_b.send("3"))
    answers.append(await limited.send("4", timeout=0.7))
    return answers


async def limited_after(agent_a: Any, agent_b: Any, limited: Any) -> list[str]:
    @lyra.parallel
    async def both() -> list[str]:
        first = await agent_a.send("2")
        second = await agent_b.send("3")
        return [first, second]

    answers = [await limited.send("1", timeout=0.7), *await both()]
    return [*answers, await limited.send("4", timeout=0.7)]


@pytest.mark.parametrize("function", [lyra.parallel(limited_between), limited_after])
@pytest.mark.parametrize(
    "settings",
    [
        {"rate_limit": {"requests_per_minute": 30, "burst": 1}},
        {"rate_limit": {"requests_per_minute": 30, "burst": 1, "strategy": "reject"}},
        {"rate_limit": {"requests_per_minute": 60, "burst": 9}},
        {"rate_limit": {"requests_per_minute": 30, "burst": 1}, "tools": [noted]},
    ],
)
def test_no_limit_fails_a_call_because_those_before_it_were_quicker(function: Any, settings: dict[str, Any]):
    """Time that was won is given back to a limit that wants it, inside the function and after it."""
    agents = [agent("a"), agent("b"), agent("g", wait_s=0.1, **settings)]
    result, took_s, _ = timed(function, *agents)
    assert result == ["<1>", "<2>", "<3>", "<4>"]
    assert took_s == pytest.approx(1.2 if settings["rate_limit"]["burst"] == 9 else 2.1, abs=0.01)


def test_tools_decide_whether_an_agent_may_be_asked_early():
    @tool
    def change(what: str) -> str:
        """Change something."""
        return what

    @tool(idempotent=True)
    def look(what: str) -> str:
        """Look something up."""
        return what

    @tool(needs=["fs.read"])
    def read(what: str) -> str:
        """Read something."""
        return what

    @tool(needs=["fs.read", "fs.write"])
    def write(what: str) -> str:
        """Write something."""
        return what

    @lyra.parallel
    async def both(agent_a: Any, agent_b: Any) -> list[str]:
        first = await agent_a.send("a")
        second = await agent_b.send("b")
        return [first, second]

    for tool_function, wanted in ((change, 2.0), (look, 1.0), (read, 1.0), (write, 2.0)):
        assert timed(both, agent("a"), agent("b", tools=[tool_function]))[1] == pytest.approx(wanted, rel=0.01), (
            tool_function
        )


def test_a_print_is_where_it_was():
    lines: list[str] = []

    @lyra.parallel
    async def talk(agent_a: Any, agent_b: Any) -> None:
        first = await agent_a.send("a")
        lines.append(f"{first} after {asyncio.get_running_loop().time():.0f}")
        second = await agent_b.send("b")
        lines.append(f"{second} after {asyncio.get_running_loop().time():.0f}")

    _, took_s, _ = timed(talk, agent("a"), agent("b"))
    assert took_s == pytest.approx(2.0, rel=0.01)
    assert [line.split()[0] for line in lines] == ["<a>", "<b>"]


def test_two_messages_of_one_conversation_stay_in_order():
    @lyra.parallel
    async def twice(agent_a: Any) -> list[str]:
        first = await agent_a.send("a")
        second = await agent_a.send("b")
        return [first, second]

    result, took_s, conversations = timed(twice, agent("a"))
    assert result == ["<a>", "<b>"]
    assert took_s == pytest.approx(2.0, rel=0.01)
    assert conversations == [["a", "<a>", "b", "<b>"]]


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize(("slow_s", "quick_s"), [(3.0, 1.0), (1.0, 3.0)])
def test_the_first_failure_of_the_program_wins_and_later_turns_are_forgotten(slow_s: float, quick_s: float):
    @lyra.parallel
    async def agent_c(agent_a: Any, agent_b: Any, last: Any) -> None:
        await agent_a.send("first")
        await agent_b.send("second")
        await last.send("third")

    agents = [agent("slow", wait_s=slow_s, fails=True), agent("quick", wait_s=quick_s, fails=True), agent("last")]
    _, took_s, conversations = timed(agent_c, *agents, expect=LyraError)
    assert took_s == pytest.approx(slow_s, rel=0.01)
    assert conversations == [[], [], []]


def test_conversations_are_the_same_right_after_a_time_out():
    """A turn that was given up is no part of a conversation from that moment on, also while it is being ended."""

    async def late(agent_a: Any, agent_b: Any) -> Any:
        seen = []
        try:
            await agent_b.send("before")
            await agent_a.send("late", timeout=0.5)
            await agent_b.send("never")
        except DeadlineExceeded:
            for _ in range(4):
                seen.append(
                    [
                        ([message.text for message in agent_.messages], agent_.agent_state)
                        for agent_ in (agent_a, agent_b)
                    ]
                )
                await asyncio.sleep(0)
        return seen

    agents = [agent("a"), agent("b")]
    seen_states = timed(late, *agents)[0]
    assert seen_states == [[([], AgentState.READY), (["before", "<before>"], AgentState.READY)]] * 4
    assert timed(lyra.parallel(late), *agents)[0] == seen_states


def test_an_error_shows_the_line_as_it_is_written():
    @lyra.parallel
    async def fails(agent_a: Any, agent_b: Any) -> Any:
        first = await agent_a.send("a")
        second = await agent_b.send("b")
        return first + second

    async def main() -> str:
        async with Kernel(clock=clock_here()) as kernel:
            processes = [await kernel.spawn(agent("a")), await kernel.spawn(agent("b", fails=True))]
            try:
                await fails(*processes)
            except LyraError as error:
                return "".join(traceback.format_exception(error))
            return ""

    shown = run_in_virtual_time(main())
    assert 'second = await agent_b.send("b")' in shown
    assert "in fails" in shown


def test_cancelling_it_cancels_what_it_asked():
    async def main() -> list[list[str]]:
        async with Kernel(clock=clock_here()) as kernel:
            processes = [await kernel.spawn(agent(name, wait_s=9.0)) for name in "abcd"]
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await review(*processes)
            await asyncio.sleep(20)
            return [[message.text for message in process.messages] for process in processes]

    assert run_in_virtual_time(main()) == [[], [], [], []]


# ---------------------------------------------------------------- what is refused


def test_what_cannot_be_looked_into_is_refused_with_a_place():
    total = 0

    async def sets_outside(agent_a: Any) -> None:
        nonlocal total
        total = await agent_a.send("a")

    async def generator(agent_a: Any) -> Any:
        yield await agent_a.send("a")

    async def looks(agent_a: Any) -> Any:
        return locals(), await agent_a.send("a")

    for function, why in ((sets_outside, "around it"), (generator, "generator"), (looks, "locals")):
        with pytest.raises(ConfigError, match=why) as caught:
            lyra.parallel(function)
        assert caught.value.fields["file"] == __file__
        assert caught.value.fields["line"] > 0
    with pytest.raises(ConfigError, match="for functions"):
        from lyra.agents.parallel.source.source import parallel_function

        parallel_function(print)


def function(asked: Any) -> Any:
    return lyra.run(asked, "a")


class Whole:
    """A class that is decorated as a whole."""

    def method(self) -> None: ...


@pytest.mark.parametrize(
    ("thing", "named", "hint"),
    [
        (lambda argument: argument, r"<lambda>: it is not a `def` .*test_parallel\.py:\d+", "next to a `def`"),
        (len, "builtin_function_or_method len", "next to a `def`"),
        (functools.partial(print), "partial", "next to a `def`"),
        (Whole().method, "method Whole.method", "next to a `def`"),
        (staticmethod(function), "staticmethod function", "`@staticmethod` above"),
        (classmethod(function), "classmethod function", "`@classmethod` above"),
        (property(function), "property function", "`@property` above"),
        (Whole, "a class Whole", "on the methods"),
    ],
    ids=["lambda", "builtin", "partial", "bound", "staticmethod", "classmethod", "property", "class"],
)
def test_what_is_no_def_is_refused_at_once(thing: Any, named: str, hint: str):
    """Not taken for one call among others, whose results would come in a list."""
    decorators: list[Any] = [lyra.parallel()]
    if isinstance(thing, (type, staticmethod, classmethod, property)):  # any other may be the last of some calls
        decorators.append(lyra.parallel)
    for decorate in decorators:
        with pytest.raises(ConfigError, match=named) as caught:
            decorate(thing)
        assert hint in str(caught.value.hint)


@pytest.mark.parametrize("limit", [None, 1])
def test_one_call_alone_is_a_call(limit: int | None):
    """A list of calls may have one element, or none."""
    assert asyncio.run(lyra.parallel(lambda: 7, limit=limit)) == [7]  # type: ignore[arg-type,return-value]
    assert asyncio.run(lyra.parallel(functools.partial(int, "7"), limit=limit)) == [7]  # type: ignore[arg-type]


def test_the_decorator_may_have_empty_parentheses():
    @lyra.parallel()
    async def two(agent_a: Any, other: Any) -> Any:
        first = await agent_a.send("a")
        return first + await other.send("b")

    result, took_s, _ = timed(two, agent("a"), agent("b"))
    assert result == "<a><b>"
    assert took_s == pytest.approx(1.0, rel=0.01)
    with pytest.raises(ConfigError, match="no limit="):
        lyra.parallel(limit=2)(function)


def test_no_calls_have_no_results():
    async def main() -> Any:
        return await lyra.parallel(), await asyncio.create_task(lyra.parallel(limit=2))

    assert asyncio.run(main()) == ([], [])


def test_without_a_source_it_is_refused():
    names: dict[str, Any] = {}
    exec(compile("async def made(p):\n    return await p.send('a')\n", "<nowhere>", "exec"), names)
    with pytest.raises(ConfigError, match="source is not there"):
        lyra.parallel(names["made"])


def test_awaitables_still_run_together():
    async def give_one() -> int:
        return 1

    assert asyncio.run(_both(give_one)) == [1, 1]


async def _both(function: Any) -> list[int]:
    return list(await lyra.parallel(function(), function))


def test_methods_and_closures_keep_working():
    word = "!"

    class Team:
        @lyra.parallel
        async def ask(self, agent_a: Any, agent_b: Any, *, mark: str = "?") -> Any:
            first = await agent_a.send("a" + mark)
            second = await agent_b.send("b" + word)
            return first + second

    result, took_s, _ = timed(Team().ask, agent("a"), agent("b"))
    assert result == "<a?><b!>"
    assert took_s == pytest.approx(1.0, rel=0.01)


# ---------------------------------------------------------------- plans

PLANNED = """
import lyra
from lyra import parallel, run

@lyra.parallel
async def review(a, b, c):
    x = await a.send("1")
    y = await b.send("2")
    print(x)
    z = await c.send(x)
    for item in [1, 2]:
        w = await run(agent, item)
    return z

@parallel
def refused(a):
    global n
    n = lyra.run(a, "x")

async def plain(a):
    await a.send("not looked at")
"""


def test_a_plan_says_what_overlaps_and_why_the_rest_does_not():
    picture = plan_of(PLANNED, "x.py")
    assert [(path, step, [call.line for call in calls]) for path, step, calls in picture.groups] == [
        ("review", 1, [7, 8]),
        ("review", 1, [10, 12]),
    ]
    assert [call.in_loop for _, _, calls in picture.groups for call in calls] == [False, False, False, True]
    assert picture.alone == []
    assert picture.refused == [("refused", 17, "it sets a global variable")]
    with pytest.raises(ParseError):
        plan_of("def (", "x.py")


DECORATED = """
import functools
import lyra

def noted(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)
    return wrapper

def listed(function):
    LISTED.append(function)
    return function

LISTED = []

@lyra.parallel
@noted
def wrapped(a):
    return lyra.run(a, "x")

class Team:
    @lyra.parallel
    @staticmethod
    def inside(a):
        return lyra.run(a, "x")

    @staticmethod
    @lyra.parallel
    def outside(a):
        return lyra.run(a, "x")

@noted
def later(a):
    return lyra.run(a, "x")

lyra.parallel(later)

@lyra.parallel()
@listed
def known(a):
    return lyra.run(a, "x")
"""


def test_a_plan_refuses_what_another_decorator_has_made():
    """As the decorator does, when the file is run."""
    picture = plan_of(DECORATED, "x.py")
    noted = "it is not a `def` of its own, but what `@noted` gives"
    assert picture.refused == [
        ("wrapped", 18, noted),
        ("Team.inside", 24, "it is a staticmethod; put `@staticmethod` above `@lyra.parallel`"),
        ("later", 33, noted),
    ]
    assert [path for path, _, _ in picture.alone] == ["Team.outside", "known"]

    @functools.wraps(function)
    def wrapper(asked: Any) -> Any:
        return function(asked)

    with pytest.raises(ConfigError, match="not a `def` of its own"):
        lyra.parallel(wrapper)


# ---------------------------------------------------------------- random functions


def test_random_functions_come_to_the_same():
    for seed in range(SEED, SEED + COUNT):
        assert check(seed) == [], seed


def test_random_functions_are_quicker():
    seeds = range(cases(40))
    written = sum(took(seed, decorated=False) for seed in seeds)
    assert sum(took(seed, decorated=True) for seed in seeds) < 0.95 * written


NOTICED = {"room": 142, "kept": 17, "delivery": 16}  # the functions that need a rule are few


@pytest.mark.parametrize("rule", sorted(RULES.keys() - {"keys", "in place"}))  # those have tests of their own
def test_each_rule_is_needed(rule: str):
    assert check(NOTICED.get(rule, 0)) == []
    with planted(BUGS, rule):
        seeds = (NOTICED.get(rule, 0), *range(400))
        assert any(_differs(seed) for seed in seeds), f"no seed shows that {rule!r} is broken"


def _differs(seed: int) -> bool:
    try:
        return bool(check(seed))
    except BaseException:  # a run that falls over is noticed too
        return True


def test_the_plan_command_reads_python_too(tmp_path):
    import json

    from click.testing import CliRunner

    from lyra.cli.app import root

    file = tmp_path / "x.py"
    file.write_text(PLANNED)
    result = copy_context().run(CliRunner().invoke, root, ["vega", "plan", str(file), "--json"])
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert [[call["line"] for call in group["calls"]] for group in data["groups"]] == [[7, 8], [10, 12]]
    assert {part["line"]: part["why"] for part in data["alone"]} == {
        17: "the function is refused: it sets a global variable",
    }
    assert "digraph" in copy_context().run(CliRunner().invoke, root, ["vega", "plan", str(file), "--dot"]).stdout
    file.write_text("def (")
    assert copy_context().run(CliRunner().invoke, root, ["vega", "plan", str(file)]).exit_code == 2


def test_text_from_outside_marks_no_agent_that_the_program_never_asked():
    """The last call could be made early; the one before it fails, and a mark could not be taken back."""

    @lyra.parallel
    async def passed_on(marked: Any, slow: Any, last: Any) -> None:
        text = await marked.send("a")
        await slow.send("b")
        await last.send(text)

    async def main() -> bool:
        async with Kernel(clock=clock_here()) as kernel:
            marked = await kernel.spawn(agent("marked"))
            slow = await kernel.spawn(agent("slow", wait_s=3.0, fails=True))
            last = await kernel.spawn(agent("last"))
            kernel.taint.mark(marked.pid, "a page")
            with pytest.raises(LyraError):
                await passed_on(marked, slow, last)
            return kernel.taint.is_tainted(last.pid)

    assert not run_in_virtual_time(main())


def test_a_variable_of_a_comprehension_leaves_that_of_the_function_as_it_was():
    @lyra.parallel
    async def talk(agent_a: Any, agent_b: Any) -> list[str]:
        word = "mine"
        first = await agent_a.send("a")
        words = [word.upper() for word in ("b", "c")]
        second = await agent_b.send(word)
        return [first, second, *words]

    result, took_s, _ = timed(talk, agent("a"), agent("b"))
    assert result == ["<a>", "<mine>", "B", "C"]
    assert took_s == pytest.approx(1.0, rel=0.01)


def test_a_chained_comparison_of_known_values_is_looked_beyond():
    """Its first part holds and its second does not: the call of the other branch is made early."""

    @lyra.parallel
    async def chosen(agent_a: Any, agent_b: Any) -> list[str]:
        count = 5
        first = await agent_a.send("a")
        second = "within" if 1 < count < 3 else await agent_b.send("b")
        return [first, second]

    result, took_s, _ = timed(chosen, agent("a"), agent("b"))
    assert result == ["<a>", "<b>"]
    assert took_s == pytest.approx(1.0, rel=0.01)


def test_no_call_is_made_behind_a_comparison_that_may_fail():
    """Whether a number is in a text is an error: the call behind it is made by neither."""
    asked = []

    def answer(request: Any) -> Reply:
        asked.append(request)
        return Reply(text="b")

    @lyra.parallel
    async def compared(agent_a: Any, agent_b: Any) -> Any:
        first = await agent_a.send("a")
        holds = len(first) in "abc"  # type: ignore[operator]
        second = await agent_b.send("b")
        return [holds, second]

    with pytest.raises(TypeError, match="requires string as left operand"):
        timed(compared, agent("a"), Agent("b", model=SimProvider(answer)))
    assert asked == []


def test_a_plan_knows_that_a_branch_decides_about_nothing_behind_it():
    source = """
import lyra

@lyra.parallel
async def review(a, b):
    x = await a.send("1")
    if x:
        y = 1
    z = await b.send("2")
"""
    assert [[call.line for call in calls] for _, _, calls in plan_of(source, "x.py").groups] == [[6, 9]]


def test_numbers_too_large_to_compute_twice_are_left_to_the_program():
    """What the lookahead computes for itself, it computes on small numbers only."""
    assert safe_values._power(2, 10) == 1024
    assert safe_values._power(0.5, 2) == 0.25
    for base, exponent in ((10, 10**9), (-3, 10**8)):
        with pytest.raises(StopLookahead):
            safe_values._power(base, exponent)
