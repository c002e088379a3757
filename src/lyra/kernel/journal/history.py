"""What the journal says about each process: the fold of its rows.

`Fold.add(record)` takes rows in order and keeps, for every process, what a restart needs: how it was made, the
answer to each effect, its undelivered messages, its pending interrupts, what it spent, how it ended. A snapshot is
this very state written down (`dump`), so recovering from snapshot and tail gives the same as recovering from the
whole journal. Nothing here runs a program or looks at a clock; `recovery` brings the processes back to life.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec import Raw

from lyra.core.budgets.early_calls import NO_ROOM, JoinableBudget
from lyra.core.limits import MONEY_MICRO_USD_MAX
from lyra.core.naming import PORTION, to_fixed_name
from lyra.errors import Corrupt, EffectInDoubt, StoreError
from lyra.kernel.base import subsystem
from lyra.kernel.base.subsystem import State
from lyra.kernel.journal import rows
from lyra.kernel.journal.rows import error_to_row
from lyra.store.ended import ENDED, subtract
from lyra.store.protocol import Record


class Entry(msgspec.Struct, array_like=True):
    """The answer to one effect of a program, or the fact that it was begun."""

    kind: str  # do, send, spawn, receive, sleep, ask, wait, read
    name: str
    hash: bytes
    done: bool = False
    idempotent: bool = False
    value: Raw = rows.NIL
    blob: str = ""
    error: dict[str, Any] | None = None
    link: str = ""  # the child's pid, the interrupt's id
    due: float = 0.0
    lent: bool = False  # an effect that another program has got
    generation: str = ""  # of the store, in the idempotency key that it began with
    crashes: int = 0  # attempts that a crash has cut off
    cut_off: dict[str, int] | None = None  # what stays charged for attempts that were cut off; None: none was


class PendingInterrupt(msgspec.Struct, array_like=True):
    id: str
    kind: str
    question: str
    message: str
    created_at: float
    expires_at: float | None
    key: rows.Key | None


class ProcessState(msgspec.Struct):
    created: rows.Created
    created_at: float = 0.0
    created_seq: int = 0
    effects: dict[rows.Key, Entry] = {}
    inbox: list[tuple[int, Raw, str, str]] = []  # seq, message, blob, form
    links: list[str] = []
    monitors: dict[str, str] = {}  # ref → pid
    traps: bool = False
    interrupts: dict[str, PendingInterrupt] = {}
    spent: dict[str, int] = {}
    # The part of `spent` that processes on other shards spent; left out of a snapshot where there is none.
    lent: dict[str, int] | msgspec.UnsetType = msgspec.UNSET
    peak: dict[str, int] = {}  # of one that spends apart: the most that was spent and set aside at one time
    passed_on: dict[str, int] = {}  # of one that was put away: what it had spent, which counts above it now
    held: dict[rows.Key, dict[str, int]] = {}  # calls in flight, and what is set aside for each
    cut_off: dict[str, int] = {}  # the part of `spent` that was set aside for calls which the end of a kernel cut off
    refused: bool = False  # of one that spends apart: it found no room ahead of its turn
    exit: rows.Terminated | None = None
    exit_at: float = 0.0
    exit_seq: int = 0
    stopping: str = ""
    stopping_error: dict[str, Any] | None = None
    first_key: int = 0
    first_branch: int = 0
    restored: Raw = rows.NIL
    restored_blob: str = ""

    @property
    def in_flight(self) -> dict[str, int]:
        """Return what is set aside for all calls in flight; of a kernel that is gone, what the next one charges for
        them."""
        total: dict[str, int] = {}
        for cost in self.held.values():
            _add(total, cost)
        return total


_encode = msgspec.msgpack.Encoder().encode
encode_state: Callable[[ProcessState], bytes] = _encode
_decode_state = msgspec.msgpack.Decoder(ProcessState).decode
_decode_spent = msgspec.msgpack.Decoder(dict[str, int]).decode

_CHECKED: Final = {"read": "reading of", "wait": "end of"}  # kinds of answers whose form is the kernel's own

SHARD: Final = "~remote"  # in a snapshot: what a shard of a cluster knows of the others
_SHARD_ROWS: Final = "remote."  # begins the kinds of rows that this is made of
ROOT: Final = "~root"  # in a snapshot: what belongs to no process (no pid of ours begins with ~)


class Fold:
    """All processes as of one sequence number."""

    def __init__(self, states: Iterable[State] = ()) -> None:
        self.seq = 0
        self.states = {f"~{state.NAME}": state for state in states}
        self._by_kind = {kind: state for state in self.states.values() for kind in state.KINDS}
        self.processes: dict[str, ProcessState] = {}
        self.spent: dict[str, int] = {}  # by processes forgotten since, outside any that is remembered
        self.changed: set[str] = set()
        self.segments: dict[str, bytes] = {}  # of ended processes that were put away, by their keys in the snapshot
        self.find_ended: Callable[[str], ProcessState | None] = lambda _: None  # reads one of those
        self.is_shard = False  # it is of a shard of a cluster, and what that knows of the others is left out
        self.ended = 0  # processes that ended since `put_away` was asked last

    @classmethod
    def load(cls, seq: int, states: dict[str, bytes], subsystems: Iterable[State] = ()) -> Fold:
        """Load a whole snapshot: without what was put away as a kernel does, or with all of it (`store.ended`)."""
        fold = cls(subsystems)
        fold.seq = seq
        fold.take_in(states.items())
        fold._take_back()
        return fold

    def take_in(self, states: Iterable[tuple[str, bytes]]) -> None:
        """Load some of the states of a snapshot."""
        for pid, data in states:
            try:
                if pid == ROOT:
                    self.spent = _decode_spent(data)
                elif pid in self.states:
                    subsystem.load(self.states[pid], data)
                elif pid == SHARD:
                    self.is_shard = True
                elif pid.startswith(ENDED):
                    self.segments[pid] = data
                elif pid.startswith("~"):
                    raise _unknown_entry(pid)
                else:
                    self.processes[pid] = state_of(pid, data)
            except (msgspec.MsgspecError, RecursionError) as error:
                raise Corrupt(f"the snapshot of process {pid} cannot be read: {error}", pid=pid) from error

    def dump(self) -> dict[str, bytes | None]:
        """Return the states that changed since they were loaded."""
        return {pid: data for part in self.dump_in_slices(1_000) for pid, data in part.items()}

    def dump_in_slices(
        self, states_a_slice: int, *, forget_before: float | None = None
    ) -> Iterator[dict[str, bytes | None]]:
        """Yield the states that changed since they were loaded, some at a time; None for those forgotten.

        A process that ended before `forget_before` is forgotten once its parent's replay cannot ask for it any more.
        What it spent stays with the parent.
        """
        forgotten = self._forget(forget_before) if forget_before is not None else []
        changed, self.changed = list(self.changed), set()
        for start in range(0, len(changed), states_a_slice):
            part = changed[start : start + states_a_slice]
            yield {pid: _encode(self.processes[pid]) for pid in part if pid in self.processes}
        rest: dict[str, bytes | None] = {key: subsystem.dump(self.states[key]) for key in changed if key in self.states}
        if ROOT in changed:
            rest[ROOT] = _encode(self.spent)
        yield rest | dict.fromkeys(forgotten)

    def put_away(self, *, keep: int) -> dict[str, ProcessState]:
        """Take out the ended processes that nothing here needs any more, but the last `keep` of them. What they spent
        counts above them from now on; callers that ask how one ended read it from the store."""
        self.ended = 0
        unneeded = [pid for pid in self._list_unneeded() if not self.processes[pid].held]
        unneeded.sort(key=lambda pid: self.processes[pid].exit_seq)
        taken = self._take_out(unneeded[: max(0, len(unneeded) - keep)])
        self.changed -= taken.keys()
        return taken

    def _forget(self, before: float) -> Collection[str]:
        return self._take_out([pid for pid in self._list_unneeded() if self.processes[pid].exit_at < before])

    def _list_unneeded(self) -> Iterable[str]:
        """Yield the ended processes that no replay of a parent asks for."""
        for pid, state in self.processes.items():
            parent = self.processes.get(state.created.parent)
            # A live parent that has kept a state since (`checkpoint`) does not replay the spawn, so it asks no more.
            asked = parent is not None and parent.exit is None and state.created.key in parent.effects
            if state.exit is not None and not asked:
                yield pid

    def _take_out(self, pids: Collection[str]) -> dict[str, ProcessState]:
        """Remove ended processes, but for those above one that stays. What they spent counts for the parent."""
        held = {pid for state in self.states.values() for pid in subsystem.list_needed(state)}
        needed = self._above((self.processes.keys() - set(pids)) | (held & self.processes.keys())) | held
        taken = {pid: self.processes[pid] for pid in pids if pid not in needed}
        for pid, state in sorted(taken.items(), key=lambda item: item[1].created_seq, reverse=True):  # from below
            del self.processes[pid]
            parent = self.processes.get(state.created.parent)
            above = self.spent if parent is None else parent.spent
            if JoinableBudget.is_saved_in(state.created.budget):  # the parent has counted the rest, if it took the call
                _add(above, state.cut_off)
            else:
                _add(above, state.spent)
                if parent is not None and state.lent:
                    parent.lent = _sum(parent.lent or {}, state.lent)
                state.passed_on, state.spent = state.spent, {}
            self.changed.add(ROOT if parent is None else state.created.parent)
        return taken

    def _take_back(self) -> None:
        """Count what processes that were put away have spent as theirs again, in a fold that has been given them."""
        passed_on = [state for state in self.processes.values() if state.passed_on]
        for state in sorted(passed_on, key=lambda state: state.created_seq):  # from above
            above = state.created.parent
            if above and above not in self.processes:
                continue  # forgotten since: it counts somewhere above that one
            subtract(self.processes[above].spent if above else self.spent, state.passed_on)
            if above and state.lent:
                subtract(self.processes[above].lent or {}, state.lent)
            state.spent, state.passed_on = state.passed_on, {}

    def _above(self, pids: Iterable[str]) -> set[str]:
        """Return the ancestors of these: a child's budget and rights lie inside theirs, also when they have ended."""
        needed: set[str] = set()
        for pid in pids:
            above = self.processes[pid].created.parent
            while above and above not in needed and above in self.processes:
                needed.add(above)
                above = self.processes[above].created.parent
        return needed

    def add_all(self, records: Iterable[Record]) -> None:
        for record in records:
            self.add(record)

    def add(self, record: Record) -> None:
        seq, time, pid, kind, data = record
        self.seq = seq
        decoder = rows.DECODERS.get(kind)
        if decoder is None:
            self._add_to_subsystem(record)
            return
        try:
            row = decoder.decode(data)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise Corrupt(f"row {seq} ({kind}) cannot be read: {error}", seq=seq) from error
        self.changed.add(pid)
        apply = _APPLY.get(kind)
        if apply is not None:
            process = self.processes.get(pid)
            if process is None:
                self._late(seq, pid, kind, row)
                return
            apply(process, row, seq, time)
            self.ended += apply is _apply_terminated
        elif kind == "process.created":
            self._apply_created(record, row)
        else:
            receiver = self.processes.get(row.to)
            if receiver is not None and not row.dropped:
                receiver.inbox.append((seq, row.message, row.blob, row.form))
                self.changed.add(row.to)
            sender = self.processes.get(row.sender)
            if sender is not None and row.key is not None:
                sender.effects[row.key] = Entry("send", row.to, row.hash, done=True)
                self.changed.add(row.sender)

    def _add_to_subsystem(self, record: Record) -> None:
        state = self._by_kind.get(record.kind)
        if state is not None:
            subsystem.apply(state, record)
            self.changed.add(f"~{state.NAME}")
        elif record.kind.startswith(_SHARD_ROWS):
            self.is_shard = True

    def _late(self, seq: int, pid: str, kind: str, row: Any) -> None:
        """Take a row about a process that was put away: an effect of it came to its end, and what it cost counts."""
        ended = self.find_ended(pid)
        if ended is None:
            raise Corrupt(f"row {seq} ({kind}) is about process {pid}, which was never created", seq=seq)
        self.changed.discard(pid)
        if kind == "effect.finished" and row.usage:
            above = self._find_remembered_above(ended)
            _add(self.processes[above].spent if above else self.spent, row.usage)
            if above and row.name == PORTION:
                self.processes[above].lent = _sum(self.processes[above].lent or {}, row.usage)
            self.changed.add(above or ROOT)

    def _find_remembered_above(self, ended: ProcessState) -> str:
        """Return the nearest process above one that was put away that was not put away itself; "": none is left."""
        while ended.created.parent not in self.processes:
            parent = self.find_ended(ended.created.parent)
            if parent is None or parent.created_seq >= ended.created_seq:
                return ""
            ended = parent
        return ended.created.parent

    def _apply_created(self, record: Record, row: rows.Created) -> None:
        seq, time, pid, _, _ = record
        if pid in self.processes:
            raise Corrupt(f"row {seq} creates process {pid} a second time", seq=seq)
        if not pid or pid[0] == "~":  # the second belongs to the subsystems in a snapshot
            raise Corrupt(f"row {seq} creates a process with the pid {pid!r}", seq=seq)
        self.processes[pid] = ProcessState(created=row, created_at=time, created_seq=seq)
        parent = self.processes.get(row.parent)
        if parent is not None and row.key is not None:
            parent.effects[row.key] = Entry("spawn", row.program, row.hash, done=True, link=pid)
            self.changed.add(row.parent)


