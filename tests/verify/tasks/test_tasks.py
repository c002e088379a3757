"""The task suite of Sage: every task is solved by its script, and what goes wrong in a task is reported."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from lyra.testing.mock.server import MockServer
from tests import warm
from verify.__main__ import main
from verify.tasks import harness
from verify.tasks.harness import TaskOutcome, run_task
from verify.tasks.task import HelperStep, Step, Task, load_tasks

pytestmark = pytest.mark.slow

TASKS = {task.name: task for task in load_tasks()}
REAL = "anthropic/claude-sonnet-4-5"


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


READ = Step([call("Read", file_path="answer.txt")])
WRITE = Step([call("Write", file_path="answer.txt", content="yes\n")])
# A task for bugs to be planted in.
SMALL = Task(
    name="small",
    prompt="Say yes.",
    check="grep -q yes answer.txt",
    before={"answer.txt": "no\n", "other.txt": "as it was\n"},
    after={"answer.txt": "yes\n"},
    steps=[READ, WRITE],
    kept=["other.txt"],
)


def problems(task: Task, **options: Any) -> list[str]:
    return run_task(task, command=warm.command("lyra.cli.main:sage"), **options).problems


@pytest.mark.parametrize("name", TASKS)
def test_the_script_solves_the_task(name: str):
    """Every call ends as the task says, the tree and the check are right, and the check fails before."""
    assert problems(TASKS[name]) == []


def test_there_are_enough_tasks_of_enough_kinds():
    """The suite uses every tool for files and commands, sub-agents, and calls that fail."""
    used = {call["name"] for task in TASKS.values() for step in task.steps for call in step.calls}
    assert len(TASKS) >= 50
    assert used >= {"Read", "Write", "Edit", "MultiEdit", "Glob", "Grep", "NotebookEdit", "Bash", "BashOutput"}
    assert used >= {"KillShell", "TodoWrite", "Task", "RepoMap", "Git"}
    assert sum(any(step.fails for step in task.steps) for task in TASKS.values()) >= 3
    assert sum(bool(task.helpers) for task in TASKS.values()) >= 3
    steps = [step for task in TASKS.values() for step in task.steps]
    assert {step.error["kind"] for step in steps if step.error} >= {"rate_limit", "stream_truncated", "connection"}
    assert max(task.wait_s for task in TASKS.values()) == 60
    assert max(step.times for step in steps) >= 10
    assert sum(step.is_cut for step in steps) >= 2


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        pytest.param(SMALL, [], id="nothing"),
        pytest.param(
            replace(SMALL, after={"answer.txt": "Yes\n"}),
            ["answer.txt is not as it should be in the end: 'yes\\n'"],
            id="wrong after",
        ),
        pytest.param(
            replace(SMALL, deleted=["other.txt"]),
            ["other.txt is not as it should be in the end: 'as it was\\n'"],
            id="a file that is not gone",
        ),
        pytest.param(
            replace(SMALL, steps=[READ, Step([*WRITE.calls, call("Write", file_path="new.txt", content="new\n")])]),
            ["new.txt is not as it should be in the end: 'new\\n'"],
            id="a file too many",
        ),
        pytest.param(replace(SMALL, check="false"), ["its check fails: exit 1"], id="check that fails"),
        pytest.param(
            replace(SMALL, check="true"), ["its check passes before anything is done"], id="check that shows nothing"
        ),
        pytest.param(
            replace(SMALL, steps=[Step(READ.calls, fails=True), WRITE]),
            ["Read did not fail: "],
            id="a call that should fail",
        ),
        pytest.param(
            replace(SMALL, steps=[READ, Step([call("Read", file_path="none.txt")]), WRITE]),
            ["Read failed: "],
            id="a call that fails",
        ),
        pytest.param(
            replace(SMALL, steps=[WRITE]),
            ["Write failed: ", "answer.txt is not as it should be in the end: 'no\\n'", "its check fails: "],
            id="a wrong step",
        ),
        pytest.param(
            replace(SMALL, disallowed=["Write"]),
            ["Write failed: ", "answer.txt is not as it should be in the end: 'no\\n'", "its check fails: "],
            id="a denied call",
        ),
        pytest.param(
            replace(SMALL, helpers=[HelperStep("Explore", text="It is there.")]),
            ["the model was asked 3 times, not 4"],
            id="a sub-agent that is not asked",
        ),
    ],
)
def test_a_planted_bug_is_reported(task: Task, expected: list[str]):
    """Each rule of the harness notices what breaks it, and nothing else is reported."""
    reported = problems(task)
    assert len(reported) == len(expected), reported
    assert all(problem.startswith(start) for problem, start in zip(reported, expected, strict=True)), reported


def test_retries_are_counted():
    """An answer that is refused once is asked for again, and a refusal that is not met is reported."""
    refused = Step(READ.calls, error={"kind": "overloaded", "retry_after_s": 0.05, "attempts": 1})
    assert problems(replace(SMALL, steps=[refused, WRITE])) == []
    late = Step(error={"kind": "overloaded", "attempts": 1})
    unmet = replace(SMALL, steps=[READ, WRITE, Step(text="Done."), late])
    assert problems(unmet) == ["the model was asked 3 times, not 6", "it was asked 0 times again"]


def test_a_run_without_a_result_is_reported():
    """A command that ends without a result, or prints nothing, is a failure with what it said on stderr."""
    reported = run_task(SMALL, command=["sh", "-c", "echo broken >&2"]).problems
    assert reported[0] == "it ended with no result: broken"
    assert "its check fails: exit 1" in reported


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param(
            [READ, WRITE, Step([call("Write", file_path="notes.txt", content="a way of its own\n")])], [], id="solved"
        ),
        pytest.param([READ], ["its check fails: exit 1"], id="not solved"),
        pytest.param(
            [READ, WRITE, Step([call("Bash", command="echo changed > other.txt")])],
            ["other.txt was changed"],
            id="a kept file changed",
        ),
    ],
)
def test_a_real_model_has_a_free_hand_but_for_kept_files(
    monkeypatch: pytest.MonkeyPatch, steps: list[Step], expected: list[str]
):
    """With `model` the environment's server and key are used; the check and the kept files count, the tree does not."""

    async def solve() -> TaskOutcome:
        async with MockServer(replace(SMALL, steps=steps).script) as server:
            for name, value in server.env.items():
                monkeypatch.setenv(name, value)
            command = warm.command("lyra.cli.main:sage")
            return await asyncio.to_thread(run_task, SMALL, model=REAL, command=command)

    outcome = asyncio.run(solve())
    assert outcome.problems == expected
    assert outcome.cost_usd > 0


