"""A home folder for tests, verification and benchmarks, so that nothing they start writes into the user's own.

A kernel keeps its key there, MCP servers what was agreed to. Child processes inherit the folder by HOME; the process
that made it removes it when it ends.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

__all__ = ["use_own_home"]

_MADE: Final = "LYRA_TESTS_HOME"


def use_own_home() -> None:
    """Set HOME to a folder of this run, unless a process above has done so."""
    if os.environ.get(_MADE):
        return
    home = os.environ.get("HOME", "")
    if home:
        # Node packages for the tests are installed once, in the user's cache.
        os.environ.setdefault("LYRA_TEST_NODE", str(Path(home, ".cache", "lyra-tests", "node")))
        os.environ.setdefault("LYRA_TEST_TOOLS", str(Path(home, ".cache", "lyra-tests", "tools")))
    folder = tempfile.mkdtemp(prefix="lyra-home-")
    os.environ[_MADE] = os.environ["HOME"] = folder
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        os.environ.pop(name, None)
    atexit.register(_remove, folder, os.getpid())


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # not a child that was forked
        shutil.rmtree(folder, ignore_errors=True)
