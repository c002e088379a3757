"""Forks: a run once more from one of its steps, as processes of their own in the same store.

`start_fork` writes the rows with which the fork begins (`journal.fork_rows`) and has it continue from there, as after a
restart: what the journal has is answered from it, what comes then goes through the door. The rows are written together,
so that a crash leaves the whole fork or nothing of it. The run that is forked is read and never changed; nothing of it
is performed again, and its budget is not touched.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from lyra.core.limits import NAME_LENGTH_MAX
from lyra.core.rights.capability import Grant
from lyra.errors import ConfigError, NameTaken, NoSuchProcess, Overloaded, StoreError
from lyra.kernel.journal import rows
from lyra.kernel.journal.fork_rows import (
    RENAMERS,
    CopiedRow,
    ForkPoint,
    NewNames,
    copy_rows,
    live_programs,
    run_records,
)
from lyra.kernel.journal.history import Fold
from lyra.kernel.programs.lifetime import check_word
from lyra.kernel.programs.registry import unknown_program
from lyra.kernel.programs.scopes import OF, WAS
from lyra.kernel.recovery import grant_of
from lyra.store.protocol import Record

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel


_STEM_CHARS_MAX: Final = NAME_LENGTH_MAX - 16


async def start_fork(
    kernel: Kernel, point: ForkPoint, records: Iterable[Record], *, pid: str | None = None, keeps_pids: bool = False
) -> str:
    """Start a fork from the records of the journal; gives its pid, once it is in the store.

    The programs of processes that were alive at that step have to be known to the kernel. With `keeps_pids`, in a
    kernel that has none of the run's processes, the children have the pids that they had.
    """
    journal = kernel.journal
    if journal is None:
        raise StoreError("this kernel has no store, and so nothing to fork from", hint="Kernel('run.db', …)")
    everything = list(records)
    copies = copy_rows(run_records(everything, point.run), point)
    if not any(copy.kind == "process.created" and copy.pid == point.run for copy in copies):
        raise NoSuchProcess(
            f"the store does not have the beginning of process {point.run!r}",
            hint="older rows were dropped by a compaction: a fork needs the whole run",
            pid=point.run,
        )
    if any(copy.kind == "process.terminated" and copy.pid == point.run for copy in copies):
        raise ConfigError(f"process {point.run} has ended before that step", hint="fork at a step before its end")
    for program in live_programs(copies):
        if kernel.programs.get(program) is None:
            raise unknown_program(program, kernel.programs)
    kernel.core.raise_if_closed()
    alive = sum(1 for _ in live_programs(copies))
    if kernel.live + alive > kernel.processes_max:
        raise Overloaded(f"{kernel.live} processes are alive, the most there may be", limit=kernel.processes_max)
    above = _above(everything, point.run)
    fork = _ForkWriter(kernel, point, _limits(above), _right(above), keeps_pids=keeps_pids).write(copies, pid)
    await journal.wait_until_durable(journal.seq)
    return fork


def _above(records: list[Record], pid: str) -> list[rows.Created]:
    """Return how a process and all above it were made, itself first."""
    creations = {
        record.pid: rows.DECODERS[record.kind].decode(record.data)
        for record in records
        if record.kind == "process.created"
    }
    chain: list[rows.Created] = []
    while pid in creations and len(chain) < len(creations):
        chain.append(creations[pid])
        pid = creations[pid].parent
    return chain


def _limits(above: list[rows.Created]) -> dict[str, Any] | None:
    """Return the limits that held for a process: its own and all above it, of each amount the smallest."""
    budgets = [row.budget for row in reversed(above) if row.budget is not None]
    limits: dict[str, Any] = {}
    for budget in budgets:
        for name, amount in (budget.get("limits") or {}).items():
            outer = limits.get(name)
            is_amount = isinstance(amount, (int, float)) and isinstance(outer, (int, float))
            limits[name] = min(outer, amount) if is_amount else amount
    return {"limits": limits} if budgets else None


def _right(above: list[rows.Created]) -> Grant | None:
    """Return what a process was allowed: each of those above it may have narrowed that."""
    grants = [grant_of(row) for row in reversed(above) if row.grant is not None]
    if not grants:
        return None
    right = grants[0]
    for grant in grants[1:]:
        right = right.narrow(grant)
    return right


class _ForkWriter:
    """Writes the rows of one fork and brings its processes to life."""

    def __init__(
        self, kernel: Kernel, point: ForkPoint, budget: dict[str, Any] | None, right: Grant | None, *, keeps_pids: bool
    ) -> None:
        self._kernel = kernel
        self._keeps_pids = keeps_pids
        self._point = point
        self._budget = budget
        self._right = right
        self._names = NewNames()
        self._fold = Fold()

    def write(self, copies: list[CopiedRow], pid: str | None) -> str:
        fork = check_word("pid", self._free_pid() if pid is None else pid)
        if self._is_taken(fork):
            raise NameTaken(f"there is a process {fork!r} already", hint="take another pid", pid=fork)
        for copy in copies:
            if copy.kind == "process.created":
                self._create(copy, fork)
            elif copy.kind == "process.tainted":
                own = bool(copy.row.get("own"))
                self._kernel.taint.mark(self._names.pid(copy.pid), str(copy.row.get("by", "")), own=own)
            else:
                self._add(copy, fork)
        self._kernel.graft(self._fold.processes)
        return fork

    def _free_pid(self) -> str:
        stem, number = self._point.run[:_STEM_CHARS_MAX], 1
        while self._is_taken(f"{stem}-fork-{number}"):
            number += 1
        return f"{stem}-fork-{number}"

    def _is_taken(self, pid: str) -> bool:
        core = self._kernel.core
        return pid in core.processes or any(has_name(pid) for has_name in core.subsystems.has_name)

    def _create(self, copy: CopiedRow, fork: str) -> None:
        names, kernel, row = self._names, self._kernel, copy.row
        is_first = copy.pid == self._point.run
        names.pids[copy.pid] = fork if is_first else copy.pid if self._keeps_pids else self._kernel.lifetimes.next_pid()
        changes: dict[str, Any] = {
            "name": "" if row.name in kernel.names else row.name,
            "fork": {WAS: copy.pid} if row.chosen and not is_first else None,
        }
        if is_first:
            changes |= {
                "key": None,
                "budget": self._budget,
                "grant": None if self._right is None else self._right.to_data(),
                "rights": 0 if self._right is None else rows.RIGHTS,
                "guarded": False,
                "chosen": True,
                "fork": {OF: self._point.run, "at": self._point.number},
            }
        if copy.pid == self._point.pid and self._point.different:
            changes["fork"] = {**(changes["fork"] or {}), **self._point.different}
        created = names.rename_created(row, **changes)
        if is_first:
            created.parent = ""
        self._write(names.pids[copy.pid], copy.kind, created)

    def _add(self, copy: CopiedRow, fork: str) -> None:
        renamer = RENAMERS.get(copy.kind)
        row = None if renamer is None else renamer(self._names, copy, fork)
        if row is None:
            return
        seq = self._write(self._names.pid(copy.pid), copy.kind, row)
        if copy.kind == "message.sent":
            self._names.messages[copy.seq] = seq

    def _write(self, pid: str, kind: str, row: Any) -> int:
        journal = self._kernel.journal
        assert journal is not None
        data = rows.encode(row)
        seq = journal.write(pid, kind, data)
        self._fold.add(Record(seq, journal.time, pid, kind, data))
        return seq
