"""Worktrees: a copy of the project for one sub-agent, and the way back of what it changed there.

    worktree = await worktrees.create("general-k3f9q")      # git worktree, branch sage/general-k3f9q
    for change in await worktrees.changes(worktree): …      # each file with its diff
    await worktrees.take(worktree, ["src/app.py"])          # some files as they are there
    await worktrees.merge(worktree)                         # all, merged with what has changed since
    await worktrees.discard(worktree)

A worktree has the files of the session's folder as they are when it is made, changes that are not committed among them;
what git ignores is not copied. Nothing is checked out, so no filter or hook of the repository runs. Taking over is all
or nothing: one file that cannot be taken is a Conflict, and nothing is written. A file that was changed in the project
since, and not committed, is never overwritten. Next: `git`, `files`. `write_changes` writes changes to the project's
folder, all of them or none: where one fails, those before it are undone.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core.own_files import make_folder
from lyra.core.rights.capability import Capability
from lyra.core.user_folders import data_folder
from lyra.errors import ConfigError, Conflict, LyraError
from lyra.sage.agent.worktrees.files import (
    FileAt,
    Manifest,
    Merge,
    WorktreeChange,
    copy_files,
    entry_of,
    merge_of,
    read_file,
    stamp_of,
)
from lyra.sandbox.paths import Beneath
from lyra.sandbox.protection.obeyed import find_obeyed_part
from lyra.tools.builtin.workspace import Workspace

if TYPE_CHECKING:
    from lyra.sage.agent.worktrees.git import RepositoryGit
    from lyra.sandbox import Sandbox


_BRANCH: Final = "sage/"
_ID_CHARS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")
_DIFF_CHARS_MAX: Final = 20_000

Around = Callable[[list[str]], AbstractAsyncContextManager[object]]


def worktrees_folder(session: Path) -> Path:
    """Return where the worktrees of a session are, given its own folder: not in Lyra's data, where no agent may write,
    but beside it. Of a session that is kept elsewhere they are in its folder."""
    data = data_folder()
    if session.is_relative_to(data):
        return data.with_name(f"{data.name}-worktrees") / session.name
    return session / "worktrees"


class Worktree(msgspec.Struct, frozen=True, kw_only=True):
    """`top` is what git calls the worktree; `folder` is the copy of the session's folder in it."""

    id: str
    top: str
    folder: str
    branch: str
    commit: str
    repository: str  # git's own folder

    def to_data(self) -> dict[str, Any]:
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data

    @classmethod
    def from_data(cls, data: Any) -> Worktree:
        return msgspec.convert(data, cls)


