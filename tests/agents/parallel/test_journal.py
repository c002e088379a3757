"""`@lyra.parallel` where a budget limits or a journal keeps: the same promise, and still side by side."""

from __future__ import annotations

import asyncio
import signal
import textwrap
from pathlib import Path
from typing import Any

import pytest

import lyra
from lyra import Agent, Context, Kernel, tool
from lyra.agents.parallel.source.plan import plan_of
from lyra.core.budgets.budget import Budget, Usage
from lyra.core.budgets.early_calls import JoinableBudget, is_limited
from lyra.errors import BudgetExceeded, ConfigError, DeadlineExceeded, LyraError
from lyra.kernel.journal.rows import DECODERS, Stopping, encode
from lyra.models.pricing import Price
from lyra.models.script import Reply, ScriptedCall, ScriptedError
from lyra.models.sim import SimProvider
from lyra.store.memory import MemoryStore
from lyra.testing.loop import run as run_in_virtual_time
from lyra.vega.plan.render import plan_of_python, text_of
from tests import warm
from tests.agents.support import clock_here
from verify.planted import planted
from verify.planted.agent_early_calls import BUGS


class Priced(SimProvider):
    def price(self, model: str) -> Price | None:
        return Price.per_mtok(1, 1)


def agent(name: str, *, wait_s: float = 1.0, fails: bool = False, text: str = "", **settings: Any) -> Agent:
    def answer(request: Any) -> Reply:
        if fails:
            return Reply(error=ScriptedError(kind="bad_request"), first_s=wait_s)
        return Reply(text=text or f"<{request.messages[-1].text}>", first_s=wait_s)

    return Agent(name, model=Priced(answer), retry={"max_attempts": 1}, max_tokens=50, **settings)


async def three(a: Any, b: Any, c: Any) -> list[str]:
    first = await a.send("one")
    second = await b.send("two")
    third = await c.send("three")
    return [first, second, third]


class Ran:
    """What came of a function of three processes, and what it took."""

    def __init__(self, function: Any, agents: list[Agent], *, scope: Any = None, kernel: Any = None) -> None:
        self.result: Any = None
        self.events: list[tuple[str, dict[str, Any]]] = []
        run_in_virtual_time(self._run(function, agents, scope, kernel))

    async def _run(self, function: Any, agents: list[Agent], scope: Any, limit: Any) -> None:
        async with Kernel(clock=clock_here(), budget=limit) as kernel:
            kinds = ("call.ahead", "call.taken", "call.speculative", "call.ordered")
            kernel.on_event(lambda event: self.events.append((event.kind, dict(event.data))), kinds)
            processes = [await kernel.spawn(agent) for agent in agents]
            began = asyncio.get_running_loop().time()
            with lyra.budget(scope) as spent:
                try:
                    self.result = await function(*processes)
                except LyraError as error:
                    self.result = (type(error), error.message)
            self.took_s = asyncio.get_running_loop().time() - began
            self.used, self.speculative = spent.usage, spent.speculative
            self.charged = [kernel.budget.usage, *(process.budget.usage for process in processes)]
            self.said = [[message.text for message in process.messages] for process in processes]
            await asyncio.sleep(0)


def both(agents: Any, **budgets: Any) -> tuple[Ran, Ran]:
    """The function as it is written, and decorated."""
    return Ran(three, agents(), **budgets), Ran(lyra.parallel(three), agents(), **budgets)


def same(written: Ran, decorated: Ran) -> None:
    for what in ("result", "used", "charged", "said"):
        assert getattr(written, what) == getattr(decorated, what), what


# ---------------------------------------------------------------- budgets


@pytest.mark.parametrize(
    "around",
    [{"scope": "$1.00"}, {"kernel": "$1.00"}, {"scope": {"llm_calls": 3}}, {"scope": {"output_tokens": 400}}],
)
def test_calls_overlap_in_a_budget_that_has_room(around: dict[str, Any]):
    written, decorated = both(lambda: [agent(name) for name in "abc"], **around)
    same(written, decorated)
    assert [written.took_s, decorated.took_s] == pytest.approx([3.0, 1.0])


def test_agents_with_budgets_of_their_own_overlap():
    written, decorated = both(lambda: [agent(name, budget="$0.50") for name in "abc"])
    same(written, decorated)
    assert decorated.took_s == pytest.approx(1.0)


