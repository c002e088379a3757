"""One Config: every setting, where it comes from, and the sentence that explains it.

Sources in rising precedence: defaults, the user's file (`$XDG_CONFIG_HOME/lyra/lyra.toml`), the project's file
(`lyra.toml` here or in the nearest folder above), the environment (`LYRA_KERNEL_STORE`), flags
(`--set kernel.store=…`). The machine's file (`/etc/lyra/lyra.toml`) can only tighten, and holds against all of them.
A project's file can only narrow grants, budgets, prices and limits, and can send nothing to
an address of its choice. A mistake is a `ConfigError` with its place (`lyra.toml:3`), never a guess.

`keys` is the table of settings and `values` reads one of them; `tables` has those under names that people choose and
`cells` reads them (`servers` those of MCP servers). `files` is one file, `sources` all of them, `merge` and
`merge_tables` say who wins, `settings` is what callers hold. Reads these small files and nothing else; opens no store.
Next: `core.capability` and `core.money`, which give the values their meaning.
"""

from lyra.config.files import FILE_BYTES_MAX
from lyra.config.keys import KEYS, SECTIONS, Key
from lyra.config.origin import Origin
from lyra.config.settings import AgentConfig, AuditConfig, BudgetConfig, Config, KernelConfig, Row, nested
from lyra.config.sources import ALSO_MAX
from lyra.config.tables import TABLES, Cell, Column, Table

__all__ = [
    "ALSO_MAX",
    "FILE_BYTES_MAX",
    "KEYS",
    "SECTIONS",
    "TABLES",
    "AgentConfig",
    "AuditConfig",
    "BudgetConfig",
    "Cell",
    "Column",
    "Config",
    "KernelConfig",
    "Key",
    "Origin",
    "Row",
    "Table",
    "nested",
]
