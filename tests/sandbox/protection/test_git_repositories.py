"""A folder that git would take for a repository is found by its shape, and what its settings name is protected."""

from __future__ import annotations

import asyncio
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from lyra.sandbox import Profile, Sandbox
from lyra.sandbox.protected import find
from lyra.sandbox.protection.git_repositories import find_made_repository, find_named_paths, is_repository

CONFIG = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n\tfsmonitor = touch {mark}; false\n"
PLANT = "mkdir -p {0}/objects {0}/refs; echo 'ref: refs/heads/x' > {0}/HEAD; printf '%s' \"$CONFIG\" > {0}/config"


@dataclass
class Planter:
    sandbox: Sandbox
    workspace: Path
    mark: Path
    config: str

    def __call__(self, script):
        profile = Profile(str(self.workspace), env={"CONFIG": self.config})
        return asyncio.run(self.sandbox.run(["bash", "-c", script], profile))


@pytest.fixture
def do(sandbox, tmp_path):
    """Runs commands in a workspace; `$CONFIG` are settings that name a program."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    config = CONFIG.format(mark=tmp_path / "mark")

    return Planter(sandbox, workspace, tmp_path / "mark", config)


def status(folder) -> None:
    """What the user does next."""
    env = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    subprocess.run(["git", "status"], cwd=folder, env=env, check=False, capture_output=True)


def named(*repositories: str) -> set[str]:
    return {os.path.normpath(path) for path in find_named_paths(repositories).paths}


def test_the_planted_repository_is_real(tmp_path):
    """Without a sandbox git obeys it."""
    env = {**os.environ, "CONFIG": CONFIG.format(mark=tmp_path / "mark")}
    subprocess.run(["bash", "-c", PLANT.format("docs")], cwd=tmp_path, env=env, check=True)
    status(tmp_path / "docs")
    assert (tmp_path / "mark").exists()


@pytest.mark.parametrize("folder", ["docs", ".", "a/b/c", "venv"])
def test_a_planted_repository_is_set_aside_and_told(do, folder):
    (do.workspace / "docs").mkdir()
    result = do(PLANT.format(folder))
    prefix = "" if folder == "." else f"{folder}/"
    assert [name.partition(".held-")[0] for name in result.set_aside] == [f"{prefix}HEAD"]
    assert result.appeared in ((folder,), ("HEAD",))
    assert (do.workspace / folder / "config").exists()  # nothing is lost
    status(do.workspace / folder)
    assert not do.mark.exists()
    assert do(f"echo x > {folder}/more && echo works").output.text.strip() == "works"  # the folder is as before


def test_one_that_several_commands_complete(do):
    """In whatever order, also where the last part is the settings."""
    do("mkdir -p docs/refs; printf '%s' \"$CONFIG\" > docs/config")
    assert do("mkdir docs/objects").set_aside == ()
    assert len(do("echo 'ref: refs/heads/x' > docs/HEAD").set_aside) == 1
    assert len(do("mv docs/HEAD.held-* docs/HEAD").set_aside) == 1
    status(do.workspace / "docs")
    assert not do.mark.exists()


def test_one_inside_a_folder_that_is_set_aside(do):
    """The new name of a planted `.git` is no repository either."""
    do(PLANT.format("sub/.git") + "; mkdir -p sub/.git/modules; " + PLANT.format("sub/.git/modules/x"))
    for path in do.workspace.rglob("*"):
        if path.is_dir():
            status(path)
    assert not do.mark.exists()


def test_a_repository_of_the_users_own_is_read_only(do):
    """A bare one that was there before: it is neither written nor renamed, and can be read."""
    subprocess.run(["git", "init", "-q", "--bare", "remote.git"], cwd=do.workspace, check=True)
    before = (do.workspace / "remote.git/config").read_text()
    result = do(
        "echo x >> remote.git/config; rm remote.git/HEAD; mv remote.git r; cat remote.git/HEAD; echo fine > new"
    )
    assert "ref: refs/heads" in result.output.text
    assert (do.workspace / "remote.git/config").read_text() == before
    assert (result.set_aside, result.appeared) == ((), ())
    assert (do.workspace / "new").exists()


def test_a_workspace_that_is_a_bare_repository(do):
    """Its parts stay, other files can be made."""
    subprocess.run(["git", "init", "-q", "--bare", "."], cwd=do.workspace, check=True)
    before = (do.workspace / "config").read_text()
    result = do("echo x >> config; echo x > hooks/post-update; rm -rf refs; echo fine > new; cat new")
    assert (do.workspace / "config").read_text() == before
    assert not (do.workspace / "hooks/post-update").exists()
    assert "fine" in result.output.text
    assert result.set_aside == ()


def test_folders_that_settings_name(do):
    """Hooks and included settings in the working tree, also those that do not exist yet."""
    subprocess.run(["git", "init", "-q"], cwd=do.workspace, check=True)
    with (do.workspace / ".git/config").open("a") as file:
        file.write('[core]\n hooksPath = tools/hooks ; comment\n[include]\n\tpath = "../shared"\n path=../later\n')
    (do.workspace / "tools/hooks").mkdir(parents=True)
    (do.workspace / "shared").write_text("")
    result = do("echo x > tools/hooks/pre-commit; echo x > shared; echo x > later; echo fine > tools/new")
    assert os.listdir(do.workspace / "tools/hooks") == []
    assert (do.workspace / "shared").read_text() == ""
    assert not (do.workspace / "later").exists()
    assert (do.workspace / "tools/new").exists()
    assert [name.partition(".held-")[0] for name in result.set_aside] in (["later"], [])


def test_a_planted_repository_names_nothing(do):
    """Its settings protect no folder of the user's, and none is renamed because of them."""
    (do.workspace / "src").mkdir()
    do("mkdir -p sub/.git; echo x > sub/.git/HEAD; printf '[core]\\n hooksPath = ../src\\n' > sub/.git/config")
    assert (do.workspace / "src").is_dir()
    assert find(Profile(str(do.workspace))).read_only == ()


