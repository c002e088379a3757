"""Hooks of an agent as effects of its process: what was finished is taken from the journal, and nothing runs twice."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lyra import Agent, Kernel, tool
from lyra.agents.declaration.hooks import HookOutcome
from lyra.agents.session.shared import runtime_of
from lyra.agents.turn.unfinished import UNCHECKED, find_unfinished_turn
from lyra.errors import AgentFailed, ConfigError
from lyra.tools.builtin import builtin_tools
from tests import warm
from tests.agents.support import calls, run, says
from tests.kernel.conftest import Crash, settle

ROOT = Path(__file__).parents[3]


class Counting:
    """Hooks of a program: outcomes by event, and how often each ran."""

    def __init__(self, **outcomes: Any) -> None:
        self.outcomes = outcomes
        self.ran: list[str] = []
        self.data: list[Mapping[str, Any]] = []

    def status_for(self, event: str, _data: Mapping[str, Any]) -> str | None:
        return "" if event in self.outcomes else None

    async def run(self, event: str, data: Mapping[str, Any]) -> HookOutcome:
        self.ran.append(event)
        self.data.append(data)
        outcome = self.outcomes[event]
        if isinstance(outcome, BaseException):
            raise outcome
        if callable(outcome):
            outcome = await outcome()
        return HookOutcome(**outcome)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "run.db")


@tool
async def work(n: int) -> str:
    """Work."""
    return f"done {n}"


BOTH = {"tool_calls": [{"name": "work", "arguments": {"n": n}} for n in (1, 2)]}
HANGS = {"text": "hangs", "first_s": 60}


async def crash_in_second_call(path: str, agent: Agent, model: Any) -> None:
    """Run until the model is asked for the second time, then die without a word."""
    async with Crash(Kernel(path)) as kernel:
        process = await kernel.spawn(agent, pid="helper")
        process.send_async("go")
        while len(model.requests) < 2:
            await asyncio.sleep(0.001)


async def resume(path: str, agent: Agent, messages: int) -> list[Any]:
    async with Kernel(path, programs=[agent]) as kernel:
        process = await kernel.spawn(agent, pid="helper")
        while len(process.messages) < messages:
            await asyncio.sleep(0.001)
        await settle(kernel)
        return list(process.messages)


@pytest.mark.parametrize("calls_made", [BOTH, calls("work", n=1)], ids=["in parallel", "alone"])
def test_finished_hooks_are_not_run_again_and_decide_as_before(path, calls_made):
    """After the crash the hooks would say otherwise: what they decided before counts, for each of the calls."""
    model = says(calls_made, HANGS, "{result}")
    before = Counting(
        UserPromptSubmit={"context": "more"},
        PreToolUse={"arguments": {"n": 7}, "context": "seen"},
        PostToolUse={"context": "checked"},
    )
    run(crash_in_second_call(path, Agent("helper", model=model, tools=[work], hooks=before), model))
    count = len(before.ran)
    assert count == (5 if calls_made is BOTH else 3)
    after = Counting(**{event: {"decision": "deny"} for event in before.outcomes}, Stop={})
    messages = run(resume(path, Agent("helper", model=model, tools=[work], hooks=after), 4))
    assert after.ran == ["Stop"]
    assert messages[0].text == "go\n\n[added by a hook]\nmore"
    for result in messages[2].tool_results:
        assert result.output.endswith("done 7\n\n[added by a hook]\nseen\n\n[added by a hook]\nchecked")


@pytest.mark.parametrize("left", [None, {}], ids=["no hooks any more", "hooks for nothing"])
def test_hooks_that_are_gone_still_count_for_what_they_decided(path, left):
    """A replay takes their outcomes from the journal, also without any hook in the settings."""
    model = says(BOTH, HANGS, "{result}")
    before = Counting(PreToolUse={"decision": "deny", "reason": "no"}, PostToolUseFailure={"context": "why"})
    run(crash_in_second_call(path, Agent("helper", model=model, tools=[work], hooks=before), model))
    hooks = None if left is None else Counting(**left)
    messages = run(resume(path, Agent("helper", model=model, tools=[work], hooks=hooks), 4))
    assert all("no" in result.output and "why" in result.output for result in messages[2].tool_results)


def test_hooks_that_are_new_do_not_run_for_what_is_done(path):
    """A journal without them says that none ran there."""
    model = says(BOTH, HANGS, "{result}")
    run(crash_in_second_call(path, Agent("helper", model=model, tools=[work]), model))
    events = ("UserPromptSubmit", "PreToolUse", "PostToolUse")
    after = Counting(**{event: {"decision": "deny"} for event in events}, Stop={})
    messages = run(resume(path, Agent("helper", model=model, tools=[work], hooks=after), 4))
    assert after.ran == ["Stop"]
    assert [result.output for result in messages[2].tool_results] == ["done 1", "done 2"]


def test_a_hook_that_was_cut_off_runs_again(path):
    """It had decided nothing; no question about a doubt is asked."""
    model = says(calls("work", n=1), "{result}")

    async def never() -> dict[str, Any]:
        await asyncio.sleep(60)
        return {}

    before = Counting(PreToolUse=never)

    async def first() -> None:
        async with Crash(Kernel(path)) as kernel:
            process = await kernel.spawn(Agent("helper", model=model, tools=[work], hooks=before), pid="helper")
            process.send_async("go")
            while not before.ran:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.05)  # its row is written

    run(first())
    after = Counting(PreToolUse={"context": "again"})
    messages = run(resume(path, Agent("helper", model=model, tools=[work], hooks=after), 4))
    assert after.ran == ["PreToolUse"]
    assert messages[2].tool_results[0].output == "done 1\n\n[added by a hook]\nagain"


@pytest.mark.slow
def test_kill_9_in_the_middle_of_a_turn(tmp_path):
    """Real processes, real commands: every hook that had ended before the kill ran once, and the turn comes to its
    end."""
    program = textwrap.dedent(
        """
        import asyncio, os, signal, sys
        from lyra import Agent, Kernel, tool
        from lyra.sage.extensions.hooks import Hooks, hook_from
        from tests.agents.support import calls, says

        folder, is_first = sys.argv[1], sys.argv[2] == "first"

        @tool(idempotent=True)
        async def work(n: int) -> str:
            "Work."
            if is_first and n == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            return f"done {n}"

        log = {"command": "cat >> log"}
        hooks = Hooks([hook_from({"event": e, **log}, source="user") for e in ("UserPromptSubmit", "PreToolUse",
            "PostToolUse", "Stop")], folder=folder)
        replies = [calls("work", n=1), calls("work", n=2), "the end"]
        model = says(*(replies if is_first else replies[2:]))
        agent = Agent("helper", model=model, tools=[work], hooks=hooks)

        async def main():
            async with Kernel(os.path.join(folder, "..", "run.db"), programs=[agent]) as kernel:
                process = await kernel.spawn(agent, pid="helper")
                if is_first:
                    await process.send("go")
                while len(process.messages) < 6:
                    await asyncio.sleep(0.01)
                print(process.messages[-1].text)

        asyncio.run(asyncio.wait_for(main(), 30))
        """
    )
    (tmp_path / "work").mkdir()
    script = tmp_path / "program.py"
    script.write_text(program)

    def start(word: str) -> subprocess.CompletedProcess[str]:
        return warm.run(str(script), [str(tmp_path / "work"), word])

    assert start("first").returncode == -signal.SIGKILL

    def ran() -> list[str]:
        return [json.loads(line)["event"] for line in (tmp_path / "work" / "log").read_text().splitlines()]

    assert ran() == ["UserPromptSubmit", "PreToolUse", "PostToolUse", "PreToolUse"]
    ended = start("second")
    assert ended.stdout == "the end\n", ended.stderr
    assert ran()[4:] == ["PostToolUse", "Stop"]


def test_an_unfinished_turn_shows_what_hooks_left_of_it(path):
    """A session that comes back without going on has no result that hooks withheld, or had not looked at to the end."""
    model = says(BOTH, HANGS)
    hooks = Counting(UserPromptSubmit={"context": "more"}, PostToolUse={"decision": "deny", "reason": "secret"})
    agent = Agent("helper", model=model, tools=[work], hooks=hooks)
    run(crash_in_second_call(path, agent, model))

    async def look() -> Any:
        async with Kernel(path) as kernel:
            return find_unfinished_turn(kernel, "helper")

    turn = run(look())
    assert turn.question.text == "go\n\n[added by a hook]\nmore"
    assert [result.output for result in turn.messages[1].tool_results] == ["the result of work is withheld: secret"] * 2


def test_an_unfinished_turn_hides_what_a_hook_was_looking_at(path):
    model = says(calls("work", n=1), "the end")
    looking = asyncio.Event()

    async def look_for_ever() -> dict[str, Any]:
        looking.set()
        await asyncio.sleep(60)
        return {}

    async def first() -> None:
        async with Crash(Kernel(path)) as kernel:
            hooks = Counting(PostToolUse=look_for_ever)
            process = await kernel.spawn(Agent("helper", model=model, tools=[work], hooks=hooks), pid="helper")
            process.send_async("go")
            await looking.wait()
            await asyncio.sleep(0.05)  # its row is written

    async def look() -> Any:
        async with Kernel(path) as kernel:
            return find_unfinished_turn(kernel, "helper")

    run(first())
    assert [result.output for result in run(look()).messages[1].tool_results] == [UNCHECKED]


# ---------------------------------------------------------------- any object with the two methods
def test_hooks_that_raise_deny():
    """Where hooks cannot say what they decide, nothing is allowed."""
    hooks = Counting(PreToolUse=RuntimeError("broken"))
    model = says(calls("work", n=1), "{result}")

    async def ask() -> str:
        async with Kernel() as kernel:
            process = await kernel.spawn(Agent("helper", model=model, tools=[work], hooks=hooks))
            return await process.send("go")

    assert "the hooks for PreToolUse failed: RuntimeError: broken" in run(ask())


def test_what_is_not_hooks_is_refused():
    with pytest.raises(ConfigError, match="status_for and run"):
        Agent("helper", model="sim/echo", hooks=object())  # type: ignore[call-overload]


def test_a_key_that_a_hook_puts_into_arguments_reaches_no_tool(monkeypatch):
    """The call is denied, and neither the journal nor the model has the key."""
    key = "sk-known-0123456789abcdef"
    monkeypatch.setenv("ANTHROPIC_API_KEY", key)
    hooks = Counting(PreToolUse={"arguments": {"n": 1, "key": key}})
    model = says(calls("work", n=1), "{result}")

    async def ask() -> tuple[str, str]:
        async with Kernel() as kernel:
            process = await kernel.spawn(Agent("helper", model=model, tools=[work], hooks=hooks))
            return await process.send("go"), str(process.messages)

    answer, messages = run(ask())
    assert "a key of a model provider" in answer
    assert key not in messages


def test_arguments_that_no_call_can_have_are_a_denial():
    nested: Any = 1
    for _ in range(300):
        nested = [nested]
    model = says(calls("work", n=1), "{result}")
    hooks = Counting(PreToolUse={"arguments": {"n": nested}})

    async def ask() -> str:
        async with Kernel() as kernel:
            process = await kernel.spawn(Agent("helper", model=model, tools=[work], hooks=hooks))
            return await process.send("go")

    assert "cannot be used" in run(ask())


def test_the_window_moves_by_itself_only_where_hooks_let_it():
    """An automatic compaction asks PreCompact with the trigger `auto`."""
    replies = [{"text": "long " * 200}, {"text": "a summary"}, {"text": "last"}]

    async def ask(**outcomes: Any) -> tuple[str, Counting]:
        hooks = Counting(**outcomes)
        context = {"kind": "compact", "tokens": 200}
        agent = Agent("helper", model=says(*replies), context=context, hooks=hooks)
        async with Kernel() as kernel:
            process = await kernel.spawn(agent, pid="helper")
            await process.send("first")
            await process.send("second")
            return runtime_of(kernel).sessions["helper"].window.summary, hooks

    summary, hooks = run(ask(PreCompact={}, SessionStart={"context": "the rules"}))
    assert summary == "a summary\n\n[added by a hook]\nthe rules"
    assert [data.get("trigger") for data in hooks.data] == ["auto", None]
    summary, hooks = run(ask(PreCompact={"decision": "deny"}, SessionStart={"context": "the rules"}))
    assert (summary, hooks.ran) == ("", ["PreCompact"])


def test_a_typed_answer_that_may_not_end_begins_again():
    """The reader of a stream is told to drop the first answer."""
    hooks = Counting(Stop={"decision": "deny", "reason": "more"})
    model = says({"text": '{"a": 1}'}, {"text": '{"a": 2}'})

    async def ask() -> tuple[Any, list[str]]:
        async with Kernel() as kernel:
            agent = Agent("helper", model=model, output=dict[str, int], hooks=hooks)
            process = await kernel.spawn(agent)
            stream = process.stream("go", events=True)
            types: list[str] = [event.type async for event in stream]
            return await stream, types

    answer, types = run(ask())
    assert answer == {"a": 2}
    assert types.count("restart") == 3


def test_the_last_call_of_the_model_is_the_end_whatever_hooks_say():
    """An answer is not thrown away because no call is left to go on with."""
    hooks = Counting(Stop={"decision": "deny"})

    async def ask() -> str:
        async with Kernel() as kernel:
            agent = Agent("helper", model=says("fine"), max_iterations=2, hooks=hooks)
            return await (await kernel.spawn(agent)).send("go")

    assert run(ask()) == "fine"
    assert hooks.ran == ["Stop", "Stop"]


def test_a_refused_message_is_an_error_of_the_caller_alone():
    """The conversation goes on without it."""
    hooks = Counting(UserPromptSubmit={"decision": "deny", "reason": "no"})

    async def ask() -> list[Any]:
        async with Kernel() as kernel:
            process = await kernel.spawn(Agent("helper", model=says("fine"), hooks=hooks))
            with pytest.raises(AgentFailed, match="refused the message") as raised:
                await process.send("one")
            assert raised.value.fields["status"] == "message_refused"
            hooks.outcomes.clear()
            assert await process.send("two") == "fine"
            return [message.text for message in process.messages]

    assert run(ask()) == ["two", "fine"]


def test_an_answer_of_a_hook_for_a_question_without_a_person_is_replayed(path, tmp_path):
    """The file was written because a hook allowed it; after the crash the same call is found done, not judged anew."""
    (tmp_path / "work").mkdir()
    model = says(calls("Write", file_path="a.txt", content="x"), HANGS, "{result}")

    def agent(hooks: Counting) -> Agent:
        tools = builtin_tools(str(tmp_path / "work"))
        return Agent("helper", model=model, tools=tools, permissions={"attended": False}, hooks=hooks)

    before, after = Counting(PermissionRequest={"decision": "allow"}), Counting(PermissionRequest={"decision": "deny"})
    run(crash_in_second_call(path, agent(before), model))
    assert (tmp_path / "work" / "a.txt").read_text() == "x"
    messages = run(resume(path, agent(after), 4))
    assert (before.ran, after.ran) == (["PermissionRequest"], [])
    assert not messages[2].tool_results[0].is_error


def test_a_helper_without_hooks_has_those_of_its_caller():
    """It is a sub-agent for them, named after its agent; one with hooks of its own keeps these."""
    own = Counting(SubagentStop={})
    for hooks_of_helper in (None, own):
        hooks = Counting(SubagentStart={}, PreToolUse={}, SubagentStop={}, Stop={})
        helper = Agent("writer", model=says(calls("work", n=1), "{result}"), tools=[work], hooks=hooks_of_helper)
        caller = Agent("lead", model=says(calls("writer", task="write"), "done"), tools=[helper], hooks=hooks)

        async def ask(caller: Agent = caller) -> None:
            async with Kernel() as kernel:
                assert await (await kernel.spawn(caller)).send("go") == "done"

        run(ask())
        types = [(event, data.get("agent_type")) for event, data in zip(hooks.ran, hooks.data, strict=True)]
        inside = [("SubagentStart", "writer"), ("PreToolUse", "writer"), ("SubagentStop", "writer")]
        expected = inside if hooks_of_helper is None else []
        assert types == [("PreToolUse", None), *expected, ("Stop", None)]
    assert own.ran == ["SubagentStop"]
