"""`lyra.Agent` on real models: answers, costs, thoughts, pictures, cached tokens and calls, as each vendor's wire has
them, within a run, over several turns and after a restart."""

from __future__ import annotations

import asyncio
import base64
import signal
from pathlib import Path

import pytest

import lyra
from lyra import Agent, Kernel, tool, vega
from lyra.agents.session.events import AnswerDone, Text, Thinking, UsageTold
from lyra.agents.session.replies import Reply
from lyra.agents.session.shared import runtime_of
from lyra.errors import BudgetExceeded, ConfigError
from lyra.models import pricing
from tests import warm
from tests.agents.support import run
from tests.real_models import PIXEL, VENDORS, Answer, Call, FakeVendor, Vendor, write_settings

CALL = Call("add", {"a": 2, "b": 3})


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def adder(vendor: Vendor, thinking_tokens: int | None = None) -> Agent[Reply]:
    return Agent("adder", model=vendor.model, tools=[add], thinking_tokens=thinking_tokens)


def test_a_run_with_a_call(vendor: Vendor, provider: FakeVendor) -> None:
    """The tool gets its arguments, the model its result with the signature of the thought that led to it, the caller
    the answer without the thought."""
    provider.say(Answer("Let me add.", thinking="Sum.", calls=(CALL,)), Answer("It is 5.", thinking="So."))
    assert lyra.run(adder(vendor, thinking_tokens=2_000), "2 + 3?") == "It is 5."
    first, second = provider.requests
    assert first.model == second.model == vendor.bare_model
    assert first.asks_to_think
    assert first.tools == ["add"]
    assert second.calls == [CALL]
    assert second.results == ["5"]
    assert second.said == ["Let me add."]
    assert second.signatures == ([provider.answered[0].signature] if vendor.thinks_aloud else [])


def test_what_a_run_cost(vendor: Vendor, provider: FakeVendor) -> None:
    """Dollars by the published price, tokens as the vendor counts them: those of the cache are counted once."""
    written = 300 if vendor.charges_cache_writes else 0
    answers = (Answer(calls=(CALL,), written_tokens=written), Answer("It is 5.", cached_tokens=900))
    provider.say(*answers)

    async def main() -> None:
        async with Kernel() as kernel:
            process = await kernel.spawn(adder(vendor))
            reply = await process.send("2 + 3?")
            metrics = process.metrics
            assert metrics.cost_usd == vendor.cost_usd(*answers)
            assert metrics.totals[:2] == (2_000, 400)
            assert (metrics.cache_read_tokens, metrics.cache_write_tokens) == (1_500, written)
            assert reply == "It is 5."

    run(main())


def test_events_of_a_stream(vendor: Vendor, provider: FakeVendor) -> None:
    """Text and thoughts come apart, and each call of the model tells its tokens and its dollars."""
    provider.say(answer := Answer("It is 4.", thinking="Easy."))

    async def main() -> None:
        events = [event async for event in lyra.stream(adder(vendor, thinking_tokens=2_000), "2 + 2?", events=True)]
        assert [event.delta for event in events if isinstance(event, Text)] == ["It is 4."]
        thoughts = [event.delta for event in events if isinstance(event, Thinking)]
        assert thoughts == (["Easy."] if vendor.thinks_aloud else [])
        (told,) = [event for event in events if isinstance(event, UsageTold)]
        assert (told.input_tokens, told.output_tokens, told.cache_read_tokens) == (1_000, 200, 600)
        assert told.cost_usd == vendor.cost_usd(answer)
        assert not told.estimated

    run(main())


def test_a_picture(vendor: Vendor, provider: FakeVendor, tmp_path: Path) -> None:
    """It arrives as it was, also when it is sent again in the next turn."""
    path = tmp_path / "dot.png"
    path.write_bytes(base64.b64decode(PIXEL))

    async def main() -> None:
        async with Kernel() as kernel:
            process = await kernel.spawn(adder(vendor))
            await process.send(["What is this?", lyra.Image.from_path(path)])
            await process.send("And its colour?")

    run(main())
    assert [request.images for request in provider.requests] == [[("image/png", PIXEL)]] * 2


