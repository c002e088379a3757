"""Merging: the layers of `sources` folded into one.

The later layer wins, but a project's file comes with a repository and is trusted less than the user: it can only narrow
grants and budgets, whichever source the user set them in, and until its folder is trusted it can only tighten anything
(`passed_over` are the settings that wait for that). Any other setting of the project's file that is not used becomes a
note. The machine's own file (`managed`) narrows the result of all others.
Next: `merge_tables`, which does the same for the settings with free names.
"""

from __future__ import annotations

from typing import Any

from lyra.config.keys import KEYS, SettingKey, is_tighter
from lyra.config.origin import SettingOrigin
from lyra.config.sources import SettingsLayer
from lyra.core.rights.capability import ANY_NAME, Grant
from lyra.core.secrets.secret import Secret


class Merged:
    """The layers folded into one: the later wins, but a project's file only narrows what `narrows` marks."""

    def __init__(self, layers: list[SettingsLayer]) -> None:
        self.values: dict[str, Any] = {}
        self.origins: dict[str, SettingOrigin] = {}
        self.notes: list[str] = []
        self.passed_over: list[str] = []  # settings of a project's file whose folder is not trusted
        # minimum demands of project and machine, which bind the user too; the tightest word of each
        self.demanded: dict[str, Any] = {}
        own = [layer for layer in layers if layer.kind not in ("project", "managed")]
        managed = next(layer for layer in layers if layer.kind == "managed")
        project = next(layer for layer in layers if layer.kind == "project")
        for name, key in KEYS.items():
            for layer in own if key.narrows else layers:
                if layer.trusted or self.is_tighter(key, layer):
                    self.take(layer, name)
                elif name in layer.values:
                    self.passed_over.append(name)
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

    def take(self, layer: SettingsLayer, name: str) -> None:
        if name in layer.values:
            self.values[name] = layer.values[name]
            self.origins[name] = SettingOrigin(layer.kind, layer.places[name] or None)

    def is_tighter(self, key: SettingKey, layer: SettingsLayer) -> bool:
        """Whether a layer without trust only tightens this setting. The value that holds already counts as tighter."""
        if key.name not in layer.values:
            return False
        asked, holds = _bare(layer.values[key.name]), _bare(self.values[key.name])
        return bool(asked == holds) or is_tighter(key, asked, holds)

    def tighten(self, key: SettingKey, project: SettingsLayer) -> None:
        if key.type == "file" and not project.trusted:
            self.passed_over.append(key.name)
            return
        asked, holds = project.values[key.name], self.values[key.name]
        if holds is None or (key.type != "file" and _rank(key, asked) <= _rank(key, holds)):
            self.take(project, key.name)
        else:
            place = project.places[key.name]
            self.notes.append(f"{place}: a project can only tighten {key.name}; your {holds} holds, not {asked}")

    def demand(self, key: SettingKey, managed: SettingsLayer) -> None:
        """Apply the machine's value where it is tighter; it also wins where values have no order (a file's name)."""
        holds = self.values[key.name]
        if holds is None or key.type == "file" or _rank(key, managed.values[key.name]) <= _rank(key, holds):
            self.take(managed, key.name)

    def note_demand(self, key: SettingKey, project: SettingsLayer, managed: SettingsLayer) -> None:
        who = (managed,) if key.type == "file" else (project, managed)
        asked = [layer.values[key.name] for layer in who if layer.values.get(key.name) is not None]
        if asked:
            self.demanded[key.name] = min(asked, key=lambda value: _rank(key, value))

    def narrowed_grant(self, project: SettingsLayer) -> Grant:
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

    def join_origin(self, name: str, project: SettingsLayer, *, alone: bool) -> None:
        before = self.origins[name].place
        place = project.places[name]
        self.origins[name] = SettingOrigin(project.kind, place if alone or not before else f"{place} and {before}")


def _grant_of(layer: SettingsLayer) -> Grant:
    return Grant(allow=layer.values.get("grant.allow", (ANY_NAME,)), deny=layer.values.get("grant.deny", ()))


def _bare(value: Any) -> Any:
    """A value that can be compared: a reference to a variable is compared as it is written."""
    return str(value) if isinstance(value, Secret) else value


def _rank(key: SettingKey, value: Any) -> Any:
    """The rank of a value: a smaller rank is tighter."""
    return key.words.index(value) if key.words else value
