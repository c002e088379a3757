"""Sub-agents of a session that is open: on disk where sessions are, across reopening, undone and charged with it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from lyra.agents.headless.options import HeadlessOptions
from lyra.core.clock import SystemClock
from lyra.errors import BudgetExceeded
from lyra.sage.agent.live import LiveSession, SessionStart
from lyra.sage.agent.tasks.state import TaskRecord
from lyra.sage.session.usage_log import UsageLog
from lyra.testing.mock import MockServer
from tests.sage.agent.task_support import calls, task
from tests.sage.agent.test_worktrees import git
from tests.sage.open_session import PRICE, Project, say


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
        assert set(session.usage().agents) == {"sage", "sage.Explore"}
    async with project.open(model=model, resume="") as session:
        assert (only(session).id, only(session).state, only(session).text) == (task_id, "done", "it is 42")
        told: list[TaskRecord] = []
        session.on_notice.append(told.append)
        await session.tasks.resume(task_id, "and more")
        await until(lambda: told)
        assert told[0].text == "it is still 42"


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


def answer_at_once(model: str) -> None:
    """Change the script of a model whose first answer never comes."""
    script = Path(model.removeprefix("sim/script:"))
    script.write_text(script.read_text().replace('"first_s": 60', '"first_s": 0').replace("never", "it is 42"))


@pytest.mark.timed
@pytest.mark.slow
async def test_leaving_does_not_wait_for_the_model_call_of_a_sub_agent(project: Project) -> None:
    """The session is closed within a second; what the call has cost is counted; opened again, the sub-agent asks its
    model again and answers."""
    task_call = calls(task("find it", subagent_type="Explore", run_in_background=True))
    started = [{"tool": "Task", "text": "started"}, {"user": "^go", **task_call}]
    slow = replies(project, {"user": "^find it", "text": "never", "first_s": 60}, *started, price=PRICE)
    async with project.open(model=slow) as session:
        await say(session, "go")
        await until(lambda: session.kernel.core.in_flight_repeatable == 1)
        began_s = SystemClock().monotonic()
        assert "sage.Explore" not in session.usage().agents
        session_id = session.id
    assert SystemClock().monotonic() - began_s < 1.0
    with UsageLog(project.data) as log:
        (total,) = [total for total in log.sums("agent", session=session_id) if total.group == "sage.Explore"]
        assert total.input_tokens > 0
        assert (total.calls, total.unpriced_calls) == (1, 0)
    answer_at_once(slow)
    async with project.open(model=slow, resume="") as session:
        await until(lambda: only(session).state == "done")
        assert only(session).text == "it is 42"


@pytest.mark.slow
async def test_leaving_waits_for_a_command_of_a_sub_agent(project: Project) -> None:
    """What cannot be repeated is not cut off: a command that ends soon has its result on record."""
    ask = calls(task("find it", subagent_type="general", run_in_background=True))
    command = {"tool_calls": [{"name": "Bash", "arguments": {"command": "sleep 1; echo made > made.txt"}}]}
    model = replies(
        project,
        {"tool": "Bash", "text": "it is made"},
        {"user": "^find it", **command},
        {"tool": "Task", "text": "started"},
        {"user": "^go", **ask},
    )
    async with project.open(model=model, options={"allow": ("Bash",)}) as session:
        await say(session, "go")
        await until(lambda: session.kernel.core.in_flight > 0)
    assert (project.folder / "made.txt").exists()
    async with project.open(model=model, options={"allow": ("Bash",)}, resume="") as session:
        await until(lambda: only(session).state == "done")
        assert only(session).text == "it is made"


@pytest.mark.slow
@pytest.mark.parametrize("is_reopened", [False, True])
async def test_a_sub_agent_that_a_rate_limit_stopped_is_resumed_by_its_id(
    project: Project, monkeypatch: pytest.MonkeyPatch, is_reopened: bool
) -> None:
    """The server answers 429 until all tries are spent: the sub-agent stays, and waits. Resumed by its id, also after
    the session was closed, it goes on in its conversation."""
    limited = {"error": {"kind": "rate_limit", "message": "slow down", "retry_after_s": 0.01}}
    script = {
        "replies": [
            {"user": "and now", "text": "it is 42"},
            {"user": "^find it", **limited},
            {"tool": "Task", "text": "it failed"},
            {"user": "^go", **calls(task("find it", subagent_type="Explore"))},
        ]
    }
    async with MockServer(script) as server:
        for name, value in {**server.env, "ANTHROPIC_API_KEY": "key-of-the-mock-server"}.items():
            monkeypatch.setenv(name, value)
        async with contextlib.AsyncExitStack() as stack:
            session = await stack.enter_async_context(project.open(model="anthropic/scripted"))
            await say(session, "go")
            record = only(session)
            assert record.state == "waiting"
            tries = [asked for asked in server.requests if asked.messages[-1].text.startswith("find it")]
            assert len(tries) > 1, "it was tried again before that"
            if is_reopened:
                await stack.aclose()
                session = await stack.enter_async_context(project.open(model="anthropic/scripted", resume=""))
            told: list[TaskRecord] = []
            session.on_notice.append(told.append)
            await session.tasks.resume(record.id, "and now")
            await until(lambda: told)
            assert (told[0].id, told[0].text) == (record.id, "it is 42")
            assert only(session).state == "done"
            said = [message.text for message in server.requests[-1].messages]
            assert any(text.startswith("find it") for text in said), "it knows what it was asked"
