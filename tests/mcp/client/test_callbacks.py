"""A server asks back while an agent's call runs: a form is a question to a person, text of a model needs a rule."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

import lyra
from lyra.agents.agent import Agent
from lyra.agents.headless.headless import Headless
from lyra.agents.headless.options import HeadlessOptions
from lyra.agents.session.events import Interrupted, ToolEnded
from lyra.config import Config
from lyra.errors import BudgetExceeded
from lyra.kernel.kernel import Kernel
from tests.agents.support import calls, says
from tests.kernel.conftest import Crash
from tests.mcp.support import run, tiny, using


@asynccontextmanager
async def agent_of(folder, model, *, allow=("mcp__tiny__form", "mcp__tiny__think"), settings=None, store="memory"):
    async with using(settings or tiny(), folder=folder) as use, Kernel(store=store) as kernel:
        permissions = {"allow": list(allow), "mode": "default"}
        agent = Agent("assistant", model=model, tools=[use.servers], permissions=permissions)
        yield kernel, await kernel.spawn(agent)


async def told(kernel, process, answer, *, after_s=0.0):
    """The questions of one run, each answered so, and what its calls came to."""
    questions, ends = [], []
    async for event in process.stream("go", events=True):
        if isinstance(event, Interrupted):
            questions.append(event)
            await asyncio.sleep(after_s)
            kernel.resolve_interrupt(event.id, answer)
        if isinstance(event, ToolEnded):
            ends.append(event)
    return questions, ends


def sent(end):
    """What the server was told, as it tells it."""
    assert not end.is_error, end.output
    return json.loads(end.output)


# ---------------------------------------------------------------- forms
def test_a_form_is_a_question_to_a_person(tmp_path):
    """In the server's name, its words with every character visible; the call waits longer than it may else take."""
    settings = tiny(env={"ASKS": "Your password,\x1b[2J\u202e please?"}, timeout_s=1.0)

    async def main():
        async with agent_of(tmp_path, says(calls("mcp__tiny__form"), "done"), settings=settings) as (kernel, process):
            (question,), (end,) = await told(kernel, process, {"data": {"name": "Bo"}}, after_s=1.5)
            assert question.kind == "clarification"
            assert "MCP server tiny asks" in question.question
            assert "Your password,⟨U+001B⟩[2J⟨U+202E⟩ please?" in question.question
            assert "words of that server" in question.message
            assert '"name"' in question.message
            assert sent(end) == {"action": "accept", "content": {"name": "Bo"}}

    run(main())


def test_what_a_person_answers(tmp_path):
    """A text for a form of one field; what does not fit is not sent; a no is a no."""

    async def main():
        model = says(calls("mcp__tiny__form"), "done")
        for answer, expected in (
            ({"text": "Bo"}, {"action": "accept", "content": {"name": "Bo"}}),
            ({"approved": False, "data": {"name": "Bo"}}, {"action": "decline"}),
            ({"decision": "deny"}, {"action": "decline"}),
        ):
            async with agent_of(tmp_path, model, allow=["mcp__tiny__form"]) as (kernel, process):
                _, (end,) = await told(kernel, process, answer)
                assert sent(end) == expected
            model = says(calls("mcp__tiny__form"), "done")
        async with agent_of(tmp_path, model) as (kernel, process):
            _, (end,) = await told(kernel, process, {"data": {"name": 5}})
            assert "does not fit" in end.output

    run(main())


