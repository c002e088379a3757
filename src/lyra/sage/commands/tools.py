"""Commands about what the agent has: tools and memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from lyra.agents.declaration.memory import KINDS, Remembered
from lyra.core.secrets.visible import visible
from lyra.core.tool import Tool
from lyra.errors import ConfigError
from lyra.sage.commands.arguments import SlashArguments
from lyra.sage.commands.result import SlashResult, lines, table
from lyra.sage.commands.session_protocol import CommandSession
from lyra.sage.commands.words import age, short
from lyra.tools.permissions.decision import Permissions

_RULES_SHOWN: Final = 3


# ---------------------------------------------------------------- tools
async def tools(session: CommandSession, arguments: SlashArguments) -> SlashResult:
    words = arguments.at_most(1)
    listed = dict(_all_tools(session))
    if words:
        return _tool(session, arguments.choice(words[0], listed), listed)
    permissions = session.headless.setup.permissions
    rows = [(visible(tool.name), _rules(permissions, tool.name), _first_line(tool)) for tool in listed.values()]
    return SlashResult.of(table(("tool", "rules", ""), rows))


def _all_tools(session: CommandSession) -> Iterable[tuple[str, Tool]]:
    agent = session.headless.agent
    sources = [tool for source in agent.sources for tool in source.__lyra_tools__()]
    return ((tool.name, tool) for tool in (*agent.tools.values(), *sources))


def _tool(session: CommandSession, name: str, listed: dict[str, Tool]) -> SlashResult:
    tool = listed[name]
    inputs, required = tool.schema.get("properties", {}), tool.schema.get("required", ())
    rows = [
        (visible(field), "required" if field in required else "", short(str((about or {}).get("description", ""))))
        for field, about in inputs.items()
    ]
    rules = _rules(session.headless.setup.permissions, name)
    about = lines([visible(line) for line in tool.description.strip().split("\n")], title=visible(name))
    return SlashResult.of(about, *([table(("argument", "", ""), rows)] if rows else []), *([rules] if rules else []))


def _rules(permissions: Permissions, tool: str) -> str:
    effects: tuple[Any, ...] = ("deny", "ask", "allow")
    rules = [f"{effect} {rule.text}" for effect in effects for rule in permissions.rules_of(effect, tool)]
    more = f" and {len(rules) - _RULES_SHOWN} more" if len(rules) > _RULES_SHOWN else ""
    return visible(", ".join(rules[:_RULES_SHOWN]) + more)


def _first_line(tool: Tool) -> str:
    return short(tool.description.strip().split("\n", 1)[0])


# ---------------------------------------------------------------- memory
async def memory(session: CommandSession, arguments: SlashArguments) -> SlashResult:
    remembered = session.headless.setup.memory.on(session.kernel)
    action, _, rest = arguments.text.partition(" ")
    if not action:
        return _items(remembered.items(), "nothing is remembered yet; /memory add TEXT adds an item")
    arguments.choice(action, ("add", "forget", "search"))
    rest = rest.strip()
    if not rest:
        raise arguments.mistake(f"what to {action} is missing")
    if action == "search":
        return _items(remembered.search(rest), "nothing that is remembered fits")
    return _add(remembered, session.without_keys(rest)) if action == "add" else _forget(remembered, rest, arguments)


def _add(remembered: Remembered, rest: str) -> SlashResult:
    kind, _, text = rest.partition(": ")
    if kind not in KINDS or not text.strip():
        kind, text = "preference", rest
    item = remembered.add(text.strip(), kind=kind)
    return SlashResult.of(f"remembered as {item.id} ({item.kind}): {visible(item.text)}")


def _forget(remembered: Remembered, rest: str, arguments: SlashArguments) -> SlashResult:
    if not rest.isascii() or not rest.isdecimal():
        raise arguments.mistake(f"{rest[:40]!r} is not the number of an item")
    if not remembered.forget(int(rest)):
        raise ConfigError(f"there is no item {rest}", hint="/memory lists them", key="item")
    return SlashResult.of(f"item {rest} is forgotten")


def _items(items: Iterable[Any], empty: str) -> SlashResult:
    rows = [(item.id, item.kind, age(item.time), visible(item.text)) for item in items]
    return SlashResult.of(table(("", "kind", "age", "text"), rows)) if rows else SlashResult.of(empty)
