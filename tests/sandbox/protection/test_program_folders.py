"""Folders of PATH inside a workspace: no command and no tool puts a program there; installations do."""

from __future__ import annotations

import asyncio
import os

import pytest

from lyra.errors import SandboxUnavailable
from lyra.sandbox import Profile
from lyra.sandbox.paths import real_path
from lyra.sandbox.protection.obeyed import find_obeyed_part
from lyra.sandbox.protection.protected_places import FOLDERS_MAX, program_folders, program_places

USUAL = os.environ["PATH"]


@pytest.fixture
def root(tmp_path, monkeypatch):
    (tmp_path / "home").mkdir()
    (tmp_path / "w").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "w"


@pytest.fixture
def on_path(monkeypatch, root):
    def set_path(*folders: str) -> None:
        monkeypatch.setenv("PATH", ":".join([*(folder.format(w=root) for folder in folders), USUAL]))

    return set_path


def do(sandbox, root, script):
    return asyncio.run(sandbox.run(["bash", "-c", script], Profile(str(root))))


def held(result) -> list[str]:
    return sorted(name.partition(".held-")[0] for name in result.set_aside)


@pytest.mark.parametrize(("name", "marker"), [("env", "pyvenv.cfg"), (".venv-3.11", "pyvenv.cfg"), ("c", "conda-meta")])
def test_an_active_environment_of_any_name_is_written(sandbox, root, on_path, name, marker):
    """pip puts programs into its bin."""
    (root / name / "bin").mkdir(parents=True)
    (root / name / marker).write_text("")
    on_path(f"{{w}}/{name}/bin")
    do(sandbox, root, f"echo x > {name}/bin/pytest")
    assert (root / name / "bin/pytest").exists()
    assert find_obeyed_part(f"{root}/{name}/bin/pytest", [str(root)]) is None


@pytest.mark.parametrize("folder", ["vendor/bin", "node_modules/.bin", ".venv/bin", "sub/vendor/bin"])
def test_folders_that_installations_make(sandbox, root, on_path, folder):
    on_path(f"{{w}}/{folder}")
    assert do(sandbox, root, f"mkdir -p {folder}; echo x > {folder}/tool").set_aside == ()
    assert (root / folder / "tool").exists()


def test_a_folder_does_not_become_an_environment(sandbox, root, on_path):
    """Two commands: one makes `pyvenv.cfg`, the next would write the folder."""
    (root / "tools/bin").mkdir(parents=True)
    on_path("{w}/tools/bin")
    result = do(sandbox, root, "echo x > tools/pyvenv.cfg; mkdir tools/conda-meta; echo x > tools/other")
    assert not (root / "tools/pyvenv.cfg").exists()
    assert not (root / "tools/conda-meta").exists()
    assert set(held(result)) <= {"tools/conda-meta", "tools/pyvenv.cfg"}
    do(sandbox, root, "echo evil > tools/bin/git")
    assert os.listdir(root / "tools/bin") == []
    assert find_obeyed_part(f"{root}/tools/pyvenv.cfg", [str(root)])


@pytest.mark.parametrize("above", ["venv", "node_modules", "vendor"])
def test_names_above_the_workspace_do_not_count(sandbox, tmp_path, monkeypatch, above):
    root = tmp_path / above / "p"
    (root / "bin").mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{root}/bin:{USUAL}")
    do(sandbox, root, "echo evil > bin/git")
    assert os.listdir(root / "bin") == []
    assert find_obeyed_part(f"{root}/bin/git", [str(root)])


def test_the_root_may_be_named_like_an_environment(tmp_path, monkeypatch):
    (tmp_path / "venv/bin").mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{tmp_path}/venv/bin")
    assert f"{tmp_path}/venv/bin" in program_folders(f"{tmp_path}/venv")
    assert program_folders(str(tmp_path)) == []


def test_installed_packages_have_one_folder_of_programs(root, on_path):
    """Other folders below `node_modules` and `venv` are protected like any."""
    folders = [f"{root}/node_modules/x", f"{root}/venv/lib", f"{root}/node_modules/p/bin"]
    on_path(*folders)
    assert set(folders) <= set(program_folders(str(root)))


def test_dots_behind_a_link_lead_to_where_the_link_leads(sandbox, root, on_path):
    for name in ("deep/dir", "deep/bin"):
        (root / name).mkdir(parents=True)
    (root / "cur").symlink_to("deep/dir")
    on_path("{w}/cur/../bin")
    do(sandbox, root, "echo evil > deep/bin/git; rm cur; mkdir -p other/x other/bin; ln -s other/x cur")
    assert os.listdir(root / "deep/bin") == []
    assert os.readlink(root / "cur") == "deep/dir"
    assert find_obeyed_part(f"{root}/deep/bin/git", [str(root)])
    assert find_obeyed_part(f"{root}/bin/git", [str(root)]) is None


def test_dots_behind_a_missing_folder(root, on_path):
    (root / "bin").mkdir()
    on_path("{w}/missing/../bin")
    assert program_places(str(root))[0].real == f"{root}/bin"


@pytest.mark.parametrize("folder", ["{w}/bin", "bin", "{w}/a/x"])
def test_a_circular_link_stops_no_command(sandbox, root, on_path, folder):
    """It is missing, and stays as it is."""
    (root / "bin").symlink_to("bin")
    (root / "a").symlink_to("a")
    on_path(folder)
    assert real_path(f"{root}/bin")[1] is False
    result = do(sandbox, root, "echo fine")
    assert result.output.text.strip() == "fine"
    assert result.set_aside == ()
    name = "a" if folder.endswith("a/x") else "bin"
    do(sandbox, root, f"rm {name}; mkdir -p {name}/x; echo evil > {name}/git")
    assert os.readlink(root / name) == name


def test_a_new_link_to_a_missing_folder_is_set_aside(sandbox, root, on_path):
    """The folder is then made through the link."""
    (root / "d").mkdir()
    on_path("{w}/d/x/bin")
    result = do(sandbox, root, "mkdir -p other/bin; echo evil > other/bin/git; ln -s ../other d/x")
    assert not (root / "d/x").exists()
    assert held(result) in (["d/x"], [])  # Landlock: nothing is made there at all


@pytest.mark.parametrize("exist", [True, False])
def test_very_many_folders_are_refused(sandbox, root, on_path, exist):
    """A clear sentence, and soon."""
    for number in range(FOLDERS_MAX + 1):
        if exist:
            (root / f"d{number}").mkdir()
    on_path(*(f"{{w}}/d{number}" for number in range(FOLDERS_MAX)))
    assert do(sandbox, root, "echo fine").output.text.strip() == "fine"
    on_path(*(f"{{w}}/d{number}" for number in range(FOLDERS_MAX + 1)))
    with pytest.raises(SandboxUnavailable, match="PATH names 65 folders"):
        do(sandbox, root, "echo fine")
    assert find_obeyed_part(f"{root}/d{FOLDERS_MAX}/git", [str(root)])


def test_the_home_folder_by_its_sign(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "~/programs:/usr/bin")
    assert [place.real for place in program_places(str(tmp_path))] == [f"{tmp_path}/programs"]
