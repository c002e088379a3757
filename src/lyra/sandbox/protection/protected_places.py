"""Protected paths that are known by where they lie: Lyra's own files, the settings in the user's home folder, and the
folders in which the user's shell looks for programs.

`places_in(root)` gives those inside a folder that commands may write, whether they exist or not. Links are resolved,
since it is the real file that is obeyed; the links on the way are given, too, because another link would lead Lyra
to another file. So it is with links inside Lyra's own folders, such as settings that a user keeps in a folder of
dotfiles. `is_own` is for single paths: it answers for the file tools.

A program in a folder of `PATH` runs by its bare name. Folders that every installation writes are left out:
`node_modules/.bin`, `vendor/bin` and the `bin` of an active Python environment, which is known by its `pyvenv.cfg`
(`conda-meta` for conda). Where a folder is protected, the file that would make it an environment may not be made
either. `.venv/bin` and `venv/bin` are left out by name, since they are often on `PATH` before they exist.
"""

from __future__ import annotations

import fcntl
import os
from collections import deque
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple

from lyra.core.clock import SystemClock
from lyra.core.own_files import STORE_SUFFIXES, find_own_paths, is_opened
from lyra.errors import SandboxUnavailable
from lyra.sandbox.paths import links_on_the_way, real_path
from lyra.sandbox.protection.protected_names import LYRAS, enclosing_part, home_paths


class Places(NamedTuple):
    """Paths relative to a folder. `missing` do not exist; `folders` are made as placeholders for those of Lyra."""

    read_only: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    links: tuple[str, ...] = ()


NOTHING: Final = Places()


class _Listed(NamedTuple):
    """What one of Lyra's own folders has in it, by name."""

    changed_ns: int
    entries: int
    links: tuple[str, ...]
    folders: tuple[str, ...]


_CLOCK: Final = SystemClock()
_RECENT_S: Final = 1.0
_RECENT_KEPT: Final = 16
_OWN_ENTRIES_MAX: Final = 5_000  # of Lyra's own folders that are looked at, those nearest to their top first
_NOT_LISTED: Final = _Listed(0, 0, (), ())
_listed: Final[dict[str, _Listed]] = {}


def places_in(root: str) -> Places:
    """Return the places inside a folder, which is a real path."""
    own, prefix = find_own_paths(), root.rstrip("/") + "/"
    places = [(path, *real_path(path)) for path in (*_look_for_hidden_places(own.hidden), *own.read_only)]
    places += [(path, path, True) for path in own.code if path.startswith(prefix)]
    if f"{own.home}/".startswith(prefix) or f"{_real_home(own.home)}/".startswith(prefix):
        places += [(path, *real_path(path)) for paths in home_paths() for path in paths]
    places += program_places(root)
    inside = [place for place in places if place[0].startswith(prefix) or place[1].startswith(prefix)]
    return _sort(root, prefix, inside) if inside else NOTHING


@lru_cache(maxsize=8)
def _real_home(home: str) -> str:
    return os.path.realpath(home)


def _sort(root: str, prefix: str, places: list[tuple[str, str, bool]]) -> Places:
    """Sort these places: each path, the path without links, and whether it exists."""
    sorts: list[dict[str, None]] = [{}, {}, {}, {}, {}]
    read_only, hidden, missing, folders, links = sorts
    own = find_own_paths().hidden
    keys = {*_look_for_hidden_places(own), *home_paths()[1]}
    for path, real, exists in places:
        if real != path or not exists:
            links.update(
                dict.fromkeys(link[len(prefix) :] for link in links_on_the_way(path) if link.startswith(prefix))
            )
        if not real.startswith(prefix):
            continue
        relative = real[len(prefix) :]
        (missing if not exists else hidden if path in keys else read_only)[relative] = None
        if not exists and path in own:
            folders.update(dict.fromkeys(_missing(root, relative)))
    return Places(*map(tuple, sorts))


def list_own_folders(root: str) -> list[str]:
    """Lyra's hidden folders inside a folder and those above them, relative to it, the innermost first."""
    prefix = root.rstrip("/") + "/"
    places: set[str] = set()
    for real, _ in map(real_path, find_own_paths().hidden):
        parts = real[len(prefix) :].split("/") if real.startswith(prefix) else []
        places |= {"/".join(parts[:depth]) for depth in range(1, len(parts) + 1)}
    return sorted(places, key=len, reverse=True)


