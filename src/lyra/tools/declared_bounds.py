"""Bounds that a tool declares for itself: `allowed_paths`, `allowed_commands`, `allowed_hosts` beside what it needs.

    @tool(needs=["fs::read"], allowed_paths=["/project/**", "/data/*.json"])
    def read_file(path: str) -> str: ...

If a parameter names the resource (`path`, `command`, `url`, by its name), each call needs the right to exactly that
resource, and is refused outside the tool's own lists, whatever the process may do. Paths are compared by their real
path. A parameter that is left out counts as its default. Without such a parameter, or if a call names nothing, the tool
needs the right to all that it lists.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from lyra.core.rights.capability import Capability, Grant
from lyra.errors import CapabilityDenied, ConfigError

NeedsOf = Callable[[dict[str, Any]], Iterable[Capability]]

BOUNDS: Final = {"allowed_paths": "path", "allowed_commands": "command", "allowed_hosts": "host"}
_NAMES: Final[dict[str, frozenset[str]]] = {
    "path": frozenset({"path", "paths", "file", "files", "folder", "directory", "filename"}),
    "command": frozenset({"command", "commands", "cmd"}),
    "host": frozenset({"url", "urls", "host", "hosts"}),
}
_ENDINGS: Final = {"path": ("_path", "_paths", "_file", "_folder"), "command": ("_command",), "host": ("_url", "_host")}


class _Bound(NamedTuple):
    """One right, the part of it that the tool allows itself, and the parameters that name the resource of a call."""

    name: str
    kind: str
    allowed: Grant
    parameters: Mapping[str, Any]  # with the default of each

    def needs(self, arguments: dict[str, Any]) -> list[Capability]:
        needs = [need for name, default in self.parameters.items() for need in self._of(arguments.get(name, default))]
        return needs or [need for layer in self.allowed.layers for need in layer]

    def _of(self, value: Any) -> Iterable[Capability]:
        for text in value if isinstance(value, (list, tuple, set, frozenset)) else (value,):
            if text is None:
                continue
            need = _exact(self.name, self.kind, text)
            self.allowed.check(need)
            yield need


def bounded(
    needs: Sequence[Any], parameters: Mapping[str, Any], lists: dict[str, Any], needs_of: NeedsOf | None
) -> tuple[list[Capability], NeedsOf | None]:
    """The rights that a tool with these bounds always needs, and a function for those of one call. `parameters` maps
    names to defaults."""
    scopes = {BOUNDS[key]: _scopes(key, value) for key, value in lists.items()}
    always: list[Capability] = []
    bounds: list[_Bound] = []
    for need in needs:
        base = Capability.of(need)
        allowed = scopes.get(base.kind)
        if allowed is None:
            always.append(base)
            continue
        capabilities = [Capability(base.name, scope) for scope in allowed]
        carried = {
            name: default
            for name, default in parameters.items()
            if name in _NAMES[base.kind] or name.endswith(_ENDINGS[base.kind])
        }
        if base.scope != "**":
            raise ConfigError(f"{str(base)!r} already names a scope", hint="leave the scope out or drop the list")
        if carried:
            bounds.append(_Bound(base.name, base.kind, Grant(capabilities), carried))
        else:
            always += capabilities
    unused = set(scopes) - {Capability.of(need).kind for need in needs}
    if unused:
        word = next(key for key, kind in BOUNDS.items() if kind in unused)
        raise ConfigError(f"{word} bounds a right that the tool does not need", hint="name it in needs", key=word)
    if not bounds:
        return always, needs_of

    def of(arguments: dict[str, Any]) -> list[Capability]:
        needs_of_call = [need for bound in bounds for need in bound.needs(arguments)]
        return needs_of_call if needs_of is None else [*needs_of_call, *needs_of(arguments)]

    return always, of


def _scopes(key: str, value: Any) -> list[str]:
    if (
        isinstance(value, str)
        or not isinstance(value, (list, tuple))
        or not all(isinstance(scope, str) for scope in value)
    ):
        raise ConfigError(f"{key} is a list of texts, not {value!r}", key=key)
    return list(value)


def _exact(name: str, kind: str, value: Any) -> Capability:
    """The right to the resource that one argument names; an ambiguous value is refused."""
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str) or not text or "\0" in text:
        raise CapabilityDenied(f"{value!r} names nothing that could be allowed", capability=name)
    if kind == "path":
        return Capability(name, os.path.realpath(os.path.expanduser(text)))
    if kind == "host" and "://" in text:
        try:
            parts = urlsplit(text)
            text = f"{parts.hostname or ''}:{parts.port}" if parts.port else parts.hostname or ""
        except ValueError:
            text = ""
        if not text:
            raise CapabilityDenied(f"{value!r} names no host", capability=name)
    return Capability(name, text)
