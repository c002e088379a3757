"""Whether a file is obeyed by a program of the user, so that no tool writes it: the one question of all file tools.

`obeyed_part` answers it for a real path: by its name (`protected_names`), by its place (`protected_places`), because
its folder would be a git repository, because git's settings name it (`git_repositories`), or because a link of a
protected name leads there (`folder_index`). The decision on a call asks it, and the tool asks again when it writes. A
decision may take an answer about links and repositories that is a second old; a tool that writes looks at the disk.
`asked_part` answers for files that ordinary work edits though a program obeys them: a person is asked about those.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from lyra.core.clock import SystemClock
from lyra.sandbox.protection.folder_index import search
from lyra.sandbox.protection.git_repositories import enclosing_repositories, made_repository, named_paths
from lyra.sandbox.protection.program_folders import program_folders
from lyra.sandbox.protection.protected_names import ASKED_NAMES, NAMES, protected_part
from lyra.sandbox.protection.protected_places import is_own, is_protected_at_home

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


def obeyed_part(path: str, roots: Sequence[str], *, exact: bool = True) -> str | None:
    """The part of an absolute path without links because of which it is not written, in words that "is protected" can
    follow; None: it may be written. The roots are real paths. Not `exact`: an answer of the last second will do."""
    part = protected_part(path, roots)
    if part is not None:
        return part
    if is_own(path) or (_may_be_at_home(path, roots) and is_protected_at_home(path, roots)):
        return path
    for root in roots:
        if path.startswith(f"{root.rstrip('/')}/") and made_repository(root, path) is not None:
            return f"{path}, which makes its folder a git repository,"
    targets = _look(roots) if exact else _recent(tuple(roots))
    why = _why(path, targets.paths)
    if why is None and any(_is_named(path, folder, names) for folder, names in targets.by_name):
        why = _LINK
    return f"{path}, {why}," if why is not None else None


def asked_part(path: str, roots: Sequence[str], *, exact: bool = True) -> str | None:
    """The part of an absolute path without links because of which a person is asked before it is written; None: it is
    written as any other. The roots are real paths. Not `exact`: an answer of the last second will do."""
    part = protected_part(path, roots, table=ASKED_NAMES)
    if part is None and path in (_look(roots) if exact else _recent(tuple(roots))).asked:
        return f"{path}, to which a link of such a name leads,"
    return part


def _may_be_at_home(path: str, roots: Iterable[str]) -> bool:
    """Whether a path lies in the home folder, or in a workspace that contains it: links may lead from it anywhere."""
    home = os.path.expanduser("~")
    homes = (f"{home}/", f"{_real_folder(home)}/")
    return path.startswith(homes) or any(home.startswith(f"{root.rstrip('/')}/") for root in roots for home in homes)


@lru_cache(maxsize=8)
def _real_folder(path: str) -> str:
    return os.path.realpath(path)


def _is_named(path: str, folder: str, names: frozenset[str]) -> bool:
    return path.startswith(f"{folder}/") and path[len(folder) + 1 :].partition("/")[0].lower() in names


def _why(path: str, places: Mapping[str, str]) -> str | None:
    """The words of the path, or of the nearest folder around it that has some."""
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
    named = named_paths(repositories, roots)
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
    """The targets as of the last second, or of now where a root or a settings file has changed since."""
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