class Worktrees:
    """The worktrees of one session. `around` is entered with the absolute paths that are about to change in the
    project, and left when they have changed."""

    def __init__(
        self, folder: str, root: Path, *, sandbox: Sandbox | None = None, around: Around | None = None
    ) -> None:
        self.folder = os.path.realpath(folder)
        self.root = Path(os.path.realpath(root))
        self._sandbox = sandbox
        self._around = around
        self._lock = asyncio.Lock()  # one take-over at a time

    @property
    def rights(self) -> list[Capability]:
        return [Capability(verb, f"{self.root}/trees/**") for verb in ("fs.read", "fs.write")]

    def _git(self) -> RepositoryGit:
        from lyra.sage.agent.worktrees.git import RepositoryGit  # most sessions have no worktree

        return RepositoryGit(self.folder, self._sandbox)

    # ------------------------------------------------------------------ making

    async def create(self, task_id: str) -> Worktree:
        """Make a worktree; the same one again where it is there already. ConfigError where there can be none."""
        git = await asyncio.to_thread(self._git)
        if not task_id or not _ID_CHARS.issuperset(task_id):
            raise ConfigError(f"{task_id!r} cannot be the name of a worktree")
        top = str(self.root / "trees" / task_id)
        worktree = Worktree(
            id=task_id,
            top=top,
            folder=os.path.join(top, git.prefix) if git.prefix else top,
            branch=f"{_BRANCH}{task_id}",
            commit=await git.commit(),
            repository=git.head.common_folder,
        )
        if self._manifest(task_id).exists():
            return worktree
        if await asyncio.to_thread(self._is_begun, worktree):  # a crash has left something of it
            await self.discard(worktree)
        try:
            tracked, untracked = await git.list_tracked(), await git.list_untracked()
            await asyncio.to_thread(self._make_folders, task_id)
            await git.act(["worktree", "add", "--no-checkout", "-b", worktree.branch, top, worktree.commit])
            await git.act(["read-tree", "HEAD"], tree=top)
            copy = partial(copy_files, self.folder, worktree.folder, self._base(task_id), tracked, untracked)
            manifest = await asyncio.to_thread(copy)
            await asyncio.to_thread(manifest.save, self._manifest(task_id))
        except BaseException:
            await asyncio.shield(self.discard(worktree))
            raise
        return worktree

    def _is_begun(self, worktree: Worktree) -> bool:
        return os.path.lexists(worktree.top) or self._base(worktree.id).exists()

    def _make_folders(self, task_id: str) -> None:
        make_folder(self.root, private=True)
        make_folder(self.root / "trees", private=True)
        make_folder(self._base(task_id), private=True)

    def _base(self, task_id: str) -> Path:
        return self.root / "base" / task_id

    def _manifest(self, task_id: str) -> Path:
        return self._base(task_id) / "manifest"

    # ------------------------------------------------------------------ showing

    async def changes(self, worktree: Worktree) -> list[WorktreeChange]:
        """Return the files that differ from what the worktree started with, or from what was taken over last."""
        git = await asyncio.to_thread(self._git)
        paths = [*await git.list_tracked(worktree.top), *await git.list_untracked(worktree.top)]
        manifest = await asyncio.to_thread(Manifest.load, self._manifest(worktree.id))
        differing = await asyncio.to_thread(_differing, worktree, manifest, paths)
        befores = await self._befores(git, worktree, manifest, [path for path, _ in differing])
        return [WorktreeChange(path, befores[path], after) for path, after in differing]

    async def _befores(
        self, git: RepositoryGit, worktree: Worktree, manifest: Manifest, paths: list[str]
    ) -> dict[str, FileAt | None]:
        """Return what files were when the worktree was made."""
        entries = {path: manifest.files[path] for path in paths if path in manifest.files}
        ids = list(dict.fromkeys(entry.object_id for entry in entries.values() if entry.object_id))
        blobs = dict(zip(ids, await git.blobs(ids), strict=True))
        befores: dict[str, FileAt | None] = dict.fromkeys(paths)
        for path, entry in entries.items():
            mode = entry.digest.partition(" ")[0]
            data = blobs.get(entry.object_id)
            if not entry.object_id:
                kept = self._base(worktree.id) / entry.digest.replace(" ", "-")
                data = await asyncio.to_thread(kept.read_bytes)
            if data is None:
                raise ConfigError(f"what {path} was when the worktree was made is gone from the repository")
            befores[path] = FileAt(data, mode)
        return befores

    # ------------------------------------------------------------------ taking over

    async def take(self, worktree: Worktree, paths: Iterable[str]) -> list[str]:
        """Write files of a worktree to the project as they are there; gives those that were written. Conflict, with the
        differences in its `diff`, where one has changed in the project since: then nothing is written."""
        async with self._lock:
            changes = {change.path: change for change in await self.changes(worktree)}
            wanted = list(dict.fromkeys(paths))
            unknown = [path for path in wanted if path not in changes]
            if unknown:
                known = ", ".join(changes) or "none"
                raise ConfigError(f"{unknown[0]} is not changed in {worktree.id}", hint=f"changed are: {known}"[:500])
            return await self._take(worktree, [changes[path] for path in wanted], merges=False)

    async def merge(self, worktree: Worktree) -> list[str]:
        """Write all changes of a worktree to the project, merged with what was committed there since; gives the files
        that were written. Conflict where that cannot be done: then nothing is written."""
        async with self._lock:
            return await self._take(worktree, await self.changes(worktree), merges=True)

    async def _take(self, worktree: Worktree, changes: list[WorktreeChange], *, merges: bool) -> list[str]:
        git = await asyncio.to_thread(self._git)
        outcomes: list[tuple[WorktreeChange, FileAt | None, Merge]] = []
        for change in changes:
            now = await asyncio.to_thread(read_file, self.folder, change.path)
            committed, merged = True, None
            if merges and now not in (change.before, change.after):
                committed = await self._is_committed(git, change.path, now)
                merged = partial(self._merge_file, git)
            outcomes.append((change, now, await merge_of(change, now, committed=committed, merged=merged)))
        conflicts = [(change, now, outcome) for change, now, outcome in outcomes if outcome.conflict]
        if conflicts:
            raise _conflict(worktree, conflicts)
        writes = {change.path: (now, outcome.file) for change, now, outcome in outcomes if not outcome.done}
        whole = [os.path.join(self.folder, path) for path in writes]
        async with nullcontext() if self._around is None or not writes else self._around(whole):
            await asyncio.to_thread(write_changes, self.folder, writes)
        await asyncio.to_thread(self._rebase, worktree, changes)
        return list(writes)

    async def _is_committed(self, git: RepositoryGit, path: str, now: FileAt | None) -> bool:
        """Return whether a file is in the last commit as it is now."""
        inside = os.path.join(git.prefix, path) if git.prefix else path
        blob = (await git.blobs([f"HEAD:{inside}"]))[0] if "\n" not in path else b""
        return blob == (now.data if now is not None else None)

    async def _merge_file(self, git: RepositoryGit, ours: bytes, base: bytes, theirs: bytes) -> bytes | None:
        scratch = await asyncio.to_thread(tempfile.mkdtemp, prefix="merge-", dir=self.root)
        try:
            return await git.merge_file(ours, base, theirs, scratch)
        finally:
            await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)

    def _rebase(self, worktree: Worktree, taken: list[WorktreeChange]) -> None:
        """Make files that were taken over part of the base, so that they count as no change."""
        manifest = Manifest.load(self._manifest(worktree.id))
        for change in taken:
            manifest.files.pop(change.path, None)
            if change.after is not None:
                entry = entry_of(worktree.folder, change.path, change.after, self._base(worktree.id), "")
                manifest.files[change.path] = entry
        manifest.save(self._manifest(worktree.id))

    # ------------------------------------------------------------------ removing

    async def discard(self, worktree: Worktree) -> None:
        """Remove a worktree, its branch and what is kept about it. Nothing of it is left."""
        await asyncio.to_thread(_remove_tree, worktree.top)
        await asyncio.to_thread(_remove_tree, str(self._base(worktree.id)))
        git = await asyncio.to_thread(self._git)
        await git.act(["worktree", "prune"])
        with suppress(LyraError):  # it was never made
            await git.act(["branch", "-D", worktree.branch])

    async def clean_up(self, known: Iterable[str]) -> list[str]:
        """Remove worktrees of this session that no task has, such as one whose making was cut off; gives their ids."""
        folder = self.root / "trees"
        there = await asyncio.to_thread(lambda: sorted(os.listdir(folder)) if folder.is_dir() else [])
        left = [name for name in there if name not in set(known) and name and _ID_CHARS.issuperset(name)]
        for name in left:
            top = str(folder / name)
            with suppress(LyraError):  # the repository may be gone
                await self.discard(
                    Worktree(id=name, top=top, folder=top, branch=f"{_BRANCH}{name}", commit="", repository="")
                )
        return left


