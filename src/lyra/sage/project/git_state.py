"""The state of a repository for a system prompt: branch, distance from its upstream, what is changed, the last commits.

    state = await git_state(folder)      # None outside of a repository

Git obeys the settings of the repository it looks at, and they can name programs: monitors, hooks, filters, pagers. So
git runs in the sandbox, with the repository read-only and without a network, the settings of the user and of the
machine are not read, and those that run a program in a query are switched off. What the sandbox cannot hold does not
run: then the state has the branch alone, which `lyra.tools.git.repository.read_head` reads. A query is bounded in time.
`git_diff` gives the changes that are not committed.
"""

from __future__ import annotations

import asyncio
import re
import shlex
from typing import TYPE_CHECKING, Final, NamedTuple

from lyra.core.secrets.visible import visible
from lyra.errors import LyraError
from lyra.tools.git.repository import ENVIRONMENT, SETTINGS, GitHead, read_head

if TYPE_CHECKING:
    from lyra.sandbox import Sandbox


GIT_S_MAX: Final = 2.0
_COMMITS: Final = 5
_TITLE_CHARS_MAX: Final = 100
_OUTPUT_BYTES_MAX: Final = 4 << 20
GIT_COMMAND: Final = shlex.join(["git", "--no-pager", *(word for setting in SETTINGS for word in ("-c", setting))])
_STATUS: Final = "status --porcelain=v2 --branch -z --untracked-files=normal --ignore-submodules=all --no-renames"
_LOG: Final = f"log -n {_COMMITS} --no-color --no-ext-diff --no-textconv --format=%h%x1f%cs%x1f%s"
_SCRIPT: Final = f"{GIT_COMMAND} {_STATUS} && printf '\\0\\036' && {GIT_COMMAND} {_LOG} 2>/dev/null; exit 0"


class GitCommit(NamedTuple):
    """One commit: the beginning of its hash, its day, its title. The title is text from outside."""

    hash: str
    day: str
    title: str


class GitState(NamedTuple):
    """`changed` and `staged` count files with changes in the folder and in the index. Where git could not be asked,
    `problem` says why, and only the branch is known."""

    root: str
    branch: str
    commit: str = ""
    upstream: str = ""
    ahead: int = 0
    behind: int = 0
    staged: int = 0
    changed: int = 0
    untracked: int = 0
    conflicted: int = 0
    commits: tuple[GitCommit, ...] = ()
    problem: str = ""

    @property
    def is_clean(self) -> bool:
        return not (self.problem or self.staged or self.changed or self.untracked or self.conflicted)


async def git_state(folder: str, *, sandbox: Sandbox | None = None, timeout_s: float = GIT_S_MAX) -> GitState | None:
    """Return the state of the repository that a folder is in; None where it is in none."""
    from lyra.sandbox import Sandbox

    head = await asyncio.to_thread(read_head, folder)
    if head is None:
        return None
    known = GitState(visible(head.root), visible(head.branch), head.commit[:10])
    box = sandbox or Sandbox()
    try:
        await box.tier()  # trying the sandbox for the first time is no part of the query
        async with asyncio.timeout(timeout_s):
            output = await run_git(head, box, _SCRIPT, timeout_s)
    except TimeoutError:
        return known._replace(problem=f"git took longer than {timeout_s:g} s")
    except LyraError as error:
        return known._replace(problem=f"git could not be asked: {error.message}")
    return _parse(known, output)


async def run_git(head: GitHead, sandbox: Sandbox, script: str, timeout_s: float) -> bytes:
    """Return the output of a script of git commands; nothing where one of them fails. TimeoutError where it takes
    longer."""
    from lyra.sandbox import Limits, Profile

    profile = Profile(
        head.root,
        writable=False,
        readable=tuple(dict.fromkeys((head.git_folder, head.common_folder))),
        env=ENVIRONMENT,
        limits=Limits(wall_s=timeout_s, output_bytes=_OUTPUT_BYTES_MAX, output_kept_bytes=_OUTPUT_BYTES_MAX),
    )
    result = await sandbox.run(["/bin/sh", "-c", script], profile, apart=True)
    if "wall" in result.limits_hit:
        raise TimeoutError
    return result.output.head if result.ok else b""


def _parse(known: GitState, output: bytes) -> GitState:
    status, separator, log = output.partition(b"\0\x1e")
    if not separator:
        return known._replace(problem="git does not answer for this repository")
    staged = changed = untracked = conflicted = 0
    facts: dict[str, str] = {}
    for field in status.decode("utf-8", "replace").split("\0"):
        if field.startswith("# "):
            name, _, value = field[2:].partition(" ")
            facts[name] = value
        elif field.startswith("1 ") and len(field) > 4:
            staged += field[2] != "."
            changed += field[3] != "."
        elif field.startswith("u "):
            conflicted += 1
        elif field.startswith("? "):
            untracked += 1
    ahead, behind = _distance(facts.get("branch.ab", ""))
    commit = facts.get("branch.oid", "")
    return known._replace(
        commit="" if commit == "(initial)" else visible(commit[:10]),
        upstream=visible(facts.get("branch.upstream", ""))[:_TITLE_CHARS_MAX],
        ahead=ahead,
        behind=behind,
        commits=tuple(_commits(log.decode("utf-8", "replace"))),
        staged=staged,
        changed=changed,
        untracked=untracked,
        conflicted=conflicted,
    )


