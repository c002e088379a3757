"""The ChangeHistory: all changes of files in the order of the journal, by turns and checkpoints.

A position is the number of changes before it. `since(position)` gives the changes of each path from there on. Owns no
files and reads none.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from lyra.core.own_files import FULL_ERRNOS, make_folder
from lyra.errors import Conflict, StoreError, StoreFull
from lyra.sage.session.files.state import ABSENT, FileState, StatSignature, encode_name, read_name

StatePair = tuple[FileState, FileState]


_UNSURE: Final = ("other", "doubt")  # hands whose changes are not overwritten without being asked


class PathHistory:
    """The changes of one path that count: a restore takes those back that it has gone behind, also those of others."""

    __slots__ = ("changes",)

    def __init__(self, changes: Iterable[Changed]) -> None:
        before_each: list[tuple[FileState, list[Changed]]] = []  # the state before each change, and what counted then
        self.changes: list[Changed] = []
        for change in changes:
            earlier = None
            if change.by == "restore":
                earlier = next((count for state, count in reversed(before_each) if state == change.after), None)
            before_each.append((change.before, self.changes))
            self.changes = [*self.changes, change] if earlier is None else earlier

    @property
    def _own_start(self) -> int:
        """The index of the first change that is not by another hand."""
        return next((index for index, change in enumerate(self.changes) if change.by != "other"), len(self.changes))

    def state_before(self, *, with_others: bool) -> FileState | None:
        """Return the state before the first change; without others, before the first one that is not by another hand.
        None where no hand but others' has changed the path."""
        start = self._own_start
        if start == len(self.changes):
            return None
        return self.changes[0 if with_others else start].before

    def foreign_changes(self, *, with_others: bool) -> list[StatePair]:
        """Return what other hands have changed, each time from one state to another; without others, only since the
        first change that was not theirs."""
        pairs: list[StatePair] = []
        was_other = False
        for change in self.changes[0 if with_others else self._own_start :]:
            if change.by in _UNSURE:
                pairs.append((pairs.pop()[0] if was_other else change.before, change.after))
            was_other = change.by in _UNSURE
        return [(before, after) for before, after in pairs if before != after]

    def agents_change(self) -> list[StatePair]:
        """Return the state before the agent's first change and after its last one, if they differ."""
        own = [change for change in self.changes if change.by != "other"]
        return [(own[0].before, own[-1].after)] if own and own[0].before != own[-1].after else []


class _TurnStart(NamedTuple):
    turn: int
    position: int


class ChangeHistory:
    """`turn`: the number of the last turn that has begun. `first_turn_kept`: 0 while all are kept."""

    __slots__ = (
        "_changes",
        "_ends",
        "_marks",
        "_turns",
        "_undo_count",
        "first_position_kept",
        "first_turn_kept",
        "turn",
    )

    def __init__(self) -> None:
        self._changes: list[Changed] = []
        self._turns: list[_TurnStart] = []
        self._ends: dict[int, int] = {}  # how many turns had begun at a restore, and its position: the last turn ends
        self._marks: dict[str, tuple[Marked, int]] = {}
        self._undo_count = 0
        self.turn = 0
        self.first_position_kept = 0
        self.first_turn_kept = 0

    @property
    def position(self) -> int:
        return len(self._changes)

    @property
    def turns_begun(self) -> int:
        return len(self._turns)

    def take(self, line: JournalLine) -> None:
        """Add a line of the journal."""
        if isinstance(line, Changed):
            self._changes.append(line)
        elif isinstance(line, TurnBegun):
            self.turn = line.turn
            self._turns.append(_TurnStart(line.turn, self.position))
        elif isinstance(line, Marked):
            self._marks.pop(line.name, None)
            self._marks[line.name] = (line, self.position)
            if line.automatic:
                self._undo_count += 1
                self._ends.setdefault(self.turns_begun, self.position)
        elif isinstance(line, Dropped):
            start = self._turns[min(line.turns_begun, len(self._turns)) - 1] if self._turns else None
            if start is not None:
                self.first_turn_kept, self.first_position_kept = start

    def start_of(self, turn: int) -> int | None:
        """Return the position at which a turn began. Where it is not known, that of the first later turn; None where no
        such turn has begun."""
        for start in reversed(self._turns):
            if start.turn == turn:
                return start.position
        position = None
        for start in reversed(self._turns):
            if start.turn < turn:
                break
            position = start.position
        return position

    def in_turn(self, turn: int) -> dict[str, PathHistory]:
        """Return the changes of one turn: from its start to that of the next, or to a restore."""
        index = next((i for i in range(len(self._turns) - 1, -1, -1) if self._turns[i].turn == turn), None)
        if index is None:
            return {}
        later = self._turns[index + 1].position if index + 1 < len(self._turns) else self.position
        return self._histories(self._turns[index].position, self._ends.get(index + 1, later))

    def since(self, position: int) -> dict[str, PathHistory]:
        return self._histories(position, self.position)

    def _histories(self, start: int, end: int) -> dict[str, PathHistory]:
        by_path: dict[str, list[Changed]] = {}
        for change in self._changes[start:end]:
            by_path.setdefault(read_name(change.path), []).append(change)
        return {path: PathHistory(changes) for path, changes in by_path.items()}

    def marks(self) -> Iterator[tuple[Marked, int]]:
        """Yield the checkpoints whose contents are kept, with their positions."""
        for mark, position in self._marks.values():
            if position >= self.first_position_kept:
                yield mark, position

    def new_undo_name(self) -> str:
        return f"undo-{self._undo_count + 1}"

    def digests_since_turn_line(self, turns_begun: int) -> set[str]:
        """Return the contents that changes from this `turn` line on need."""
        start = self._turns[turns_begun - 1].position
        states = (state for change in self._changes[start:] for state in (change.before, change.after))
        return {state.digest for state in states if state.digest is not None}


