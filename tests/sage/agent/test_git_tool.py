"""The tool Git in a session: asked about, bounded, and taken back by an undo."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from lyra.errors import ConfigError
from tests.sage.agent.test_questions_asked import Person, results
from tests.sage.open_session import Project, call


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(project: Project) -> Project:
    """A repository with one commit, and a user with a name."""
    (project.home / ".gitconfig").write_text("[user]\n\tname = Me\n\temail = me@example.com\n")
    git(project.folder, "init", "-q", "-b", "main")
    project.write("a.py", "x = 1\n")
    git(project.folder, "add", "-A")
    git(project.folder, "commit", "-qm", "first")
    return project


def say(command: str, **more: Any) -> dict[str, Any]:
    return call("Git", command=command, **more)


DONE: dict[str, Any] = {"text": "."}


async def test_a_commit_is_asked_about_and_an_undo_takes_it_back(repository: Project) -> None:
    """The branch, the index and the files are as before the turn; the commit is told, so that nothing is lost."""
    first = git(repository.folder, "rev-parse", "HEAD")
    write = call("Write", file_path="b.py", content="y = 2\n")
    person = Person("allow")
    script = [write, say("add b.py"), say("commit -m 'Add b'"), DONE]
    async with repository.open(*script, options={"attended": True}) as session:
        await person.talk(session, "go")
        second = git(repository.folder, "rev-parse", "HEAD")
        assert git(repository.folder, "log", "--format=%s %an") == "Add b Me\nfirst Me"
        undone = await session.undo()
    assert person.asked[1:] == ["add b.py", "commit -m 'Add b'"]
    assert git(repository.folder, "rev-parse", "HEAD") == first
    assert git(repository.folder, "status", "--porcelain") == ""
    assert not (repository.folder / "b.py").exists()
    assert any(second[:10] in problem for problem in undone.problems)


async def test_a_redo_gives_an_undone_commit_again(repository: Project) -> None:
    """With the branch, the index and the files; twice, and from the journal of an earlier process."""
    write = call("Write", file_path="b.py", content="y = 2\n")
    script = [write, say("add b.py"), DONE, say("commit -m 'Add b'"), DONE]
    folder = repository.folder

    def look() -> list[str]:
        return [git(folder, "rev-parse", "HEAD"), git(folder, "status", "--porcelain"), git(folder, "ls-files", "-s")]

    async with repository.open(*script, options={"attended": True, "allow": ("Git", "Write")}) as session:
        states = [look()]
        for _ in range(2):
            await Person("deny").talk(session, "go")
            states.append(look())
        assert states[1][0] != states[2][0]
        for _ in range(2):
            for state in (states[1], states[0]):
                await session.undo()
                assert look() == state
            for state in (states[1], states[2]):
                redone = await session.redo()
                assert look() == state
        assert any(f"main is at {states[2][0][:10]} again" in problem for problem in redone.problems)
        with pytest.raises(ConfigError, match="there is no undo to take back"):
            await session.redo()
        await session.undo()
    async with repository.open(*script, resume=session.id) as again:
        await again.redo()
        assert look() == states[2]
        await again.undo()
        await Person("deny").talk(again, "something else")
        with pytest.raises(ConfigError, match="there is no undo to take back"):
            await again.redo()


async def test_a_checkpoint_has_the_branch_as_it_was(repository: Project) -> None:
    script = [say("commit --allow-empty -m one"), DONE]
    async with repository.open(*script, options={"attended": True, "allow": ("Git",)}) as session:
        await session.checkpoint("clean")
        await Person("deny").talk(session, "go")
        await session.restore("clean")
        assert git(repository.folder, "log", "--format=%s") == "first"
        await session.restore("undo-1")
        assert git(repository.folder, "log", "--format=%s") == "one\nfirst"


async def test_an_undo_leaves_what_another_hand_has_moved(repository: Project) -> None:
    script = [say("commit --allow-empty -m one"), DONE]
    async with repository.open(*script, options={"attended": True, "allow": ("Git(commit *)",)}) as session:
        await Person("deny").talk(session, "go")
        git(repository.folder, "commit", "-q", "--allow-empty", "-m", "mine")
        undone = await session.undo()
    assert git(repository.folder, "log", "-1", "--format=%s") == "mine"
    assert any("has changed since" in problem for problem in undone.problems)


async def test_a_rule_names_a_subcommand_and_other_ones_are_asked_about(repository: Project) -> None:
    """`Git(commit *)` is no answer for hooks, and `Bash(git *)` none for Git; a deny of `Bash(git push *)` is one."""
    script = [
        say("commit --allow-empty -m one"),
        say("git commit --allow-empty -m two"),
        say("tag v1"),
        say("commit --allow-empty -m three", hooks=True),
        say("push origin main"),
        DONE,
    ]
    person = Person("deny")
    options = {
        "attended": True,
        "allow": ("Git(commit *)", "Bash(git *)"),
        "deny": ("Bash(git push *)",),
    }
    async with repository.open(*script, options=options) as session:
        lines = await person.talk(session, "go")
    assert git(repository.folder, "log", "--format=%s") == "two\none\nfirst"
    assert person.asked == ["tag v1", "commit --allow-empty -m three"]
    assert "the deny rule Bash(git push *)" in results(lines)[-1]


async def test_the_usual_acts(repository: Project) -> None:
    """Branch, switch, stash, tag, rebase and merge do what git does."""
    commands = [
        "switch -c feature",
        "commit --allow-empty -m on-feature",
        "tag -a v1 -m one",
        "switch main",
        "commit --allow-empty -m on-main",
        "switch feature",
        "rebase main",
        "switch main",
        "merge --no-ff feature -m merged",
        "branch -d feature",
        "stash list",
        "status --short",
    ]
    person = Person("allow")
    script = [*(say(command) for command in commands), DONE]
    async with repository.open(*script, options={"attended": True}) as session:
        lines = await person.talk(session, "go")
    assert [text for text in results(lines) if "exit code 0" not in text] == []
    assert git(repository.folder, "log", "--first-parent", "--format=%s") == "merged\non-main\nfirst"
    assert "stash list" not in person.asked  # it only reads


# ---------------------------------------------------------------- what does not run
MARK = "touch {folder}/ran"
PROGRAMS = {
    "core.fsmonitor": "{program}",
    "core.pager": "{program}",
    "core.editor": "{program}",
    "core.sshCommand": "{program}",
    "core.hooksPath": "{hooks}",
    "sequence.editor": "{program}",
    "diff.external": "{program}",
    "gpg.program": "{program}",
    "commit.gpgSign": "true",
    "credential.helper": "!{program}",
    "alias.commit": "!{program}",
    "alias.status": "!{program}",
    "merge.mine.driver": "{program}",
    "diff.mine.textconv": "{program}",
    "core.alternateRefsCommand": "{program}",
    "pager.status": "{program}",
    "trailer.x.command": "{program}",
    "log.showSignature": "true",
}


async def test_no_setting_and_no_hook_of_a_repository_runs_anything(repository: Project, tmp_path: Path) -> None:
    """Whatever the repository's own settings name; and git writes none of them."""
    program, hooks = tmp_path / "evil.sh", tmp_path / "hooks"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    hooks.mkdir()
    for folder in (hooks, repository.folder / ".git/hooks"):
        for name in ("pre-commit", "post-commit", "post-checkout", "commit-msg", "pre-push", "post-index-change"):
            (folder / name).write_text(program.read_text())
            (folder / name).chmod(0o755)
    repository.write(".gitattributes", "*.py merge=mine diff=mine\n")
    for branch, flag in (("side", "-qc"), ("main", "-q")):  # a merge that needs its driver
        git(repository.folder, "-c", "core.hooksPath=/dev/null", "switch", flag, branch)
        repository.write("a.py", f"x = 1  # {branch}\n")
        git(repository.folder, "-c", "core.hooksPath=/dev/null", "commit", "-qam", branch)
    for key, value in PROGRAMS.items():
        git(repository.folder, "config", key, value.format(program=program, hooks=hooks))
    git(repository.folder, "config", "remote.origin.url", f"ext::{program}")
    git(repository.folder, "config", "protocol.ext.allow", "always")
    git(repository.folder, "config", "branch.other.description", "git would remove this with the branch")
    (tmp_path / "ran").unlink(missing_ok=True)
    config = (repository.folder / ".git/config").read_bytes()
    commands = ["merge side -m side", "merge --abort", "add -A", "commit -m two", "switch -c other"]
    commands += ["commit --allow-empty -m three", "switch main", "status", "merge other -m four", "stash -u"]
    commands += ["branch -d other", "push origin main", "fetch origin", "tag -a v -m v", "rebase -i HEAD~1"]
    commands += ["commit --amend --allow-empty -m five", "reset --hard HEAD"]
    script = [*(say(command) for command in commands), DONE]
    async with repository.open(*script, options={"attended": True, "allow": ("Git",)}) as session:
        lines = await Person("deny").talk(session, "go")
    assert not (tmp_path / "ran").exists(), results(lines)
    assert (repository.folder / ".git/config").read_bytes() == config
    assert git(repository.folder, "-c", "core.fsmonitor=false", "log", "--format=%s", "--all").startswith("five")
    assert not [name for name in (repository.folder / ".git").iterdir() if name.suffix == ".lock"]