def _unknown_entry(name: str) -> StoreError:
    """Return the error for a part of a snapshot that is neither a process nor anything this version writes. A version
    that stores segments or another part in a new form gives it a new name, so that this one knows it for newer."""
    return StoreError(
        f"the store was written by a newer Lyra: its snapshot has {name!r}, which this one does not know",
        hint="upgrade with: pip install --upgrade lyra-agents",
        entry=name,
    )


def state_of(pid: str, data: bytes) -> ProcessState:
    """Read the state of one process as a snapshot has it."""
    state = _decode_state(data)
    if not pid:
        raise Corrupt("there is a snapshot of a process with the pid ''", pid=pid)
    state.created.program = to_fixed_name(state.created.program)
    for key, entry in state.effects.items():
        if entry.kind == "spawn":
            entry.name = to_fixed_name(entry.name)
        fault = _fault(entry) if entry.kind in _CHECKED else None
        if fault is not None:
            raise Corrupt(f"the snapshot of process {pid} has at {key} no {fault}", pid=pid)
    return state


def _fault(entry: Entry) -> str | None:
    """Return why an answer cannot be what its program asked for; the kernel itself uses these, so they have to fit."""
    if entry.kind == "wait" and (entry.blob or entry.error is not None):  # read when it is asked for; an error instead
        return None
    wrong = rows.answer_fault(entry.kind, entry.name, entry.value)
    return None if wrong is None else f"{_CHECKED[entry.kind]} {entry.name}: {wrong}"


