"""Sub-agents in worktrees: they work there and nowhere else, and what they changed is taken over by the user."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from lyra.core.rights.capability import Grant
from lyra.errors import ConfigError, NoSuchProcess
from lyra.sage.agent.worktrees.worktrees import Worktrees
from lyra.sage.extensions.agent_files import SubAgentDefinition
from lyra.tools.builtin import builtin_tools
from tests.sage.agent.task_support import Model, calls, opened, result, task
from tests.sage.agent.test_worktrees import git

OWN = ["tool.use", "model.use", "human.ask", "process.spawn", "process.send", "process.exec"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "app.py").write_text("one\ntwo\nthree\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


def settings(project: Path, tmp_path: Path, mode: str = "bypass") -> dict[str, Any]:
    """The agent of a session in a project, with rights to that folder and to the worktrees."""
    worktrees = Worktrees(str(project), tmp_path / "trees")
    rights = [f"fs.read:{project}/**", f"fs.write:{project}/**", *OWN, *map(str, worktrees.rights)]
    return {
        "tools": builtin_tools(str(project)),
        "permissions": {"mode": mode},
        "grant": Grant(rights),
        "worktrees": worktrees,
    }


def use(name: str, **arguments: Any) -> dict[str, Any]:
    return calls({"name": name, "arguments": arguments})


def outputs(model: Model, who: str) -> list[str]:
    return [str(entry.output) for message in model.of(who)[-1].messages for entry in message.tool_results]


async def test_it_works_in_its_worktree_and_nowhere_else(project: Path, tmp_path: Path) -> None:
    """Its file tools and commands see the copy; the project and git's own files cannot be written."""
    write = use("Write", file_path="new.py", content="x = 1\n")
    away = use("Write", file_path=f"{project}/evil.py", content="x")
    command = (
        f"pwd; git status --short; echo y >> app.py; echo x > {project}/app.py; echo x > {project}/.git/x; cat .git"
    )
    model = Model(
        lead=[calls(task("work", worktree=True)), {"text": "done"}],
        work=[write, away, use("Bash", command=command), {"text": "written"}],
    )
    async with opened(tmp_path, model, **settings(project, tmp_path)) as session:
        await session.say("lead: go")
        (record,) = session.tasks.list()
        assert record.state == "done"
        assert record.worktree == str(tmp_path / "trees" / "trees" / record.id)
        assert record.worktree in model.of("work")[0].system
        told = outputs(model, "work")
        assert "no allow rule covers it" in told[1]
        assert told[2].startswith(f"{record.worktree}\n?? new.py")
        assert "Read-only file system" in told[2] or "Permission denied" in told[2] or "No such file" in told[2]
        assert "Changed in its worktree" in result(model.of("lead")[1])
        assert "app.py (+1 −0), new.py (+1 −0)" in result(model.of("lead")[1])
        assert sorted(os.listdir(project)) == [".git", "app.py"]
        assert (project / "app.py").read_text() == "one\ntwo\nthree\n"
        assert not (project / ".git" / "x").exists()
        changes = await session.tasks.worktrees.changes(record.id)
        assert [(change.path, change.kind) for change in changes] == [("app.py", "modified"), ("new.py", "created")]
        assert await session.tasks.worktrees.take(record.id, ["new.py"]) == ["new.py"]
        assert (project / "new.py").read_text() == "x = 1\n"
        assert await session.tasks.worktrees.merge(record.id) == ["app.py"]
        assert (project / "app.py").read_text() == "one\ntwo\nthree\ny\n"
        kinds: list[str] = []
        session.kernel.on_event(lambda event: kinds.append(event.kind), kinds=("task.worktree",))
        await session.tasks.worktrees.discard(record.id)
        await session.until(lambda: kinds == ["task.worktree"])
        assert session.tasks.get(record.id).worktree == ""
        assert os.listdir(tmp_path / "trees" / "trees") == []
        with pytest.raises(ConfigError, match="has no worktree"):
            await session.tasks.worktrees.changes(record.id)
        with pytest.raises(NoSuchProcess, match="ended for good"):
            await session.tasks.resume(record.id)


