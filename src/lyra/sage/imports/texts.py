"""Commands, sub-agents, skills and rules of other agents, as Markdown files that Sage reads.

Each function gives the file and what of it is left out. Keys are renamed, variables of commands too (`$1` is `$ARG1`).
`allowed-tools` of a command or skill allows there and limits here, so it is left out; `tools` of a sub-agent limits in
both. A rule of Cursor that counts always becomes a rule, any other a skill, which a model reads when it fits.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from lyra.core.secrets.visible import without_invisible
from lyra.sage.extensions.custom_commands import BUILT_IN_COMMANDS
from lyra.sage.extensions.extension_files import BODY_CHARS_MAX, NAME, one_line
from lyra.sage.extensions.skills.skills import SKILL_FILE
from lyra.sage.imports.apply import ImportPlace, LeftOut, Planned, read_head
from lyra.sage.imports.settings import convert_rule

_POSITION: Final = re.compile(r"\$([1-9])\b|\$ARGUMENTS\[([0-9])\]")
_RUN: Final = re.compile(r"(?<![`\w])!`([^`\n]+)`")
_BAD_NAME: Final = re.compile(r"[^A-Za-z0-9_-]+")
_FILES_BESIDE_MAX: Final = 50
_BESIDE_BYTES_MAX: Final = 64 * 1024
_MODES: Final = {"acceptEdits": "accept-edits", "plan": "plan", "dontAsk": "deny-unasked", "default": ""}
_KNOWN: Final = frozenset({"name", "description", "license", "version", "metadata", "color", "compatibility"})
_OWN_MODEL: Final = ("inherit", "")
_ALLOWS: Final = "it allows there and would limit here: permission rules do that (`/permissions allow RULE`)"

Item = Planned | LeftOut


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
    yield _markdown(place, os.path.join("commands", *parts) + ".md", head, text, "command", name, agent)


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
    yield _markdown(place, os.path.join("agents", f"{own}.md"), head, body, "sub-agent", name, agent)


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
    yield _markdown(place, os.path.join(home, SKILL_FILE), head, text, "skill", name, agent)
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
    yield _markdown(place, os.path.join("skills", f"{own}.md"), head, body, "skill", name, "cursor")


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


def _markdown(
    place: ImportPlace, target: str, head: Mapping[str, Any], body: str, kind: str, source: str, agent: str
) -> Planned:
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in head.items()]
    front = ["---", *lines, "---"] if lines else []
    text = "\n".join([*front, body.strip(), ""])
    return Planned(os.path.join(place.prefix, target), text.encode("utf-8", "replace"), kind, source, agent)
