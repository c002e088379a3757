"""`Config`: the settings in force, for the rest of Lyra and, with passwords masked, for display.

`Config.load` reads every source; `rows()` gives them as plain data with passwords masked.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec

from lyra.config.files import check_no_way_out, folder
from lyra.config.keys import KEYS, SECTIONS, hint_for
from lyra.config.merge import Merged, MergedTables, merge_tables
from lyra.config.sources import Flags, Loading
from lyra.config.tables import TABLES, TableCell, groups
from lyra.config.trust import HOW_TO_TRUST, FolderTrust, is_told, trust_for
from lyra.config.values import Kind, SettingOrigin
from lyra.core.budgets.money import Money
from lyra.core.own_files import add_own_file
from lyra.core.policies.rate import RateLimit
from lyra.core.providers import default_model
from lyra.core.rights.capability import ANY_NAME, Grant
from lyra.core.secrets.secret import Secret
from lyra.core.secrets.visible import visible
from lyra.errors import ConfigError

if TYPE_CHECKING:
    from lyra.config.hook_settings import HookSetting


class SettingRow(NamedTuple):
    """One line of `lyra config show`: plain data, passwords masked."""

    name: str
    value: Any
    origin: SettingOrigin
    cell: TableCell | None = None  # set where the row is a setting of a table


class KernelConfig(msgspec.Struct, frozen=True, kw_only=True):
    store: Secret
    durability: str
    lease_s: float
    lease_wait_s: float | None
    snapshot_every_events: int
    mailbox_messages_max: int
    processes_max: int
    recovery_attempts: int
    retention_s: float


class AgentCommandConfig(msgspec.Struct, frozen=True, kw_only=True):
    model: str | None
    max_tokens: int | None


class AuditConfig(msgspec.Struct, frozen=True, kw_only=True):
    file: str | None
    level: str


class BudgetConfig(msgspec.Struct, frozen=True, kw_only=True):
    usd: Money | None
    seconds: float | None
    on_exceed: str


class ClusterConfig(msgspec.Struct, frozen=True, kw_only=True):
    store: Secret | None
    name: str | None
    listen: str
    advertise: str | None
    plaintext: bool
    drain_s: float
    tls_ca: str | None
    tls_cert: str | None
    tls_key: str | None


class LogConfig(msgspec.Struct, frozen=True, kw_only=True):
    file: str | None
    format: str
    level: str


class RetryConfig(msgspec.Struct, frozen=True, kw_only=True):
    max_attempts: int
    initial_s: float
    max_s: float


class SageConfig(msgspec.Struct, frozen=True, kw_only=True):
    cluster: Secret | None
    daily_budget_usd: Money | None
    effort: str | None
    keys: str
    notify: str
    session_budget_usd: Money | None
    theme: str
    turn_budget_usd: Money | None


class SandboxConfig(msgspec.Struct, frozen=True, kw_only=True):
    readable: tuple[str, ...]
    writable: tuple[str, ...]


class SearchConfig(msgspec.Struct, frozen=True, kw_only=True):
    url: str | None
    key: Secret | None


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    cluster: bool
    connections_max: int
    drain_s: float
    gateway: bool
    grpc: str | None
    hosts: tuple[str, ...]
    http: str | None
    message_bytes_max: int
    plaintext: bool
    requests_per_minute: int | None
    tls_cert: str | None
    tls_client_ca: str | None
    tls_key: str | None
    token_file: str | None


class VesperConfig(msgspec.Struct, frozen=True, kw_only=True):
    min_successes: int
    results: Secret


class Config:
    """Every setting in force: `config.kernel.lease_s`, `config.budget.usd`, and `config.grant`, a Grant.

    Those with free names are mappings: `config.providers["anthropic"]`, `config.prices`, `config.limits`,
    `config.mcp_servers`, of which `config.project_servers` are a project's: they wait for consent, unless the project's
    file is trusted (`config.project_trusted`), and `config.diagnostics`. `config.hooks` are the hooks that count.
    `config.passed_over` are the project's settings that wait for trust.
    """

    __slots__ = (
        "_base",
        "_rows",
        "agent",
        "audit",
        "budget",
        "cluster",
        "demanded",
        "diagnostics",
        "files",
        "grant",
        "hooks",
        "kernel",
        "limits",
        "log",
        "mcp_servers",
        "mistakes",
        "notes",
        "passed_over",
        "prices",
        "project_prices",
        "project_servers",
        "project_trusted",
        "providers",
        "retry",
        "sage",
        "sandbox",
        "search",
        "server",
        "trust",
        "vesper",
    )

    def __init__(
        self, values: Mapping[str, Any], origins: Mapping[str, SettingOrigin], grant: Grant, tables: MergedTables
    ) -> None:
        self.kernel = KernelConfig(**_section(values, "kernel"))
        self.agent = AgentCommandConfig(**_section(values, "agent"))
        self.audit = AuditConfig(**_section(values, "audit"))
        self.budget = BudgetConfig(**_section(values, "budget"))
        self.cluster = ClusterConfig(**_section(values, "cluster"))
        self.log = LogConfig(**_section(values, "log"))
        self.retry = RetryConfig(**_section(values, "retry"))
        self.sage = SageConfig(**_section(values, "sage"))
        self.sandbox = SandboxConfig(**_section(values, "sandbox"))
        self.search = SearchConfig(**_section(values, "search"))
        self.server = ServerConfig(**_section(values, "server"))
        self.vesper = VesperConfig(**_section(values, "vesper"))
        self.grant = grant
        self.demanded: dict[str, Any] = {}  # minimum demands of project and machine, which bind the user too
        self.files: list[tuple[Kind, str]] = []
        self.notes: list[str] = []
        self.mistakes: list[str] = []  # in a project's file without trust: what they are about is passed over
        self.passed_over: list[str] = []
        self.hooks: tuple[HookSetting, ...] = ()
        self.project_trusted = False
        self.trust: FolderTrust | None = None  # that it was loaded with
        self._base: str | None = None  # the project's folder, else the working folder
        shown = {**values, "grant.allow": _layers(grant), "grant.deny": [str(rule) for rule in grant.deny]}
        self._rows = {name: SettingRow(name, _to_plain(shown[name]), origins[name]) for name in KEYS}
        self.providers: dict[str, dict[str, Any]] = tables.providers
        self.prices: dict[str, dict[str, Any]] = tables.prices
        self.project_prices = frozenset(tables.project_prices)  # models whose price only a project's file sets
        self.limits: dict[str, RateLimit] = tables.limits
        self.mcp_servers: dict[str, dict[str, Any]] = tables.servers
        self.project_servers = frozenset(tables.project_servers)
        self.diagnostics: dict[str, dict[str, Any]] = tables.diagnostics  # by the pattern for files
        for cell, value in tables.cells.items():
            self._rows[str(cell)] = SettingRow(str(cell), _to_plain(value), tables.origins[cell], cell)

    @classmethod
    def load(
        cls,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        *,
        flags: Flags = (),
        user_file: str | os.PathLike[str] | None = None,
        trust: FolderTrust | bool | None = None,
        lenient: bool = False,
    ) -> Self:
        """Read every source; the first mistake is raised, with up to five more in its field `also`. Where it is
        `lenient`, one in a project's file without trust is passed over: a stranger's file must not stop the program.

        Until its folder is trusted, a project's file can only tighten. `trust` says whether it is: True and False
        decide it for this call; without it the answer that the user gave to `lyra` counts, and a warning of the logger
        `lyra.config` names what was passed over.
        """
        where = folder(cwd)
        trusted = trust_for(where, trust, env=env)
        loading = Loading(where, os.environ if env is None else env, trusted, lenient=lenient)
        layers = loading.layers(flags, user_file)
        merged = Merged(layers)
        tables, refused = merge_tables(layers, loading.env, lenient=lenient)
        config = cls(merged.values, merged.origins, merged.grant, tables)
        config.files, config.notes = loading.files, loading.notes + merged.notes + tables.notes
        config.passed_over = merged.passed_over + tables.passed_over
        config._take_hooks(loading)
        config._pass_over([*loading.refused, *refused])
        config.project_trusted, config.trust, config._base = loading.project_trusted, trusted, loading.base
        config.demanded = merged.demanded
        if trust is None and config.passed_over and not is_told():
            import logging

            logging.getLogger("lyra.config").warning("%s", config.describe_passed_over())
        with suppress(ConfigError):  # a variable that is not set: what opens the store says so
            add_own_file(config.kernel.store.reveal())
        server = (config.server.token_file, config.server.tls_key, config.server.tls_cert, config.server.tls_client_ca)
        hosts = (config.cluster.tls_key, config.cluster.tls_cert, config.cluster.tls_ca)
        for file in (config.audit.file, merged.demanded.get("audit.file"), config.log.file, *server, *hosts):
            add_own_file(file or "")
        return config

    def _take_hooks(self, loading: Loading) -> None:
        """Take over the hooks of the files; those of a project wait for trust."""
        waiting = [hook for hook in loading.hooks if hook.origin == "project" and not loading.project_trusted]
        self.hooks = tuple(hook for hook in loading.hooks if hook not in waiting)
        self.passed_over += dict.fromkeys(f"hooks.{hook.event}" for hook in waiting)

    def _pass_over(self, mistakes: Iterable[ConfigError]) -> None:
        """Take note of mistakes in a project's file without trust. One in a setting that would have tightened has a
        note of its own, as such a setting asks for nothing and is in no question about trust."""
        for mistake in mistakes:
            name = str(mistake.fields.get("key") or mistake.message)
            words = mistake.message if name in mistake.message else f"{name}: {mistake.message}"
            self.mistakes.append(visible(f"{mistake.place}: {words}" if mistake.place else words))
            if name not in self.passed_over:
                self.passed_over.append(name)
            section = name.partition(".")[0]
            if section in ("prices", "limits") or (name in KEYS and KEYS[name].narrows):
                self.notes.append(f"{mistake.place}: {name}: {mistake.message}: it is passed over")

    def describe_passed_over(self) -> str:
        """Return what of the project's file waits for trust, and how to give it; "" where nothing does."""
        if not self.passed_over:
            return ""
        file = next(path for kind, path in self.files if kind == "project")
        names = ", ".join(map(visible, self.passed_over))
        return f"{visible(file)} is not trusted, so it can only tighten; passed over: {names}. {HOW_TO_TRUST}"

    def store_target(self) -> str:
        """Return where the journal is kept: what a store is opened with.

        A place that is named inside the project has to lie there: a repository could bring a link that leads elsewhere.
        """
        target = self.kernel.store.reveal()
        asked_now = self.origin("kernel.store").kind in ("env", "flag")
        if self._base is not None and not asked_now and target != "memory" and "://" not in target:
            check_no_way_out(target, self._base)
        return target

    def origin(self, name: str) -> SettingOrigin:
        """Return where a setting's value comes from."""
        if name not in self._rows:
            raise ConfigError(f"there is no setting {name!r}", hint=hint_for(name), key=name)
        return self._rows[name].origin

    def rows(self) -> list[SettingRow]:
        return list(self._rows.values())

    def to_data(self) -> dict[str, dict[str, Any]]:
        """Return the settings as nested plain data, passwords masked."""
        return nested((row, row.value) for row in self._rows.values())


