"""ObservedFiles: the last state of every file of the workspace that was looked at, with its content kept.

Owns the map of known files and finds what has changed since: `look` at one path, `scan` all. Contents are kept when a
file is seen, so what a later command overwrites is known. A file whose status is the same as last time is not read
again, unless it had been written just before it was read. Differences become lines of the journal; who made them, the
caller says. Never writes into the workspace.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from lyra.core.clock import SystemClock
from lyra.core.commands.option_reach import words_of
from lyra.core.own_files import find_own_paths
from lyra.errors import CapabilityDenied, ConfigError
from lyra.sage.session.files.history import Changed, JournalLine, Seen
from lyra.sage.session.files.state import (
    ABSENT,
    FileState,
    StatSignature,
    encode_name,
    look_at,
    open_parent,
    read_name,
    signature_of,
    state_without_content,
)
from lyra.sandbox.paths import Beneath, FolderNames, list_names, real_path, recall_names
from lyra.sandbox.protection.protected_names import OBEYED_KEYS, home_paths

if TYPE_CHECKING:
    from lyra.sage.session.files.contents import KeptContents


_FRESH_S = 2.0  # a file that was written this shortly before it was read may change within one tick of its time
_READ_TRIES: Final = 3
_TOOL_FILE_BYTES_MAX: Final = 100 * 1024 * 1024  # of a file that a tool names: the tools write no larger ones


class ScanBounds(NamedTuple):
    files_max: int = 20_000  # a scan takes about 0.06 s
    file_bytes_max: int = 4 * 1024 * 1024  # larger files are noticed, and their bytes not kept
    bytes_max: int = 256 * 1024 * 1024  # of all files that scans keep


class ScanReport(NamedTuple):
    """`is_bounded`: there are more files than are looked at. `unkept`: files whose content is not kept."""

    files: int
    unkept: int
    is_bounded: bool


class _Known(NamedTuple):
    state: FileState
    signature: StatSignature | None
    is_listed: bool = False  # of a folder: every name in it is known


_UNKNOWN: Final = _Known(ABSENT, None)


class ObservedFiles:
    """`folders` are the workspace, and contents of all but the first go to the pool that sessions share; `without` are
    folders inside them that are Lyra's own."""

    __slots__ = ("_known", "_same", "_scanned_bytes", "bounds", "contents", "report", "roots", "without")

    def __init__(
        self, folders: Sequence[str], contents: KeptContents, *, bounds: ScanBounds, without: Collection[str]
    ) -> None:
        reals = list(dict.fromkeys(os.path.realpath(folder) for folder in folders))
        self.roots = tuple(real for real in reals if not any(_is_below(real, other) for other in reals))
        if not self.roots:
            raise ConfigError("snapshots need a workspace folder")
        self.contents = contents
        self.bounds = bounds
        self.without = tuple(without)
        self.report = ScanReport(0, 0, False)
        self._known: dict[str, _Known] = {}
        self._same: dict[str, _Looked] = {}  # folders whose files are all as they are known, as the last scan saw them
        self._scanned_bytes = 0

    def state_of(self, path: str) -> FileState:
        return self._known.get(path, _UNKNOWN).state

    def digests(self) -> Iterator[str]:
        """Yield the contents that the known files have."""
        for known in self._known.values():
            if known.state.digest is not None:
                yield known.state.digest

    def recall_line(self, line: Seen | Changed) -> None:
        """Take over what an earlier process has written."""
        state = line.state if isinstance(line, Seen) else line.after
        self._known[read_name(line.path)] = _Known(state, line.signature, line.is_listed)

    def root_of(self, path: str) -> str | None:
        """Return the workspace folder that a path without links lies in; None outside of all, and for what is git's."""
        for root in self.roots:
            if _is_below(path, root) and _GIT not in path[len(root) :].split("/"):
                return None if any(path == place or _is_below(path, place) for place in self.without) else root
        return None

    def look(self, path: str, by: str) -> list[JournalLine]:
        """Look at a path of the workspace and the folders above it. Where that is not allowed, nothing is news."""
        root = self.root_of(path)
        if root is None:
            return []
        lines: list[JournalLine] = []
        # The folders between a workspace folder and a path, and the path.
        start = root.rstrip("/")
        parts = path[len(start) + 1 :].split("/")
        places = ["/".join((start, *parts[:depth])) for depth in range(1, len(parts) + 1)]
        complete = {folder for folder in (root, *places) if self._is_listed(folder)}
        with _open_root(root) as beneath:
            if beneath is None:
                return []
            for place in places:
                try:
                    status = look_at(beneath, place)
                except OSError:
                    break
                state, signature = self._read(beneath, place, status, bytes_max=_TOOL_FILE_BYTES_MAX)
                is_new = self.state_of(place).kind != "folder" and (place in self._known or _folder(place) in complete)
                is_listed = state.kind == "folder" and (is_new or self._is_listed(place))
                plain = None if status is None else state_without_content(status)
                lines += self._observe(place, _Known(state, signature, is_listed), by, complete, plain)
        return lines

    def _is_listed(self, path: str) -> bool:
        return self._known.get(path, _UNKNOWN).is_listed

    def scan(self, by: str) -> list[JournalLine]:
        """Look at every file of the workspace, within the bounds."""
        with ExitStack() as stack:
            opened = [stack.enter_context(_open_root(root)) for root in self.roots]
            roots = [beneath for beneath in opened if beneath is not None]
            listing = list_workspace(roots, files_max=self.bounds.files_max, without=self.without, same=self._same)
            lines = self._compare(roots, listing, by)
        unkept = self.report.unkept
        if lines:
            unkept = sum(known.state.kind == "file" and not known.state.is_kept for known in self._known.values())
        self.report = ScanReport(len(listing.paths), unkept, listing.is_bounded)
        return lines

    def remove_leftovers(self) -> None:
        """Remove the files that a restore was about to put in place when its process was killed."""
        for root in self.roots:
            with _open_root(root) as beneath:
                if beneath is None:
                    continue
                listing = list_workspace([beneath], files_max=self.bounds.files_max, without=self.without)
                for path in listing.leftovers:
                    with suppress(OSError), open_parent(beneath, path) as (parent, name):
                        os.unlink(name, dir_fd=parent)

    def _compare(self, roots: list[Beneath], listing: WorkspaceListing, by: str) -> list[JournalLine]:
        """Return the lines for what is not as it is known. Nearly all files are, so those are passed over first."""
        known, listed, news = self._known, listing.listed, []
        for path, status in listing.entries.items():
            before = known.get(path)
            if before is None or before.is_listed != (path in listed) or before.signature != _signature(status):
                news.append((path, status))
        gone = known.keys() - listing.paths
        changed = {_folder(path) for path, _ in news}
        self._same.update((folder, looked) for folder, looked in listing.looked.items() if folder not in changed)
        if not news and not gone:
            return []
        lines: list[JournalLine] = []
        complete = {path for path, before in known.items() if before.is_listed}
        self._scanned_bytes = sum(before.state.size for before in known.values() if before.state.digest)
        for root in roots:
            prefix = root.root.rstrip("/") + "/"
            for path, status in news:
                if path == root.root or path.startswith(prefix):
                    lines += self._compare_one(root, path, status, listing, by, complete)
            for path in sorted(gone):
                if path.startswith(prefix):
                    lines += self._look_again(root, path, listing, by, complete)
        return lines

    def _compare_one(
        self, root: Beneath, path: str, status: os.stat_result, listing: WorkspaceListing, by: str, complete: set[str]
    ) -> list[JournalLine]:
        known = self._known.get(path)
        # The names in a folder that was closed since the last look stay known: those that are new later are told apart.
        is_listed = path in listing.listed or (path in listing.closed and known is not None and known.is_listed)
        signature = signature_of(status)
        if known is not None and known.signature == signature and known.is_listed == is_listed:
            return []
        if stat.S_ISDIR(status.st_mode):
            signature = signature._replace(mtime_ns=0, ctime_ns=0, size=0)  # these change with every name in it
            if known is not None and known.signature == signature and known.is_listed == is_listed:
                return []
            return self._observe(path, _Known(state_without_content(status), signature, is_listed), by, complete)
        state, read_signature = self._read(root, path, status, bytes_max=self._room(known))
        return self._observe(path, _Known(state, read_signature), by, complete, state_without_content(status))

    def _room(self, known: _Known | None) -> int:
        """Return how many bytes a file may have to be kept by a scan. A file whose content was kept is kept again."""
        before = 0 if known is None or known.state.digest is None else known.state.size
        return max(min(self.bounds.file_bytes_max, self.bounds.bytes_max - self._scanned_bytes), before)

    def _look_again(
        self, root: Beneath, path: str, listing: WorkspaceListing, by: str, complete: set[str]
    ) -> list[JournalLine]:
        """Look at a known path that was not listed: it is gone, or the folder it lies in is not listed this time."""
        known = self._known[path]
        try:
            status = None if _folder(path) in listing.listed else look_at(root, path)
        except OSError:  # not allowed: it is taken to be as it was
            return []
        if status is None:
            return [] if known.state == ABSENT else self._observe(path, _UNKNOWN, by, complete)
        if known.signature == signature_of(status):
            return []
        state, signature = self._read(root, path, status, bytes_max=self._room(known))
        return self._observe(path, _Known(state, signature), by, complete, state_without_content(status))

    def _observe(
        self, path: str, seen: _Known, by: str, complete: set[str], plain: FileState | None = None
    ) -> list[JournalLine]:
        """Remember a state; the line to journal if it is news. `complete`: folders of which every name was known;
        `plain`: the state as it is known of a file whose content is not kept, which it may have been until now."""
        known = self._known.get(path)
        if known is None and _folder(path) in complete:
            known = _UNKNOWN
        before = None if known is None else known.state
        if before is not None and before.kind != "folder" and seen.state.kind == "folder":
            complete.add(path)  # it is new: all that is in it came after
        name = encode_name(path)
        self._known[path] = seen
        self._same.pop(_folder(path), None)
        if before is None or (seen.state.is_kept and before == plain):
            return [Seen(name, seen.state, seen.signature, seen.is_listed)]
        if before != seen.state:
            return [Changed(name, by, before, seen.state, seen.signature, seen.is_listed)]
        if known is not None and known.is_listed != seen.is_listed:
            return [Seen(name, seen.state, seen.signature, seen.is_listed)]
        return []

    def _read(
        self, root: Beneath, path: str, status: os.stat_result | None, *, bytes_max: int
    ) -> tuple[FileState, StatSignature | None]:
        """Return the state of a path with its content kept, if it is small enough; the signature is None where the file
        may change without changing it."""
        if status is None:
            return ABSENT, None
        state = state_without_content(status)
        signature = signature_of(status)
        if state.kind == "folder":
            return state, signature._replace(mtime_ns=0, ctime_ns=0, size=0)
        if state.kind not in ("file", "link"):
            return state, signature
        try:
            with open_parent(root, path) as (parent, name):
                if state.kind == "link":
                    return FileState("link", 0, encode_name(os.readlink(name, dir_fd=parent))), signature
                if status.st_size > bytes_max:
                    return state, signature
                return self._keep(parent, name, shared=root.root != self.roots[0])
        except FileNotFoundError:
            return ABSENT, None
        except OSError:  # not readable for this user, or replaced by something else meanwhile
            return state, None

    def _keep(self, parent: int, name: str, *, shared: bool) -> tuple[FileState, StatSignature | None]:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=parent)
        try:
            for _ in range(_READ_TRIES):
                status = os.fstat(fd)
                if not stat.S_ISREG(status.st_mode):
                    return state_without_content(status), None
                os.lseek(fd, 0, os.SEEK_SET)
                digest, size = self.contents.keep(fd, shared=shared)
                signature = signature_of(os.fstat(fd))
                if signature == signature_of(status):
                    break
        finally:
            os.close(fd)
        self._scanned_bytes += size
        is_fresh = status.st_ctime_ns > (SystemClock.now() - _FRESH_S) * 1e9
        return FileState("file", stat.S_IMODE(status.st_mode), digest, size), None if is_fresh else signature


