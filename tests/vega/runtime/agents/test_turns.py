"""The turns of an agent: what its own tools ask of it, and what a program asks while it reads a stream."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lyra import Agent, Kernel, tool
from lyra.models.provider import Request
from lyra.models.script import Reply
from lyra.models.sim import SimProvider
from lyra.testing.loop import run as run_in_virtual_time
from tests.agents.support import clock_here
from tests.vega.plan.test_parallel import play

ASKING = """agent A { model "sim/script" %s tool pass(x: str) -> str { return other <- x; } }
let other = spawn A; let a = spawn A;
"""
DEEP = """agent A { model "sim/script" concurrency 1
    tool pass(x: str) -> str { if x == "111" { return "end"; } return other <- "deep 1" + x; } }
let other = spawn A; print(other <- "deep 1");
"""


def model(request: Request) -> Reply:
    """`deep …` calls the tool, `deep twice` calls it twice at one time."""
    last = request.messages[-1]
    if last.role == "tool":
        return Reply(text=" ".join(f"said {result.output}" for result in last.tool_results), first_s=0.1)
    if last.text.startswith("deep"):
        arguments = {"x": last.text.removeprefix("deep").strip() or "plain"}
        calls = [{"name": "pass", "arguments": arguments}] * (2 if "twice" in last.text else 1)
        return Reply.from_data({"tool_calls": calls, "first_s": 0.1})
    return Reply(text=f"<{last.text}>", first_s=0.1)


@pytest.mark.parametrize("sequential", [True, False])
@pytest.mark.parametrize(
    "settings", ["concurrency 1", "concurrency 1 timeout 5s", "concurrency 2", "", "concurrency 1 memory conversation"]
)
def test_a_tool_asks_another_process_of_its_own_agent(settings, sequential):
    """It is asked in the turn of the call that uses the tool, which waits for it."""
    ran = play(ASKING % settings + 'print(a <- "deep"); print(a <- "plain");', script=model, sequential=sequential)
    assert ran.lines == ["said <plain>", "<plain>"]


def test_two_calls_whose_tools_ask_do_not_wait_for_each_other():
    source = ASKING % "concurrency 2" + 'parallel { let p = a <- "deep"; let q = other <- "deep"; } print(p + q);'
    assert play(source, script=model).lines == ["said <plain>said <plain>"]


def test_what_the_tools_of_one_call_ask_is_answered_one_after_the_other():
    """No more questions are under way than the concurrency allows, also where one answer calls two tools."""
    ran = play(ASKING % "concurrency 1" + 'print(a <- "deep twice");', script=model)
    assert ran.lines == ["said <twice> said <twice>"]
    assert ran.took_s == pytest.approx(0.4)


def test_a_tool_that_is_asked_by_itself_again_and_again():
    assert play(DEEP, script=model).lines == ["said said said end"]


@pytest.mark.parametrize("settings", ["memory conversation", "memory conversation concurrency 1"])
def test_a_conversation_that_its_own_tool_asks_is_a_deadlock(settings):
    """The model is told, and the run goes on."""
    source = (ASKING % settings).replace("let a = spawn A;", "let a = other;")
    first, second = play(source + 'print(a <- "deep"); print(a <- "plain");', script=model).lines
    assert first == (
        "said Deadlock: A is asked by its own tool, and answers one message after the other; "
        "let the tool ask another process of A"
    )
    assert second == "<plain>"


def test_a_conversation_that_waits_for_itself_by_way_of_another_is_a_deadlock():
    source = """agent A { model "sim/script" memory conversation tool pass(x: str) -> str { return b <- "deep"; } }
    agent B { model "sim/script" memory conversation tool pass(x: str) -> str { return a <- "plain"; } }
    let a = spawn A; let b = spawn B; print(a <- "deep");"""
    (line,) = play(source, script=model).lines
    assert line.startswith("said said Deadlock: A is asked by its own tool")


@pytest.mark.parametrize("asked", ['print(a <- "2");', 'for d in a <~ "2" { print(d); }'])
def test_asking_while_a_stream_is_read_that_has_the_only_turn_is_a_deadlock(asked):
    """The place is that of the question, and the text says what to do."""
    source = 'agent A { model "sim/script" concurrency 1 }\nlet a = spawn A;\nfor c in a <~ "1" {\n' + asked + "\n}"
    line = play(source, script=model).lines[-1]
    assert "error[Deadlock]: A is asked while a stream of it is read, and its concurrency is 1" in line
    assert "read the stream to its end first, or raise the concurrency" in line
    assert "x.vega:4:" in line


def test_asking_while_a_stream_is_read_where_there_is_room():
    source = 'agent A { model "sim/script" concurrency 2 } let a = spawn A; for c in a <~ "1" { print(a <- c); }'
    assert play(source, script=model).lines == ["<<1>>"]


def test_a_python_tool_that_asks_its_own_process_is_told_so():
    held: list[Any] = []

    @tool
    async def back(x: str) -> str:
        """Asks the agent that uses it."""
        return str(await held[0].send(x))

    def answer(request: Request) -> Reply:
        last = request.messages[-1]
        if last.role == "tool":
            return Reply(text=f"said {last.tool_results[0].output}")
        return Reply.from_data({"tool_calls": [{"name": "back", "arguments": {"x": "y"}}]})

    async def main() -> str:
        async with Kernel(clock=clock_here()) as kernel:
            held.append(await kernel.spawn(Agent("a", model=SimProvider(answer), tools=[back])))
            async with asyncio.timeout(60):
                return str(await held[0].send("x"))

    assert "is asked by its own tool, and answers one message after the other" in run_in_virtual_time(main())