async def test_two_change_the_same_file_side_by_side(project: Path, tmp_path: Path) -> None:
    """Each in its own copy; after the first is merged, the second is merged once that is committed."""

    def edit(old: str, new: str) -> list[Any]:
        return [
            use("Read", file_path="app.py"),
            use("Edit", file_path="app.py", old_string=old, new_string=new),
            {"text": "ok"},
        ]

    model = Model(
        lead=[calls(task("first", worktree=True), task("second", worktree=True)), {"text": "done"}],
        first=edit("one", "ONE"),
        second=edit("three", "THREE"),
    )
    async with opened(tmp_path, model, **settings(project, tmp_path)) as session:
        await session.say("lead: go")
        first, second = (record.id for record in session.tasks.list())
        assert await session.tasks.worktrees.merge(first) == ["app.py"]
        git(project, "commit", "-qam", "the first")
        assert await session.tasks.worktrees.merge(second) == ["app.py"]
    assert (project / "app.py").read_text() == "ONE\ntwo\nTHREE\n"


async def test_it_is_there_after_a_crash(project: Path, tmp_path: Path) -> None:
    """The sub-agent goes on in the same worktree, and a definition may ask for one."""
    definition = SubAgentDefinition(name="mender", description="Mends", system="Mend.", worktree=True, background=True)
    replies: list[Any] = [{"text": "never", "first_s": 60}]
    model = Model(
        lead=[calls(task("mend", subagent_type="mender")), {"text": "ok"}],
        mend=lambda request: (
            use("Write", file_path="new.py", content="x\n") if len(request.messages) == 1 else replies[0]
        ),
    )
    shared = {**settings(project, tmp_path), "definitions": {"mender": definition}}
    async with opened(tmp_path, model, crashes=True, **shared) as session:
        assert await session.say("lead: go") == "ok"
        await session.until(lambda: len(model.of("mend")) == 2)
    replies[0] = {"text": "mended"}
    shared = {**settings(project, tmp_path), "definitions": {}}
    async with opened(tmp_path, model, **shared) as session:
        (record,) = session.tasks.list()
        await session.until(lambda: session.state(record.id) == "done")
        assert [change.path for change in await session.tasks.worktrees.changes(record.id)] == ["new.py"]
        assert await session.tasks.worktrees.clean_up() == []
    assert len(model.of("mend")) == 3


async def test_no_worktree_is_made_in_the_mode_plan(project: Path, tmp_path: Path) -> None:
    """Nor outside a repository, nor in a session without: the model is told why, and no sub-agent starts."""
    model = Model(lead=[calls(task("work", worktree=True)), {"text": "ok"}])
    for number, (change, words) in enumerate(
        (
            ({**settings(project, tmp_path, mode="plan")}, "the mode is plan"),
            ({**settings(project, tmp_path), "worktrees": None}, "the session has none"),
            ({**settings(tmp_path, tmp_path)}, "in no git repository"),
        )
    ):
        folder = tmp_path / f"session{number}"
        folder.mkdir()
        async with opened(folder, model, **change) as session:
            await session.say("lead: go")
            assert session.tasks.list() == []
        assert words in result(model.requests[-1])


async def test_rules_hold_for_the_same_places_in_a_worktree(project: Path, tmp_path: Path) -> None:
    """A rule about a folder of the project is one about the copy of that folder."""
    model = Model(
        lead=[calls(task("work", worktree=True)), {"text": "done"}],
        work=[
            use("Write", file_path="docs/a.md", content="x"),
            use("Write", file_path="app.txt", content="x"),
            {"text": "ok"},
        ],
    )
    given = settings(project, tmp_path)
    given["permissions"] = {"allow": ["Write(docs/**)"], "deny": [f"Edit({project}/app.txt)"], "mode": "accept-edits"}
    async with opened(tmp_path, model, **given) as session:
        await session.say("lead: go")
        (record,) = session.tasks.list()
        assert [change.path for change in await session.tasks.worktrees.changes(record.id)] == ["docs/a.md"]
    assert "app.txt" in outputs(model, "work")[1]
    assert "denies" in outputs(model, "work")[1]
