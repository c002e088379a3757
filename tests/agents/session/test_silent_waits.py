"""Nothing waits for ever in silence: a wait for a person is refused or bounded, unless it is asked for."""

from __future__ import annotations

import asyncio
import logging

import pytest

import lyra
from lyra import Agent, Kernel, tool
from lyra.agents import sdk
from lyra.agents.session.events import ToolEnded
from lyra.core.limits import DOUBT_WAIT_S
from lyra.errors import ConfigError, EffectInDoubt, NameTaken
from lyra.testing import SimClock
from lyra.tools.yaml import DynamicTools
from tests.agents.support import calls, run, says, virtual
from tests.kernel.conftest import Crash, settle

RESULT = "{result}"
YAML = """
name: greet
description: Greet.
implementation:
  type: exec
  command: [echo, hello]
"""


@tool(guarded=True)
def publish(page: str) -> str:
    """Publish a page."""
    return f"published {page}"


@tool
async def consult(ctx) -> str:
    """Ask a person."""
    answer = await ctx.ask("Which colour?", "clarification")
    return f"said {answer.text}"


def editor(**settings) -> Agent:
    model = says(calls("publish", page="news"), RESULT)
    return Agent("editor", model=model, tools=[publish], permissions={"ask": ["publish"]}, **settings)


def adviser() -> Agent:
    return Agent("adviser", model=says(calls("consult"), RESULT), tools=[consult])


def test_a_tool_that_needs_a_permission_is_refused_in_run(caplog):
    """No person can be asked in a kernel that `lyra.run` has made: the tool is not run, and the log names it."""

    async def main():
        with caplog.at_level(logging.WARNING, logger="lyra"):
            return await lyra.run(editor(), "go")

    answer = run(main())
    assert "published" not in answer
    assert "no person can answer here" in answer
    assert any("Allow publish?" in record.getMessage() for record in caplog.records)


def test_a_tool_from_yaml_that_needs_a_permission_is_refused_in_run(tmp_path):
    """The same for a tool of a YAML file, which is guarded by itself."""
    (tmp_path / "greet.yaml").write_text(YAML)

    async def main():
        tools = DynamicTools(tmp_path, workspace=str(tmp_path))
        return await lyra.run(Agent("greeter", model=says(calls("greet"), RESULT), tools=[tools]), "go")

    answer = run(main())
    assert "no person can answer here" in answer
    assert "hello" not in answer


def test_a_question_of_a_tool_is_refused_in_run(caplog):
    """`ctx.ask` raises, and the model is told why."""

    async def main():
        with caplog.at_level(logging.WARNING, logger="lyra"):
            return await lyra.run(adviser(), "go")

    answer = run(main())
    assert "no person can answer here" in answer
    assert any("Which colour?" in record.getMessage() for record in caplog.records)


@pytest.fixture
def questions(monkeypatch):
    """The events about questions of kernels that `lyra.run` and `lyra.stream` make: (kind, text) of each."""
    seen: list[tuple[str, str]] = []

    class WatchedKernel(Kernel):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            self.on_event(self.note, ["interrupt.created", "interrupt.cancelled"])

        @staticmethod
        def note(event):
            seen.append((event.kind, event.data.get("question") or event.data["reason"]))

    monkeypatch.setattr(sdk, "Kernel", WatchedKernel)
    return seen


@pytest.mark.parametrize(("agent", "question"), [(editor, "Allow publish?"), (adviser, "Which colour?")])
@pytest.mark.parametrize("call", ["run", "stream"])
def test_a_refused_question_is_told_by_events(questions, call, agent, question):
    """One Event with the question, one that says why nobody is asked."""

    async def main():
        if call == "run":
            await lyra.run(agent(), "go")
        else:
            await lyra.stream(agent(), "go")

    run(main())
    (made, text), (cancelled, reason) = questions
    assert (made, cancelled) == ("interrupt.created", "interrupt.cancelled")
    assert text.startswith(question)
    assert "no person can answer here" in reason


def test_a_stream_does_not_wait_either():
    """`lyra.stream` has a kernel of its own too: the tool is not run, and the model is told why."""

    async def main():
        return "".join([piece async for piece in lyra.stream(editor(), "go")])

    answer = run(main())
    assert "published news" not in answer
    assert "no person can answer here" in answer


def test_a_stream_of_events_does_not_wait_either():
    """The same for `events=True`, where the call's end is an error."""

    async def main():
        return [event async for event in lyra.stream(editor(), "go", events=True)]

    (end,) = [event for event in run(main()) if isinstance(event, ToolEnded)]
    assert end.is_error
    assert "no person can answer here" in end.output


