"""The command about sub-agents and background commands."""

from __future__ import annotations

from typing import Any

import pytest

from lyra.errors import ConfigError
from tests.sage.agent.task_support import calls, task
from tests.sage.agent.test_live_tasks import only, replies, until
from tests.sage.agent.test_worktrees import git
from tests.sage.commands.shown import rows, run, words
from tests.sage.open_session import Project, say

WRITE = {"name": "Write", "arguments": {"file_path": "new.py", "content": "x\n"}}


async def test_a_session_without_any(project: Project) -> None:
    async with project.open() as session:
        assert words(await run(session, "/tasks")).startswith("no sub-agent")


async def test_what_a_worktree_holds_is_shown_and_taken_over(project: Project) -> None:
    """`diff` with one block, `take`, `merge`, `discard`; a beginning of the id is enough."""
    project.write("app.py", "one\n")
    git(project.folder, "init", "-q")
    git(project.folder, "add", ".")
    git(project.folder, "commit", "-qm", "first")
    command = {"name": "Bash", "arguments": {"command": "echo two >> app.py"}}
    model = replies(
        project,
        {"user": "^work", "tool": "Write", **calls(command)},
        {"tool": "Bash", "text": "written"},
        {"user": "^work", **calls(WRITE)},
        {"tool": "Task", "text": "done"},
        {"user": "^go", **calls(task("work", worktree=True))},
    )
    async with project.open(model=model, options={"mode": "bypass"}) as session:
        await say(session, "go")
        (row,) = rows(await run(session, "/tasks"))
        assert row[:3] == [only(session).id, "done", "general"]
        shown = await run(session, "/tasks show gen")
        assert ["changed files", "2"] in rows(shown)
        assert words(shown).endswith("written")
        changes = await run(session, "/tasks diff gen")
        assert rows(changes) == [["app.py", "modified", "1", "0"], ["new.py", "created", "1", "0"]]
        assert changes.blocks[1]["type"] == "diff"
        assert "+two" in changes.blocks[1]["diff"]
        assert rows(await run(session, "/tasks diff gen new.py")) == [["new.py", "created", "1", "0"]]
        with pytest.raises(ConfigError, match="other is not changed"):
            await run(session, "/tasks diff gen other")
        with pytest.raises(ConfigError, match="the files to take over are missing"):
            await run(session, "/tasks take gen")
        assert words(await run(session, "/tasks take gen new.py")).endswith("new.py")
        assert words(await run(session, "/tasks merge gen")).endswith("app.py")
        assert (project.folder / "app.py").read_text() == "one\ntwo\n"
        assert "nothing to take over" in words(await run(session, "/tasks merge gen"))
        assert "changed nothing" in words(await run(session, "/tasks diff gen"))
        assert "is removed" in words(await run(session, "/tasks discard gen"))
        assert only(session).worktree == ""


async def test_one_that_asks_is_answered(project: Project) -> None:
    """By a word, with a text behind it; then it is asked more, and stopped."""
    model = replies(
        project,
        {"tool": "Write", "text": "refused"},
        {"user": "^more", "text": "never", "first_s": 60},
        {"user": "^work", **calls(WRITE)},
        {"tool": "Task", "text": "started"},
        {"user": "^go", **calls(task("work", run_in_background=True))},
    )
    async with project.open(model=model, options={"attended": True}) as session:
        await say(session, "go")
        await until(lambda: only(session).state == "asks")
        assert "Allow Write?" in words(await run(session, "/tasks show gen"))
        with pytest.raises(ConfigError, match="the answer is missing"):
            await run(session, "/tasks answer gen")
        await run(session, "/tasks answer gen deny not now")
        await until(lambda: only(session).state == "done")
        with pytest.raises(ConfigError, match="asks nothing"):
            await run(session, "/tasks answer gen allow")
        assert words(await run(session, "/tasks resume gen more of it")).endswith("goes on")
        await until(lambda: only(session).state == "running")
        assert words(await run(session, "/tasks stop gen")).endswith("is stopped")
        assert only(session).state == "stopped"
        assert words(await run(session, "/tasks stop gen")).endswith("was not at work")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("/tasks shw x", "none of"),
        ("/tasks show x", "there is no task with"),
        ("/tasks show", "the id of the task is missing"),
    ],
)
async def test_mistakes_are_told(project: Project, text: str, said: str) -> None:
    async with project.open() as session:
        with pytest.raises(ConfigError, match=said):
            await run(session, text)


def test_every_action_is_in_the_hint() -> None:
    from lyra.sage.commands.registry import COMMANDS

    usage: Any = COMMANDS["tasks"].usage
    assert usage == "/tasks [show | answer | resume | stop | diff | take | merge | discard ID …]"
