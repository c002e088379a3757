"""The manifest of a plugin: every key is known, every path stays inside, every mistake has its line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lyra.sage.extensions.plugins.plugin import read_manifest
from tests.sage.extensions.plugins.support import COMMAND, make
from tests.sage.extensions.support import put


def told(folder: Path) -> list[str]:
    manifest, mistakes = read_manifest(str(folder))
    assert (manifest is None) == bool(mistakes)
    return [str(mistake).replace(f"{folder}/", "") for mistake in mistakes]


def test_every_key_is_in_the_manifest(tmp_path: Path) -> None:
    make(
        tmp_path,
        {"commands/ship.md": COMMAND},
        assets='commands = ["commands/ship.md"]',
    )
    manifest, _ = read_manifest(str(tmp_path))
    assert manifest is not None
    assert (manifest.id, manifest.name, manifest.version) == ("acme", "Some name", "1.0")
    assert manifest.description == "Some words"
    assert manifest.assets == {"commands": ("commands/ship.md",)}


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ({"head": "verson = 1"}, ":6: a plugin has no key 'verson' (did you mean 'version'?)"),
        ({"assets": "skils = []"}, "assets has no key 'skils' (did you mean 'skills'?)"),
        ({"id": "Acme"}, ":2: an id has small letters"),
        ({"id": "sage"}, ":2: sage is a name of Sage's own"),
        ({"id": "a" * 41}, ":2: an id has small letters"),
        ({"id": "a--b"}, ":2: an id has small letters"),
        ({"version": "one"}, ":4: a version is"),
        ({"version": "1.2.3.4.5"}, ":4: a version is"),
        ({"assets": 'commands = "commands/a.md"'}, "commands is a list"),
        ({"assets": 'commands = ["commands/none.md"]'}, "does not exist"),
        ({"assets": 'commands = ["ship.md"]'}, "commands lie in the folder commands/"),
        ({"assets": 'hooks = ["a.py"]'}, "ends in .toml"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, parts: dict[str, Any], problem: str) -> None:
    make(tmp_path, **parts)
    assert any(problem in text for text in told(tmp_path)), told(tmp_path)


@pytest.mark.parametrize("key", ["schema", "id", "name", "version", "description"])
def test_a_key_that_has_to_be_there(tmp_path: Path, key: str) -> None:
    path = make(tmp_path) / "plugin.toml"
    lines = [line for line in path.read_text().splitlines() if not line.startswith(f"{key} =")]
    put(path, "\n".join(lines))
    assert told(tmp_path) == [f"plugin.toml:1: a plugin has a key {key!r}"]


@pytest.mark.parametrize("schema", ["2", "0", "'1'", "true", "1.0"])
def test_another_schema_is_refused(tmp_path: Path, schema: str) -> None:
    path = make(tmp_path) / "plugin.toml"
    put(path, path.read_text().replace("schema = 1", f"schema = {schema}"))
    assert "schema is 1" in told(tmp_path)[0]


@pytest.mark.parametrize(
    "path", ["../a.toml", "/etc/a.toml", "x/../../a.toml", "~/a.toml", ".git/a.toml", "a\\b.toml", "x/../a.toml", "."]
)
def test_a_path_cannot_lead_out(tmp_path: Path, path: str) -> None:
    put(tmp_path / "a.toml", "x")
    plugin = make(tmp_path / "plugin", {"a.toml": "x", "x/b": "x"}, assets=f"hooks = ['{path}']")
    assert len(told(plugin)) == 1


def test_a_link_is_no_part(tmp_path: Path) -> None:
    """Neither the file itself nor a folder on the way to it, and the manifest is no link either."""
    put(tmp_path / "elsewhere" / "a.toml", "x")
    plugin = make(tmp_path / "plugin", assets='hooks = ["a.toml", "folder/a.toml"]')
    os.symlink(tmp_path / "elsewhere" / "a.toml", plugin / "a.toml")
    os.symlink(tmp_path / "elsewhere", plugin / "folder")
    assert [text.partition("'")[2] for text in told(plugin)] == [
        "a.toml' is a link, or lies behind one",
        "folder/a.toml' is a link, or lies behind one",
    ]
    (tmp_path / "other").mkdir()
    os.symlink(plugin / "plugin.toml", tmp_path / "other" / "plugin.toml")
    assert "cannot be read" in told(tmp_path / "other")[0]


def test_a_part_that_is_named_twice_is_told(tmp_path: Path) -> None:
    make(tmp_path, {"commands/a.md": COMMAND}, assets='commands = ["commands/a.md", "commands/./a.md"]')
    assert "named twice" in told(tmp_path)[0]


def test_texts_are_fit_for_a_terminal(tmp_path: Path) -> None:
    path = make(tmp_path) / "plugin.toml"
    put(path, path.read_text().replace("Some words", "a\\u001B[2Jb\\u202Ec"))
    manifest, _ = read_manifest(str(tmp_path))
    assert manifest is not None
    assert manifest.description == "a[2Jbc"


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_told(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("plugin")
    put(folder / "plugin.toml", data)
    assert told(folder)
