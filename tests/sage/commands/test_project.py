"""Commands about the project's files: init, diff, review."""

from __future__ import annotations

import subprocess

import pytest

from lyra.errors import ConfigError
from tests.sage.commands.shown import rows, run, words
from tests.sage.open_session import Project, call, say

GIT = ("git", "-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "init.defaultBranch=main")


def git(project: Project, *words_: str) -> None:
    subprocess.run([*GIT, *words_], cwd=project.folder, check=True, capture_output=True)


def committed(project: Project) -> None:
    project.write("a.txt", "one\ntwo\n")
    git(project, "init")
    git(project, "add", "-A")
    git(project, "commit", "-m", "first")


async def test_init_asks_the_agent_for_the_file(project: Project) -> None:
    """A file that exists is to be edited, and the user is told so; nothing is written by the command itself."""
    async with project.open() as session:
        result = await run(session, "/init the tests")
        assert "write the file AGENTS.md" in str(result.prompt)
        assert str(result.prompt).endswith("Pay attention to this: the tests")
        assert not (project.folder / "AGENTS.md").exists()
        project.write("AGENTS.md", "# Mine\n")
        result = await run(session, "/init")
        assert "edited, not written anew" in words(result)
        assert "Do not write it anew" in str(result.prompt)


# ---------------------------------------------------------------- diff
async def test_the_changes_of_turns(project: Project) -> None:
    """Of all turns, or of one; with the lines that came and went."""
    project.write("a.txt", "one\ntwo\n")
    edit = call("Edit", file_path="a.txt", old_string="two", new_string="2")
    replies = (call("Read", file_path="a.txt"), edit, {"text": "done"}, {"text": "nothing"})
    async with project.open(*replies, options={"mode": "accept-edits"}) as session:
        await say(session, "edit")
        await say(session, "rest")
        result = await run(session, "/diff")
        assert rows(result) == [["a.txt", "1", "1"]]
        assert "-two\n+2" in result.blocks[1]["diff"]
        assert rows(await run(session, "/diff 1")) == [["a.txt", "1", "1"]]
        assert words(await run(session, "/diff 2")) == "turn 2 changed no file"
        with pytest.raises(ConfigError, match="no turn 3"):
            await run(session, "/diff 3")


async def test_the_changes_of_git(project: Project) -> None:
    """Where no turn has changed anything, or where they are asked for; also before the first commit."""
    async with project.open() as session:
        assert "in no git repository" in words(await run(session, "/diff"))
        committed(project)
        assert words(await run(session, "/diff git")) == "nothing is changed"
        project.write("a.txt", "one\n2\n")
        project.write("new.txt", "x\n")
        result = await run(session, "/diff")
        assert "-two\n+2" in result.blocks[0]["diff"]
        assert result.blocks[1]["lines"] == ["  new.txt"]


async def test_staged_files_before_the_first_commit(project: Project) -> None:
    project.write("a.txt", "one\n")
    git(project, "init")
    git(project, "add", "-A")
    async with project.open() as session:
        assert "+one" in (await run(session, "/diff git")).blocks[0]["diff"]


async def test_settings_of_a_repository_run_nothing(project: Project) -> None:
    """A diff program, a text converter and a monitor that its settings name are not run."""
    committed(project)
    project.write(".gitattributes", "*.txt diff=evil\n")
    for key in ("diff.external", "diff.evil.textconv", "core.fsmonitor", "diff.evil.command"):
        git(project, "config", key, f"touch {project.folder}/ran-{key}; false")
    project.write("a.txt", "changed\n")
    async with project.open() as session:
        assert "+changed" in words(await run(session, "/diff git"))
    assert list(project.folder.glob("ran-*")) == []


# ---------------------------------------------------------------- review
async def test_a_review_gets_the_uncommitted_changes(project: Project) -> None:
    """Beside the prompt, as text from outside; without a change nothing is sent."""
    committed(project)
    async with project.open() as session:
        assert (await run(session, "/review")).prompt is None
        project.write("a.txt", "one\n2\n")
        project.write("new.txt", "x\n")
        result = await run(session, "/review the dates")
        assert "Review sub-agent" in str(result.prompt)
        assert str(result.prompt).endswith("Look above all at this: the dates")
        assert "+2" in result.send_with["beside"]
        assert "not tracked: new.txt" in result.send_with["beside"]
        await say(session, result.prompt, **result.send_with)
        assert session.kernel.taint.is_tainted("sage")


async def test_a_review_outside_of_git_has_the_changes_of_the_session(project: Project) -> None:
    write = call("Write", file_path="a.txt", content="x\n")
    async with project.open(write, {"text": "done"}, options={"mode": "accept-edits"}) as session:
        await say(session, "write")
        assert "+x" in (await run(session, "/review")).send_with["beside"]