def test_a_conversation_goes_on_after_a_restart(vendor: Vendor, provider: FakeVendor, tmp_path: Path) -> None:
    """Thoughts are sent back with their signatures in the next turn, before and after the store is opened again; what
    was spent before is not spent again."""
    answers = (Answer(thinking="Sum.", calls=(CALL,)), Answer("It is 5."), Answer("Sure."), Answer("Yes."))
    provider.say(*answers)
    signed = [answers[0].signature] if vendor.thinks_aloud else []

    async def turn(text: str) -> None:
        agent = adder(vendor, thinking_tokens=2_000)
        async with Kernel(tmp_path / "store.db", programs=[agent]) as kernel:
            process = await kernel.spawn(agent, pid="talk")
            await process.send(text)
            if text == "2 + 3?":
                await process.send("Sure?")
            assert process.metrics.cost_usd == vendor.cost_usd(*provider.answered)

    run(turn("2 + 3?"))
    run(turn("Really?"))
    assert [request.signatures for request in provider.requests] == [[], signed, signed, signed]
    last = provider.requests[-1]
    assert last.texts == ["2 + 3?", "Sure?", "Really?"]
    assert last.said == ["It is 5.", "Sure."]
    assert (last.calls, last.results) == ([CALL], ["5"])


def test_a_budget_in_dollars(vendor: Vendor, provider: FakeVendor) -> None:
    """A budget that one answer fits into, and the next not, ends before the second is asked for."""
    provider.say(answer := Answer("Hello.", output_tokens=4_000, thinking_tokens=0))
    budget = lyra.Budget(usd=f"${vendor.cost_usd(answer) * 1.01:.6f}")

    async def main() -> None:
        async with Kernel() as kernel:
            process = await kernel.spawn(Agent("poor", model=vendor.model, max_tokens=4_000), budget=budget)
            assert await process.send("Hi") == "Hello."
            with pytest.raises(BudgetExceeded):
                await process.send("Again")

    run(main())
    assert len(provider.requests) == 1


@pytest.mark.parametrize("name", ["-of-tomorrow", "-2031-01-01-preview"])
def test_a_model_that_nobody_has_published(vendor: Vendor, provider: FakeVendor, name: str) -> None:
    """It answers; what it cost is not known, which is not nothing, and a budget in dollars refuses it."""
    provider.say(Answer(thinking="Sum.", calls=(CALL,)), Answer("It is 5."))
    unknown = f"{vendor.model.partition('/')[0]}/nova{name}"
    agent = Agent("adder", model=unknown, tools=[add])

    async def main() -> None:
        async with Kernel() as kernel:
            process = await kernel.spawn(agent)
            assert await process.send("2 + 3?") == "It is 5."
            assert process.metrics.cost_usd is None
            poor = await kernel.spawn(Agent("poor", model=unknown), budget=lyra.Budget(usd=1))
            with pytest.raises((BudgetExceeded, ConfigError), match="price"):
                await poor.send("Hi")

    run(main())
    assert len(provider.requests) == 2


def test_a_thought_of_another_vendor_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A conversation that moves from vendor to vendor keeps its words, calls and results; no vendor is sent a
    signature of another."""
    monkeypatch.setenv("HOME", str(tmp_path))
    with FakeVendor() as server:
        for vendor in VENDORS:
            for name, value in vendor.variables(server.url).items():
                monkeypatch.setenv(name, value)
        server.say(*(answer for _ in VENDORS for answer in (Answer(thinking="Hm.", calls=(CALL,)), Answer("It is 5."))))

        async def main() -> None:
            for vendor in VENDORS:
                write_settings(vendor, tmp_path)
                agent = adder(vendor, thinking_tokens=2_000)
                async with Kernel(tmp_path / "store.db", programs=[agent]) as kernel:
                    process = await kernel.spawn(agent, pid="talk")
                    assert await process.send("2 + 3?") == "It is 5."

        run(main())
    for turn, vendor in enumerate(VENDORS):
        first, second = server.requests[2 * turn : 2 * turn + 2]
        assert second.model == vendor.bare_model
        assert first.signatures == []
        assert second.signatures == ([server.answered[2 * turn].signature] if vendor.thinks_aloud else [])
        assert second.texts == ["2 + 3?"] * (turn + 1)
        assert (second.calls, second.results) == ([CALL] * (turn + 1), ["5"] * (turn + 1))


def test_three_vendors_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Agents of one kernel on different vendors: each pays its own price, and the kernel the sum."""
    monkeypatch.setenv("HOME", str(tmp_path))
    with FakeVendor() as server:
        vendors = [vendor for vendor in VENDORS if not vendor.settings]
        for vendor in vendors:
            for name, value in vendor.variables(server.url).items():
                monkeypatch.setenv(name, value)
        server.say(answer := Answer("Hello."))

        async def main() -> None:
            async with Kernel() as kernel:
                agents = [Agent(vendor.name, model=vendor.model) for vendor in vendors]
                processes = [await kernel.spawn(agent) for agent in agents]
                await asyncio.gather(*(process.send("Hi") for process in processes))
                costs = [process.metrics.cost_usd for process in processes]
                assert costs == [vendor.cost_usd(answer) for vendor in vendors]
                assert int(kernel.budget.used("usd")) / 1_000_000 == pytest.approx(sum(cost or 0 for cost in costs))

        run(main())


