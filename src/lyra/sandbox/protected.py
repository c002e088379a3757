"""Paths inside a workspace that a command may not change, and those it may not even read.

What programs of the user obey (hooks, editor tasks, shell files, Lyra's own files) stays read-only, what holds keys is
hidden: by name (`protected_names`), by place (`protected_places`) and by shape (`git_repositories`). `find` searches
the whole tree except for folders of installed packages, near folders first, within bounds and without following a
symlink; `complete` is False when it had to stop early. A folder that cannot be searched is hidden as a whole, and one
whose permissions a command removed is opened again afterwards. A path that was protected once stays protected for this
process, even where a command has slowed the search or changed a link that led there (`linked_folders` restores it).
Names that do not exist yet cannot be protected in advance; `find_appeared` finds new ones after a command, also behind
links to folders (`linked_folders`), and `forbidden_names` renames them.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple

from lyra.core.limits import SANDBOX_SCAN_AFTER_MAX, SANDBOX_SCAN_ENTRIES_MAX
from lyra.core.rights.capability import Capability
from lyra.sandbox.paths import (
    FolderEntry,
    FolderNames,
    links_on_the_way,
    list_names,
    real_path,
    recall_names,
    reopen,
)
from lyra.sandbox.profile import Profile
from lyra.sandbox.protection.forbidden_names import is_placeholder, set_aside
from lyra.sandbox.protection.git_repositories import HEAD, PARTS, SHAPE, find_named_places, is_repository
from lyra.sandbox.protection.linked_folders import (
    OBEYED,
    LinkedFolder,
    LinkFollower,
    LinkTarget,
    hold,
    new_by_links,
    put_back,
)
from lyra.sandbox.protection.protected_names import (
    ASKED,
    COMMAND_NAMES,
    HIDDEN,
    INSTALLED,
    NOT_SEARCHED,
    READ_ONLY,
    SHOWN,
    Kind,
    NameTable,
)
from lyra.sandbox.protection.protected_places import NOTHING, Places, is_in_use, places_in

__all__ = ["HIDDEN", "READ_ONLY", "News", "ProtectedPaths", "find", "find_appeared", "hold_links", "is_protected"]

_ENVIRONMENTS: Final = (".venv", "venv")
_AT_ONCE: Final = 2_000  # entries of one folder before the others are searched, so that many files cannot hide one
_KNOWN_MAX: Final = 64
_OUTSIDE_MAX: Final = 1_000  # entries of folders outside that protected links lead to
_PASSES_MAX: Final = 16  # of renaming what has appeared, which may have other such folders in it
_log: Final = logging.getLogger("lyra.sandbox")


@dataclass(frozen=True, slots=True)
class ProtectedPaths:
    """Protected paths below a workspace, relative to it; `complete` is False when the search was cut short."""

    read_only: tuple[str, ...]
    hidden: tuple[str, ...]
    links: tuple[str, ...]  # protected names that are symlinks: their targets are protected, the links are not
    complete: bool = True
    entries: int = 0  # number of entries searched
    also: tuple[tuple[str, ProtectedPaths], ...] = ()  # the protected paths of each other writable folder
    leads: tuple[LinkTarget, ...] = ()  # the targets of those `links` that lead inside
    unread: tuple[str, ...] = ()  # folders that cannot be searched; each is hidden, except the root ("")
    reopened: tuple[str, ...] = ()  # folders closed since the search before, and opened again
    absent: tuple[str, ...] = ()  # protected places that do not exist; a command may not make them
    repositories: tuple[str, ...] = ()  # the HEADs of folders that are git repositories without a `.git`
    environments: tuple[str, ...] = ()  # Python environments, as absolute paths
    linked: tuple[LinkedFolder, ...] = ()  # links by which programs come to files that they obey
    missing_targets: tuple[str, ...] = ()  # protected links lead to them, and they do not exist
    has_places: bool = True  # whether protected places lie in the folder at all; no command can bring one there

    def all(self) -> frozenset[str]:
        others = (f"{root}/{path}" for root, inside in self.also for path in inside.all())
        return frozenset((*self.read_only, *self.hidden, *self.links, *others))

    def all_links(self) -> frozenset[str]:
        return frozenset((*self.links, *(f"{root}/{path}" for root, inside in self.also for path in inside.links)))

    def all_unread(self) -> frozenset[str]:
        others = (f"{root}/{path}".rstrip("/") for root, inside in self.also for path in inside.unread)
        return frozenset((*self.unread, *others))

    def all_environments(self) -> tuple[str, ...]:
        return (*self.environments, *(path for _, inside in self.also for path in inside.environments))


class News(NamedTuple):
    """Protected paths that a command changed: new ones, the new names of those that were renamed, links that it removed
    or changed and that were restored, and folders that it closed."""

    appeared: tuple[str, ...] = ()
    set_aside: tuple[str, ...] = ()
    put_back: tuple[str, ...] = ()
    reopened: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()  # folders that could not be searched before, and were shown empty
    complete: bool = True  # False: there is more than the search has seen


class _Search:
    """One search of a workspace."""

    def __init__(self, profile: Profile, most: int, before: ProtectedPaths | None = None) -> None:
        self.profile = profile
        self.before = before
        self.others: Sequence[_Search] = ()  # the searches of all folders that the command may write
        self.unread: list[str] = []
        self.reopened: list[str] = []
        self.read_only: list[str] = []
        self.hidden: list[str] = []
        self.links: list[str] = []
        self.leads: list[LinkTarget] = []
        self.plain_links: list[str] = []  # links whose names are not protected
        self.linked: list[LinkedFolder] = []
        self.missing_targets: list[str] = []
        self.obeyed_folders: list[str] = []  # folders whose links are obeyed, and that the search has not seen as such
        self.ways: list[str] = []  # paths with links in them by which programs come to files that they obey
        self.environments: list[str] = []
        self.dot_git: list[str] = []
        self.git_parts: dict[str, dict[str, str]] = {}  # folder → names there that repositories have, by lower case
        self.left = most
        self.names = _table(profile.protected, profile.hidden)
        deny = profile.grant.deny if profile.grant else ()
        self.grant = profile.grant if any(cap.name == "*" or cap.name.startswith("fs.") for cap in deny) else None

    def look(self) -> None:
        """Search near folders first; a folder with very many entries is continued after all others."""
        workspace = self.profile.workspace
        start = len(workspace.rstrip("/")) + 1
        waiting = deque([(workspace, self.names.beside(os.path.basename(workspace)), False)])
        large: deque[tuple[str, Mapping[str, Kind], Iterator[FolderEntry], bool]] = deque()
        entries: Iterable[FolderEntry]
        while waiting or large:
            if waiting:
                path, beside, is_obeyed = waiting.popleft()
                names = recall_names(path) or self.list_folder(path, path[start:])
                if names.count > _AT_ONCE:
                    large.append((path, beside, names.entries(path), is_obeyed))
                    continue
                count, entries = names.count, self.choose(names, path, beside)
            else:
                path, beside, rest, is_obeyed = large.popleft()
                entries = part = list(islice(rest, _AT_ONCE))
                count = len(part)
                if count == _AT_ONCE:
                    large.append((path, beside, rest, is_obeyed))
            self.left -= count
            if self.left < 0:
                return
            relative = f"{path[start:]}/" if path != workspace else ""
            plain = self.names.known if self.grant is None and not beside else {}
            for entry in entries:
                name = entry.name
                if name in _SHAPE:
                    self.git_parts.setdefault(relative, {})[name.lower()] = name
                kind = None
                if plain.get(name, "?") is not None:  # most names are known not to be protected, and not judged again
                    kind = self.judge(entry, f"{relative}{name}", beside)
                    if kind == "hidden":
                        if entry.is_folder and self.is_obeyed(f"{relative}{name}"):
                            self.obeyed_folders.append(entry.path)
                        continue
                if entry.is_folder:
                    if self.opens(entry):
                        obeyed = is_obeyed or (kind is not None and self.names.kind(name, beside) is not None)
                        waiting.append((entry.path, self.names.beside(name), obeyed))
                elif kind is None and entry.is_link:
                    if name not in NOT_SEARCHED:
                        self.plain_links.append(f"{relative}{name}")
                    if is_obeyed:
                        self.inner_link(entry.path)

    def opens(self, entry: FolderEntry) -> bool:
        """Return whether a folder is searched."""
        if entry.name not in NOT_SEARCHED:
            return True
        if entry.name not in INSTALLED:
            return False
        if entry.name in _ENVIRONMENTS:
            self.environments.append(entry.path)
        if os.path.lexists(f"{entry.path}/HEAD"):  # the folder itself may be a repository
            with suppress(OSError):
                there = {name.lower(): name for name in os.listdir(entry.path) if name in _SHAPE}
                self.git_parts[f"{os.path.relpath(entry.path, self.profile.workspace)}/"] = there
        return False

    def list_folder(self, path: str, relative: str) -> FolderNames:
        """List a folder. One that cannot be listed or entered goes to `unread`: its owner can open it again, and in a
        folder that can be entered files are readable by name."""
        try:
            if os.access(path, os.R_OK | os.X_OK, effective_ids=True) or self.open_again(relative):
                return list_names(path, os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), most=self.left)
            self.unread += [relative] if os.path.lexists(path) else []
        except (FileNotFoundError, NotADirectoryError):
            pass  # gone meanwhile
        except OSError:
            self.unread.append(relative)
        return FolderNames()

    def choose(self, names: FolderNames, path: str, beside: Mapping[str, Kind]) -> Iterable[FolderEntry]:
        """Return the entries that have to be looked at. Which files can be passed over, the table of names says."""
        if self.grant is not None or beside:
            return names.entries(path)
        chosen: tuple[FolderEntry, ...] | None = names.notes.get(self.names)
        if chosen is None:
            kind = self.names.kind
            chosen = names.notes[self.names] = tuple(
                entry
                for entry in names.entries(path)
                if entry.is_folder or entry.is_link or entry.name in _SHAPE or kind(entry.name) is not None
            )
        return chosen

    def open_again(self, relative: str) -> bool:
        """Open a folder again that was open before the command; one that was closed before stays closed."""
        if self.before is None or relative in self.before.unread or not reopen(self.profile.workspace, relative):
            return False
        self.reopened.append(relative or ".")
        return True

    def judge(self, entry: FolderEntry, relative: str, beside: Mapping[str, Kind]) -> Kind | None:
        kind = self.kind(entry.name, entry.path, beside)
        if kind is None:
            return None
        if entry.name == ".git":
            self.dot_git.append(entry.path)
        if entry.is_link:
            self.link(entry.path, relative, kind)
        else:
            (self.hidden if kind == "hidden" else self.read_only).append(relative)
        return kind

    def kind(self, name: str, path: str, beside: Mapping[str, Kind]) -> Kind | None:
        kind = self.names.kind(name, beside)
        grant = self.grant
        if kind is not None or grant is None or name in SHOWN:
            return kind
        if not grant.allows(Capability("fs.read", path)):
            return "hidden"
        return "read_only" if self.profile.writable and not grant.allows(Capability("fs.write", path)) else None

    def kind_of_path(self, relative: str) -> Kind | None:
        """Return the kind of a path by its name and the Grant."""
        above, _, name = f"{self.profile.workspace}/{relative}".rpartition("/")
        return self.kind(name, f"{above}/{name}", self.names.beside(os.path.basename(above)))

    def repositories(self) -> list[str]:
        """Return the HEAD of each folder that is a git repository by its shape."""
        return sorted(f"{folder}{parts[HEAD]}" for folder, parts in self.git_parts.items() if is_repository(parts))

    def add_places(self, places: Places) -> list[str]:
        """Add what is protected because of where it lies, or because settings of git name it, those of repositories in
        the other searched folders too. Gives the paths that do not exist."""
        root = self.profile.workspace
        missing: list[str] = []
        named = NOTHING  # after a command the settings may be those of a repository that it has made
        if self.before is None:
            beside = [search.profile.workspace for search in self.others if search is not self]
            named = find_named_places(root, [path for search in self.others for path in search.git_folders()], beside)
        for group in (places, named):
            self.read_only += group.read_only
            self.hidden += group.hidden
            missing += [path for path in group.missing if not os.path.islink(f"{root}/{path}")]  # a circular link
            for relative in group.links:
                self.links.append(relative)
                with suppress(OSError):
                    self.leads.append(LinkTarget(relative, os.readlink(f"{root}/{relative}"), ""))
        return missing

    def git_folders(self) -> list[str]:
        """Return every `.git`, and the folders that are repositories by their shape."""
        root = self.profile.workspace
        bare = (folder for folder, parts in self.git_parts.items() if is_repository(parts))
        return [*self.dot_git, *(f"{root}/{folder}".rstrip("/") for folder in bare)]

    def protect(self, path: str, kind: Kind) -> None:
        """Protect a path, in whichever of the searched folders it lies."""
        for search in self.others or (self,):
            root = search.profile.workspace.rstrip("/") + "/"
            if path.startswith(root):
                (search.hidden if kind == "hidden" else search.read_only).append(path[len(root) :])

    def link(self, path: str, relative: str, kind: Kind) -> None:
        """Protect what a protected link leads to, and remember where it leads."""
        self.links.append(relative)
        root = self.profile.workspace.rstrip("/") + "/"
        target = os.path.realpath(path)
        is_inside, exists = target.startswith(root), os.path.lexists(target) and not os.path.islink(target)
        if exists:
            self.protect(target, kind)
        if self.is_obeyed(relative):
            self.lead(path, target, exists=exists)
        with suppress(OSError):
            there = target[len(root) :] if is_inside and exists else ""
            self.leads.append(LinkTarget(relative, os.readlink(path), there))

    def inner_link(self, path: str) -> None:
        """Protect the target of a link in a folder of a protected name. The link itself is read-only with the folder,
        or the folder is new and is renamed as a whole. Installed packages are not protected by a link of their name:
        `.husky/node_modules -> ../node_modules`."""
        target, exists = real_path(path)
        if os.path.basename(path) in INSTALLED and os.path.basename(target) in INSTALLED:
            return
        if exists:
            self.protect(target, "read_only")
        self.lead(path, target, exists=exists)

    def lead(self, path: str, target: str, *, exists: bool) -> None:
        """Note what else an obeyed link makes obeyed. After a command nothing is noted: what it has made is renamed."""
        if self.before is not None:
            return
        self.ways.append(path)
        if exists:
            self.obeyed_folders.append(target)
        elif not os.path.islink(target):  # a circular link is its own target
            self.missing_targets.append(target)

    def follow_obeyed(self, roots: Sequence[str]) -> None:
        """Protect what links lead to in the folders that obeyed links lead to. Such a folder that contains a searched
        one is passed over: `.vscode/root -> ..`."""
        seen: set[str] = set()
        inside, outside = tuple(f"{root.rstrip('/')}/" for root in roots), _OUTSIDE_MAX
        while self.obeyed_folders:
            folder = self.obeyed_folders.pop()
            if folder in seen or any(root.startswith(f"{folder.rstrip('/')}/") for root in inside):
                continue
            seen.add(folder)
            for entry in _entries(folder):
                if folder.startswith(inside):
                    self.left -= 1
                else:
                    outside -= 1
                if self.left < 0 or outside < 0:
                    return
                if entry.is_symlink():
                    self.inner_link(entry.path)
                elif entry.is_dir(follow_symlinks=False) and entry.name not in NOT_SEARCHED:
                    self.obeyed_folders.append(entry.path)

    def hold_ways(self) -> None:
        """Remember the links in the middle of the `ways`, which are restored after a command that has changed them."""
        middle = dict.fromkeys(link for path in self.ways for link in links_on_the_way(path) if link != path)
        for search in self.others:
            root = search.profile.workspace.rstrip("/") + "/"
            for path in middle:
                relative = path[len(root) :] if path.startswith(root) else ""
                if relative and relative not in search.links:
                    with suppress(OSError):
                        search.leads.append(LinkTarget(relative, os.readlink(path), ""))
                        search.links.append(relative)

    def follow_links(self, follower: LinkFollower) -> None:
        """Follow the links to folders that have names of a table in them, or lie among installed packages."""
        root = self.profile.workspace
        for relative in self.plain_links:
            linked = follower.follow(root, relative)
            if linked is None:
                continue
            self.linked.append(linked)
            beside = self.names.beside(relative.rpartition("/")[2])
            with suppress(OSError):  # the target does not exist, or cannot be listed
                for name in os.listdir(linked.target) if beside else ():
                    kind = beside.get(name.lower())
                    if kind is not None:
                        self.protect(os.path.realpath(f"{linked.target}/{name}"), kind)
                        self.ways += [f"{linked.target}/{name}"] if self.before is None else []

    def is_obeyed(self, relative: str) -> bool:
        """Return whether a path is obeyed because of its name or the Grant; one that is only a key is not."""
        kind = self.kind_of_path(relative)
        if kind != "hidden":
            return kind == "read_only"
        above, _, name = f"{self.profile.workspace}/{relative}".rpartition("/")
        return OBEYED.kind(name, OBEYED.beside(os.path.basename(above))) is not None

    def places(self) -> Places:
        """Return what is protected here because of where it lies."""
        return places_in(self.profile.workspace) if self.before is None or self.before.has_places else NOTHING


def find(
    profile: Profile, *, most: int | None = None, before: ProtectedPaths | None = None, places: Places | None = None
) -> ProtectedPaths:
    """Return every protected path in the workspace and in the other writable folders; in each at most `most` entries
    are searched. With the result `before` a command, folders that were closed since are opened again. `places` are
    those of the workspace, where the caller has looked for them just now."""
    limit = SANDBOX_SCAN_ENTRIES_MAX if before is None else SANDBOX_SCAN_AFTER_MAX
    most = min(most or limit, limit)
    earlier = dict(before.also) if before is not None else {}
    searches = [_Search(profile, most, before)]
    for root in profile.writable_also:
        searches += [_Search(_alone(profile, root), most, earlier.get(root))] if os.path.isdir(root) else []
    for search in searches:
        search.others = searches
        search.look()
    roots = [search.profile.workspace for search in searches]
    for search in searches:
        search.follow_obeyed(roots)
    complete = all(search.left >= 0 for search in searches)
    results = []
    for search in searches:
        if complete or before is not None:  # else the caller searches again, or runs no command
            search.follow_links(LinkFollower(roots))
        here = places if search is searches[0] and places is not None else search.places()
        results.append((search, search.add_places(here), here is not NOTHING))
    for search in searches:
        search.hold_ways()
    first, *also = [_result(search, most, absent, has_places=has) for search, absent, has in results]
    others = tuple(zip(roots[1:], also, strict=True))
    return replace(
        first,
        complete=complete,
        entries=sum(inside.entries for inside in (first, *also)),
        also=others,
        reopened=(*first.reopened, *(f"{root}/{path}" for root, inside in others for path in inside.reopened)),
    )


def _result(search: _Search, most: int, absent: list[str], *, has_places: bool) -> ProtectedPaths:
    """Return the protected paths of one folder after its search, with those that a profile names and those of
    before."""
    profile = search.profile
    no_write, no_read = _list_denied(profile, "fs.write"), _list_denied(profile, "fs.read")
    for paths, into in ((profile.protected + no_write, search.read_only), (profile.hidden + no_read, search.hidden)):
        for path in (path for path in paths if "/" in path):
            real = os.path.realpath(os.path.join(profile.workspace, path))
            root = profile.workspace.rstrip("/") + "/"
            if real.startswith(root) and os.path.lexists(real):
                into.append(real[len(root) :])
    _remember(profile, search)
    repositories = search.repositories() if search.git_parts else []
    search.read_only += [path for head in repositories for path in _repository_paths(profile.workspace, head)]
    unread = tuple(search.unread)
    hidden = _outermost([*search.hidden, *filter(None, unread)])
    is_hidden = frozenset(hidden)
    read_only = [path for path in _outermost(search.read_only) if path not in is_hidden]
    return ProtectedPaths(
        tuple(read_only),
        tuple(hidden),
        tuple(search.links),
        search.left >= 0,
        most - search.left,
        leads=tuple(search.leads),
        unread=unread,
        reopened=tuple(search.reopened),
        absent=tuple(absent),
        repositories=tuple(repositories),
        environments=tuple(search.environments),
        linked=tuple(search.linked),
        missing_targets=tuple(search.missing_targets),
        has_places=has_places,
    )


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    """Yield the entries of a folder; none of a file, or of a folder that cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except OSError:
        return


