"""A plugin as a whole: all of its parts fit what it declares, or there is no plugin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lyra.sage.extensions.agent_files import AgentFiles
from lyra.sage.extensions.custom_commands import CustomCommands
from lyra.sage.extensions.plugins.plugin import Plugin, read_plugin
from lyra.sage.extensions.skills.skills import Skills
from tests.sage.extensions.plugins.support import AGENT, COMMAND, SKILL, make

FETCH = """\
name: fetch
description: Fetches
implementation: {type: http, url: "https://api.example/x"}
"""
LOG = """\
name: log
description: Shows the log
params: [{name: ref, type: string}]
implementation: {type: exec, command: [git, log, "{{ref}}"]}
"""
WRITE = """\
name: note
description: Writes a note
params: [{name: text, type: string}]
implementation: {type: file_write, path: note.txt, content: "{{text}}"}
"""
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
    """A plugin with a part of every kind, which declares what they need."""
    files = {
        "commands/ship.md": COMMAND,
        "skills/release/SKILL.md": SKILL,
        "skills/release/notes.md": "Notes.",
        "agents/check.md": AGENT,
        "tools/log.yaml": LOG,
        "tools/fetch.yaml": FETCH,
        "hooks.toml": HOOKS,
        "servers.toml": SERVERS,
    }
    given = {
        "assets": 'commands = ["commands/ship.md"]\nskills = ["skills/release"]\nagents = ["agents/check.md"]\n'
        'tools = ["tools/log.yaml", "tools/fetch.yaml"]\nhooks = ["hooks.toml"]\nmcp_servers = ["servers.toml"]',
        "permissions": 'tools = ["Read"]\ncommands = ["./check.sh *", "git log *", "python3 ./server.py"]\n'
        'hosts = ["api.example"]\nvariables = ["WEATHER_TOKEN"]\nfiles = "write"',
        **parts,
    }
    return make(folder, files, **given)


def test_all_parts_of_a_plugin_are_read(tmp_path: Path) -> None:
    """Commands, skills and sub-agents are named after the plugin, and limited to the tools that it declares."""
    plugin = read(whole(tmp_path))
    place = plugin.place
    (command,) = CustomCommands([place]).entries().values()
    (skill,) = Skills([place]).entries().values()
    (agent,) = AgentFiles([place]).entries().values()
    assert (command.name, skill.name, agent.name) == ("acme:ship", "acme:release", "acme:check")
    assert command.allowed_tools == skill.allowed_tools == agent.tools == ("Read",)
    assert {command.origin, skill.origin, agent.origin} == {"plugin"}
    assert Skills([place]).read_beside(skill, "notes.md") == "Notes."
    assert plugin.tool_names == ("log", "fetch")
    (hook,) = plugin.hooks
    assert (hook.event, hook.source, hook.is_trusted) == ("PostToolUse", "plugin:acme", False)
    (server,) = plugin.servers("/work")
    assert (server.name, server.trusted) == ("acme-weather", True)
    assert server.argv == ["python3", f"{tmp_path}/server.py"]
    assert (server.readable, server.writable) == ((str(tmp_path),), ("/work",))


@pytest.mark.parametrize(
    ("declared", "without", "problem"),
    [
        ('"./check.sh *", ', "", "needs process.exec:./check.sh now"),
        ('"git log *", ', "", "log needs process.exec:git log"),
        (', "python3 ./server.py"', "", "weather needs process.exec:python3"),
        ('"api.example"', "", "fetch needs net.http:api.example"),
        ('"WEATHER_TOKEN"', "", "weather needs secrets.read:WEATHER_TOKEN"),
        ('files = "write"', 'files = "read"', "a hook needs files = 'write'"),
        ('files = "write"', 'files = "none"', "log needs files = 'read'"),
    ],
)
def test_what_a_part_needs_has_to_be_declared(tmp_path: Path, declared: str, without: str, problem: str) -> None:
    path = whole(tmp_path) / "plugin.toml"
    text = path.read_text()
    assert declared in text
    path.write_text(text.replace(declared, without))
    assert problem in told(tmp_path)


@pytest.mark.parametrize("kind", ["commands", "skills", "agents"])
def test_a_tool_of_a_text_has_to_be_declared(tmp_path: Path, kind: str) -> None:
    key = "tools" if kind == "agents" else "allowed_tools"
    text = f"---\ndescription: d\n{key}: Read, Bash(git push)\n---\nT.\n"
    make(tmp_path, {f"{kind}/x.md": text}, assets=f'{kind} = ["{kind}/x.md"]', permissions='tools = ["Read"]')
    assert "Bash(git push) is not among the tools that the plugin declares" in told(tmp_path)
    make(tmp_path, assets=f'{kind} = ["{kind}/x.md"]', permissions='tools = ["Read", "Bash"]')
    read(tmp_path)


def test_a_text_that_names_no_tools_may_use_none_where_none_is_declared(tmp_path: Path) -> None:
    plugin = read(make(tmp_path, {"commands/a.md": COMMAND}, assets='commands = ["commands/a.md"]'))
    (command,) = CustomCommands([plugin.place]).entries().values()
    assert command.allowed_tools == ()


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
        ("tools", "a.yaml", "name: a\n", "implementation"),
        ("hooks", "a.toml", "[[hooks.Nope]]\ncommand = 'x'\n", "the event of a hook is one of"),
        ("hooks", "a.toml", "[[hooks.Stop]]\ncommand = 'x'\nsandbox = false\n", "runs in the sandbox"),
        ("hooks", "a.toml", "hook = 1\n", "has no key 'hook'"),
        ("hooks", "a.toml", "hooks = 1\n", "hooks is a section"),
        ("hooks", "a.toml", "[", "not TOML"),
        ("mcp_servers", "a.toml", "[mcp.servers.a]\n", "neither a command nor a url"),
        ("mcp_servers", "a.toml", "[mcp.servers.a]\ncommand = 'x'\nwritable = ['/']\n", "has no key 'writable'"),
        ("mcp_servers", "a.toml", "[mcp.servers.a]\nurl = 'http://b.example/'\n", "needs net.http:b.example"),
        ("mcp_servers", "a.toml", "[mcp.server]\n", "has no key 'server'"),
        ("mcp_servers", "a.toml", "[", "not TOML"),
    ],
)
def test_a_mistake_in_any_part_refuses_the_whole(tmp_path: Path, kind: str, name: str, text: str, problem: str) -> None:
    asset = "skills/a" if kind == "skills" else name
    permissions = 'commands = ["x"]\nfiles = "write"'
    make(tmp_path, {name: text, "commands/good.md": COMMAND}, assets=f'{kind} = ["{asset}"]', permissions=permissions)
    assert problem in told(tmp_path)


@pytest.mark.parametrize("name", ["Bash", "read", "mcp__x__y", "WebFetch"])
def test_a_tool_cannot_take_a_name_of_lyras_own(tmp_path: Path, name: str) -> None:
    text = FETCH.replace("name: fetch", f"name: {name}")
    make(tmp_path, {"a.yaml": text}, assets='tools = ["a.yaml"]', permissions='hosts = ["api.example"]')
    assert "no plugin can take it" in told(tmp_path)


def test_two_tools_or_servers_of_one_name_are_told(tmp_path: Path) -> None:
    files = {"a.yaml": FETCH, "b.yaml": FETCH}
    make(tmp_path, files, assets='tools = ["a.yaml", "b.yaml"]', permissions='hosts = ["api.example"]')
    assert "there are two tools fetch" in told(tmp_path)


def test_a_tool_that_writes_needs_the_level_write(tmp_path: Path) -> None:
    make(tmp_path, {"a.yaml": WRITE}, assets='tools = ["a.yaml"]', permissions='files = "read"')
    assert "note needs files = 'write'" in told(tmp_path)
    make(tmp_path, assets='tools = ["a.yaml"]', permissions='files = "write"')
    read(tmp_path)
