"""Agents with a store: what was finished is not repeated, whatever happened in between."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest

from lyra import Agent, Kernel, tool
from lyra.errors import AgentFailed, ModelError
from tests import warm
from tests.agents.support import calls, run, says
from tests.kernel.conftest import Crash, settle

ROOT = Path(__file__).parents[3]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "run.db")


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def test_a_conversation_goes_on_after_a_restart(path):
    """A second kernel on the store knows what was said; the model is not asked again for it."""
    model = says("one", "two")
    agent = Agent("helper", model=model)

    async def first():
        async with Kernel(path) as kernel:
            process = await kernel.spawn(agent, pid="helper")
            assert await process.send("first") == "one"

    async def second():
        async with Kernel(path, programs=[agent]) as kernel:
            process = await kernel.spawn(agent, pid="helper")
            assert await process.send("second") == "two"
            return [message.text for message in process.messages], process.metrics.calls

    run(first())
    assert run(second()) == (["first", "one", "second", "two"], 2)
    assert len(model.requests) == 2


def test_finished_tools_are_not_run_again(path):
    """Killed after the tools and before the answer: the tools' results are the journal's."""
    ran: list[int] = []

    @tool
    async def work(n: int) -> str:
        ran.append(n)
        return f"done {n}"

    both = {"tool_calls": [{"name": "work", "arguments": {"n": n}} for n in (1, 2)]}
    model = says(both, {"text": "hangs", "first_s": 60}, "{result}")
    agent = Agent("helper", model=model, tools=[work])

    async def first():
        async with Crash(Kernel(path)) as kernel:
            process = await kernel.spawn(agent, pid="helper")
            process.send_async("go")
            while len(model.requests) < 2:
                await asyncio.sleep(0.001)

    async def second():
        async with Kernel(path, programs=[agent]) as kernel:
            process = await kernel.spawn(agent, pid="helper")
            while len(process.messages) < 4:
                await asyncio.sleep(0.001)
            return process.messages[-1].text

    run(first())
    assert run(second()) == "done 1\ndone 2"
    assert ran == [1, 2]
    assert len(model.requests) == 3  # the tools' turn, the answer that was cut off, and that answer again


def test_a_long_conversation_is_checkpointed(path):
    """After many turns a restart replays only the last ones, and knows all of them."""
    model = says("ok")
    agent = Agent("helper", model=model)

    async def first():
        async with Kernel(path) as kernel:
            process = await kernel.spawn(agent, pid="helper")
            for n in range(100):
                await process.send(f"message {n}")

    async def second():
        async with Kernel(path, programs=[agent]) as kernel:
            process = await kernel.spawn(agent, pid="helper")
            await settle(kernel)
            assert len(process.messages) == 200
            assert process.metrics.calls == 100
            await process.send("one more")
            return process.messages

    run(first())
    messages = run(second())
    assert [messages[0].text, messages[198].text, messages[200].text] == ["message 0", "message 99", "one more"]
    assert len(model.requests) == 101


def test_giving_up_is_replayed(path):
    """A cancelled question, its parallel tools too, is met again as cancelled, and the conversation goes on."""
    ran: list[int] = []

    @tool
    async def work(n: int) -> str:
        ran.append(n)
        await asyncio.sleep(60 if 0 < n < 5 else 0)
        return f"done {n}"

    many = {"tool_calls": [{"name": "work", "arguments": {"n": n}} for n in range(5)]}
    few = {"tool_calls": [{"name": "work", "arguments": {"n": n}} for n in (7, 8)]}
    agent = Agent("helper", model=says("hello", many, few, "next", "last"), tools=[work], max_parallel_tools=3)

    async def first():
        async with Kernel(path) as kernel:
            process = await kernel.spawn(agent, pid="helper")
            await process.send("hi")
            pending = process.send_async("go")
            while len(ran) < 4:
                await asyncio.sleep(0.001)
            pending.cancel()
            assert await process.send("again") == "next"

    async def second():
        async with Kernel(path, programs=[agent]) as kernel:
            process = await kernel.spawn(agent, pid="helper")
            assert await process.send("more", timeout=5) == "last"
            return [message.text for message in process.messages]

    run(first())
    assert run(second()) == ["hi", "hello", "again", "", "", "next", "more", "last"]
    assert sorted(ran) == [0, 1, 2, 3, 7, 8]


def test_giving_up_on_a_model_is_replayed(path):
    """The same for a model call that was cut off."""
    agent = Agent("helper", model=says({"text": "late", "first_s": 60}, "next", "last"))

    async def first():
        async with Kernel(path) as kernel:
            process = await kernel.spawn(agent, pid="helper")
            pending = process.send_async("go")
            await asyncio.sleep(0.02)
            pending.cancel()
            assert await process.send("again") == "next"

    async def second():
        async with Kernel(path, programs=[agent]) as kernel:
            process = await kernel.spawn(agent, pid="helper")
            assert await process.send("more", timeout=5) == "last"
            return [message.text for message in process.messages]

    run(first())
    assert run(second()) == ["again", "next", "more", "last"]


def test_a_failed_turn_is_replayed(path):
    """An error of the model's is met again, not asked for again."""
    model = says({"error": {"kind": "auth"}}, "fine", "more")
    agent = Agent("helper", model=model)

    async def first():
        async with Kernel(path) as kernel:
            process = await kernel.spawn(agent, pid="helper")
            with pytest.raises(ModelError):
                await process.send("one")
            assert await process.send("two") == "fine"

    async def second():
        async with Kernel(path, programs=[agent]) as kernel:
            process = await kernel.spawn(agent, pid="helper")
            assert await process.send("three") == "more"
            return process.metrics.errors, [message.text for message in process.messages]

    run(first())
    assert run(second()) == (1, ["two", "fine", "three", "more"])
    assert len(model.requests) == 3


