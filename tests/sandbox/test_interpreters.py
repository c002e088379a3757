"""The interpreter of a project's environment starts in the sandbox, read-only, and brings nothing else along."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lyra.sandbox import Profile
from lyra.sandbox.paths import interpreter_mounts


def elsewhere() -> str | None:
    """An installed Python that is not one of the system's, such as pyenv's."""
    found = [sys.base_prefix, *map(str, sorted(Path.home().glob(".pyenv/versions/3.*")))]
    usable = [path for path in found if not path.startswith("/usr") and os.path.exists(f"{path}/bin/python3")]
    return usable[0] if usable else None


PYTHON = elsewhere()
needs_python = pytest.mark.skipif(PYTHON is None, reason="no Python is installed outside /usr")


@pytest.fixture
def project(tmp_path):
    """A project with an environment whose interpreter lies elsewhere."""
    folder = tmp_path / "project"
    folder.mkdir()
    subprocess.run([f"{PYTHON}/bin/python3", "-m", "venv", "--without-pip", folder / ".venv"], check=True)
    return folder


def do(sandbox, folder, script):
    return asyncio.run(sandbox.run(["bash", "-c", script], Profile(str(folder))))


_TRY = (
    "import sys, sqlite3, ssl, json; print(sys.prefix.endswith('.venv'), sys.base_prefix)\n"
    "try: open(sys.base_prefix + '/lib/evil', 'w')\n"
    "except OSError as error: print(type(error).__name__)\n"
)


@needs_python
def test_an_environment_runs(sandbox, project):
    """By its own name, by `activate`, and from a folder below; the installation cannot be written."""
    (project / "try.py").write_text(_TRY)
    script = (
        ".venv/bin/python try.py; . .venv/bin/activate; python try.py; cd /; "
        f"{project}/.venv/bin/python3 {project}/try.py"
    )
    result = do(sandbox, project, script)
    assert result.output.text.count("True") == 3, result.output.text
    assert "Error" in result.output.text
    assert not os.path.exists(f"{PYTHON}/lib/evil")


@needs_python
def test_packages_of_the_environment_are_found(sandbox, project):
    (packages,) = project.glob(".venv/lib/python3*/site-packages")
    (packages / "mine.py").write_text("print('mine')")
    assert do(sandbox, project, ".venv/bin/python -c 'import mine'").output.text.strip() == "mine"


@needs_python
def test_an_environment_in_a_folder_below(sandbox, project, tmp_path):
    below = tmp_path / "all/backend"
    below.parent.mkdir()
    shutil.copytree(project, below, symlinks=True)
    result = do(sandbox, tmp_path / "all", "backend/.venv/bin/python -c 'print(6 * 7)'")
    assert result.output.text.strip() == "42"


@needs_python
def test_an_installation_behind_a_link(sandbox, tmp_path):
    """As uv names them: a link to the folder of the exact version."""
    (tmp_path / "uv").mkdir()
    (tmp_path / "uv/cpython-3").symlink_to(str(PYTHON))
    project = tmp_path / "project"
    (project / ".venv/bin").mkdir(parents=True)
    (project / ".venv/bin/python").symlink_to(tmp_path / "uv/cpython-3/bin/python3")
    (project / ".venv/pyvenv.cfg").write_text(
        f"home = {tmp_path}/uv/cpython-3/bin\ninclude-system-site-packages = false\n"
    )
    result = do(sandbox, project, ".venv/bin/python -c 'import json, sys; print(sys.prefix)'")
    assert result.output.text.strip() == f"{project}/.venv", result.output.text


@needs_python
def test_a_copied_interpreter(sandbox, tmp_path):
    """`python -m venv --copies`: the program is in the project, its library is not."""
    folder = tmp_path / "project"
    folder.mkdir()
    subprocess.run([f"{PYTHON}/bin/python3", "-m", "venv", "--copies", "--without-pip", folder / ".venv"], check=True)
    assert do(sandbox, folder, ".venv/bin/python -c 'import json; print(42)'").output.text.strip() == "42"


def make(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")


def test_only_an_installation_is_shown(tmp_path, monkeypatch):
    """Its programs and its libraries; nothing beside them, and nothing that only looks like one."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    root = tmp_path / "py"
    make(root, "bin/python3.11", "bin/pip", "lib/python3.11/os.py", "lib/libpython3.11.so", "etc/key", "notes")
    (root / "bin/python3").symlink_to("python3.11")
    environment = tmp_path / "project/.venv"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin/python").symlink_to(root / "bin/python3")
    shown = {place: source for source, place in interpreter_mounts([str(environment)], [str(tmp_path / "project")])}
    assert shown == {
        f"{root}/bin/python3": f"{root}/bin/python3.11",
        f"{root}/bin/python3.11": f"{root}/bin/python3.11",
        f"{root}/lib": f"{root}/lib",
    }
    assert interpreter_mounts([str(environment)], [str(tmp_path)]) == []  # it is visible already
    (root / "lib/python3.11/os.py").unlink()
    assert interpreter_mounts([str(environment)], []) == []


def test_an_installation_in_the_home_folder(tmp_path, monkeypatch):
    """`~/lib` may hold other things: only the library of Python is shown."""
    monkeypatch.setenv("HOME", str(tmp_path))
    make(tmp_path, "bin/python3.11", "lib/python3.11/os.py", "lib/private/notes", "p/.venv/x")
    (tmp_path / "p/.venv/bin").mkdir()
    (tmp_path / "p/.venv/bin/python").symlink_to(tmp_path / "bin/python3.11")
    places = [place for _, place in interpreter_mounts([str(tmp_path / "p/.venv")], [str(tmp_path / "p")])]
    assert places == [f"{tmp_path}/bin/python3.11", f"{tmp_path}/lib/python3.11"]


@pytest.mark.parametrize("home", ["", "relative/bin", "/nowhere/bin", "/proc/self/root/x\0y", "/"])
def test_settings_that_name_nothing(tmp_path, home):
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/pyvenv.cfg").write_text(f"HOME = {home}\nhome\n=\n")
    assert interpreter_mounts([str(tmp_path / ".venv")], ["/usr", "/bin"]) == []


def test_a_pipe_as_settings_does_not_block(tmp_path):
    (tmp_path / ".venv").mkdir()
    os.mkfifo(tmp_path / ".venv/pyvenv.cfg")
    assert interpreter_mounts([str(tmp_path / ".venv")], []) == []
