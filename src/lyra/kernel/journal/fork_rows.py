"""The rows with which a fork begins: those of the run that it repeats, up to a place, under pids of its own.

A run is a process and all that it started. `copy_rows` gives its rows before the place in their order, as rows of
other processes: pids, the numbers of messages and the ids of questions are replaced, what an effect cost is `recorded`
and no longer spent, and the hashes of requests are left out, since a request may name a pid. An act that was under way
at the place and may not be made twice keeps its end, also where that was later. Nothing is written here: `forks` does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from lyra.core import codec
from lyra.errors import ConfigError
from lyra.kernel.journal import rows
from lyra.store.protocol import Record

R = TypeVar("R", bound=msgspec.Struct)

_RECORDS_MAX: Final = 500_000  # rows of a run that can be forked
_NUMBERED: Final = re.compile(r"p[0-9]+x*\Z").match  # pids that a kernel gave
_KEEPS_HASH: Final = "passage"  # the hash of a milestone says where it began
_REPEATED: Final = ("do", "read", _KEEPS_HASH)  # forms whose name is no pid
_DOUBT: Final = "doubt:"  # begins the key of a question about an act that was under way at a crash
_QUESTIONS: Final = frozenset({"interrupt.created", "interrupt.resolved", "interrupt.expired", "interrupt.cancelled"})
_SKIPPED: Final = frozenset({"effect.retried"})
_PIDS_INSIDE: Final = ("pid", "ref", "child", "supervisor")  # of signals and messages of supervisors


class ForkPoint(NamedTuple):
    """Where a run is forked, and what is different from there on.

    Rows from `cut` on are left out. `changed` are rows in place of others, by their number; `last` is one more row of
    `pid`, behind all that are kept. `different` is what the process `pid` does otherwise: a model, a system prompt.
    """

    run: str
    number: int
    cut: int
    pid: str
    changed: dict[int, Any] = {}  # noqa: RUF012 (never changed)
    last: Any = None
    different: dict[str, Any] = {}  # noqa: RUF012 (never changed)
    keeps_answers: bool = False  # also those of people that were not acted on: for a look, which acts on none


class CopiedRow(NamedTuple):
    """A row to write: of which process of the run it is a copy, and `make`, which gives the row under its new names."""

    seq: int
    pid: str
    kind: str
    row: Any


def run_records(records: Iterable[Record], pid: str) -> list[Record]:
    """Return the rows of a process and of all that it started."""
    pids = {pid}
    run: list[Record] = []
    for record in records:
        if record.kind == "process.created" and rows.DECODERS[record.kind].decode(record.data).parent in pids:
            pids.add(record.pid)
        if record.kind == "message.sent" and record.pid not in pids:
            if rows.DECODERS[record.kind].decode(record.data).sender in pids:
                run.append(record)
        elif record.pid in pids:
            run.append(record)
        if len(run) > _RECORDS_MAX:
            raise ConfigError(f"the run of {pid} has more than {_RECORDS_MAX} rows", hint="fork one of its children")
    return run


def fork_records(records: Iterable[Record], pid: str) -> list[Record]:
    """Yield what a fork of a process is made from: the rows of its run, and how every process was made. The rows are
    read one at a time, so that a large store does not stand in memory."""
    creations: list[Record] = []

    def note_creations() -> Iterator[Record]:
        for record in records:
            if record.kind == "process.created":
                creations.append(record)
            yield record

    by_seq = {record.seq: record for record in run_records(note_creations(), pid)}
    by_seq.update((record.seq, record) for record in creations)
    return [by_seq[seq] for seq in sorted(by_seq)]


def copy_rows(run: list[Record], point: ForkPoint) -> list[CopiedRow]:
    """Return the rows that a fork begins with, before they get their new names."""
    decoded = [CopiedRow(record.seq, record.pid, record.kind, _decode(record)) for record in run]
    ends = {(row.pid, row.row.key): row for row in decoded if row.kind == "effect.finished"}
    kept: list[CopiedRow] = []
    for copy in decoded:
        if copy.kind in _SKIPPED or copy.row is None:
            continue
        if copy.seq in point.changed:
            kept.append(copy._replace(row=point.changed[copy.seq]))
        elif copy.kind == "effect.started" and copy.seq < point.cut:
            kept += _keep_start(copy, ends.get((copy.pid, copy.row.key)), point, decoded)
        elif copy.seq < point.cut:
            kept.append(copy)
    if point.last is not None:
        kept.append(CopiedRow(0, point.pid, "effect.finished", point.last))
    if point.keeps_answers:
        return kept
    for copy in kept:
        if copy.kind == "effect.finished" and copy.row.form == "spawn" and copy.row.error is None:
            raise ConfigError(
                f"process {copy.pid} has spawned {codec.decode(bytes(copy.row.value))}, and a fork stays on one shard",
                hint="fork it at a place before that, or fork that process on its own shard",
                pid=copy.pid,
            )
    return _without_unused_answers(kept)


def _without_unused_answers(kept: list[CopiedRow]) -> list[CopiedRow]:
    """Leave out questions whose answer was not acted on before the place: a person agreed to one act, not to another
    one in the fork, which asks again."""
    acts: dict[tuple[str, str], int] = {}  # the last act that ended, by process and line of its program
    for copy in kept:
        if copy.kind == "effect.finished" and copy.row.form == "do":
            line, number = _place(copy.row.key)
            acts[copy.pid, line] = max(number, acts.get((copy.pid, line), -1))
    unused = set()
    for copy in kept:
        if copy.kind == "interrupt.created" and copy.row.key is not None:
            line, number = _place(copy.row.key)
            is_doubt = isinstance(copy.row.key, str) and copy.row.key.startswith(_DOUBT)
            last = acts.get((copy.pid, line), -1)
            if last < number or (last == number and not is_doubt):
                unused.add((copy.pid, copy.row.id))
    return [copy for copy in kept if not (copy.kind in _QUESTIONS and (copy.pid, copy.row.id) in unused)]


def _place(key: rows.Key) -> tuple[str, int]:
    """Return the line of a program that a key belongs to, and its number there; `doubt:7` is about the act 7."""
    line, _, number = str(key).removeprefix(_DOUBT).rpartition("/")
    return line, int(number) if number.isdecimal() else -1


def _keep_start(start: CopiedRow, end: CopiedRow | None, point: ForkPoint, decoded: list[CopiedRow]) -> list[CopiedRow]:
    """Return the beginning of an act, if the fork does not make it itself; with its end, where that comes later."""
    is_answered = point.last is not None and (start.pid, start.row.key) == (point.pid, point.last.key)
    if is_answered or (end is not None and end.seq < point.cut):
        return [start]
    if start.row.idempotent:
        return []
    if end is None:  # whether it happened is not known: a person is asked in the fork, too
        return [start]
    has_children = any(
        row.kind == "process.created" and row.row.parent == start.pid and start.seq < row.seq < end.seq
        for row in decoded
    )
    return [] if has_children else [start, end]


def _decode(record: Record) -> Any:
    decoder = rows.DECODERS.get(record.kind)
    if decoder is not None:
        return decoder.decode(record.data)
    return codec.decode(record.data) if record.kind == "process.tainted" else None


class NewNames:
    """What the things of a run are called in its fork."""

    def __init__(self) -> None:
        self.pids: dict[str, str] = {}
        self.messages: dict[int, int] = {}  # numbers of rows
        self.questions: dict[str, str] = {}

    def pid(self, old: str) -> str:
        return self.pids.get(old, old)

    def ref(self, old: str) -> str:
        """Return the name of a monitor, `PID#KEY`."""
        watcher, sign, key = old.partition("#")
        return f"{self.pid(watcher)}{sign}{key}"

    def question(self, old: str, fork: str) -> str:
        return self.questions.setdefault(old, f"{old}.{fork}")

    def rename_created(self, row: rows.Created, **changes: Any) -> rows.Created:
        return _replace(row, hash=b"", parent=self.pid(row.parent), **changes)

    def rename_finished(self, row: rows.Finished) -> rows.Finished:
        usage = row.usage or row.recorded
        name = row.name if row.form in _REPEATED else self.ref(row.name)
        hash_ = row.hash if row.form == _KEEPS_HASH else b""
        value = row.value
        if (row.form, row.name) == ("read", "parent"):
            value = rows.Raw(codec.encode(self._rename(codec.decode(bytes(value)), is_signal=True)))
        return _replace(row, usage=None, recorded=usage or {}, name=name, hash=hash_, value=value)

    def rename_sent(self, row: rows.Sent, fork: str) -> rows.Sent:
        """Return a message inside the fork; one to a process outside is only noted, and not sent again."""
        is_inside = row.to in self.pids
        sender = self.pids.get(row.sender, "")
        message = row.message
        if not row.blob:
            value = codec.decode(bytes(message))
            renamed = self._rename(value, is_signal=bool(row.form))
            if isinstance(renamed, dict) and isinstance(renamed.get("lyra.ask"), str):
                renamed = {**renamed, "lyra.ask": f"{renamed['lyra.ask']}~{fork}"}  # its answer is another one's
            message = rows.Raw(codec.encode(renamed))
        return _replace(
            row,
            to=self.pid(row.to),
            sender=sender,
            key=row.key if sender else None,
            hash=b"",
            dropped=row.dropped or not is_inside,
            message=message,
        )

    def _rename(self, value: Any, *, is_signal: bool, depth: int = 0) -> Any:
        """Return the value with the pids of the run replaced: those that a kernel gave, and in signals all."""
        if isinstance(value, str):
            if "#" in value and is_signal:
                return self.ref(value)
            return self.pid(value) if is_signal or _NUMBERED(value) else value
        if depth > 16:
            return value
        if isinstance(value, dict):
            return {
                key: self._rename(item, is_signal=is_signal and key in _PIDS_INSIDE, depth=depth + 1)
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [self._rename(item, is_signal=False, depth=depth + 1) for item in value]
        return value


def _replace(row: R, **changes: Any) -> R:
    return msgspec.structs.replace(row, **changes)


Renamer = Callable[[NewNames, CopiedRow, str], Any]


def _tie(names: NewNames, copy: CopiedRow, _: str) -> Any:
    row = copy.row
    if isinstance(row, rows.Linked):
        return _replace(row, to=names.pids[row.to]) if row.to in names.pids else None
    if row.target and row.target not in names.pids:
        return None
    return _replace(row, target=names.pid(row.target), ref=names.ref(row.ref))


def _rename_received(names: NewNames, copy: CopiedRow, _: str) -> Any:
    return _replace(copy.row, message=names.messages.get(copy.row.message, 0))


def _rename_question(names: NewNames, copy: CopiedRow, fork: str) -> Any:
    hashless = {"hash": b""} if isinstance(copy.row, rows.InterruptRaised) else {}
    return _replace(copy.row, id=names.question(copy.row.id, fork), **hashless)


def _copy_unchanged(_names: NewNames, copy: CopiedRow, _: str) -> Any:
    return copy.row


# How a row of each kind is renamed; None leaves it out. Rows that make processes are renamed where they get their pids.
RENAMERS: Final[dict[str, Renamer]] = {
    "effect.started": lambda _names, copy, _: _replace(copy.row, hash=b"", cost=None),
    "effect.finished": lambda names, copy, _: names.rename_finished(copy.row),
    "message.sent": lambda names, copy, fork: names.rename_sent(copy.row, fork),
    "message.received": _rename_received,
    "timer.set": lambda _names, copy, _: _replace(copy.row, hash=b""),
    "interrupt.created": _rename_question,
    "interrupt.resolved": _rename_question,
    "interrupt.expired": _rename_question,
    "interrupt.cancelled": _rename_question,
    "process.linked": _tie,
    "process.unlinked": _tie,
    "process.monitored": _tie,
    "process.demonitored": _tie,
    "process.trapping": _copy_unchanged,
    "program.checkpoint": _copy_unchanged,
    "process.stopping": _copy_unchanged,
    "process.terminated": _copy_unchanged,
}


def live_programs(copies: Iterable[CopiedRow]) -> Iterator[str]:
    """Yield the programs of the processes that are alive at the place of the fork."""
    ended = {copy.pid for copy in copies if copy.kind == "process.terminated"}
    for copy in copies:
        if copy.kind == "process.created" and copy.pid not in ended:
            yield copy.row.program
