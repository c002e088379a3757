"""A store that the user names is made in a folder that is there, and a typo makes no tree."""

from __future__ import annotations

import pytest

from lyra.cli.arguments import check_folder
from lyra.errors import ConfigError


@pytest.mark.parametrize(
    ("args", "option"),
    [
        (("agent", "-p", "hi", "--model", "sim/echo"), "--store"),
        (("demo", "--fast"), "--store"),
        (("vega", "run", "x.vega"), "--db"),
        (("run", "x.vega"), "--db"),
    ],
)
def test_a_folder_that_is_not_there_is_a_mistake(lyra, args, option):
    (lyra.folder / "x.vega").write_text('print("hi");')
    done = lyra(*args, option, "rnus/a/b.db")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{option} rnus/a/b.db: there is no folder {lyra.folder}/rnus/a" in done.stderr
    assert "hint: is the path right?" in done.stderr
    assert [path.name for path in lyra.folder.iterdir()] == ["x.vega"]


def test_the_usual_folder_is_made(lyra):
    """Also by name; below one that is not there it is not."""
    done = lyra("agent", "-p", "hi", "--model", "sim/echo", "--store", ".lyra/lyra.db")
    assert (done.returncode, done.stdout) == (0, "hi\n")
    assert (lyra.folder / ".lyra/lyra.db").exists()
    assert lyra("agent", "-p", "hi", "--model", "sim/echo", "--store", "x/.lyra/lyra.db").returncode == 2
    assert not (lyra.folder / "x").exists()


def test_a_setting_of_a_file_makes_its_folder(lyra):
    """It stands for many runs, and is not typed each time."""
    (lyra.folder / "lyra.toml").write_text('[kernel]\nstore = "data/lyra.db"\n')
    (lyra.folder / "x.vega").write_text('print("hi");')
    assert lyra("trust", "add", "--yes").returncode == 0
    assert lyra("run", "x.vega").stdout == "hi\n"
    assert (lyra.folder / "data/lyra.db").exists()


@pytest.mark.parametrize("target", ["memory", "postgresql://host/db", "env:STORE", "a.db", "sqlite:///tmp/a.db"])
def test_other_places_are_left_to_the_store(target):
    check_folder(target, "--store")


def test_a_file_url_is_a_file(tmp_path):
    with pytest.raises(ConfigError, match="there is no folder"):
        check_folder(f"sqlite://{tmp_path}/nowhere/a.db", "--store")
