"""Folders for tests, verification and benchmarks: a home of their own, and folders that another user can enter.

`use_own_home` keeps what they start from writing into the user's home: a kernel keeps its key there, MCP servers what
was agreed to. Child processes inherit the folder by HOME; the process that made it removes it when it ends.
`make_folder_for` is for servers and tests that run as another user, also where the usual folder for temporary files
is closed to that user (`/tmp` of mode 0700).
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

__all__ = ["make_folder_for", "use_own_home"]

_MADE: Final = "LYRA_TESTS_HOME"
_SHARED: Final = ("/var/tmp", "/dev/shm")  # noqa: S108 - tried after the usual folder; each new folder has its own name


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


def make_folder_for(
    user_id: int, *, prefix: str, parents: Sequence[str] | None = None, parent_chars_max: int = 4_096
) -> Path:
    """Make a folder that this user owns and can enter, in the first of `parents` that the user can pass through and
    whose path is short enough (that of a Unix socket has at most 107 characters).

    OSError with a sentence where none of them will do.
    """
    candidates = parents if parents is not None else (tempfile.gettempdir(), *_SHARED)
    for parent in candidates:
        if len(parent) > parent_chars_max:
            continue
        if not _is_open_to(Path(parent).resolve(), user_id) or not os.access(parent, os.W_OK | os.X_OK):
            continue
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        if os.geteuid() == 0:
            os.chown(folder, user_id, -1)
        return folder
    raise OSError(
        f"user {user_id} can enter none of {', '.join(candidates)}: set TMPDIR to a folder that this user can enter"
    )


def _is_open_to(folder: Path, user_id: int) -> bool:
    """Return whether the user may pass through the folder and every folder above it; groups are not asked."""
    for place in (folder, *folder.parents):
        try:
            status = place.stat()
        except OSError:
            return False
        if not status.st_mode & (0o100 if status.st_uid == user_id else 0o001):
            return False
    return True


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # not a child that was forked
        shutil.rmtree(folder, ignore_errors=True)