def _differing(worktree: Worktree, manifest: Manifest, paths: list[str]) -> list[tuple[str, FileAt | None]]:
    """Return the files that are not as the manifest has them, and what they are now."""
    differing: list[tuple[str, FileAt | None]] = []
    for path in sorted({*manifest.files, *paths}):
        entry = manifest.files.get(path)
        if entry is not None and stamp_of(worktree.folder, path) == entry.stamp:
            continue
        after = read_file(worktree.folder, path)
        if (None if after is None else after.digest) != (None if entry is None else entry.digest):
            differing.append((path, after))
    return differing


def _conflict(worktree: Worktree, conflicts: list[tuple[WorktreeChange, FileAt | None, Merge]]) -> Conflict:
    names = ", ".join(f"{change.path} ({outcome.conflict})" for change, _, outcome in conflicts)
    diffs = "".join(WorktreeChange(change.path, now, change.after).diff() for change, now, _ in conflicts)
    return Conflict(
        f"nothing was taken over from {worktree.id}: {names}",
        hint="commit or undo your own changes of these files, or take the others one by one",
        paths=[change.path for change, _, _ in conflicts],
        diff=diffs[:_DIFF_CHARS_MAX],
    )


def _remove_tree(path: str) -> None:
    """Remove a folder with everything in it, also what was closed to its owner. Links are not followed."""

    def open_again(function: Callable[..., Any], failed: str, _error: Any) -> None:
        with suppress(OSError):
            os.chmod(os.path.dirname(failed), 0o700)
            if os.path.isdir(failed) and not os.path.islink(failed):
                os.chmod(failed, 0o700)
                shutil.rmtree(failed, ignore_errors=True)
            else:
                function(failed)

    if os.path.lexists(path):
        shutil.rmtree(path, onerror=open_again)


