"""Tools in YAML: `DynamicTools("tools/")`, reloaded when their files change.

`folder` watches the files, `reader` makes Tools of them, `params` checks the arguments of a model. The kinds are `http`
(with `url`), `command` (`exec`, checked by `embedded_languages`) and `files` (`file_read`, `file_write`). `template`
puts values into them, `environment` is what they are given, `linear_regex` has the patterns of parameters, `places` the
default folders. A file is checked as a whole when it is read; a value goes into one place and is never parsed again.

Names are imported at their first use: most folders have no such tools, and `places` looks only whether there are any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lyra._old_paths import renamed

if TYPE_CHECKING:
    from lyra.core.checking.report import Mistake
    from lyra.tools.yaml.environment import ToolEnvironment
    from lyra.tools.yaml.folder import DynamicTools
    from lyra.tools.yaml.reader import read_tools

__all__ = ["DynamicTools", "Mistake", "ToolEnvironment", "read_tools"]

_HOMES = {
    "DynamicTools": "lyra.tools.yaml.folder",
    "Mistake": "lyra.core.checking.report",
    "ToolEnvironment": "lyra.tools.yaml.environment",
    "read_tools": "lyra.tools.yaml.reader",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        return renamed(__name__, name)
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
