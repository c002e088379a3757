"""A run once more from one of its steps: what came before is answered from the journal, what comes then is real."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lyra import Agent, Kernel
from lyra.agents.forks.change import StepChange
from lyra.agents.forks.fork import fork_run, wait_for_fork
from lyra.errors import ConfigError, Divergence, NameTaken, NoSuchProcess, Overloaded, Tampered
from lyra.kernel import forks
from lyra.kernel.journal.fork_rows import fork_records
from lyra.kernel.journal.rows import Created
from lyra.kernel.seams import Seams
from lyra.models.script import Reply, ScriptedCall
from lyra.models.sim import SimProvider
from lyra.observe.history.calls import CallHistory
from lyra.observe.timeline.state import StoredRows
from lyra.observe.timeline.timeline import RunTimeline
from lyra.observe.timeline.travel import compare_runs
from lyra.store.protocol import Store
from lyra.store.rows import seal, unseal
from lyra.store.space import open_to_read
from tests.agents.forks import programs
from tests.agents.forks.programs import acts, book, booking, guide, opened, talk, team
from tests.store.conftest import postgres_server, postgres_url  # noqa: F401 - fixtures

STILL = Seams(wakes=())
_opened: list[Store] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


def reader(store: str) -> Store:
    _opened.append(open_to_read(store))
    return _opened[-1]


def timeline(store: str, pid: str) -> RunTimeline:
    return RunTimeline(StoredRows(reader(store)), pid)


def forked(store: str, pid: str, number: int, **change: Any) -> tuple[str, Any]:
    """Fork in a kernel in which nothing else runs; gives the fork's pid, and its messages or its end."""

    async def main() -> tuple[str, Any]:
        async with opened(store, seams=STILL) as kernel:
            fork = await fork_run(kernel, reader(store), pid, number, StepChange(**change))
            await wait_for_fork(kernel, fork)
            ended = kernel.processes[fork].exit
            return fork, ended if ended is not None else [message.text for message in kernel.agent(fork).messages]

    return asyncio.run(main())


def rows_of(store: str, pid: str) -> list[Any]:
    return [record for record in reader(store).read() if record.pid == pid]


# ---------------------------------------------------------------------- agents


def test_another_reply_ends_the_turn_with_it_and_no_tool_is_called_again(store: str) -> None:
    """The tool of the first run was performed once, also after the fork; the conversation before is the same."""
    asyncio.run(talk(store))
    before = rows_of(store, "talk")
    fork, texts = forked(store, "talk", 5, reply="It rains.")
    assert texts == ["weather in Oslo?", "", "", "It rains."]
    assert acts() == ["weather-Oslo"]
    assert rows_of(store, "talk") == before
    assert timeline(store, fork).fork == {"of": "talk", "at": 5}


def test_another_result_of_a_tool_is_what_the_model_is_told(store: str) -> None:
    """The model is asked again, for real, and the tool is not called."""
    asyncio.run(talk(store))
    fork, texts = forked(store, "talk", 4, result="snowing")
    assert texts[-1] == "It is snowing."
    assert acts() == ["weather-Oslo"]
    compared = compare_runs(timeline(store, "talk"), timeline(store, fork))
    assert compared.first == 4


def test_another_prompt_is_answered_in_place_of_the_message(store: str) -> None:
    """From any step of the turn; what the new message leads to is performed."""
    asyncio.run(talk(store))
    _, texts = forked(store, "talk", 5, prompt="weather in Rome?")
    assert texts[0] == "weather in Rome?"
    assert texts[-1] == "It is sunny in Rome."
    assert acts() == ["weather-Oslo", "weather-Rome"]
    _, texts = forked(store, "talk", 8, prompt="goodbye")
    assert texts[-1] == "You said: goodbye"
    assert texts[0] == "weather in Oslo?"
    assert acts() == ["weather-Oslo", "weather-Rome"]


def test_another_model_answers_from_the_step_on(store: str) -> None:
    """What was answered before stays; the calls of the fork name the other model."""
    asyncio.run(talk(store))
    fork, texts = forked(store, "talk", 5, model="sim/echo")
    assert texts[-1] == "weather in Oslo?"
    models = [step.model for step in timeline(store, fork).steps if step.kind == "model"]
    assert models == ["sim", "sim/echo"]