_folder: Final = os.path.dirname


def _signature(status: os.stat_result) -> tuple[int, int, int, int, int]:
    """Return a StatSignature as a plain tuple; of a folder without what changes with every name in it."""
    if stat.S_ISDIR(status.st_mode):
        return 0, 0, 0, status.st_ino, status.st_mode
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_mode


def _is_below(path: str, folder: str) -> bool:
    return path != folder and path.startswith(folder.rstrip("/") + "/")


@contextmanager
def _open_root(root: str) -> Iterator[Beneath | None]:
    """Yield a workspace folder; None where it is missing."""
    try:
        beneath = Beneath(root)
    except ConfigError:
        yield None
        return
    with beneath:
        yield beneath


_OWN_NAMES_MAX: Final = 1_000  # names in one folder that do not count: git's and leftovers
LEFTOVER_PREFIX: Final = ".lyra-restoring-"  # begins the names of files that a restore has not put in place yet
_GIT: Final = ".git"
_REMADE: Final = words_of(
    "node_modules bower_components __pycache__ .venv .tox .nox .hg .svn .mypy_cache .pytest_cache .ruff_cache"
    " .hypothesis .gradle .terraform .next .turbo"
)
_NOT_ENTERED: Final = _REMADE.union(OBEYED_KEYS)
CACHE_MARKS: Final = frozenset(("CACHEDIR.TAG", "pyvenv.cfg"))  # the folder with such a file can be made again
_REPOSITORY: Final = frozenset(("HEAD", "objects", "refs"))  # a folder with these is a repository without files