async def test_hooks_run_where_the_user_has_allowed_it(repository: Project, tmp_path: Path) -> None:
    hook = repository.folder / ".git/hooks/pre-commit"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    person = Person("allow")
    script = [say("commit --allow-empty -m two", hooks=True), DONE]
    async with repository.open(*script, options={"attended": True}) as session:
        await person.talk(session, "go")
    assert person.asked == ["commit --allow-empty -m two"]
    assert (tmp_path / "ran").exists()


async def test_files_that_other_programs_obey_are_not_changed_by_a_commit(repository: Project) -> None:
    """Neither by a branch that holds them, nor by what is thrown away; where the user says so they are."""
    folder = repository.folder
    git(folder, "switch", "-qc", "evil")
    repository.write(".vscode/tasks.json", "evil")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "evil")
    git(folder, "switch", "-q", "main")
    repository.write(".envrc", "mine")
    git(folder, "add", "-f", ".envrc")
    git(folder, "commit", "-qm", "mine")
    repository.write(".envrc", "not committed yet")
    commands = [say("switch evil"), say("merge evil -m m"), say("cherry-pick evil"), say("reset --hard HEAD")]
    person = Person("allow")
    script = [*commands, say("switch evil"), say("restore ."), say("switch -f evil", obeyed=True), DONE]
    async with repository.open(*script, options={"attended": True, "allow": ("Git(*)",)}) as session:
        lines = await person.talk(session, "go")
    outputs = results(lines)
    for refused in outputs[:3]:
        assert "would change files that other programs obey" in refused
        assert ".vscode/tasks.json" in refused
    assert "put back, because other programs obey them" in outputs[3]
    assert person.asked == ["switch -f evil"]
    assert (folder / ".vscode/tasks.json").read_text() == "evil"
    assert git(folder, "branch", "--show-current") == "evil"


