"""Merging: the layers of `sources` folded into one.

The later layer wins, but a project's file comes with a repository and is trusted less than the user: it can only narrow
grants and budgets, whichever source the user set them in, and until its folder is trusted it can only tighten anything
(`passed_over` are the settings that wait for that). Any other setting of the project's file that is not used becomes a
note. The machine's own file (`managed`) narrows the result of all others.

In tables with free names, a project's file may only raise prices and lower limits, so that budgets stay correct. What
it says of providers counts once its folder is trusted, since keys and conversations go there: it may then name a server
on this machine and say how a known provider is called, and still not send a key, a header or a conversation to any
other address of its choice. `_REFUSALS` is the table of these rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple

from lyra.config.keys import KEYS, SettingKey, is_tighter
from lyra.config.servers import check_server
from lyra.config.sources import SettingsLayer
from lyra.config.tables import TableCell
from lyra.config.values import SettingOrigin
from lyra.core.checking.check import did_you_mean
from lyra.core.policies.rate import RateLimit
from lyra.core.providers import COMPATIBLE, USUAL, is_loopback_url
from lyra.core.rights.capability import ANY_NAME, Grant
from lyra.core.secrets.secret import Secret, is_reference
from lyra.errors import ConfigError


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
                if name not in layer.values:
                    continue
                if layer.trusted or self.is_tighter(key, layer):
                    self.take(layer, name)
                else:
                    self.passed_over.append(name)
            if not key.narrows or key.type == "rules":
                continue
            if project.values.get(name) is not None:
                self.tighten(key, project)
            if managed.values.get(name) is not None:
                self.demand(key, managed)
            self.note_demand(key, project, managed)
        self.grant = self.narrow_grant(project)
        self.grant = self.grant.narrow(_grant_of(managed))
        for name in ("grant.allow", "grant.deny"):
            if name in managed.values:
                self.join_origin(name, managed, alone=False)

    def take(self, layer: SettingsLayer, name: str) -> None:
        self.values[name] = layer.values[name]
        self.origins[name] = SettingOrigin(layer.kind, layer.places[name] or None)

    def is_tighter(self, key: SettingKey, layer: SettingsLayer) -> bool:
        """Return whether a layer without trust only tightens this setting. The value that holds already counts as
        tighter."""
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

    def narrow_grant(self, project: SettingsLayer) -> Grant:
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
    """Return a value that can be compared: a reference to a variable is compared as it is written."""
    return str(value) if isinstance(value, Secret) else value


def _rank(key: SettingKey, value: Any) -> Any:
    """Return the rank of a value: a smaller rank is tighter."""
    return key.words.index(value) if key.words else value


Entry = dict[str, Any]


def merge_tables(
    layers: list[SettingsLayer], env: Mapping[str, str], *, lenient: bool
) -> tuple[MergedTables, list[ConfigError]]:
    """Return the tables, and where it is lenient the mistakes of a project's file without trust: its entries with one
    are left out."""
    refused: list[ConfigError] = []
    while True:
        try:
            return MergedTables(layers, env), refused
        except ConfigError as mistake:
            project = next(layer for layer in layers if layer.kind == "project")
            entry = _entry_of(mistake, project)
            if not lenient or project.trusted or entry is None:
                raise
            for cell in [cell for cell in project.cells if cell[:2] == entry]:
                del project.cells[cell]
            refused.append(mistake)


def _entry_of(mistake: ConfigError, layer: SettingsLayer) -> tuple[str, str] | None:
    """Return the section and the name of the entry of a layer that a mistake is about."""
    key = f"{mistake.fields.get('key')}."
    return next((cell[:2] for cell in layer.cells if key.startswith(f"{cell.section}.{cell.name}.")), None)


class MergedTables:
    """The cells in force, and the tables made of them, each by name: `providers`, `prices`, `limits`, `servers`,
    `diagnostics`."""

    def __init__(self, layers: list[SettingsLayer], env: Mapping[str, str]) -> None:
        self.cells: dict[TableCell, Any] = {}
        self.origins: dict[TableCell, SettingOrigin] = {}
        self.notes: list[str] = []
        self.passed_over: list[str] = []  # settings of a project's file whose folder is not trusted
        self._env = env
        self._in_vain: set[str] = set()  # providers with a refused setting
        self.project_prices: set[str] = set()  # models whose price only a project's file sets
        self.project_servers: set[str] = set()  # MCP servers that a project's file names
        project = next(layer for layer in layers if layer.kind == "project")
        own = [layer for layer in layers if layer.kind not in ("project", "managed")]
        for layer in own:
            for cell in layer.cells:
                self._take(cell, layer)
        self._add_providers(project, own)
        self._add_prices(project)
        self._add_limits(project)
        self._add_servers(project)
        self._add_diagnostics(project)
        self.providers = self._entries("providers")
        self.prices = self._entries("prices")
        self.limits = {name: self._rate_limit(name, entry) for name, entry in self._entries("limits").items()}
        self.servers = self._entries("mcp.servers")
        self.diagnostics = self._entries("diagnostics")
        self._check()

    def _take(self, cell: TableCell, layer: SettingsLayer) -> None:
        self.cells[cell], place = layer.cells[cell]
        self.origins[cell] = SettingOrigin(layer.kind, place)

    def _entries(self, section: str) -> dict[str, Entry]:
        entries: dict[str, Entry] = {}
        for cell, value in self.cells.items():
            if cell.section == section:
                entries.setdefault(cell.name, {})[cell.field] = value
        return entries

    def _note(self, place: str, sentence: str) -> None:
        self.notes.append(f"{place}: {sentence}")

    def _add_providers(self, project: SettingsLayer, own: list[SettingsLayer]) -> None:
        set_by_hand = {cell for layer in own if layer.kind in ("env", "flag") for cell in layer.cells}
        asked = [cell for cell in project.cells if cell.section == "providers"]
        # keys last: whether one is allowed depends on the address it is sent to
        for cell in sorted(asked, key=lambda cell: cell.field == "api_key"):
            value, place = project.cells[cell]
            if not project.trusted and (cell.field != "insecure_http" or value):
                self.passed_over.append(str(cell))
                self._in_vain.add(cell.name)
                continue
            why = _REFUSALS[cell.field](_Asked(value, cell.name, self._address(cell.name)))
            if why:
                self._note(
                    place, f"a project's file {why}: {cell} is not used; if it is right, put it into your own file"
                )
                self._in_vain.add(cell.name)
            elif cell not in set_by_hand:
                self._take(cell, project)

    def _address(self, name: str) -> str:
        """Return the address that a provider's calls go to; "" where no setting names one."""
        base_url = self.cells.get(TableCell("providers", name, "base_url"), "")
        variables = USUAL.get(name, COMPATIBLE).url
        return base_url or next((self._env[variable] for variable in variables if self._env.get(variable)), "")

    def _add_prices(self, project: SettingsLayer) -> None:
        own = self._entries("prices")
        theirs = _group(project, "prices")
        for name, cells in theirs.items():
            place = project.cells[cells[0]][1]
            price = _fill_price(name, {cell.field: project.cells[cell][0] for cell in cells}, place)
            if name in own:
                first = next(cell for cell in self.cells if cell[:2] == ("prices", name))
                mine = _fill_price(name, own[name], self.origins[first].place)
                if any(price[field] < mine[field] for field in mine):
                    self._note(place, f"a project can only raise prices.{name}; your own holds")
                    continue
            else:
                self.project_prices.add(name)
            for cell in [cell for cell in self.cells if cell[:2] == ("prices", name)]:
                del self.cells[cell], self.origins[cell]
            for cell in cells:
                self._take(cell, project)

    def _add_limits(self, project: SettingsLayer) -> None:
        own = self._entries("limits")
        for cell in (cell for cell in project.cells if cell.section == "limits"):
            value, place = project.cells[cell]
            mine = own.get(cell.name, {})
            holds = mine.get(cell.field)
            if holds is None and cell.field == "burst":
                holds = mine.get("requests_per_minute")  # the default burst is a minute's worth
            if holds is None or (cell.field != "strategy" and value <= holds):
                self._take(cell, project)
            elif value != holds:
                self._note(place, f"a project can only tighten {cell}; your {holds} holds, not {value}")

    def _rate_limit(self, name: str, entry: Entry) -> RateLimit:
        try:
            return RateLimit(**entry)
        except ConfigError as mistake:
            raise self._mistake("limits", name, mistake.message, mistake.hint) from None

    def _add_servers(self, project: SettingsLayer) -> None:
        """Add the project's servers. A server of the user with the same name wins as a whole: fields are not merged."""
        own = self._entries("mcp.servers")
        for name, cells in _group(project, "mcp.servers").items():
            if name in own:
                self._note(project.cells[cells[0]][1], f"you have a server {name} of your own, which holds")
                continue
            self.project_servers.add(name)
            for cell in cells:
                self._take(cell, project)

    def _add_diagnostics(self, project: SettingsLayer) -> None:
        """Add the project's programs once it is trusted; those of the user for the same pattern win as a whole."""
        own = self._entries("diagnostics")
        for name, cells in _group(project, "diagnostics").items():
            if not project.trusted:
                self.passed_over += map(str, cells)
            elif name in own:
                self._note(project.cells[cells[0]][1], f"you have diagnostics for {name} of your own, which hold")
            else:
                for cell in cells:
                    self._take(cell, project)

    def _check(self) -> None:
        for name, entry in self.prices.items():
            _fill_price(name, entry, self._place("prices", name))
        for name, entry in self.servers.items():
            try:
                check_server(f"mcp.servers.{name}", entry)
            except ConfigError as mistake:
                raise self._mistake("mcp.servers", name, mistake.message, mistake.hint) from None
        for name, entry in self.diagnostics.items():
            if "commands" not in entry and "language_server" not in entry:
                hint = f'set diagnostics."{name}".commands'
                raise self._mistake("diagnostics", name, f"diagnostics.{name} names no program", hint)
        for name, entry in self.providers.items():
            if name not in USUAL and "base_url" not in entry and name not in self._in_vain:
                near = did_you_mean(name, USUAL)
                hint = f"did you mean providers.{near}?" if near else f"set providers.{name}.base_url"
                raise self._mistake("providers", name, f"providers.{name} has no base_url", hint)

    def _place(self, section: str, name: str) -> str | None:
        return next(origin.place for cell, origin in self.origins.items() if cell[:2] == (section, name))

    def _mistake(self, section: str, name: str, message: str, hint: str | None) -> ConfigError:
        return ConfigError(message, hint=hint, place=self._place(section, name), key=f"{section}.{name}")


