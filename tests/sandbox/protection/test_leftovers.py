"""What a killed Lyra has left in a workspace is removed at the next start, and nothing that another one uses."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import lyra
from lyra.sandbox import Profile
from lyra.sandbox.protection.forbidden_names import clean_up, is_placeholder, placeholders, remove_stale
from lyra.sandbox.running_commands import _cleaned
from lyra.tools.builtin import Workspace
from lyra.tools.builtin.bash import bash_tools

_PACKAGES = os.pathsep.join(str(Path(file).parents[1]) for file in (lyra.__file__,) if file)
_RUNS = """
import asyncio, sys
from lyra.sandbox import Profile, Sandbox
async def main():
    job = await Sandbox(tiers=(sys.argv[1],)).start(["sh", "-c", "echo up; sleep 60"], Profile(sys.argv[2]))
    while not job.output.total_bytes: await asyncio.sleep(0.01)
    print("up", flush=True)
    await job.wait()
asyncio.run(main())
"""


class Other:
    """Another Lyra with a command in the workspace."""

    def __init__(self, tier: str, workspace: Path, home: Path) -> None:
        self.workspace = workspace
        self.process = subprocess.Popen(
            [sys.executable, "-c", _RUNS, tier, str(workspace)],
            env={**os.environ, "PYTHONPATH": _PACKAGES, "HOME": str(home)},
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"up\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def wait(self) -> None:
        """Wait until its command has been killed, too."""
        for path in self.workspace.glob(".lyra-new-*"):
            fd = os.open(path, os.O_RDONLY)
            fcntl.flock(fd, fcntl.LOCK_EX)
            os.close(fd)


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    """A workspace that is the home folder, too, with a protected path in it."""
    path = tmp_path / "home"
    path.mkdir()
    (path / ".npmrc").write_text("")
    monkeypatch.setenv("HOME", str(path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return path


def test_a_killed_lyra_leaves_folders_and_the_next_start_removes_them(tier, workspace):
    other = Other(tier, workspace, workspace)
    clean_up(str(workspace))
    assert len(os.listdir(workspace)) > 1  # it is alive: nothing is removed
    other.kill()
    left = [name for name in os.listdir(workspace) if name != ".npmrc"]
    assert left, "nothing was left behind, so nothing is shown"
    other.wait()
    bash_tools(Workspace(str(workspace)))
    assert os.listdir(workspace) == [".npmrc"]


def test_the_next_command_removes_them_too(sandbox, tier, workspace):
    other = Other(tier, workspace, workspace)
    other.kill()
    asyncio.run(sandbox.run(["true"], Profile(str(workspace))))
    assert [name for name in os.listdir(workspace) if not name.startswith(".lyra-new-")] == [".npmrc"]
    other.wait()
    _cleaned.clear()  # as in a new process
    asyncio.run(sandbox.run(["true"], Profile(str(workspace))))
    assert os.listdir(workspace) == [".npmrc"]


def test_two_lyras_share_what_they_need(sandbox, tier, workspace):
    """The first one to end leaves the placeholders to the other; its command still cannot make them."""
    if tier != "bubblewrap":
        pytest.skip("there are no placeholders in this tier")
    other = Other(tier, workspace, workspace)
    try:
        asyncio.run(sandbox.run(["true"], Profile(str(workspace))))
        assert {".git", ".lyra", ".vscode", ".config"} <= set(os.listdir(workspace))
    finally:
        os.kill(other.process.pid, signal.SIGKILL)
        other.kill()
    asyncio.run(sandbox.run(["true"], Profile(str(workspace))))
    assert os.listdir(workspace) == [".npmrc"]


def test_folders_of_the_user_stay(tmp_path):
    """An empty one without the mark, one with something in it, a file and a link."""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".lyra").mkdir()
    (tmp_path / ".lyra/x").write_text("")
    (tmp_path / ".lyra").chmod(0o1700)
    (tmp_path / ".vscode").symlink_to("elsewhere")
    (tmp_path / ".lyra-new-x").write_text("")
    clean_up(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == [".git", ".lyra", ".lyra-new-x", ".vscode"]
    assert stat.S_IMODE((tmp_path / ".lyra").stat().st_mode) == 0o700
    clean_up(str(tmp_path / "missing"))


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
def test_modes_of_placeholders(tmp_path, umask):
    """`.lyra` is open to its owner alone; one that came to be used is a plain folder afterwards."""
    before = os.umask(umask)
    try:
        release = placeholders(str(tmp_path))
    finally:
        os.umask(before)
    assert is_placeholder(f"{tmp_path}/.lyra")
    assert stat.S_IMODE((tmp_path / ".lyra").stat().st_mode) == 0o1700
    (tmp_path / ".lyra/lyra.db").write_text("")
    release()
    assert stat.S_IMODE((tmp_path / ".lyra").stat().st_mode) == 0o700
    assert os.listdir(tmp_path) == [".lyra"]


def test_placeholders_in_use_are_not_stale(tmp_path):
    """Of this process: neither while a command needs them, nor while another needs fewer of them."""
    first = placeholders(str(tmp_path))
    remove_stale(str(tmp_path))
    assert len(os.listdir(tmp_path)) == 3
    second = placeholders(str(tmp_path), [".git"])
    first()
    assert os.listdir(tmp_path) == [".git"]
    fd = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(BlockingIOError):  # another process sees that there are commands
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(fd)
    second()
    assert os.listdir(tmp_path) == []


def test_a_workspace_that_is_gone(tmp_path):
    placeholders(str(tmp_path / "missing"))()
    remove_stale(str(tmp_path / "missing"))