async def test_what_goes_through_a_filter_is_refused(repository: Project) -> None:
    """Without its program other bytes would be committed."""
    repository.write(".gitattributes", "*.bin filter=lfs\n")
    script = [say("add -A"), DONE]
    async with repository.open(*script, options={"attended": True, "allow": ("Git",)}) as session:
        lines = await Person("deny").talk(session, "go")
    assert "sends files through the filter lfs" in results(lines)[0]
    assert git(repository.folder, "diff", "--cached", "--name-only") == ""


async def test_a_repository_elsewhere_is_not_reached(repository: Project, tmp_path: Path) -> None:
    """By a `.git` that points to it, or from a folder inside it."""
    inner = repository.folder / "inner"
    inner.mkdir()
    (inner / ".git").write_text(f"gitdir: {repository.folder}/.git\n")
    repository.folder = inner
    script = [say("commit --allow-empty -m x"), DONE]
    async with repository.open(*script, options={"attended": True, "allow": ("Git",)}) as session:
        lines = await Person("deny").talk(session, "go")
    assert "is in no git repository" in results(lines)[0]


async def test_nothing_runs_by_the_settings_of_a_submodule(repository: Project, tmp_path: Path) -> None:
    """Git runs in it for `add` and `status`: its monitors and filters are switched off, too."""
    program = tmp_path / "evil.sh"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\ncat\n")
    program.chmod(0o755)
    inner = repository.folder / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    repository.write("inner/.gitattributes", "*.txt filter=evil\n")
    repository.write("inner/a.txt", "one\n")
    git(inner, "add", "-A")
    git(inner, "commit", "-qm", "inner")
    for key in ("core.fsmonitor", "filter.evil.clean", "filter.evil.smudge", "filter.evil.process"):
        git(inner, "config", key, str(program))
    git(repository.folder, "-c", "core.fsmonitor=false", "add", "inner")
    git(repository.folder, "commit", "-qm", "a submodule")
    git(repository.folder, "config", "submodule.inner.ignore", "none")
    repository.write(".gitmodules", '[submodule "inner"]\n\tpath = inner\n\turl = ./inner\n\tignore = none\n')
    repository.write("inner/a.txt", "two\n")
    (tmp_path / "ran").unlink(missing_ok=True)
    script = [*map(say, ("add -A", "status", "commit -am x", "switch -c y", "stash", "reset --hard HEAD")), DONE]
    async with repository.open(*script, options={"attended": True, "allow": ("Git",)}) as session:
        lines = await Person("deny").talk(session, "go")
    assert not (tmp_path / "ran").exists(), results(lines)
