"""Whether a file is obeyed by a program of the user, so that no tool writes it: the one question of all file tools.

`find_obeyed_part` answers it for a real path: by its name (`protected_names`), by its place (`protected_places`),
because its folder would be a git repository, because git's settings name it (`git_repositories`), or because a link of
a protected name leads there. The decision on a call asks it, and the tool asks again when it writes. A decision may
take an answer about links and repositories that is a second old; a tool that writes looks at the disk.
`find_asked_part` answers for files that ordinary work edits though a program obeys them: a person is asked about those.

`search` finds the links and git repositories in a workspace, the folders near the root first, within a bound. A folder
is listed again only where it has changed since; what it lists is kept for the process. The sandbox has a search of its
own, which looks at more (`lyra.sandbox.protected`).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple

from lyra.core.clock import SystemClock
from lyra.sandbox.paths import real_path
from lyra.sandbox.protection.git_repositories import (
    enclosing_repositories,
    find_made_repository,
    find_named_paths,
    is_repository,
)
from lyra.sandbox.protection.protected_names import ASKED_NAMES, INSTALLED, NAMES, find_protected_part
from lyra.sandbox.protection.protected_places import is_own, is_protected_at_home, program_folders

_CLOCK: Final = SystemClock()
_ANSWER_S: Final = 1.0
_ANSWERS_KEPT: Final = 16
_VARIABLES: Final = ("HOME", "PATH", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM")
_LINK: Final = "to which a protected link leads"
_SETTINGS: Final = "which settings of git name"
_PROGRAMS: Final = "where the shell looks for programs"


class _Targets(NamedTuple):
    """Real paths that are protected because of something elsewhere, each with the words that say why. In a folder of
    `by_name` only these names are."""

    paths: Mapping[str, str]
    by_name: tuple[tuple[str, frozenset[str]], ...]
    files: tuple[str, ...]  # if one of these changes, the answer is out of date
    asked: frozenset[str] = frozenset()  # what links lead to whose name is in `ASKED`


def find_obeyed_part(path: str, roots: Sequence[str], *, exact: bool = True) -> str | None:
    """Return the part of an absolute path without links because of which it is not written, in words that "is
    protected" can follow; None: it may be written. The roots are real paths. Not `exact`: an answer of the last second
    will do."""
    part = find_protected_part(path, roots)
    if part is not None:
        return part
    if is_own(path) or (_may_be_at_home(path, roots) and is_protected_at_home(path, roots)):
        return path
    for root in roots:
        if path.startswith(f"{root.rstrip('/')}/") and find_made_repository(root, path) is not None:
            return f"{path}, which makes its folder a git repository,"
    targets = _look(roots) if exact else _recent(tuple(roots))
    why = _why(path, targets.paths)
    if why is None and any(_is_named(path, folder, names) for folder, names in targets.by_name):
        why = _LINK
    return f"{path}, {why}," if why is not None else None


def find_asked_part(path: str, roots: Sequence[str], *, exact: bool = True) -> str | None:
    """Return the part of an absolute path without links because of which a person is asked before it is written; None:
    it is written as any other. The roots are real paths. Not `exact`: an answer of the last second will do."""
    part = find_protected_part(path, roots, table=ASKED_NAMES)
    if part is None and path in (_look(roots) if exact else _recent(tuple(roots))).asked:
        return f"{path}, to which a link of such a name leads,"
    return part


def _may_be_at_home(path: str, roots: Iterable[str]) -> bool:
    """Return whether a path lies in the home folder, or in a workspace that contains it: links may lead from it
    anywhere."""
    home = os.path.expanduser("~")
    homes = (f"{home}/", f"{_real_folder(home)}/")
    return path.startswith(homes) or any(home.startswith(f"{root.rstrip('/')}/") for root in roots for home in homes)


@lru_cache(maxsize=8)
def _real_folder(path: str) -> str:
    return os.path.realpath(path)


def _is_named(path: str, folder: str, names: frozenset[str]) -> bool:
    return path.startswith(f"{folder}/") and path[len(folder) + 1 :].partition("/")[0].lower() in names


def _why(path: str, places: Mapping[str, str]) -> str | None:
    """Return the words of the path, or of the nearest folder around it that has some."""
    while path and path not in places:
        path = path.rpartition("/")[0]
    return places.get(path)


def _within(path: str, place: str) -> bool:
    return path == place or path.startswith(f"{place}/")


# ---------------------------------------------------------------- what protects files elsewhere
def _look(roots: Sequence[str]) -> _Targets:
    """Look at the links and at git's settings now."""
    paths: dict[str, str] = {}
    by_name: list[tuple[str, frozenset[str]]] = []
    asked: set[str] = set()
    repositories: dict[str, None] = {}
    for root in roots:
        index = search(root)
        repositories.update(dict.fromkeys((*index.repositories, *enclosing_repositories(root))))
        paths.update(dict.fromkeys(index.targets, _LINK))
        asked.update(index.asked)
        for link in index.folders:
            names = frozenset(NAMES.beside(os.path.basename(link)))
            by_name.append((os.path.realpath(link), names))
            paths.update((os.path.realpath(f"{link}/{name}"), _LINK) for name in names)
        paths.update(dict.fromkeys(program_folders(root), _PROGRAMS))
    named = find_named_paths(repositories, roots)
    for path in named.paths:
        paths.setdefault(os.path.realpath(path), _SETTINGS)
    kept = {path: why for path, why in paths.items() if not any(_within(root, path) for root in roots)}
    return _Targets(kept, tuple(by_name), (*roots, *named.files), frozenset(asked))


class _Answer(NamedTuple):
    until: float
    stamps: tuple[tuple[int, int, int] | None, ...]
    targets: _Targets


_answers: Final[dict[object, _Answer]] = {}


def _recent(roots: tuple[str, ...]) -> _Targets:
    """Return the targets as of the last second, or of now where a root or a settings file has changed since."""
    key = (roots, *map(os.environ.get, _VARIABLES))
    known = _answers.get(key)
    if known is not None and _CLOCK.monotonic() < known.until and known.stamps == tuple(_stamps(known.targets.files)):
        return known.targets
    targets = _look(roots)
    _answers.pop(key, None)
    if len(_answers) >= _ANSWERS_KEPT:
        del _answers[next(iter(_answers))]
    _answers[key] = _Answer(_CLOCK.monotonic() + _ANSWER_S, tuple(_stamps(targets.files)), targets)
    return targets


def _stamps(files: Iterable[str]) -> Iterator[tuple[int, int, int] | None]:
    for file in files:
        try:
            state = os.stat(file)
        except (OSError, ValueError):
            yield None
        else:
            yield state.st_ino, state.st_mtime_ns, state.st_size


# ---------------------------------------------------------------- folder index

ENTRIES_MAX: Final = 20_000
_LINKED_MAX: Final = 5_000  # entries of folders that protected links lead to
_FOLDERS_KEPT: Final = 20_000
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
    """Return what there is below a folder, which is a real path. Folders outside of it count, and those among installed
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
