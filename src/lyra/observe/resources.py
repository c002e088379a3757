"""What this OS process uses of the machine: resident memory, and caches on disk. Read when asked, never kept."""

from __future__ import annotations

import os
from typing import Final

from lyra.core.data_folder import data_folder

__all__ = ["cache_bytes", "memory_bytes"]

_CACHES: Final = ("maps",)  # folders of the data folder that can be removed at any time


def memory_bytes() -> int | None:
    """Resident memory; None where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return _peak_bytes()


def _peak_bytes() -> int | None:
    """The most that was resident so far, where there is no /proc."""
    try:
        import resource
    except ImportError:
        return None
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if os.uname().sysname == "Darwin" else used * 1024


def cache_bytes() -> int:
    """Bytes of the files in Lyra's cache folders; a folder that is missing or cannot be read counts as empty."""
    total = 0
    for name in _CACHES:
        try:
            with os.scandir(data_folder() / name) as entries:
                total += sum(entry.stat(follow_symlinks=False).st_size for entry in entries if entry.is_file())
        except OSError:
            continue
    return total
