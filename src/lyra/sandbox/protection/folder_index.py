"""The links and git repositories in a workspace, for the file tools: both protect files that lie elsewhere.

`search` looks at the folders near the root first, within a bound. A folder is listed again only where it has changed
since; what it lists is kept for the process. The sandbox has a search of its own, which looks at more
(`lyra.sandbox.protected`).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from lyra.core.clock import SystemClock
from lyra.sandbox.protection.git_repositories import is_repository
from lyra.sandbox.protection.protected_names import ASKED_NAMES, INSTALLED, NAMES
from lyra.sandbox.real_paths import real_path

ENTRIES_MAX: Final = 20_000
_LINKED_MAX: Final = 5_000  # entries of folders that protected links lead to
_FOLDERS_KEPT: Final = 20_000
_CLOCK: Final = SystemClock()
_RECENT_S: Final = 0.1  # a folder that changed just now may change again without another time of change
_NOT_LISTED: Final = INSTALLED | {".git", ".hg", ".svn", ".bzr", ".jj"}


class FolderIndex(NamedTuple):
    """Absolute paths. `targets` are what links lead to that have a protected name or lie in a folder of one, without
    links; `folders` are links to a folder in which some names are protected because of the link's name; `asked` are
    what links lead to whose name is one that a person is asked about."""

    targets: tuple[str, ...]
    folders: tuple[str, ...]
    repositories: tuple[str, ...]
    asked: tuple[str, ...] = ()


class _Listed(NamedTuple):
    """What one folder has in it, by name."""

    changed_ns: int
    entries: int
    links: tuple[str, ...]
    folders: tuple[str, ...]
    has_git: bool
    is_repository: bool


_EMPTY: Final = _Listed(0, 0, (), (), has_git=False, is_repository=False)
_listed: Final[dict[str, _Listed]] = {}


def search(root: str) -> FolderIndex:
    """What there is below a folder, which is a real path. Folders outside of it count, and those among installed
    packages, where a protected link leads there."""
    index = _UnfinishedIndex(root.rstrip("/"), [], [], [], [], [])
    index.walk(index.root, ENTRIES_MAX, is_protected=False)
    seen: set[str] = set()
    left = _LINKED_MAX
    while index.linked and left > 0:
        folder = index.linked.pop()
        if folder not in seen and not f"{index.root}/".startswith(f"{folder.rstrip('/')}/"):
            left = index.walk(folder, left, is_protected=True)
        seen.add(folder)
    return FolderIndex(tuple(index.targets), tuple(index.folders), tuple(index.repositories), tuple(index.asked))


class _UnfinishedIndex(NamedTuple):
    """What a search has found so far. `linked` are folders that protected links lead to."""

    root: str
    targets: list[str]
    folders: list[str]
    repositories: list[str]
    linked: list[str]
    asked: list[str]

    def walk(self, top: str, left: int, *, is_protected: bool) -> int:
        """Look through a folder; gives how many entries are left for others."""
        waiting = deque([(top, is_protected)])
        while waiting and left > 0:
            path, is_protected = waiting.popleft()
            listed = _list(path, left)
            left -= listed.entries
            beside = NAMES.beside(os.path.basename(path))
            self.repositories.extend([f"{path}/.git"] if listed.has_git else [])
            self.repositories.extend([path] if listed.is_repository else [])
            for name in listed.links:
                if is_protected or NAMES.kind(name, beside) is not None:
                    self.follow(path, name)
                elif NAMES.beside(name):
                    self.folders.append(f"{path}/{name}")
                if ASKED_NAMES.kind(name, ASKED_NAMES.beside(os.path.basename(path))) is not None:
                    self.asked.append(real_path(f"{path}/{name}")[0])
            for name in listed.folders:
                waiting.append((f"{path}/{name}", is_protected or NAMES.kind(name, beside) is not None))
        return left

    def follow(self, folder: str, name: str) -> None:
        """Add the target of a link. Installed packages are not protected by a link of their name."""
        target, exists = real_path(f"{folder}/{name}")
        if name in INSTALLED and os.path.basename(target) in INSTALLED:
            return
        self.targets.append(target)
        if exists and os.path.isdir(target):
            self.linked.append(target)


def _list(path: str, most: int) -> _Listed:
    try:
        changed_ns = os.stat(path or "/").st_mtime_ns
    except OSError:
        return _EMPTY
    known = _listed.get(path)
    if known is not None and known.changed_ns == changed_ns:
        return known
    listed = _list_again(path, most, changed_ns)
    if len(_listed) >= _FOLDERS_KEPT:
        _listed.clear()
    if _CLOCK.now() - changed_ns / 1e9 > _RECENT_S and listed.entries < most:
        _listed[path] = listed
    return listed


def _list_again(path: str, most: int, changed_ns: int) -> _Listed:
    names: set[str] = set()
    links: list[str] = []
    folders: list[str] = []
    for entry in _entries(path, most):
        names.add(entry.name)
        if entry.is_symlink():
            links.append(entry.name)
        elif entry.is_dir(follow_symlinks=False) and entry.name not in _NOT_LISTED:
            folders.append(entry.name)
    shape = is_repository({name.lower() for name in names}) if "HEAD" in names else False
    return _Listed(changed_ns, len(names), tuple(links), tuple(folders), ".git" in names, shape)


def _entries(path: str, most: int) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(path or "/") as entries:
            yield from islice(entries, most)
    except OSError:
        return
