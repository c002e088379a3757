"""Symlinks by which a program of the user comes to files that it obeys.

A search follows no symlink, since what a link leads to is searched where it lies. Two sorts of links are followed all
the same. One has the name of a folder in which some names are protected (`.cargo -> c`): `c/config.toml` is then obeyed
though no folder around it is called `.cargo`. The other leads into a folder of installed packages, which is not
searched: `src -> venv/src`. `LinkedFolder` says what is obeyed by way of such a link. After a command `new_by_links`
compares: a new link with something behind it counts as new itself, behind an old link the new files do.

The target of a protected name that is a link is protected because of the link. A symlink cannot be a mount point, so a
command can remove or change one; the next search would then protect another file, or none. `hold` remembers where the
links of a folder lead before a command, `put_back` restores them when it has ended: a link that is gone is made again,
and a file that took its name is renamed. While several commands run nothing new is remembered, so that a link which one
of them made is never restored after another.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from lyra.errors import LyraError
from lyra.sandbox.paths import Beneath, real_path
from lyra.sandbox.protection.forbidden_names import set_aside
from lyra.sandbox.protection.git_repositories import SHAPE, is_repository
from lyra.sandbox.protection.protected_names import (
    ASKED,
    INSTALLED,
    NOT_SEARCHED,
    OBEYED_KEYS,
    READ_ONLY,
    Kind,
    NameTable,
)

OBEYED: Final = NameTable((*READ_ONLY, *ASKED, *OBEYED_KEYS), ())  # a name of any kind in it is obeyed
_ENTRIES_MAX: Final = 50_000  # of installed packages, for all links of one search together


class LinkedFolder(NamedTuple):
    """A link to a folder and what is obeyed there; `link` is relative to the searched folder, all others are whole."""

    link: str
    target: str
    obeyed: tuple[str, ...] = ()
    complete: bool = True  # False: the folder has too many entries, or one of its folders cannot be listed


class LinkFollower:
    """Follows the links of one search. `roots` are the folders that commands may write."""

    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = tuple(root.rstrip("/") + "/" for root in roots)
        self._left = _ENTRIES_MAX
        self._seen: dict[tuple[str, str], LinkedFolder] = {}

    def follow(self, root: str, link: str) -> LinkedFolder | None:
        """Return what is obeyed by way of a link; None for a link of neither sort."""
        name = link.rpartition("/")[2]
        beside = OBEYED.beside(name)
        target, exists = real_path(f"{root}/{link}")
        if not beside and not (exists and self._is_installed(target) and os.path.isdir(target)):
            return None
        key = (target, name if beside else "")
        if key not in self._seen:
            obeyed, complete = list(_list_entries(target, beside)), True
            if exists and self._is_installed(target):
                obeyed, complete = self._search(target, beside)
            self._seen[key] = LinkedFolder("", target, tuple(obeyed), complete)
        return self._seen[key]._replace(link=link)

    def _is_installed(self, path: str) -> bool:
        """Return whether a path is, or lies in, a folder of installed packages that commands may write."""
        root = next((root for root in self._roots if path.startswith(root)), None)
        return root is not None and not INSTALLED.isdisjoint(path[len(root) :].split("/"))

    def _search(self, top: str, beside: Mapping[str, Kind]) -> tuple[list[str], bool]:
        """Search a folder of installed packages, and those that links in it lead to."""
        obeyed: list[str] = []
        waiting, seen = [(top, beside)], {top}
        while waiting:
            folder, beside = waiting.pop()
            parts: dict[str, str] = {}
            try:
                entries = list(os.scandir(folder))
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:
                return obeyed, False
            self._left -= len(entries)
            if self._left < 0:
                return obeyed, False
            for entry in entries:
                name = entry.name
                if name.lower() in SHAPE:
                    parts[name.lower()] = entry.path
                if OBEYED.kind(name, beside) is not None:
                    obeyed.append(entry.path)
                elif name not in NOT_SEARCHED:
                    inner = self._folder(entry)
                    if inner is not None and inner not in seen:
                        seen.add(inner)
                        waiting.append((inner, OBEYED.beside(name)))
            if is_repository(parts):
                obeyed.append(parts["head"])
        return obeyed, True

    def _folder(self, entry: os.DirEntry[str]) -> str | None:
        """Return the folder that is searched for an entry; None for a file and for a folder that is searched
        elsewhere."""
        if entry.is_dir(follow_symlinks=False):
            return entry.path
        if not entry.is_symlink():
            return None
        target, exists = real_path(entry.path)
        return target if exists and self._is_installed(target) and os.path.isdir(target) else None


def _list_entries(folder: str, names: Mapping[str, Kind]) -> Iterator[str]:
    """Yield the entries of a folder that have one of these names."""
    try:
        with os.scandir(folder) as entries:
            yield from (entry.path for entry in entries if entry.name.lower() in names)
    except OSError:  # it does not exist, or no program of the user can list it either
        return


def new_by_links(root: str, before: Iterable[LinkedFolder], now: Iterable[LinkedFolder]) -> Iterator[str]:
    """Whole paths of new links that lead to something obeyed, and of what is newly obeyed by way of the others. A new
    link to a folder that could not be searched to its end counts, too."""
    known = {(linked.link, linked.target): linked.obeyed for linked in before}
    for linked in now:
        old = known.get((linked.link, linked.target))
        if old is not None:
            yield from set(linked.obeyed).difference(old)
        elif linked.obeyed or not linked.complete:
            yield f"{root}/{linked.link}"


# ---------------------------------------------------------------- protected links


class LinkTarget(NamedTuple):
    """A link and its target, both relative to the folder that is searched."""

    link: str
    text: str  # the text of the symlink
    target: str  # "": it may lead anywhere, and only its text counts


class _Held:
    """The links of one folder, and how many commands run in it."""

    def __init__(self, leads: Iterable[LinkTarget]) -> None:
        self.leads = tuple(leads)
        self.commands = 0


_held: Final[dict[str, _Held]] = {}


def hold(root: str, leads: Iterable[LinkTarget]) -> Callable[[], None]:
    """Remember the links before a command; call the returned function when it has ended."""
    held = _held.setdefault(root, _Held(leads))
    held.commands += 1

    def release() -> None:
        held.commands -= 1
        if not held.commands:
            del _held[root]

    return release


def put_back(root: str) -> tuple[list[str], list[str]]:
    """Restore changed links; gives the restored links, and the new names of the files in their place."""
    held = _held.get(root)
    wrong = [lead for lead in held.leads if not _leads(root, lead)] if held else []
    if not wrong:
        return [], []
    moved = set_aside(root, [lead.link for lead in wrong if os.path.lexists(f"{root}/{lead.link}")])
    return [lead.link for lead in wrong if _make(root, lead)], list(moved)


def _leads(root: str, lead: LinkTarget) -> bool:
    """Return whether the link leads to its target; True also where the target is gone and nothing is left to
    protect."""
    target, link = f"{root}/{lead.target}", f"{root}/{lead.link}"
    if not lead.target:
        return os.path.islink(link) and os.readlink(link) == lead.text
    return not os.path.lexists(target) or (os.path.islink(link) and os.path.realpath(link) == target)


def _make(root: str, lead: LinkTarget) -> bool:
    """Make the link with its old text, or straight to the target where a link on the path was changed."""
    above, _, name = lead.link.rpartition("/")
    straight = os.path.relpath(lead.target, above or ".") if lead.target else lead.text
    with Beneath(root) as folder:
        try:
            parent = folder.open(above or ".", os.O_RDONLY | os.O_DIRECTORY, links=False)
        except (OSError, LyraError):
            return False
        try:
            os.symlink(lead.text, name, dir_fd=parent)
            if not _leads(root, lead):
                os.unlink(name, dir_fd=parent)
                os.symlink(straight, name, dir_fd=parent)
        except OSError:
            return False
        finally:
            os.close(parent)
    return True