def _repository_paths(root: str, head: str) -> list[str]:
    """Return the folder of a repository; where that is the workspace, the parts of it that git reads."""
    folder = head.rpartition("/")[0]
    return [folder] if folder else [part for part in PARTS if os.path.lexists(f"{root}/{part}")]


# Paths that were protected once, by workspace and by what its profile protects besides the usual names.
_known: Final[dict[object, tuple[frozenset[str], frozenset[str]]]] = {}
_NOTHING_KNOWN: Final[tuple[frozenset[str], frozenset[str]]] = (frozenset(), frozenset())


def _remember(profile: Profile, search: _Search) -> None:
    """Add the existing paths that earlier searches found, and keep all for the next search."""
    deny = profile.grant.deny if profile.grant else ()
    key = (profile.workspace, profile.writable, profile.protected, profile.hidden, tuple(map(str, deny)))
    for paths, into in zip(_known.pop(key, _NOTHING_KNOWN), (search.read_only, search.hidden), strict=True):
        into += [path for path in paths.difference(into) if _is_there(profile.workspace, path)]
    _known[key] = (frozenset(search.read_only), frozenset(search.hidden))
    if len(_known) > _KNOWN_MAX:
        del _known[next(iter(_known))]


def _is_there(root: str, path: str) -> bool:
    """Return whether the path exists without a symlink in it, which would lead to another file."""
    full = os.path.join(root, path)
    return os.path.lexists(full) and os.path.realpath(full) == full


