"""The folders of `PATH`, seen from a folder that commands may write: a program in one runs by its bare name.

Folders that every installation writes are left out: `node_modules/.bin`, `vendor/bin` and the `bin` of an active Python
environment, which is known by its `pyvenv.cfg` (`conda-meta` for conda). Where a folder is protected, the file that
would make it an environment may not be made either. `.venv/bin` and `venv/bin` are left out by name, since they are
often on `PATH` before they exist.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from lyra.errors import SandboxUnavailable
from lyra.sandbox.real_paths import real_path

FOLDERS_MAX: Final = 64
_INSTALLED: Final = frozenset({"node_modules/.bin", "vendor/bin", ".venv/bin", "venv/bin"})
_ENVIRONMENT: Final = ("pyvenv.cfg", "conda-meta")


class ProgramPlace(NamedTuple):
    """A protected path: as `PATH` names it, without links, and whether it exists."""

    path: str
    real: str
    exists: bool


def program_places(root: str) -> list[ProgramPlace]:
    """The protected places of `PATH` inside a folder, which is a real path. With more than `FOLDERS_MAX` folders there
    no command runs: each is a mount of its own."""
    root = root.rstrip("/")
    inside = [place for place in _folders(root) if _is_inside(place, root)]
    if len(inside) > FOLDERS_MAX:
        raise SandboxUnavailable(
            f"PATH names {len(inside)} folders in {root}, and at most {FOLDERS_MAX} can be protected, "
            "so the command does not run",
            hint="take folders of the workspace out of PATH",
        )
    return [place for place in _protected(inside, root) if _is_inside(place, root)]


def program_folders(root: str) -> list[str]:
    """The same places wherever they lie, without links."""
    root = root.rstrip("/")
    return [place.real for place in _protected(_folders(root), root)]


def _folders(root: str) -> Iterator[ProgramPlace]:
    return map(_place, _search_path(root, os.environ.get("PATH", "")))


def _protected(folders: Iterable[ProgramPlace], root: str) -> Iterator[ProgramPlace]:
    """The folders that no installation writes, and the files that would make one the `bin` of an environment."""
    for place in folders:
        if not _is_installed(place, root):
            yield place
            above, _, name = place.real.rpartition("/")
            if name == "bin" and place.exists:
                yield from (ProgramPlace(f"{above}/{file}", f"{above}/{file}", exists=False) for file in _ENVIRONMENT)


@lru_cache(maxsize=64)
def _search_path(root: str, folders: str) -> tuple[str, ...]:
    """The folders as the shell reads them; `bash` takes a `~` at the beginning for the home folder."""
    whole = (os.path.join(root or "/", os.path.expanduser(folder)) for folder in folders.split(":") if folder)
    return tuple(dict.fromkeys(whole))


def _place(path: str) -> ProgramPlace:
    real, exists = real_path(path)
    if "/../" in f"{real}/":  # behind a folder that is missing
        real = os.path.normpath(real)
        exists = os.path.lexists(real)
    return ProgramPlace(path, real, exists)


def _is_inside(place: ProgramPlace, root: str) -> bool:
    """Whether the folder lies inside, or the path to it leads through the inside. The root itself does not count."""
    return place.real.startswith(f"{root}/") or (place.path.startswith(f"{root}/") and place.real != root)


def _is_installed(place: ProgramPlace, root: str) -> bool:
    """Whether installations write a folder. Names above the root do not count."""
    above, _, name = place.real.rpartition("/")
    if name == "bin" and any(os.path.lexists(f"{above}/{marker}") for marker in _ENVIRONMENT):
        return True
    path = place.real if place.real.startswith(f"{root}/") else place.path
    return "/".join(path.removeprefix(f"{root}/").split("/")[-2:]) in _INSTALLED
