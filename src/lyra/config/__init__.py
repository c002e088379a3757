"""One Config: every setting, where it comes from, and the sentence that explains it.

Sources in rising precedence: defaults, the user's file (`$XDG_CONFIG_HOME/lyra/lyra.toml`), the project's file
(`lyra.toml` here or in the nearest folder above), the environment (`LYRA_KERNEL_STORE`), flags
(`--set kernel.store=…`). A project's file can only narrow grants and budgets, and can name no secret of the
environment. A mistake is a `ConfigError` with its place (`lyra.toml:3`), never a guess.

`keys` is the table of settings, `values` reads one of them, `files` one file, `sources` all of them, `merge` says who
wins, `settings` is what callers hold. Reads two small files and nothing else; opens no store. Next: `core.capability`
and `core.money`, which give the values their meaning.
"""

from lyra.config.files import FILE_BYTES_MAX
from lyra.config.keys import KEYS, SECTIONS, Key
from lyra.config.merge import Origin
from lyra.config.settings import BudgetConfig, Config, KernelConfig, Row
from lyra.config.sources import ALSO_MAX

__all__ = [
    "ALSO_MAX",
    "FILE_BYTES_MAX",
    "KEYS",
    "SECTIONS",
    "BudgetConfig",
    "Config",
    "KernelConfig",
    "Key",
    "Origin",
    "Row",
]
