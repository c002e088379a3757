"""A chain of records: JSON lines of which each holds the hash of the one before, and its own.

    {"seq":2,"at":…,"pid":"p1","kind":"tool.decided","fields":{…},"prev":"6f0c…","hash":"a91e…"}

`hash` is taken over the bytes of the line up to it, so there is one way to write a record and no byte of it is free.
`verify` reads a file from its beginning and names the first line that is not as it was written: changed, removed,
reordered, inserted or cut off. What a chain cannot show by itself is that its end was cut off cleanly; who has noted a
hash (`head`) can ask whether it is still there. It holds no key: who can write the file can write all of it anew, and
then only a hash that was noted elsewhere finds it. Runs open and close with a record of their own (`OPENED`, `CLOSED`):
one without an end was killed, or its last records could not be written, and is told of though every line is as it was.
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

__all__ = [
    "CLOSED",
    "FIRST",
    "GAP",
    "LINE_BYTES_MAX",
    "OPENED",
    "Checked",
    "Link",
    "Problem",
    "Run",
    "line_of",
    "read_line",
    "read_links",
    "verify",
]

FIRST: Final = "0" * 64  # what the first record has for the one before it
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


def line_of(seq: int, at: float, pid: str, kind: str, fields: dict[str, Any], prev: str) -> tuple[bytes, str]:
    """A record as a line, without its newline, and its hash."""
    record = {"seq": seq, "at": at, "pid": pid, "kind": kind, "fields": fields, "prev": prev}
    head = msgspec.json.encode(record)[:-1]
    found = _digest(head)
    return b"".join((head, _HASH, found.encode(), _END)), found


def read_line(line: bytes) -> Link | None:
    """The record of a line without its newline; None where the line is not exactly as it was written."""
    head, mark, tail = line.rpartition(_HASH)
    if not mark or len(tail) != _HASH_BYTES + len(_END) or not tail.endswith(_END):
        return None
    if _digest(head).encode() != tail[:_HASH_BYTES]:
        return None
    try:
        return _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):  # whole, and yet no record: somebody hashed something else
        return None


class Problem(NamedTuple):
    """The first line that is not as it was written; `what` is one of changed, removed, reordered, inserted, cut_off."""

    line: int
    what: str
    message: str


class Run(NamedTuple):
    """One opening of the log: the line and time of its first record, and how many there are of it."""

    line: int
    at: float
    records: int


class Checked(NamedTuple):
    """What `verify` found. `head` is the hash of the last good record: note it, and a cut end can be found later.

    `unended` are the runs without an end, and `missed` counts the records that their writers could not write; both may
    be so in a log that nobody touched. `writing`: somebody is at it, so that its last run need not have ended yet.
    """

    records: int
    head: str
    problem: Problem | None = None
    unended: tuple[Run, ...] = ()
    missed: int = 0
    writing: bool = False

    @property
    def ok(self) -> bool:
        return self.problem is None


def verify(path: str | Path, *, expect: str | None = None) -> Checked:
    """Check a whole file. `expect`: a hash that was its `head` once, and must still be in it."""
    lines, writing = _lines(path)
    chain = _Chain(lines, expect)
    problem = chain.check()
    if not lines:
        problem = Problem(1, "removed", "there is no record, and a log begins with one")
    if problem is None and not chain.expected:
        problem = Problem(
            len(lines) + 1,
            "removed",
            "the expected hash is not in the file: lines at its end were removed, or the file was written anew",
        )
    unended = chain.runs.unended(writing=writing) if problem is None else ()
    return Checked(chain.records, chain.head, problem, unended, chain.runs.missed, writing)


class _Runs:
    """The runs of a log, as its records go by."""

    def __init__(self) -> None:
        self.missed = 0
        self._ended: list[Run] = []  # without an end of their own: another began
        self._open: Run | None = None

    def take(self, link: Link, number: int) -> None:
        if link.kind == OPENED:
            self._ended += [self._open] if self._open is not None else []
            self._open = Run(number, link.at, 1)
        elif self._open is not None:
            self._open = self._open._replace(records=self._open.records + 1)
        if link.kind in (GAP, CLOSED):
            missed = link.fields.get("missed", 0)
            self.missed += missed if isinstance(missed, int) else 0
        if link.kind == CLOSED:
            self._open = None

    def unended(self, *, writing: bool) -> tuple[Run, ...]:
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

    def check(self) -> Problem | None:
        for number in range(1, len(self._lines) + 1):
            link = self._link(number)
            if link is None:
                return self._unreadable(number)
            if link.seq != self.records + 1 or link.prev != self.head:
                return self._misplaced(number, link)
            self.records, self.head = link.seq, link.hash
            self.expected = self.expected or link.hash == self._expect
            self.runs.take(link, number)
        return None

    def _link(self, number: int) -> Link | None:
        line = self._lines[number - 1] if number <= len(self._lines) else b""
        return read_line(line[:-1]) if line.endswith(b"\n") else None

    def _unreadable(self, number: int) -> Problem:
        after = self._link(number + 1)
        if after is not None and after.prev == self.head:
            return Problem(number, "inserted", "this line is no record, and the chain goes on without it")
        if number == len(self._lines) and not self._lines[-1].endswith(b"\n"):
            return Problem(number, "cut_off", "the last line is not whole: a crash cut it off, or somebody did")
        return Problem(number, "changed", "this line is not as it was written")

    def _misplaced(self, number: int, link: Link) -> Problem:
        """A whole record at a place that is not its own."""
        due = self.records + 1
        if link.seq > due:
            later = any(other is not None and other.seq == due for other in self._rest(number))
            if later:
                return Problem(number, "reordered", f"record {link.seq} stands where record {due} belongs")
            gone = link.seq - due
            return Problem(number, "removed", f"{gone} record{'s' if gone > 1 else ''} before this line, from {due} on")
        after = self._link(number + 1)
        if after is not None and after.seq == due and after.prev == self.head:
            return Problem(number, "inserted", f"record {link.seq} stands between records {due - 1} and {due}")
        if link.seq < due:
            return Problem(number, "inserted", f"record {link.seq} stands where record {due} belongs")
        return Problem(
            number, "changed", "this record does not follow from the one before: one of them was written anew"
        )

    def _rest(self, number: int) -> Iterator[Link | None]:
        return (self._link(later) for later in range(number + 1, len(self._lines) + 1))


def read_links(path: str | Path) -> Iterator[Link]:
    """The whole records of a file, in the order in which they stand; one without any is no log."""
    lines, _ = _lines(path)
    found = 0
    for line in lines:
        link = read_line(line.removesuffix(b"\n"))
        if link is not None:
            found += 1
            yield link
    if lines and not found:
        raise ConfigError(f"there is no record in {path}", hint="is it an audit log?", place=str(path))


def _lines(path: str | Path) -> tuple[list[bytes], bool]:
    """The lines of a file, and whether somebody is writing it."""
    try:
        with open(path, "rb", opener=_opener) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # a device may never end
                raise ConfigError(f"{path} is not a plain file", place=str(path))
            writing = _is_held(file.fileno())
            data = file.read()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}", place=str(path)) from None
    return _split(data), writing


def _is_held(fd: int) -> bool:
    """Whether a writer has its lock on the file. Looked up: to try the lock would keep a writer from taking it."""
    try:
        with open("/proc/locks", encoding="ascii") as locks:
            found = f":{os.fstat(fd).st_ino} "
            return any(" FLOCK " in line and " WRITE " in line and found in line for line in locks)
    except OSError:
        return False


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe that nobody writes to is not waited for


def _split(data: bytes) -> list[bytes]:
    """Lines with their newlines; unlike `splitlines`, nothing else ends one."""
    kept = [line + b"\n" for line in data.split(b"\n")]
    kept[-1] = kept[-1][:-1]
    return kept if kept[-1] else kept[:-1]
