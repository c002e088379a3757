"""A plugin as a whole: all of its parts can be read, or there is no plugin; what it asks for is what they do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lyra.sage.extensions.agent_files import AgentFiles
from lyra.sage.extensions.custom_commands import CustomCommands
from lyra.sage.extensions.plugins.plugin import Plugin, read_plugin
from lyra.sage.extensions.skills.skills import Skills
from tests.sage.extensions.plugins.support import AGENT, COMMAND, SKILL, make

HOOKS = """\
[[hooks.PostToolUse]]
matcher = "Edit"
command = ["./check.sh", "now"]
"""
SERVERS = """\
[mcp.servers.weather]
command = "python3"
args = ["${PLUGIN}/server.py"]
network = ["api.example"]
env = { TOKEN = "env:WEATHER_TOKEN" }
"""


def read(folder: Path) -> Plugin:
    plugin, mistakes = read_plugin(str(folder))
    assert mistakes == []
    assert plugin is not None
    return plugin


def told(folder: Path) -> str:
    plugin, mistakes = read_plugin(str(folder))
    assert plugin is None
    return "\n".join(str(mistake) for mistake in mistakes)


def whole(folder: Path, **parts: Any) -> Path:
    """A plugin with a part of every kind."""
    files = {
        "commands/ship.md": COMMAND,
        "skills/release/SKILL.md": SKILL,
        "skills/release/notes.md": "Notes.",
        "agents/check.md": AGENT,
        "hooks.toml": HOOKS,
        "servers.toml": SERVERS,
    }
    given = {
        "assets": 'commands = ["commands/ship.md"]\nskills = ["skills/release"]\nagents = ["agents/check.md"]\n'
        'hooks = ["hooks.toml"]\nmcp_servers = ["servers.toml"]',
        **parts,
    }
    return make(folder, files, **given)


def test_all_parts_of_a_plugin_are_read(tmp_path: Path) -> None:
    """Commands, skills and sub-agents are named after the plugin."""
    plugin = read(whole(tmp_path))
    place = plugin.place
    (command,) = CustomCommands([place]).entries().values()
    (skill,) = Skills([place]).entries().values()
    (agent,) = AgentFiles([place]).entries().values()
    assert (command.name, skill.name, agent.name) == ("acme:ship", "acme:release", "acme:check")
    assert {command.origin, skill.origin, agent.origin} == {"plugin"}
    assert Skills([place]).read_beside(skill, "notes.md") == "Notes."
    (hook,) = plugin.hooks
    assert (hook.event, hook.source, hook.is_trusted) == ("PostToolUse", "plugin:acme", False)
    (server,) = plugin.servers("/work")
    assert (server.name, server.trusted) == ("acme-weather", True)
    assert server.argv == ["python3", f"{tmp_path}/server.py"]
    assert (server.readable, server.writable) == ((str(tmp_path),), ("/work",))


def test_what_it_asks_for_is_what_its_hooks_and_servers_do(tmp_path: Path) -> None:
    """Texts ask for nothing: they are held to the rules of the session."""
    assert read(whole(tmp_path / "all")).asks() == (
        "a hook for PostToolUse runs ./check.sh now",
        "the server acme-weather runs python3 ./server.py and may write in the session's folder",
        "the server acme-weather reaches api.example",
        "the server acme-weather is given your variable WEATHER_TOKEN",
    )
    remote = "[mcp.servers.far]\nurl = 'https://b.example/mcp'\n"
    plugin = read(make(tmp_path / "far", {"a.toml": remote}, assets='mcp_servers = ["a.toml"]'))
    assert plugin.asks() == ("the server acme-far reaches b.example",)
    texts = read(make(tmp_path / "texts", {"commands/a.md": COMMAND}, assets='commands = ["commands/a.md"]'))
    assert texts.asks() == ()


def test_what_earlier_versions_read_is_passed_over_and_named(tmp_path: Path) -> None:
    head = 'dependencies = ["base"]'
    assets = 'tools = ["a.yaml"]\ncommands = ["commands/a.md"]\n[permissions]\ntools = ["Read"]'
    plugin = read(make(tmp_path, {"commands/a.md": COMMAND}, head=head, assets=assets))
    assert plugin.manifest.passed_over == ("dependencies", "permissions", "assets.tools")
    assert plugin.manifest.assets == {"commands": ("commands/a.md",)}


def test_files_that_the_manifest_does_not_name_do_not_count(tmp_path: Path) -> None:
    files = {"commands/a.md": COMMAND, "commands/b.md": COMMAND, "skills/x/SKILL.md": SKILL}
    plugin = read(make(tmp_path, files, assets='commands = ["commands/a.md"]'))
    assert set(CustomCommands([plugin.place]).entries()) == {"acme:a"}
    assert Skills([plugin.place]).entries() == {}


@pytest.mark.parametrize(
    ("kind", "name", "text", "problem"),
    [
        ("commands", "commands/a.md", "---\nx: y\n---\nT.", "has no key 'x'"),
        ("skills", "skills/a/notes.md", "T.", "1 skills are named and 0 are there"),
        ("agents", "agents/a.md", "T.", "has a description"),
        ("hooks", "a.toml", "[[hooks.Nope]]\ncommand = 'x'\n", "the event of a hook is one of"),
        ("hooks", "a.toml", "[[hooks.Stop]]\ncommand = 'x'\nsandbox = false\n", "runs in the sandbox"),
        ("hooks", "a.toml", "hook = 1\n", "has no key 'hook'"),
        ("hooks", "a.toml", "hooks = 1\n", "hooks is a section"),
        ("hooks", "a.toml", "[", "not TOML"),
        ("mcp_servers", "a.toml", "[mcp.servers.a]\n", "neither a command nor a url"),
        ("mcp_servers", "a.toml", "[mcp.servers.a]\ncommand = 'x'\nwritable = ['/']\n", "has no key 'writable'"),
        ("mcp_servers", "a.toml", "[mcp.server]\n", "has no key 'server'"),
        ("mcp_servers", "a.toml", "[", "not TOML"),
    ],
)
def test_a_mistake_in_any_part_refuses_the_whole(tmp_path: Path, kind: str, name: str, text: str, problem: str) -> None:
    asset = "skills/a" if kind == "skills" else name
    make(tmp_path, {name: text, "commands/good.md": COMMAND}, assets=f'{kind} = ["{asset}"]')
    assert problem in told(tmp_path)