def _apply_started(state: ProcessState, row: rows.Started, seq: int, time: float) -> None:
    _hold(state, row.key, row.cost or {})
    if type(row.key) is str and rows.is_aside(row.key):
        return
    entry = Entry("do", row.name, row.hash, idempotent=row.idempotent, lent=row.lent, generation=row.generation)
    before = state.effects.get(row.key)
    if before is not None:
        if not before.done:
            entry.crashes, entry.cut_off = before.crashes, before.cut_off
        state.effects.pop(f"doubt:{row.key}", None)  # what was said about the last time is no answer to this one
    state.effects[row.key] = entry


def _apply_finished(state: ProcessState, row: rows.Finished, seq: int, time: float) -> None:
    state.held.pop(row.key, None)
    if row.usage:
        _add(state.spent, row.usage)
    if row.error is not None and NO_ROOM in (row.error.get("fields") or ()):
        state.refused = True
    if row.error is not None and "crash" in row.error:  # with its kernel
        state.cut_off = _sum(state.cut_off, row.usage or {})
    if state.exit is not None or (type(row.key) is str and rows.is_aside(row.key)):
        if row.name == PORTION:
            state.lent = _sum(state.lent or {}, row.usage or {})
        return
    entry = state.effects.get(row.key)
    if row.error is not None and row.error.get("code") == "cut_off":  # with its process: paid for, still in doubt
        if entry is not None:
            entry.crashes += bool(row.error.get("crash"))
            entry.cut_off = _sum(entry.cut_off or {}, row.usage or {})
        return
    if entry is None:
        entry = state.effects[row.key] = Entry(row.form, row.name, row.hash)
    entry.done = True
    entry.value = row.value
    entry.blob = row.blob
    entry.error = row.error
    if entry.kind in _CHECKED:
        fault = _fault(entry)
        if fault is not None:
            raise Corrupt(f"row {seq} (effect.finished) is no {fault}", seq=seq)


