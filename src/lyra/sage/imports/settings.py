"""Permission rules, hooks and MCP servers of other agents, as TOML that Lyra reads.

Rules become `permissions.toml`, hooks and servers blocks of `lyra.toml`. A hook keeps its program and its format
(`format = "claude"`); one of the user's own runs with the user's rights, as it did, one of a project in the sandbox.
Each rule, hook and server is tried with the reader that will read it; what that refuses is left out with its reason.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from lyra.config.hook_settings import HOOK_EVENTS, read_hook
from lyra.config.servers import check_server_name, read_cell
from lyra.config.tables import TABLES, TableCell
from lyra.config.values import SettingSource
from lyra.errors import ConfigError
from lyra.mcp.settings import settings_of
from lyra.sage.extensions.extension_files import one_line
from lyra.sage.imports.apply import ImportPlace, LeftOut, Planned
from lyra.tools.permissions.rules import Effect, Rule
from lyra.tools.permissions.subjects import TOOLS

_RULE: Final = re.compile(r"([A-Za-z_][\w-]*|\*)(?:\((.*)\))?\Z", re.DOTALL)
_TOOLS: Final = {
    "Agent": "Task",
    "AskUserQuestion": "AskUser",
    "LS": "Glob",
    "TaskOutput": "BashOutput",
    "TaskStop": "KillShell",
}
_FILE_TOOLS: Final = ("Read", "Edit", "Write", "MultiEdit", "NotebookEdit", "Glob", "Grep")
_EFFECTS: Final[tuple[Effect, ...]] = ("allow", "ask", "deny")
_MODES: Final = {"acceptEdits": "accept-edits", "plan": "plan", "dontAsk": "deny-unasked"}
_MATCHED: Final = ("UserPromptSubmit", "Stop")  # a matcher of theirs is passed over
_TIMEOUT_S: Final = 600  # of a hook of Claude Code that names none
_TIMEOUT_S_MAX: Final = 3600
_HOOK_KEYS: Final = frozenset({"type", "command", "timeout", "statusMessage"})
_HOME: Final = re.compile(r"\"?\$(?:HOME|\{HOME\})\"?/([\w./+-]+)\"?(?=\s|\Z)")
_SERVER_KEYS: Final = {
    "command": "command",
    "args": "args",
    "env": "env",
    "url": "url",
    "headers": "headers",
    "cwd": "cwd",
}
_OF_CODEX: Final = {"http_headers": "headers", "startup_timeout_sec": "start_s", "tool_timeout_sec": "timeout_s"}
_REFERENCE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_]\w*)\}\Z")
_PASSED_OVER: Final = frozenset({"$schema", "permissions", "hooks", "statusLine", "disableAllHooks"})

Item = Planned | LeftOut


def convert_rule(text: str, effect: Effect, *, of_user: bool = False) -> tuple[str, str]:
    """Return a permission rule of Claude Code as one of Sage's, or "" and why there is none. In the settings of a user
    a path with one slash has another beginning than in a project's."""
    match = _RULE.match(text.strip())
    if match is None:
        return "", "it is not a rule"
    tool, pattern = _TOOLS.get(match[1], match[1]), match[2]
    if tool.startswith("mcp__"):
        tool = f"{tool}__*" if tool.count("__") == 1 else tool
    elif tool != "*" and tool.lower() not in TOOLS:
        return "", f"Sage has no tool {one_line(tool)[:40]}"
    if pattern is not None and pattern.strip() in ("", "*", ":*"):
        pattern = None
    elif pattern is not None and tool in _FILE_TOOLS and of_user and pattern[0] == "/" and pattern[1:2] != "/":
        return "", "its path begins at the folder of the settings"
    elif pattern is not None and tool in _FILE_TOOLS:
        pattern = pattern[1:] if pattern.startswith(("//", "/")) else pattern
    elif pattern is not None and tool == "Task":
        return "", "rules for single sub-agents are not known"
    converted = tool if pattern is None else f"{tool}({pattern})"
    try:
        Rule(converted, effect)
    except ConfigError as error:
        return "", error.message
    return converted, ""