def test_room_is_asked_for_in_program_order():
    """Two fit beside each other, a third only when the first is over."""
    written, decorated = both(lambda: [agent(name) for name in "abc"], scope={"output_tokens": 110})
    same(written, decorated)
    assert [written.took_s, decorated.took_s] == pytest.approx([3.0, 2.0])
    assert not decorated.speculative


def test_a_call_that_is_not_admitted_fails_in_its_place_with_the_same_error():
    agents = lambda: [agent("a"), agent("b"), agent("c", wait_s=0.1)]  # noqa: E731
    written, decorated = both(agents, scope={"llm_calls": 2})
    same(written, decorated)
    assert decorated.result[0] is BudgetExceeded
    assert [written.took_s, decorated.took_s] == pytest.approx([2.0, 1.0])
    assert not decorated.speculative  # it was never made


def test_an_answer_is_as_long_as_line_by_line():
    """What is left shortens the last answer, and that depends on what the others have really taken."""
    words = "one two three four five six seven eight nine ten eleven twelve"
    agents = lambda: [agent(name, text=words, fit_budget=True, min_tokens=1) for name in "abc"]  # noqa: E731
    written, decorated = both(agents, scope={"output_tokens": 40})
    same(written, decorated)
    assert len(written.result[2]) < len(words)


def test_what_was_not_needed_is_speculative_and_charged_to_no_budget():
    agents = lambda: [agent("a", fails=True), agent("b", wait_s=0.5), agent("c", wait_s=5.0)]  # noqa: E731
    written, decorated = both(agents, scope="$1.00", kernel="$1.00")
    same(written, decorated)
    assert decorated.speculative["llm_calls"] == 2
    assert decorated.speculative["usd"] > 0
    assert [kind for kind, _ in decorated.events] == ["call.ahead"] * 2 + ["call.speculative"] * 2
    assert not written.events


def test_a_call_that_would_not_have_stood_is_made_again_and_so_are_those_behind():
    """The first asks its model twice, which was not known when the second was asked."""

    @tool(idempotent=True)
    async def look(what: str) -> str:
        """Look something up."""
        return what

    def twice(request: Any) -> Reply:
        if request.messages[-1].role == "user":
            return Reply(tool_calls=(ScriptedCall("look", {"what": "x"}),), first_s=1.0)
        return Reply(text="looked", first_s=1.0)

    async def chain(a: Any, b: Any, c: Any) -> list[str]:
        first = await a.send("one")
        second = await b.send("two")
        third = await c.send(f"after {second}")
        return [first, second, third]

    def agents() -> list[Agent]:
        first = Agent("a", model=Priced(twice), tools=[look], max_tokens=50, retry={"max_attempts": 1})
        return [first, agent("b", text="some more words than that, by far"), agent("c", wait_s=0.1)]

    ran = [Ran(function, agents(), scope={"llm_calls": 2}) for function in (chain, lyra.parallel(chain))]
    same(*ran)
    assert ran[1].result[0] is BudgetExceeded
    assert ran[1].speculative["llm_calls"] >= 1


def test_a_reading_of_a_budget_stays_where_it_is():
    async def reads(a: Any, b: Any) -> Any:
        first = await a.send("one")
        count = len(a.messages)
        return [first, await b.send(f"{count} said")]

    async def main(function: Any) -> Any:
        async with Kernel(clock=clock_here()) as kernel:
            return await function(*[await kernel.spawn(agent(name)) for name in "ab"])

    assert run_in_virtual_time(main(lyra.parallel(reads))) == run_in_virtual_time(main(reads)) == ["<one>", "<2 said>"]
    source = "import lyra\n@lyra.parallel\nasync def f(a, b):\n    x = await a.send('1')\n"
    source += "    n = len(a.messages)\n    y = await b.send(str(n))\n"
    whys = [why for _, _, why in plan_of(source, "x.py").alone]
    assert len(whys) == 2
    assert all("`a.messages` in line 5 is read in its place" in why for why in whys)


def test_a_scope_apart_joins_with_all_that_it_holds():
    root = Budget(usd="$1.00", llm_calls=3)
    first = JoinableBudget(root)
    second = JoinableBudget(root, {"llm_calls": 2}, lambda: [first])
    assert is_limited(first)
    assert not second.has_room(Usage(llm_calls=1))  # the cost of the first is not known yet
    held = first.reserve(Usage(llm_calls=1, usd="$0.50"))
    assert second.has_room(Usage(llm_calls=2))
    assert not second.has_room(Usage(llm_calls=3))
    assert root.reserved("llm_calls") == 0
    with pytest.raises(BudgetExceeded):
        second.reserve(Usage(usd="$0.60"))
    assert not second.is_allowed()
    assert first.is_allowed()
    first.join()
    assert root.reserved("usd") == root.limit("usd") // 2  # type: ignore[operator]
    first.settle(held, Usage(llm_calls=1, usd="$0.25"))
    assert root.used("llm_calls") == 1
    assert str(root.remaining()) == "$0.75"
    with pytest.raises(BudgetExceeded, match=r"the budget has"):
        first.reserve(Usage(usd="$0.80"))