def test_no_price_is_looked_up_between_an_answer_and_its_row(
    vendor: Vendor, provider: FakeVendor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tables of prices take long to load. A kill while they load must not find an answer that has arrived and is
    not in the journal: it would be paid for again. So in a durable kernel they are loaded before the first request."""
    asked_before: list[int] = []
    find = pricing._find

    def slow(provider_id: str, model: str) -> object:
        asked_before.append(len(provider.requests))
        return find(provider_id, model)

    monkeypatch.setattr(pricing, "_find", slow)
    provider.say(Answer("It is 4."))

    async def main() -> None:
        async with Kernel(tmp_path / "run.db") as kernel:
            reply = await lyra.run(adder(vendor), "2 + 2?", on=kernel)
            assert reply.cost_usd == vendor.cost_usd(*provider.answered)

    run(main())
    assert asked_before
    assert set(asked_before) == {0}


def test_a_vega_run_has_its_prices_before_the_first_request(
    vendor: Vendor, provider: FakeVendor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same for an agent of a Vega program, in a store."""
    asked_before: list[int] = []
    find = pricing._find
    monkeypatch.setattr(pricing, "_find", lambda *names: (asked_before.append(len(provider.requests)), find(*names))[1])
    source = f'agent Bot {{ model "{vendor.model}" }}\nlet bot = spawn Bot;\nfn main() {{ return bot <- "2 + 2?"; }}'

    async def main() -> None:
        async with Kernel(tmp_path / "run.db") as kernel:
            assert await vega.run(source, kernel=kernel) == "Hello."

    run(main())
    assert asked_before
    assert set(asked_before) == {0}


LIFE = """
import asyncio, os, signal, sys
import lyra
from lyra.cli.main import vega
from lyra.core import faultpoint
from lyra.models import pricing

face, killed_in, model = sys.argv[1:]


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


if killed_in == "price tables":
    pricing._find = die
elif killed_in:
    faultpoint.arm(lambda name: die() if name == killed_in else None)


async def task():
    agent = lyra.Agent("bot", model=model)
    async with lyra.Kernel("run.db", programs=[agent]) as kernel:
        print(await kernel.run(agent, "2 + 2?", pid="task"))


if face == "agent":
    asyncio.run(task())
else:
    begun = os.path.exists("run.db")
    sys.exit(vega((["resume", "sum"] if begun else ["run", "sum.vega", "--run-id", "sum"]) + ["--db", "run.db"]))
"""


@pytest.mark.parametrize(("vendor", "face"), [(VENDORS[0], "agent"), (VENDORS[-1], "vega")], indirect=["vendor"])
def test_a_kill_around_an_answer_does_not_pay_it_again(
    vendor: Vendor, provider: FakeVendor, tmp_path: Path, face: str
) -> None:
    """SIGKILL while the tables of prices load, then as soon as the answer's row is committed, then none: over the three
    lives the model is asked once. A load between an answer and its row would be killed with the answer lost."""
    provider.say(Answer("It is 4."))
    source = f'agent Bot {{ model "{vendor.model}" }}\nlet bot = spawn Bot;\nprint(bot <- "2 + 2?");\n'
    (tmp_path / "sum.vega").write_text(source)
    life = tmp_path / "life.py"
    life.write_text(LIFE)

    def live(killed_in: str = "") -> str:
        ended = warm.run(str(life), [face, killed_in, vendor.model], cwd=tmp_path)
        assert ended.returncode == (-signal.SIGKILL if killed_in else 0), ended.stderr
        return ended.stdout

    live("price tables")
    live("door.finished")
    assert live() == "It is 4.\n"
    assert len(provider.requests) == 1


CUT = Answer("Once upon", is_cut=True)


def test_a_cut_answer_is_told(vendor: Vendor, provider: FakeVendor, tmp_path: Path) -> None:
    """By the reply, the last event of the stream, the record of the run and an Event; also after a restart."""
    provider.say(CUT)
    agent = Agent("teller", model=vendor.model, max_tokens=200)
    cut: list[object] = []

    async def main() -> None:
        async with Kernel(tmp_path / "run.db") as kernel:
            kernel.on_event(lambda event: cut.append(event.data), ["answer.cut"])
            process = await kernel.spawn(agent, pid="teller")
            reply = await process.send("A story")
            assert (reply, reply.status) == ("Once upon", "max_tokens")
            assert process.execution is not None
            assert process.execution.status == "max_tokens"
            events = [event async for event in process.stream("More", events=True)]
            assert isinstance(events[-1], AnswerDone)
            assert (events[-1].status, events[-1].text) == ("max_tokens", "Once upon")

            task = await kernel.run(agent, "A story", pid="task")
            assert (task, task.status) == ("Once upon", "max_tokens")
            assert kernel.agent("task").agent_state == "completed"

    run(main())
    told = {"effect": f"model:teller:{vendor.model}", "max_tokens": 200}
    assert cut == [told, told, told]


@pytest.mark.parametrize("supervision", [None, lyra.Supervision()], ids=["alone", "supervised"])
def test_a_cut_task_stays_cut(
    vendor: Vendor, provider: FakeVendor, tmp_path: Path, supervision: lyra.Supervision | None
) -> None:
    """One who asks for the answer of a task after a restart is told that it was cut, too; also from a snapshot."""
    provider.say(CUT)
    agent = Agent("teller", model=vendor.model, max_tokens=200, supervision=supervision)

    async def main() -> None:
        for _ in range(3):
            async with Kernel(tmp_path / "run.db", programs=[agent]) as kernel:
                task = await kernel.run(agent, "A story", pid="task")
                assert (task, task.status) == ("Once upon", "max_tokens")
                await kernel._snapshots.write()

    run(main())
    assert len(provider.requests) == 1


def test_an_answer_that_is_delivered_again_is_the_same(vendor: Vendor, provider: FakeVendor, tmp_path: Path) -> None:
    """A caller that a kill found before it had taken the answer, as one in Vega: status and figures are those of the
    turn, not of the conversation."""
    provider.say(Answer("Hello."), CUT)
    agent = Agent("teller", model=vendor.model, max_tokens=200)

    async def main() -> None:
        async with Kernel(tmp_path / "run.db") as kernel:
            process = await kernel.spawn(agent, pid="teller")
            await process.send("Hi")
            first = await runtime_of(kernel).ask(process._process, "A story", request_id="~main:7")
        async with Kernel(tmp_path / "run.db") as kernel:
            runtime, known = runtime_of(kernel), kernel.processes["teller"]
            runtime.questions.expect("~main:7", known, (), stream=False)
            kernel.register(agent)
            again = await runtime.ask(known, "A story", request_id="~main:7")
        assert isinstance(first, Reply)
        assert isinstance(again, Reply)
        assert (again, again.status) == (first, first.status) == ("Once upon", "max_tokens")
        assert (again.cost_usd, again.input_tokens, again.output_tokens) == (vendor.cost_usd(CUT), 1_000, 200)

    run(main())
    assert len(provider.requests) == 2


def test_the_answer_to_a_task_has_its_figures(vendor: Vendor, provider: FakeVendor, tmp_path: Path) -> None:
    """Also for one who asks for it after a restart, who reads the memory of its agent, too."""
    agent = Agent("teller", model=vendor.model, memory=True)

    async def main() -> None:
        for _ in range(2):
            async with Kernel(tmp_path / "run.db", programs=[agent]) as kernel:
                reply = await kernel.run(agent, "A story", pid="task")
                assert reply.cost_usd == pytest.approx(vendor.cost_usd(*provider.answered))
                assert (reply.input_tokens, reply.output_tokens) == (1_000, 200)
                assert not kernel.agent("task").memory.items()

    run(main())
    assert len(provider.requests) == 1


def test_a_vega_program_warns_of_a_cut_answer(vendor: Vendor, provider: FakeVendor) -> None:
    """The program gets what there is, and whoever runs it is told."""
    provider.say(CUT)
    source = f'agent Bot {{ model "{vendor.model}" }}\nlet bot = spawn Bot;\nfn main() {{ return bot <- "A story"; }}'
    warned: list[str] = []
    assert vega.run(source, stderr=warned.append) == "Once upon"
    (line,) = warned
    assert "an answer of agent Bot was cut off at its longest" in line
