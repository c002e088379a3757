"""Which files of other agents are read, and where each goes: `plan` gives what would be written, and what is left out.

| agent | in a project | of the user |
|---|---|---|
| claude | CLAUDE.md in every folder, `.claude/` | `~/.claude/`, the MCP servers of `~/.claude.json` |
| codex | `.codex/`, `.agents/skills` | `~/.codex/`, `~/.agents/skills` |
| cursor | `.cursorrules`, `.cursor/` | `~/.cursor/` |
| memory | what earlier versions of Sage remembered in the folder | – |

`AGENTS.md` and a project's `.mcp.json` are read where they are. A project's CLAUDE.md is not copied: a file of rules
imports it, so that it stays one file. Reads only; `apply` writes.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from lyra.agents.headless.setup import scope_of
from lyra.core.user_folders import data_folder, user_folder
from lyra.errors import ConfigError
from lyra.sage.extensions.skills.skills import SKILL_FILE
from lyra.sage.imports import settings, texts
from lyra.sage.imports.apply import ImportPlace, LeftOut, Planned
from lyra.tools.builtin.search_worker import PASSED_OVER

Item = Planned | LeftOut
_FOLDERS_MAX: Final = 5_000
_MEMORY_FILE: Final = "memory.db"


def project_place(folder: str) -> ImportPlace:
    real = os.path.realpath(folder)
    return ImportPlace(real, real, ".lyra/")


def user_place(env: Mapping[str, str]) -> ImportPlace:
    own = user_folder(env)
    home = env.get("HOME", "")
    if own is None or not os.path.isabs(home):
        raise ConfigError("there is no home folder", hint="set HOME", key="HOME")
    return ImportPlace(home, own, "")


def plan(place: ImportPlace, agents: tuple[str, ...]) -> tuple[list[Planned], list[LeftOut]]:
    """Return what these agents' files come to. Of two with one target the first counts."""
    planned: dict[str, Planned] = {}
    left_out: list[LeftOut] = []
    blocks: list[Planned] = []
    for agent in agents:
        for item in AGENTS[agent](place):
            if isinstance(item, LeftOut):
                left_out.append(item)
            elif item.block:
                blocks.append(item)
            elif item.target in planned:
                left_out.append(LeftOut(item.source, item.kind, f"{planned[item.target].source} has the same name"))
            else:
                planned[item.target] = item
    return [*planned.values(), *blocks], left_out


def _claude(place: ImportPlace) -> Iterator[Item]:
    yield from _claude_rules(place)
    yield from _markdown(place, ".claude", "claude")
    for name, target in (("settings.json", "permissions.toml"), ("settings.local.json", "permissions.local.toml")):
        source = f".claude/{name}"
        given, problem = settings.read_object(place.read(source), source)
        if problem is not None:
            yield problem
        if place.is_user and name != "settings.json":
            continue
        yield from settings.permissions(place, source, given, f"{place.prefix}{target}")
        if name == "settings.json":
            yield from settings.hooks(place, source, given, "claude")
        elif given.get("hooks"):
            yield LeftOut(source, "hooks", "they are yours alone: put them into your own lyra.toml")
        yield from settings.other_keys(source, given)
    if place.is_user:
        given, problem = settings.read_object(place.read(".claude.json", most=16 << 20), ".claude.json")
        if problem is not None:
            yield problem
        yield from settings.servers(place, ".claude.json", given.get("mcpServers"), "claude")


def _claude_rules(place: ImportPlace) -> Iterator[Item]:
    if place.is_user:
        yield from _copy_rules(place, ".claude/CLAUDE.md", "claude")
    else:
        for folder in _folders(place):
            names = [os.path.join(folder, name) for name in ("CLAUDE.md", ".claude/CLAUDE.md", "CLAUDE.local.md")]
            there = [name for name in names if place.read(name, most=1 << 20) is not None]
            if there:
                up = os.path.join(*[os.pardir] * 2)
                lines = "\n".join(f"@{os.path.join(up, os.path.relpath(name, folder or '.'))}" for name in there)
                target = os.path.join(folder, ".lyra", "rules", "claude.md")
                yield Planned(target, f"{lines}\n".encode(), "rules", ", ".join(there), "claude")
    for name in place.list(".claude/rules", ".md"):
        keys, body = texts.read_source(place, name)
        paths = keys.get("paths")
        if paths:
            shown = ", ".join(map(str, paths)) if isinstance(paths, list) else str(paths)
            body = f"These rules are for files that match {shown}.\n\n{body}"
        inside = os.path.relpath(name, ".claude/rules")[: -len(".md")].replace(os.sep, "-")
        if place.is_user:
            yield LeftOut(name, "rules", "your own rules are one file: put them into SAGE.md")
        elif body.strip():
            yield texts.rule(place, f"claude-{inside}", body, name, "claude")