def permissions(place: ImportPlace, name: str, settings: Mapping[str, Any], target: str) -> Iterator[Item]:
    """Yield the file of rules that `permissions` of a settings file becomes."""
    given = settings.get("permissions")
    if not isinstance(given, dict):
        return
    lines = []
    for effect in _EFFECTS:
        rules = []
        for text in given.get(effect) or ():
            rule, why = convert_rule(str(text), effect, of_user=place.is_user)
            if rule:
                rules.append(rule)
            else:
                yield LeftOut(name, f"{effect} {one_line(str(text))[:80]}", why)
        if rules:
            lines.append(f"{effect} = [\n{''.join(f'  {_toml(rule)},{chr(10)}' for rule in dict.fromkeys(rules))}]")
    mode = given.get("defaultMode")
    if mode in _MODES:
        lines.insert(0, f"mode = {_toml(_MODES[mode])}")
    elif mode not in (None, "default"):
        yield LeftOut(name, f"defaultMode: {mode}", "say it yourself: sage --permission-mode bypass")
    for folder in given.get("additionalDirectories") or ():
        yield LeftOut(name, f"additionalDirectories: {one_line(str(folder))[:80]}", "say it yourself: sage --add-dir")
    if lines:
        text = "\n".join([f"# From {name}; `sage import --undo` takes it back.", *lines, ""])
        yield Planned(target, text.encode(), "permissions", name, "claude")


def hooks(place: ImportPlace, name: str, settings: Mapping[str, Any], agent: str) -> Iterator[Item]:
    """Yield the block of `lyra.toml` with the hooks of a settings file."""
    given = settings.get("hooks") or {}
    entries: list[tuple[str, dict[str, Any]]] = []
    for event, groups in given.items() if isinstance(given, dict) else ():
        if event not in HOOK_EVENTS or event == "StatusLine":
            yield LeftOut(name, f"hooks.{one_line(str(event))[:40]}", "Sage has no such moment")
            continue
        for group in groups if isinstance(groups, list) else ():
            for hook in group.get("hooks", ()) if isinstance(group, dict) else ():
                entry = _hook(place, name, event, str(group.get("matcher") or ""), hook)
                if isinstance(entry, LeftOut):
                    yield entry
                else:
                    entries.append((event, entry))
    status = settings.get("statusLine")
    if isinstance(status, dict):
        entry = _hook(place, name, "StatusLine", "", {key: status[key] for key in ("type", "command") if key in status})
        if isinstance(entry, LeftOut):
            yield entry
        else:
            entries.append(("StatusLine", entry))
    if entries:
        parts = [f"[[hooks.{event}]]\n" + _pairs(entry) for event, entry in entries]
        yield Planned("lyra.toml", "\n".join(parts).encode(), "hooks", name, agent, block=True)


def _hook(place: ImportPlace, name: str, event: str, matcher: str, hook: Any) -> dict[str, Any] | LeftOut:
    command = hook.get("command") if isinstance(hook, dict) else None
    shown = f"hooks.{event}: {one_line(str(command or hook))[:80]}"
    if not isinstance(command, str) or hook.get("type", "command") != "command":
        return LeftOut(name, shown, "only hooks that are commands are run")
    strange = sorted(key for key in hook.keys() - _HOOK_KEYS if hook[key] not in (None, False))
    if strange:
        return LeftOut(name, shown, f"Sage has no {', '.join(strange)} of a hook")
    entry: dict[str, Any] = {"command": _HOME.sub(r"~/\1", command, count=1) if _HOME.match(command) else command}
    if matcher not in ("", "*") and event not in _MATCHED:
        entry["matcher"] = matcher
    timeout = hook.get("timeout")
    entry["timeout_s"] = (
        min(timeout, _TIMEOUT_S_MAX) if isinstance(timeout, (int, float)) and timeout > 0 else _TIMEOUT_S
    )
    if isinstance(hook.get("statusMessage"), str):
        entry["status"] = one_line(hook["statusMessage"])
    entry["format"] = "claude"
    if place.is_user:
        entry["sandbox"] = False
        try:
            read_hook(event, entry, name="it")
        except ConfigError:  # its program lies in whichever project is open, so it is run in the sandbox
            del entry["sandbox"]
    try:
        read_hook(event, entry, name=f"hooks.{event}")
    except ConfigError as error:
        return LeftOut(name, shown, error.message)
    return entry


