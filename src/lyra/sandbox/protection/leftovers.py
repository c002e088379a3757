"""What commands of a killed Lyra have left in a workspace, and its removal at the next start.

While a command runs there are folders that belong to Lyra: placeholders (`forbidden_names`), and a stock of new files
and folders (`closed_folders`). The process that made one holds a lock on it, which the kernel releases when the process
is killed. So `clean_up` removes those that are not locked, and never one that another Lyra uses.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from typing import Final

from lyra.sandbox.protection.forbidden_names import FOLDERS, remove_stale
from lyra.sandbox.protection.protected_places import own_folders

STOCK_PREFIX: Final = ".lyra-new-"
_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def clean_up(root: str) -> None:
    """Remove what is left in a workspace."""
    remove_stale(root, (*FOLDERS, *own_folders(root)))
    try:
        names = os.listdir(root)
    except OSError:
        return
    for name in filter(is_stock, names):
        with contextlib.suppress(OSError):  # it is in use, or no folder
            fd = os.open(f"{root}/{name}", _FLAGS)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_tree(f"{root}/{name}")
            finally:
                os.close(fd)


def is_stock(name: str) -> bool:
    """Whether an entry of a workspace is the stock of a command."""
    return name.startswith(STOCK_PREFIX)


def lock(path: str) -> int:
    """A descriptor of a folder, with a lock that ends with the processes that have the descriptor."""
    fd = os.open(path, _FLAGS)
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(fd, fcntl.LOCK_SH)
    return fd


def remove_tree(path: str) -> None:
    with contextlib.suppress(RecursionError):  # folders nested too deeply by a command are left
        shutil.rmtree(path, ignore_errors=True)