def test_another_model_answers_behind_a_step_that_is_no_call(store: str) -> None:
    """From the step of a tool on, the first call behind it is that of the other model."""
    asyncio.run(talk(store))
    number = next(step.number for step in timeline(store, "talk").steps if step.kind == "tool")
    fork, _ = forked(store, "talk", number, model="sim/echo")
    models = [step.model for step in timeline(store, fork).steps if step.kind == "model"]
    assert models[:2] == ["sim", "sim/echo"]


def test_another_system_prompt_holds_from_the_step_on(store: str) -> None:
    """The model is told it; an agent without the change is told its own."""
    seen: list[str] = []

    def answer(request: Any) -> str:
        seen.append(request.system)
        return f"told {request.system}"

    async def main() -> None:
        told = Agent("told", model=SimProvider(script=answer), system="Be kind.")
        async with Kernel(store, programs=[told]) as kernel:
            agent = await kernel.spawn(told, pid="talk")
            await agent.send("one")
            await agent.send("two")
            fork = await fork_run(kernel, reader(store), "talk", 6, StepChange(system="Be short."))
            await wait_for_fork(kernel, fork)
            assert [message.text for message in kernel.agent(fork).messages][-1] == "told Be short."
            assert await kernel.agent(fork).send("three") == "told Be short."
            assert await agent.send("three") == "told Be kind."

    asyncio.run(main())
    assert seen == ["Be kind.", "Be kind.", "Be short.", "Be short.", "Be kind."]


def test_only_what_is_new_counts_in_the_budget_of_the_fork_and_both_are_shown(store: str) -> None:
    asyncio.run(talk(store))
    fork, _ = forked(store, "talk", 4, result="snowing")
    run = timeline(store, fork)
    totals, first = run.totals(), timeline(store, "talk")
    new = [step for step in run.steps if step.kind == "model" and not step.is_recorded]
    assert len(new) == 1
    assert totals["usage"]["usd"] == new[0].micro_usd
    assert totals["recorded"]["usd"] == first.steps[2].micro_usd
    (scope,) = run.moment(len(run.steps))["budget"]
    assert (scope["used"]["usd"], scope["recorded"]["usd"]) == (totals["usage"]["usd"], totals["recorded"]["usd"])
    assert scope["limits"]["usd"] == 500_000


def test_a_fork_goes_on_as_a_conversation_of_its_own(store: str) -> None:
    """Beside the first one, which goes on, too: neither hears of the other."""
    asyncio.run(talk(store))

    async def main() -> None:
        async with opened(store) as kernel:
            fork = await fork_run(kernel, reader(store), "talk", 5, StepChange(reply="It rains."))
            await wait_for_fork(kernel, fork)
            assert await kernel.agent(fork).send("and now?") == "You said: and now?"
            assert await kernel.agent("talk").send("still there?") == "You said: still there?"
            assert len(kernel.agent(fork).messages) == 6
            assert len(kernel.agent("talk").messages) == 8

    asyncio.run(main())


def test_a_fork_survives_a_restart_and_repeats_nothing(store: str) -> None:
    """A later kernel goes on with it from its own rows."""
    asyncio.run(talk(store))
    fork, _ = forked(store, "talk", 5, model="sim/echo")

    async def main() -> None:
        async with opened(store) as kernel:
            assert await kernel.agent(fork).send("hello") == "hello"  # still the other model
            assert [message.text for message in kernel.agent(fork).messages][3] == "weather in Oslo?"
            assert await kernel.agent("talk").send("hello") == "You said: hello"

    asyncio.run(main())
    assert acts() == ["weather-Oslo"]


