"""Worktrees: a copy of the project for one sub-agent, and the way back of what it changed there.

    worktree = await worktrees.create("general-k3f9q")      # git worktree, branch sage/general-k3f9q
    for change in await worktrees.changes(worktree): …      # each file with its diff
    await worktrees.take(worktree, ["src/app.py"])          # some files as they are there
    await worktrees.merge(worktree)                         # all, merged with what has changed since
    await worktrees.discard(worktree)

A worktree has the files of the session's folder as they are when it is made, changes that are not committed among them;
what git ignores is not copied. Nothing is checked out, so no filter or hook of the repository runs. Taking over is all
or nothing: one file that cannot be taken is a Conflict, and nothing is written. A file that was changed in the project
since, and not committed, is never overwritten. Next: `git`. `write_changes` writes changes to the project's
folder, all of them or none: where one fails, those before it are undone.

Files of a folder are read as they are at one moment, without following links out of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lyra.core.own_files import make_folder
from lyra.core.rights.capability import Capability
from lyra.core.secrets.visible import visible
from lyra.core.user_folders import data_folder
from lyra.errors import ConfigError, Conflict, LyraError
from lyra.sage.session.files.state import visible_lines
from lyra.sandbox.paths import Beneath
from lyra.sandbox.protection.obeyed import find_obeyed_part
from lyra.tools.builtin.workspace import Workspace

if TYPE_CHECKING:
    from lyra.sage.agent.worktrees.git import RepositoryGit
    from lyra.sandbox import Sandbox


FILE_BYTES_MAX: Final = 50 << 20  # of one file; larger ones are left out of a worktree
FILES_MAX: Final = 100_000
_BYTES_MAX: Final = 4 << 30  # of all files together
_LINK: Final = "120000"
_O_PATH: Final = getattr(os, "O_PATH", os.O_RDONLY)


class FileAt(NamedTuple):
    """`mode` is git's: 100644, 100755, or 120000 for a link, whose target is its data."""

    data: bytes
    mode: str

    @property
    def is_link(self) -> bool:
        return self.mode == _LINK

    @property
    def digest(self) -> str:
        return f"{self.mode} {hashlib.sha256(self.data).hexdigest()}"


class ManifestEntry(msgspec.Struct, array_like=True, frozen=True):
    """`digest` is that of the FileAt; `object_id` is git's for the content, empty where the base folder has it;
    `stamp` tells whether the copy was touched since."""

    digest: str
    object_id: str
    stamp: tuple[int, int, int]


class Manifest(msgspec.Struct):
    files: dict[str, ManifestEntry] = {}
    left_out: list[str] = []  # too large, or no plain file

    def save(self, path: Path) -> None:
        """Write it whole or not at all."""
        beside = path.with_name(f"{path.name}.new")
        beside.write_bytes(msgspec.msgpack.encode(self))
        beside.replace(path)

    @classmethod
    def load(cls, path: Path) -> Manifest:
        try:
            return msgspec.msgpack.decode(path.read_bytes(), type=Manifest)
        except FileNotFoundError:
            raise ConfigError(f"{path} is gone, so what the worktree started with is not known") from None
        except msgspec.MsgspecError as error:
            raise ConfigError(f"{path} cannot be read: {error}") from None


def read_file(root: str, path: str) -> FileAt | None:
    """Return a file below a folder; None where there is none, or no plain file or link, or one that is too large."""
    with Beneath(root) as folder:
        try:
            return _read(folder, path)
        except (OSError, LyraError):
            return None


def _read(folder: Beneath, path: str) -> FileAt | None:
    parent = folder.open(os.path.dirname(path) or ".", _O_PATH | os.O_DIRECTORY)
    try:
        name = os.path.basename(path)
        state = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISLNK(state.st_mode):
            return FileAt(os.fsencode(os.readlink(name, dir_fd=parent)), _LINK)
        if not stat.S_ISREG(state.st_mode) or state.st_size > FILE_BYTES_MAX:
            return None
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
        with open(fd, "rb") as file:
            opened = os.fstat(fd)
            data = file.read(FILE_BYTES_MAX + 1)
            if not stat.S_ISREG(opened.st_mode) or len(data) > FILE_BYTES_MAX:
                return None
            return FileAt(data, "100755" if opened.st_mode & stat.S_IXUSR else "100644")
    finally:
        os.close(parent)


def stamp_of(root: str, path: str) -> tuple[int, int, int]:
    """Return what changes whenever a file is written or replaced."""
    with contextlib.suppress(OSError):
        state = os.lstat(os.path.join(root, path))
        return state.st_ino, state.st_size, state.st_ctime_ns
    return 0, 0, 0