_SHAPE: Final = frozenset(name for part in SHAPE for name in (part, part.upper(), part.capitalize()))


@lru_cache(maxsize=64)
def _table(protected: tuple[str, ...], hidden: tuple[str, ...]) -> NameTable:
    """Return the usual names and those that a profile adds; its paths are no names."""
    more = [name for name in protected if "/" not in name], [name for name in hidden if "/" not in name]
    return NameTable((*READ_ONLY, *ASKED, *more[0]), (*HIDDEN, *more[1])) if any(more) else COMMAND_NAMES


def _alone(profile: Profile, root: str) -> Profile:
    """Return the profile with that folder as its workspace; its other paths stay as they were resolved."""
    alone = copy(profile)
    for name, value in (("workspace", root), ("writable", True), ("writable_also", ())):
        object.__setattr__(alone, name, value)
    return alone


def _list_denied(profile: Profile, name: str) -> tuple[str, ...]:
    """Return paths that deny rules name without a wildcard, however deep they lie."""
    deny = profile.grant.deny if profile.grant else ()
    roots = [cap.scope.removesuffix("/**") for cap in deny if cap.name in (name, "fs.*")]
    return tuple(root for root in roots if root.startswith("/") and "*" not in root)


def _outermost(paths: list[str]) -> list[str]:
    """Return the paths without those inside another of them."""
    known = set(paths)
    return sorted(path for path in known if not any(outer in known for outer in _above(path)))


