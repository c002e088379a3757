"""The comparison of code agents: its tasks are whole, and a run of Sage is measured from outside."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from verify.compare import code_agent_runs, code_agents
from verify.compare.code_agent_runs import CodeAgent, Sent, agents
from verify.compare.code_agent_tasks import TASKS, CodeTask, Commit, Edit, Read, Run, Search, Write

TASK = CodeTask(
    "change a line",
    "tiny-1",
    "",
    "Change it.",
    ((Search("x = 1"),), (Read("a.py"), Edit("a.py", "1", "2")), (Run("python3 a.py"), Write("b.txt", "new\n"))),
    "grep -q 'x = 2' a.py && test -f b.txt",
)


@pytest.fixture
def sage(monkeypatch: pytest.MonkeyPatch) -> CodeAgent:
    def lay_out(_task: CodeTask, folder: Path) -> Path:
        project = folder / "tiny"
        project.mkdir()
        (project / "a.py").write_text("x = 1\nprint(x)\n")
        return project

    monkeypatch.setattr(code_agents, "lay_out", lay_out)
    return agents(["sage"])[0]


def test_every_task_has_a_project_of_its_own_and_a_check() -> None:
    assert len({task.source for task in TASKS}) == len({task.name for task in TASKS}) == 10
    assert all(len(task.sha256) == 64 and task.check and task.turns for task in TASKS)
    kinds = {type(step) for task in TASKS for turn in task.turns for step in turn}
    assert kinds == {Read, Search, Edit, Write, Run, Commit}


def test_an_edit_of_a_part_of_lines_is_a_patch_of_whole_lines() -> None:
    text = "def f(a):\n    return a\n"
    assert code_agent_runs._whole_lines(text, "f(a):\n    return", "g(a):\n    yield") == [
        "-def f(a):",
        "-    return a",
        "+def g(a):",
        "+    yield a",
    ]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/messages", {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": "one"}]}]}),
        ("/v1/chat/completions", {"messages": [{"role": "tool", "content": "one"}]}),
        ("/v1/responses", {"input": [{"type": "function_call_output", "output": "one"}]}),
    ],
)
def test_results_are_found_in_every_format(path: str, body: dict[str, Any]) -> None:
    assert Sent(0.0, path, body, 0).results() == ["one"]


@pytest.mark.slow
def test_a_run_of_sage_is_measured(sage: CodeAgent) -> None:
    """The work is there, every call was answered, and what the run used is more than nothing."""
    done = asyncio.run(code_agents.do_task(sage, TASK))
    assert (done.solved, done.steps, done.steps_done) == (True, 5, 5)
    assert 5_000 < done.head_bytes < done.sent_bytes
    assert done.run.cpu_s > 0.1
    assert done.run.memory_bytes > 20_000_000
    assert 0 < done.run.request_s < done.run.words_s <= done.run.wall_s


@pytest.mark.long
def test_a_crash_of_sage_loses_no_result(sage: CodeAgent) -> None:
    sent, kept, goes_on = asyncio.run(code_agents.crash_between(sage, TASK))
    assert (sent, kept, goes_on) == (3, 3, True)