def test_an_agent_that_is_only_a_model_needs_no_declaration(store: str) -> None:
    """The journal has enough; one with a system prompt or tools is refused, with what to do."""

    async def made() -> None:
        plain, told = Agent("plain", model="sim/echo"), Agent("told", model="sim/echo", system="Be kind.")
        async with Kernel(store, programs=[plain, told]) as kernel:
            for agent, pid in ((plain, "plain"), (told, "told")):
                process = await kernel.spawn(agent, pid=pid)
                await process.send("hello")
                await process.send("bye")

    async def main() -> None:
        async with Kernel(store, seams=STILL) as kernel:
            fork = await fork_run(kernel, reader(store), "plain", 6, StepChange(prompt="goodbye"))
            await wait_for_fork(kernel, fork)
            assert [message.text for message in kernel.agent(fork).messages][-1] == "goodbye"
            with pytest.raises(ConfigError, match="agent:told"):
                await fork_run(kernel, reader(store), "told", 6, StepChange(prompt="goodbye"))

    asyncio.run(made())
    asyncio.run(main())


def test_a_call_that_ran_beside_the_changed_one_is_not_made_again(store: str) -> None:
    """Two tools at once: one is given another result, the other keeps its own, which came later."""

    async def slow(city: str) -> str:
        """The slow one."""
        programs.note(f"slow-{city}")
        await asyncio.sleep(0.05)
        return f"slow {city}"

    async def quick(city: str) -> str:
        """The quick one."""
        programs.note(f"quick-{city}")
        return f"quick {city}"

    def answer(request: Any) -> Any:
        results = [result.output for message in request.messages for result in message.tool_results]
        if results:
            return " and ".join(map(str, results))
        names = ("slow", "quick")
        return Reply(tool_calls=tuple(ScriptedCall(name=name, arguments={"city": "Oslo"}) for name in names))

    async def main() -> None:
        two = Agent("two", model=SimProvider(script=answer), tools=[slow, quick])
        async with Kernel(store, programs=[two]) as kernel:
            agent = await kernel.spawn(two, pid="talk")
            assert await agent.send("go") == "slow Oslo and quick Oslo"
            step = next(step for step in timeline(store, "talk").steps if step.name == "tool:quick")
            fork = await fork_run(kernel, reader(store), "talk", step.number, StepChange(result="other"))
            await wait_for_fork(kernel, fork)
            assert kernel.agent(fork).messages[-1].text == "slow Oslo and other"

    asyncio.run(asyncio.wait_for(main(), 60))
    assert sorted(acts()) == ["quick-Oslo", "slow-Oslo"]


# ---------------------------------------------------------------------- programs


def test_a_program_goes_on_from_the_step_and_acts_before_it_are_not_performed_again(store: str) -> None:
    """Neither its own nor those of its children."""
    asyncio.run(book(store))
    assert acts() == ["reserve-sea", "mail-sea", "pay-120"]
    fork, ended = forked(store, "trip", 9)
    assert ended.result["paid"] == 120
    assert acts() == ["reserve-sea", "mail-sea", "pay-120", "pay-120"]
    tree = timeline(store, fork).moment(9)["tree"]
    assert [row["depth"] for row in tree] == [0, 1]
    assert all(row["pid"] not in timeline(store, "trip").pids for row in tree)


def test_another_result_of_an_effect_is_what_the_program_gets(store: str) -> None:
    """It goes on from there: the child is started with the other room."""
    asyncio.run(book(store))
    fork, ended = forked(store, "trip", 2, result={"room": "garden"})
    assert ended.result == {"room": "garden", "mailed": "garden", "paid": 120, "timed": True}
    assert acts() == ["reserve-sea", "mail-sea", "pay-120", "mail-garden", "pay-120"]
    assert compare_runs(timeline(store, "trip"), timeline(store, fork)).first == 2


def forked_with_message(store: str, pid: str, number: int, message: Any, **change: Any) -> tuple[str, Any]:
    async def main() -> tuple[str, Any]:
        async with opened(store, seams=STILL) as kernel:
            fork = await fork_run(kernel, reader(store), pid, number, StepChange(**change))
            if not kernel.processes[fork].inbox:
                await kernel.send(fork, message)
            return fork, await kernel.process(fork).wait()

    return asyncio.run(main())


def test_another_message_is_what_the_program_receives(store: str) -> None:
    asyncio.run(book(store))
    _, ended = forked(store, "trip", 8, prompt='{"amount": 7}')
    assert ended.result["paid"] == 7
    assert acts() == ["reserve-sea", "mail-sea", "pay-120", "pay-7"]


