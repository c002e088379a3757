"""Checks that the folder of a file which a command will make exists: a typo must not make a whole tree of folders.

Only paths on the command line are checked. The folder of a path in a settings file is made, and so is `.lyra`, the
default.
"""

from __future__ import annotations

import os
from typing import Final

from lyra.core.secrets.secret import is_reference
from lyra.errors import ConfigError

_USUAL: Final = ".lyra"


def check_folder(target: str, option: str) -> None:
    """ConfigError where a store would lie in a folder that is not there; a URL and `memory` lie in none."""
    path = target.removeprefix("sqlite://")
    if "://" in path or path == "memory" or is_reference(path):
        return
    folder = os.path.dirname(os.path.abspath(path))
    needed = os.path.dirname(folder) if os.path.basename(folder) == _USUAL else folder
    if not os.path.isdir(needed):
        raise ConfigError(
            f"{option} {target}: there is no folder {needed}", hint="is the path right? Then make it first", key=option
        )