# ---------------------------------------------------------------- journal

JOURNAL_FILE: Final = "journal.jsonl"


class _Line(msgspec.Struct, frozen=True, array_like=True):
    pass


class Seen(_Line, frozen=True, tag="seen"):
    """A path that was looked at for the first time, or a folder that is listed from now on or no longer."""

    path: str
    state: FileState
    signature: StatSignature | None
    is_listed: bool


class Changed(_Line, frozen=True, tag="changed"):
    """A path became another. `by`: agent (a tool or command), restore (this module), other (any other hand)."""

    path: str
    by: str
    before: FileState
    after: FileState
    signature: StatSignature | None
    is_listed: bool


class TurnBegun(_Line, frozen=True, tag="turn"):
    turn: int
    time: float


class Marked(_Line, frozen=True, tag="mark"):
    """A checkpoint; `automatic`: made before a restore, so that it can be taken back."""

    name: str
    turn: int
    time: float
    automatic: bool


class Begun(_Line, frozen=True, tag="begun"):
    """A tool call or a restore that may change files has begun. `path`: the one file, or "" for any."""

    token: int
    path: str
    by: str


class Settled(_Line, frozen=True, tag="settled"):
    token: int


class Dropped(_Line, frozen=True, tag="dropped"):
    """Contents that only the lines before this many `turn` lines name are no longer kept."""

    turns_begun: int


JournalLine = Seen | Changed | TurnBegun | Marked | Begun | Settled | Dropped
_decoder: Final = msgspec.json.Decoder(JournalLine)
_encode: Final = msgspec.json.Encoder().encode