@pytest.mark.parametrize("shared", [False, True])
def test_a_budget_of_the_call_is_its_own_unless_it_is_shared(shared: bool):
    limits: dict[str, Any] = {"output_tokens": 55}

    async def main(decorate: Any) -> Any:
        budget: Any = Budget(**limits) if shared else limits

        async def two(a: Any, b: Any) -> list[Any]:
            first = await a.send("one", budget=budget)
            second = await b.send("two", budget=budget)
            return [first, second]

        async with Kernel(clock=clock_here()) as kernel:
            processes = [await kernel.spawn(agent(name)) for name in "ab"]
            began = asyncio.get_running_loop().time()
            result = await decorate(two)(*processes)
            used = budget.used("output_tokens") if shared else 0
            return [result, used], asyncio.get_running_loop().time() - began

    written, decorated = (
        run_in_virtual_time(main(decorate)) for decorate in (lambda function: function, lyra.parallel)
    )
    assert written[0] == decorated[0]
    assert decorated[1] == pytest.approx(2.0 if shared else 1.0)


# ---------------------------------------------------------------- where an agent lives


def test_run_on_a_kernel_and_in_a_program():
    helper = agent("helper")

    async def program(ctx: Context) -> list[str]:
        return [await lyra.run(helper, "in a program", on=ctx)]

    async def main() -> Any:
        async with Kernel(clock=clock_here(), programs=[program, helper]) as kernel:
            results = [await lyra.run(helper, "on a kernel", on=kernel), *await kernel.run(program)]
            alive = [pid for pid, process in kernel.processes.items() if process.exit is None]
            return results, alive

    assert run_in_virtual_time(main()) == (["<on a kernel>", "<in a program>"], [])


def test_run_says_where_it_cannot():
    helper = agent("helper")
    for on, options, message in ((3, {}, "on is a Kernel"), (Kernel(), {"store": "x.db"}, "options of a new kernel")):
        with pytest.raises(ConfigError, match=message):
            asyncio.run(_awaited(lyra.run, helper, "x", on=on, **options))


async def _awaited(function: Any, *args: Any, **options: Any) -> Any:
    return await function(*args, **options)


def test_limits_of_one_call_in_a_program():
    slow, strict = agent("slow", wait_s=9.0), agent("strict", budget={"llm_calls": 5, "output_tokens": 1000})

    async def program(ctx: Context) -> list[str]:
        messages = []
        try:
            await lyra.run(slow, "x", on=ctx, timeout=1)
        except DeadlineExceeded as error:
            messages.append(error.message)
        try:
            await lyra.run(strict, "x", on=ctx, budget={"llm_calls": 0})
        except BudgetExceeded as error:
            messages.append(str(error.fields["dimension"]))
        return messages

    async def main() -> Any:
        async with Kernel(clock=clock_here(), programs=[program, slow, strict]) as kernel:
            return await kernel.run(program)

    assert run_in_virtual_time(main()) == ["agent slow did not answer within 1 s", "llm_calls"]


# ---------------------------------------------------------------- durable programs


def durable(waits: tuple[float, float, float], store: MemoryStore, **settings: Any) -> tuple[Any, float, Usage]:
    """Two calls, and one that needs the second, in a program with a journal."""
    a, b, c = (agent(name, wait_s=wait_s, **settings) for name, wait_s in zip("abc", waits, strict=True))

    @lyra.parallel
    async def review(ctx: Context) -> list[str]:
        first = await lyra.run(a, "one", on=ctx)
        second = await lyra.run(b, "two", on=ctx)
        third = await lyra.run(c, f"after {second}", on=ctx)
        return [first, second, third]

    async def main() -> Any:
        async with Kernel(store, clock=clock_here(), programs=[review, a, b, c]) as kernel:
            began = asyncio.get_running_loop().time()
            process = kernel.spawn(review, pid="review", budget={"llm_calls": 9, "usd": "$1.00"})
            ended = await process.wait()
            took_s = asyncio.get_running_loop().time() - began
            assert kernel.processes["review"].spent == process.budget.usage
            return ended.result if ended.error is None else type(ended.error), took_s, process.budget.usage

    result, took_s, usage = run_in_virtual_time(main())
    return result, took_s, usage


