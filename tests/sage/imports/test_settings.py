"""Permissions, hooks and MCP servers of other agents: what Sage reads of them after an import."""

from __future__ import annotations

import os
from typing import Any

import pytest

from lyra.config import Config
from lyra.mcp.servers import load_settings
from lyra.sage.imports.settings import convert_rule
from lyra.tools.permissions import Permissions, load_layers, permissions_of, subject_of
from tests.sage.imports.support import Desk


def rules(desk: Desk, *, trusted: bool = True) -> Permissions:
    folder = os.path.realpath(desk.project)
    layers = load_layers(folder, home=str(desk.home), trusted=trusted)
    return permissions_of(layers, workspace=folder, home=str(desk.home))


def decide(permissions: Permissions, tool: str, **arguments: Any) -> str:
    return permissions.decide(subject_of(tool, arguments, workspace=os.path.realpath("."))).decision


# ---------------------------------------------------------------- permissions
@pytest.mark.parametrize(
    ("there", "here"),
    [
        ("Bash", "Bash"),
        ("Bash(*)", "Bash"),
        ("Bash(npm run test:*)", "Bash(npm run test:*)"),
        ("Bash(npm run build)", "Bash(npm run build)"),
        ("Read(./.env)", "Read(./.env)"),
        ("Read(~/.zshrc)", "Read(~/.zshrc)"),
        ("Edit(/src/**)", "Edit(src/**)"),
        ("Read(//etc/hosts)", "Read(/etc/hosts)"),
        ("WebFetch(domain:example.com)", "WebFetch(domain:example.com)"),
        ("mcp__github", "mcp__github__*"),
        ("mcp__github__get_issue", "mcp__github__get_issue"),
        ("Agent", "Task"),
        ("Task(Explore)", ""),
        ("SlashCommand(/x)", ""),
        ("Bash(", ""),
        ("", ""),
    ],
)
def test_a_rule_becomes_one_of_sage(there: str, here: str) -> None:
    converted, why = convert_rule(there, "deny")
    assert converted == here
    assert bool(why) is not bool(here)


def test_a_path_of_a_user_starts_elsewhere() -> None:
    assert convert_rule("Edit(/src/**)", "allow", of_user=True)[0] == ""
    assert convert_rule("Edit(//src/**)", "allow", of_user=True)[0] == "Edit(/src/**)"


SETTINGS = {
    "permissions": {
        "allow": ["Bash(npm run test:*)", "Edit(/src/**)", "ListMcpResources", "WebFetch(domain:docs.example.com)"],
        "ask": ["Bash(git push:*)"],
        "deny": ["Read(./secrets/**)", "Bash(rm:*)"],
        "defaultMode": "acceptEdits",
        "additionalDirectories": ["../other"],
    },
    "env": {"KEY": "secret-value"},
    "model": "opus",
}


def test_rules_of_a_project_decide_once_it_is_trusted(desk: Desk) -> None:
    desk.put(".claude/settings.json", SETTINGS)
    done, left_out = desk.take_over("claude")
    assert done == {".lyra/permissions.toml": "new"}
    permissions = rules(desk)
    assert permissions.mode == "accept-edits"
    assert decide(permissions, "Bash", command="npm run test -- -x") == "allow"
    assert decide(permissions, "Bash", command="npm run build") == "ask"
    assert decide(permissions, "Bash", command="git push origin") == "ask"
    assert decide(permissions, "Bash", command="ls; rm -r x") == "deny"
    assert decide(permissions, "Read", file_path="secrets/key") == "deny"
    assert decide(permissions, "WebFetch", url="https://docs.example.com/a") == "allow"
    untrusted = rules(desk, trusted=False)
    assert decide(untrusted, "Bash", command="npm run test") == "ask"
    assert decide(untrusted, "Bash", command="rm x") == "deny"
    assert [row.what for row in left_out] == [
        "allow ListMcpResources",
        "additionalDirectories: ../other",
        "env",
        'model: "opus"',
    ]
    assert "secret-value" not in str(left_out)


def test_a_mode_without_questions_is_not_taken_over(desk: Desk) -> None:
    desk.put(".claude/settings.json", {"permissions": {"defaultMode": "bypassPermissions"}})
    done, left_out = desk.take_over("claude")
    assert (done, [row.what for row in left_out]) == ({}, ["defaultMode: bypassPermissions"])


def test_settings_of_one_person_stay_theirs(desk: Desk) -> None:
    hooks = {"Stop": [{"hooks": [{"type": "command", "command": "x"}]}]}
    desk.put(".claude/settings.local.json", {"permissions": {"allow": ["Bash(make:*)"]}, "hooks": hooks})
    done, left_out = desk.take_over("claude")
    assert done == {".lyra/permissions.local.toml": "new"}
    assert [row.what for row in left_out] == ["hooks"]


# ---------------------------------------------------------------- hooks
def hooks_of(*entries: dict[str, Any], event: str = "PreToolUse", matcher: str = "Edit|Write") -> dict[str, Any]:
    return {"hooks": {event: [{"matcher": matcher, "hooks": list(entries)}]}}


