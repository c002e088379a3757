"""One Config: every setting, where it comes from, and the sentence that explains it.

Sources in rising precedence: defaults, the user's file (`$XDG_CONFIG_HOME/lyra/lyra.toml`), the project's file
(`lyra.toml` here or in the nearest folder above), the environment (`LYRA_KERNEL_STORE`), flags
(`--set kernel.store=…`). The machine's file (`/etc/lyra/lyra.toml`) can only tighten, and holds against all of them.
A project's file can only tighten until its folder is trusted (`trust`; what it asks for is `asks`), and can never send
anything to an address of its choice. A mistake is a `ConfigError` with its place (`lyra.toml:3`); values are never
guessed.

`keys` is the table of settings and `values` reads one of them; `tables` has those under names that people choose and
`servers` reads them; `hook_settings` are hooks. `files` is one file, `sources` all of them, `merge` decides which
source wins, `settings` is the result for callers.
Reads these small files and nothing else; opens no store. Next: `core.rights.capability` and `core.budgets.money`, the
types of many values.
"""

from typing import Any

from lyra._imports import look_up_renamed
from lyra.config.files import FILE_BYTES_MAX
from lyra.config.keys import KEYS, SECTIONS, SettingKey
from lyra.config.settings import (
    AgentCommandConfig,
    AuditConfig,
    BudgetConfig,
    ClusterConfig,
    Config,
    KernelConfig,
    LogConfig,
    RetryConfig,
    SageConfig,
    SandboxConfig,
    SearchConfig,
    ServerConfig,
    SettingRow,
    VesperConfig,
    nested,
    show_value,
)
from lyra.config.sources import ALSO_MAX
from lyra.config.tables import TABLES, Column, SettingTable, TableCell
from lyra.config.values import SettingOrigin

__all__ = [
    "ALSO_MAX",
    "FILE_BYTES_MAX",
    "KEYS",
    "SECTIONS",
    "TABLES",
    "AgentCommandConfig",
    "AuditConfig",
    "BudgetConfig",
    "ClusterConfig",
    "Column",
    "Config",
    "KernelConfig",
    "LogConfig",
    "RetryConfig",
    "SageConfig",
    "SandboxConfig",
    "SearchConfig",
    "ServerConfig",
    "SettingKey",
    "SettingOrigin",
    "SettingRow",
    "SettingTable",
    "TableCell",
    "VesperConfig",
    "nested",
    "show_value",
]


def __getattr__(name: str) -> Any:
    return look_up_renamed(__name__, name)