def other_keys(name: str, settings: Mapping[str, Any]) -> Iterator[LeftOut]:
    """Yield the keys of a settings file that nothing here reads."""
    for key, value in settings.items():
        if key not in _PASSED_OVER:
            shown = "" if key == "env" else f": {one_line(json.dumps(value, ensure_ascii=False))[:60]}"
            yield LeftOut(name, f"{one_line(key)[:60]}{shown}", "it is not taken over")


def servers(place: ImportPlace, name: str, table: Any, agent: str) -> Iterator[Item]:
    """Yield the block of `lyra.toml` with MCP servers, which a file has by their names."""
    parts = []
    for server, entry in table.items() if isinstance(table, dict) else ():
        try:
            cells = _cells(server, entry)
            source = SettingSource("user", place.root, os.environ)
            read = {
                key: read_cell(TableCell("mcp.servers", server, key), value, source) for key, value in cells.items()
            }
            settings_of(server, read, origin="user", place=name)
        except ConfigError as error:
            yield LeftOut(name, f"MCP server {one_line(str(server))[:60]}", one_line(error.message))
            continue
        unknown = sorted(entry.keys() - _SERVER_KEYS.keys() - _OF_CODEX.keys() - {"type", "transport", "enabled"})
        if unknown:
            yield LeftOut(
                name, f"MCP server {server}: {', '.join(map(one_line, unknown))[:80]}", "Lyra has no such key"
            )
        parts.append(f"[mcp.servers.{_toml(server)}]\n" + _pairs(cells))
    if parts:
        yield Planned("lyra.toml", "\n".join(parts).encode(), "MCP servers", name, agent, block=True)


def _cells(server: Any, entry: Any) -> dict[str, Any]:
    """Return the cells of one server; a value that names a variable is taken from it."""
    check_server_name(str(server))
    if not isinstance(entry, dict):
        raise ConfigError("it is no table of settings")
    names = _SERVER_KEYS | _OF_CODEX
    cells = {names[key]: value for key, value in entry.items() if key in names and value not in (None, {}, [], "")}
    for key in ("env", "headers"):
        if isinstance(cells.get(key), dict):
            cells[key] = {own: _REFERENCE.sub(r"env:\1", str(text)) for own, text in cells[key].items()}
    for key, value in cells.items():
        if "${" in str(value):
            raise ConfigError(f"{key} holds a variable: write it as env:NAME")
    if entry.get("type") == "sse" or entry.get("transport") == "sse":
        cells["transport"] = "sse" if "sse" in TABLES["mcp.servers"].columns["transport"].words else "http"
    if entry.get("enabled") is False:
        cells["enabled"] = False
    return cells


def _pairs(entry: Mapping[str, Any]) -> str:
    return "".join(f"{key} = {_toml(value)}\n" for key, value in entry.items())


def _toml(value: Any) -> str:
    """Return a value as TOML. Text is a basic string, whose escapes are those of JSON."""
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_toml(str(key))} = {_toml(item)}' for key, item in value.items())}}}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def read_object(data: bytes | None, name: str) -> tuple[dict[str, Any], LeftOut | None]:
    """Return a source that is JSON or TOML, or why it cannot be read."""
    if data is None:
        return {}, None
    try:
        text = data.decode("utf-8-sig")
        document = tomllib.loads(text) if name.endswith(".toml") else json.loads(text)
        if isinstance(document, dict):
            return document, None
        problem = "it is no object"
    except (ValueError, RecursionError) as error:
        problem = str(error)
    return {}, LeftOut(name, "all of it", f"it cannot be read: {one_line(problem)[:120]}")
