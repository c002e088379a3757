"""The branch of a repository, read from its files: quick enough for a status line, and no program runs.

`read_head` looks for a `.git` in a folder and above it. A `.git` that is a file leads to the repository's folder
elsewhere: to that of a worktree, which is believed where the repository leads back to this folder, so that a downloaded
file cannot point at another repository; or to a submodule's inside the same tree. Everything else about a repository is
asked of git, in `git_state`.
"""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple

_SMALL_BYTES_MAX: Final = 4_096
_FOLDERS_UP_MAX: Final = 64
_BRANCH: Final = re.compile(r"ref: refs/heads/([^\s\x00-\x20\x7f~^:?*\[\\]{1,200})")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


class GitHead(NamedTuple):
    """The folder of a repository's files, where git keeps its own (`git_folder`, and `common_folder` for all worktrees
    together), and what is checked out: a branch, or else a commit."""

    root: str
    git_folder: str
    common_folder: str
    branch: str = ""
    commit: str = ""

    @property
    def shown(self) -> str:
        return self.branch or f"commit {self.commit[:10]}"


def read_head(folder: str) -> GitHead | None:
    """The repository that a folder is in; None where it is in none that can be read."""
    root = os.path.realpath(folder)
    for _ in range(_FOLDERS_UP_MAX):
        entry = os.path.join(root, ".git")
        if os.path.lexists(entry):
            return _head_of(root, entry)
        above = os.path.dirname(root)
        if above == root:
            return None
        root = above
    return None


def _head_of(root: str, entry: str) -> GitHead | None:
    if os.path.isdir(entry) and not os.path.islink(entry):
        return _read(GitHead(root, entry, entry))
    text = _small(entry)
    if not text.startswith("gitdir: "):
        return None
    git_folder = os.path.realpath(os.path.join(root, text.removeprefix("gitdir: ").strip()))
    common = os.path.realpath(os.path.join(git_folder, _small(os.path.join(git_folder, "commondir")).strip() or "."))
    back = _small(os.path.join(git_folder, "gitdir")).strip()
    is_worktree = bool(back) and os.path.dirname(git_folder) == os.path.join(common, "worktrees")
    if is_worktree and os.path.realpath(os.path.join(git_folder, back)) == entry:
        return _read(GitHead(root, git_folder, common))
    return _read(GitHead(root, git_folder, git_folder)) if _is_submodule(root, git_folder) else None


def _is_submodule(root: str, git_folder: str) -> bool:
    """Whether a folder is `.git/modules/…` of a repository that `root` lies in."""
    above, separator, _ = git_folder.partition("/.git/modules/")
    return bool(separator) and root.startswith(f"{above}/")


def _read(head: GitHead) -> GitHead | None:
    text = _small(os.path.join(head.git_folder, "HEAD")).strip()
    branch = _BRANCH.fullmatch(text)
    if branch is not None and branch[1].isprintable():
        return head._replace(branch=branch[1])
    return head._replace(commit=text) if _COMMIT.fullmatch(text) else None


def _small(path: str) -> str:
    """The text of a small plain file; "" for anything else. A pipe is not waited for."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(descriptor, _SMALL_BYTES_MAX).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)
