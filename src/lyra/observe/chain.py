"""A chain of records: JSON lines of which each holds the hash of the one before, and its own.

    {"seq":2,"at":…,"pid":"p1","kind":"tool.decided","fields":{…},"prev":"6f0c…","hash":"a91e…"}

`hash` is taken over the bytes of the line up to it, so there is one way to write a record and no byte of it is free.
`verify` reads a file from its beginning and names the first line that is not as it was written: changed, removed,
reordered, inserted or cut off. A chain cannot show by itself that its end was cut off cleanly; a hash (`head`) that was
kept elsewhere can be given to `verify`, which checks that it is still there. The chain uses no key: a program that can
write the file can write all of it anew, and then only such a kept hash shows it. Runs open and close with a record of
their own (`OPENED`, `CLOSED`): a run without an end was killed, or its last records could not be written, and `verify`
reports it even where every line is unchanged.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from lyra.errors import ConfigError

FIRST: Final = "0" * 64  # `prev` of the first record
LINE_BYTES_MAX: Final = 256 * 1024
OPENED: Final = "audit.opened"
CLOSED: Final = "audit.closed"
GAP: Final = "audit.gap"  # says how many records before it could not be written
_HASH: Final = b',"hash":"'
_END: Final = b'"}'
_HASH_BYTES: Final = 64


class Link(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One record."""

    seq: int
    at: float
    pid: str
    kind: str
    fields: dict[str, Any]
    prev: str
    hash: str


_decode: Final = msgspec.json.Decoder(Link).decode


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=_HASH_BYTES // 2).hexdigest()


def line_of(seq: int, time_s: float, pid: str, kind: str, fields: dict[str, Any], prev: str) -> tuple[bytes, str]:
    """Return a record as a line, without its newline, and its hash."""
    record = {"seq": seq, "at": time_s, "pid": pid, "kind": kind, "fields": fields, "prev": prev}
    head = msgspec.json.encode(record)[:-1]
    line_hash = _digest(head)
    return b"".join((head, _HASH, line_hash.encode(), _END)), line_hash


def read_line(line: bytes) -> Link | None:
    """Return the record of a line without its newline; None where the line is not exactly as it was written."""
    head, mark, tail = line.rpartition(_HASH)
    if not mark or len(tail) != _HASH_BYTES + len(_END) or not tail.endswith(_END):
        return None
    if _digest(head).encode() != tail[:_HASH_BYTES]:
        return None
    try:
        return _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):  # the hash is right, and the line is no record of this format
        return None


class ChainProblem(NamedTuple):
    """The first line that is not as it was written; `what` is one of changed, removed, reordered, inserted, cut_off."""

    line: int
    what: str
    message: str


class LogRun(NamedTuple):
    """One run of the log, from its opening: the line and time of its first record, and its number of records."""

    line: int
    at: float
    records: int


class ChainCheck(NamedTuple):
    """What `verify` found. `head` is the hash of the last good record: kept elsewhere, it shows a cut end later.

    `unended` are the runs without an end, and `missed` counts the records that their writers could not write; an
    unchanged log may have both. `writing`: a writer has the file open, so that its last run need not have ended yet.
    """

    records: int
    head: str
    problem: ChainProblem | None = None
    unended: tuple[LogRun, ...] = ()
    missed: int = 0
    writing: bool = False

    @property
    def ok(self) -> bool:
        return self.problem is None


def verify(path: str | Path, *, expect: str | None = None) -> ChainCheck:
    """Check a whole file. `expect`: a hash that was its `head` once, and must still be in it."""
    lines, writing = _lines(path)
    chain = _Chain(lines, expect)
    problem = chain.check()
    if not lines:
        problem = ChainProblem(1, "removed", "there is no record, and a log begins with one")
    if problem is None and not chain.expected:
        problem = ChainProblem(
            len(lines) + 1,
            "removed",
            "the expected hash is not in the file: lines at its end were removed, or the file was written anew",
        )
    unended = chain.runs.list_unended(writing=writing) if problem is None else ()
    return ChainCheck(chain.records, chain.head, problem, unended, chain.runs.missed, writing)


