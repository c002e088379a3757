"""Links to folders by which programs come to files that they obey."""

from __future__ import annotations

import asyncio
import os

import pytest

from lyra.sandbox import Profile
from lyra.sandbox.protected import find
from lyra.sandbox.protection import linked_folders


@pytest.fixture
def do(sandbox, tmp_path):
    profile = Profile(str(tmp_path))
    return lambda script: asyncio.run(sandbox.run(["sh", "-c", script], profile))


def held(result) -> list[str]:
    return sorted(name.partition(".held-")[0] for name in result.set_aside)


def make(root, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("ours")


@pytest.mark.parametrize(
    ("folder", "name"),
    [(".cargo", "config.toml"), (".bundle", "config"), (".yarn", "plugins"), (".config", "mise"), (".CARGO", "env")],
)
def test_a_new_link_named_like_a_folder_of_settings_is_set_aside(do, folder, name):
    result = do(f"mkdir c; echo x > c/{name}; ln -s c {folder}; ln -s c plain")
    assert held(result) == [folder]
    assert folder in result.appeared


def test_a_link_of_that_name_to_a_folder_without_settings_stays(do, tmp_path):
    assert do("mkdir c; echo x > c/registry; ln -s c .cargo").set_aside == ()
    assert os.readlink(tmp_path / ".cargo") == "c"
    assert held(do("echo x > c/config.toml")) == ["c/config.toml"]


def test_settings_behind_an_old_link_are_protected(do, tmp_path):
    """Those that exist are read-only, new ones are set aside, keys among them are hidden."""
    make(tmp_path, "tools/cargo/config.toml", "tools/cargo/credentials.toml")
    (tmp_path / ".cargo").symlink_to("tools/cargo")
    result = do("echo x > tools/cargo/config.toml; cat tools/cargo/credentials.toml; echo x > tools/cargo/env")
    assert (tmp_path / "tools/cargo/config.toml").read_text() == "ours"
    assert "ours" not in result.output.text
    assert held(result) == ["tools/cargo/env"]


def test_settings_behind_a_dangling_link_are_set_aside(do, tmp_path):
    (tmp_path / ".cargo").symlink_to("tools/cargo")
    assert held(do("mkdir -p tools/cargo; echo x > tools/cargo/config.toml")) == ["tools/cargo/config.toml"]


def test_a_link_into_another_writable_folder_protects_what_is_there(sandbox, tmp_path):
    work, also = tmp_path / "work", tmp_path / "also"
    make(tmp_path, "work/x", "also/c/config.toml", "also/env.sh")
    (work / ".cargo").symlink_to(also / "c")
    (work / ".envrc").symlink_to(also / "env.sh")
    script = f"echo x > {also}/c/config.toml; echo x > {also}/env.sh; echo x > {also}/c/env"
    result = asyncio.run(sandbox.run(["sh", "-c", script], Profile(str(work), writable_also=(str(also),))))
    assert [(also / name).read_text() for name in ("c/config.toml", "env.sh")] == ["ours", "ours"]
    assert held(result) == [f"{also}/c/env"]


@pytest.mark.parametrize("packages", ["venv", ".venv", "node_modules", "__pycache__", ".tox"])
@pytest.mark.parametrize(
    "planted", ["echo x > {}/.envrc", "mkdir {0}/.vscode {0}/objects {0}/refs; echo x > {0}/HEAD", "ln -s x {}/.npmrc"]
)
def test_a_new_link_into_installed_packages_is_set_aside(do, tmp_path, packages, planted):
    make(tmp_path, "src/main.py")
    result = do(
        f"mkdir -p {packages}; mv src {packages}/src; {planted.format(f'{packages}/src')}; ln -s {packages}/src src"
    )
    assert held(result) == ["src"]
    assert not (tmp_path / "src").exists()


def test_one_by_way_of_a_second_link_is_set_aside(do):
    """A link among the packages leads on to other packages, or back."""
    result = do(
        "mkdir -p venv/a venv/b; echo x > venv/b/.envrc; ln -s ../b venv/a/l; ln -s ../a venv/b/back; ln -s venv/a s"
    )
    assert held(result) == ["s"]


def test_what_is_new_behind_an_old_link_into_packages_is_set_aside(do, tmp_path):
    """What was there before stays, and a link to a package without such files does, too."""
    make(tmp_path, "node_modules/a/.npmrc", "node_modules/b/index.js")
    (tmp_path / "a").symlink_to("node_modules/a")
    assert held(do("echo x > node_modules/a/.envrc; ln -s node_modules/b b")) == ["node_modules/a/.envrc"]
    assert (tmp_path / "node_modules/a/.npmrc").exists()
    assert (tmp_path / "b").is_symlink()


def test_a_new_link_to_too_many_packages_is_set_aside(do, tmp_path, monkeypatch):
    monkeypatch.setattr(linked_folders, "_ENTRIES_MAX", 5)
    make(tmp_path, *(f"node_modules/p{number}" for number in range(10)))
    assert held(do("ln -s node_modules packages")) == ["packages"]


def test_a_link_with_the_name_of_packages_is_not_followed(tmp_path):
    """As a folder of that name would not be searched."""
    make(tmp_path, "node_modules/a/.npmrc", "web/x")
    (tmp_path / "web/node_modules").symlink_to("../node_modules")
    assert find(Profile(str(tmp_path))).linked == ()