class _Asked(NamedTuple):
    """What a project's file asks for: the value, the provider, and the address that its calls go to."""

    value: Any
    name: str
    address: str


def _no_reference(asked: _Asked) -> str:
    return "may not read the environment" if is_reference(asked.value) else ""


def _key_refused(asked: _Asked) -> str:
    reference = str(asked.value)  # a Secret shows its reference and nothing else
    if not is_reference(reference):
        return "names keys as env:NAME"
    usual = USUAL.get(asked.name, COMPATIBLE)
    variable = reference.removeprefix("env:")
    if variable not in usual.key and not variable.endswith("_KEY"):
        return f"may not read {variable}, which is not the name of a key"
    at_home = asked.address == usual.base_url and asked.name in USUAL and "base_url" not in usual.needs
    unsaid = not asked.address and asked.name in USUAL and "base_url" not in usual.needs
    if at_home or unsaid or is_loopback_url(asked.address):
        return ""
    return "may send a key only to this machine or to the provider's own address"


def _address_refused(asked: _Asked) -> str:
    return "" if is_loopback_url(asked.value) else "may name only servers on this machine"


_REFUSALS: Final[dict[str, Callable[[_Asked], str]]] = {
    "api_key": _key_refused,
    "base_url": _address_refused,
    "api": lambda _: "",
    "api_version": _no_reference,
    "project": _no_reference,
    "region": _no_reference,
    "timeouts": lambda _: "",
    "headers": lambda _: "may not set headers",
    "insecure_http": lambda asked: "may not switch encryption off" if asked.value else "",
}


def _fill_price(name: str, entry: Entry, place: str | None) -> dict[str, Decimal]:
    """Return a price with every field; the default price of cached tokens is that of input."""
    for field in ("input_usd_per_mtok", "output_usd_per_mtok"):
        if field not in entry:
            raise ConfigError(f"prices.{name} has no {field}", place=place, key=f"prices.{name}.{field}")
    usual = {
        "cache_read_usd_per_mtok": entry["input_usd_per_mtok"],
        "cache_write_usd_per_mtok": entry["input_usd_per_mtok"],
        "request_usd": Decimal(0),
    }
    return {**usual, **entry}


def _group(layer: SettingsLayer, section: str) -> dict[str, list[TableCell]]:
    by_name: dict[str, list[TableCell]] = {}
    for cell in layer.cells:
        if cell.section == section:
            by_name.setdefault(cell.name, []).append(cell)
    return by_name
