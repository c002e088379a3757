"""The outfit of a headless agent: its folders, its tools, its permissions, and the Grant of its process.

Three things hold it, one inside the other. The Grant says what the process can do at all: read and write in its
folders, run commands, reach the hosts that a rule names. The permission rules say which calls need no answer. The
sandbox holds the commands that run. Nothing here decides on a call; it only puts together what files and flags say.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from lyra.agents.helpers.task import task_tool
from lyra.agents.turn.memory import Memory
from lyra.core.checking.check import did_you_mean
from lyra.core.rights.capability import Capability, Grant
from lyra.core.tool import Tool
from lyra.errors import ConfigError
from lyra.tools.builtin import Workspace, builtin_tools
from lyra.tools.permissions.answers import Answers
from lyra.tools.permissions.decision import Permissions
from lyra.tools.permissions.rules import Rule
from lyra.tools.permissions.settings import Layer, load_layers, permissions_of
from lyra.tools.source import ToolSource

if TYPE_CHECKING:
    from lyra.agents.headless.headless import HeadlessOptions

__all__ = ["TOLD_MAX", "Outfit", "each_tool", "outfit_of", "unknown_tools"]

TOLD_MAX: Final = 20  # tools of one source that a model is told of without asking
_FETCH: Final = "WebFetch"
_NAME_CHARS: Final = 40  # of a folder's name, beside what tells it from others of that name


class Outfit(NamedTuple):
    folder: str
    also: tuple[str, ...]
    tools: tuple[Tool | ToolSource, ...]
    permissions: Permissions
    memory: Memory

    @property
    def grant(self) -> Grant:
        """By one rule for every tool there is now, also for those that come later or whose file has changed."""
        rights = _rights((self.folder, *self.also), self.permissions, self.tools)
        return Grant(rights, _denied(self.permissions))


def outfit_of(options: HeadlessOptions, *, logs: Sequence[str] = ()) -> Outfit:
    """What these options come to; ConfigError where one of them cannot be used. Nothing writes to `logs` but Lyra."""
    folder = _folder(options.folder, "the folder")
    also = tuple(dict.fromkeys(_folder(each, "--add-dir") for each in options.also))
    permissions = _permissions(options, folder, also, logs)
    workspace = Workspace(folder, also=also, hidden=permissions.hidden)
    found = (*options.tools, *_from_files(workspace, trusted=options.trusted))
    more = (each if isinstance(each, Tool) else _Many(each) for each in found)
    commands = Grant([*_folder_rights((folder, *also)), Capability("process.exec"), *_hosts(permissions, whole=True)])
    tools = (*builtin_tools(workspace, permissions=permissions, commands=commands), task_tool(), *more)
    return Outfit(folder, also, tools, permissions, Memory(_scope(folder), tools=True))


class _Many:
    """A source of tools. Where they are many, a model is told only of those that it looks for (ToolSearch)."""

    __slots__ = ("_later", "_source")

    def __init__(self, source: ToolSource) -> None:
        self._source = source
        self._later: dict[str, tuple[Tool, Tool]] = {}  # a tool that has not changed is the same object each time

    def __lyra_tools__(self) -> tuple[Tool, ...]:
        tools = self._source.__lyra_tools__()
        if len(tools) <= TOLD_MAX:
            return tools
        self._later = {tool.name: self._kept(tool) for tool in tools}
        return tuple(later for _, later in self._later.values())

    def _kept(self, tool: Tool) -> tuple[Tool, Tool]:
        before = self._later.get(tool.name)
        if before is not None and before[0] is tool:
            return before
        return tool, msgspec.structs.replace(tool, deferred=True)

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(getattr(self._source, "problems", ()))


def _from_files(workspace: Workspace, *, trusted: bool) -> Iterable[ToolSource]:
    """Tools in YAML: the user's own, and those of a project that is trusted."""
    from lyra.tools.yaml.places import sources_here

    return sources_here(workspace, trusted=trusted)