class WorkspaceListing:
    """`paths`: all that were found; `entries`: their status, but of files in folders that are the `same`; `looked`:
    what was seen in the other folders; `listed`: the folders whose names are all among the paths; `leftovers`: files of
    a restore that was cut off; `closed`: folders that this user may not read. `is_bounded`: folders were left out
    because there are too many files."""

    __slots__ = ("closed", "entries", "is_bounded", "leftovers", "listed", "looked", "paths", "same")

    def __init__(self, same: Mapping[str, _Looked]) -> None:
        self.paths: set[str] = set()
        self.entries: dict[str, os.stat_result] = {}
        self.same = same
        self.looked: dict[str, _Looked] = {}
        self.listed: set[str] = set()
        self.leftovers: list[str] = []
        self.closed: set[str] = set()
        self.is_bounded = False


def list_workspace(
    roots: Iterable[Beneath],
    *,
    files_max: int,
    without: Collection[str] = (),
    same: Mapping[str, _Looked] = MappingProxyType({}),
) -> WorkspaceListing:
    """List the workspace folders, shallow folders first; `without` are further folders that are not listed."""
    listing = WorkspaceListing(same)
    places = (*find_own_paths().hidden, *home_paths()[0], *home_paths()[1], *without)
    excluded = {path for place in places for path in (place, real_path(place)[0])}
    for root in roots:
        listing.entries[root.root] = os.stat(root.fd)
        listing.paths.add(root.root)
        queue = deque([root.root])
        while queue:
            folder = queue.popleft()
            if folder not in excluded:
                queue += _list_folder(root, folder, listing, files_max)
    return listing


