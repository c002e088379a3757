"""The folder of what Lyra keeps for its user between runs: `$XDG_DATA_HOME/lyra`, else `~/.local/share/lyra`.

Sessions with their transcripts lie there, so `own_files` counts it as one of Lyra's own. This module names the folder
and never makes it: `own_files.make_folder` does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def data_folder(env: Mapping[str, str] = os.environ) -> Path:
    """The folder that these environment variables name; always an absolute path."""
    data, home = env.get("XDG_DATA_HOME", ""), env.get("HOME", "")
    if os.path.isabs(data):  # the XDG specification ignores a relative path
        return Path(data, "lyra")
    return Path(home if os.path.isabs(home) else os.path.join("/", os.path.expanduser("~")), ".local", "share", "lyra")
