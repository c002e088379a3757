"""The questions that are raised about a process from outside its program: facts of `InterruptState`.

Pipelines and workers ask so. Each change is a row, an Event with the question, and a callback for the part whose entry
waits: `on_asked` and `on_answered`, with the pid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from lyra.core import codec
from lyra.kernel.interrupts.state import InterruptState

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core
    from lyra.kernel.interrupts.expiry import ExpiryTimers
    from lyra.kernel.interrupts.interrupt import Answer, Interrupt
    from lyra.kernel.interrupts.state import Line


class OutsideQuestions:
    """See the module."""

    __slots__ = ("_core", "_line", "_timers", "on_answered", "on_asked", "state")

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
        """End a question: a row, an Event, and the process that waited may go on. Gives the seq of the row."""
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

    def of(self, pid: str) -> list[Interrupt]:
        """The questions about a process, ended ones included."""
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