@pytest.mark.parametrize(
    ("names", "is_one"),
    [
        ({"head", "objects", "refs"}, True),
        ({"head", "commondir"}, True),
        ({"objects", "refs", "config"}, False),
        ({"head", "objects"}, False),
        ({"head", "refs", "config"}, False),
    ],
)
def test_the_shape(names, is_one):
    assert is_repository(names) is is_one


def test_what_a_new_file_makes(tmp_path):
    """The folder that it would complete, at any depth; in the root other files stay free."""
    for name in ("a/refs", "a/config", "b/HEAD", "b/refs", "c/HEAD", "d/HEAD", "d/objects", "d/refs"):
        (tmp_path / name).mkdir(parents=True)
    made = {
        name: find_made_repository(str(tmp_path), f"{tmp_path}/{name}")
        for name in ("a/HEAD", "a/objects/x", "b/objects/x/y", "c/commondir", "d/src/x", "d/config", "a/x", "x")
    }
    assert {name: folder and os.path.relpath(folder, tmp_path) for name, folder in made.items()} == {
        "a/HEAD": None,
        "a/objects/x": None,
        "b/objects/x/y": "b",
        "c/commondir": "c",
        "d/src/x": "d",
        "d/config": "d",
        "a/x": None,
        "x": None,
    }
    for name in ("HEAD", "objects"):
        (tmp_path / name).mkdir()
    assert find_made_repository(str(tmp_path), f"{tmp_path}/refs/x") == str(tmp_path)
    (tmp_path / "refs").mkdir()
    assert find_made_repository(str(tmp_path), f"{tmp_path}/config") == str(tmp_path)
    assert find_made_repository(str(tmp_path), f"{tmp_path}/main.py") is None