def copy_files(
    source: str, target: str, base: Path, tracked: dict[str, tuple[str, str]], untracked: Iterable[str]
) -> Manifest:
    """Copy files of a folder into a new one, as they are now. Content that git does not have goes to `base`, too."""
    manifest, total_bytes = Manifest({}, []), 0
    paths = list(dict.fromkeys((*tracked, *untracked)))
    if len(paths) > FILES_MAX:
        raise ConfigError(f"{source} has {len(paths)} files; a worktree has at most {FILES_MAX}", place=source)
    links: list[tuple[str, FileAt]] = []
    with Beneath(source) as folder:
        for path in paths:
            file = _read_or_none(folder, path)
            if file is None:
                if os.path.lexists(os.path.join(source, path)):
                    manifest.left_out.append(path)
                continue
            total_bytes += len(file.data)
            if total_bytes > _BYTES_MAX:
                raise ConfigError(f"{source} is larger than a worktree may be, {_BYTES_MAX >> 30} GiB", place=source)
            if file.is_link:
                links.append((path, file))
                continue
            whole = os.path.join(target, path)
            os.makedirs(os.path.dirname(whole), exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(whole, flags, 0o777 if file.mode == "100755" else 0o666), "wb") as copy:
                copy.write(file.data)
            manifest.files[path] = entry_of(target, path, file, base, tracked.get(path, ("", ""))[1])
    for path, file in links:  # last: no file is written through one
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(os.path.join(target, path)), exist_ok=True)
            os.symlink(os.fsdecode(file.data), os.path.join(target, path))
            manifest.files[path] = entry_of(target, path, file, base, tracked.get(path, ("", ""))[1])
    return manifest


def _read_or_none(folder: Beneath, path: str) -> FileAt | None:
    try:
        return _read(folder, path)
    except (OSError, LyraError):
        return None


def entry_of(root: str, path: str, file: FileAt, base: Path, object_id: str) -> ManifestEntry:
    """Return the entry of a file; its content is kept in `base` unless it is git's object of that id."""
    algorithm = hashlib.sha256 if len(object_id) == 64 else hashlib.sha1
    known = object_id and algorithm(b"blob %d\0" % len(file.data) + file.data).hexdigest() == object_id
    if not known:
        kept = base / file.digest.replace(" ", "-")
        if not kept.exists():
            kept.write_bytes(file.data)
    return ManifestEntry(file.digest, object_id if known else "", stamp_of(root, path))


# ---------------------------------------------------------------- changes

_DIFF_BYTES_MAX: Final = 1 << 20  # of one side; a larger file is only counted
_CONTEXT_LINES: Final = 3

Merged = Callable[[bytes, bytes, bytes], Awaitable[bytes | None]]


class WorktreeChange(NamedTuple):
    """One file that differs between two moments, shown as a diff; and how three versions of it are merged. `before` and
    `after` are None where the file is not there."""

    path: str
    before: FileAt | None
    after: FileAt | None

    @property
    def kind(self) -> str:
        return "created" if self.before is None else "deleted" if self.after is None else "modified"

    @property
    def name(self) -> str:
        """The path as it is shown."""
        return visible(self.path)

    def diff(self) -> str:
        """Return the unified diff, every character visible; a sentence for what cannot be shown as text."""
        old, new = (_text(side) for side in (self.before, self.after))
        if old is None or new is None:
            sizes = " → ".join("none" if side is None else f"{len(side.data)} bytes" for side in self[1:])
            return f"{self.name}: not shown as text, {sizes}\n"
        names = (
            "/dev/null" if self.before is None else f"a/{self.name}",
            "/dev/null" if self.after is None else f"b/{self.name}",
        )
        lines = difflib.unified_diff(old, new, *names, n=_CONTEXT_LINES)
        text = "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
        return f"{self._modes()}{text}"

    def _modes(self) -> str:
        if self.before is None or self.after is None or self.before.mode == self.after.mode:
            return ""
        return f"{self.name}: mode {self.before.mode} → {self.after.mode}\n"

    @property
    def counts(self) -> tuple[int, int]:
        """Lines added and removed."""
        old, new = (_text(side) or [] for side in (self.before, self.after))
        lines = list(difflib.unified_diff(old, new, n=0))[2:]
        return sum(line[:1] == "+" for line in lines), sum(line[:1] == "-" for line in lines)


def _text(file: FileAt | None) -> list[str] | None:
    """Return the lines of a side; None where it is no text, or too long to be compared."""
    if file is None:
        return []
    if len(file.data) > _DIFF_BYTES_MAX or b"\0" in file.data:
        return None
    try:
        text = file.data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    shown = visible_lines(f"link to {text}" if file.is_link else text)
    return [f"{line}\n" for line in shown.split("\n")[:-1]] + [line for line in shown.split("\n")[-1:] if line]


class Merge(NamedTuple):
    """What to write (`file`; None: remove it). `done`: nothing is to be done. `conflict`: why it cannot be."""

    file: FileAt | None = None
    done: bool = False
    conflict: str = ""


async def merge_of(change: WorktreeChange, now: FileAt | None, *, committed: bool, merged: Merged | None) -> Merge:
    """Return how a change is taken over where the project has `now`. Without `merged` no texts are merged. `committed`:
    what the project has now is in its last commit; changes that are not are left alone."""
    before, after = change.before, change.after
    if now == after:
        return Merge(done=True)
    if now == before:
        return Merge(after)
    if merged is None or not committed:
        return Merge(conflict="it has changed in the project since" + ("" if committed else ", and is not committed"))
    if before is None or after is None or now is None:
        return Merge(conflict="it was removed on one side and changed on the other, or added on both")
    if before.is_link or after.is_link or now.is_link:
        return Merge(conflict="a link was changed on both sides")
    text = await merged(now.data, before.data, after.data)
    if text is None:
        return Merge(conflict="both sides have changed the same lines")
    mode = after.mode if after.mode != before.mode else now.mode
    return Merge(FileAt(text, mode))


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
