"""The folders of the user: settings in `$XDG_CONFIG_HOME/lyra`, else `~/.config/lyra`; what Lyra keeps between runs in
`$XDG_DATA_HOME/lyra`, else `~/.local/share/lyra`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def user_folder(env: Mapping[str, str]) -> str | None:
    """Return the folder of settings that these environment variables name; None where neither names an absolute path,
    so that a service without a home gets none."""
    config, home = env.get("XDG_CONFIG_HOME", ""), env.get("HOME", "")
    if os.path.isabs(config):  # the XDG specification ignores a relative path
        return os.path.join(config, "lyra")
    return os.path.join(home, ".config", "lyra") if os.path.isabs(home) else None


def data_folder(env: Mapping[str, str] = os.environ) -> Path:
    """Return the data folder that these environment variables name; always an absolute path."""
    data, home = env.get("XDG_DATA_HOME", ""), env.get("HOME", "")
    if os.path.isabs(data):  # the XDG specification ignores a relative path
        return Path(data, "lyra")
    return Path(home if os.path.isabs(home) else os.path.join("/", os.path.expanduser("~")), ".local", "share", "lyra")
