"""A file that an option names and a command makes: its folder has to be there, or a typo would make a whole tree.

Only what somebody types is held to this. A setting in a file stands for many runs, and its folder is made; so is
`.lyra`, the usual place.
"""

from __future__ import annotations

import os
from typing import Final

from lyra.core.secrets.secret import is_reference
from lyra.errors import ConfigError

__all__ = ["check_folder"]

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
