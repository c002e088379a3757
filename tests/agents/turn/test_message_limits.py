"""The limit of one message: calls that none of its rules matches are denied, and it never allows anything."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lyra import Agent, Kernel, tool
from lyra.agents.helpers.task import task_tool
from lyra.agents.session.shared import runtime_of
from lyra.errors import ConfigError
from lyra.tools.permissions import Permissions, Rule
from tests.agents.support import calls, run, says
from tests.kernel.conftest import Crash

ALLOW_ALL = [Rule("*", "allow")]


class Shell:
    """A `Bash`, an `other` tool and a harmless one, which remember that they ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    @property
    def tools(self) -> list[Any]:
        def bash(command: str) -> str:
            self.ran.append(command)
            return "ok"

        def other() -> str:
            self.ran.append("other")
            return "ok"

        def note() -> str:
            self.ran.append("note")
            return "ok"

        return [
            tool(bash, name="Bash", guarded=True, trusted=True),
            tool(other, name="other", trusted=True),
            tool(note, name="note", harmless=True, trusted=True),
        ]


def sent(agent: Agent, *messages: tuple[str, Any], store: str = "memory") -> list[str]:
    """The answers to messages, each with its `only`."""

    async def main() -> list[str]:
        async with Kernel(store) as kernel:
            process = await kernel.spawn(agent)
            return [str(await process.send(text, only=only)) for text, only in messages]

    answers: list[str] = run(main())
    return answers


def worker(shell: Shell, *replies: Any, permissions: Permissions | None = None, tools: Any = ()) -> Agent:
    return Agent("worker", model=says(*replies), tools=[*shell.tools, *tools], permissions=permissions)


def bash(command: str) -> dict[str, Any]:
    return calls("Bash", command=command)


def test_a_call_outside_the_limit_is_denied() -> None:
    """Although a rule allows it; the model is told what it may use."""
    shell = Shell()
    agent = worker(shell, bash("git push"), "{result}", permissions=Permissions(ALLOW_ALL))
    (answer,) = sent(agent, ("go", ["Read", "Bash(git diff *)"]))
    assert shell.ran == []
    assert "only Read, Bash(git diff *) may be used here" in answer


def test_a_call_inside_the_limit_runs_and_harmless_tools_stay() -> None:
    shell = Shell()
    script = (bash("git diff a"), calls("note"), "done")
    sent(worker(shell, *script, permissions=Permissions(ALLOW_ALL)), ("go", ["Bash(git diff *)"]))
    assert shell.ran == ["git diff a", "note"]


def test_a_chain_does_not_match_a_pattern_of_the_limit() -> None:
    shell = Shell()
    agent = worker(shell, bash("git diff a; rm -r b"), "done", permissions=Permissions(ALLOW_ALL))
    sent(agent, ("go", ["Bash(git diff *)"]))
    assert shell.ran == []


def test_an_empty_limit_denies_all() -> None:
    shell = Shell()
    sent(worker(shell, calls("other"), "done", permissions=Permissions(ALLOW_ALL)), ("go", []))
    assert shell.ran == []


def test_the_limit_allows_nothing() -> None:
    """What no rule allows is still denied where no person is there, and what a rule denies is denied."""
    shell = Shell()
    for permissions in (Permissions(attended=False), Permissions([*ALLOW_ALL, Rule("Bash", "deny")])):
        sent(worker(shell, bash("make"), "done", permissions=permissions), ("go", ["Bash"]))
    assert shell.ran == []


def test_the_limit_ends_with_its_message() -> None:
    shell = Shell()
    agent = worker(shell, calls("other"), "a", calls("other"), "b", permissions=Permissions(ALLOW_ALL))
    sent(agent, ("first", ["Read"]), ("second", None))
    assert shell.ran == ["other"]


def test_an_agent_without_permissions_is_limited_too() -> None:
    shell = Shell()
    sent(worker(shell, calls("other"), "done"), ("go", ["Read"]))
    assert shell.ran == []
    sent(worker(shell, calls("other"), "done"), ("go", ["other"]))
    assert shell.ran == ["other"]


@pytest.mark.parametrize("permissions", [None, Permissions(ALLOW_ALL)])
def test_a_sub_agent_has_the_limit_of_its_callers_message(permissions: Permissions | None) -> None:
    shell = Shell()
    script = (calls("Task", description="d", prompt="p"), calls("other"), "sub", "done")
    sent(worker(shell, *script, permissions=permissions, tools=[task_tool()]), ("go", ["Read"]))
    assert shell.ran == []


def test_a_second_limit_narrows_the_first() -> None:
    """A tool that runs in the turn can limit the rest of it, and only more."""
    shell = Shell()

    async def narrow(ctx: Any) -> str:
        runtime_of(ctx.own_process.kernel).sessions[ctx.pid].limit(["other", "Bash"])
        return "narrowed"

    narrowing = tool(narrow, name="narrow", harmless=True, trusted=True)
    script = (calls("narrow"), bash("make"), calls("other"), "done")
    agent = worker(shell, *script, permissions=Permissions(ALLOW_ALL), tools=[narrowing])
    sent(agent, ("go", ["other"]))
    assert shell.ran == ["other"]


def test_the_limit_outlives_its_kernel(tmp_path: Path) -> None:
    """Killed in the middle of the turn: calls that come after the restart have the limit of their message."""
    shell = Shell()
    model = says({"text": "hangs", "first_s": 60, "times": 1}, calls("other"), "done")
    agent = Agent("worker", model=model, tools=shell.tools, permissions=Permissions(ALLOW_ALL))
    store = str(tmp_path / "run.db")

    async def first() -> None:
        async with Crash(Kernel(store)) as kernel:
            (await kernel.spawn(agent, pid="worker")).send_async("go", only=["Read"])
            while not model.requests:
                await asyncio.sleep(0.001)

    async def second() -> str:
        async with Kernel(store, programs=[agent]) as kernel:
            process = await kernel.spawn(agent, pid="worker")
            while len(process.messages) < 4:
                await asyncio.sleep(0.001)
            return process.messages[-1].text

    run(first())
    assert run(second()) == "done"
    assert shell.ran == []


def test_streams_have_limits_too() -> None:
    shell = Shell()
    agent = worker(shell, calls("other"), "done", permissions=Permissions(ALLOW_ALL))

    async def main() -> None:
        async with Kernel("memory") as kernel:
            process = await kernel.spawn(agent)
            assert [event async for event in process.stream("go", events=True, only=["Read"])]

    run(main())
    assert shell.ran == []


@pytest.mark.parametrize("only", ["Read", ["("], [7]])
def test_a_wrong_limit_is_refused_at_once(only: Any) -> None:
    with pytest.raises(ConfigError):
        sent(worker(Shell(), "done"), ("go", only))
