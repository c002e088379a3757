"""A Python file with a function `setup`, which `lyra serve` and `lyra worker` are given with `--load`, or with an agent
of one's own, named as FILE:NAME.

The file is run, as a program of the person who names it. What it prints goes to stderr: stdout has the ready line.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


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


def object_of(reference: str) -> Any:
    """What FILE:NAME stands for: the file is run, as a program of yours is."""
    import importlib.util
    import os

    from lyra.errors import ConfigError, ToolError

    file, colon, name = reference.rpartition(":")
    if not colon or not name.isidentifier():
        raise ConfigError(f"--agent {reference} names no FILE:NAME", hint="such as agents.py:assistant", key="--agent")
    spec = importlib.util.spec_from_file_location("lyra_offered", file)
    if spec is None or spec.loader is None or not os.path.isfile(file):
        raise ConfigError(f"--agent {file} is no Python file", key="--agent")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    saved, sys.stdout = sys.stdout, sys.stderr  # stdout is the protocol's, whatever the file prints
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ToolError(f"--agent {file} cannot be run: {type(error).__name__}: {error}") from error
    finally:
        sys.stdout = saved
    if not hasattr(module, name):
        raise ConfigError(f"{file} has no {name}", key="--agent")
    return getattr(module, name)
