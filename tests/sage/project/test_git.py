"""The branch without a program, and git's answers without the programs that a repository names."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from lyra.sage.project.git_state import GitState, git_state
from lyra.sandbox import Sandbox
from lyra.tools.git.repository import read_head

pytestmark = pytest.mark.anyio
ENV = {
    **{name: os.environ[name] for name in ("PATH",)},
    **{f"GIT_{who}_{what}": "me@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    "GIT_CONFIG_GLOBAL": "/dev/null",
}
SIGNATURE = "-----BEGIN PGP SIGNATURE-----\n \n iQ==\n -----END PGP SIGNATURE-----"


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, env=ENV, capture_output=True, text=True, check=True)
    return done.stdout


async def state_of(folder: Path) -> GitState:
    """The state, with patience for a busy machine."""
    state = await git_state(str(folder), timeout_s=30)
    assert state is not None
    return state


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "a.txt").write_text("a\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "The first commit")
    return folder


# ---------------------------------------------------------------- the branch
def test_the_branch_of_a_folder_below_the_root(repository):
    (repository / "deep/er").mkdir(parents=True)
    git(repository, "checkout", "-q", "-b", "feature/x")
    head = read_head(str(repository / "deep/er"))
    assert (head.root, head.branch, head.shown) == (str(repository), "feature/x", "feature/x")


def test_a_commit_instead_of_a_branch(repository):
    git(repository, "checkout", "-q", "--detach")
    commit = git(repository, "rev-parse", "HEAD").strip()
    head = read_head(str(repository))
    assert (head.branch, head.commit, head.shown) == ("", commit, f"commit {commit[:10]}")


def test_no_repository(tmp_path):
    assert read_head(str(tmp_path)) is None


def test_a_worktree_leads_to_its_repository_and_back(repository, tmp_path):
    git(repository, "worktree", "add", "-q", "-b", "other", str(tmp_path / "tree"))
    head = read_head(str(tmp_path / "tree"))
    assert (head.branch, head.common_folder) == ("other", str(repository / ".git"))


def test_a_file_that_points_at_another_repository_is_not_believed(repository, tmp_path):
    """A downloaded `.git` file could name a repository of the user, which does not lead back."""
    git(repository, "worktree", "add", "-q", "-b", "other", str(tmp_path / "tree"))
    (tmp_path / "fake").mkdir()
    for target in (repository / ".git", repository / ".git/worktrees/tree"):
        (tmp_path / "fake/.git").write_text(f"gitdir: {target}\n")
        assert read_head(str(tmp_path / "fake")) is None


@pytest.mark.parametrize("text", ["", "ref: refs/heads/a b\n", "ref: refs/heads/\x1b[2J\n", "x" * 40, "gitdir: /\n"])
def test_a_head_that_git_does_not_write(repository, text):
    (repository / ".git/HEAD").write_text(text)
    assert read_head(str(repository)) is None


# ---------------------------------------------------------------- the state
async def test_the_state_counts_changes_and_names_commits(repository, tmp_path):
    git(tmp_path, "clone", "-q", "-c", "protocol.file.allow=always", str(repository), "clone")
    clone = tmp_path / "clone"
    (repository / "b.txt").write_text("b")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "Theirs")
    git(clone, "fetch", "-q")
    (clone / "c.txt").write_text("c")
    git(clone, "add", ".")
    git(clone, "commit", "-q", "-m", "Ours")
    (clone / "a.txt").write_text("changed")
    (clone / "staged.txt").write_text("s")
    git(clone, "add", "staged.txt")
    (clone / "new file.txt").write_text("n")
    state = await state_of(clone)
    assert state.problem == ""
    assert (state.branch, state.upstream, state.ahead, state.behind) == ("main", "origin/main", 1, 1)
    assert (state.staged, state.changed, state.untracked, state.conflicted) == (1, 1, 1, 0)
    assert [commit.title for commit in state.commits] == ["Ours", "The first commit"]
    assert state.commit.startswith(state.commits[0].hash)
    assert not state.is_clean
    assert (await state_of(repository)).is_clean


async def test_the_state_of_a_worktree(repository, tmp_path):
    git(repository, "worktree", "add", "-q", "-b", "other", str(tmp_path / "tree"))
    (tmp_path / "tree/a.txt").write_text("changed")
    state = await state_of(tmp_path / "tree")
    assert (state.problem, state.branch, state.changed) == ("", "other", 1)


async def test_a_repository_without_commits(tmp_path):
    git(tmp_path, "init", "-q", "-b", "main")
    state = await state_of(tmp_path)
    assert (state.problem, state.branch, state.commit, state.commits) == ("", "main", "", ())


async def test_a_conflict_is_counted(repository):
    git(repository, "checkout", "-q", "-b", "other")
    (repository / "a.txt").write_text("theirs\n")
    git(repository, "commit", "-qam", "theirs")
    git(repository, "checkout", "-q", "main")
    (repository / "a.txt").write_text("ours\n")
    git(repository, "commit", "-qam", "ours")
    with pytest.raises(subprocess.CalledProcessError):
        git(repository, "merge", "other")
    assert (await state_of(repository)).conflicted == 1


async def test_outside_of_a_repository_there_is_no_state(tmp_path):
    assert await git_state(str(tmp_path)) is None


# ---------------------------------------------------------------- a hostile repository
async def test_programs_that_the_repository_names_do_not_run(repository):
    """A monitor, a hook, a pager, a signer, an external diff: each would hang."""
    signed = git(repository, "cat-file", "commit", "HEAD").replace("\n\n", f"\ngpgsig {SIGNATURE}\n\n", 1)
    (repository / "signed").write_text(signed)
    git(repository, "reset", "-q", "--soft", git(repository, "hash-object", "-t", "commit", "-w", "signed").strip())
    (repository / "signed").unlink()
    program = repository / "program.sh"
    program.write_text("#!/bin/sh\nsleep 60\n")
    program.chmod(0o755)
    for name in ("core.fsmonitor", "core.pager", "diff.external", "gpg.program", "core.sshCommand", "pager.status"):
        git(repository, "config", name, str(program))
    git(repository, "config", "core.hooksPath", str(repository / "hooks"))
    git(repository, "config", "log.showSignature", "true")
    (repository / "hooks").mkdir()
    (repository / "hooks/post-index-change").symlink_to(program)
    (repository / "a.txt").write_text("b\n")
    state = await state_of(repository)
    assert state.problem == ""
    assert state.changed == 1
    assert len(state.commits) == 1


async def test_a_filter_of_the_repository_is_held_by_the_sandbox(repository, tmp_path):
    """No setting switches off filters, which git runs on changed files: this one can write nowhere."""
    proof = tmp_path / "proof"
    git(repository, "config", "filter.x.clean", f"sh -c 'echo ran > {proof}; echo ran > {repository}/proof; cat'")
    (repository / ".gitattributes").write_text("* filter=x\n")
    (repository / "a.txt").write_text("b\n")
    state = await state_of(repository)
    assert (state.problem, state.changed) == ("", 1)
    assert not proof.exists()
    assert not (repository / "proof").exists()
    git(repository, "status")
    assert proof.read_text() == "ran\n", "without the sandbox it runs"


async def test_a_repository_that_hangs_is_given_up(repository):
    """A filter of the repository can sleep for ever; the branch is known nevertheless."""
    git(repository, "config", "filter.x.clean", "sleep 60")
    (repository / ".gitattributes").write_text("* filter=x\n")
    (repository / "a.txt").write_text("b\n")
    state = await git_state(str(repository), timeout_s=0.4)
    assert state.branch == "main"
    assert "took longer than 0.4 s" in state.problem


async def test_without_a_sandbox_git_does_not_run(repository):
    """Fail closed: the branch comes from the files alone."""
    state = await git_state(str(repository), sandbox=Sandbox(tiers=()))
    assert state.branch == "main"
    assert "git could not be asked" in state.problem
    assert state.commits == ()
    assert not state.is_clean


async def test_titles_of_commits_are_harmless_and_short(repository):
    git(repository, "commit", "-q", "--allow-empty", "-m", "a\x1b[2J" + "b" * 300)
    commit = (await state_of(repository)).commits[0]
    assert "\x1b" not in commit.title
    assert len(commit.title) == 101