def _apply_received(state: ProcessState, row: rows.Received, seq: int, time: float) -> None:
    entry = Entry("receive", "", b"", done=True, link="timeout")
    if row.message:
        for index, (message, value, blob, form) in enumerate(state.inbox):
            if message == row.message:
                del state.inbox[index]
                entry = Entry("receive", "", b"", done=True, value=value, blob=blob, link=form)
                break
        else:
            raise Corrupt(f"row {seq} receives message {row.message}, which was not in the mailbox", seq=seq)
    state.effects[row.key] = entry


def _timer(state: ProcessState, row: rows.TimerSet, seq: int, time: float) -> None:
    state.effects[row.key] = Entry("sleep", "", row.hash, done=True, due=row.due)


def _apply_interrupt_raised(state: ProcessState, row: rows.InterruptRaised, seq: int, time: float) -> None:
    state.interrupts[row.id] = PendingInterrupt(
        row.id, row.kind, row.question, row.message, time, row.expires_at, row.key
    )
    if row.key is not None and not rows.is_aside(row.key):
        state.effects[row.key] = Entry("ask", row.kind, row.hash, link=row.id)


def _apply_interrupt_ended(state: ProcessState, row: rows.InterruptEnded, seq: int, time: float) -> None:
    pending = state.interrupts.pop(row.id, None)
    if pending is not None and pending.key is not None:
        entry = state.effects.get(pending.key)
        if entry is None:  # forgotten at a checkpoint
            return
        entry.done = True
        entry.value = row.response
        entry.name = pending.kind
        if row.reason:
            entry.error = {"code": "deadline_exceeded", "message": row.reason}


