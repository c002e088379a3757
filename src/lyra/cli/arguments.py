"""What several commands are given as arguments: Python files, new files and addresses of providers.

`setup_of` runs a file with a function `setup`, which `lyra serve` and `lyra worker` are given with `--load`, and
`object_of` one with an agent of one's own, named as FILE:NAME. Such a file is run as a program of the person who names
it; what it prints goes to stderr: stdout has the ready line. `check_folder` refuses a path whose folder does not exist,
and `provider_addresses` reads `--provider NAME=URL`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from lyra.core.secrets.secret import is_reference
from lyra.errors import ConfigError, ToolError


def setup_of(file: str, argument: str) -> Callable[[Any], Any]:
    """Return the function `setup` of the file; `argument` is the name of what it is called with."""
    import runpy

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
    """Return what FILE:NAME represents: the file is run, as a program of yours is."""
    import importlib.util
    import os

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


def dollars(text: str) -> Any:
    """Return the amount of `--budget`: `$0.50` or `0.50`."""
    from lyra.core.budgets.money import Money

    try:
        return Money.parse(text)
    except ConfigError as mistake:
        hint = "write dollars, such as '$0.50' (in quotes, or the shell takes the $)"
        raise ConfigError(f"--budget: {mistake.message}", hint=hint, key="--budget") from None


def provider_addresses(pairs: Iterable[str]) -> dict[str, str]:
    """Return the addresses by name; ConfigError for a text that is no NAME=URL."""
    addresses: dict[str, str] = {}
    for pair in pairs:
        name, equals, url = pair.partition("=")
        if not equals or not name or "://" not in url:
            raise ConfigError(f"{pair!r} is no NAME=URL", key="--provider")
        addresses[name] = url
    return addresses
