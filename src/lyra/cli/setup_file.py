"""A Python file with a function `setup`, which `lyra serve` and `lyra worker` are given with `--load`.

The file is run, as a program of the person who names it. What it prints goes to stderr: stdout has the ready line.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["setup_of"]


def setup_of(file: str, argument: str) -> Callable[[Any], Any]:
    """The function `setup` of the file; `argument` is the name of what it is called with."""
    import runpy

    from lyra.errors import ConfigError

    sys.path.insert(0, str(Path(file).resolve().parent))  # what lies beside it can be imported, also later on
    saved, sys.stdout = sys.stdout, sys.stderr
    try:
        names = runpy.run_path(file, run_name="lyra_server_setup")
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{file} cannot be run: {type(error).__name__}: {error}", key="--load") from error
    finally:
        sys.stdout = saved
    setup = names.get("setup")
    if not callable(setup):
        raise ConfigError(
            f"{file} has no function setup({argument})", hint=f"write def setup({argument}): …", key="--load"
        )
    return setup  # type: ignore[no-any-return]
