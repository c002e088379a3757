"""What must hold after every step of every simulated run: one table, a sentence each.

`INVARIANTS` are the twelve rules of the kernel; `PROMISES` are what Lyra tells its users on top. `Ledger` keeps its
own books from the rows that reached the store, independently of the kernel's fold, and says what is wrong with each
new row. `inspect(...)` looks at a live kernel between two steps, `inspect_idle` when nothing is ready,
`inspect_rest` when all is over. A check only looks; it returns sentences and never changes anything.

Supervisors and subsystems have books of their own (`books`, by rows) and are looked at in `inspections` (live).
`supervisor_window` holds `core.policies.restart.RestartWindow` against a naive count on random times; the
restarts of real supervisors are counted again in `books`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from lyra.core.budgets.budget import DIMENSIONS, Budget, lanes
from lyra.core.ids import ProcessRandom
from lyra.core.policies.policy import RestartWindow, Supervision
from lyra.kernel import Kernel
from lyra.kernel.journal import rows
from lyra.store.protocol import Record
from verify.simulation.ledger import MOVES, Parts, Violation

__all__ = [
    "INVARIANTS",
    "PROMISES",
    "Ledger",
    "Violation",
    "inspect",
    "inspect_idle",
    "inspect_rest",
    "supervisor_window",
]

INVARIANTS: Final[dict[str, str]] = {
    "journal_dense": "journal sequence numbers are dense, from 1, over all lives of the store",
    "finished_started": "each effect.finished that ran belongs to one effect.started, and answers it once",
    "spent_within_limit": "no scope has spent more than its limit, but for overruns that were reported",
    "child_budget": "no scope's limit is above its parent's",
    "transitions": "every change of state is in the table of transitions, and nothing happens to an ended process",
    "message_lost": "a message for an ended process is dropped only with an Event that says so",
    "supervisor_window": "restarts are counted in a sliding window, its edge included, and one too many is the last",
    "parents": "a process has a parent that lives and knows it, or hangs under the root",
    "interrupt_waiting": "a process, an entry or a pipeline with a pending Interrupt waits",
    "slots": "what was acquired is released at rest: reservations, gates, services, waiters, ties, effects in flight",
    "grant": "no Effect is performed outside its process's Grant",
    "idle": "when the loop is idle, every process is terminal or waiting",
}

PROMISES: Final[dict[str, str]] = {
    "never_again": "a finished effect is never performed again",
    "at_most_once": "an effect that is not idempotent is performed again only by its retry policy or an answer `retry`",
    "started_first": "an effect that is not idempotent is performed only after its start is durable",
    "mailbox_order": "messages are received in the order in which they were sent, each once",
    "fenced": "a kernel that lost its store writes nothing more, and a second one is refused",
    "acknowledged": "what was acknowledged is in the journal",
    "budget_exact": "what a scope has used is what the journal says its processes used",
    "replay": "a process replayed from its journal asks for the same and ends the same, performing nothing",
    "children": "a supervisor's live children are the ones in its table, and those that must run do",
    "links": "who is linked to a process that ended is told of it or ends too, and who monitors it is told",
    "groups": "members of a group are alive, and a process that ends has left",
    "turns": "a worker gets the ready entry of the highest priority that has waited longest",
    "stage_once": "a run of a stage is reported once, and asking twice for an instruction changes nothing",
    "pipeline_bounds": "no pipeline goes past its hops, its edge limits or the visits of a stage",
    "rates": "no user gets more requests in a window than the limit",
    "bus": "an event reaches each subscriber once, a query its one handler",
    "state_is_fold": "what a subsystem knows is the fold of its rows, live, from a snapshot and after a restart",
    "events": "listeners get every journal row, once and in order",
    "contained": "no error escapes into the event loop",
    "ends": "what is killed ends, and a run comes to its end",
}

# ---------------------------------------------------------------------- the books


class _Books:
    """What the journal says about one process."""

    __slots__ = (
        "children", "dropped", "ended", "finished", "inbox", "parent", "retries", "spent", "started", "stopping",
    )  # fmt: skip

    def __init__(self, parent: str) -> None:
        self.parent = parent
        self.children: list[str] = []
        self.started: dict[rows.Key, int] = {}
        self.finished: set[rows.Key] = set()
        self.retries: dict[str, int] = {}
        self.inbox: list[int] = []
        self.spent: dict[str, int] = {}
        self.dropped = 0
        self.stopping = False
        self.ended = False


class Ledger:
    """Rows in the order in which they became durable, and the sentences about what is wrong with them."""

    def __init__(self) -> None:
        self.rows: list[Record] = []
        self.processes: dict[str, _Books] = {}
        self.interrupts: dict[str, tuple[str, str]] = {}  # id → (pid, key)
        self.parts = Parts()

    def add(self, record: Record) -> Iterator[Violation]:
        seq, _, pid, kind, data = record
        if seq != len(self.rows) + 1:
            yield Violation("journal_dense", f"row {seq} came after row {len(self.rows)}")
        self.rows.append(record)
        if kind not in rows.DECODERS:
            yield from self.parts.fact(seq, pid, kind, data)
            return
        row: Any = rows.DECODERS[kind].decode(data)
        yield from self.parts.process(seq, pid, kind, row)
        books = self.processes.get(pid)
        if kind == "process.created":
            if books is not None:
                yield Violation("transitions", f"row {seq} creates {pid} again")
            self.processes[pid] = _Books(row.parent)
            if row.parent in self.processes:
                self.processes[row.parent].children.append(pid)
        elif kind == "message.sent":
            yield from self._sent(seq, row)
        elif books is None:
            yield Violation("transitions", f"row {seq} ({kind}) is about {pid}, which was never created")
        else:
            if books.ended and not (kind == "effect.finished" and row.key in books.started):
                # Only what an effect in flight cost is still written down after the end.
                yield Violation("transitions", f"row {seq} ({kind}) is about {pid}, which has ended")
            if kind in _KEEP:
                yield from _KEEP[kind](self, books, pid, seq, row)

    def _sent(self, seq: int, row: rows.Sent) -> Iterator[Violation]:
        receiver = self.processes.get(row.to)
        if receiver is None:
            yield Violation("message_lost", f"row {seq} sends to {row.to}, which was never created")
        elif receiver.ended:
            receiver.dropped += 1
            if not row.dropped:
                yield Violation("message_lost", f"row {seq} sends to {row.to}, which has ended, as if it lived")
        elif row.dropped:  # its end is the next thing written: waiting senders are let go first
            receiver.dropped += 1
        else:
            receiver.inbox.append(seq)

    def _started(self, books: _Books, pid: str, seq: int, row: rows.Started) -> Iterator[Violation]:
        if row.key in books.finished:
            yield Violation("finished_started", f"row {seq} starts {pid}:{row.key}, which is finished")
        books.started[row.key] = count = books.started.get(row.key, 0) + 1
        if not row.idempotent and count > 1 + books.retries.get(f"doubt:{row.key}", 0):
            yield Violation("at_most_once", f"row {seq} starts {pid}:{row.key} for the {count}. time unasked")

    def _finished(self, books: _Books, pid: str, seq: int, row: rows.Finished) -> Iterator[Violation]:
        for dimension, amount in (row.usage or {}).items():
            books.spent[dimension] = books.spent.get(dimension, 0) + amount
        code = row.error.get("code") if row.error is not None else None
        if code == "cut_off":
            return  # it ended with its process, or will be asked about
        if (row.error is not None and row.key in books.finished) or row.form not in ("do", "read", "wait"):
            # The program was cancelled while it waited for this very row: it saw no answer, so a replay must not.
            if row.usage:
                yield Violation("finished_started", f"row {seq} charges {pid}:{row.key} a second time")
        elif row.key in books.finished:
            yield Violation("finished_started", f"row {seq} finishes {pid}:{row.key} a second time")
        elif row.form == "do" and not row.name and row.key not in books.started:
            yield Violation("finished_started", f"row {seq} finishes {pid}:{row.key}, which was never started")
        books.finished.add(row.key)

    def _received(self, books: _Books, pid: str, seq: int, row: rows.Received) -> Iterator[Violation]:
        if not row.message:
            return
        if not books.inbox or books.inbox[0] != row.message:
            yield Violation("mailbox_order", f"row {seq}: {pid} received {row.message} of {books.inbox[:3]}")
        if row.message in books.inbox:
            books.inbox.remove(row.message)

    def _raised(self, _books: _Books, pid: str, _seq: int, row: rows.InterruptRaised) -> Iterator[Violation]:
        self.interrupts[row.id] = (pid, str(row.key))
        yield from ()

    def _answered(self, books: _Books, pid: str, seq: int, row: rows.InterruptEnded) -> Iterator[Violation]:
        question = self.interrupts.get(row.id)
        if question is None or question[0] != pid:
            yield Violation("transitions", f"row {seq} ends interrupt {row.id}, which {pid} never raised")
        elif b"\xa5retry" in bytes(row.response):
            books.retries[question[1]] = books.retries.get(question[1], 0) + 1

    def _terminated(self, books: _Books, _pid: str, _seq: int, _row: rows.Terminated) -> Iterator[Violation]:
        books.dropped += len(books.inbox)
        books.inbox.clear()
        books.ended = books.stopping = True
        yield from ()

    def _stopping(self, books: _Books, _pid: str, _seq: int, _row: rows.Stopping) -> Iterator[Violation]:
        books.stopping = True
        yield from ()

    # ------------------------------------------------------------------ asked by the world

    def judge_act(
        self, key: str, request: dict[str, Any], performed: int, *, idempotent: bool, tries: int
    ) -> Iterator[Violation]:
        """An act reached the outside world: was it allowed to, as far as the journal knows?"""
        pid, _, word = key.partition(":")
        books = self.processes.get(pid)
        effect_key: rows.Key = int(word) if word.isdigit() else word
        if books is not None and effect_key in books.finished:
            yield Violation("never_again", f"{key} ({request['kind']}) is finished and was performed again")
        if idempotent:
            return
        started = books.started.get(effect_key, 0) if books is not None else 0
        if started == 0:
            yield Violation("started_first", f"{key} ({request['kind']}) was performed before its start was durable")
        elif performed > started * tries:
            yield Violation(
                "at_most_once", f"{key} was performed {performed} times in {started} starts of {tries} tries"
            )

    def spent_below(self, pid: str, dimension: str = "usd") -> int:
        """What a process and all its descendants used, by the rows."""
        books = self.processes[pid]
        return books.spent.get(dimension, 0) + sum(self.spent_below(child, dimension) for child in books.children)


_KEEP: Final[dict[str, Callable[[Ledger, _Books, str, int, Any], Iterator[Violation]]]] = {
    "effect.started": Ledger._started,
    "effect.finished": Ledger._finished,
    "message.received": Ledger._received,
    "interrupt.created": Ledger._raised,
    "interrupt.resolved": Ledger._answered,
    "interrupt.expired": Ledger._answered,
    "interrupt.cancelled": Ledger._answered,
    "process.stopping": Ledger._stopping,
    "process.terminated": Ledger._terminated,
}


# ---------------------------------------------------------------------- the live kernel


def move(pid: str, old: str, new: str) -> Iterator[Violation]:
    if (old, new) not in MOVES:
        yield Violation("transitions", f"{pid} went from {old} to {new}")


def inspect(kernel: Kernel, *, overrun_usd: int = 0) -> Iterator[Violation]:
    """Between two steps: budgets and family."""
    seen: set[int] = set()
    for pid, process in kernel.processes.items():
        budget = process.budget
        if id(budget) not in seen:
            seen.add(id(budget))
            yield from _budget(pid, budget, overrun_usd)
        if process.exit is None and process.parent is not None:
            parent = process.parent
            if parent.exit is not None or kernel.processes.get(parent.pid) is not parent:
                yield Violation("parents", f"{pid} hangs under {parent.pid}, which has ended")
            elif process.pid not in (parent.children or {}):
                yield Violation("parents", f"{pid} is not among the children of {parent.pid}")


def _budget(pid: str, budget: Budget, overrun_usd: int) -> Iterator[Violation]:
    limits, used, taken = lanes(budget._limits), lanes(budget._used), lanes(budget._taken)
    if budget.on_exceed == "block":
        for index, dimension in enumerate(DIMENSIONS):
            slack = overrun_usd if dimension == "usd" else 0
            if taken[index] > limits[index] + slack or used[index] < 0:
                yield Violation("spent_within_limit", f"{pid}: {taken[index]} {dimension} taken of {limits[index]}")
            if taken[index] < used[index]:
                yield Violation("slots", f"{pid}: {dimension} reserved is negative")
    if budget.parent is not None:
        for dimension, own, above in zip(DIMENSIONS, limits, lanes(budget.parent._limits), strict=True):
            if own > above and own < 1 << 79:
                yield Violation("child_budget", f"{pid}: limit {own} {dimension} inside {above}")


def inspect_idle(kernel: Kernel) -> Iterator[Violation]:
    """Nothing is ready: every process waits for something, and one that asked a question waits for its answer."""
    if kernel.failure is not None or kernel.stopping:
        return
    held = kernel.journal is not None and kernel.journal.stuck is not None
    for pid, process in kernel.processes.items():
        dormant = process.exit is None and process.coroutine is None
        if process.state not in ("waiting", "blocked", "terminated", "zombie") and not held and not dormant:
            yield Violation("idle", f"{pid} is {process.state}")
    for interrupt in kernel.interrupts.pending():
        owner = kernel.processes.get(kernel.interrupts.asker(interrupt))
        if owner is None or owner.exit is not None:
            yield Violation("interrupt_waiting", f"{interrupt.id} is pending and {interrupt.pid} has ended")
        elif owner.state not in ("waiting", "blocked") and owner.coroutine is not None and not held:
            yield Violation("interrupt_waiting", f"{interrupt.id} is pending and {interrupt.pid} is {owner.state}")
        elif (
            not kernel.interrupts._programs.waiters.get(interrupt.id)
            and owner.replay is None
            and owner.coroutine is not None
        ):
            yield Violation("interrupt_waiting", f"{interrupt.id} is pending and {interrupt.pid} does not wait for it")


def inspect_rest(kernel: Kernel, ledger: Ledger) -> Iterator[Violation]:
    """Everything has ended: nothing may be held any more, and the books agree."""
    if kernel.core.in_flight:
        yield Violation("slots", f"{kernel.core.in_flight} effects in flight at rest")
    for pid, process in kernel.processes.items():
        if process.exit is None:
            yield Violation("ends", f"{pid} is still {process.state}")
        if process.senders:
            yield Violation("slots", f"{len(process.senders)} senders wait for {pid}, which has ended")
        for dimension in DIMENSIONS:
            reserved = process.budget.reserved(dimension)
            if reserved:
                yield Violation("slots", f"{pid}: {reserved} {dimension} are still reserved")
    for name, gate in kernel.declared.gates.items():
        if gate._busy or gate._line:
            yield Violation("slots", f"the gate of {name} is busy at rest")
        if gate._breaker is not None and gate._breaker._probes:
            yield Violation("slots", f"the breaker of {name} still counts {gate._breaker._probes} probes")
    journal = kernel.journal
    if journal is not None:
        if journal.pending or journal.waiters or journal.callers:
            yield Violation("slots", "a process still waits for the journal")
        yield from _exact(kernel, ledger)


def _exact(kernel: Kernel, ledger: Ledger) -> Iterator[Violation]:
    for pid, process in kernel.processes.items():
        own_scope = process.parent is None or True
        if pid not in ledger.processes or not own_scope:
            continue
        parent = kernel.processes.get(ledger.processes[pid].parent)
        if (parent is not None and parent.budget is process.budget) or process.budget is kernel.budget:
            continue  # it shares its scope; that one is looked at with its owner
        used, booked = int(process.budget.used("usd")), ledger.spent_below(pid)
        if used != booked:
            yield Violation("budget_exact", f"{pid} used {used} micro-dollars, the journal says {booked}")


def supervisor_window(
    rng: ProcessRandom, window: Callable[[Supervision], RestartWindow] = RestartWindow
) -> Iterator[Violation]:
    """Random crash times against a count that anybody can read."""
    most, window_s = rng.randint(0, 3), float(rng.choice([1, 5, 10]))
    counted = window(Supervision(max_restarts=most, window_s=window_s))
    times: list[float] = []
    now = 0.0
    for _ in range(12):
        now += rng.choice([0.0, 0.5, 1.0, 2.5, 5.0, 10.0])
        times.append(now)
        allowed = sum(1 for then in times if now - then <= window_s) <= most
        if counted.record(now) != allowed:
            yield Violation("supervisor_window", f"{most} in {window_s:g} s: crash at {now:g} of {times}")
            return
