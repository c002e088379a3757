"""The questions that programs ask and wait for: rows of their processes, kept here while the kernel lives.

A question has the pid that its process is known by, which is that of its guard where there is one; `asker` gives the
process itself. The waiting program is woken when its question ends. Ended questions are kept for readers, the last
`ENDED_INTERRUPTS_KEPT` of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from lyra.core import codec
from lyra.core.faultpoint import point
from lyra.core.limits import ENDED_INTERRUPTS_KEPT
from lyra.kernel.base.waiting import resume
from lyra.kernel.interrupts.interrupt import Answer, ExpiryTimers, Interrupt, InterruptState, Line
from lyra.kernel.journal import rows

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core
    from lyra.kernel.process.process import Process


class ProgramQuestions:
    def __init__(self, core: Core[Process], line: Line, timers: ExpiryTimers) -> None:
        self._core = core
        self._line = line
        self._timers = timers
        self.by_id: dict[str, Interrupt] = {}
        self._by_pid: dict[str, dict[str, None]] = {}
        # Question id → pid of the asking process, where the question has the pid of its guard.
        self._askers: dict[str, str] = {}
        self._ended: deque[str] = deque()
        self.waiters: dict[str, list[Any]] = {}  # by question id

    def keep(self, process: Process, interrupt: Interrupt) -> None:
        """Keep a question that a process asks, or asked before a restart; the time to live ran on meanwhile."""
        self.by_id[interrupt.id] = interrupt
        if process.pid != interrupt.pid:
            self._askers[interrupt.id] = process.pid
        self._by_pid.setdefault(interrupt.pid, {})[interrupt.id] = None
        self._line.enter(interrupt, outside=False)
        self._timers.arm(interrupt)

    def asker(self, interrupt: Interrupt) -> str:
        """Return the pid of the asking process itself, not that of its guard."""
        return self._askers.get(interrupt.id, interrupt.pid)

    def list_for(self, pid: str) -> list[Interrupt]:
        """Return the questions of a process, ended ones included."""
        return [self.by_id[interrupt_id] for interrupt_id in self._by_pid.get(pid, ())]

    def end(
        self, interrupt: Interrupt, status: str, *, response: Answer | None = None, reason: str = "", tainted: bool
    ) -> int:
        """End a question: a row of its process, and the program that waits continues. Gives the seq of the row."""
        row = rows.InterruptEnded(interrupt.id, reason=reason)
        if response is not None:
            row = rows.InterruptEnded(interrupt.id, rows.Raw(codec.encode(response)))
            interrupt.response = response
        else:
            interrupt.reason = reason
        interrupt.tainted = interrupt.tainted or tainted
        interrupt.status = status
        interrupt.resolved_at = self._core.now()
        self._line.leave(interrupt)
        self._timers.disarm(interrupt.id)
        seq = interrupt.seq = self._core.record(self.asker(interrupt), f"interrupt.{status}", row)
        point("interrupt.ended")
        for waker in self.waiters.pop(interrupt.id, []):
            resume(waker)
        self._ended.append(interrupt.id)
        if len(self._ended) > ENDED_INTERRUPTS_KEPT:
            self._let_go(self._ended.popleft())
        return seq

    def forget(self, pid: str, known_as: str) -> None:
        """Remove a process's questions from memory without a row: the process may be restored from the journal."""
        gone = {interrupt.id for interrupt in self.list_for(known_as) if self.asker(interrupt) == pid}
        self._line.drop(known_as, gone)
        for interrupt_id in gone:
            self._timers.disarm(interrupt_id)
            self._let_go(interrupt_id)

    def _let_go(self, interrupt_id: str) -> None:
        """Remove a question from memory."""
        old = self.by_id.pop(interrupt_id, None)
        self._askers.pop(interrupt_id, None)
        siblings = {} if old is None else self._by_pid.get(old.pid, {})
        siblings.pop(interrupt_id, None)
        if old is not None and not siblings:
            self._by_pid.pop(old.pid, None)


# Pipelines and workers ask so. Each change is a row, an Event with the question, and a callback for the part whose
# entry waits: `on_asked` and `on_answered`, with the pid.
class OutsideQuestions:
    def __init__(self, core: Core[Any], line: Line, timers: ExpiryTimers) -> None:
        self._core = core
        self._line = line
        self._timers = timers
        self.state = InterruptState()
        self.on_asked: list[Callable[[str], None]] = []
        self.on_answered: list[Callable[[str], None]] = []  # answered, cancelled or expired

    def watch(self, interrupt: Interrupt) -> None:
        """Put an open question in line, new or from before a restart, and expire it in time."""
        self._line.enter(interrupt, outside=True)
        self._timers.arm(interrupt)

    def begin(self, pid: str, row: dict[str, Any]) -> Interrupt:
        core = self._core
        with core.listeners.act:
            core.fact(self.state, pid, "pcb.interrupt_created", row)
            interrupt = self.state.by_id[row["id"]]
            self.watch(interrupt)
            self._tell(interrupt, "created", row)
            for asked in self.on_asked:
                asked(pid)
            return interrupt

    def end(
        self, interrupt: Interrupt, status: str, *, response: Answer | None = None, reason: str = "", tainted: bool
    ) -> int:
        """End a question: a row, an Event, and the process that waited may continue. Gives the seq of the row."""
        core = self._core
        row = {
            "id": interrupt.id,
            "status": status,
            "at": core.now(),
            "reason": reason,
            "response": None if response is None else codec.decode(codec.encode(response)),
        }
        if tainted:
            row["tainted"] = True
        with core.listeners.act:
            seq = core.fact(self.state, interrupt.pid, "pcb.interrupt_ended", row)
            self._line.leave(interrupt)
            self._timers.disarm(interrupt.id)
            if core.listening:
                whose = {"kind": interrupt.kind, "user_id": interrupt.user_id, "request_id": interrupt.request_id}
                self._tell(interrupt, status, {**row, **whose})
            for answered in self.on_answered:
                answered(interrupt.pid)
            return seq

    def list_for(self, pid: str) -> list[Interrupt]:
        """Return the questions about a process, ended ones included."""
        return [self.state.by_id[interrupt_id] for interrupt_id in self.state.by_pid.get(pid, ())]

    def forget(self, ids: list[str]) -> int:
        if ids:
            self._core.fact(self.state, "", "pcb.interrupts_forgotten", {"ids": ids})
        return len(ids)

    def _tell(self, interrupt: Interrupt, word: str, data: dict[str, Any]) -> None:
        core = self._core
        if core.listening:
            if core.listeners_want_states:
                data = {**data, "interrupt": msgspec.to_builtins(interrupt)}
            core.listeners.tell(interrupt.pid, f"interrupt.{word}", data)
