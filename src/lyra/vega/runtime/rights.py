"""What a run may do: the Grant of the program, and the narrower one of each of its tools.

A program may read and write below its working folder, and what its tools declare. A tool that declares capabilities
has those and nothing else; one that declares none has what every program has, without what other tools declare. Paths
are below the working folder unless `allowed_paths` names others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from lyra.core.rights.capability import Capability, Grant
from lyra.errors import ConfigError
from lyra.vega.bytecode.program import SPELLINGS
from lyra.vega.machine.fiber import Done, Fiber
from lyra.vega.machine.link import LinkedProgram
from lyra.vega.machine.vm import run
from lyra.vega.values.values import UNSET

# What asking agents and starting processes takes: a tool never loses these.
_ALWAYS: Final = (
    *("model.use", "tool.use", "process.spawn", "process.send", "human.ask", "events.*"),
    *("db.read:memories.**", "db.write:memories.**"),  # what its agents remember
)
_FUEL: Final = 10_000


class Rights:
    """`grant` is the program's; `roots` are the folders that files may be opened below. `undeclared` says what the
    tools may do that the program names and does not declare."""

    __slots__ = ("base", "folder", "grant", "roots")

    def __init__(
        self, linked: LinkedProgram, folder: str, undeclared: Callable[[Iterable[Any]], list[Capability]] = lambda _: []
    ) -> None:
        self.folder = folder
        self.roots = [folder]
        self.base = [
            *(Capability(name, scope) for name in ("fs.read", "fs.write") for scope in (folder, f"{folder}/**")),
            *(Capability.parse(name) for name in (*_ALWAYS, "env.read")),
        ]
        every = list(_list_settings(linked))
        declared = [cap for settings in every for cap in self.capabilities(settings)]
        declared += undeclared([name for settings in every for name in settings.get("tools") or ()])
        self.grant = Grant(allow=list(dict.fromkeys([*self.base, *declared])))

    def grant_for_tool(self, settings: Mapping[str, Any], agent: Mapping[str, Any]) -> Grant:
        """Return the Grant of one tool: its own capabilities, else its agent's, else those of any program."""
        declares = next((declaration for declaration in (settings, agent) if "capabilities" in declaration), None)
        if declares is None:
            return Grant(allow=self.base)
        allowed = self.capabilities({**agent, **settings})
        return Grant(allow=[*allowed, *(Capability.parse(name) for name in _ALWAYS)])

    def capabilities(self, settings: Mapping[str, Any]) -> list[Capability]:
        """`capabilities […] allowed_paths […] allowed_commands […]` with absolute paths."""
        paths = [self.absolute(path) for path in settings.get("allowed_paths") or ()]
        commands = [str(command) for command in settings.get("allowed_commands") or ()]
        capabilities: list[Capability] = []
        for spelling in settings.get("capabilities") or ():
            base = Capability.parse(str(spelling))
            base = Capability(SPELLINGS.get(base.name, base.name), base.scope)
            if base.kind == "path" and base.scope == "**":
                capabilities += [Capability(base.name, scope) for scope in self._scopes(paths)]
            elif base.kind == "command" and base.scope == "**" and commands:
                capabilities += [Capability(base.name, command) for command in commands]
            else:
                capabilities.append(base)
        return capabilities

    def _scopes(self, paths: list[str]) -> Iterable[str]:
        if not paths:
            return (self.folder, f"{self.folder}/**")
        scopes = list(paths)
        for path in paths:
            root = _root(path)
            if root not in self.roots:
                self.roots.append(root)
            real = os.path.realpath(root)
            if real != root:  # a folder that is named by a symlink is meant where it lies
                scopes.append(real + path[len(root) :])
        return scopes

    def absolute(self, path: Any) -> str:
        """Return a path, or a pattern of one, as the Grant names it."""
        text = str(path)
        if not text or "\0" in text:
            raise ConfigError(f"{text!r} is not a path")
        return os.path.normpath(text if os.path.isabs(text) else os.path.join(self.folder, text))

    def root_of(self, path: str) -> str | None:
        """Return the folder that a path is opened below."""
        return next((root for root in self.roots if path == root or path.startswith(f"{root.rstrip('/')}/")), None)


def _root(pattern: str) -> str:
    """Return the folder above the first wildcard of a pattern, or of the one file it names."""
    parts = pattern.split("/")
    plain = next((index for index, part in enumerate(parts) if any(char in part for char in "*?[{")), len(parts))
    folder = "/".join(parts[:plain]) or "/"
    return folder if plain < len(parts) or os.path.isdir(folder) else os.path.dirname(folder) or "/"


def _list_settings(linked: LinkedProgram) -> Iterable[Mapping[str, Any]]:
    """Yield the settings of all tools, as far as they can be known before the program runs."""
    program = linked.program
    for info in program.agents.values():
        settings = settings_of(linked, info.configuration)
        if info.kind == "agent" and settings is not None:
            yield from settings.get("tool_settings", {}).values()
            yield settings
    for tool in program.tools.values():
        settings = settings_of(linked, tool.configuration)
        if settings is not None:
            yield settings


def settings_of(linked: LinkedProgram, function: int, globals_: list[Any] | None = None) -> dict[str, Any] | None:
    """Return what a function of settings gives, with these variables; None where it cannot be known."""
    if function < 0:
        return None
    variables = [UNSET] * len(linked.program.globals) if globals_ is None else globals_[:]
    fiber = Fiber.call(linked, function, [], variables)
    outcome = run(fiber, _FUEL)
    return outcome.value if isinstance(outcome, Done) and isinstance(outcome.value, dict) else None