def test_hooks_of_a_project_keep_their_program_and_format(desk: Desk) -> None:
    """In a file that has other settings; they wait for trust, and are held by the sandbox."""
    desk.put("lyra.toml", '[log]\nlevel = "debug"\n\n[[hooks.Stop]]\ncommand = "true"\n')
    command = '"$CLAUDE_PROJECT_DIR"/.claude/hooks/check.sh "a \\"b\\" \u00e4"'
    entry = {"type": "command", "command": command, "timeout": 5, "statusMessage": "checking"}
    desk.put(".claude/settings.json", hooks_of(entry))
    assert desk.take_over("claude")[0] == {"lyra.toml": "change"}
    assert Config.load(desk.project, trust=False).hooks == ()
    config = Config.load(desk.project, trust=True)
    assert config.log.level == "debug"
    assert [hook.event for hook in config.hooks] == ["Stop", "PreToolUse"]
    hook = config.hooks[1]
    assert (hook.command, hook.matcher, hook.timeout_s) == (command, "Edit|Write", 5.0)
    assert (hook.status, hook.format, hook.sandbox, hook.origin) == ("checking", "claude", True, "project")


def test_hooks_of_a_user_run_with_their_rights(desk: Desk) -> None:
    """As they did; but not a program of whichever project is open."""
    own = {"type": "command", "command": 'python3 "$HOME"/.claude/hooks/log.py'}
    named = {"type": "command", "command": '"$HOME/.claude/check.sh" now'}
    theirs = {"type": "command", "command": '"$CLAUDE_PROJECT_DIR"/check.sh'}
    given = hooks_of(own, named, theirs, event="UserPromptSubmit", matcher="")
    status = {"statusLine": {"type": "command", "command": "~/.claude/status.sh", "padding": 0}}
    desk.put(".claude/settings.json", given | status, home=True)
    desk.take_over("claude", user=True)
    hooks = Config.load(desk.project).hooks
    assert [(hook.command, hook.sandbox) for hook in hooks] == [
        ('python3 "$HOME"/.claude/hooks/log.py', False),
        ("~/.claude/check.sh now", False),
        ('"$CLAUDE_PROJECT_DIR"/check.sh', True),
        ("~/.claude/status.sh", False),
    ]
    assert {hook.timeout_s for hook in hooks} == {600.0}
    assert hooks[-1].event == "StatusLine"


@pytest.mark.parametrize(
    ("entry", "event", "why"),
    [
        ({"type": "prompt", "prompt": "is it good?"}, "Stop", "only hooks that are commands"),
        ({"type": "command", "command": "x", "async": True}, "Stop", "no async"),
        ({"type": "command", "command": "x", "if": "Bash(git *)"}, "PreToolUse", "no if"),
        ({"type": "command", "command": "x"}, "WorktreeCreate", "no such moment"),
        ({"type": "command", "command": " "}, "Stop", "is a line for the shell"),
    ],
)
def test_a_hook_that_cannot_run_unchanged_is_left_out(desk: Desk, entry: dict[str, Any], event: str, why: str) -> None:
    desk.put(".claude/settings.json", hooks_of(entry, event=event, matcher=""))
    done, left_out = desk.take_over("claude")
    assert done == {}
    assert why in left_out[0].why


def test_hooks_of_codex_have_the_same_form(desk: Desk) -> None:
    desk.put(".codex/hooks.json", hooks_of({"type": "command", "command": "true"}, matcher="Bash"))
    desk.take_over("codex")
    (hook,) = Config.load(desk.project, trust=True).hooks
    assert (hook.matcher, hook.format) == ("Bash", "claude")


# ---------------------------------------------------------------- MCP servers
def test_servers_of_a_user_and_of_a_project(desk: Desk) -> None:
    """A user's count at once; those of a project wait for consent. A variable is taken from the environment."""
    local = {"command": "npx", "args": ["-y", "server"], "env": {"TOKEN": "${TOKEN}"}, "type": "stdio"}
    remote = {"type": "http", "url": "https://mcp.example/mcp", "headers": {"Authorization": "Bearer x"}}
    desk.put(".claude.json", {"mcpServers": {"files": local, "far": remote}, "projects": {}}, home=True)
    desk.put(".codex/config.toml", '[mcp_servers.box]\ncommand = "box"\nstartup_timeout_sec = 5\n', home=True)
    desk.put(".cursor/mcp.json", {"mcpServers": {"desk": {"command": "desk", "alwaysAllow": ["x"]}}})
    _, left_out = desk.take_over(user=True)
    assert left_out == []
    _, left_out = desk.take_over("cursor")
    assert [row.what for row in left_out] == ["MCP server desk: alwaysAllow"]
    servers = {server.name: server for server in load_settings(Config.load(desk.project), str(desk.project))}
    assert {name: server.trusted for name, server in servers.items()} == {
        "files": True,
        "far": True,
        "box": True,
        "desk": False,
    }
    assert servers["files"].argv == ["npx", "-y", "server"]
    assert servers["files"].env["TOKEN"].written == "env:TOKEN"
    assert servers["far"].address == "https://mcp.example/mcp"
    assert servers["box"].start_s == 5.0


def test_a_server_that_cannot_be_used_or_is_there_already_is_told(desk: Desk) -> None:
    desk.put("lyra.toml", '[mcp.servers.a]\ncommand = "mine"\n')
    servers = {"a": {"command": "theirs"}, "b": {}, "c": {"command": "${HOME}/x"}}
    desk.put(".cursor/mcp.json", {"mcpServers": servers})
    done, left_out = desk.take_over("cursor")
    assert done == {"lyra.toml": "kept"}
    assert [row.what for row in left_out] == ["MCP server b", "MCP server c"]
    assert (desk.project / "lyra.toml").read_text() == '[mcp.servers.a]\ncommand = "mine"\n'


@pytest.mark.parametrize(("name", "text"), [(".claude/settings.json", "{"), (".codex/config.toml", "[")])
def test_a_file_that_cannot_be_read_is_told(desk: Desk, name: str, text: str) -> None:
    desk.put(name, text)
    done, left_out = desk.take_over()
    assert (done, [row.source for row in left_out]) == ({}, [name])