def unknown_tools(rules: Iterable[str], tools: Iterable[str]) -> list[tuple[str, str]]:
    """Rules that speak of no tool there is, each with the name that was probably meant."""
    known = list(tools)
    read = [Rule(text, "allow") for text in rules]
    lost = [rule for rule in read if not any(rule.covers_tool(name) for name in known)]
    named = {name.lower(): name for name in known}
    return [(rule.text, named.get(did_you_mean(rule.tool.lower(), named) or "", "")) for rule in lost]


def each_tool(tools: Iterable[Tool | ToolSource]) -> list[Tool]:
    """The tools, those of sources as they are now."""
    return [each for one in tools for each in ((one,) if isinstance(one, Tool) else one.__lyra_tools__())]


def _folder(path: str, what: str) -> str:
    whole = os.path.realpath(os.path.expanduser(path))
    if not os.path.isdir(whole):
        missing = "is not a folder" if os.path.exists(whole) else "does not exist"
        raise ConfigError(f"{what} {path} {missing}", place=whole, key=what)
    if any(char in whole for char in "*?"):
        raise ConfigError(f"{what} {whole} has a * or ? in its name, which rules would read as a pattern", place=whole)
    return whole


def _scope(folder: str) -> str:
    """What is remembered in a folder is for runs in that folder."""
    return f"{os.path.basename(folder)[:_NAME_CHARS]}-{blake2b(os.fsencode(folder), digest_size=6).hexdigest()}"


def _permissions(options: HeadlessOptions, folder: str, also: Sequence[str], logs: Sequence[str] = ()) -> Permissions:
    home = os.path.expanduser("~")
    layers = load_layers(folder, home=home, trusted=options.trusted)
    for flag, effect, rules in (
        ("--allowed-tools", "allow", options.allow),
        ("--disallowed-tools", "deny", options.deny),
    ):
        if rules:
            layers.append(Layer("flags", {effect: list(rules)}, flag))
    kept_shut = [f"Edit({os.path.realpath(log)}{end})" for log in logs for end in ("", "/**")]
    if kept_shut:
        layers.append(Layer("flags", {"deny": kept_shut}, "audit"))
    kept = Answers(folder)
    return permissions_of(
        layers,
        workspace=folder,
        home=home,
        mode=options.mode,
        attended=options.attended,
        extra_folders=tuple(also),
        answers=kept.rules(),
        keep=kept.add,
    )


# ---------------------------------------------------------------------- the grant


def _rights(folders: Sequence[str], permissions: Permissions, tools: Iterable[Tool | ToolSource]) -> list[Capability]:
    rights = _folder_rights(folders)
    rights.append(Capability("process.exec"))  # which command: the rules; what it reaches: the sandbox
    rights.append(Capability("tool.use"))  # of servers, whose tools come and go: which, say the rules
    rights += _hosts(permissions)
    for tool in each_tool(tools):
        rights += tool.needs
        if permissions.mode == "bypass" or permissions.rules_of("allow", tool.name):
            rights += getattr(tool.run, "rights", ())  # what a tool from a file names, once a rule allows it
    return list(dict.fromkeys(rights))


def _folder_rights(folders: Sequence[str]) -> list[Capability]:
    return [Capability(verb, f"{folder}/**") for folder in folders for verb in ("fs.read", "fs.write")]


def _hosts(permissions: Permissions, *, whole: bool = False) -> list[Capability]:
    """The hosts that rules let it reach; in the mode `bypass` all of them, but those that a rule denies. `whole`: only
    those that a rule names, and no part of one: a rule to read a page is no way out for commands."""
    if permissions.mode == "bypass":
        return [Capability("net.http")]
    rules = permissions.rules_of("allow", _FETCH)
    return [_reach(rule) for rule in rules if not whole or (rule.host and rule.whole_host)]


def _denied(permissions: Permissions) -> list[Capability]:
    """Hosts that are denied as a whole; a deny of a path on one is for the rules alone."""
    return [_reach(rule) for rule in permissions.rules_of("deny", _FETCH) if rule.whole_host]


def _reach(rule: Rule) -> Capability:
    return Capability("net.http", rule.host) if rule.host else Capability("net.http")
