"""Sub-agents of a session that is open: on disk where sessions are, across reopening, undone and charged with it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from lyra.agents.headless.headless import HeadlessOptions
from lyra.errors import BudgetExceeded
from lyra.sage.agent.live import LiveSession, SessionStart
from tests.sage.agent.task_support import calls, task
from tests.sage.agent.test_worktrees import git
from tests.sage.open_session import Project, say


def replies(project: Project, *given: dict[str, Any], **settings: Any) -> str:
    """A model that answers with the first reply that fits."""
    project.scripts += 1
    path = project.folder.parent / f"replies{project.scripts}.json"
    path.write_text(json.dumps({"replies": given, **settings}))
    return f"sim/script:{path}"


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


def only(session: LiveSession) -> Any:
    (record,) = session.tasks.list()
    return record


async def test_a_sub_agent_of_a_session_is_there_when_it_is_opened_again(project: Project) -> None:
    """With its answer, its costs under its own name, and its conversation, which goes on."""
    model = replies(
        project,
        {"user": "^find it", "text": "it is 42"},
        {"user": "^and more", "text": "it is still 42"},
        {"tool": "Task", "text": "I asked."},
        {"user": "^go", **calls(task("find it", subagent_type="Explore"))},
    )
    async with project.open(model=model) as session:
        lines = await say(session, "go")
        assert lines[-1]["text"] == "I asked."
        task_id = only(session).id
        assert set(session.usage()["agents"]) == {"sage", "sage.Explore"}
    async with project.open(model=model, resume="") as session:
        assert (only(session).id, only(session).state, only(session).text) == (task_id, "done", "it is 42")
        told: list[dict[str, Any]] = []
        session.on_notice.append(told.append)
        await session.tasks.resume(task_id, "and more")
        await until(lambda: told)
        assert told[0]["text"] == "it is still 42"


async def test_another_model_for_the_session_leaves_sub_agents_at_work(project: Project) -> None:
    """The session opens anew for it; what runs in the background goes on."""
    script = (
        {"user": "^slow", "text": "at last", "first_s": 0.5},
        {"tool": "Task", "text": "started"},
        {"user": "^go", **calls(task("slow", run_in_background=True))},
    )
    async with project.open(model=replies(project, *script)) as session:
        await say(session, "go")
        assert only(session).state == "running"
        await session.set_model(replies(project, *script))
        await until(lambda: only(session).state == "done")
        assert only(session).text == "at last"


async def test_changes_of_a_worktree_are_taken_over_and_undone(tmp_path: Path, project: Project) -> None:
    """In a session where sessions usually are: the worktree can be written, and undo brings the files back."""
    project.write("app.py", "one\n")
    git(project.folder, "init", "-q")
    git(project.folder, "add", ".")
    git(project.folder, "commit", "-qm", "first")
    write = {"name": "Write", "arguments": {"file_path": "new.py", "content": "x\n"}}
    command = {"name": "Bash", "arguments": {"command": "echo two >> app.py"}}
    model = replies(
        project,
        {"user": "^work", "tool": "Write", **calls(command)},
        {"tool": "Bash", "text": "written"},
        {"user": "^work", **calls(write)},
        {"tool": "Task", "text": "done"},
        {"user": "^go", **calls(task("work", worktree=True))},
    )
    options = HeadlessOptions(model=model, folder=str(project.folder), mode="bypass")
    async with LiveSession(options, start=SessionStart()) as session:
        lines = await say(session, "go")
        assert lines[-1]["status"] == "success", lines
        record = only(session)
        assert record.worktree.startswith(str(project.home / ".local" / "share" / "lyra-worktrees"))
        changes = await session.tasks.worktrees.changes(record.id)
        assert [(change.path, change.kind) for change in changes] == [("app.py", "modified"), ("new.py", "created")]
        assert await session.tasks.worktrees.merge(record.id) == ["app.py", "new.py"]
        assert (project.folder / "app.py").read_text() == "one\ntwo\n"
        await session.undo()
        assert (project.folder / "app.py").read_text() == "one\n"
        assert not (project.folder / "new.py").exists()


async def test_what_a_person_asks_a_sub_agent_is_paid_from_the_budget_of_this_run(project: Project) -> None:
    """Not more than its flag allows, although no turn waits for it."""
    script = (
        {"user": "^first", "text": "fine"},
        {"user": "^again", "text": "word " * 400},
        {"tool": "Task", "text": "started"},
        {"user": "^go", **calls(task("first"))},
    )
    model = replies(project, *script, price={"input_usd_per_mtok": 1, "output_usd_per_mtok": 10})
    async with project.open(model=model) as session:
        await say(session, "go")
    async with project.open(model=model, options={"budget": "$0.001"}, resume="") as session:
        await session.tasks.send(only(session).id, "again")
        await until(lambda: only(session).state != "running")
        assert only(session).state == "failed"
        assert "budget" in only(session).text


@pytest.mark.parametrize("left", ["$0.00", "$1"])
async def test_a_budget_that_is_used_up_refuses_them(tmp_path: Path, left: str) -> None:
    """The error of the setting is that of the sub-agent."""
    from lyra.core.budgets.budget import Budget
    from lyra.sage.agent.tasks.task_list import TaskList

    def budget() -> Budget:
        if left == "$0.00":
            raise BudgetExceeded("used up", setting="sage.daily_budget_usd")
        return Budget.of(left)

    tasks = TaskList(definitions=dict, folder=tmp_path, budget=budget)
    (scope,) = tasks._budgets()
    assert scope.limit("usd") == (0 if left == "$0.00" else 1_000_000)
