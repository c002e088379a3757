"""Who wins: the layers of `sources` folded into one.

The later layer wins, but a project's file comes with somebody's repository and is trusted less than the person: grants
and budgets it can only narrow, whatever the person said and wherever they said it. What it asked for in vain is a note.
The machine's own file (`managed`) narrows what is left by all others.
Next: `merge_tables`, which does the same for the settings with free names.
"""

from __future__ import annotations

from typing import Any

from lyra.config.keys import KEYS, Key
from lyra.config.origin import Origin
from lyra.config.sources import Layer
from lyra.core.rights.capability import ANY_NAME, Grant

__all__ = ["Merged"]


class Merged:
    """The layers folded into one: the later wins, but a project's file only narrows what `narrows` marks."""

    def __init__(self, layers: list[Layer]) -> None:
        self.values: dict[str, Any] = {}
        self.origins: dict[str, Origin] = {}
        self.notes: list[str] = []
        self.demanded: dict[str, Any] = {}  # what holds against a person, too: of words the tightest
        own = [layer for layer in layers if layer.kind not in ("project", "managed")]
        managed = next(layer for layer in layers if layer.kind == "managed")
        project = next(layer for layer in layers if layer.kind == "project")
        for name, key in KEYS.items():
            for layer in own if key.narrows else layers:
                self.take(layer, name)
            if not key.narrows or key.type == "rules":
                continue
            if project.values.get(name) is not None:
                self.tighten(key, project)
            if managed.values.get(name) is not None:
                self.demand(key, managed)
            self.note_demand(key, project, managed)
        self.grant = self.narrowed_grant(project)
        self.grant = self.grant.narrow(_grant_of(managed))
        for name in ("grant.allow", "grant.deny"):
            if name in managed.values:
                self.join_origin(name, managed, alone=False)

    def take(self, layer: Layer, name: str) -> None:
        if name in layer.values:
            self.values[name] = layer.values[name]
            self.origins[name] = Origin(layer.kind, layer.places[name] or None)

    def tighten(self, key: Key, project: Layer) -> None:
        asked, holds = project.values[key.name], self.values[key.name]
        if holds is None or (key.type != "file" and _rank(key, asked) <= _rank(key, holds)):
            self.take(project, key.name)
        else:
            place = project.places[key.name]
            self.notes.append(f"{place}: a project can only tighten {key.name}; your {holds} holds, not {asked}")

    def demand(self, key: Key, managed: Layer) -> None:
        """Where no order says which of two is tighter (a file's name), the machine's holds."""
        holds = self.values[key.name]
        if holds is None or key.type == "file" or _rank(key, managed.values[key.name]) <= _rank(key, holds):
            self.take(managed, key.name)

    def note_demand(self, key: Key, project: Layer, managed: Layer) -> None:
        who = (managed,) if key.type == "file" else (project, managed)
        asked = [layer.values[key.name] for layer in who if layer.values.get(key.name) is not None]
        if asked:
            self.demanded[key.name] = min(asked, key=lambda value: _rank(key, value))

    def narrowed_grant(self, project: Layer) -> Grant:
        own = Grant(allow=self.values["grant.allow"], deny=self.values["grant.deny"])
        theirs = _grant_of(project)
        grant = own.narrow(theirs)
        if grant.layers != own.layers:
            self.join_origin("grant.allow", project, alone=grant.layers == theirs.layers)
        elif theirs.layers and theirs.layers != own.layers:
            place = project.places["grant.allow"]
            self.notes.append(f"{place}: a project can only narrow grant.allow; your own is narrower already and holds")
        if grant.deny != own.deny:
            self.join_origin("grant.deny", project, alone=not own.deny)
        return grant

    def join_origin(self, name: str, project: Layer, *, alone: bool) -> None:
        before = self.origins[name].place
        place = project.places[name]
        self.origins[name] = Origin(project.kind, place if alone or not before else f"{place} and {before}")


def _grant_of(layer: Layer) -> Grant:
    return Grant(allow=layer.values.get("grant.allow", (ANY_NAME,)), deny=layer.values.get("grant.deny", ()))


def _rank(key: Key, value: Any) -> Any:
    """The smaller, the tighter."""
    return key.words.index(value) if key.words else value