class SnapshotJournal:
    """`folder` is made at the first line."""

    __slots__ = ("_fd", "_is_torn", "folder", "path")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / JOURNAL_FILE
        self._fd: int | None = None
        self._is_torn = False

    def read(self) -> Iterator[JournalLine]:
        """Yield all complete lines; one that cannot be read is left out."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return
        for line in data.split(b"\n")[:-1]:
            try:
                yield _decoder.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue  # torn by a crash, or of another version

    def append(self, lines: Iterable[JournalLine]) -> None:
        """Append lines; they are in the file when this returns, and survive the end of the process."""
        data = b"".join([_encode(line) + b"\n" for line in lines])
        if not data:
            return
        try:
            fd = self._open()
            view = memoryview(b"\n" + data if self._is_torn else data)
            self._is_torn = True
            while view:
                view = view[os.write(fd, view) :]
            self._is_torn = False
        except OSError as error:
            kind = StoreFull if error.errno in FULL_ERRNOS else StoreError
            raise kind(f"{self.path} cannot be written: {error.strerror}", place=str(self.path)) from error

    def _open(self) -> int:
        if self._fd is None:
            make_folder(self.folder, private=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(self.path, flags, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                size = os.fstat(fd).st_size
                self._is_torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
            except BlockingIOError:
                os.close(fd)
                raise Conflict(
                    "the files of this session are in use by another process", hint="close it first"
                ) from None
            except BaseException:
                os.close(fd)
                raise
            self._fd = fd
        return self._fd

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


# ---------------------------------------------------------------- several sessions at work

_KEPT_BYTES_MAX: Final = 1 << 20


class _Act(msgspec.Struct, frozen=True, array_like=True):
    """A line that a session appends: a command began or ended, or paths came to be as they are now."""

    session: str
    pid: int
    word: str  # begin, end; of paths that a tool is about to change and has changed: opens, closes; files
    states: dict[str, FileState] = {}


class SessionsAtWork:
    """What the sessions of a workspace do at the same time, in a file that all of them append to.

    A look after a command finds all changes since the look before, also those of other sessions. One that another
    session has written down since is that one's; any other, while a command of another session ran, is in doubt.
    """

    __slots__ = ("_file", "_session")

    def __init__(self, file: Path, session: str) -> None:
        self._file = file
        self._session = session

    def begin(self) -> int:
        """Note that a command begins; gives the place in the file for `sort`."""
        with self._hold_file() as fd:
            acts = self._read(fd, 0)
            if os.fstat(fd).st_size > _KEPT_BYTES_MAX and not _find_running(acts):
                os.ftruncate(fd, 0)
            place = os.fstat(fd).st_size
            self._write(fd, "begin")
        return place

    def end(self) -> None:
        with self._hold_file() as fd:
            self._write(fd, "end")

    def mark(self, path: str, word: str) -> None:
        """Note that a tool `opens` a path to change it, or `closes` it."""
        with self._hold_file() as fd:
            self._write(fd, word, {encode_name(path): ABSENT})

    def tell(self, lines: Iterable[JournalLine]) -> None:
        """Note what this session has changed."""
        states = {line.path: line.after for line in lines if isinstance(line, Changed) and line.by not in _UNSURE}
        if states:
            with self._hold_file() as fd:
                self._write(fd, "files", states)

    def sort(self, lines: list[JournalLine], place: int) -> list[JournalLine]:
        """Put what a command has changed down to the session that has done it, and note it."""
        with self._hold_file() as fd:
            acts = self._read(fd, 0, self._session)
            since = self._read(fd, place, self._session)
        theirs = {path: state for act in since if act.word == "files" for path, state in act.states.items()}
        opened: set[str] = set()
        for act in acts:
            if act.word in ("opens", "closes"):
                opened = opened | act.states.keys() if act.word == "opens" else opened - act.states.keys()
        is_shared = bool(_find_running(acts)) or any(act.word in ("begin", "end") for act in since)
        sorted_lines: list[JournalLine] = []
        own: list[JournalLine] = []
        for line in lines:
            if not isinstance(line, Changed) or line.by != "agent":
                sorted_lines.append(line)
            elif line.path in opened or theirs.get(line.path) == line.after:
                sorted_lines.append(msgspec.structs.replace(line, by="other"))
            else:
                own.append(line)
                sorted_lines.append(msgspec.structs.replace(line, by="doubt") if is_shared else line)
        self.tell(own)
        return sorted_lines

    @contextmanager
    def _hold_file(self) -> Iterator[int]:
        make_folder(self._file.parent, private=True)
        fd = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield fd
        finally:
            os.close(fd)

    def _write(self, fd: int, word: str, states: dict[str, FileState] | None = None) -> None:
        os.write(fd, msgspec.json.encode(_Act(self._session, os.getpid(), word, states or {})) + b"\n")

    def _read(self, fd: int, place: int, without: str = "") -> list[_Act]:
        data = os.pread(fd, os.fstat(fd).st_size, place)
        acts = []
        for row in data.split(b"\n")[:-1]:
            with suppress(msgspec.MsgspecError):
                acts.append(msgspec.json.decode(row, type=_Act))
        return [act for act in acts if act.session != without]


def _find_running(acts: Iterable[_Act]) -> dict[str, int]:
    """Return the sessions in which a command runs, and the process of each, which lives."""
    running: dict[str, int] = {}
    for act in acts:
        if act.word == "begin":
            running[act.session] = act.pid
        elif act.word == "end":
            running.pop(act.session, None)
    return {session: pid for session, pid in running.items() if _is_alive(pid)}


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return error.errno != errno.ESRCH
    return True