Writes = Mapping[str, tuple[FileAt | None, FileAt | None]]  # path → what is there, what is to be there


def write_changes(folder: str, writes: Writes) -> None:
    """Write files below a folder; None as what is to be there removes one."""
    workspace = Workspace(folder)
    for path, (_, file) in writes.items():
        whole = os.path.join(workspace.root, path)
        part = find_obeyed_part(os.path.normpath(whole), workspace.roots)
        if part is not None:
            raise Conflict(f"nothing was taken over: {workspace.display_path(part)} is protected from being written")
        if file is not None and file.is_link:
            target = os.path.normpath(os.path.join(os.path.dirname(whole), os.fsdecode(file.data)))
            if os.path.isabs(os.fsdecode(file.data)) or not workspace.covers(target):
                raise Conflict(f"nothing was taken over: {path} is a link that leads out of the folder")
            if find_obeyed_part(target, workspace.roots) is not None:
                raise Conflict(f"nothing was taken over: {path} is a link to a protected file")
    written: list[str] = []
    try:
        for path, (now, file) in writes.items():
            written.append(path)
            _write(workspace, path, now, file)
    except (OSError, LyraError) as error:
        for path in reversed(written):
            now, file = writes[path]
            with suppress(OSError, LyraError):
                _write(workspace, path, file if os.path.lexists(os.path.join(workspace.root, path)) else None, now)
        message = error.message if isinstance(error, LyraError) else str(error)
        raise Conflict(f"nothing was taken over: {written[-1]} could not be written: {message}") from error


def _write(workspace: Workspace, path: str, now: FileAt | None, file: FileAt | None) -> None:
    if now is not None and (file is None or file.is_link or now.is_link):
        with Beneath(workspace.root) as folder:
            parent = folder.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.unlink(os.path.basename(path), dir_fd=parent)
            finally:
                os.close(parent)
        now = None
    if file is None:
        return
    if file.is_link:
        _link(workspace, path, os.fsdecode(file.data))
        return
    bits = 0o755 if file.mode == "100755" else 0o644
    if now is not None:  # its own bits, but for those that say whether it can be run
        kept = os.stat(os.path.join(workspace.root, path)).st_mode & 0o777
        bits = kept | 0o111 if file.mode == "100755" and not kept & 0o100 else kept
        bits = bits & ~0o111 if file.mode == "100644" else bits
    workspace.replace(path, file.data, None if now is None else bits)
    if now is None and file.mode == "100755":
        workspace.replace(path, file.data, bits)


def _link(workspace: Workspace, path: str, target: str) -> None:
    above = os.path.dirname(path)
    if above and not os.path.isdir(os.path.join(workspace.root, above)):
        os.makedirs(os.path.join(workspace.root, above))
    with Beneath(workspace.root) as folder:
        parent = folder.open(above or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.symlink(target, os.path.basename(path), dir_fd=parent)
        finally:
            os.close(parent)