def test_a_tool_may_ask_a_human_across_restarts(path):
    """A tool that takes `ctx` is part of the program: its question waits, also for another kernel."""
    sent: list[str] = []

    @tool
    async def send_mail(ctx: Any, to: str) -> str:
        """Send a mail."""
        answer = await ctx.ask(f"Send to {to}?", kind="confirmation")
        if not answer.approved:
            return "not sent"

        async def post(to: str) -> str:
            sent.append(to)
            return f"sent to {to}"

        return str(await ctx.do(post, to))

    agent = Agent("helper", model=says(calls("send_mail", to="ann"), "{result}", "more"), tools=[send_mail])
    assert set(send_mail.schema["properties"]) == {"to"}

    async def ask():
        async with Crash(Kernel(path)) as kernel:
            process = await kernel.spawn(agent, pid="helper")
            process.send_async("go")
            while kernel.get_pending_interrupt("helper") is None:
                await asyncio.sleep(0.001)

    async def answer():
        async with Kernel(path, programs=[agent]) as kernel:
            process = await kernel.spawn(agent, pid="helper")
            question = kernel.get_pending_interrupt("helper")
            assert question.question == "Send to ann?"
            await kernel.resolve_interrupt(question.id, {"approved": True, "text": "yes"})
            while len(process.messages) < 4:
                await asyncio.sleep(0.001)
            return process.messages[-1].text

    async def later():
        async with Kernel(path, programs=[agent]) as kernel:
            process = await kernel.spawn(agent, pid="helper")
            assert await process.send("again") == "more"
            return [message.role for message in process.messages]

    run(ask())
    assert run(answer()) == "sent to ann"
    assert run(later()) == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    assert sent == ["ann"]


@pytest.mark.parametrize(("decision", "result", "count"), [("retry", "paid 2", 2), ("skip", "seen to", 1)])
def test_a_tool_in_doubt_asks(path, decision, result, count):
    """A tool that must not run twice was running when the kernel died: a human says what to do."""
    ran: list[int] = []

    @tool
    async def pay() -> str:
        ran.append(1)
        if len(ran) == 1:
            await asyncio.sleep(60)
        return f"paid {len(ran)}"

    agent = Agent("helper", model=says(calls("pay"), "{result}"), tools=[pay])

    async def first():
        async with Crash(Kernel(path)) as kernel:
            process = await kernel.spawn(agent, pid="helper")
            process.send_async("go")
            while not ran:
                await asyncio.sleep(0.001)

    async def second():
        async with Kernel(path, programs=[agent]) as kernel:
            process = await kernel.spawn(agent, pid="helper")
            while kernel.get_pending_interrupt("helper") is None:
                await asyncio.sleep(0.001)
            question = kernel.get_pending_interrupt("helper")
            assert question.kind == "in_doubt"
            assert "tool:pay" in question.question
            await kernel.resolve_interrupt(question.id, {"decision": decision, "data": "seen to", "text": decision})
            while len(process.messages) < 4:
                await asyncio.sleep(0.001)
            return process.messages[-1].text

    run(first())
    assert run(second()) == result
    assert len(ran) == count


