"""Which files of other agents are read, and where each goes: `plan` gives what would be written, and what is left out.

| agent | in a project | of the user |
|---|---|---|
| claude | CLAUDE.md in every folder, `.claude/` | `~/.claude/`, the MCP servers of `~/.claude.json` |
| codex | `.codex/`, `.agents/skills` | `~/.codex/`, `~/.agents/skills` |
| cursor | `.cursorrules`, `.cursor/` | `~/.cursor/` |
| memory | what earlier versions of Sage remembered in the folder | – |

`AGENTS.md` and a project's `.mcp.json` are read where they are. A project's CLAUDE.md is not copied: a file of rules
imports it, so that it stays one file. Reads only; `apply` writes.

Markdown files are converted: keys are renamed, variables of commands too (`$1` is `$ARG1`). `allowed-tools` of a
command or skill allows there and limits here, so it is left out; `tools` of a sub-agent limits in both. A rule of
Cursor that counts always becomes a rule, any other a skill, which a model reads when it fits.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from lyra.agents.headless.setup import scope_of
from lyra.core.secrets.visible import without_invisible
from lyra.core.user_folders import data_folder, user_folder
from lyra.errors import ConfigError
from lyra.sage.extensions.custom_commands import BUILT_IN_COMMANDS
from lyra.sage.extensions.extension_files import BODY_CHARS_MAX, NAME, one_line
from lyra.sage.extensions.skills.skills import SKILL_FILE
from lyra.sage.imports import settings
from lyra.sage.imports.apply import ImportPlace, LeftOut, Planned, read_head
from lyra.sage.imports.settings import convert_rule
from lyra.tools.builtin.search_worker import PASSED_OVER

Item = Planned | LeftOut
_FOLDERS_MAX: Final = 5_000
_MEMORY_FILE: Final = "memory.db"
_POSITION: Final = re.compile(r"\$([1-9])\b|\$ARGUMENTS\[([0-9])\]")
_RUN: Final = re.compile(r"(?<![`\w])!`([^`\n]+)`")
_BAD_NAME: Final = re.compile(r"[^A-Za-z0-9_-]+")
_FILES_BESIDE_MAX: Final = 50
_BESIDE_BYTES_MAX: Final = 64 * 1024
_MODES: Final = {"acceptEdits": "accept-edits", "plan": "plan", "dontAsk": "deny-unasked", "default": ""}
_KNOWN: Final = frozenset({"name", "description", "license", "version", "metadata", "color", "compatibility"})
_OWN_MODEL: Final = ("inherit", "")
_ALLOWS: Final = "it allows there and would limit here: permission rules do that (`/permissions allow RULE`)"


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
        keys, body = read_source(place, name)
        paths = keys.get("paths")
        if paths:
            shown = ", ".join(map(str, paths)) if isinstance(paths, list) else str(paths)
            body = f"These rules are for files that match {shown}.\n\n{body}"
        inside = os.path.relpath(name, ".claude/rules")[: -len(".md")].replace(os.sep, "-")
        if place.is_user:
            yield LeftOut(name, "rules", "your own rules are one file: put them into SAGE.md")
        elif body.strip():
            yield rule(place, f"claude-{inside}", body, name, "claude")


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
        yield from command(place, name, f"{folder}/{commands}", agent)
    for name in place.list(f"{folder}/agents", ".md"):
        yield from sub_agent(place, name, agent)
    yield from _skills(place, f"{folder}/skills", agent)


def _skills(place: ImportPlace, folder: str, agent: str) -> Iterator[Item]:
    for name in place.list(folder, SKILL_FILE.lower(), depth=2):
        if os.path.basename(name) == SKILL_FILE and os.path.dirname(name) != folder:
            yield from skill(place, name, agent)


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
            yield from cursor_rule(place, name)
    for name in place.list(".cursor/commands", ".md"):
        yield from command(place, name, ".cursor/commands", "cursor")
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
        yield rule(place, "remembered", "\n".join(lines), str(path), "memory")


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


def command(place: ImportPlace, name: str, folder: str, agent: str) -> Iterator[Item]:
    """Yield the command of a Markdown file in `folder`, named after its path."""
    keys, body = read_source(place, name)
    parts = [_clean(part) for part in os.path.relpath(name, folder)[: -len(".md")].split(os.sep)]
    if not body.strip() or not all(parts):
        yield LeftOut(name, "command", "it has no text" if all(parts) else "its name cannot be that of a command")
        return
    if parts[0].lower() in BUILT_IN_COMMANDS:
        yield LeftOut(name, f"/{parts[0]}", "Sage has a command of this name")
        return
    text = _POSITION.sub(lambda match: f"$ARG{match[1] or int(match[2]) + 1}", body)
    ran = _RUN.findall(text)
    text = _RUN.sub(r"(run `\1` and use its output)", text)
    head = _texts(keys, description="description", argument_hint="argument-hint")
    yield from _list_unused(name, keys, {"description", "argument-hint", "disable-model-invocation"})
    if ran:
        words = ", ".join(f"`{line}`" for line in ran[:3])
        yield LeftOut(name, words, "it is not run before the message: the model is asked to run it")
    yield _write_head(place, os.path.join("commands", *parts) + ".md", head, text, "command", name, agent)


def sub_agent(place: ImportPlace, name: str, agent: str) -> Iterator[Item]:
    """Yield the sub-agent of a Markdown file."""
    keys, body = read_source(place, name)
    own = _clean(str(keys.get("name") or os.path.basename(name)[: -len(".md")]))
    if not body.strip() or not keys.get("description") or not own:
        yield LeftOut(name, "sub-agent", "it has no name, description or text")
        return
    head: dict[str, Any] = {"name": own, **_texts(keys, description="description")}
    used = {"description", "tools", "permissionMode", "maxTurns", "background", "isolation"}
    if keys.get("tools"):
        tools, wrong = _convert_tools(keys["tools"])
        yield from (LeftOut(name, f"tools: {text}", why) for text, why in wrong)
        head["tools"] = tools
    mode = keys.get("permissionMode")
    if mode in _MODES:
        head |= {"permission_mode": _MODES[mode]} if _MODES[mode] else {}
    elif mode is not None:
        yield LeftOut(name, f"permissionMode: {mode}", "a sub-agent may only do less than its caller")
    if type(keys.get("maxTurns")) is int and 0 < keys["maxTurns"] <= 1000:
        head["max_turns"] = keys["maxTurns"]
    head |= {"background": True} if keys.get("background") is True else {}
    head |= {"worktree": True} if keys.get("isolation") == "worktree" else {}
    yield from _list_unused(name, keys, used)
    yield _write_head(place, os.path.join("agents", f"{own}.md"), head, body, "sub-agent", name, agent)


def skill(place: ImportPlace, name: str, agent: str) -> Iterator[Item]:
    """Yield the skill of a SKILL.md, and the files beside it."""
    keys, body = read_source(place, name)
    folder = os.path.dirname(name)
    own = _clean(str(keys.get("name") or os.path.basename(folder)))
    if not body.strip() or not keys.get("description") or not own:
        yield LeftOut(name, "skill", "it has no name, description or text")
        return
    head: dict[str, Any] = {
        "name": own,
        **_texts(keys, description="description", when_to_use="when_to_use", argument_hint="argument-hint"),
    }
    if keys.get("disable-model-invocation") is True:
        head["disable_model_invocation"] = True
    if keys.get("user-invocable") is False:
        head["user_invocable"] = False
    used = {"description", "when_to_use", "argument-hint", "disable-model-invocation", "user-invocable"}
    yield from _list_unused(name, keys, used)
    home = os.path.join("skills", own)
    text = _POSITION.sub(lambda match: f"$ARG{match[1] or int(match[2]) + 1}", body)
    yield _write_head(place, os.path.join(home, SKILL_FILE), head, text, "skill", name, agent)
    beside = [path for path in place.list(folder) if path != name]
    for path in beside[:_FILES_BESIDE_MAX]:
        data = place.read(path, most=_BESIDE_BYTES_MAX)
        if data is None:
            yield LeftOut(path, "file of a skill", f"it is larger than {_BESIDE_BYTES_MAX} bytes, or no plain file")
            continue
        target = os.path.join(place.prefix, home, os.path.relpath(path, folder))
        runs = os.access(os.path.join(place.home, path), os.X_OK)
        yield Planned(target, data, "file of a skill", path, agent, runs=runs)
    if len(beside) > _FILES_BESIDE_MAX:
        yield LeftOut(folder, "files of a skill", f"only the first {_FILES_BESIDE_MAX} of {len(beside)} are taken")


def cursor_rule(place: ImportPlace, name: str) -> Iterator[Item]:
    """Yield a rule that counts always as a rule, any other as a skill."""
    keys, body = read_source(place, name)
    own = _clean(os.path.basename(name).rpartition(".")[0]) or "rules"
    if not body.strip():
        yield LeftOut(name, "rule", "it has no text")
        return
    if keys.get("alwaysApply") is True or name.endswith(".cursorrules"):
        yield rule(place, f"cursor-{own}", body, name, "cursor")
        return
    globs = keys.get("globs") or ""
    shown = ", ".join(map(str, globs)) if isinstance(globs, list) else str(globs)
    about = one_line(str(keys.get("description") or ""))
    head: dict[str, Any] = {"name": own, "description": (about or f"Rules of Cursor: {own}")[:1_000]}
    if shown:
        head["when_to_use"] = one_line(f"you work on files that match {shown}")[:1_000]
    elif not about:
        head["disable_model_invocation"] = True  # a person names it
    yield _write_head(place, os.path.join("skills", f"{own}.md"), head, body, "skill", name, "cursor")


def rule(place: ImportPlace, own: str, body: str, source: str, agent: str) -> Planned:
    return Planned(
        os.path.join(place.prefix, "rules", f"{own}.md"), f"{body.strip()}\n".encode(), "rules", source, agent
    )


# ---------------------------------------------------------------- parts
def read_source(place: ImportPlace, name: str) -> tuple[dict[str, Any], str]:
    data = place.read(name)
    keys, body = ({}, "") if data is None else read_head(data, name)
    return keys, without_invisible(body)[:BODY_CHARS_MAX]


def _clean(name: str) -> str:
    name = _BAD_NAME.sub("-", name).strip("-_")[:64]
    return name if NAME.match(name) else ""


def _texts(keys: Mapping[str, Any], **wanted: str) -> dict[str, Any]:
    """Return the texts of a front matter by their names here, on one line each."""
    most = {"argument_hint": 120}
    given = {
        own: one_line(_join_words(keys[theirs]))[: most.get(own, 1_000)]
        for own, theirs in wanted.items()
        if theirs in keys
    }
    return {own: text for own, text in given.items() if text}


def _join_words(value: Any) -> str:
    return " ".join(f"[{item}]" for item in value) if isinstance(value, list) else str(value)


def _list_unused(name: str, keys: Mapping[str, Any], used: set[str]) -> Iterator[LeftOut]:
    for key, value in keys.items():
        if key in used or key in _KNOWN or value in ("", None, [], {}) or (key == "model" and value in _OWN_MODEL):
            continue
        why = _ALLOWS if key in ("allowed-tools", "allowed_tools") else "Sage has no such key"
        if key == "model":
            why = "a model here is named with its provider: add `model:` yourself"
        yield LeftOut(name, f"{key}: {one_line(str(value))[:80]}", why)


def _convert_tools(value: Any) -> tuple[list[str], list[tuple[str, str]]]:
    texts = value if isinstance(value, list) else re.split(r",(?![^()]*\))", str(value))
    tools, wrong = [], []
    for text in (str(text).strip() for text in texts):
        converted, why = convert_rule(text, "allow")
        if converted:
            tools.append(converted)
        elif text:
            wrong.append((text, why))
    return list(dict.fromkeys(tools)), wrong


def _write_head(
    place: ImportPlace, target: str, head: Mapping[str, Any], body: str, kind: str, source: str, agent: str
) -> Planned:
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in head.items()]
    front = ["---", *lines, "---"] if lines else []
    text = "\n".join([*front, body.strip(), ""])
    return Planned(os.path.join(place.prefix, target), text.encode("utf-8", "replace"), kind, source, agent)