def test_a_team_does_not_wait_either():
    """Nor does a team that opens a kernel."""

    async def main():
        return await lyra.batch((editor(), "go"))

    assert "no person can answer here" in str(run(main()))


def answers_yes(question):
    return True


async def answers_later(question):
    await asyncio.sleep(0)
    return {"decision": "allow"}


@pytest.mark.parametrize("answer", [answers_yes, answers_later])
def test_a_function_may_answer(answer):
    """Waiting for a person is asked for: `answer=` is given each question."""

    async def main():
        return await lyra.run(editor(), "go", answer=answer)

    assert run(main()) == "published news"


def test_text_is_the_answer_to_a_question():
    """A string answers `ctx.ask`."""

    async def main():
        return await lyra.run(adviser(), "go", answer=lambda question: "blue")

    assert run(main()) == "said blue"


@pytest.mark.parametrize("answer", [lambda question: False, lambda question: None, lambda question: 1 / 0])
def test_a_function_that_does_not_say_yes_is_a_no(answer):
    """A denial, no answer, and a function that fails."""

    async def main():
        return await lyra.run(editor(), "go", answer=answer)

    assert "published" not in run(main())


def test_answer_and_on_exclude_each_other():
    """A kernel of one's own has `kernel.interrupts`; and what is no function is refused."""

    async def main():
        async with Kernel() as kernel:
            with pytest.raises(ConfigError, match="answer"):
                await lyra.run(editor(), "go", on=kernel, answer=answers_yes)
            with pytest.raises(ConfigError, match="answer"):
                await lyra.run(editor(), "go", answer="yes")

    run(main())


# ---------------------------------------------------------------------- an effect in doubt


def in_doubt(path, then, clock=None, *, lives=1):
    """A kernel is killed while a tool of its agent runs; `then` gets the next kernel, and the agent's process. Of more
    `lives`, kernels that raise the question are killed, too."""
    began: list[int] = []

    @tool
    async def charge() -> str:
        began.append(1)
        if len(began) == 1:
            await asyncio.sleep(3600)
        return "charged"

    agent = Agent("shop", model=says(calls("charge"), "done", "next"), tools=[charge])

    async def first():
        async with Crash(Kernel(path)) as kernel:
            process = await kernel.spawn(agent, pid="shop")
            process.send_async("go")
            while not began:
                await asyncio.sleep(0.001)

    async def second():
        async with Kernel(path, clock, programs=[agent]) as kernel:
            await then(kernel, await kernel.spawn(agent, pid="shop"))

    async def between():
        async with Crash(Kernel(path, clock, programs=[agent])) as kernel:
            await settle(kernel)
            assert [question.kind for question in kernel.interrupts.pending()] == ["in_doubt"]
            await kernel.durable()

    run(first())
    for _ in range(lives - 1):
        run(between())
    run(second())


