"""Installed plugins: installing is not enabling, enabling is consent to what it asks for, and nothing is left half."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from lyra.errors import ConfigError
from lyra.sage.extensions.plugins.store import PluginStore
from tests.sage.extensions.plugins.support import COMMAND, make
from tests.sage.extensions.support import Desk, put

HOOK = "[[hooks.Stop]]\ncommand = ['./check.sh', '{}']\n"


@pytest.fixture
def store(desk: Desk) -> PluginStore:
    return PluginStore(env=desk.env)


def sources(tmp_path: Path, plugin_id: str = "acme", **parts: Any) -> Path:
    return make(
        tmp_path / "sources" / plugin_id,
        {"commands/ship.md": COMMAND},
        id=plugin_id,
        assets='commands = ["commands/ship.md"]',
        **parts,
    )


def active(store: PluginStore) -> list[str]:
    return [plugin.id for plugin in store.active()[0]]


def test_installing_is_not_enabling(store: PluginStore, desk: Desk, tmp_path: Path) -> None:
    plugin = store.install(sources(tmp_path))
    assert Path(plugin.folder) == desk.data / "lyra" / "plugins" / "acme"
    assert [(entry.id, entry.enabled) for entry in store.list_installed()] == [("acme", False)]
    assert active(store) == []
    store.enable("acme")
    assert active(store) == ["acme"]
    assert store.disable("acme")
    assert active(store) == []
    assert not store.disable("acme")
    store.remove("acme")
    assert store.list_installed() == []
    assert not os.path.exists(plugin.folder)


def test_the_copy_does_not_change_with_its_source(store: PluginStore, tmp_path: Path) -> None:
    folder = sources(tmp_path)
    plugin = store.install(folder)
    put(folder / "commands/ship.md", "Other.")
    assert (Path(plugin.folder) / "commands/ship.md").read_text() == COMMAND


def test_a_copy_is_private_and_keeps_what_may_be_run(store: PluginStore, tmp_path: Path) -> None:
    folder = sources(tmp_path)
    put(folder / "run.sh", "#!/bin/sh\n").chmod(0o755)
    put(folder / ".git/config", "x")
    home = Path(store.install(folder).folder)
    assert oct((home / "run.sh").stat().st_mode & 0o777) == "0o700"
    assert oct((home / "plugin.toml").stat().st_mode & 0o777) == "0o600"
    assert oct(home.parent.stat().st_mode & 0o777) == "0o700"
    assert not (home / ".git").exists()


def test_links_pipes_and_masses_of_files_are_refused(store: PluginStore, tmp_path: Path) -> None:
    """And nothing of them is left behind."""
    linked = sources(tmp_path, "linked")
    os.symlink("/etc/passwd", linked / "notes.txt")
    piped = sources(tmp_path, "piped")
    os.mkfifo(piped / "pipe")
    many = sources(tmp_path, "many")
    for number in range(1_001):
        (many / f"{number}.txt").touch()
    large = sources(tmp_path, "large")
    with (large / "data").open("wb") as file:
        file.truncate(21 << 20)
    deep = sources(tmp_path, "deep")
    (deep / "/".join("abcdefghij")).mkdir(parents=True)
    reasons = {
        linked: "is a link; a plugin has none",
        piped: "is not a plain file",
        many: "at most 1000 files",
        large: "it has more than",
        deep: "fewer folders",
        tmp_path: "there is no plugin.toml",
    }
    for folder, reason in reasons.items():
        with pytest.raises(ConfigError, match=reason):
            store.install(folder)
    assert [name for name in os.listdir(store.folder) if "enabled" not in name] == []


def test_a_plugin_with_a_mistake_is_not_installed(store: PluginStore, tmp_path: Path) -> None:
    folder = sources(tmp_path)
    put(folder / "commands/ship.md", "---\nx: y\n---\nT.")
    with pytest.raises(ConfigError, match=r"commands/ship.md:2: a command has no key 'x'"):
        store.install(folder)
    assert store.list_installed() == []


def test_an_id_is_installed_once(store: PluginStore, tmp_path: Path) -> None:
    store.install(sources(tmp_path))
    with pytest.raises(ConfigError, match="installed already"):
        store.install(sources(tmp_path, version="2.0"))
    assert store.get("acme").plugin.manifest.version == "1.0"
    store.install(sources(tmp_path, version="2.0"), replace=True)
    assert store.get("acme").plugin.manifest.version == "2.0"


def hooked(tmp_path: Path, version: str, *words: str) -> Path:
    hooks = "".join(HOOK.format(word) for word in words)
    return make(tmp_path / version, {"hooks.toml": hooks}, version=version, assets='hooks = ["hooks.toml"]')


def test_more_than_was_agreed_to_does_not_count(store: PluginStore, tmp_path: Path) -> None:
    """A new version that asks for the same or less goes on; one that asks for more waits for its user."""
    store.install(hooked(tmp_path, "1.0", "a", "b"))
    store.enable("acme")
    store.install(hooked(tmp_path, "1.1", "b"), replace=True)
    assert active(store) == ["acme"]
    store.install(hooked(tmp_path, "1.2", "b", "c"), replace=True)
    assert active(store) == []
    assert "asks for more than you agreed to" in store.active()[1][0]
    store.enable("acme")
    assert active(store) == ["acme"]


def test_consent_of_an_earlier_version_is_asked_anew(store: PluginStore, tmp_path: Path) -> None:
    """What was kept then were declared permissions, which also limited what texts may use."""
    store.install(sources(tmp_path))
    before = {"enabled": {"acme": {"permissions": {"tools": ["Read"], "files": "none"}, "version": "1.0"}}}
    (store.folder / "enabled.json").write_text(json.dumps(before))
    assert active(store) == []
    assert "sage plugins enable acme" in store.active()[1][0]
    store.enable("acme")
    assert active(store) == ["acme"]


def test_a_plugin_that_is_broken_or_gone_is_told(store: PluginStore, tmp_path: Path) -> None:
    """It adds nothing, and the others go on."""
    for name in ("bad", "good", "gone"):
        store.install(sources(tmp_path, name))
        store.enable(name)
    put(store.folder / "bad" / "commands/ship.md", "---\nx: y\n---\nT.")
    for path in sorted((store.folder / "gone").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (store.folder / "gone").rmdir()
    plugins, problems = store.active()
    assert [plugin.id for plugin in plugins] == ["good"]
    assert ["plugin bad: " in problems[0], problems[1]] == [True, "plugin gone: it is not installed any more"]
    with pytest.raises(ConfigError, match="cannot be used"):
        store.enable("bad")


def test_a_folder_whose_name_is_not_the_id_does_not_count(store: PluginStore, tmp_path: Path) -> None:
    store.install(sources(tmp_path))
    os.rename(store.folder / "acme", store.folder / "other")
    store.folder.joinpath("enabled.json").write_text(json.dumps({"enabled": {}}))
    (entry,) = store.list_installed()
    assert (entry.id, entry.plugin) == ("other", None)


def test_an_unknown_id_is_told_with_the_one_that_was_meant(store: PluginStore, tmp_path: Path) -> None:
    store.install(sources(tmp_path))
    with pytest.raises(ConfigError) as error:
        store.get("acmee")
    assert error.value.hint == "did you mean 'acme'?"


@pytest.mark.parametrize("text", ["{", "[]", '{"enabled": {"acme": {"asks": "all", "version": "1"}}}'])
def test_a_state_that_cannot_be_read_enables_nothing(store: PluginStore, tmp_path: Path, text: str) -> None:
    """A guess could let a plugin count that its user has not agreed to."""
    store.install(sources(tmp_path))
    (store.folder / "enabled.json").write_text(text)
    with pytest.raises(ConfigError, match="cannot be read"):
        store.active()
