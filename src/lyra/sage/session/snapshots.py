"""Snapshots: what files were before each turn, kept outside the user's git, so that a turn can be undone.

A session calls `begin_turn`, then `before(path)` and `after` around a tool that changes one file, or `before_command`
and `after` around a command that may change any. A difference that is seen while one of them runs is the agent's; a
difference that is seen at another time was made by another hand, such as the user's editor. The journal keeps both, so
`restore` knows what to bring back and what it would overwrite: it refuses with Conflict and a diff, unless forced. What
`restore` itself does is journaled, too, and is taken back by the checkpoint that it returns.

Calls block for disk work and may come from any thread. Only files in the workspace folders are touched, never those of
git, and what is restored never leaves its workspace folder. Folders whose content tools make again, and very large
files, are not kept (`notes` says so).
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import re
import stat
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

from lyra.core.checking.check import did_you_mean
from lyra.core.clock import Clock, SystemClock
from lyra.core.secrets.redact import redact
from lyra.core.secrets.visible import visible
from lyra.errors import ConfigError, Conflict, Corrupt, StoreError
from lyra.sage.session.files.contents import KeptContents
from lyra.sage.session.files.history import (
    Begun,
    Changed,
    ChangeHistory,
    Dropped,
    JournalLine,
    Marked,
    PathHistory,
    Seen,
    SessionsAtWork,
    Settled,
    SnapshotJournal,
    StatePair,
    TurnBegun,
)
from lyra.sage.session.files.observed import CACHE_MARKS, LEFTOVER_PREFIX, ObservedFiles, ScanBounds, ScanReport
from lyra.sage.session.files.state import FileChange, FileState, encode_name, look_at, open_parent, read_name
from lyra.sandbox.paths import Beneath

_count: Final = itertools.count()
_OWNERS_RIGHTS: Final = stat.S_IRWXU
_CACHE: Final = "__pycache__"


class PlannedPath(NamedTuple):
    path: str
    root: str
    now: FileState
    target: FileState


def restore_paths(
    plan: Sequence[PlannedPath], contents: KeptContents, restored: Callable[[str], None]
) -> dict[str, str]:
    """Bring every path to its target. `restored` is told each path that was changed; the paths that stay as they are
    come back, each with a sentence."""
    problems: dict[str, str] = {}
    shallow_first = sorted(plan, key=lambda planned: planned.path.count("/"))
    deep_first = shallow_first[::-1]
    steps: tuple[tuple[Sequence[PlannedPath], Callable[[Beneath, PlannedPath, KeptContents], bool]], ...] = (
        (shallow_first, _open_folder),
        (deep_first, _remove),
        (shallow_first, _make_folder),
        (shallow_first, _put),
        (deep_first, _set_mode),
    )
    for paths, step in steps:
        for planned in paths:
            try:
                with Beneath(planned.root) as root:
                    if step(root, planned, contents):
                        restored(planned.path)
            except (OSError, Corrupt) as error:
                reason = str(error) if isinstance(error, Corrupt) else error.strerror or "it cannot be written"
                problems.setdefault(planned.path, f"{visible(planned.path)}: {reason}")
    return problems


def set_folder_mode(root: str, path: str, mode: int) -> None:
    """Set the mode of a folder of the workspace folder `root`, also of one that may not be read."""
    with Beneath(root) as beneath, open_parent(beneath, path) as (parent, name):
        _change_mode(parent, name, mode)


# ------------------------------------------------------------ steps; each says whether it has changed its path
def _open_folder(root: Beneath, planned: PlannedPath, _contents: KeptContents) -> bool:
    """Give the owner of a folder all rights while what is in it is restored."""
    if planned.now.kind != "folder" or planned.now.mode & _OWNERS_RIGHTS == _OWNERS_RIGHTS:
        return False
    with open_parent(root, planned.path) as (parent, name):
        _change_mode(parent, name, planned.now.mode | _OWNERS_RIGHTS)
    return False


def _remove(root: Beneath, planned: PlannedPath, _contents: KeptContents) -> bool:
    """Remove what is not wanted, or has to make room for a folder or be a folder no longer."""
    now, target = planned.now.kind, planned.target.kind
    if now == "absent" or not (target == "absent" or "folder" in (now, target)) or now == target:
        return False
    with open_parent(root, planned.path) as (parent, name):
        if now != "folder":
            os.unlink(name, dir_fd=parent)
            return True
        _remove_cache(parent, name)
        try:
            os.rmdir(name, dir_fd=parent)
        except OSError as error:
            if target != "absent" or error.errno != errno.ENOTEMPTY or not _holds_caches(parent, name):
                raise
            return False
    return True


def _make_folder(root: Beneath, planned: PlannedPath, _contents: KeptContents) -> bool:
    if planned.target.kind != "folder" or planned.now.kind == "folder":
        return False
    _make_above(root, planned.path)
    with open_parent(root, planned.path) as (parent, name):
        os.mkdir(name, _OWNERS_RIGHTS, dir_fd=parent)
        _change_mode(parent, name, planned.target.mode | _OWNERS_RIGHTS)
    return True


def _put(root: Beneath, planned: PlannedPath, contents: KeptContents) -> bool:
    """Make the file or link beside its place and rename it."""
    if planned.target.kind not in ("file", "link"):
        return False
    digest = planned.target.digest
    data = b"" if digest is None else contents.read(digest)
    _make_above(root, planned.path)
    with open_parent(root, planned.path) as (parent, name):
        beside = f"{LEFTOVER_PREFIX}{os.getpid()}-{next(_count)}"
        try:
            if planned.target.kind == "link":
                os.symlink(read_name(planned.target.content), beside, dir_fd=parent)
            else:
                _write(parent, beside, data, planned.target.mode, beside_of=name)
            os.rename(beside, name, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            with suppress(OSError):
                os.unlink(beside, dir_fd=parent)
            raise
    return True


def _set_mode(root: Beneath, planned: PlannedPath, _contents: KeptContents) -> bool:
    """Return the modes of folders come last: a folder may be closed to writing."""
    if planned.target.kind != "folder":
        return False
    with open_parent(root, planned.path) as (parent, name):
        _change_mode(parent, name, planned.target.mode)
    return True


# ------------------------------------------------------------ calls
def _write(parent: int, name: str, data: bytes, mode: int, *, beside_of: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(name, flags, 0o600, dir_fd=parent)
    with open(fd, "wb") as file:
        file.write(data)
        file.flush()
        with suppress(OSError):  # only root can change the owner; for other users the file is theirs already
            status = os.stat(beside_of, dir_fd=parent, follow_symlinks=False)
            os.fchown(fd, status.st_uid, status.st_gid)
        os.fchmod(fd, mode)
        os.fsync(fd)


def _change_mode(parent: int, name: str, mode: int) -> None:
    """Set the mode of a folder, also of one that may not be read; a link of its name is not followed."""
    path_only = getattr(os, "O_PATH", 0)
    fd = os.open(name, path_only | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{fd}" if path_only else fd, mode)
    finally:
        os.close(fd)


def _make_above(root: Beneath, path: str) -> None:
    """Make the folders above a path that are missing: another hand has removed them."""
    folder = os.path.dirname(path)
    if folder == root.root or look_at(root, folder) is not None:
        return
    _make_above(root, folder)
    with open_parent(root, folder) as (parent, name), suppress(FileExistsError):
        os.mkdir(name, dir_fd=parent)


def _holds_caches(parent: int, name: str) -> bool:
    """Return whether all that is left in a folder can be made again: it is a cache itself, or has only caches."""
    folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        names = os.listdir(folder)
        marked = [any(os.access(f"{entry}/{mark}", os.F_OK, dir_fd=folder) for mark in CACHE_MARKS) for entry in names]
        return bool(CACHE_MARKS.intersection(names)) or all(marked)
    finally:
        os.close(folder)


def _remove_cache(parent: int, name: str) -> None:
    """Remove the compiled modules that Python has left in a folder, if nothing else is there."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(OSError):
        folder = os.open(name, flags, dir_fd=parent)
        try:
            if name != _CACHE and os.listdir(folder) != [_CACHE]:
                return
            cache = os.dup(folder) if name == _CACHE else os.open(_CACHE, flags, dir_fd=folder)
            try:
                files = os.listdir(cache)
                if all(file.endswith(".pyc") for file in files):
                    for file in files:
                        os.unlink(file, dir_fd=cache)
            finally:
                os.close(cache)
            if name != _CACHE:
                os.rmdir(_CACHE, dir_fd=folder)
        finally:
            os.close(folder)