@pytest.mark.parametrize("lives", [1, 2, 3])
@pytest.mark.parametrize("asked", ["send", "send_async", "stream"])
@pytest.mark.parametrize("early", [True, False])
def test_a_message_behind_an_effect_in_doubt_fails_in_bounded_time(path, caplog, asked, early, lives):
    """Whether it is sent before or after the question is raised; the error and the log name the question."""
    clock = SimClock(1_900_000_000.0)

    async def then(kernel, process):
        if not early:
            await settle(kernel)
        waiting = asyncio.ensure_future(ask(process))
        await settle(kernel)
        assert not waiting.done()
        clock.advance(DOUBT_WAIT_S + 0.1)
        with pytest.raises(EffectInDoubt, match=r"waits for a person: Was tool:charge\(\) performed"):
            await asyncio.wait_for(waiting, 5)
        assert [question.kind for question in kernel.interrupts.pending()] == ["in_doubt"]

    async def ask(process):
        return await getattr(process, asked)("again")

    with caplog.at_level(logging.WARNING, logger="lyra"):
        in_doubt(path, then, clock, lives=lives)
    assert any("waits for a person" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("lives", [1, 2])
@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("held", [True, False])
def test_the_current_turn_behind_an_effect_in_doubt_fails_in_bounded_time(path, held, early, lives):
    """`current` of the process and of `kernel.agent(pid)`; the turn itself goes on when a person has answered."""
    clock = SimClock(1_900_000_000.0)

    async def then(kernel, process):
        if not early:
            await settle(kernel)
        waiting = asyncio.ensure_future(current(kernel, process))
        await settle(kernel)
        assert not waiting.done()
        clock.advance(DOUBT_WAIT_S + 0.1)
        with pytest.raises(EffectInDoubt, match=r"waits for a person: Was tool:charge\(\) performed") as error:
            await asyncio.wait_for(waiting, 5)
        assert "await `current` again" in str(error.value.hint)
        again = asyncio.ensure_future(current(kernel, process))
        (question,) = kernel.interrupts.pending()
        await kernel.resolve_interrupt(question.id, {"decision": "skip", "data": "charged"})
        assert await asyncio.wait_for(again, 5) == "done"

    async def current(kernel, process):
        return await (process if held else kernel.agent("shop")).current

    in_doubt(path, then, clock, lives=lives)


def test_an_answer_in_time_lets_the_message_through(path):
    """A person, or a program, that answers within the time: the message is answered as ever."""

    async def then(kernel, process):
        waiting = asyncio.ensure_future(process.send("again"))
        await settle(kernel)
        (question,) = kernel.interrupts.pending()
        await kernel.resolve_interrupt(question.id, {"decision": "skip", "data": "charged"})
        assert await waiting == "next"

    in_doubt(path, then)


def test_waiting_for_a_person_can_be_asked_for(path):
    """`wait_for_person=True` waits as long as it takes."""
    clock = SimClock(1_900_000_000.0)

    async def then(kernel, process):
        waiting = asyncio.ensure_future(process.send("again", wait_for_person=True))
        await settle(kernel)
        clock.advance(100 * DOUBT_WAIT_S)
        await settle(kernel)
        assert not waiting.done()
        (question,) = kernel.interrupts.pending()
        await kernel.resolve_interrupt(question.id, {"decision": "skip", "data": "charged"})
        assert await waiting == "next"

    in_doubt(path, then, clock)


def test_a_caller_that_waits_for_a_person_waits_beside_one_that_does_not(path):
    """The time of one question behind an effect in doubt runs out for that question alone."""
    clock = SimClock(1_900_000_000.0)

    async def then(kernel, process):
        patient = asyncio.ensure_future(process.send("again", wait_for_person=True))
        await settle(kernel)
        other = asyncio.ensure_future(process.send("more"))
        await settle(kernel)
        clock.advance(DOUBT_WAIT_S + 0.1)
        with pytest.raises(EffectInDoubt):
            await asyncio.wait_for(other, 5)
        assert not patient.done()
        (question,) = kernel.interrupts.pending()
        await kernel.resolve_interrupt(question.id, {"decision": "skip", "data": "charged"})
        assert await patient == "next"

    in_doubt(path, then, clock)


# ---------------------------------------------------------------------- an agent with another name


@pytest.mark.parametrize("supervision", [None, "restart"])
def test_an_agent_that_was_renamed_is_told_at_once(path, supervision):
    """Its pid belongs to the agent of the old name: spawning says so, and nothing waits."""

    async def first():
        async with Kernel(path) as kernel:
            await (await kernel.spawn(Agent("old", model=says("a")), pid="p", supervision=supervision)).send("hi")

    async def second():
        agent = Agent("new", model=says("b"))
        async with Kernel(path, programs=[agent]) as kernel:
            with pytest.raises((NameTaken, ConfigError), match="agent:old"):
                await asyncio.wait_for((await kernel.spawn(agent, pid="p", supervision=supervision)).send("hi"), 9)

    run(first())
    run(second())


def test_a_pid_of_another_agent_is_refused():
    """In one life too: the process would answer in the other agent's place."""

    async def main():
        async with Kernel() as kernel:
            await kernel.spawn(Agent("one", model=says("1")), pid="p")
            with pytest.raises(NameTaken, match="agent:one, not agent:two"):
                kernel.spawn(Agent("two", model=says("2")), pid="p")

    virtual(main())


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "run.db")


def test_a_stream_may_wait_for_a_person_too(path):
    """`stream(…, wait_for_person=True)` stands behind an effect in doubt as long as it takes."""
    clock = SimClock(1_900_000_000.0)

    async def then(kernel, process):
        waiting = asyncio.ensure_future(whole(process.stream("again", wait_for_person=True)))
        await settle(kernel)
        clock.advance(100 * DOUBT_WAIT_S)
        await settle(kernel)
        assert not waiting.done()
        (question,) = kernel.interrupts.pending()
        await kernel.resolve_interrupt(question.id, {"decision": "skip", "data": "charged"})
        assert await waiting == "next"

    async def whole(stream):
        return "".join([piece async for piece in stream])

    in_doubt(path, then, clock)
