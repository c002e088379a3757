"""Effects in doubt, and the questions to agents that come to stand behind one.

After a crash it may be unknown whether an effect happened: its process, and all that wait for it, stand still until a
person decides. A caller that does not want to wait for a person is told so after `DOUBT_WAIT_S`. The question to the
person is the kernel's (`lyra.kernel.interrupts`); this module only knows which processes it holds up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from lyra.core.limits import DOUBT_WAIT_S
from lyra.errors import EffectInDoubt

if TYPE_CHECKING:
    from lyra.agents.session.replies import Pending
    from lyra.kernel.interrupts.interrupt import Interrupt
    from lyra.kernel.kernel import Kernel


_log: Final = logging.getLogger("lyra.agents")


class Doubts:
    """See the module."""

    __slots__ = ("_by_pid", "_has_read", "_kernel", "_waiting")

    def __init__(self, kernel: Kernel, waiting: Callable[[str], Iterable[Pending]]) -> None:
        self._kernel = kernel
        self._waiting = waiting  # the answers of a process that callers wait for
        self._by_pid: dict[str, Interrupt] = {}  # what a person has to say about an effect in a process or below it
        self._has_read = kernel.journal is None
        kernel.interrupts.on_doubt.append(self._arisen)

    def _arisen(self, interrupt: Interrupt) -> None:
        """A process stands still until a person says what became of an effect; so do those that wait for it."""
        process = self._kernel.processes.get(self._kernel.interrupts.asker(interrupt))
        while process is not None:
            self._by_pid[process.known_as] = interrupt
            for pending in self._waiting(process.known_as):
                if pending.is_impatient:
                    self._limit(pending, interrupt)
            process = process.parent

    def limit(self, pending: Pending) -> None:
        """Fail a question that comes to stand behind an effect in doubt, after `DOUBT_WAIT_S`."""
        pending.is_impatient = True
        if not self._has_read:
            self._read()
        interrupt = self._by_pid.get(pending.pid)
        if interrupt is not None and interrupt.status == "pending":
            self._limit(pending, interrupt)

    def forget(self, pid: str) -> None:
        """A process has ended."""
        self._by_pid.pop(pid, None)

    def _read(self) -> None:
        """The doubts of earlier lives, whose questions are still open."""
        self._has_read = True
        for interrupt in self._kernel.interrupts._all(None):
            if interrupt.kind == "in_doubt" and interrupt.status == "pending":
                _log.warning("process %s waits for a person: %s (%s)", interrupt.pid, interrupt.question, interrupt.id)
                self._arisen(interrupt)

    def _limit(self, pending: Pending, interrupt: Interrupt) -> None:
        patient = "send(…, wait_for_person=True) waits for that" if pending.id else "then await `current` again"

        def look() -> None:
            if interrupt.status == "pending":
                pending.give_up_with(
                    EffectInDoubt(
                        f"agent process {pending.pid} waits for a person: {interrupt.question}",
                        hint=f"kernel.resolve_interrupt({interrupt.id!r}, {{'decision': …}}) answers it; {patient}",
                        pid=pending.pid,
                        id=interrupt.id,
                    )
                )

        clock = self._kernel.clock
        clock.call_at(clock.monotonic() + DOUBT_WAIT_S, look)
