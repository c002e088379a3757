"""The command tasks: sub-agents and background commands are shown, stopped, answered, resumed and taken over."""

from __future__ import annotations

import asyncio
import json

import pytest

from lyra.errors import ConfigError
from lyra.sage.agent.live import LiveSession
from tests.sage.commands.shown import rows, run, words
from tests.sage.commands.test_project import committed
from tests.sage.open_session import Project, call, say

BYPASS = {"mode": "bypass"}


def begin(**more: object) -> dict[str, object]:
    return call("Task", description="write a file", prompt="write it", **more)


async def until(session: LiveSession, state: str) -> str:
    """The id of the only task, once it is in this state."""
    async with asyncio.timeout(20):
        while True:
            (record,) = session.tasks.list()
            if record.state == state:
                return record.id
            await asyncio.sleep(0.02)


async def test_without_tasks(project: Project) -> None:
    async with project.open() as session:
        assert words(await run(session, "/tasks")) == "no sub-agent and no background command in this session"
        with pytest.raises(ConfigError, match="there is no task with such an id: 'x'"):
            await run(session, "/tasks show x")


@pytest.mark.slow
async def test_a_sub_agent_is_shown_and_its_files_are_taken_over(project: Project) -> None:
    """One at a time or all; what it changed is shown as a diff; its worktree goes when it is discarded."""
    committed(project)
    replies = (
        begin(worktree=True),
        call("Write", file_path="new.py", content="x = 1\n"),
        call("Write", file_path="more.py", content="y = 2\n"),
        {"text": "written"},
        {"text": "done"},
    )
    async with project.open(*replies, options=BYPASS) as session:
        await say(session, "go")
        ((task, state, kind, *_figures, about),) = rows(await run(session, "/tasks"))
        assert (state, kind, about) == ("done", "general", "write a file")
        shown = dict(rows(await run(session, f"/tasks show {task[:-1]}")))
        assert (shown["id"], shown["state"]) == (task, "done")
        assert shown["worktree"].endswith(task)
        assert words(await run(session, f"/tasks show {task}")).endswith("last\nwritten")
        changes = await run(session, f"/tasks diff {task}")
        assert rows(changes) == [["more.py", "1", "0"], ["new.py", "1", "0"]]
        assert "+x = 1" in changes.blocks[1]["diff"]
        assert not (project.folder / "new.py").exists()
        with pytest.raises(ConfigError, match="the files are missing"):
            await run(session, f"/tasks take {task}")
        assert words(await run(session, f"/tasks take {task} new.py")) == "taken over\n  new.py"
        assert (project.folder / "new.py").read_text() == "x = 1\n"
        (project.folder / "more.py").write_text("mine\n")
        assert "more.py" in words(await run(session, f"/tasks merge {task}")), "a conflict is told, nothing is written"
        assert (project.folder / "more.py").read_text() == "mine\n"
        (project.folder / "more.py").unlink()
        assert words(await run(session, f"/tasks merge {task}")) == "taken over\n  more.py"
        assert "nothing" in words(await run(session, f"/tasks diff {task}"))
        assert "nothing to take over" in words(await run(session, f"/tasks merge {task}"))
        assert "removed" in words(await run(session, f"/tasks discard {task}"))
        with pytest.raises(ConfigError, match="has no worktree"):
            await run(session, f"/tasks diff {task}")
        assert "doing nothing" in words(await run(session, f"/tasks stop {task}"))


async def test_a_question_of_a_sub_agent_is_answered(project: Project) -> None:
    """It is listed as asking, with its question; an answer lets it go on."""
    replies = {
        "replies": [
            {"user": "go", **begin(run_in_background=True)},
            {"tool": "Task", "text": "it runs"},
            {"user": "write it", **call("Write", file_path="a.txt", content="x")},
            {"tool": "Write", "text": "{result}"},
        ]
    }
    path = project.folder.parent / "talk.json"
    path.write_text(json.dumps(replies))
    async with project.open(model=f"sim/script:{path}", options={"attended": True}) as session:
        await say(session, "go")
        task = await until(session, "asks")
        assert f"asks\n{task}: Allow Write?" in words(await run(session, "/tasks"))
        assert "Allow Write?" in words(await run(session, f"/tasks show {task}"))
        with pytest.raises(ConfigError, match="the answer is missing"):
            await run(session, f"/tasks answer {task}")
        await run(session, f"/tasks answer {task} deny not there")
        await until(session, "done")
        assert "not there" in words(await run(session, f"/tasks show {task}"))
        assert words(await run(session, f"/tasks resume {task} go on")) == f"{task} goes on"
        await until(session, "done")
        assert not (project.folder / "a.txt").exists()


async def test_a_background_command_is_stopped(project: Project) -> None:
    sleeps = call("Bash", command="sleep 60", run_in_background=True)
    async with project.open(sleeps, {"text": "it sleeps"}, options=BYPASS) as session:
        await say(session, "go")
        task = await until(session, "running")
        assert words(await run(session, f"/tasks stop {task}")) == f"{task} is stopped"
        assert await until(session, "stopped") == task