def test_settings_of_worktrees_and_of_the_user(tmp_path, monkeypatch):
    """A `.git` may be a file, and a working tree shares the settings of its repository."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    files = {
        "home/.gitconfig": "[core]\n\thooksPath = .my-hooks\n",
        "main/config": "[core]\nfsmonitor = bin/watch\nhooksPath=true\n",
        "main/HEAD": "x",
        "main/worktrees/w/HEAD": "x",
        "main/worktrees/w/commondir": "../..\n",
        "main/worktrees/w/config.worktree": "[include]\n path = ~/more\n",
        "tree/.git": "gitdir: ../main/worktrees/w\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    paths = {os.path.relpath(path, tmp_path) for path in named(f"{tmp_path}/tree/.git")}
    assert paths >= {"tree/bin/watch", "tree/.my-hooks", "home/more"}
    assert not {"tree/true", "main/true"} & paths


def test_strange_settings_do_no_harm(tmp_path):
    """A pipe, a folder, a loop of links and nothing at all: none blocks, none is an error, none names a file."""
    git = tmp_path / ".git"
    git.mkdir()
    (git / "HEAD").write_text("x")
    plain = named(str(git))  # settings of the machine may name files relative to every repository
    os.mkfifo(git / "config")
    (git / "config.worktree").mkdir()
    (git / "commondir").symlink_to("commondir")
    assert named(str(git)) == plain
    assert named(str(tmp_path / "missing")) == named()
    (tmp_path / "file").write_bytes(b"\xff\xfe gitdir:")
    assert named(str(tmp_path / "file")) == named()


def test_settings_of_one_writable_folder_that_name_a_file_of_another(sandbox, tmp_path):
    """Also of the repository that the workspace lies in."""
    for name in ("top/work", "second"):
        (tmp_path / name).mkdir(parents=True)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path / "top", check=True)
    with (tmp_path / "top/.git/config").open("a") as file:
        file.write("[include]\n path = ../../second/shared\n path = ../work/own\n")
    for name in ("second/shared", "top/work/own"):
        (tmp_path / name).write_text("")
    profile = Profile(str(tmp_path / "top/work"), writable_also=(str(tmp_path / "second"),))
    script = f"echo x > own; echo x > {tmp_path}/second/shared; echo x > {tmp_path}/second/free"
    asyncio.run(sandbox.run(["bash", "-c", script], profile))
    assert [(tmp_path / name).read_text() for name in ("second/shared", "top/work/own")] == ["", ""]
    assert (tmp_path / "second/free").exists()


@pytest.mark.parametrize("is_workspace", [True, False])
def test_settings_deep_in_one_writable_folder_that_name_files_of_another(sandbox, tmp_path, is_workspace):
    """Whichever of the two is the workspace, and in a repository without a `.git`, too."""
    first, second = tmp_path / "first", tmp_path / "second"
    deep = first / "a/b/c/d/e/f"
    for folder in (deep / "tree", second):
        folder.mkdir(parents=True)
    subprocess.run(["git", "init", "-q"], cwd=deep / "tree", check=True)
    subprocess.run(["git", "init", "-q", "--bare", str(deep / "bare")], check=True)
    for config, name in ((deep / "tree/.git/config", "shared"), (deep / "bare/config", "other")):
        (second / name).write_text("")
        with config.open("a") as file:
            file.write(f"[include]\n path = {second}/{name}\n[core]\n hooksPath = {second}/hooks\n")
    profile = Profile(str(first), writable_also=(str(second),))
    if not is_workspace:
        profile = Profile(str(second), writable_also=(str(first),))
    script = "echo x > shared; echo x > other; mkdir hooks; echo x > hooks/pre-commit; echo x > free"
    asyncio.run(sandbox.run(["bash", "-c", f"cd {second}; {script}"], profile))
    assert [(second / name).read_text() for name in ("shared", "other")] == ["", ""]
    assert not (second / "hooks/pre-commit").exists()
    assert (second / "free").exists()
