"""The live processes of a shard, as `lyra ps` shows them: what a host answers to the call "table".

`list_live` makes the records from the kernel's own table, without reading the journal. They say what the fold of the
journal says (`observe.history.processes`), but for two things that the kernel knows in another way: what children that
ended had spent counts for the process above them, and restarts are those of the supervisors' tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lyra.core.naming import to_fixed_name
from lyra.observe.history.processes import ProcessRecord
from lyra.store.ended import subtract

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.process.process import Process

_ENDED: Final = frozenset({"terminated", "zombie"})


def list_live(kernel: Kernel) -> Iterator[ProcessRecord]:
    """Yield the records of the processes that live; the caller may pause between two of them."""
    questions: dict[str, dict[str, str]] = {}
    for interrupt in kernel.interrupts.pending():
        asker = kernel.interrupts.asker(interrupt)
        questions.setdefault(asker, {})[interrupt.id] = interrupt.question or interrupt.message
    restarts = _count_restarts(kernel)
    parents = kernel.core.remote.acts.parents if kernel.core.remote is not None else {}
    entries = kernel.lifecycle.state.entries
    for process in list(kernel.processes.values()):
        if process.exit is None:
            record = _describe(kernel, process)
            record.restarts = restarts[process.pid]
            record.parent_elsewhere = parents.get(process.pid, "")
            record.questions = questions.get(process.pid, {})
            if record.questions and record.state == "running":
                record.state = "waiting"
            entry = entries.get(process.pid)
            record.stage = entry.current_stage if entry is not None else ""
            yield record
    for pid, entry in list(entries.items()):
        if pid not in kernel.processes and entry.state not in _ENDED:
            yield ProcessRecord(
                pid,
                parent=entry.parent_pid,
                user_id=entry.user_id,
                state=entry.state,
                stage=entry.current_stage,
                created_at=entry.created_at,
                questions=questions.get(pid, {}),
            )


def _describe(kernel: Kernel, process: Process) -> ProcessRecord:
    inbox, parent = process.inbox or (), process.parent
    return ProcessRecord(
        process.pid,
        program=to_fixed_name(process.program),
        name=process.name or "",
        parent="" if parent is None else parent.pid,
        user_id=kernel.lifecycle.user_of_program(process),
        state="running" if process.kill_reason is None else "stopping",
        reason=process.kill_reason or "",
        created_at=process.created_at,
        limits=process.budget.to_data()["limits"] if process.has_own_budget else None,
        spent=_find_own_spending(process),
        attempts={str(key): count for key, count in (process.attempts or {}).items()},
        mailbox={number: {} for number in range(len(inbox))},
    )


def _find_own_spending(process: Process) -> dict[str, int]:
    """Return what a process spent, without the living below it."""
    own = process.spent.to_data()
    for child in (process.children or {}).values():
        subtract(own, child.spent.to_data())
    return own


def _count_restarts(kernel: Kernel) -> Counter[str]:
    """Return the restarts by pid: of a supervisor those of all its children, of a child its own."""
    restarts: Counter[str] = Counter()
    for pid, table in kernel.supervisors.tables.items():
        for row in table.rows:
            if row.starts > 1:
                restarts[pid] += row.starts - 1
                if row.pid is not None:
                    restarts[row.pid] += row.starts - 1
    return restarts
