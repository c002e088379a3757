"""Paths inside a workspace that a command may not change, and those it may not even read.

The names are two short tables: what later runs programs on the user's behalf (hooks, editor tasks, Lyra's own folder)
stays read-only, what holds keys is hidden. `find` searches the whole tree except for folders of installed packages,
near folders first, within bounds and without following a symlink; `complete` is False when it had to stop early. A
folder that cannot be searched is hidden as a whole, and one whose permissions a command removed is opened again
afterwards. A path that was protected once stays protected for this process, even where a command has slowed the search
or changed a link that led there (`protected_links` restores it). Paths that do not exist yet cannot be protected in
advance; `appeared` finds new ones after a command, and `forbidden_names` renames them.
"""

from __future__ import annotations

import logging
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple

from lyra.core.limits import SANDBOX_SCAN_ENTRIES_MAX
from lyra.core.rights.capability import Capability
from lyra.sandbox.forbidden_names import set_aside
from lyra.sandbox.paths import reopen
from lyra.sandbox.profile import Profile
from lyra.sandbox.protected_links import LinkTarget, hold, put_back

__all__ = ["HIDDEN", "READ_ONLY", "News", "ProtectedPaths", "appeared", "find", "hold_links", "is_protected"]

READ_ONLY: Final = (
    *(".git", ".hg", ".svn", ".gitmodules", ".gitattributes", ".gitconfig", ".lyra", "lyra.toml", ".mcp.json"),
    *(".vscode", ".idea", ".envrc", ".husky", ".pre-commit-config.yaml", ".bashrc", ".zshrc", ".profile"),
    *(".bash_profile", ".zprofile"),
)
HIDDEN: Final = (
    *(".env", ".env.*", "*.pem", "*.key", "*.p12", "*.pfx", "*.kdbx", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519"),
    *(".ssh", ".aws", ".azure", ".gnupg", ".kube", ".netrc", ".pypirc", ".git-credentials", ".docker"),
    *("credentials.json", "service-account*.json", ".vault-token"),
)
_SHOWN: Final = (".env.example", ".env.sample", ".env.template", ".env.dist")  # examples without keys
# Installed packages: their keys are examples, and no file of the user can be moved there.
_NOT_SEARCHED: Final = frozenset({"node_modules", ".venv", "venv", "__pycache__", ".tox"})
_AT_ONCE: Final = 2_000  # entries of one folder before the others are searched, so that many files cannot hide one
_KNOWN_MAX: Final = 64
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

    def all(self) -> frozenset[str]:
        others = (f"{root}/{path}" for root, inside in self.also for path in inside.all())
        return frozenset((*self.read_only, *self.hidden, *self.links, *others))

    def all_links(self) -> frozenset[str]:
        return frozenset((*self.links, *(f"{root}/{path}" for root, inside in self.also for path in inside.links)))

    def all_unread(self) -> frozenset[str]:
        others = (f"{root}/{path}".rstrip("/") for root, inside in self.also for path in inside.unread)
        return frozenset((*self.unread, *others))


class News(NamedTuple):
    """Protected paths that a command changed: new ones, the new names of those that were renamed, links that it removed
    or changed and that were restored, and folders that it closed."""

    appeared: tuple[str, ...] = ()
    set_aside: tuple[str, ...] = ()
    put_back: tuple[str, ...] = ()
    reopened: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()  # folders that could not be searched before, and were shown empty


class _Search:
    """One search of a workspace."""

    def __init__(self, profile: Profile, most: int, before: ProtectedPaths | None = None) -> None:
        self.profile = profile
        self.before = before
        self.unread: list[str] = []
        self.reopened: list[str] = []
        self.read_only: list[str] = []
        self.hidden: list[str] = []
        self.links: list[str] = []
        self.leads: list[LinkTarget] = []
        self.left = most
        self.shut = _names((*HIDDEN, *(name for name in profile.hidden if "/" not in name)))
        self.kept = _names((*READ_ONLY, *(name for name in profile.protected if "/" not in name)))
        deny = profile.grant.deny if profile.grant else ()
        self.grant = profile.grant if any(cap.name == "*" or cap.name.startswith("fs.") for cap in deny) else None

    def look(self) -> None:
        """Search near folders first; a folder with very many entries is continued after all others."""
        waiting = deque([("", self.entries(self.profile.workspace, ""))])
        large: deque[tuple[str, Iterator[os.DirEntry[str]]]] = deque()
        while waiting or large:
            relative, entries = waiting.popleft() if waiting else large.popleft()
            count = 0
            for entry in islice(entries, _AT_ONCE):
                count += 1
                self.left -= 1
                if self.left < 0:
                    return
                name = f"{relative}{entry.name}"
                if not self.judge(entry, name) and self.opens(entry):
                    waiting.append((f"{name}/", self.entries(entry.path, name)))
            if count == _AT_ONCE:
                large.append((relative, entries))

    def opens(self, entry: os.DirEntry[str]) -> bool:
        return entry.is_dir(follow_symlinks=False) and entry.name not in _NOT_SEARCHED

    def entries(self, path: str, relative: str) -> Iterator[os.DirEntry[str]]:
        """The entries of a folder. One that cannot be listed or entered goes to `unread`: its owner can open it again,
        and in a folder that can be entered files are readable by name."""
        try:
            if not os.access(path, os.R_OK | os.X_OK, effective_ids=True) and not self.open_again(relative):
                self.unread += [relative] if os.path.lexists(path) else []
                return
            with os.scandir(path) as entries:
                yield from entries
        except (FileNotFoundError, NotADirectoryError):
            return  # gone meanwhile
        except OSError:
            self.unread.append(relative)

    def open_again(self, relative: str) -> bool:
        """Open a folder again that was open before the command; one that was closed before stays closed."""
        if self.before is None or relative in self.before.unread or not reopen(self.profile.workspace, relative):
            return False
        self.reopened.append(relative or ".")
        return True

    def judge(self, entry: os.DirEntry[str], relative: str) -> bool:
        kind = self.kind(entry.name, entry.path)
        if kind is None:
            return False
        if entry.is_symlink():
            self.link(entry.path, relative, kind)
        else:
            (self.hidden if kind == "hidden" else self.read_only).append(relative)
        return True

    def kind(self, name: str, path: str) -> str | None:
        if self.shut(name) and name not in _SHOWN:
            return "hidden"
        if self.kept(name) and name not in _SHOWN:
            return "read_only"
        grant = self.grant
        if grant is None or name in _SHOWN:
            return None
        if not grant.allows(Capability("fs.read", path)):
            return "hidden"
        return "read_only" if self.profile.writable and not grant.allows(Capability("fs.write", path)) else None

    def link(self, path: str, relative: str, kind: str) -> None:
        self.links.append(relative)
        root = self.profile.workspace.rstrip("/") + "/"
        target = os.path.realpath(path)
        if target.startswith(root) and os.path.lexists(target):
            (self.hidden if kind == "hidden" else self.read_only).append(target[len(root) :])
            with suppress(OSError):
                self.leads.append(LinkTarget(relative, os.readlink(path), target[len(root) :]))


def find(profile: Profile, *, most: int | None = None, before: ProtectedPaths | None = None) -> ProtectedPaths:
    """Every protected path in the workspace and in the other writable folders; in each at most `most` entries are
    searched. With the result `before` a command, folders that were closed since are opened again."""
    most = min(most or SANDBOX_SCAN_ENTRIES_MAX, SANDBOX_SCAN_ENTRIES_MAX)
    folders = (root for root in profile.writable_also if os.path.isdir(root))
    earlier = dict(before.also) if before is not None else {}
    also = tuple((root, find(_alone(profile, root), most=most, before=earlier.get(root))) for root in folders)
    search = _Search(profile, most, before)
    search.look()
    no_write, no_read = _denied(profile, "fs.write"), _denied(profile, "fs.read")
    for paths, into in (
        (profile.protected + no_write, search.read_only),
        (profile.hidden + no_read, search.hidden),
    ):
        for path in (path for path in paths if "/" in path):
            real = os.path.realpath(os.path.join(profile.workspace, path))
            root = profile.workspace.rstrip("/") + "/"
            if real.startswith(root) and os.path.lexists(real):
                into.append(real[len(root) :])
    _remember(profile, search)
    unread = tuple(search.unread)
    hidden = _outermost([*search.hidden, *filter(None, unread)])
    read_only = [path for path in _outermost(search.read_only) if path not in hidden]
    complete = search.left >= 0 and all(inside.complete for _, inside in also)
    entries = most - search.left + sum(inside.entries for _, inside in also)
    return ProtectedPaths(
        tuple(read_only),
        tuple(hidden),
        tuple(search.links),
        complete,
        entries,
        also,
        leads=tuple(search.leads),
        unread=unread,
        reopened=(*search.reopened, *(f"{root}/{path}" for root, inside in also for path in inside.reopened)),
    )


# Paths that were protected once, by workspace and by what its profile protects besides the usual names.
_known: Final[dict[object, tuple[frozenset[str], frozenset[str]]]] = {}


def _remember(profile: Profile, search: _Search) -> None:
    """Add the existing paths that earlier searches found, and keep all for the next search."""
    deny = profile.grant.deny if profile.grant else ()
    key = (profile.workspace, profile.writable, profile.protected, profile.hidden, tuple(map(str, deny)))
    for paths, into in zip(_known.pop(key, ((), ())), (search.read_only, search.hidden), strict=True):
        into += [path for path in paths if path not in into and _is_there(profile.workspace, path)]
    _known[key] = (frozenset(search.read_only), frozenset(search.hidden))
    if len(_known) > _KNOWN_MAX:
        del _known[next(iter(_known))]


def _is_there(root: str, path: str) -> bool:
    """Whether the path exists without a symlink in it, which would lead to another file."""
    full = os.path.join(root, path)
    return os.path.lexists(full) and os.path.realpath(full) == full


@lru_cache(maxsize=64)
def _names(patterns: tuple[str, ...]) -> Callable[[str], object]:
    return re.compile("|".join(map(translate, patterns))).match


def _alone(profile: Profile, root: str) -> Profile:
    """The profile with that folder as its workspace; its other paths stay as they were resolved."""
    alone = copy(profile)
    for name, value in (("workspace", root), ("writable", True), ("writable_also", ())):
        object.__setattr__(alone, name, value)
    return alone


def _denied(profile: Profile, name: str) -> tuple[str, ...]:
    """Paths that deny rules name without a wildcard, however deep they lie."""
    deny = profile.grant.deny if profile.grant else ()
    roots = [cap.scope.removesuffix("/**") for cap in deny if cap.name in (name, "fs.*")]
    return tuple(root for root in roots if root.startswith("/") and "*" not in root)


def _outermost(paths: list[str]) -> list[str]:
    """The paths without those inside another of them."""
    kept: list[str] = []
    for path in sorted(set(paths)):
        if not any(path.startswith(outer + "/") for outer in kept):
            kept.append(path)
    return kept


def is_protected(name: str) -> bool:
    """Whether a file or folder of this name may not be written by a command."""
    return name not in _SHOWN and _names((*HIDDEN, *READ_ONLY))(name) is not None


def hold_links(profile: Profile, protected: ProtectedPaths) -> list[Callable[[], None]]:
    """Remember where links lead while a command runs; call the returned functions when it has ended."""
    if not profile.writable:
        return []
    folders = ((profile.workspace, protected), *protected.also)
    return [hold(root, inside.leads) for root, inside in folders]


def appeared(profile: Profile, before: ProtectedPaths) -> News:
    """Find protected names that are new after the command, or have become links; rename those that programs would act
    on. New keys stay: the next command cannot read them. Closed folders are opened and changed links restored first. In
    a folder that could not be searched before, nothing counts as new."""
    if not profile.writable:
        return News(unread=tuple(sorted(before.all_unread())))
    folders = ((profile.workspace, ""), *((root, f"{root}/") for root in profile.writable_also))
    now = find(profile, before=before)
    reopened = now.reopened
    back: list[str] = []
    held: list[str] = []
    for root, prefix in folders:
        restored, moved = put_back(root)
        back += [f"{prefix}{path}" for path in restored]
        held += [f"{prefix}{path}" for path in moved]
    if back or held:
        now = find(profile)
    new = (now.all() - before.all()) | (now.all_links() - before.all_links())
    new = frozenset(_outside(new, before.all_unread() | now.all_unread()))
    for root, prefix in folders if new else ():
        inside = sorted(path[len(prefix) :] for path in new if path.startswith(prefix or "/") is bool(prefix))
        search = _Search(_alone(profile, root), 0)
        acted_on = [path for path in inside if search.kind(path.rpartition("/")[2], f"{root}/{path}") == "read_only"]
        held += [f"{prefix}{path}" for path in set_aside(root, acted_on)]
    if held:  # the log names it, because the user may have made it while the command ran
        _log.warning("renamed in %s, since it came while a command ran: %s", ascii(profile.workspace), held[:10])
    return News(tuple(sorted(new)), tuple(held), tuple(back), reopened, tuple(sorted(before.all_unread())))


def _outside(paths: Iterable[str], folders: frozenset[str]) -> Iterator[str]:
    """The paths in none of these folders; the folder "" is the workspace."""
    for path in paths:
        if not any(path == root or path.startswith(f"{root}/" if root else "") for root in folders):
            yield path
