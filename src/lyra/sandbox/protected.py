"""Paths inside a workspace that a command may not change, and those it may not even read.

The names are two short tables: what later runs programs on the user's behalf (hooks, editor tasks, Lyra's own folder)
stays read-only, what holds keys is hidden. `find` looks for them a few folders deep, within bounds, by file
descriptor and without following a symlink; it says when it had to stop early. What did not exist when a command began
cannot be held shut; `appeared` tells afterwards what is new.
"""

from __future__ import annotations

import os
from copy import copy
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from lyra.core.capability import Capability
from lyra.core.limits import SANDBOX_SCAN_DEPTH_MAX, SANDBOX_SCAN_ENTRIES_MAX
from lyra.sandbox.profile import Profile

__all__ = ["HIDDEN", "READ_ONLY", "Found", "appeared", "find"]

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
_SHOWN: Final = (".env.example", ".env.sample", ".env.template", ".env.dist")  # made to be read
_NOT_SEARCHED: Final = frozenset({"node_modules", ".venv", "venv", "__pycache__", "target", "dist", "build", ".tox"})


@dataclass(frozen=True, slots=True)
class Found:
    """Protected paths below a workspace, relative to it; `complete` is False when the search was cut short."""

    read_only: tuple[str, ...]
    hidden: tuple[str, ...]
    links: tuple[str, ...]  # protected names that are symlinks: what they lead to is protected, the link is not
    complete: bool = True
    also: tuple[tuple[str, Found], ...] = ()  # the same for each other folder that may be written

    def all(self) -> frozenset[str]:
        others = (f"{root}/{path}" for root, found in self.also for path in found.all())
        return frozenset((*self.read_only, *self.hidden, *self.links, *others))

    def all_links(self) -> frozenset[str]:
        return frozenset((*self.links, *(f"{root}/{path}" for root, found in self.also for path in found.links)))


class _Search:
    """One look through a workspace."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.read_only: list[str] = []
        self.hidden: list[str] = []
        self.links: list[str] = []
        self.left = SANDBOX_SCAN_ENTRIES_MAX
        self.read_only_names = READ_ONLY + tuple(name for name in profile.protected if "/" not in name)
        self.hidden_names = HIDDEN + tuple(name for name in profile.hidden if "/" not in name)
        self.exact = frozenset(name for name in self.read_only_names if "*" not in name)

    def folder(self, path: str, relative: str, depth: int) -> None:
        try:
            entries = list(os.scandir(path))
        except OSError:
            return  # nobody can read it, so nothing in it can be read
        deeper: list[os.DirEntry[str]] = []
        for entry in entries:
            self.left -= 1
            if self.left < 0:
                return
            name = f"{relative}{entry.name}"
            if not self.judge(entry, name) and entry.is_dir(follow_symlinks=False) and entry.name not in _NOT_SEARCHED:
                deeper.append(entry)
        if depth > 1:
            for entry in deeper:
                self.folder(entry.path, f"{relative}{entry.name}/", depth - 1)

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
        if name in _SHOWN:
            return None
        if any(fnmatchcase(name, pattern) for pattern in self.hidden_names):
            return "hidden"
        if name in self.exact or any(fnmatchcase(name, pattern) for pattern in self.profile.protected):
            return "read_only"
        grant = self.profile.grant
        if grant is None:
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


def find(profile: Profile) -> Found:
    """Every protected path that is there now, in the workspace and in the other folders that may be written."""
    also = tuple((root, find(_alone(profile, root))) for root in profile.writable_also if os.path.isdir(root))
    search = _Search(profile)
    search.folder(profile.workspace, "", SANDBOX_SCAN_DEPTH_MAX)
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
    hidden = _outermost(search.hidden)
    read_only = [path for path in _outermost(search.read_only) if path not in hidden]
    complete = search.left >= 0 and all(found.complete for _, found in also)
    return Found(tuple(read_only), tuple(hidden), tuple(search.links), complete, also)


def _alone(profile: Profile, root: str) -> Profile:
    """As if that folder were the workspace; what was looked up when the profile was made stays."""
    made = copy(profile)
    for name, value in (("workspace", root), ("writable", True), ("writable_also", ())):
        object.__setattr__(made, name, value)
    return made


def _denied(profile: Profile, name: str) -> tuple[str, ...]:
    """Paths that deny rules name without a wildcard, however deep they lie."""
    deny = profile.grant.deny if profile.grant else ()
    roots = [cap.scope.removesuffix("/**") for cap in deny if cap.name in (name, "fs.*")]
    return tuple(root for root in roots if root.startswith("/") and "*" not in root)


def _outermost(paths: list[str]) -> list[str]:
    """Without those inside another one."""
    kept: list[str] = []
    for path in sorted(set(paths)):
        if not any(path.startswith(outer + "/") for outer in kept):
            kept.append(path)
    return kept


def appeared(profile: Profile, before: Found) -> tuple[str, ...]:
    """Protected names that were not there before the command, or are links now."""
    now = find(profile)
    return tuple(sorted((now.all() - before.all()) | (now.all_links() - before.all_links())))
