"""What the rows of a source tell: its processes and its calls, brought up to date as often as it is asked."""

from __future__ import annotations

import msgspec

from lyra.cli.views.source import RowSource
from lyra.core.event import Event
from lyra.errors import Corrupt
from lyra.kernel.journal.history import Fold, ProcessState
from lyra.observe.history.calls import CallHistory
from lyra.observe.history.processes import Processes, ProcessRecord
from lyra.store.ended import load_all
from lyra.store.protocol import Store


class Folded:
    """Both folds over one source. `refresh` reads the rows that came since the last time."""

    def __init__(self, source: RowSource) -> None:
        self._source = source
        self.processes = Processes()
        self.calls = CallHistory()
        compacted = source.snapshot()
        self._covered = 0 if compacted is None else self._take_snapshot(compacted)
        self._seq = 0
        self.refresh()

    def refresh(self) -> int:
        """Read on; gives how many rows there were."""
        count = 0
        for event in self._source.rows(self._seq):
            count += 1
            self._seq = event.seq
            self._add(event)
        return count

    def _add(self, event: Event) -> None:
        try:
            self.calls.add(event)
            if event.seq > self._covered:
                self.processes.add(event)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise Corrupt(
                f"row {event.seq} ({event.kind}) of {self._source.location} cannot be read",
                hint="`lyra store check` looks at the whole store",
            ) from None

    def _take_snapshot(self, store: Store) -> int:
        """Take over the processes whose rows a compaction dropped; gives the row up to which the snapshot tells."""
        snapshot = load_all(store)
        states = {pid: state for pid, state in snapshot.states.items() if pid[:1] != "~"}  # not those of subsystems
        try:
            fold = Fold.load(snapshot.seq, states)
        except Corrupt:  # `lyra store check` says what is wrong
            return 0
        for pid, state in fold.processes.items():
            self.processes.records[pid] = _record(pid, state)
        return snapshot.seq


def _record(pid: str, state: ProcessState) -> ProcessRecord:
    spent, exit_row = state.spent, state.exit
    record = ProcessRecord(
        pid,
        program=state.created.program,
        name=state.created.name,
        parent=state.created.parent,
        created_at=state.created_at,
        micro_usd=spent.get("usd", 0),
        tokens=spent.get("input_tokens", 0) + spent.get("output_tokens", 0),
        calls=spent.get("llm_calls", 0) + spent.get("tool_calls", 0),
        attempts={str(key): entry.crashes for key, entry in state.effects.items() if entry.crashes and not entry.done},
        messages=len(state.inbox),
        questions={id_: pending.question or pending.message for id_, pending in state.interrupts.items()},
    )
    if record.questions:
        record.state = "waiting"
    if exit_row is not None:
        record.state, record.reason, record.ended_at = "terminated", exit_row.reason, state.exit_at
        record.error = str((msgspec.to_builtins(exit_row.error) or {}).get("message", ""))
    return record