__all__ = ["Checkpoint", "FileChange", "Restored", "ScanBounds", "ScanReport", "Snapshots"]

FILES_FOLDER: Final = "files"
AT_WORK_FOLDER: Final = "at-work"  # beside the sessions
POOL_FOLDER: Final = "shared-contents"  # beside the sessions: of folders that were added to them
KEPT_BYTES_MAX: Final = 1024**3  # of all contents of a session; then the oldest turns are dropped
_NAME_LENGTH_MAX: Final = 100
_AUTOMATIC: Final = re.compile(r"undo-[0-9]+\Z")
_DIFF_LENGTH_MAX: Final = 200_000


class Checkpoint(NamedTuple):
    """`automatic`: made by a restore, so that it can be taken back."""

    name: str
    turn: int
    time: float
    automatic: bool


class Restored(NamedTuple):
    """`paths`: what was changed; `redo`: the checkpoint that takes this restore back; `problems`: a sentence for each
    path that stays as it is, though it should have been restored."""

    paths: tuple[str, ...]
    redo: str
    problems: tuple[str, ...]


class Snapshots:
    """The snapshots of one session, in `folder_of_session/files`."""

    def __init__(
        self,
        folder_of_session: str | os.PathLike[str],
        workspace_folders: Sequence[str],
        *,
        bounds: ScanBounds | None = None,
        kept_bytes_max: int = KEPT_BYTES_MAX,
        clock: Clock | None = None,
    ) -> None:
        session = Path(os.path.abspath(folder_of_session))
        self.folder = session / FILES_FOLDER
        self._clock = clock or SystemClock()
        self._kept_bytes_max = kept_bytes_max
        self._lock = threading.RLock()
        self._contents = KeptContents(self.folder / "objects", session.parent / POOL_FOLDER)
        without = {str(session), os.path.realpath(session)}
        self._files = ObservedFiles(workspace_folders, self._contents, bounds=bounds or ScanBounds(), without=without)
        self._journal = SnapshotJournal(self.folder)
        mark = hashlib.blake2b(os.fsencode(self._files.roots[0]), digest_size=8).hexdigest()
        self._at_work = SessionsAtWork(session.parent / AT_WORK_FOLDER / mark, session.name)
        self._places: dict[int, int] = {}  # of the commands that run: where they began in the file of all sessions
        self._history = ChangeHistory()
        self._open: dict[int, Begun] = {}  # tool calls that may change files at this moment
        self._last_token = 0
        for line in self._journal.read():
            self._take(line)
        self._is_in_doubt = bool(self._open)  # the process that wrote the journal was killed meanwhile

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            for token in list(self._places):
                self._end_command(token)
            self._journal.close()
            self._contents.close()

    @property
    def turn(self) -> int:
        """The number of the turn that has begun last."""
        return self._history.turn

    # ------------------------------------------------------------ around tools
    def begin_turn(self, turn: int) -> None:
        """Begin a turn; turns after an undo have the numbers of those that were undone."""
        with self._lock:
            self._settle_doubt()
            self._append([TurnBegun(turn, self._clock.now())])
            self._drop_oldest()

    def before(self, path: str) -> int:
        """Return a tool is about to change this file: its state is kept. Returns the token for `after`."""
        with self._lock:
            self._settle_doubt()
            real = self._real(path)
            self._at_work.mark(real, "opens")
            self._append(self._files.look(real, self._by()))
            return self._begin(real, "agent")

    def before_command(self) -> int:
        """Return a command is about to run that may change any file. Returns the token for `after`."""
        with self._lock:
            self._settle_doubt()
            place = self._at_work.begin()
            self._append(self._files.scan(self._by()))
            token = self._begin("", "agent")
            self._places[token] = place
            return token

    def after(self, token: int) -> list[FileChange]:
        """Return the tool or command has ended, in whatever way; what has changed meanwhile. A second call does
        nothing."""
        with self._lock:
            begun = self._open.get(token)
            if begun is None:
                return []
            position = self._history.position
            path = read_name(begun.path)
            lines = self._files.look(path, begun.by) if path else self._files.scan(begun.by)
            if token in self._places:
                lines = self._at_work.sort(lines, self._places[token])
                self._end_command(token)
            else:
                self._at_work.tell(lines)
                self._at_work.mark(path, "closes")
            self._append([*lines, Settled(token)])
            return self._list_changes(self._history.since(position))

    def end_turn(self, *, still_running: Collection[int] = ()) -> None:
        """Close the calls that have no `after` yet, such as one that was cancelled, but not those that continue in the
        background: their tokens are `still_running`."""
        with self._lock:
            for token in [token for token in self._open if token not in still_running]:
                self.after(token)
            for token in list(self._places):
                self._end_command(token)

    def _end_command(self, token: int) -> None:
        """Tell the other sessions that no command runs here any more but in the background."""
        del self._places[token]
        if not self._places:
            self._at_work.end()

    def scan(self) -> ScanReport:
        """Look at all files of the workspace now."""
        with self._lock:
            self._settle_doubt()
            self._append(self._files.scan(self._by()))
            return self._files.report

    # ------------------------------------------------------------ what has changed
    def turn_changes(self, turn: int | None = None) -> list[FileChange]:
        """Return what the agent has changed in a turn; without a turn, since the session began."""
        with self._lock:
            with suppress(Conflict):  # another process writes: then what it has written so far
                self._settle_doubt()
            return self._list_changes(self._history.in_turn(turn) if turn is not None else self._history.since(0))

    def notes(self) -> list[str]:
        """Sentences about what cannot be undone because of the bounds."""
        report, notes = self._files.report, []
        if report.is_bounded:
            limit = self._files.bounds.files_max
            notes.append(
                f"the workspace has more than {limit} files: changes by commands to the others cannot be undone"
            )
        if report.unkept:
            notes.append(f"{report.unkept} files are too large, or may not be read: changes to them cannot be undone")
        if self._history.first_turn_kept:
            notes.append(f"undo goes back to turn {self._history.first_turn_kept}: older contents were dropped")
        return notes

    # ------------------------------------------------------------ restoring
    def restore(self, turn: int, *, force: bool = False) -> Restored:
        """Bring all files that the agent has changed since before a turn back to what they were then."""
        with self._lock:
            self._settle_doubt()
            position = self._history.start_of(turn)
            if position is None:
                return Restored((), self._mark(self._history.new_undo_name(), automatic=True).name, ())
            self._check_kept(position, f"turn {turn}")
            return self._restore(position, with_others=False, force=force)

    def checkpoint(self, name: str) -> Checkpoint:
        """Name the present state of the files; a name that exists moves here."""
        if not name or len(name) > _NAME_LENGTH_MAX or not name.isprintable() or _AUTOMATIC.match(name):
            raise ConfigError(
                f"{visible(name[:_NAME_LENGTH_MAX])!r} cannot name a checkpoint",
                hint=f"use 1 to {_NAME_LENGTH_MAX} characters that can be seen; undo-N is taken",
                key="name",
            )
        with self._lock:
            self._settle_doubt()
            self._append(self._files.scan(self._by()))
            return self._mark(name, automatic=False)

    def checkpoints(self) -> list[Checkpoint]:
        """Return all checkpoints that can be restored, the oldest first."""
        with self._lock:
            return [Checkpoint(mark.name, mark.turn, mark.time, mark.automatic) for mark, _ in self._history.marks()]

    def restore_checkpoint(self, name: str, *, force: bool = False) -> Restored:
        """Bring all files that the agent has changed since a checkpoint back to what they were then. Files that only
        other hands have changed stay as they are."""
        with self._lock:
            self._settle_doubt()
            positions = {mark.name: position for mark, position in self._history.marks()}
            if name not in positions:
                near = did_you_mean(name, positions)
                raise StoreError(
                    f"there is no checkpoint {visible(name[:_NAME_LENGTH_MAX])!r}",
                    hint=f"did you mean {near!r}?" if near else None,
                    reason="not_found",
                )
            return self._restore(positions[name], with_others=True, force=force)

    def _restore(self, position: int, *, with_others: bool, force: bool) -> Restored:
        for path in self._history.since(position):
            self._append(self._files.look(path, self._by()))
        self._look_into_closed_folders(position)
        plan = list(self._plan(position, with_others=with_others))
        touched = [(planned, pairs) for planned, pairs in plan if pairs]
        if touched and not force:
            raise self._conflict(touched)
        problems = {
            planned.path: f"{visible(planned.path)}: its content was not kept, so it stays as it is"
            for planned, _ in plan
            if not planned.target.is_kept
        }
        paths = [planned for planned, _ in plan if planned.path not in problems]
        redo = self._mark(self._history.new_undo_name(), automatic=True)
        if not paths:
            return Restored((), redo.name, tuple(problems.values()))
        token = self._begin("", "restore")
        changed: dict[str, None] = {}

        def on_restore(path: str) -> None:
            changed[path] = None
            lines = self._files.look(path, "restore")
            self._at_work.tell(lines)
            self._append(lines)

        problems |= restore_paths(paths, self._contents, on_restore)
        self._append([Settled(token)])
        return Restored(tuple(sorted(changed)), redo.name, tuple(problems.values()))

    def _look_into_closed_folders(self, position: int) -> None:
        """Find what the agent changed in folders that it closed to this user afterwards. They are opened for the look
        and closed again, so that a refused restore leaves them as they were."""
        modes: dict[str, int] = {}
        while closed := [
            (path, root, state.mode)
            for path in self._history.since(position)
            if path not in modes
            and (root := self._files.root_of(path)) is not None
            and (state := self._files.state_of(path)).kind == "folder"
            and state.mode & stat.S_IRWXU != stat.S_IRWXU
            and not os.access(path, os.R_OK | os.X_OK)
        ]:
            for path, root, mode in closed:
                modes[path] = mode
                with suppress(OSError):  # another user's folder stays closed
                    set_folder_mode(root, path, mode | stat.S_IRWXU)
            self._append(self._files.scan("agent"))
        for path, mode in reversed(modes.items()):
            with suppress(OSError):
                set_folder_mode(self._files.root_of(path) or path, path, mode)
            self._append(self._files.look(path, "agent"))

    def _plan(self, position: int, *, with_others: bool) -> Iterator[tuple[PlannedPath, list[StatePair]]]:
        """Yield the paths that have to be restored, each with what other hands have changed in it."""
        for path, history in self._history.since(position).items():
            root = self._files.root_of(path)
            target = history.state_before(with_others=with_others)
            now = self._files.state_of(path)
            if root is not None and target is not None and now != target:
                yield PlannedPath(path, root, now, target), history.foreign_changes(with_others=with_others)

    def _conflict(self, touched: list[tuple[PlannedPath, list[StatePair]]]) -> Conflict:
        changes = [
            FileChange(planned.path, before, after, self._contents, name=self._name(planned.path))
            for planned, pairs in touched
            for before, after in pairs
        ]
        names = [visible(self._name(planned.path)) for planned, _ in touched]
        more = f" and {len(names) - 1} more were" if len(names) > 1 else " was"
        diff = redact("".join(change.diff() for change in changes))
        return Conflict(
            f"{names[0]}{more} changed by another hand since",
            hint="look at the diff; forcing it overwrites these changes and keeps a checkpoint of them",
            diff=diff[:_DIFF_LENGTH_MAX],
            paths=[planned.path for planned, _ in touched],
        )

    # ------------------------------------------------------------ the journal
    def _append(self, lines: list[JournalLine]) -> None:
        self._journal.append(lines)
        for line in lines:
            if not isinstance(line, Seen | Changed):  # those are known to `_files` already
                self._take(line)
            else:
                self._history.take(line)

    def _take(self, line: JournalLine) -> None:
        self._history.take(line)
        if isinstance(line, Seen | Changed):
            self._files.recall_line(line)
        elif isinstance(line, Begun):
            self._open[line.token] = line
            self._last_token = max(self._last_token, line.token)
        elif isinstance(line, Settled):
            self._open.pop(line.token, None)

    def _begin(self, path: str, by: str) -> int:
        token = self._last_token + 1
        self._append([Begun(token, encode_name(path), by)])
        return token

    def _mark(self, name: str, *, automatic: bool) -> Checkpoint:
        mark = Marked(name, self._history.turn, self._clock.now(), automatic)
        self._append([mark])
        return Checkpoint(mark.name, mark.turn, mark.time, automatic)

    def _by(self) -> str:
        """Return the hand that a difference is put down to which is seen now."""
        return "agent" if self._open else "other"

    def _settle_doubt(self) -> None:
        """After a kill in the middle of a tool call, what has changed since may be that call's or another hand's: it
        is in doubt, so an undo wants to bring it back and asks first."""
        if not self._is_in_doubt:
            return
        self._is_in_doubt = False
        self._files.remove_leftovers()
        begun = list(self._open.values())
        by = "restore" if all(line.by == "restore" for line in begun) else "doubt"
        lines = [] if all(line.path for line in begun) else self._files.scan(by)
        for line in begun:
            if line.path:
                lines += self._files.look(read_name(line.path), by)
        self._append([*lines, *[Settled(line.token) for line in begun]])

    # ------------------------------------------------------------ bounds
    def _drop_oldest(self) -> None:
        """Drop contents that only the oldest turns need, until the others take three quarters of the room: then the
        next turns need not drop again."""
        if self._contents.size_bytes <= self._kept_bytes_max:
            return
        sizes = self._contents.sizes()
        known = set(self._files.digests())
        for turns_begun in range(1, self._history.turns_begun + 1):
            needed = known | self._history.digests_since_turn_line(turns_begun)
            size_bytes = sum(sizes.get(digest, 0) for digest in needed)
            if size_bytes <= self._kept_bytes_max * 3 // 4 or turns_begun == self._history.turns_begun:
                self._append([Dropped(turns_begun)])
                self._contents.keep_only(needed)
                return

    def _check_kept(self, position: int, what: str) -> None:
        if position < self._history.first_position_kept:
            raise StoreError(
                f"the files before {what} are no longer kept",
                hint=f"undo goes back to turn {self._history.first_turn_kept}",
                reason="dropped",
            )

    # ------------------------------------------------------------ names
    def _real(self, path: str) -> str:
        return os.path.realpath(os.path.join(self._files.roots[0], path))

    def _name(self, path: str) -> str:
        prefix = self._files.roots[0].rstrip("/") + "/"
        return path.removeprefix(prefix)

    def _list_changes(self, histories: dict[str, PathHistory]) -> list[FileChange]:
        changes = [
            FileChange(path, before, after, self._contents, name=self._name(path))
            for path, history in sorted(histories.items())
            for before, after in history.agents_change()
        ]
        return [change for change in changes if change.is_of_a_file]