def test_a_supervised_agent_survives_crashes_of_both_kinds(path):
    """A crash of the program loses the conversation, a crash of the kernel does not; the pid stays good throughout."""
    broken = [1]

    def system(_session: Any) -> str:
        if broken:
            broken.clear()
            raise RuntimeError("broken")
        return "fine"

    model = says("one", "two", "three")
    agent = Agent("helper", model=model, system=system, supervision={"strategy": "restart"})

    async def first():
        async with Crash(Kernel(path)) as kernel:
            process = await kernel.spawn(agent, pid="helper")
            with pytest.raises(AgentFailed):
                await process.send("bad")
            assert await process.send("good") == "one"

    async def second():
        async with Kernel(path, programs=[agent]) as kernel:
            process = await kernel.spawn(agent, pid="helper")
            assert await process.send("better") == "two"
            return [message.text for message in process.messages]

    run(first())
    assert run(second()) == ["good", "one", "better", "two"]


def test_a_message_without_a_caller_is_answered_too(path):
    """`kernel.send` puts a plain message in; whatever it is, it is a turn, and after a restart it still was one."""
    model = says("one", "two", "three")
    agent = Agent("helper", model=model)

    async def first():
        async with Kernel(path) as kernel:
            process = await kernel.spawn(agent, pid="helper")
            kernel.send("helper", {"order": 7})
            assert await process.send("hello") == "two"

    async def second():
        async with Kernel(path, programs=[agent]) as kernel:
            process = await kernel.spawn(agent, pid="helper")
            await process.send("more")
            return [message.text for message in process.messages]

    run(first())
    assert run(second()) == ['{"order":7}', "one", "hello", "two", "more", "three"]


PROGRAM = """
    import asyncio, os, sys
    from lyra import Agent, Kernel, tool
    from lyra.models.sim import SimProvider

    log = sys.argv[2]

    def note(text):
        with open(log, "a") as file:
            file.write(text + "\\n")

    @tool(idempotent=True)
    async def work(n: int) -> str:
        note(f"tool {n}")
        await asyncio.sleep(0.02)
        return f"done {n}"

    def answer(request):
        turn = sum(message.role == "assistant" for message in request.messages)
        note(f"model {turn}")
        if turn % 2 == 0:
            return {"tool_calls": [{"name": "work", "arguments": {"n": turn * 10 + i}} for i in range(3)]}
        return f"answer {turn}"

    agent = Agent("worker", model=SimProvider(answer), tools=[work])

    async def main():
        async with Kernel(sys.argv[1], programs=[agent]) as kernel:
            process = await kernel.spawn(agent, pid="worker")
            await asyncio.sleep(0.2)  # what the journal holds has been replayed, and goes on
            while len(process.messages) % 4:
                await asyncio.sleep(0.01)
            for turn in range(len(process.messages) // 4, 8):
                print(await process.send(f"go {turn}"), flush=True)
            print("messages", len(process.messages), process.metrics.calls, process.metrics.tool_calls, flush=True)

    asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 3])
def test_kill_9_repeats_nothing_that_was_finished(tmp_path, after):
    """SIGKILL in the middle, twice: at most what was in flight is done again, everything else once."""
    program, store, log = tmp_path / "program.py", tmp_path / "run.db", tmp_path / "log"
    program.write_text(textwrap.dedent(PROGRAM))
    for _ in range(2):
        process = warm.start(str(program), [str(store), str(log)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        for _ in range(after):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    out = warm.run(str(program), [str(store), str(log)]).stdout.splitlines()
    assert out[-1] == "messages 32 16 24", json.dumps(out)
    done = log.read_text().splitlines()
    counts = {line: done.count(line) for line in done}
    assert len(counts) == 16 + 24
    assert sum(count - 1 for count in counts.values()) <= 2 * 3  # in flight at one of the two kills: one turn's tools