def keys_in(store: MemoryStore) -> dict[str, Any]:
    rows = [(pid, DECODERS[kind].decode(data)) for _, _, pid, kind, data in store._rows if kind == "process.created"]
    return {row.program: row.key for _, row in rows if row.parent}


def test_a_durable_program_overlaps_within_its_budget():
    result, took_s, usage = durable((1.0, 1.0, 1.0), MemoryStore())
    assert result == ["<one>", "<two>", "<after <two>>"]
    assert took_s == pytest.approx(2.0)
    assert usage["llm_calls"] == 3


def test_what_a_program_spent_is_the_same_after_a_restart():
    """A call that was made ahead counts once: as spent by its own process, and by the program that took it."""
    store = MemoryStore()
    _, _, before = durable((1.0, 1.0, 1.0), store)
    _, _, after = durable((1.0, 1.0, 1.0), store)
    assert before == after


def test_a_key_depends_on_the_place_in_the_program_alone():
    stores = [MemoryStore(), MemoryStore()]
    durable((3.0, 1.0, 0.1), stores[0])
    durable((0.1, 1.0, 3.0), stores[1])
    keys = keys_in(stores[0])
    assert keys == keys_in(stores[1])
    assert list(keys.values()) == ["0/0.0/0", "0/0.1/0", "0/0.2/0"]


def keys_of_two_chains(waits: tuple[float, float]) -> dict[str, Any]:
    """Two calls, and one that needs each: which of these is asked first depends on who was faster."""
    a, b = (agent(name, wait_s=wait_s) for name, wait_s in zip("ab", waits, strict=True))
    c, d = agent("c"), agent("d")
    store = MemoryStore()

    @lyra.parallel
    async def chains(ctx: Context) -> list[str]:
        first = await lyra.run(a, "one", on=ctx)
        second = await lyra.run(b, "two", on=ctx)
        return [await lyra.run(c, f"after {first}", on=ctx), await lyra.run(d, f"after {second}", on=ctx)]

    async def main() -> Any:
        async with Kernel(store, clock=clock_here(), programs=[chains, a, b, c, d]) as kernel:
            return (await kernel.spawn(chains, pid="chains").wait()).result

    assert run_in_virtual_time(main()) == ["<after <one>>", "<after <two>>"]
    return keys_in(store)


def test_a_key_does_not_depend_on_who_was_faster():
    assert keys_of_two_chains((1.0, 3.0)) == keys_of_two_chains((3.0, 1.0))
    with planted(BUGS, "keys"):
        assert keys_of_two_chains((1.0, 3.0)) != keys_of_two_chains((3.0, 1.0))


def test_a_conversation_that_a_journal_keeps_is_ordered_and_says_so():
    reasons: list[str] = []

    async def main() -> float:
        async with Kernel(MemoryStore(), clock=clock_here()) as kernel:
            kernel.on_event(lambda event: reasons.append(event.data["why"]), ["call.ordered"])
            processes = [await kernel.spawn(agent(name)) for name in "abc"]
            began = asyncio.get_running_loop().time()
            await lyra.parallel(three)(*processes)
            return asyncio.get_running_loop().time() - began

    assert run_in_virtual_time(main()) == pytest.approx(3.0)
    assert reasons
    assert all("a journal keeps the conversation" in why for why in reasons)


def test_the_plan_says_which_calls_open_a_store():
    source = "import lyra\n@lyra.parallel\nasync def f(a, options):\n"
    source += "    x = await lyra.run(a, '1', store='x.db')\n    y = await lyra.run(a, '2', **options)\n"
    source += "    z = await lyra.run(a, '3', on=a.kernel)\n"
    whys = [why for _, _, why in plan_of(source, "x.py").alone]
    assert ["`store=`" in whys[0], "`**`" in whys[1], "no other call stands beside it" in whys[2]] == [True] * 3


