"""The folder of the user's own settings: `$XDG_CONFIG_HOME/lyra`, else `~/.config/lyra`."""

from __future__ import annotations

import os
from collections.abc import Mapping


def user_folder(env: Mapping[str, str]) -> str | None:
    """The folder that these environment variables name; None where neither names an absolute path, so that a service
    without a home gets none."""
    config, home = env.get("XDG_CONFIG_HOME", ""), env.get("HOME", "")
    if os.path.isabs(config):  # the XDG specification ignores a relative path
        return os.path.join(config, "lyra")
    return os.path.join(home, ".config", "lyra") if os.path.isabs(home) else None
