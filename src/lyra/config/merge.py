"""Who wins: the layers of `sources` folded into one.

The later layer wins, but a project's file comes with somebody's repository and is trusted less than the person: grants
and budgets it can only narrow, whatever the person said and wherever they said it. What it asked for in vain is a note.
Next: `merge_tables`, which does the same for the settings with free names.
"""

from __future__ import annotations

from typing import Any

from lyra.config.keys import KEYS, Key
from lyra.config.origin import Origin
from lyra.config.sources import Layer
from lyra.core.capability import ANY_NAME, Grant

__all__ = ["Merged"]


class Merged:
    """The layers folded into one: the later wins, but a project's file only narrows what `narrows` marks."""

    def __init__(self, layers: list[Layer]) -> None:
        self.values: dict[str, Any] = {}
        self.origins: dict[str, Origin] = {}
        self.notes: list[str] = []
        own = [layer for layer in layers if layer.kind != "project"]
        project = next(layer for layer in layers if layer.kind == "project")
        for name, key in KEYS.items():
            for layer in own if key.narrows else layers:
                self.take(layer, name)
            if key.narrows and key.type != "rules" and project.values.get(name) is not None:
                self.tighten(key, project)
        self.grant = self.narrowed_grant(project)

    def take(self, layer: Layer, name: str) -> None:
        if name in layer.values:
            self.values[name] = layer.values[name]
            self.origins[name] = Origin(layer.kind, layer.places[name] or None)

    def tighten(self, key: Key, project: Layer) -> None:
        asked, holds = project.values[key.name], self.values[key.name]
        rank = key.words.index if key.words else _same
        if holds is None or (key.type != "file" and rank(asked) <= rank(holds)):
            self.take(project, key.name)
        else:
            place = project.places[key.name]
            self.notes.append(f"{place}: a project can only tighten {key.name}; your {holds} holds, not {asked}")

    def narrowed_grant(self, project: Layer) -> Grant:
        own = Grant(allow=self.values["grant.allow"], deny=self.values["grant.deny"])
        theirs = Grant(allow=project.values.get("grant.allow", (ANY_NAME,)), deny=project.values.get("grant.deny", ()))
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
        self.origins[name] = Origin("project", place if alone or not before else f"{place} and {before}")


def _same(value: Any) -> Any:
    return value