def test_with_no_user_there_a_form_is_declined_and_text_refused(tmp_path):
    """Headless: no question at all, and the model is not asked."""
    script = tmp_path / "script.json"
    steps = [calls("mcp__tiny__form"), calls("mcp__tiny__think"), {"text": "done"}, {"text": "never"}]
    script.write_text(json.dumps({"sequence": steps}))

    async def main():
        async with using(tiny(), folder=tmp_path) as use:
            options = HeadlessOptions(
                model=f"sim/script:{script}",
                folder=str(tmp_path),
                allow=("mcp__tiny__form", "mcp__tiny__think"),
                tools=(use.servers,),
            )
            lines = []
            async with Headless(options, Config.load(str(tmp_path), {})) as headless:
                outcome = await headless.ask("go", lines.append)
            form, think = [line for line in lines if line["type"] == "tool_end"]
            assert json.loads(form["output"]) == {"action": "decline"}
            assert "refused" in think["output"]
            assert not [line for line in lines if line["type"] == "interrupt"]
            assert (outcome.result["text"], outcome.result["turns"]) == ("done", 3)

    run(main())


@pytest.mark.parametrize(
    ("answer", "expected"),
    [(None, {"action": "decline"}), (lambda question: "Bo", {"action": "accept", "content": {"name": "Bo"}})],
    ids=["nobody", "a function"],
)
def test_a_form_in_run_waits_for_nobody(tmp_path, caplog, answer, expected):
    """In a kernel that `lyra.run` has made it is declined at once, and the log has the question, unless `answer=`
    answers it."""

    async def main():
        async with using(tiny(), folder=tmp_path) as use:
            permissions = {"allow": ["mcp__tiny__form"], "mode": "default"}
            model = says(calls("mcp__tiny__form"), "{result}")
            agent = Agent("assistant", model=model, tools=[use.servers], permissions=permissions)
            return await asyncio.wait_for(lyra.run(agent, "go", answer=answer), 30)

    with caplog.at_level("WARNING", logger="lyra"):
        assert json.loads(run(main())) == expected
    asked = [record for record in caplog.records if "MCP server tiny asks" in record.getMessage()]
    assert len(asked) == (1 if answer is None else 0)


def test_where_the_caller_of_a_call_is_unknown_the_answer_is_no(tmp_path):
    """Two processes call one server: the second question may be for either."""

    async def main():
        async with using(tiny(), folder=tmp_path) as use, Kernel(store="memory") as kernel:
            allow = {"allow": ["mcp__tiny__form"], "mode": "default"}
            ends, questions = {}, []

            async def call_alone(name):
                model = says(calls("mcp__tiny__form"), "done")
                process = await kernel.spawn(Agent(name, model=model, tools=[use.servers], permissions=allow))
                async for event in process.stream("go", events=True):
                    if isinstance(event, Interrupted):
                        questions.append(event.id)
                    if isinstance(event, ToolEnded):
                        ends[name] = sent(event)

            first = asyncio.create_task(call_alone("first"))
            await use.until(lambda: questions)
            await call_alone("second")
            kernel.resolve_interrupt(questions[0], {"data": {"name": "Bo"}})
            await first
            assert len(questions) == 1
            assert ends == {"first": {"action": "accept", "content": {"name": "Bo"}}, "second": {"action": "decline"}}

    run(main())


# ---------------------------------------------------------------- text of a model
def test_a_rule_gives_a_server_text_of_the_agents_model(tmp_path):
    """Without the conversation and without tools; it is counted, paid for by the process, and marks it."""

    async def main():
        model = says(calls("mcp__tiny__think"), "written for it", "done")
        allow = ["mcp__tiny__think", "mcp_sampling__tiny"]
        async with agent_of(tmp_path, model, allow=allow) as (kernel, process):
            decided = []
            kernel.on_event(lambda event: decided.append(event.data), kinds=["tool.decided"])
            questions, (end,) = await told(kernel, process, {})
            assert questions == []
            assert sent(end)["content"]["text"] == "written for it"
            asked = model.requests[1]
            assert "Say hello." in asked.messages[0].text
            assert "a foreign program" in asked.system
            assert (len(asked.messages), asked.tools, asked.max_tokens) == (1, (), 100)
            assert kernel.taint.is_tainted(process.pid)
            assert process.budget.used("llm_calls") == 3
            assert process.metrics.calls == 3
            assert [decision["tool"] for decision in decided] == ["mcp__tiny__think", "mcp_sampling__tiny"]

    run(main())