def _checkpoint(state: ProcessState, row: rows.Checkpointed, seq: int, time: float) -> None:
    state.effects.clear()
    state.first_key = row.key + 1
    state.first_branch = row.branches
    state.restored = row.state
    state.restored_blob = row.blob


def _stopping(state: ProcessState, row: rows.Stopping, seq: int, time: float) -> None:
    state.stopping = row.reason
    state.stopping_error = row.error


def _apply_linked(state: ProcessState, row: rows.Linked, seq: int, time: float) -> None:
    if row.to not in state.links:
        state.links.append(row.to)


def _apply_unlinked(state: ProcessState, row: rows.Linked, seq: int, time: float) -> None:
    if row.to in state.links:
        state.links.remove(row.to)


def _apply_monitored(state: ProcessState, row: rows.Monitored, seq: int, time: float) -> None:
    state.monitors[row.ref] = row.target


def _apply_demonitored(state: ProcessState, row: rows.Monitored, seq: int, time: float) -> None:
    state.monitors.pop(row.ref, None)


def _trapping(state: ProcessState, row: rows.Trapping, seq: int, time: float) -> None:
    state.traps = row.on


def _apply_terminated(state: ProcessState, row: rows.Terminated, seq: int, time: float) -> None:
    state.exit = row
    state.exit_at = time
    state.exit_seq = seq
    state.effects.clear()
    state.inbox.clear()
    state.interrupts.clear()
    state.links.clear()
    state.monitors.clear()
    state.held = {key: cost for key, cost in state.held.items() if cost}


def end_cut_off(state: ProcessState, key: rows.Key, *, crashed: bool) -> rows.Finished:
    """End a call that was in flight when its kernel died or closed: whether it happened is not known, so what was set
    aside for it stays charged. Returns the row that says so."""
    error: dict[str, Any] = {"code": "cut_off", "crash": crashed}
    if rows.is_aside(key):  # never made again
        error = error_to_row(EffectInDoubt("its kernel died while it was in flight", key=str(key)))
    row = rows.Finished(key, error=error, usage=state.held[key] or None)
    _apply_finished(state, row, 0, 0.0)
    return row


def _hold(state: ProcessState, key: rows.Key, cost: dict[str, int]) -> None:
    state.held[key] = cost
    if not cost or not JoinableBudget.is_saved_in(state.created.budget):
        return
    taken = dict(state.spent)
    subtract(taken, state.cut_off)
    for reserved in state.held.values():
        _add(taken, reserved)
    state.peak = {name: max(amount, state.peak.get(name, 0)) for name, amount in taken.items()}


def _sum(total: dict[str, int], usage: dict[str, int]) -> dict[str, int]:
    total = dict(total)
    _add(total, usage)
    return total


def _add(total: dict[str, int], usage: dict[str, int]) -> None:
    for dimension, amount in usage.items():
        total[dimension] = min(total.get(dimension, 0) + amount, MONEY_MICRO_USD_MAX)  # what a row can hold


_APPLY: Final[dict[str, Callable[[ProcessState, Any, int, float], None]]] = {
    "effect.started": _apply_started,
    "effect.finished": _apply_finished,
    "message.received": _apply_received,
    "timer.set": _timer,
    "interrupt.created": _apply_interrupt_raised,
    "interrupt.resolved": _apply_interrupt_ended,
    "interrupt.expired": _apply_interrupt_ended,
    "interrupt.cancelled": _apply_interrupt_ended,
    "program.checkpoint": _checkpoint,
    "process.stopping": _stopping,
    "process.linked": _apply_linked,
    "process.unlinked": _apply_unlinked,
    "process.monitored": _apply_monitored,
    "process.demonitored": _apply_demonitored,
    "process.trapping": _trapping,
    "process.terminated": _apply_terminated,
}
