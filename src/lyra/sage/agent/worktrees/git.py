"""RepositoryGit: git for a repository whose settings may be hostile.

Questions run in the sandbox, with the repository read-only and without a network. Acts (a worktree, a branch) change
git's own files, which the sandbox never opens, so they run outside it. Both get no settings of the user or the machine,
no hooks, no monitors and no transports, and the acts are such that check nothing out: no filter of the repository runs.
Of several acts on one repository, also those of other sessions, only one runs at a time: a git that makes a worktree
fails on one that another git has half made.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from lyra.errors import ConfigError, ToolError
from lyra.sandbox import Job, Limits, Profile, Result, Sandbox
from lyra.sandbox.job import LaunchPlan
from lyra.tools.git.repository import ENVIRONMENT, PATH, SETTINGS, GitHead, hold_turn, read_head

_ASK_S: Final = 60.0
_OUTPUT_BYTES_MAX: Final = 256 << 20  # lists of files, and their content
_ENVIRONMENT: Final = {
    **ENVIRONMENT,
    "GIT_ALLOW_PROTOCOL": "none",  # overrides what the repository says of single protocols
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "LC_ALL": "C.UTF-8",
}


class RepositoryGit:
    """Git in the repository that a folder lies in."""

    def __init__(self, folder: str, sandbox: Sandbox | None = None) -> None:
        self.folder = os.path.realpath(folder)
        self._sandbox = sandbox or Sandbox()
        head = read_head(self.folder)
        if head is None:
            raise ConfigError(
                f"{self.folder} is in no git repository", hint="worktrees need one: git init", place=self.folder
            )
        self.head: GitHead = head
        self.prefix = os.path.relpath(self.folder, head.root) if self.folder != head.root else ""

    async def commit(self) -> str:
        """Return the commit that is checked out."""
        result = await self.ask(["rev-parse", "--verify", "--quiet", "HEAD^{commit}"], fails=True)
        if not result.ok:
            raise ConfigError(
                f"the repository {self.head.root} has no commit yet",
                hint="a worktree starts from one: git commit",
                place=self.head.root,
            )
        return result.output.text.strip()

    async def list_tracked(self, tree: str = "") -> dict[str, tuple[str, str]]:
        """Return the files of the index: path below the folder → (mode, object id). `tree` is another worktree's
        folder."""
        result = await self.ask(["ls-files", "--stage", "-z"], tree=tree)
        files: dict[str, tuple[str, str]] = {}
        for entry in _fields(result.output.head):
            facts, _, path = entry.partition("\t")
            mode, _, rest = facts.partition(" ")
            if mode != "160000" and is_safe_path(path):  # a submodule is another repository
                files[path] = (mode, rest.partition(" ")[0])
        return files

    async def list_untracked(self, tree: str = "") -> list[str]:
        """Files that git neither knows nor ignores."""
        result = await self.ask(["ls-files", "--others", "--exclude-standard", "-z"], tree=tree)
        return [path for path in _fields(result.output.head) if is_safe_path(path)]

    async def blobs(self, names: Sequence[str]) -> list[bytes | None]:
        """Return the content of objects, by id or as `HEAD:path`; None where there is none."""
        if not names:
            return []
        if any("\n" in name for name in names):
            raise ConfigError("git is not asked about a path with a line break in it")
        stdin = "".join(f"{name}\n" for name in names).encode("utf-8", "surrogateescape")
        result = await self.ask(["cat-file", "--batch"], stdin=stdin)
        return list(_blobs(result.output.head, len(names)))

    async def ask(
        self, words: Sequence[str], *, tree: str = "", stdin: bytes | None = None, fails: bool = False
    ) -> Result:
        """Run a question in the sandbox; ToolError where git says no, unless `fails` says that it may."""
        root = tree or self.head.root
        places = {} if tree else {"GIT_DIR": self.head.git_folder, "GIT_WORK_TREE": self.head.root}
        profile = Profile(
            root,
            writable=False,
            readable=tuple(dict.fromkeys((self.head.git_folder, self.head.common_folder))),
            env={**_ENVIRONMENT, **places},
            limits=Limits(wall_s=_ASK_S, output_bytes=_OUTPUT_BYTES_MAX, output_kept_bytes=_OUTPUT_BYTES_MAX),
            start=os.path.join(root, self.prefix) if self.prefix else root,
        )
        result = await self._sandbox.run(
            ["/bin/sh", "-c", 'exec "$@"', "git", *_git(words)], profile, stdin=stdin, apart=True
        )
        return result if fails else _check(result, words)

    async def act(self, words: Sequence[str], *, tree: str = "") -> Result:
        """Run an act outside the sandbox, in the repository or in another worktree of it."""
        git = shutil.which("git", path=PATH)
        if git is None:
            raise ConfigError("there is no git in " + PATH, hint="install git")
        places = {} if tree else {"GIT_DIR": self.head.common_folder}
        env = {**_ENVIRONMENT, **places, "PATH": PATH, "HOME": "/nonexistent"}

        async def run(words: Sequence[str], more: dict[str, str]) -> Result:
            plan = LaunchPlan([git, *_git(words)[1:]], {**env, **more}, tree or self.head.root, "none")
            return await Job(plan, Limits(), stdin=None, timeout_s=_ASK_S, apart=True, spill=None).wait()

        # Reading settings runs nothing. `core.hooksPath` does not hold hooks that settings declare (git 2.54).
        async with hold_turn(self.head.common_folder):
            listed = await run(["config", "--name-only", "-z", "--get-regexp", r"^hook\..*\.(command|event)$"], {})
            # Variables that switch off the hooks whose settings have these names.
            hooks = dict.fromkeys(name.rpartition(".")[0] for name in _fields(listed.output.head))
            off: dict[str, str] = {"GIT_CONFIG_COUNT": str(len(hooks))} if hooks else {}
            for number, hook in enumerate(hooks):
                off |= {f"GIT_CONFIG_KEY_{number}": f"{hook}.enabled", f"GIT_CONFIG_VALUE_{number}": "false"}
            return _check(await run(words, off), words)

    async def merge_file(self, ours: bytes, base: bytes, theirs: bytes, scratch: str) -> bytes | None:
        """Return the text with the changes of both sides; None where they contradict each other. The three are written
        to the folder `scratch`."""
        await asyncio.to_thread(_write_sides, Path(scratch), {"ours": ours, "base": base, "theirs": theirs})
        limits = Limits(wall_s=_ASK_S, output_bytes=_OUTPUT_BYTES_MAX, output_kept_bytes=_OUTPUT_BYTES_MAX)
        profile = Profile(scratch, writable=False, env=_ENVIRONMENT, limits=limits)
        command = ["/bin/sh", "-c", 'exec "$@"', "git", *_git(["merge-file", "-p", "ours", "base", "theirs"])]
        result = await self._sandbox.run(command, profile, apart=True)
        return result.output.head if result.ok else None


def _write_sides(folder: Path, sides: dict[str, bytes]) -> None:
    for name, data in sides.items():
        (folder / name).write_bytes(data)


def _git(words: Sequence[str]) -> list[str]:
    return ["git", "--no-pager", *(word for setting in SETTINGS for word in ("-c", setting)), *words]


def _check(result: Result, words: Sequence[str]) -> Result:
    if not result.ok:
        why = result.errors.text.strip() or f"exit code {result.exit_code}"
        raise ToolError(f"git {words[0]} failed: {why[:500]}", reason="exec_failed")
    return result


def _fields(output: bytes) -> list[str]:
    return [field.decode("utf-8", "surrogateescape") for field in output.split(b"\0") if field]


def _blobs(output: bytes, count: int) -> Iterator[bytes | None]:
    """Read `id type size`, a line break, the content and a line break, or `name missing`, once for each name."""
    position = 0
    for _ in range(count):
        end = output.index(b"\n", position)
        facts = output[position:end].rsplit(b" ", 2)
        position = end + 1
        if len(facts) != 3 or not facts[2].isdigit():  # `NAME missing`
            yield None
            continue
        size = int(facts[2])
        yield output[position : position + size] if facts[1] == b"blob" else None
        position += size + 1


def is_safe_path(path: str) -> bool:
    """Return whether a path of an index, which may be hostile, names a file below its folder and none of git's own."""
    parts = path.split("/")
    return bool(path) and "\0" not in path and not any(part.lower() in ("", ".", "..", ".git") for part in parts)