def test_a_child_that_was_alive_at_the_step_is_forked_with_its_parent(store: str) -> None:
    """A step of the child: its act is given another result, and the parent of the fork hears of it."""
    asyncio.run(book(store))
    step = next(step for step in timeline(store, "trip").steps if step.name.endswith(":mail"))
    _, ended = forked(store, "trip", step.number, result="lost")
    assert ended.result["mailed"] == "lost"
    assert acts() == ["reserve-sea", "mail-sea", "pay-120", "pay-120"]


def test_a_supervised_team_is_forked_with_its_restarts(store: str) -> None:
    """At its last step: the fork has a supervisor and a live child of its own, and the first team stands still."""
    asyncio.run(team(store))

    async def main() -> str:
        async with opened(store, seams=STILL) as kernel:
            last = len(timeline(store, "team").steps)
            fork = await fork_run(kernel, reader(store), "team", last, StepChange())
            children = await kernel.supervisor(fork).which_children()
            (child,) = children
            assert child.pid in kernel.processes
            assert kernel.processes["team"].coroutine is None  # it stands still
            await kernel.supervisor(fork).stop()
            return fork

    fork = asyncio.run(main())
    run = timeline(store, fork)
    assert [step.kind for step in run.steps].count("crash") == 1
    assert timeline(store, "team").ended_as == ""


def test_messages_to_processes_outside_the_run_are_not_sent_again(store: str) -> None:
    """Neither by the fork nor when the store is opened the next time; those of the fork's own time are."""

    async def ear(ctx: Any) -> None:
        await asyncio.Event().wait()

    async def teller(ctx: Any) -> str:
        ctx.send("ear", "before")
        answer = await ctx.do(programs.mail, "news")
        ctx.send("ear", answer)
        return str(answer)

    async def main() -> None:
        async with Kernel(store, programs=[ear, teller]) as kernel:
            await kernel.spawn(ear, pid="ear")
            await kernel.spawn(teller, pid="teller").wait()
            await kernel.durable()
            step = next(step for step in timeline(store, "teller").steps if step.kind == "effect")
            fork = await fork_run(kernel, reader(store), "teller", step.number, StepChange(result="rumour"))
            await kernel.process(fork).wait()
            assert [message for _, message in kernel.processes["ear"].inbox or ()] == ["before", "news", "rumour"]
        async with Kernel(store) as kernel:
            assert [message for _, message in kernel.processes["ear"].inbox or ()] == ["before", "news", "rumour"]

    asyncio.run(asyncio.wait_for(main(), 60))
    assert acts() == ["mail-news"]


def test_the_other_processes_of_the_store_stand_still_while_a_fork_runs(store: str) -> None:
    """The run itself, left in the middle of its work, writes no row and performs nothing."""

    async def left() -> None:
        async with opened(store) as kernel:
            kernel.spawn(booking, "sea", pid="trip")
            while "mail-sea" not in acts():
                await asyncio.sleep(0.01)
            await kernel.durable()

    asyncio.run(left())
    before = rows_of(store, "trip")
    _, ended = forked_with_message(store, "trip", 2, {"amount": 3}, result={"room": "sky"})
    assert ended.result["room"] == "sky"
    assert rows_of(store, "trip") == before

    async def goes_on() -> Any:
        async with opened(store) as kernel:
            await kernel.send("trip", {"amount": 4})
            return await kernel.process("trip").wait()

    assert asyncio.run(goes_on()).result["room"] == "sea"
    assert acts() == ["reserve-sea", "mail-sea", "mail-sky", "pay-3", "pay-4"]


def test_a_fork_in_a_postgresql_store(postgres_url: str) -> None:  # noqa: F811
    asyncio.run(book(postgres_url))
    _, ended = forked(postgres_url, "trip", 8, prompt='{"amount": 7}')
    assert ended.result["paid"] == 7
    assert acts() == ["reserve-sea", "mail-sea", "pay-120", "pay-7"]


# ---------------------------------------------------------------------- rights and refusals


