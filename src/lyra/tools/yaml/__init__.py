"""Tools in YAML: `DynamicTools("tools/")`, reloaded when their files change.

`folder` watches the files, knows the default folders and makes Tools of the files. The kinds are `http`, `command`
(`exec`) and `folder` (`file_read`, `file_write`). `template` checks the arguments of a model, puts values into them and
has the environment that they are given. A file is checked as a whole when it is read; a value goes into one place and
is never parsed again.

Names are imported at their first use: most folders have no such tools, and `folder` looks only whether there are any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lyra._imports import look_up_renamed

if TYPE_CHECKING:
    from lyra.core.checking.check import Mistake
    from lyra.tools.yaml.folder import DynamicTools, read_tools
    from lyra.tools.yaml.template import ToolEnvironment

__all__ = ["DynamicTools", "Mistake", "ToolEnvironment", "read_tools"]

_HOMES = {
    "DynamicTools": "lyra.tools.yaml.folder",
    "Mistake": "lyra.core.checking.check",
    "ToolEnvironment": "lyra.tools.yaml.template",
    "read_tools": "lyra.tools.yaml.folder",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        return look_up_renamed(__name__, name)
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
