"""Tools in YAML: `DynamicTools("tools/")`, reloaded when their files change.

`folder` looks at the files, `reading` makes Tools of them, `params` checks what a model sends. The kinds are `http`
(with `url`), `command` (`exec`) and `files` (`file_read`, `file_write`); `template` is how values get into them,
`around` what they are given, `pattern` the patterns of parameters, `report` the mistakes of a file. All of a file is
checked when it is read; a value is bound to one place and is never text that is read again.
"""

from __future__ import annotations

from lyra.tools.yaml.environment import Around
from lyra.tools.yaml.folder import DynamicTools
from lyra.tools.yaml.reader import read_tools
from lyra.tools.yaml.report import Mistake

__all__ = ["Around", "DynamicTools", "Mistake", "read_tools"]