class _Choice(NamedTuple):
    """What of the names in a folder is looked at, as paths; of the folders that are `entered` what is in them, too."""

    files: tuple[str, ...]  # and links
    folders: tuple[str, ...]
    entered: tuple[str, ...]
    leftovers: tuple[str, ...]
    is_left_out: bool  # it can be made again, or is git's


_Looked = tuple[_Choice, list[tuple[int, ...]]]  # with the StatSignature of each file
_get_signature: Final = attrgetter("st_size", "st_mtime_ns", "st_ctime_ns", "st_ino", "st_mode")


def _list_folder(root: Beneath, folder: str, listing: WorkspaceListing, files_max: int) -> tuple[str, ...]:
    """List one folder; those inside it."""
    room = files_max - len(listing.paths)
    names = recall_names(folder, listing.entries[folder])
    try:
        if names is None:
            fd = root.open(folder, os.O_RDONLY | os.O_DIRECTORY, links=False)
            names = list_names(folder, fd, most=room + _OWN_NAMES_MAX)
    except (OSError, CapabilityDenied):  # not readable, or replaced meanwhile
        listing.closed.add(folder)
        return ()
    choice: _Choice = names.notes.get(_Choice) or _choose(names, folder)
    if len(choice.files) + len(choice.folders) > room:  # before the status of any is asked for
        listing.is_bounded = True
        return ()
    if folder != root.root and choice.is_left_out:
        return ()
    try:
        files, folders = _look_at_all(choice.files), _look_at_all(choice.folders)
    except OSError:
        return ()
    looked = choice, list(map(_get_signature, files.values()))
    if listing.same.get(folder) != looked:
        listing.looked[folder] = looked
        listing.entries.update(files)
    listing.entries.update(folders)
    listing.paths.update(files, folders)
    listing.listed.add(folder)
    listing.leftovers += choice.leftovers
    return choice.entered


def _look_at_all(paths: Sequence[str]) -> dict[str, os.stat_result]:
    try:
        return dict(zip(paths, map(os.lstat, paths), strict=True))
    except FileNotFoundError:  # one of them is gone meanwhile
        return _look_at_all([path for path in paths if os.path.lexists(path)])


def _choose(names: FolderNames, folder: str) -> _Choice:
    inside = [entry for entry in names.entries(folder) if entry.name != _GIT]
    inner_names = {entry.name for entry in inside}
    kept = [entry for entry in inside if not entry.name.startswith(LEFTOVER_PREFIX)]
    choice = names.notes[_Choice] = _Choice(
        tuple(entry.path for entry in kept if not entry.is_folder),
        tuple(entry.path for entry in kept if entry.is_folder),
        tuple(sorted(entry.path for entry in inside if entry.is_folder and entry.name not in _NOT_ENTERED)),
        tuple(entry.path for entry in inside if entry.name.startswith(LEFTOVER_PREFIX)),
        not CACHE_MARKS.isdisjoint(inner_names) or inner_names >= _REPOSITORY,
    )
    return choice