def find_hidden_inside(root: str) -> list[str]:
    """Return the real paths of Lyra's hidden folders inside a folder that may be read, and of what links in them lead
    to."""
    reals = (real_path(path) for path in _look_for_hidden_places(find_own_paths().hidden))
    prefix = root.rstrip("/") + "/"
    return [real for real, exists in reals if exists and real.startswith(prefix)]


def is_own(path: str, *, hidden: bool = False) -> bool:
    """Return whether a path is, or lies in, one of Lyra's own; with `hidden` only those that are not read either
    count."""
    own = find_own_paths()
    if not hidden and any(_within(path, place) for place in own.code):
        return True
    # Lyra's hidden places as of the last second, or of now where one of the folders has changed: a file tool asks for
    # each path, and a user may have many sessions.
    folders = own.hidden
    changed_ns = tuple(map(_read_change_ns, folders))
    known = _recent.get(folders)
    now = _CLOCK.monotonic()
    if known is None or now >= known.until or known.changed_ns != changed_ns:
        if len(_recent) >= _RECENT_KEPT:
            _recent.clear()
        known = _recent[folders] = _Recent(now + _RECENT_S, changed_ns, _look_for_hidden_places(folders))
    hidden_places = known.places
    places = hidden_places if hidden else (*hidden_places, *own.read_only)
    return any(_within(path, place) or _within(path, real_path(place)[0]) for place in places)


class _Recent(NamedTuple):
    until: float
    changed_ns: tuple[int, ...]
    places: tuple[str, ...]


_recent: Final[dict[tuple[str, ...], _Recent]] = {}


def _read_change_ns(folder: str) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0


def _look_for_hidden_places(folders: tuple[str, ...]) -> tuple[str, ...]:
    """Return Lyra's hidden folders, and the links inside them: what those lead to is obeyed as what lies there."""
    waiting, links = deque(folders), list[str]()
    left = _OWN_ENTRIES_MAX
    while waiting and left > 0:
        folder = waiting.popleft()
        listed = _list(folder, left)
        left -= listed.entries
        links += [f"{folder}/{name}" for name in listed.links]
        waiting.extend(f"{folder}/{name}" for name in listed.folders)
    return (*folders, *links)


def _list(folder: str, most: int) -> _Listed:
    """Return the links and folders in a folder; it is read again where it has changed."""
    try:
        changed_ns = os.stat(folder).st_mtime_ns
        known = _listed.get(folder)
        if known is not None and known.changed_ns == changed_ns:
            return known
        with os.scandir(folder) as entries:
            rows = list(islice(entries, most))
    except OSError:
        return _NOT_LISTED
    links = tuple(row.name for row in rows if row.is_symlink())
    folders = tuple(row.name for row in rows if row.is_dir(follow_symlinks=False))
    if len(_listed) >= _OWN_ENTRIES_MAX:
        _listed.clear()
    _listed[folder] = _Listed(changed_ns, len(rows), links, folders)
    return _listed[folder]


def is_lyras(path: str) -> bool:
    """Return whether Lyra obeys the file: one of its own, or a project's file of a name that it reads."""
    return any(name.lower() in LYRAS for name in path.split("/")) or is_own(path)


def is_protected_at_home(path: str, roots: Iterable[str]) -> bool:
    """Return whether a path is, or lies in, a protected place of the home folder. A place that a workspace lies in does
    not count: a person has chosen to work there."""
    home = os.path.expanduser("~")
    above = tuple(roots)
    places = [place for paths in home_paths() for place in paths]
    if any(_within(home, root) or _within(real_path(home)[0], root) for root in above):
        places += [real_path(place)[0] for place in places]  # else a folder of the home is outside, and its links, too
    return any(_within(path, place) and not any(_within(root, place) for root in above) for place in places)