def test_a_fork_has_no_more_rights_than_the_run_had(store: str) -> None:
    """Also that of a child whose parent had narrowed its grant."""

    async def main() -> None:
        async with opened(store) as kernel:
            process = kernel.spawn(booking, "sea", pid="trip", grant=["process.spawn", "model.use"])
            await kernel.send("trip", {"amount": 1})
            await process.wait()
            child = next(pid for pid in timeline(store, "trip").pids if pid != "trip")
            fork = await fork_run(kernel, reader(store), child, 1, StepChange())
            held = kernel.processes[fork].grant
            assert not held.is_all
            assert held.to_data() == kernel.processes["trip"].grant.to_data()
            await kernel.process(fork).wait()

    asyncio.run(main())


def test_a_person_is_asked_again_where_the_answer_was_not_acted_on(store: str) -> None:
    """The answer allowed one act of the first run, and allows none of the fork; an act that was done stays done."""

    async def main() -> None:
        async with opened(store) as kernel:
            process = kernel.spawn(programs.publisher, pid="paper")
            while not (questions := kernel.interrupts.pending("paper")):
                await asyncio.sleep(0.01)
            kernel.resolve_interrupt(questions[0].id, {"approved": True})
            assert (await process.wait()).result == "published"
            await kernel.durable()
            steps = timeline(store, "paper").steps
            assert [step.kind for step in steps] == ["began", "question", "effect", "exit"]
            fork = await fork_run(kernel, reader(store), "paper", 3, StepChange())
            while not (asked := kernel.interrupts.pending(fork)):
                await asyncio.sleep(0.01)
            assert acts() == ["mail-published"]
            kernel.resolve_interrupt(asked[0].id, {"approved": False})
            assert (await kernel.process(fork).wait()).result == "no"
            told = await fork_run(kernel, reader(store), "paper", 3, StepChange(result="by hand"))
            assert (await kernel.process(told).wait()).result == "by hand"
            assert acts() == ["mail-published"]

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_supervised_conversation_is_forked_with_its_guard(store: str) -> None:
    """It is talked to under the pid of its guard, as the first one is."""

    async def main() -> None:
        async with opened(store) as kernel:
            agent = await kernel.spawn(guide, pid="talk", supervision="restart")
            await agent.send("weather in Oslo?")
            await kernel.durable()
            number = next(step.number for step in reversed(timeline(store, "talk").steps) if step.kind == "model")
            fork = await fork_run(kernel, reader(store), "talk", number, StepChange(reply="It rains."))
            await wait_for_fork(kernel, fork)
            assert await kernel.agent(fork).send("hello") == "You said: hello"
            assert [message.text for message in kernel.agent(fork).messages][3] == "It rains."
            assert await agent.send("hello") == "You said: hello"

    asyncio.run(main())
    assert acts() == ["weather-Oslo"]


def test_what_a_fork_took_over_counts_as_no_call(store: str) -> None:
    """Sums of calls and costs have what was paid once."""
    asyncio.run(talk(store))
    fork, _ = forked(store, "talk", 5, reply="It rains.")
    history = CallHistory()
    history.add_all(StoredRows(reader(store)).rows())
    assert history.list_for(fork) == []
    assert len(history.list_for("talk")) == 4


def test_a_pid_that_is_taken_and_a_full_kernel_refuse_a_fork(store: str) -> None:
    """Nothing is written then."""
    asyncio.run(talk(store))

    async def main() -> None:
        async with opened(store, seams=STILL) as kernel:
            change = StepChange(reply="x")
            with pytest.raises(NameTaken):
                await fork_run(kernel, reader(store), "talk", 5, change, new_pid="talk")
            with pytest.raises(ConfigError):
                await fork_run(kernel, reader(store), "talk", 5, change, new_pid="~talk")
            kernel.processes_max = kernel.live
            with pytest.raises(Overloaded):
                await fork_run(kernel, reader(store), "talk", 5, change)

    before = list(reader(store).read())
    asyncio.run(main())
    assert list(reader(store).read()) == before


def test_a_change_that_does_not_fit_the_step_names_those_that_it_fits(store: str) -> None:
    asyncio.run(talk(store))
    for number, change, hint in (
        (4, {"reply": "x"}, "steps that can: 3, 5, 8"),
        (3, {"result": "x"}, "steps that can: 4"),
    ):
        with pytest.raises(ConfigError, match="cannot have") as caught:
            forked(store, "talk", number, **change)
        assert caught.value.hint == hint
    with pytest.raises(ConfigError, match="no step 99"):
        forked(store, "talk", 99)
    with pytest.raises(ConfigError, match="one thing"):
        StepChange(reply="x", prompt="y")
    with pytest.raises(NoSuchProcess):
        forked(store, "nobody", 1)