def _distance(text: str) -> tuple[int, int]:
    """Return the numbers of `+1 -2`."""
    plus, _, minus = text.partition(" ")
    is_pair = plus[1:].isdecimal() and minus[1:].isdecimal()
    return (int(plus[1:]), int(minus[1:])) if is_pair else (0, 0)


def _commits(text: str) -> list[GitCommit]:
    rows = [line.split("\x1f", 2) for line in text.split("\n")[:_COMMITS]]
    return [GitCommit(visible(row[0])[:16], visible(row[1])[:10], _title(row[2])) for row in rows if len(row) == 3]


def _title(text: str) -> str:
    shown = visible(text)
    return shown if len(shown) <= _TITLE_CHARS_MAX else f"{shown[:_TITLE_CHARS_MAX]}…"


# ---------------------------------------------------------------- git diff

_GIT_S_MAX: Final = 10.0
_UNTRACKED_MAX: Final = 200
_DIFF: Final = "diff --no-color --no-ext-diff --no-textconv --ignore-submodules=all"
_UNTRACKED: Final = "ls-files --others --exclude-standard -z"
# Before the first commit there is no HEAD: then what is staged.
_DIFF_SCRIPT: Final = (
    f"if {GIT_COMMAND} rev-parse -q --verify HEAD >/dev/null; then {GIT_COMMAND} {_DIFF} HEAD; "
    f"else {GIT_COMMAND} {_DIFF} --cached; fi && printf '\\0\\036' && {GIT_COMMAND} {_UNTRACKED}"
)


_REF: Final = re.compile(r"[A-Za-z0-9_][\w./@{}~^+-]{0,199}")
_BRANCH_DIFF: Final = (
    f'base=$({GIT_COMMAND} merge-base HEAD REF) && [ -n "$base" ] && from=REF to=HEAD && '
    f'if [ "$base" = "$({GIT_COMMAND} rev-parse HEAD)" ]; then from=HEAD to=REF; fi && '
    f'printf \'%s\\0\' "$to" && {GIT_COMMAND} {_DIFF} "$base" "$to"'
)


class BranchDiff(NamedTuple):
    """What one of two branches has since they parted, and which that is in `words`."""

    words: str
    diff: str


async def branch_diff(folder: str, name: str, *, sandbox: Sandbox | None = None) -> BranchDiff | None:
    """Return what has come since HEAD and a branch (or tag, or commit) parted: on HEAD, or on the branch where HEAD has
    nothing of its own. None where there is no such name."""
    from lyra.sandbox import Sandbox

    head = await asyncio.to_thread(read_head, folder)
    if head is None or _REF.fullmatch(name) is None:
        return None
    box = sandbox or Sandbox()
    check = f"{GIT_COMMAND} rev-parse -q --verify {shlex.quote(f'{name}^{{commit}}')}"
    try:
        commit = (await run_git(head, box, check, _GIT_S_MAX)).decode("ascii", "replace").strip()
        if re.fullmatch("[0-9a-f]{40,64}", commit) is None:
            return None
        output = await run_git(head, box, _BRANCH_DIFF.replace("REF", commit), _GIT_S_MAX)
    except (TimeoutError, LyraError):
        return None
    side, separator, changes = output.partition(b"\0")
    if not separator:
        return None
    of_head = side == b"HEAD"
    words = (
        f"of {head.shown} since it parted from {name}" if of_head else f"of {name} since it parted from {head.shown}"
    )
    return BranchDiff(words, changes.decode("utf-8", "replace"))


async def remote_url(folder: str, *, sandbox: Sandbox | None = None) -> str:
    """Return the address of the remote `origin`; empty where there is none."""
    from lyra.sandbox import Sandbox

    head = await asyncio.to_thread(read_head, folder)
    if head is None:
        return ""
    output = await run_git(head, sandbox or Sandbox(), f"{GIT_COMMAND} config --get remote.origin.url", _GIT_S_MAX)
    return output.decode("utf-8", "replace").strip()


class GitDiff(NamedTuple):
    """`problem` says why git could not be asked; then the rest is empty."""

    diff: str = ""
    untracked: tuple[str, ...] = ()
    problem: str = ""


async def git_diff(folder: str, *, sandbox: Sandbox | None = None) -> GitDiff | None:
    """Return the changes in the repository that a folder is in; None where it is in none."""
    from lyra.sandbox import Sandbox

    head = await asyncio.to_thread(read_head, folder)
    if head is None:
        return None
    try:
        output = await run_git(head, sandbox or Sandbox(), _DIFF_SCRIPT, _GIT_S_MAX)
    except TimeoutError:
        return GitDiff(problem=f"git took longer than {_GIT_S_MAX:g} s")
    except LyraError as error:
        return GitDiff(problem=f"git could not be asked: {error.message}")
    changes, separator, names = output.partition(b"\0\x1e")
    if not separator:
        return GitDiff(problem="git does not answer for this repository, or the changes are too large")
    listed = [name for name in names.decode("utf-8", "replace").split("\0") if name]
    return GitDiff(changes.decode("utf-8", "replace"), tuple(listed[:_UNTRACKED_MAX]))
