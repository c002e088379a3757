"""Tools in YAML: `DynamicTools("tools/")`, reloaded when their files change.

`folder` watches the files, `reader` makes Tools of them, `params` checks the arguments of a model. The kinds are `http`
(with `url`), `command` (`exec`, checked by `embedded_languages`) and `files` (`file_read`, `file_write`). `template`
puts values into them, `environment` is what they are given, `linear_regex` has the patterns of parameters, `places` the
default folders. A file is checked as a whole when it is read; a value goes into one place and is never parsed again.
"""

from __future__ import annotations

from typing import Any

from lyra._old_paths import renamed
from lyra.core.checking.report import Mistake
from lyra.tools.yaml.environment import ToolEnvironment
from lyra.tools.yaml.folder import DynamicTools
from lyra.tools.yaml.reader import read_tools

__all__ = ["DynamicTools", "Mistake", "ToolEnvironment", "read_tools"]


def __getattr__(name: str) -> Any:
    return renamed(__name__, name)