def test_a_program_that_changed_under_the_journal_is_a_divergence(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is stopped where it asks for something else; nothing is performed."""
    asyncio.run(book(store))

    async def other(ctx: Any, room: str) -> None:
        await ctx.do(programs.pay, 1)

    other.__module__, other.__qualname__ = booking.__module__, booking.__qualname__
    monkeypatch.setattr(programs, "PROGRAMS", (guide, other, programs.clerk))
    _, ended = forked(store, "trip", 9)
    assert isinstance(ended.error, Divergence)
    assert acts() == ["reserve-sea", "mail-sea", "pay-120"]


# ---------------------------------------------------------------------- bounds


async def spender(ctx: Any) -> None:
    await ctx.receive()


async def purse(ctx: Any) -> None:
    await ctx.spawn(spender, pid="spender", budget={"usd": "$10", "llm_calls": 3})
    await ctx.receive()


def test_a_fork_of_a_child_gets_the_limits_above_it(store: str) -> None:
    """Of each amount the smallest that held: one who forks the child of a run with little money gets no more of it."""

    async def main() -> None:
        async with Kernel(store, programs=(spender, purse), seams=STILL) as kernel:
            await kernel.spawn(purse, pid="purse", budget={"usd": "$1", "tool_calls": 5})
            while "spender" not in kernel.processes:
                await asyncio.sleep(0.01)
            await kernel.durable()
            fork = await fork_run(kernel, reader(store), "spender", 1, StepChange())
            budget = kernel.processes[fork].budget
            assert int(budget.limit("usd") or 0) == 1_000_000
            assert (budget.limit("llm_calls"), budget.limit("tool_calls")) == (3, 5)

    asyncio.run(main())


def test_a_fork_takes_no_rows_of_other_runs_into_memory(store: str) -> None:
    """Only how they began: a store of many runs is read, not held."""
    asyncio.run(talk(store))
    asyncio.run(book(store))
    records = fork_records(reader(store).read(), "talk")
    assert [record for record in records if record.pid == "talk"] == rows_of(store, "talk")
    others = [record.kind for record in records if record.pid not in ("talk", "")]
    assert others
    assert set(others) == {"process.created"}


def test_rows_of_an_older_version_give_a_fork_no_more_than_all_above_allowed() -> None:
    """Where the limits and rights of a child were written down as they were asked for."""
    above = [
        Created("spender", budget={"limits": {"usd": 10, "llm_calls": 3}}, grant={"allow": ["fs.read"]}),
        Created("middle"),
        Created("purse", budget={"limits": {"usd": 1, "tool_calls": 5}}, grant={"allow": ["fs.read:/tmp/**"]}),
    ]
    limits = forks._limits(above)
    assert limits == {"limits": {"usd": 1, "llm_calls": 3, "tool_calls": 5}}
    right = forks._right(above)
    assert right is not None
    assert right.allows("fs.read:/tmp/a")
    assert not right.allows("fs.read:/etc/passwd")
    assert forks._limits([Created("free")]) is None
    assert forks._right([Created("free")]) is None


def test_a_fork_of_a_run_that_has_read_text_from_outside_has_read_it_too(store: str) -> None:
    """From the step on at which it did: what it may do then is narrower, and stays so after a restart."""
    asyncio.run(talk(store))

    async def main() -> tuple[str, str]:
        async with opened(store) as kernel:
            kernel.taint.mark("talk", "a page")
            await kernel.agent("talk").send("and now?")
            await kernel.durable()
            before = await fork_run(kernel, reader(store), "talk", 5, StepChange(reply="x"))
            behind = await fork_run(kernel, reader(store), "talk", len(timeline(store, "talk").steps), StepChange())
            await kernel.durable()
            assert (kernel.taint.is_tainted(before), kernel.taint.is_tainted(behind)) == (False, True)
            return before, behind

    before, behind = asyncio.run(main())

    async def later() -> None:
        async with opened(store) as kernel:
            assert (kernel.taint.is_tainted(before), kernel.taint.is_tainted(behind)) == (False, True)

    asyncio.run(later())


def test_a_store_that_another_program_changed_is_not_forked_from(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that was exchanged while the kernel is at work is noticed before anything of it is run."""
    monkeypatch.setenv("HOME", str(tmp_path))  # a key of its own, with which the store is signed
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    asyncio.run(talk(store))

    async def main() -> None:
        async with opened(store, seams=STILL) as kernel:
            connection = sqlite3.connect(store, isolation_level=None)
            batches = connection.execute("SELECT seq, rows, data, crc, signature FROM journal ORDER BY seq").fetchall()
            number, *_ = batch = next(batch for batch in batches if b"Oslo" in batch[2])
            records = unseal(batch)
            assert records is not None
            ((_, count, sealed, crc, _),) = seal(
                [(row.seq, row.time, row.pid, row.kind, row.data.replace(b"Oslo", b"Rome")) for row in records]
            )
            change = "UPDATE journal SET data = ?, rows = ?, crc = ?, signature = NULL WHERE seq = ?"
            connection.execute(change, (sealed, count, crc, number))
            connection.close()
            with pytest.raises(Tampered):
                await fork_run(kernel, reader(store), "talk", 8, StepChange(prompt="x"))
            assert "talk-fork-1" not in kernel.processes

    asyncio.run(main())


async def teller(ctx: Any, word: str) -> None:
    """Tells its parent, by the pid that its caller chose, and its sister, by the pid that its parent chose."""
    text = await ctx.do(programs.mail, word)
    ctx.send("desk", text)
    ctx.send("sister", text)


async def sister(ctx: Any) -> str:
    return str(await ctx.receive())


async def desk(ctx: Any) -> list[str]:
    other = ctx.spawn(sister, pid="sister")
    await ctx.do(programs.reserve, "sea")
    ctx.spawn(teller, "news")
    return [str(await ctx.receive()), str((await other.wait()).result)]


def test_a_fork_that_names_its_processes_by_their_pids_reaches_its_own(store: str) -> None:
    """And not those of the run, which hear nothing of it; also after a restart."""

    async def main() -> None:
        async with Kernel(store, programs=[desk, teller, sister]) as kernel:
            assert (await kernel.spawn(desk, pid="desk").wait()).result == ["news", "news"]
            await kernel.durable()
            steps = timeline(store, "desk").steps
            mailed = next(step.number for step in steps if step.name.endswith(":mail"))
            fork = await fork_run(kernel, reader(store), "desk", mailed, StepChange(result="rumour"))
            ended = await asyncio.wait_for(kernel.process(fork).wait(), 30)
            assert ended.result == ["rumour", "rumour"]
            whole = await fork_run(kernel, reader(store), "desk", 1, StepChange())  # which starts its children itself
            assert (await asyncio.wait_for(kernel.process(whole).wait(), 30)).result == ["news", "news"]
            assert "sister-fork-1" in timeline(store, whole).pids
            await kernel.durable()
        run = timeline(store, "desk")
        assert len(run.steps) == len(steps)
        assert not [step for step in run.steps if "rumour" in step.request]

    asyncio.run(main())


def test_the_pids_of_a_run_mean_the_fork_also_after_a_restart(store: str) -> None:
    async def left() -> str:
        async with Kernel(store, programs=[asker]) as kernel:
            kernel.spawn(asker, pid="asker")
            await kernel.durable()
            fork = await fork_run(kernel, reader(store), "asker", 1, StepChange())
            await kernel.durable()
            return fork

    fork = asyncio.run(left())

    async def main() -> None:
        async with Kernel(store, programs=[asker]) as kernel:
            await kernel.send(fork, "go")
            ended = await asyncio.wait_for(kernel.process(fork).wait(), 30)
            assert ended.result == "told by itself"
            assert not kernel.processes["asker"].inbox

    asyncio.run(main())


async def asker(ctx: Any) -> str:
    await ctx.receive()
    ctx.send("asker", "told by itself")
    return str(await ctx.receive())