def _copy_rules(place: ImportPlace, source: str, agent: str) -> Iterator[Item]:
    """Yield the user's own rules: a copy, and the line of SAGE.md that imports it."""
    data = place.read(source, most=1 << 20)
    if data is None or not data.strip():
        return
    yield Planned(f"imported/{agent}.md", data, "rules", source, agent)
    yield Planned("SAGE.md", f"@imported/{agent}.md\n".encode(), "rules", source, agent, block=True)


def _folders(place: ImportPlace) -> Iterator[str]:
    """Yield the project's folders, as paths below it, without hidden ones and those of dependencies."""
    for number, (here, names, _) in enumerate(os.walk(place.home)):
        names[:] = sorted(name for name in names if not name.startswith(".") and name not in PASSED_OVER)
        if number >= _FOLDERS_MAX:
            return
        yield "" if here == place.home else os.path.relpath(here, place.home)


def _markdown(place: ImportPlace, folder: str, agent: str, *, commands: str = "commands") -> Iterator[Item]:
    """Yield commands, sub-agents and skills below a folder of an agent."""
    for name in place.list(f"{folder}/{commands}", ".md"):
        yield from texts.command(place, name, f"{folder}/{commands}", agent)
    for name in place.list(f"{folder}/agents", ".md"):
        yield from texts.sub_agent(place, name, agent)
    yield from _skills(place, f"{folder}/skills", agent)


def _skills(place: ImportPlace, folder: str, agent: str) -> Iterator[Item]:
    for name in place.list(folder, SKILL_FILE.lower(), depth=2):
        if os.path.basename(name) == SKILL_FILE and os.path.dirname(name) != folder:
            yield from texts.skill(place, name, agent)


def _codex(place: ImportPlace) -> Iterator[Item]:
    if place.is_user:
        yield from _copy_rules(place, ".codex/AGENTS.md", "codex")
    yield from _markdown(place, ".codex", "codex", commands="prompts")
    yield from _skills(place, ".agents/skills", "codex")
    given, problem = settings.read_object(place.read(".codex/config.toml"), ".codex/config.toml")
    if problem is not None:
        yield problem
    yield from settings.servers(place, ".codex/config.toml", given.get("mcp_servers"), "codex")
    names = ", ".join(sorted(given.keys() - {"mcp_servers"}))
    if names:
        yield LeftOut(".codex/config.toml", names[:120], "it is not taken over")
    given, problem = settings.read_object(place.read(".codex/hooks.json"), ".codex/hooks.json")
    if problem is not None:
        yield problem
    yield from settings.hooks(place, ".codex/hooks.json", given, "codex")


def _cursor(place: ImportPlace) -> Iterator[Item]:
    if not place.is_user:
        names = [name for name in (".cursorrules",) if place.read(name) is not None]
        for name in (*names, *place.list(".cursor/rules", ".mdc", ".md")):
            yield from texts.cursor_rule(place, name)
    for name in place.list(".cursor/commands", ".md"):
        yield from texts.command(place, name, ".cursor/commands", "cursor")
    given, problem = settings.read_object(place.read(".cursor/mcp.json"), ".cursor/mcp.json")
    if problem is not None:
        yield problem
    yield from settings.servers(place, ".cursor/mcp.json", given.get("mcpServers"), "cursor")


def _memory(place: ImportPlace) -> Iterator[Item]:
    """Yield what an earlier version of Sage remembered in the folder, but for what it learned from text of outside."""
    path = data_folder() / _MEMORY_FILE
    if place.is_user or not path.is_file():
        return
    rows = _read_memory(path, scope_of(place.home))
    lines = [f"- {text}" for text, tainted in rows if not tainted]
    yield from (LeftOut(_MEMORY_FILE, text[:80], "it was learned from text of outside") for text, bad in rows if bad)
    if lines:
        yield texts.rule(place, "remembered", "\n".join(lines), str(path), "memory")


def _read_memory(path: Path, scope: str) -> list[tuple[str, bool]]:
    query = "SELECT text, tainted FROM items WHERE scope = ? ORDER BY id"
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            return [
                (" ".join(str(text).split()), bool(tainted)) for text, tainted in connection.execute(query, (scope,))
            ]
    except sqlite3.Error as error:
        raise ConfigError(f"what Sage remembered cannot be read: {error}", place=str(path)) from None


AGENTS: Final[dict[str, Callable[[ImportPlace], Iterator[Any]]]] = {
    "claude": _claude,
    "codex": _codex,
    "cursor": _cursor,
    "memory": _memory,
}