def is_in_use(path: str) -> bool:
    """Return whether a store or log was opened by this process, or is locked by another: then a Lyra has made it, and
    not a command, whose processes have ended. No Lyra makes a rollback journal: its stores have a log instead."""
    if path.endswith("-journal"):
        return False
    for suffix in filter(None, STORE_SUFFIXES):
        path = path.removesuffix(suffix)
    if is_opened(path):
        return True
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a log
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a store of SQLite
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def is_closed(root: str) -> bool:
    """Return whether nothing may be written in a folder at all, because it lies in a repository's or in Lyra's own."""
    return enclosing_part(root) is not None or is_own(root)


def _within(path: str, place: str) -> bool:
    return path == place or path.startswith(place + "/")


def _missing(root: str, relative: str) -> list[str]:
    """Return the folders of a path that do not exist, the outermost first."""
    parts = relative.split("/")
    paths = ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
    return [path for path in paths if not os.path.lexists(f"{root}/{path}")]


# ---------------------------------------------------------------- program folders

FOLDERS_MAX: Final = 64
_INSTALLED: Final = frozenset({"node_modules/.bin", "vendor/bin", ".venv/bin", "venv/bin"})
_ENVIRONMENT: Final = ("pyvenv.cfg", "conda-meta")


class ProgramPlace(NamedTuple):
    """A protected path: as `PATH` names it, without links, and whether it exists."""

    path: str
    real: str
    exists: bool


def program_places(root: str) -> list[ProgramPlace]:
    """Return the protected places of `PATH` inside a folder, which is a real path. With more than `FOLDERS_MAX` folders
    there no command runs: each is its own mount."""
    root = root.rstrip("/")
    inside = [place for place in _folders(root) if _is_inside(place, root)]
    if len(inside) > FOLDERS_MAX:
        raise SandboxUnavailable(
            f"PATH names {len(inside)} folders in {root}, and at most {FOLDERS_MAX} can be protected, "
            "so the command does not run",
            hint="take folders of the workspace out of PATH",
        )
    return [place for place in _find_protected(inside, root) if _is_inside(place, root)]


def program_folders(root: str) -> list[str]:
    """Return the same places wherever they lie, without links."""
    root = root.rstrip("/")
    return [place.real for place in _find_protected(_folders(root), root)]


def _folders(root: str) -> Iterator[ProgramPlace]:
    return map(_place, _search_path(root, os.environ.get("PATH", "")))


def _find_protected(folders: Iterable[ProgramPlace], root: str) -> Iterator[ProgramPlace]:
    """Yield the folders that no installation writes, and the files that would make one the `bin` of an environment."""
    for place in folders:
        if not _is_installed(place, root):
            yield place
            above, _, name = place.real.rpartition("/")
            if name == "bin" and place.exists:
                yield from (ProgramPlace(f"{above}/{file}", f"{above}/{file}", exists=False) for file in _ENVIRONMENT)


@lru_cache(maxsize=64)
def _search_path(root: str, folders: str) -> tuple[str, ...]:
    """Return the folders as the shell reads them; `bash` takes a `~` at the beginning for the home folder."""
    whole = (os.path.join(root or "/", os.path.expanduser(folder)) for folder in folders.split(":") if folder)
    return tuple(dict.fromkeys(whole))


def _place(path: str) -> ProgramPlace:
    real, exists = real_path(path)
    if "/../" in f"{real}/":  # behind a folder that is missing
        real = os.path.normpath(real)
        exists = os.path.lexists(real)
    return ProgramPlace(path, real, exists)


def _is_inside(place: ProgramPlace, root: str) -> bool:
    """Return whether the folder lies inside, or the path to it leads through the inside. The root itself does not
    count."""
    return place.real.startswith(f"{root}/") or (place.path.startswith(f"{root}/") and place.real != root)


def _is_installed(place: ProgramPlace, root: str) -> bool:
    """Return whether installations write a folder. Names above the root do not count."""
    above, _, name = place.real.rpartition("/")
    if name == "bin" and any(os.path.lexists(f"{above}/{marker}") for marker in _ENVIRONMENT):
        return True
    path = place.real if place.real.startswith(f"{root}/") else place.path
    return "/".join(path.removeprefix(f"{root}/").split("/")[-2:]) in _INSTALLED