def test_the_budget_of_a_task_ends_it(monkeypatch: pytest.MonkeyPatch):
    """`budget_usd` is the most that a task may cost."""

    async def solve() -> TaskOutcome:
        async with MockServer(SMALL.script) as server:
            for name, value in server.env.items():
                monkeypatch.setenv(name, value)
            command = warm.command("lyra.cli.main:sage")
            return await asyncio.to_thread(run_task, SMALL, model=REAL, budget_usd="0.000001", command=command)

    assert asyncio.run(solve()).problems[0].startswith("it ended with budget")


def test_the_command_solves_a_task(capsys: pytest.CaptureFixture[str]):
    """`python -m verify sage-tasks --only NAME` ends with the count."""
    assert main(["sage-tasks", "--only", "40-windows-line-ends"]) == 0
    assert capsys.readouterr().out == "sage-tasks: 1 tasks, 0 failures\n"


def test_the_command_tells_failures_and_costs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """A failure is printed with the command that repeats it; with a model there are costs."""
    asked = []

    def outcome(task: Task, **options: Any) -> TaskOutcome:
        asked.append(options)
        return TaskOutcome(task.name, ["its check fails: exit 1"] if "race" in task.name else [], 0.25, 3)

    monkeypatch.setattr(harness, "run_task", outcome)
    words = ["--only", "05-race", "--only", "17-rename", "--model", "a/b", "--budget", "0.1", "--jobs", "1"]
    assert main(["sage-tasks", *words]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "05-race: its check fails: exit 1",
        "  again: python -m verify sage-tasks --model a/b --only 05-race",
        "17-rename: solved, 3 turns, $0.2500",
        "sage-tasks: 1 of 2 solved by a/b, $0.5000",
        "sage-tasks: 2 tasks, 1 failures",
    ]
    assert asked == [{"model": "a/b", "budget_usd": "0.1"}] * 2
    assert main(["sage-tasks"]) == 1
    assert capsys.readouterr().out.endswith(f"sage-tasks: {len(TASKS)} tasks, 1 failures\n")
    assert main(["sage-tasks", "--only", "99-none"]) == 1
    assert "there is no task 99-none; there are 01-off-by-one" in capsys.readouterr().out