def test_the_plan_says_what_only_the_run_can_tell():
    source = "import lyra\n@lyra.parallel\nasync def f(a, b, ctx):\n"
    source += "    x = await a.send('1')\n    y = await lyra.run(b, '2', on=ctx)\n    return [x, y]\n"
    plan = plan_of_python(source, "x.py")
    reasons = [call.unless for call in plan.groups[0].calls]
    assert reasons[0].startswith("a journal keeps the conversation")
    assert reasons[1].startswith("`on` is a kernel with a journal")
    assert [call["unless"] for call in plan.to_data()["groups"][0]["calls"]] == reasons
    assert f"  unless {reasons[0]}\n" in text_of(plan)


KILLED = """
    import asyncio, os, sys
    from pathlib import Path
    import lyra
    from lyra import Agent, Context, Kernel
    from lyra.models.script import Reply
    from lyra.models.sim import SimProvider

    folder = Path(sys.argv[1])


    class Noted(SimProvider):
        def stream(self, request):
            with open(folder / "asked", "a") as file:
                file.write(f"{request.messages[-1].text} {request.idempotency_key}\\n")
            return super().stream(request)


    def answer(request):
        text = request.messages[-1].text
        if text == "three" and not (folder / "killed").exists():
            (folder / "killed").write_text("")
            asyncio.get_running_loop().call_later(0.6, os.kill, os.getpid(), 9)
            return Reply(text="never", first_s=60.0)
        if text == "two" and not (folder / "killed").exists() and "both" in sys.argv:
            return Reply(text="never", first_s=60.0)
        return Reply(text=f"<{text}>", first_s={"one": 0.0, "two": 0.2}.get(text, 0.0))


    agents = [Agent(name, model=Noted(answer)) for name in ("a", "b", "c")]


    @lyra.parallel
    async def work(ctx: Context):
        first = await lyra.run(agents[0], "one", on=ctx)
        second = await lyra.run(agents[1], "two", on=ctx)
        third = await lyra.run(agents[2], "three", on=ctx)
        return [first, second, third]


    async def main():
        async with Kernel(folder / "work.db", programs=[work, *agents]) as kernel:
            if "work" not in kernel.processes:
                kernel.spawn(work, pid="work", budget={"llm_calls": int(sys.argv[2])})
            process = kernel.process("work")
            ended = await process.wait()
            print(ended.result or type(ended.error).__name__, process.budget.used("llm_calls"))


    asyncio.run(main())
"""


def killed_and_continued(folder: Path, *arguments: str) -> tuple[str, list[tuple[str, ...]]]:
    """What a program that was killed while its third call was under way comes to, and what its models were asked."""
    script = folder / "work.py"
    script.write_text(textwrap.dedent(KILLED))
    killed = warm.run(str(script), [str(folder), *arguments])
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    again = warm.run(str(script), [str(folder), *arguments])
    assert again.returncode == 0, again.stderr
    return again.stdout.strip(), [tuple(line.split()) for line in (folder / "asked").read_text().splitlines()]


def test_after_kill_9_what_was_answered_is_not_asked_again(tmp_path: Path):
    """A call that was cut off ahead of its turn is made again under the same key, and both attempts are charged."""
    printed, asked = killed_and_continued(tmp_path, "4")
    assert printed == "['<one>', '<two>', '<three>'] 4"
    assert [text for text, _ in asked] == ["one", "two", "three", "three"]
    assert asked[2] == asked[3]  # the same idempotency key


@pytest.mark.parametrize(
    ("limit", "both", "printed", "performed"),
    [
        (3, (), "BudgetExceeded 3", ["one", "two", "three"]),
        (5, ("both",), "['<one>', '<two>', '<three>'] 5", ["one", "two", "three", "two", "three"]),
        (4, ("both",), "BudgetExceeded 4", ["one", "two", "three", "two"]),
        (3, ("both",), "BudgetExceeded 3", ["one", "two", "three"]),
    ],
)
def test_no_more_is_asked_after_kill_9_than_the_budget_allows(
    tmp_path: Path, limit: int, both: tuple[str, ...], printed: str, performed: list[str]
):
    """Calls that were cut off ahead of their turn stay charged: over both lives models are asked as often as the limit
    says, and no more."""
    told, asked = killed_and_continued(tmp_path, str(limit), *both)
    assert [text for text, _ in asked] == performed
    assert told == printed


def test_a_call_that_was_made_ahead_is_told_when_it_is_taken():
    _, decorated = both(lambda: [agent(name) for name in "abc"], scope="$1.00")
    ahead = [data["pid"] for kind, data in decorated.events if kind == "call.ahead"]
    taken = [data["pid"] for kind, data in decorated.events if kind == "call.taken"]
    assert ahead
    assert set(taken) == set(ahead)


