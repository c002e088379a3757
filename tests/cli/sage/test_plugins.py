"""`sage plugins`: install, enable with consent, show, disable, rm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.sage.extensions.plugins.support import COMMAND, make

HOOK = "[[hooks.Stop]]\ncommand = './check.sh {}'\n"
ASSETS = 'commands = ["commands/ship.md"]\nhooks = ["hooks.toml"]'


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    files = {"commands/ship.md": COMMAND, "hooks.toml": HOOK.format("now")}
    return make(tmp_path / "acme", files, assets=ASSETS)


def test_the_life_of_a_plugin(lyra: Any, plugin: Path) -> None:
    installed = lyra("sage", "plugins", "install", str(plugin))
    assert installed.returncode == 0, installed.stderr
    assert "it counts after sage plugins enable acme" in installed.stderr
    assert "a hook for Stop runs ./check.sh now" in installed.stdout
    assert "acme  disabled  1.0  Some words" in lyra("sage", "plugins", "list").stdout
    enabled = lyra("sage", "plugins", "enable", "acme", "--yes")
    assert "a hook for Stop runs ./check.sh now" in enabled.stdout
    assert "enabled acme 1.0" in enabled.stderr
    shown = lyra("sage", "plugins", "show", "acme")
    assert "commands: commands/ship.md" in shown.stdout
    assert "acme  enabled" in shown.stdout
    assert "disabled acme" in lyra("sage", "plugins", "disable", "acme").stderr
    assert "acme was not enabled" in lyra("sage", "plugins", "disable", "acme").stderr
    assert "removed acme" in lyra("sage", "plugins", "rm", "acme").stderr
    assert "no plugins" in lyra("sage", "plugins", "list").stderr


def test_as_json(lyra: Any, plugin: Path) -> None:
    assert lyra.json("sage", "plugins", "list") == []
    lyra("sage", "plugins", "install", str(plugin))
    (entry,) = lyra.json("sage", "plugins", "list")
    assert (entry["id"], entry["enabled"], entry["problem"]) == ("acme", False, "")
    assert (entry["asks"], entry["passed_over"]) == (["a hook for Stop runs ./check.sh now"], [])
    assert lyra.json("sage", "plugins", "show", "acme") == entry


def test_without_a_yes_it_is_not_enabled(lyra: Any, plugin: Path) -> None:
    """A script that runs without a person gets no plugin enabled by accident."""
    lyra("sage", "plugins", "install", str(plugin))
    assert lyra("sage", "plugins", "enable", "acme").returncode != 0
    assert lyra.json("sage", "plugins", "show", "acme")["enabled"] is False


def test_mistakes_are_told(lyra: Any, plugin: Path, tmp_path: Path) -> None:
    assert "there is no plugin 'acme'" in lyra("sage", "plugins", "show", "acme").stderr
    refused = lyra("sage", "plugins", "install", str(tmp_path))
    assert (refused.returncode, "there is no plugin.toml" in refused.stderr) == (2, True)
    lyra("sage", "plugins", "install", str(plugin))
    again = lyra("sage", "plugins", "install", str(plugin))
    assert "installed already" in again.stderr
    assert lyra("sage", "plugins", "install", "--replace", str(plugin)).returncode == 0


def test_a_plugin_that_does_not_count_says_why(lyra: Any, plugin: Path) -> None:
    lyra("sage", "plugins", "install", str(plugin))
    lyra("sage", "plugins", "enable", "acme", "-y")
    make(plugin, {"hooks.toml": HOOK.format("later")}, head="dependencies = []", assets=ASSETS)
    lyra("sage", "plugins", "install", "--replace", str(plugin))
    listed = lyra("sage", "plugins", "list").stdout
    assert "acme  does not count" in listed
    assert "asks for more than you agreed to" in listed
    assert "passed over, as it means nothing any more: dependencies" in lyra("sage", "plugins", "show", "acme").stderr
