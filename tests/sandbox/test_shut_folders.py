"""A folder that cannot be looked through hides nothing from us: what is in it stays out of reach.

Root looks through everything, so each command runs here as a user without rights, in a process of its own: the next
one knows of nothing that the one before has seen.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import lyra
from verify.home import make_folder_for

UNPRIVILEGED = 65534
_PACKAGES = os.pathsep.join(str(Path(file).parents[1]) for file in (lyra.__file__, msgspec.__file__) if file)
_RUN = """
import asyncio, ctypes, json, os, sys
from lyra.errors import LyraError
from lyra.sandbox import Profile, Sandbox
tier, folder, script, user = sys.argv[1:]
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(int(user))
    os.setuid(int(user))
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # as after an exec: the process may look at itself
try:
    result = asyncio.run(Sandbox(tiers=(tier,)).run(["sh", "-c", script], Profile(folder)))
except LyraError as error:
    print(json.dumps({"refused": str(error), "text": ""}))
else:
    shown = {name: getattr(result, name) for name in ("appeared", "set_aside", "reopened", "unread")}
    print(json.dumps({"text": result.output.text, **shown}))
"""


def _python() -> str:
    """One that a user without rights may start: ours may lie in a home that is shut to others."""
    ours = Path(sys.executable).resolve()
    if all(folder.stat().st_mode & 0o001 for folder in ours.parents):
        return sys.executable
    return shutil.which(f"python3.{sys.version_info.minor}", path="/usr/local/bin:/usr/bin:/bin") or sys.executable


class Workspace:
    """A folder of that user's, and commands in it."""

    def __init__(self, root: Path, tier: str) -> None:
        self.root = root
        self.tier = tier

    def add(self, **files: str) -> None:
        for name, text in files.items():
            path = self.root / name.replace("__", "/").replace("_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for path in (self.root, *self.root.rglob("*")):
            os.chown(path, *((UNPRIVILEGED, UNPRIVILEGED) if os.getuid() == 0 else (-1, -1)))

    def reopened(self, *names: str) -> list[str]:
        """What a command has shut and we open again; the second tier refuses every change of a mode."""
        return [] if self.tier == "landlock" else list(names)

    def do(self, script: str) -> dict[str, Any]:
        done = subprocess.run(
            [_python(), "-c", _RUN, self.tier, str(self.root), script, str(UNPRIVILEGED)],
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": _PACKAGES},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"no command runs as another user here: {done.stderr[-200:]}")
        told: dict[str, Any] = json.loads(done.stdout)
        if "no sandbox works" in told.get("refused", ""):
            pytest.skip(told["refused"])
        return told


@pytest.fixture
def workspace(tier: str):
    root = make_folder_for(UNPRIVILEGED if os.getuid() == 0 else os.getuid(), prefix="lyra-shut-")
    try:
        yield Workspace(root, tier)
    finally:
        subprocess.run(["chmod", "-R", "u+rwx", str(root)], check=False)
        shutil.rmtree(root)


@pytest.mark.parametrize("mode", ["0311", "0", "0444", "0644"])
def test_a_command_cannot_shut_a_folder_to_open_it_later(workspace, mode):
    """The next command finds keys hidden and hooks read-only as before."""
    workspace.add(backend___env="KEY=hunter2", backend___git__hooks__old="ours", backend__plain="x")
    told = workspace.do(f"cat backend/.env; chmod {mode} backend")
    assert "hunter2" not in told["text"]
    again = workspace.do("cat backend/.env; chmod 755 backend; cat backend/.env; echo x > backend/.git/hooks/new; ls")
    assert "hunter2" not in again["text"], again
    assert not (workspace.root / "backend/.git/hooks/new").exists()
    assert (told["reopened"], again["set_aside"]) == (workspace.reopened("backend"), [])
    assert (workspace.root / "backend").stat().st_mode & 0o700 == 0o700


@pytest.mark.parametrize("mode", [0o311, 0, 0o444])
def test_what_was_shut_from_the_start_is_shown_empty_and_left_alone(workspace, mode):
    workspace.add(a__b___env="KEY=hunter2", a__b___git__config="ours", a__plain="x")
    (workspace.root / "a/b").chmod(mode)
    told = workspace.do("cat a/b/.env; chmod 755 a/b; cat a/b/.env; ls -A a/b; echo y > a/other; cat a/plain")
    assert "hunter2" not in told["text"]
    assert told["text"].endswith("x")
    assert (told["unread"], told["appeared"], told["set_aside"]) == (["a/b"], [], [])
    shut = workspace.root / "a/b"
    assert shut.stat().st_mode & 0o777 == mode
    shut.chmod(0o755)  # its owner looks into it, too
    assert sorted(os.listdir(shut)) == [".env", ".git"]


def test_a_workspace_that_cannot_be_looked_through_runs_nothing(workspace):
    """And one that a command has shut is open again."""
    workspace.add(_env="KEY=hunter2", _git__hooks__old="ours")
    shut = workspace.do("chmod 0311 .")
    assert shut["reopened"] == workspace.reopened(".")
    assert "hunter2" not in workspace.do("cat .env; echo x > .git/hooks/new")["text"]
    workspace.root.chmod(0o311)
    assert "cannot be looked through" in workspace.do("cat .env; echo x > .git/hooks/new; chmod 755 .")["refused"]
    workspace.root.chmod(0o755)
    assert sorted(os.listdir(workspace.root)) == [".env", ".git"]
    assert os.listdir(workspace.root / ".git/hooks") == ["old"]


def test_what_programs_act_on_is_not_made_behind_a_shut_door(workspace):
    workspace.add(s__plain="x")
    told = workspace.do("mkdir -p t/u; echo evil > s/lyra.toml; echo evil > t/u/.envrc; chmod 0311 s t/u; chmod 0 t")
    assert sorted(told["reopened"]) == workspace.reopened("s", "t", "t/u")
    assert {name.partition(".held-")[0] for name in told["set_aside"]} == {"s/lyra.toml", "t/u/.envrc"}


def test_what_lies_in_a_folder_shut_to_writing_is_renamed_all_the_same(workspace):
    """A command that takes the right to write from the owner does not keep the name."""
    workspace.add(s__plain="x")
    told = workspace.do("mkdir -p t; echo evil > s/.envrc; echo evil > t/.npmrc; chmod 555 s t; chmod 500 .")
    assert {name.partition(".held-")[0] for name in told["set_aside"]} == {"s/.envrc", "t/.npmrc"}
    assert not (workspace.root / "s/.envrc").exists()


def test_a_link_into_a_shut_folder_is_put_back(workspace):
    workspace.add(real__env="KEY=hunter2")
    (workspace.root / ".env").symlink_to("real/env")
    workspace.do("rm .env; chmod 0 real")
    assert "hunter2" not in workspace.do("chmod 755 real; cat real/env")["text"]


def test_files_are_made_beside_protected_paths(workspace):
    """Also for a user without rights, and from a program that no other process may look into only where nothing is
    protected."""
    workspace.add(_env="KEY=hunter2", _git__HEAD="x", src__plain="x")
    told = workspace.do("echo one > new; mkdir d; echo two > d/x; mv new newer; cat newer d/x; rm newer; cat .env")
    assert told["text"].split()[:2] == ["one", "two"], told
    assert "hunter2" not in told["text"]
    assert sorted(os.listdir(workspace.root)) == [".env", ".git", "d", "src"]
    blind = "import ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); open('src/new', 'w').write('three'); print('made')"
    assert workspace.do(f'python3 -c "{blind}"')["text"].strip() == "made"
