"""The changes of a repository that are not committed, as a unified diff, and the files that git does not track.

Git runs as in `git_state`: in the sandbox, with the repository read-only and no program of its settings.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from lyra.errors import LyraError
from lyra.sage.project.git_head import read_head
from lyra.sage.project.git_state import GIT_COMMAND, run_git

if TYPE_CHECKING:
    from lyra.sandbox import Sandbox


_GIT_S_MAX: Final = 10.0
_UNTRACKED_MAX: Final = 200
_DIFF: Final = "diff --no-color --no-ext-diff --no-textconv --ignore-submodules=all"
_UNTRACKED: Final = "ls-files --others --exclude-standard -z"
# Before the first commit there is no HEAD: then what is staged.
_SCRIPT: Final = (
    f"if {GIT_COMMAND} rev-parse -q --verify HEAD >/dev/null; then {GIT_COMMAND} {_DIFF} HEAD; "
    f"else {GIT_COMMAND} {_DIFF} --cached; fi && printf '\\0\\036' && {GIT_COMMAND} {_UNTRACKED}"
)


class GitDiff(NamedTuple):
    """`problem` says why git could not be asked; then the rest is empty."""

    diff: str = ""
    untracked: tuple[str, ...] = ()
    problem: str = ""


async def git_diff(folder: str, *, sandbox: Sandbox | None = None) -> GitDiff | None:
    """The changes in the repository that a folder is in; None where it is in none."""
    from lyra.sandbox import Sandbox

    head = await asyncio.to_thread(read_head, folder)
    if head is None:
        return None
    try:
        output = await run_git(head, sandbox or Sandbox(), _SCRIPT, _GIT_S_MAX)
    except TimeoutError:
        return GitDiff(problem=f"git took longer than {_GIT_S_MAX:g} s")
    except LyraError as error:
        return GitDiff(problem=f"git could not be asked: {error.message}")
    changes, separator, names = output.partition(b"\0\x1e")
    if not separator:
        return GitDiff(problem="git does not answer for this repository, or the changes are too large")
    listed = [name for name in names.decode("utf-8", "replace").split("\0") if name]
    return GitDiff(changes.decode("utf-8", "replace"), tuple(listed[:_UNTRACKED_MAX]))
