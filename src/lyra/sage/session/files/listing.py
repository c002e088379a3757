"""The listing of a workspace: every file, link and folder with its status, within bounds.

A folder is listed whole or not at all, so that a name that appears later in a listed folder is known to be new. Not
listed are folders of tools that can make their content again (`node_modules`, caches, virtual environments, any with a
`CACHEDIR.TAG`), Lyra's own hidden folders, folders with keys (`.ssh`), and those of settings and programs in the home
folder. What belongs to git is left out altogether. Never reads a file and never follows a symlink.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Collection, Iterable
from typing import Final

from lyra.core.own_files import own_paths
from lyra.errors import CapabilityDenied
from lyra.sandbox.paths import Beneath, real_path
from lyra.sandbox.protection.protected_names import OBEYED_KEYS, home_paths

LEFTOVER_PREFIX: Final = ".lyra-restoring-"  # begins the names of files that a restore has not put in place yet
_GIT: Final = ".git"
_REMADE: Final = frozenset(
    (
        "node_modules",
        "bower_components",
        "__pycache__",
        ".venv",
        ".tox",
        ".nox",
        ".hg",
        ".svn",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".hypothesis",
        ".gradle",
        ".terraform",
        ".next",
        ".turbo",
    )
)
_MARKS: Final = frozenset(("CACHEDIR.TAG", "pyvenv.cfg"))  # the folder with such a file can be made again
_REPOSITORY: Final = frozenset(("HEAD", "objects", "refs"))  # a folder with these is a repository without files


class WorkspaceListing:
    """`entries`: the status of each path; `listed`: the folders whose names are all among them; `leftovers`: files of
    a restore that was cut off; `closed`: folders that this user may not read. `is_bounded`: folders were left out
    because there are too many files."""

    __slots__ = ("closed", "entries", "is_bounded", "leftovers", "listed")

    def __init__(self) -> None:
        self.entries: dict[str, os.stat_result] = {}
        self.listed: set[str] = set()
        self.closed: set[str] = set()
        self.leftovers: list[str] = []
        self.is_bounded = False


def list_workspace(roots: Iterable[Beneath], *, files_max: int, without: Collection[str] = ()) -> WorkspaceListing:
    """List the workspace folders, shallow folders first; `without` are further folders that are not listed."""
    listing = WorkspaceListing()
    places = (*own_paths().hidden, *home_paths()[0], *home_paths()[1], *without)
    excluded = {path for place in places for path in (place, real_path(place)[0])}
    for root in roots:
        listing.entries[root.root] = os.stat(root.fd)
        queue = deque([root.root])
        while queue:
            folder = queue.popleft()
            if folder not in excluded:
                queue += _list_folder(root, folder, listing, files_max)
    return listing


def _list_folder(root: Beneath, folder: str, listing: WorkspaceListing, files_max: int) -> list[str]:
    """List one folder; those inside it."""
    room = files_max - len(listing.entries)
    children: dict[str, os.stat_result] = {}
    folders: list[str] = []
    leftovers: list[str] = []
    try:
        fd = root.open(folder, os.O_RDONLY | os.O_DIRECTORY, links=False)
    except (OSError, CapabilityDenied):  # not readable, or replaced meanwhile
        listing.closed.add(folder)
        return []
    prefix = folder.rstrip("/") + "/"
    try:
        with os.scandir(fd) as entries:
            for entry in entries:
                name = entry.name
                if name == _GIT:
                    continue
                if name.startswith(LEFTOVER_PREFIX):
                    leftovers.append(prefix + name)
                    continue
                if len(children) >= room:
                    listing.is_bounded = True
                    return []
                try:
                    children[name] = entry.stat(follow_symlinks=False)
                    is_folder = entry.is_dir(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if is_folder and name not in _REMADE and name not in OBEYED_KEYS:
                    folders.append(prefix + name)
    except OSError:
        return []
    finally:
        os.close(fd)
    if folder != root.root and (not _MARKS.isdisjoint(children) or children.keys() >= _REPOSITORY):
        return []
    listing.listed.add(folder)
    listing.leftovers += leftovers
    listing.entries.update((prefix + name, status) for name, status in children.items())
    return sorted(folders)


def is_gits(path: str) -> bool:
    """Whether a path belongs to git's own files."""
    return _GIT in path.split("/")