def _above(path: str) -> Iterator[str]:
    """Yield the folders above a path, the outermost first."""
    end = path.find("/")
    while end >= 0:
        yield path[:end]
        end = path.find("/", end + 1)


def is_protected(name: str) -> bool:
    """Return whether a file or folder of this name may not be written by a command."""
    return COMMAND_NAMES.kind(name) is not None


def hold_links(profile: Profile, protected: ProtectedPaths) -> list[Callable[[], None]]:
    """Remember where links lead while a command runs; call the returned functions when it has ended."""
    folders = [(profile.workspace, protected)] if profile.writable else []
    return [hold(root, inside.leads) for root, inside in (*folders, *protected.also)]


def find_appeared(
    profile: Profile,
    before: ProtectedPaths,
    *,
    most: int | None = None,
    is_suspect: Callable[[str], bool] | None = None,
) -> News:
    """Find protected names that are new after the command, or have become links; rename those that programs would act
    on. New keys stay: the next command cannot read them. Closed folders are opened and changed links restored first. In
    a folder that could not be searched before, nothing counts as new. With `most` the search ends after so many entries
    and renames nothing then: the result is not `complete`. With `is_suspect` only paths of which it is true are
    renamed."""
    folders = [(profile.workspace, "")] if profile.writable else []
    folders += [(root, f"{root}/") for root in profile.writable_also]
    if not folders:
        return News(unread=tuple(sorted(before.all_unread())))
    now = find(profile, before=before, most=most)
    reopened = now.reopened
    if most is not None and not now.complete:
        return News(reopened=reopened, complete=False)
    back: list[str] = []
    held: list[str] = []
    for root, prefix in folders:
        restored, moved = put_back(root)
        back += [f"{prefix}{path}" for path in restored]
        held += [f"{prefix}{path}" for path in moved]
    if back or held:
        now = find(profile, before=before)
    new = _new(before, now)
    told = {path for path in new if not is_placeholder(os.path.join(profile.workspace, path))}
    told |= {path.removeprefix(f"{profile.workspace}/") for path in _by_links(folders, before, now)}
    for _ in range(_PASSES_MAX):
        moved = []
        linked = _by_links(folders, before, now) - {os.path.join(profile.workspace, path) for path in held}
        for root, prefix in folders:
            inside = [path[len(prefix) :] for path in new if path.startswith(prefix or "/") is bool(prefix)]
            forbidden = _forbidden(
                profile, root, sorted(inside), _find_protected(before, prefix), _find_protected(now, prefix)
            )
            forbidden += [path[len(root) + 1 :] for path in sorted(linked) if path.startswith(f"{root}/")]
            forbidden = [path for path in forbidden if is_suspect is None or is_suspect(f"{root}/{path}")]
            moved += [f"{prefix}{path}" for path in set_aside(root, forbidden)] if forbidden else []
        if not moved:
            break
        held += moved
        now = find(profile, before=before)  # a folder that was renamed may have others in it, which were not searched
        new = _new(before, now)
    if held:  # the log names it, because the user may have made it while the command ran
        _log.warning("renamed in %s, since it came while a command ran: %s", ascii(profile.workspace), held[:10])
    unread = tuple(sorted(before.all_unread()))
    return News(tuple(sorted(told)), tuple(held), tuple(back), reopened, unread, now.complete and not moved)


