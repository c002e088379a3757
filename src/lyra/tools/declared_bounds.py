"""Bounds that a tool declares for itself: `allowed_paths`, `allowed_commands`, `allowed_hosts` beside what it needs.

    @tool(needs=["fs::read"], allowed_paths=["/project/**", "/data/*.json"])
    def read_file(path: str) -> str: ...

Where a parameter carries the thing (`path`, `command`, `url`, by name), each call needs the right to exactly that, and
is refused outside of what the tool allows itself, whatever the process may do. A path is compared by where it leads.
One that is left out counts as its default. Where no parameter does, or a call names nothing, the tool needs the right
to all that it lists.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from lyra.core.rights.capability import Capability, Grant
from lyra.errors import CapabilityDenied, ConfigError

__all__ = ["BOUNDS", "bounded"]

NeedsOf = Callable[[dict[str, Any]], Iterable[Capability]]

BOUNDS: Final = {"allowed_paths": "path", "allowed_commands": "command", "allowed_hosts": "host"}
_NAMES: Final[dict[str, frozenset[str]]] = {
    "path": frozenset({"path", "paths", "file", "files", "folder", "directory", "filename"}),
    "command": frozenset({"command", "commands", "cmd"}),
    "host": frozenset({"url", "urls", "host", "hosts"}),
}
_ENDINGS: Final = {"path": ("_path", "_paths", "_file", "_folder"), "command": ("_command",), "host": ("_url", "_host")}


class _Bound(NamedTuple):
    """One right, what of it the tool allows itself, and the parameters that say which part a call is about."""

    name: str
    kind: str
    allowed: Grant
    parameters: Mapping[str, Any]  # with what each is when a call leaves it out

    def needs(self, arguments: dict[str, Any]) -> list[Capability]:
        found = [need for name, default in self.parameters.items() for need in self._of(arguments.get(name, default))]
        return found or [need for layer in self.allowed.layers for need in layer]

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
    """What a tool with these bounds always needs, and what it needs for one call; `parameters` with their defaults."""
    scopes = {BOUNDS[key]: _scopes(key, value) for key, value in lists.items()}
    always: list[Capability] = []
    bounds: list[_Bound] = []
    for need in needs:
        base = Capability.of(need)
        allowed = scopes.get(base.kind)
        if allowed is None:
            always.append(base)
            continue
        each = [Capability(base.name, scope) for scope in allowed]
        carried = {
            name: default
            for name, default in parameters.items()
            if name in _NAMES[base.kind] or name.endswith(_ENDINGS[base.kind])
        }
        if base.scope != "**":
            raise ConfigError(f"{str(base)!r} already names a scope", hint="leave the scope out or drop the list")
        if carried:
            bounds.append(_Bound(base.name, base.kind, Grant(each), carried))
        else:
            always += each
    unused = set(scopes) - {Capability.of(need).kind for need in needs}
    if unused:
        word = next(key for key, kind in BOUNDS.items() if kind in unused)
        raise ConfigError(f"{word} bounds a right that the tool does not need", hint="name it in needs", key=word)
    if not bounds:
        return always, needs_of

    def of(arguments: dict[str, Any]) -> list[Capability]:
        found = [need for bound in bounds for need in bound.needs(arguments)]
        return found if needs_of is None else [*found, *needs_of(arguments)]

    return always, of


def _scopes(key: str, value: Any) -> list[str]:
    if isinstance(value, str) or not isinstance(value, (list, tuple)) or not all(isinstance(one, str) for one in value):
        raise ConfigError(f"{key} is a list of texts, not {value!r}", key=key)
    return list(value)


def _exact(name: str, kind: str, value: Any) -> Capability:
    """The right to what one argument names; what cannot be read for certain is refused."""
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
