"""Hooks that a repository's settings declare (git 2.54 and later) are switched off for the acts outside the sandbox."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lyra.sage.agent.worktrees import git as worktree_git
from lyra.sage.agent.worktrees.worktrees import Worktrees

_GIT = """#!/bin/sh
act=$(printf '%s ' "$@" | grep -o 'worktree add\\|read-tree')
env | grep '^GIT_CONFIG_\\(KEY\\|VALUE\\)' | sed "s/^/$act /" >> {log}
exec /usr/bin/git "$@"
"""


def git(folder: Path, *words: str) -> None:
    settings = ("-c", "user.name=U", "-c", "user.email=u@x")
    subprocess.run(["git", "-C", str(folder), *settings, *words], check=True, capture_output=True)


@pytest.mark.slow
async def test_hooks_of_settings_are_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their names, also those of an included file, and whatever is in a name."""
    project, programs, log = tmp_path / "project", tmp_path / "bin", tmp_path / "log"
    for folder in (project, programs):
        folder.mkdir()
    (project / "a.txt").write_text("x")
    git(project, "init", "-q")
    git(project, "add", ".")
    git(project, "commit", "-qm", "first")
    included = tmp_path / "included"
    included.write_text('[hook "in=cluded.x"]\n\tevent = reference-transaction\n\tcommand = touch y\n')
    settings = project / ".git" / "config"
    hook = f'[hook "evil"]\n\tevent = post-index-change\n\tcommand = touch x\n[include]\n\tpath = {included}\n'
    settings.write_text(settings.read_text() + hook)
    (programs / "git").write_text(_GIT.format(log=log))
    (programs / "git").chmod(0o755)
    monkeypatch.setattr(worktree_git, "PATH", f"{programs}:/usr/bin:/bin")
    await Worktrees(str(project), tmp_path / "trees").create("general-aaaaa")
    lines = log.read_text().splitlines()
    for act in ("worktree add", "read-tree"):
        told = {line.removeprefix(f"{act} ") for line in lines if line.startswith(act)}
        assert {value.partition("=")[2] for value in told} == {"hook.evil.enabled", "hook.in=cluded.x.enabled", "false"}