def _new(before: ProtectedPaths, now: ProtectedPaths) -> frozenset[str]:
    new = (now.all() - before.all()) | (now.all_links() - before.all_links())
    # The other parts of a workspace that a command has made a repository: they are harmless without its HEAD.
    is_new = any("/" not in head for head in now.repositories if head not in before.repositories)
    return frozenset(
        _outside(new - (frozenset(PARTS) - {"HEAD"} if is_new else frozenset()), before.all_unread() | now.all_unread())
    )


def _by_links(folders: list[tuple[str, str]], before: ProtectedPaths, now: ProtectedPaths) -> set[str]:
    """Whole paths that count as new because of links to folders, and targets of protected links that did not exist."""
    paths: set[str] = set()
    for root, prefix in folders:
        was = _find_protected(before, prefix)
        paths |= {*new_by_links(root, was.linked, _find_protected(now, prefix).linked)}
        paths |= {_came_by(path) for path in was.missing_targets if os.path.lexists(path)}
    return paths


def _came_by(path: str) -> str:
    """Return what a command has made so that a path exists which had no link in it before: the first link on the way,
    or the path itself."""
    return next(links_on_the_way(path), path)


def _find_protected(protected: ProtectedPaths, prefix: str) -> ProtectedPaths:
    """Return the protected paths of one of the folders."""
    return dict(protected.also).get(prefix.rstrip("/"), protected) if prefix else protected


def _forbidden(profile: Profile, root: str, new: list[str], before: ProtectedPaths, now: ProtectedPaths) -> list[str]:
    """Return the paths of a folder that are renamed: the HEAD of a new repository, new paths that programs obey by
    their names, and protected places that did not exist."""
    named = []
    if new:
        search = _Search(_alone(profile, root), 0)
        named = [path for path in new if search.is_obeyed(path)]
        named = [path for path in named if not is_placeholder(f"{root}/{path}")]
    new_places = [_came_by(f"{root}/{path}") for path in before.absent if os.path.lexists(f"{root}/{path}")]
    places = [path[len(root) + 1 :] for path in new_places if not is_in_use(path)]
    heads = [head for head in now.repositories if head not in before.repositories]
    return list(dict.fromkeys([*heads, *named, *places]))


def _outside(paths: Iterable[str], folders: frozenset[str]) -> Iterator[str]:
    """Yield the paths in none of these folders; the folder "" is the workspace."""
    for path in paths:
        if not any(path == root or path.startswith(f"{root}/" if root else "") for root in folders):
            yield path
