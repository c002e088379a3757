"""Git repositories that are told by their shape, and files of a working tree that a repository's settings name.

Git takes any folder for a repository that has a `HEAD` and beside it `objects` and `refs`, or a `commondir` that says
where those are; no `.git` is needed (a bare repository). From there it obeys `config`, which can name programs
("core.fsmonitor", "core.pager") that run at the next `git status` in that folder or below it. So the shape is looked
for, whatever the folder is called and in whatever order its parts came. A folder that lacks one of the parts harms
nothing: `HEAD` is the one that is taken away.

`obeyed_paths` reads a repository's own settings: hooks and included settings may lie in the working tree.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Final

__all__ = ["HEAD", "PARTS", "SHAPE", "is_repository", "made_repository", "obeyed_paths"]

HEAD: Final = "head"
SHAPE: Final = frozenset({HEAD, "objects", "refs", "commondir"})
# What git reads in a repository's folder; where that folder is a workspace, these stay as they are.
PARTS: Final = (
    *("HEAD", "objects", "refs", "commondir", "config", "config.worktree", "hooks", "info", "packed-refs", "index"),
    *("gitdir", "modules", "worktrees", "branches", "remotes", "shallow", "reftable", "logs", "common", "fsmonitor"),
)
_PARTS: Final = frozenset(part.lower() for part in PARTS)
_CONFIG_BYTES_MAX: Final = 1 << 20
_SECTION: Final = re.compile(r'\[\s*([\w.-]+)(?:\s+"[^"]*")?\s*\]')
_PROGRAMS: Final = ("core.hookspath", "core.fsmonitor")  # these start from the working tree
_NAMING: Final = (*_PROGRAMS, "core.attributesfile", "include.path", "includeif.path")
_VALUE: Final = re.compile(r"\s*([\w-]+)\s*=\s*(.*)")


def is_repository(names: Collection[str]) -> bool:
    """Whether a folder with entries of these names, in lower case, is a repository."""
    return HEAD in names and ("commondir" in names or ("objects" in names and "refs" in names))


def made_repository(root: str, path: str) -> str | None:
    """The folder below `root`, or `root` itself, that is a repository once `path` exists, or is one already."""
    folder = root.rstrip("/")
    for depth, name in enumerate(os.path.relpath(path, folder).split("/")):
        new = name.lower()
        counts = depth > 0 or new in _PARTS  # in the root itself other files may be written as before
        has_head = counts and (new == HEAD or os.path.lexists(f"{folder}/HEAD"))
        if has_head and is_repository({*_there(folder), new}):
            return folder or "/"
        folder = f"{folder}/{name}"
    return None


def _there(folder: str) -> Iterator[str]:
    for name in ("HEAD", "objects", "refs", "commondir"):
        if os.path.lexists(f"{folder}/{name}"):
            yield name.lower()


def obeyed_paths(dot_git: str) -> Iterator[str]:
    """Absolute paths that the settings of a repository name: folders of hooks, further settings, programs. `dot_git` is
    its `.git`, a folder or a file that says where that is; the settings of the user count for it, too."""
    folders = list(_folders(dot_git))
    if not folders or not os.path.lexists(f"{folders[0]}/HEAD"):
        return  # no repository, but a placeholder
    tree = os.path.dirname(dot_git)
    files = [(f"{folder}/{name}", folder) for folder in folders for name in ("config", "config.worktree")]
    home = os.path.expanduser("~")
    files += [(f"{home}/.gitconfig", home), (f"{home}/.config/git/config", f"{home}/.config/git")]
    for file, folder in files:
        for key, value in _settings(file):
            base = tree if key in _PROGRAMS else folder
            yield os.path.normpath(os.path.join(base, os.path.expanduser(value)))


def _folders(dot_git: str) -> Iterator[str]:
    """The folders whose settings count: that of the repository, and the one that its working trees share."""
    folder = dot_git
    if not os.path.isdir(dot_git):
        text = _read(dot_git)
        if not text.startswith("gitdir:"):
            return
        folder = os.path.normpath(os.path.join(os.path.dirname(dot_git), text[7:].strip()))
    yield folder
    shared = _read(f"{folder}/commondir").strip() if os.path.lexists(f"{folder}/commondir") else ""
    if shared:
        yield os.path.normpath(os.path.join(folder, shared))


def _settings(file: str) -> tuple[tuple[str, str], ...]:
    """The settings of a file that name other files, by section and key in lower case."""
    try:
        state = os.stat(file)
    except OSError:
        return ()
    return _parsed(file, state.st_ino, state.st_mtime_ns, state.st_size) if stat.S_ISREG(state.st_mode) else ()


@lru_cache(maxsize=64)
def _parsed(file: str, *_state: int) -> tuple[tuple[str, str], ...]:
    section, settings = "", []
    for line in map(str.strip, _read(file).splitlines()):
        header = _SECTION.match(line)
        if header:
            section = header[1].lower()
        match = _VALUE.match(line[header.end() :] if header else line)
        key = f"{section}.{match[1].lower()}" if match else ""
        if match and key in _NAMING:
            value = match[2].split(" #")[0].split(" ;")[0].strip().strip('"')
            if value and value.lower() not in ("true", "false"):
                settings.append((key, value))
    return tuple(settings)


def _read(file: str) -> str:
    """The text of a small plain file; "" where there is none. A pipe is not opened for reading: that could block."""
    try:
        with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
            return opened.read(_CONFIG_BYTES_MAX).decode("utf-8", "replace") if _is_plain(opened.fileno()) else ""
    except OSError:
        return ""


def _is_plain(fd: int) -> bool:
    return stat.S_ISREG(os.fstat(fd).st_mode)