def test_a_process_that_is_started_ahead_is_told_under_its_own_pid():
    a, b = agent("a"), agent("b")
    events: list[tuple[str, str]] = []

    @lyra.parallel
    async def review(ctx: Context) -> list[str]:
        first = await lyra.run(a, "one", on=ctx)
        second = await lyra.run(b, "two", on=ctx)
        return [first, second]

    async def main() -> list[str]:
        async with Kernel(clock=clock_here(), programs=[review, a, b]) as kernel:
            kinds = ("call.ahead", "call.taken")
            kernel.on_event(lambda event: events.append((event.kind, str(event.data["pid"]))), kinds)
            process = kernel.spawn(review, pid="review")
            await asyncio.sleep(0.5)
            children = sorted(kernel.process("review").children or {})
            await process.wait()
            return children

    first, second = run_in_virtual_time(main())
    assert events == [("call.ahead", second), ("call.taken", second)]
    assert first != second


# ---------------------------------------------------------------- several kills


def copied(store: MemoryStore) -> MemoryStore:
    """All that a kernel killed now leaves behind."""
    left = MemoryStore()
    left._rows, left._blobs, left._identity = list(store._rows), dict(store._blobs), store._identity
    return left


class KilledProgram:
    """A durable program of three overlapping calls, the second of which is answered first; over its lives it counts
    what the models were asked."""

    def __init__(self, limit: int) -> None:
        self.asked: list[str] = []
        self.agents = [self._agent("a", 5.0), self._agent("b", 1.0), self._agent("c", 9.0)]
        self._limit = limit

    def _agent(self, name: str, wait_s: float) -> Agent:
        def answer(request: Any) -> Reply:
            self.asked.append(request.messages[-1].text)
            return Reply(text="so", first_s=wait_s)

        return Agent(name, model=Priced(answer), retry={"max_attempts": 1}, max_tokens=50)

    def live(self, store: MemoryStore, killed_after_s: float) -> tuple[MemoryStore, Any, int]:
        """Return what one life leaves in the store, the program's error type, and the calls that it was charged."""
        a, b, c = self.agents

        @lyra.parallel
        async def work(ctx: Context) -> list[str]:
            first = await lyra.run(a, "one", on=ctx)
            second = await lyra.run(b, "two", on=ctx)
            third = await lyra.run(c, "three", on=ctx)
            return [first, second, third]

        async def main() -> Any:
            async with Kernel(store, clock=clock_here(), programs=[work, *self.agents]) as kernel:
                if "work" not in kernel.processes:
                    kernel.spawn(work, pid="work", budget={"llm_calls": self._limit})
                await asyncio.sleep(killed_after_s)
                process, asked = kernel.process("work"), list(self.asked)
                error = None if process.alive else type((await process.wait()).error)
                left = copied(store)
                used = process.budget.used("llm_calls")
            self.asked = asked  # the kernel of this life is gone
            return left, error, used

        left, error, used = run_in_virtual_time(main())
        return left, error, used


def test_an_early_call_begins_again_beside_those_that_were_answered_and_not_taken():
    """Over three lives no more is asked, and no more charged, than the limit allows: two calls were cut off, one was
    answered and waits for its turn, and the first is made again, so that nothing is left for the third."""
    program = KilledProgram(limit=4)
    left, _, _ = program.live(MemoryStore(), 2.0)
    assert program.asked == ["one", "two", "three"]
    left, _, _ = program.live(left, 6.0)
    _, error, used = program.live(left, 20.0)
    assert program.asked == ["one", "two", "three", "one"]
    assert (error, used) == (BudgetExceeded, 4)


def test_an_early_call_that_was_cut_off_is_made_again_where_there_is_room():
    program = KilledProgram(limit=5)
    left, _, _ = program.live(MemoryStore(), 2.0)
    _, error, used = program.live(left, 20.0)
    assert program.asked == ["one", "two", "three", "one", "three"]
    assert (error, used) == (type(None), 5)


def test_an_early_call_is_not_made_again_for_a_program_that_was_told_to_end():
    program = KilledProgram(limit=9)
    left, _, _ = program.live(MemoryStore(), 2.0)
    left._rows.append((left.last_seq() + 1, 2.0, "work", "process.stopping", encode(Stopping("killed"))))
    program.live(left, 1.0)
    assert program.asked == ["one", "two", "three", "one"]  # the first is no early call: it lives on as any child