@pytest.mark.parametrize("rule", ["mcp__tiny__*", "mcp__*", "mcp__tiny__sampling"])
def test_a_rule_for_tools_gives_a_server_no_text(tmp_path, rule):
    """Not for all of its tools, nor for one that it could call so."""

    async def main():
        model = says(calls("mcp__tiny__think"), "words", "done")
        async with agent_of(tmp_path, model, allow=["mcp__tiny__think", rule]) as (kernel, process):
            (question,), (end,) = await told(kernel, process, {"approved": False})
            assert "Allow mcp_sampling__tiny?" in question.question
            assert "refused" in end.output

    run(main())


def test_without_a_rule_a_person_is_asked_for_text(tmp_path):
    """With the words of the server; no is no, and an answer for always is not asked again."""

    async def main():
        for answer, given in (({"approved": False}, False), ({"decision": "allow"}, True)):
            model = says(calls("mcp__tiny__think"), "words", "done")
            async with agent_of(tmp_path, model) as (kernel, process):
                (question,), (end,) = await told(kernel, process, answer)
                assert question.kind == "confirmation"
                assert "Allow mcp_sampling__tiny?" in question.question
                assert "Say hello." in question.question
                assert ("words" in end.output, "refused" in end.output) == (given, not given)
        model = says(calls("mcp__tiny__think"), "one", calls("mcp__tiny__think"), "two", "done")
        async with agent_of(tmp_path, model) as (kernel, process):
            questions, ends = await told(kernel, process, {"decision": "always"})
            assert len(questions) == 1
            assert [sent(end)["content"]["text"] for end in ends] == ["one", "two"]

    run(main())


def test_no_money_no_text(tmp_path):
    """The Budget of the process holds what a server asks for."""

    async def main():
        async with using(tiny(), folder=tmp_path) as use, Kernel(store="memory") as kernel:
            model = says(calls("mcp__tiny__think"), "words", "done")
            agent = Agent("a", model=model, tools=[use.servers], permissions={"allow": ["mcp__*"], "mode": "bypass"})
            process = await kernel.spawn(agent, budget={"llm_calls": 1})
            ends = []
            with pytest.raises(BudgetExceeded):  # its own next call
                async for event in process.stream("go", events=True):
                    ends += [event] if isinstance(event, ToolEnded) else []
            assert "refused" in ends[0].output
            assert len(model.requests) == 1

    run(main())


def test_a_replay_asks_for_nothing_twice_and_forgets_no_money(tmp_path):
    """The kernel dies after the call: the next one goes on behind it, and knows what it cost, with the call that the
    end of the kernel cut off."""
    store = str(tmp_path / "run.db")
    model = says(calls("mcp__tiny__think"), "words", {"text": "hangs", "first_s": 60}, "done")

    async def main():
        async with using(tiny(), folder=tmp_path) as use:
            agent = Agent("a", model=model, tools=[use.servers], permissions={"mode": "bypass"})
            async with Crash(Kernel(store)) as kernel:
                (await kernel.spawn(agent, pid="a")).send_async("go")
                await use.until(lambda: len(model.requests) == 3)
            async with Kernel(store, programs=[agent]) as kernel:
                process = await kernel.spawn(agent, pid="a")
                await use.until(lambda: len(process.messages) == 4)
                assert json.loads(process.messages[2].tool_results[0].output)["content"]["text"] == "words"
                assert process.messages[3].text == "done"
                assert process.budget.used("llm_calls") == 4
                assert len(model.requests) == 4
                assert not process._process.replay  # no journaled entry is left unused
                assert await process.send("more") == "done"
            async with Kernel(store, programs=[agent]) as kernel:
                process = await kernel.spawn(agent, pid="a")
                assert await process.send("and more") == "done"
                assert process.budget.used("llm_calls") == 6

    run(main())