def show_value(value: Any) -> str:
    """Return a setting as a person writes it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return ", ".join(f"{key} = {show_value(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(f"({show_value(item)})" if isinstance(item, list) else str(item) for item in value) or "(none)"
    return f"{value:g}" if isinstance(value, float) and value < 1e6 else str(value)


def find_model(config: Config) -> str:
    """Return the configured model, else the default of a vendor whose key is in the environment; "" without one."""
    return config.agent.model or default_model(os.environ)[0]


def nested(rows: Iterable[tuple[SettingRow, Any]]) -> dict[str, dict[str, Any]]:
    """Return the value paired with each row, nested as in the settings file."""
    data: dict[str, dict[str, Any]] = {section: {} for section in (*SECTIONS, *TABLES) if "." not in section}
    data |= {group: {section.partition(".")[2]: {} for section in parts} for group, parts in groups().items()}
    for row, value in rows:
        if row.cell is None:
            data[KEYS[row.name].section][KEYS[row.name].field] = value
        else:
            group, _, part = row.cell.section.partition(".")
            table = data[group][part] if part else data[group]
            table.setdefault(row.cell.name, {})[row.cell.field] = value
    return data


def _section(values: Mapping[str, Any], section: str) -> dict[str, Any]:
    return {field: values[name] for field, name in SECTIONS[section].items()}


def _layers(grant: Grant) -> list[Any]:
    """Allow rules as one list, or as a list of lists where more than one has to agree."""
    layers = [[str(rule) for rule in layer] for layer in grant.layers]
    return [ANY_NAME] if not layers else layers[0] if len(layers) == 1 else layers


def _to_plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _to_plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return list(value)
    if type(value).__name__ == "Decimal":
        return float(value)
    return str(value) if isinstance(value, (Secret, Money)) else value