class _Runs:
    """The runs of a log, as its records go by."""

    def __init__(self) -> None:
        self.missed = 0
        self._ended: list[LogRun] = []  # runs without an end, after which another run began
        self._open: LogRun | None = None

    def take(self, link: Link, number: int) -> None:
        if link.kind == OPENED:
            self._ended += [self._open] if self._open is not None else []
            self._open = LogRun(number, link.at, 1)
        elif self._open is not None:
            self._open = self._open._replace(records=self._open.records + 1)
        if link.kind in (GAP, CLOSED):
            missed = link.fields.get("missed", 0)
            self.missed += missed if isinstance(missed, int) else 0
        if link.kind == CLOSED:
            self._open = None

    def list_unended(self, *, writing: bool) -> tuple[LogRun, ...]:
        return (*self._ended, *((self._open,) if self._open is not None and not writing else ()))


class _Chain:
    """A walk along the lines of a file."""

    def __init__(self, lines: list[bytes], expect: str | None) -> None:
        self._lines = lines
        self._expect = expect
        self.expected = expect is None or expect == FIRST
        self.records = 0
        self.head = FIRST
        self.runs = _Runs()

    def check(self) -> ChainProblem | None:
        for number in range(1, len(self._lines) + 1):
            link = self._link(number)
            if link is None:
                return self._unreadable(number)
            if link.seq != self.records + 1 or link.prev != self.head:
                return self._explain_misplaced(number, link)
            self.records, self.head = link.seq, link.hash
            self.expected = self.expected or link.hash == self._expect
            self.runs.take(link, number)
        return None

    def _link(self, number: int) -> Link | None:
        line = self._lines[number - 1] if number <= len(self._lines) else b""
        return read_line(line[:-1]) if line.endswith(b"\n") else None

    def _unreadable(self, number: int) -> ChainProblem:
        after = self._link(number + 1)
        if after is not None and after.prev == self.head:
            return ChainProblem(number, "inserted", "this line is not a record; the chain continues without it")
        if number == len(self._lines) and not self._lines[-1].endswith(b"\n"):
            return ChainProblem(number, "cut_off", "the last line is incomplete: it was cut off, by a crash or by hand")
        return ChainProblem(number, "changed", "this line is not as it was written")

    def _explain_misplaced(self, number: int, link: Link) -> ChainProblem:
        """Return the problem where a valid record stands in the wrong place."""
        due = self.records + 1
        if link.seq > due:
            later = any(other is not None and other.seq == due for other in self._rest(number))
            if later:
                return ChainProblem(number, "reordered", f"record {link.seq} is at the position of record {due}")
            gone = link.seq - due
            return ChainProblem(
                number, "removed", f"{gone} record{'s' if gone > 1 else ''} before this line, from {due} on"
            )
        after = self._link(number + 1)
        if after is not None and after.seq == due and after.prev == self.head:
            return ChainProblem(number, "inserted", f"record {link.seq} is between records {due - 1} and {due}")
        if link.seq < due:
            return ChainProblem(number, "inserted", f"record {link.seq} is at the position of record {due}")
        return ChainProblem(
            number, "changed", "this record does not follow from the one before: one of them was written anew"
        )

    def _rest(self, number: int) -> Iterator[Link | None]:
        return (self._link(later) for later in range(number + 1, len(self._lines) + 1))


def read_links(path: str | Path) -> Iterator[Link]:
    """Yield the valid records of a file in their order; ConfigError for a file with lines and no record."""
    lines, _ = _lines(path)
    count = 0
    for line in lines:
        link = read_line(line.removesuffix(b"\n"))
        if link is not None:
            count += 1
            yield link
    if lines and not count:
        raise ConfigError(f"there is no record in {path}", hint="is it an audit log?", place=str(path))


def _lines(path: str | Path) -> tuple[list[bytes], bool]:
    """Return the lines of a file, and whether a writer has it open."""
    try:
        with open(path, "rb", opener=_opener) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # a device may never end
                raise ConfigError(f"{path} is not a plain file", place=str(path))
            writing = _is_held(file.fileno())
            data = file.read()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}", place=str(path)) from None
    # Lines with their newlines; unlike `splitlines`, only a newline ends a line.
    kept = [line + b"\n" for line in data.split(b"\n")]
    kept[-1] = kept[-1][:-1]
    return kept if kept[-1] else kept[:-1], writing


def _is_held(fd: int) -> bool:
    """Return whether a writer holds its lock on the file; read from /proc, since trying the lock could block a
    writer."""
    try:
        with open("/proc/locks", encoding="ascii") as locks:
            inode = f":{os.fstat(fd).st_ino} "
            return any(" FLOCK " in line and " WRITE " in line and inode in line for line in locks)
    except OSError:
        return False


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # opening a pipe without a writer would block
