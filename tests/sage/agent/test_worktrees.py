"""Worktrees: a copy of the project as it is now, and the way back of changes, without losing any of the user's."""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from lyra.errors import ConfigError, Conflict
from lyra.sage.agent.worktrees.worktrees import Worktree, Worktrees, worktrees_folder


def git(folder: Path, *words: str) -> str:
    settings = ("-c", "user.name=U", "-c", "user.email=u@x", "-c", "commit.gpgSign=false")
    done = subprocess.run(["git", "-C", str(folder), *settings, *words], check=True, capture_output=True, text=True)
    return done.stdout


def tree(worktree: Worktree, path: str = "") -> Path:
    return Path(worktree.folder, path)


def write_setting(project: Path, key: str, value: str) -> None:
    """Add a setting as its text: git itself would check it."""
    section, _, name = key.rpartition(".")
    head, _, sub = section.partition(".")
    subsection = f' "{sub}"' if sub else ""
    with open(project / ".git" / "config", "a") as file:
        file.write(f"[{head}{subsection}]\n\t{name} = {value}\n")


def blob_of(project: Path, text: str) -> str:
    command = ["git", "-C", str(project), "hash-object", "-w", "--stdin"]
    return subprocess.run(command, input=text, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with two commits' worth of files."""
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "app.py").write_text("".join(f"line {number}\n" for number in range(20)))
    (folder / "src").mkdir()
    (folder / "src" / "util.py").write_text("def util(): pass\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("app.py")
    (folder / ".gitignore").write_text("*.log\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


@pytest.fixture
def worktrees(project: Path, tmp_path: Path) -> Worktrees:
    return Worktrees(str(project), tmp_path / "trees")


async def test_a_worktree_has_what_is_there_now(project: Path, worktrees: Worktrees) -> None:
    """Also changes that are not committed, and files that git does not know; nothing that it ignores."""
    (project / "app.py").write_text("changed\n")
    (project / "new.txt").write_text("new\n")
    (project / "debug.log").write_text("noise\n")
    (project / "src" / "util.py").unlink()
    before = git(project, "status", "--porcelain")
    worktree = await worktrees.create("general-aaaaa")
    folder = tree(worktree)
    assert sorted(os.listdir(folder)) == [".git", ".gitignore", "app.py", "link", "new.txt", "run.sh"]
    assert (folder / "app.py").read_text() == "changed\n"
    assert os.readlink(folder / "link") == "app.py"
    assert os.access(folder / "run.sh", os.X_OK)
    assert worktree.branch == "sage/general-aaaaa"
    assert "sage/general-aaaaa" in git(project, "branch", "--list", "sage/*")
    assert git(project, "status", "--porcelain") == before, "the project itself is as it was"
    assert await worktrees.changes(worktree) == []
    assert await worktrees.create("general-aaaaa") == worktree


async def test_one_act_on_a_repository_at_a_time(project: Path, worktrees: Worktrees, tmp_path: Path) -> None:
    """Two sessions make worktrees of one repository at once: each waits for its turn, since git fails on a worktree
    that another git has half made."""
    other = Worktrees(str(project), tmp_path / "other")
    fd = os.open(project / ".git", os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    making = [asyncio.create_task(worktrees.create("one")), asyncio.create_task(other.create("two"))]
    await asyncio.sleep(1.0)
    assert not (project / ".git" / "worktrees").exists()
    os.close(fd)
    for worktree in await asyncio.gather(*making):
        assert tree(worktree, "app.py").exists()
    assert sorted(os.listdir(project / ".git" / "worktrees")) == ["one", "two"]


async def test_changes_are_shown_file_by_file(project: Path, worktrees: Worktrees) -> None:
    """Added, changed and deleted ones, each with its diff; what git ignores is none."""
    worktree = await worktrees.create("general-aaaaa")
    folder = tree(worktree)
    (folder / "app.py").write_text((folder / "app.py").read_text().replace("line 3\n", "line three\n"))
    (folder / "src" / "util.py").unlink()
    (folder / "new.py").write_text("x = 1")
    (folder / "noise.log").write_text("x")
    (folder / "data.bin").write_bytes(b"\0\1")
    changes = {change.path: change for change in await worktrees.changes(worktree)}
    assert {path: change.kind for path, change in changes.items()} == {
        "app.py": "modified",
        "src/util.py": "deleted",
        "new.py": "created",
        "data.bin": "created",
    }
    assert "-line 3\n+line three\n" in changes["app.py"].diff()
    assert changes["app.py"].counts == (1, 1)
    assert changes["new.py"].diff() == (
        "--- /dev/null\n+++ b/new.py\n@@ -0,0 +1 @@\n+x = 1\n\\ No newline at end of file\n"
    )
    assert "not shown as text" in changes["data.bin"].diff()


async def test_a_diff_has_no_escape_sequences(project: Path, worktrees: Worktrees) -> None:
    """Neither in a name nor in the text: it is printed on a terminal."""
    worktree = await worktrees.create("general-aaaaa")
    (tree(worktree) / "a\x1b[2Jb.txt").write_text("x\x1b]0;evil\x07\r\n\ttab\n")
    (change,) = await worktrees.changes(worktree)
    assert "\x1b" not in change.diff()
    assert "\r" not in change.diff()
    assert "+\ttab\n" in change.diff()
    assert change.counts == (2, 0)


async def test_files_are_taken_over_one_by_one(project: Path, worktrees: Worktrees) -> None:
    """Those that are named, as they are in the worktree, with their mode; what was taken is no change any more."""
    worktree = await worktrees.create("general-aaaaa")
    folder = tree(worktree)
    (folder / "app.py").write_text("new text\n")
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "tool.sh").write_text("#!/bin/sh\n")
    (folder / "deep" / "er" / "tool.sh").chmod(0o755)
    (folder / "src" / "util.py").unlink()
    assert await worktrees.take(worktree, ["app.py", "deep/er/tool.sh"]) == ["app.py", "deep/er/tool.sh"]
    assert (project / "app.py").read_text() == "new text\n"
    assert os.access(project / "deep" / "er" / "tool.sh", os.X_OK)
    assert (project / "src" / "util.py").exists()
    assert [change.path for change in await worktrees.changes(worktree)] == ["src/util.py"]
    assert await worktrees.take(worktree, ["src/util.py"]) == ["src/util.py"]
    assert not (project / "src" / "util.py").exists()
    with pytest.raises(ConfigError, match=r"app\.py is not changed"):
        await worktrees.take(worktree, ["app.py"])


async def test_a_file_that_the_user_changed_since_is_not_overwritten(project: Path, worktrees: Worktrees) -> None:
    """The Conflict shows the difference, and no other file is written either."""
    (project / "app.py").write_text("at the start\n")
    worktree = await worktrees.create("general-aaaaa")
    folder = tree(worktree)
    (folder / "app.py").write_text("by the agent\n")
    (folder / "new.py").write_text("x\n")
    (project / "app.py").write_text("by the user\n")
    for taking in (worktrees.take(worktree, ["new.py", "app.py"]), worktrees.merge(worktree)):
        with pytest.raises(Conflict, match=r"app\.py \(it has changed in the project since") as raised:
            await taking
        assert "-by the user\n+by the agent" in raised.value.fields["diff"]
        assert raised.value.fields["paths"] == ["app.py"]
    assert (project / "app.py").read_text() == "by the user\n"
    assert not (project / "new.py").exists()
    assert await worktrees.take(worktree, ["new.py"]) == ["new.py"]


async def test_a_merge_joins_both_sides(project: Path, worktrees: Worktrees) -> None:
    """What was committed meanwhile and what the agent changed are both there; nothing is written where it cannot be."""
    worktree = await worktrees.create("general-aaaaa")
    folder = tree(worktree)
    text = (project / "app.py").read_text()
    (folder / "app.py").write_text(text.replace("line 2\n", "line two\n"))
    (folder / "src" / "util.py").write_text("def util(): return 1\n")
    (project / "app.py").write_text(text.replace("line 15\n", "line fifteen\n"))
    git(project, "commit", "-qam", "second")
    assert await worktrees.merge(worktree) == ["app.py", "src/util.py"]
    merged = (project / "app.py").read_text()
    assert "line two\n" in merged
    assert "line fifteen\n" in merged
    assert "return 1" in (project / "src" / "util.py").read_text()
    assert await worktrees.changes(worktree) == []
    assert await worktrees.merge(worktree) == []


async def test_a_merge_that_contradicts_writes_nothing(project: Path, worktrees: Worktrees) -> None:
    """The same lines on both sides, or a file that one side removed: all conflicts are told."""
    worktree = await worktrees.create("general-aaaaa")
    folder = tree(worktree)
    text = (project / "app.py").read_text()
    (folder / "app.py").write_text(text.replace("line 2\n", "agent\n"))
    (folder / "run.sh").unlink()
    (folder / "fine.txt").write_text("fine\n")
    (project / "app.py").write_text(text.replace("line 2\n", "user\n"))
    (project / "run.sh").write_text("#!/bin/sh\nexit\n")
    git(project, "commit", "-qam", "second")
    with pytest.raises(Conflict, match=r"app\.py \(both sides.*run\.sh \(it was removed") as raised:
        await worktrees.merge(worktree)
    assert raised.value.fields["paths"] == ["app.py", "run.sh"]
    assert "user\n" in (project / "app.py").read_text()
    assert not (project / "fine.txt").exists()


async def test_discarding_leaves_nothing(project: Path, worktrees: Worktrees) -> None:
    """Neither the folder nor the branch nor git's record of it, also where the agent has shut a folder."""
    worktree = await worktrees.create("general-aaaaa")
    shut = tree(worktree) / "shut"
    shut.mkdir()
    (shut / "x").write_text("x")
    shut.chmod(0)
    await worktrees.discard(worktree)
    assert not tree(worktree).exists()
    assert git(project, "worktree", "list").count("\n") == 1
    assert git(project, "branch", "--list", "sage/*") == ""
    await worktrees.discard(worktree)


async def test_what_a_crash_left_is_cleaned_up(project: Path, worktrees: Worktrees) -> None:
    """A worktree that no task has is removed; those of tasks stay."""
    kept = await worktrees.create("general-aaaaa")
    lost = await worktrees.create("general-bbbbb")
    assert await worktrees.clean_up(["general-aaaaa"]) == ["general-bbbbb"]
    assert tree(kept).exists()
    assert not tree(lost).exists()
    assert git(project, "branch", "--list", "sage/*").split() == ["+", "sage/general-aaaaa"]


async def test_one_whose_making_was_cut_off_is_made_anew(project: Path, worktrees: Worktrees) -> None:
    worktree = await worktrees.create("general-aaaaa")
    (worktrees.root / "base" / "general-aaaaa" / "manifest").unlink()
    (tree(worktree) / "app.py").unlink()
    assert await worktrees.create("general-aaaaa") == worktree
    assert (tree(worktree) / "app.py").exists()


async def test_a_folder_inside_a_repository(project: Path, tmp_path: Path) -> None:
    """The worktree has the files of the session's folder, in their place."""
    worktrees = Worktrees(str(project / "src"), tmp_path / "trees")
    worktree = await worktrees.create("general-aaaaa")
    assert worktree.folder == f"{worktree.top}/src"
    assert sorted(os.listdir(worktree.top)) == [".git", "src"]
    tree(worktree, "util.py").write_text("changed\n")
    assert [change.path for change in await worktrees.changes(worktree)] == ["util.py"]
    assert await worktrees.take(worktree, ["util.py"]) == ["util.py"]
    assert (project / "src" / "util.py").read_text() == "changed\n"


@pytest.mark.parametrize("commits", [False, None])
async def test_a_folder_without_a_commit_has_no_worktree(tmp_path: Path, commits: bool | None) -> None:
    """Outside a repository, and in one that is empty: the error says so."""
    folder = tmp_path / "plain"
    folder.mkdir()
    if commits is False:
        git(folder, "init", "-q")
    with pytest.raises(ConfigError, match="no commit yet" if commits is False else "in no git repository"):
        await Worktrees(str(folder), tmp_path / "trees").create("general-aaaaa")


async def test_files_that_change_are_told_before_and_after(project: Path, tmp_path: Path) -> None:
    """So that they can be kept for an undo."""
    told: list[list[str]] = []

    @asynccontextmanager
    async def keep(paths: list[str]) -> AsyncIterator[None]:
        told.append([*paths, (project / "app.py").read_text()[:6]])
        yield
        told.append([(project / "app.py").read_text()])

    worktrees = Worktrees(str(project), tmp_path / "trees", around=keep)
    worktree = await worktrees.create("general-aaaaa")
    tree(worktree, "app.py").write_text("x\n")
    await worktrees.merge(worktree)
    assert told == [[f"{project}/app.py", "line 0"], ["x\n"]]


async def test_a_link_out_of_the_folder_is_not_taken(project: Path, worktrees: Worktrees) -> None:
    """Nor is a file that programs obey; nothing else is written then."""
    worktree = await worktrees.create("general-aaaaa")
    folder = tree(worktree)
    (folder / "fine.txt").write_text("fine\n")
    for name, make in (
        ("away", lambda path: path.symlink_to("/etc/passwd")),
        ("up", lambda path: path.symlink_to("../../x")),
        ("hook", lambda path: path.symlink_to(".git/hooks/pre-commit")),
        (".envrc", lambda path: path.write_text("evil")),
    ):
        make(folder / name)
        with pytest.raises(Conflict, match=r"leads out of|protected"):
            await worktrees.take(worktree, [name, "fine.txt"])
        (folder / name).unlink()
    assert sorted(os.listdir(project)) == [".git", ".gitignore", "app.py", "link", "run.sh", "src"]


async def test_a_write_that_fails_takes_the_others_back(project: Path, worktrees: Worktrees) -> None:
    """A folder of the agent where the project has a file by now."""
    worktree = await worktrees.create("general-aaaaa")
    (tree(worktree) / "app.py").write_text("by the agent\n")
    (tree(worktree) / "run.sh").unlink()
    (tree(worktree) / "thing").mkdir()
    (tree(worktree) / "thing" / "x").write_text("x\n")
    (project / "thing").write_text("a file\n")
    git(project, "add", ".")
    git(project, "commit", "-qm", "a file")
    with pytest.raises(Conflict, match="thing/x could not be written"):
        await worktrees.merge(worktree)
    assert (project / "app.py").read_text().startswith("line 0\n")
    assert os.access(project / "run.sh", os.X_OK)
    assert (project / "thing").read_text() == "a file\n"
    assert git(project, "status", "--porcelain") == ""


async def test_hostile_settings_run_nothing(project: Path, tmp_path: Path) -> None:
    """Hooks, monitors, filters, fetches and merge drivers that a repository names are not run."""
    mark = tmp_path / "ran"
    script = tmp_path / "evil.sh"
    script.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    script.chmod(0o755)
    hooks = project / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-checkout", "reference-transaction", "post-index-change", "pre-commit"):
        (hooks / name).write_text(script.read_text())
        (hooks / name).chmod(0o755)
    for key, value in {
        "core.fsmonitor": str(script),
        "core.hooksPath": str(hooks),
        "filter.evil.clean": str(script),
        "filter.evil.smudge": str(script),
        "filter.evil.process": str(script),
        "merge.evil.driver": f"{script} %A",
        "core.sshCommand": str(script),
        "remote.origin.url": f"ext::{script}",
        "remote.origin.promisor": "true",
        "protocol.ext.allow": "always",
        "extensions.partialClone": "origin",
        "core.pager": str(script),
        "core.editor": str(script),
        "diff.external": str(script),
        "gpg.program": str(script),
        "commit.gpgSign": "true",
    }.items():
        write_setting(project, key, value)
    (project / ".gitattributes").write_text("* filter=evil merge=evil\n")
    worktrees = Worktrees(str(project), tmp_path / "trees")
    worktree = await worktrees.create("general-aaaaa")
    tree(worktree, "app.py").write_text("changed\n")
    await worktrees.changes(worktree)
    await worktrees.merge(worktree)
    await worktrees.discard(worktree)
    assert not mark.exists()
    assert (project / "app.py").read_text() == "changed\n"


async def test_a_hostile_index_leads_nowhere(project: Path, worktrees: Worktrees, tmp_path: Path) -> None:
    """A path through a link of the index is not written through that link."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (project / "dir").mkdir()
    (project / "dir" / "file").write_text("inside\n")
    git(project, "add", ".")
    blob = blob_of(project, str(outside))
    git(project, "update-index", "--add", "--cacheinfo", f"120000,{blob},dir-link")
    (project / "dir-link").symlink_to(outside)
    worktree = await worktrees.create("general-aaaaa")
    assert os.listdir(outside) == []
    assert os.readlink(tree(worktree, "dir-link")) == str(outside)


def test_worktrees_are_beside_lyras_own_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in it no agent may write."""
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert worktrees_folder(Path("/data/lyra/sessions/20260101-abc")) == Path("/data/lyra-worktrees/20260101-abc")
    assert worktrees_folder(Path("/x/20260101-abc")) == Path("/x/20260101-abc/worktrees")


def test_a_worktree_is_kept_as_data() -> None:
    worktree = Worktree(id="a", top="/t", folder="/t/f", branch="sage/a", commit="c", repository="/r")
    assert Worktree.from_data(worktree.to_data()) == worktree
