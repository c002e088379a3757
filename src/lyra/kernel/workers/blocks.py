"""Blocks: an entry of the lifecycle, or a program process, as callers see it at one moment.

A `ProcessControlBlock` joins what several parts know: the state (`entry`), the quota and what was used of it (`usage`),
the oldest open question (`interrupts`), the stage of the pipeline. Nothing is changed here. A block that goes to a
process brings the mark of its texts along (`Blocks.read`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lyra.core import codec
from lyra.errors import NoSuchProcess
from lyra.kernel.process.process import PLAIN_ENDS, PRIORITIES, Process
from lyra.kernel.workers.entry import TERMINAL, Entry, ProcessControlBlock

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core
    from lyra.kernel.interrupts.service import InterruptService
    from lyra.kernel.programs.lifetime import Lifetimes
    from lyra.kernel.workers.lifecycle import LifecycleManager


class Blocks:
    """See the module."""

    __slots__ = ("_core", "_interrupts", "_lifecycle", "_lifetimes")

    def __init__(
        self, core: Core[Process], lifecycle: LifecycleManager, lifetimes: Lifetimes, interrupts: InterruptService
    ) -> None:
        self._core = core
        self._lifecycle = lifecycle
        self._lifetimes = lifetimes
        self._interrupts = interrupts

    def picture(self, pid: Any) -> ProcessControlBlock:
        """Return the block of an entry or of a program process. NoSuchProcess, if there is none."""
        entry = self._lifecycle.state.entries.get(pid) if isinstance(pid, str) else None
        if entry is not None:
            return self.from_entry(pid, entry)
        process = self._core.processes.get(pid) if isinstance(pid, str) else None
        if process is None:
            raise unknown_process(pid)
        return self.from_program(process)

    def from_entry(self, pid: str, entry: Entry) -> ProcessControlBlock:
        resources = self._lifecycle.resources
        kind, data = self._question(pid)
        if kind is None and entry.state == "blocked":
            data = {"block_reason": entry.reason}
        return ProcessControlBlock(
            pid,
            entry.state,
            PRIORITIES[entry.priority],
            resources.get_quota(pid),
            resources.get_usage(pid),
            request_id=entry.request_id,
            user_id=entry.user_id,
            session_id=entry.session_id,
            created_at=entry.created_at,
            started_at=entry.started_at,
            completed_at=entry.completed_at,
            last_scheduled_at=entry.last_scheduled_at,
            current_stage=self._stage(pid, entry.current_stage),
            current_service=entry.current_service,
            pending_interrupt=kind,
            interrupt_data=data,
            parent_pid=entry.parent_pid,
            child_pids=tuple(entry.child_pids),
            termination_reason=entry.reason if entry.state in TERMINAL else "",
        )

    def from_program(self, process: Process) -> ProcessControlBlock:
        """Return a program process, shown as a block. It starts with its creation: no worker has to take it."""
        resources = self._lifecycle.resources
        kind, data = self._question(process.pid)
        seen = process.stands_for or process  # for a guard, the state shown is that of the process it guards
        return ProcessControlBlock(
            process.pid,
            seen.state,
            PRIORITIES[process.priority],
            resources.get_quota(process.pid),
            resources.usage_of(process.pid, process, self._lifecycle.measure_elapsed_of_program(process)),
            user_id=self._lifecycle.user_of_program(process),
            created_at=process.created_at,
            started_at=process.created_at,
            completed_at=process.ended_at,
            current_stage=self._stage(process.pid, ""),
            current_service=seen.program,
            pending_interrupt=kind,
            interrupt_data=data,
            parent_pid=process.parent.pid if process.parent is not None else "",
            child_pids=(*(process.children or ()), *self._lifecycle.state.adopted.get(process.pid, ())),
            termination_reason=process.exit.reason if process.exit is not None else process.kill_reason or "",
        )

    def _stage(self, pid: str, noted: str) -> str:
        """Return where its pipeline is; without one, what was noted."""
        session = self._lifecycle.pipelines.state.sessions.get(pid)
        return noted if session is None else session.envelope.current_stage

    def _question(self, pid: str) -> tuple[str | None, Any]:
        pending = self._interrupts._oldest(pid)
        if pending is None:
            return None, None
        asked = {"id": pending.id, "question": pending.question, "message": pending.message, "data": pending.data}
        return pending.kind, codec.decode(codec.encode(asked))

    def read(self, block: ProcessControlBlock) -> ProcessControlBlock:
        """Open a block that goes to the process that runs here, with the mark of its texts: a question, and of a marked
        pid what its makers chose. Words of the kernel mark no reader."""
        taint = self._core.taint
        if block.pending_interrupt is not None and (asked := self._interrupts._oldest(block.pid)) is not None:
            self._interrupts._read(asked)
        if taint.is_tainted(block.pid) and self._has_chosen_words(block):
            taint.pass_on_to_here(block.pid, "the block of")
        return block

    def _has_chosen_words(self, block: ProcessControlBlock) -> bool:
        if block.pid in self._lifecycle.state.entries or block.termination_reason not in PLAIN_ENDS | {""}:
            return True
        return not all(self._lifetimes.is_numbered(pid) for pid in (block.pid, *block.child_pids))


def unknown_process(pid: Any) -> NoSuchProcess:
    return NoSuchProcess(f"no process {pid!r}", hint="list_processes shows them", pid=pid)
