"""What an agent process and the processes below it wait for, and how the turn it is in is stopped.

For faces that follow a turn which they did not begin, such as one from before a restart: it has no stream of events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lyra.agents.session.shared import runtime_of
from lyra.kernel.process.process import GIVEN_UP

if TYPE_CHECKING:
    from lyra.kernel.interrupts.interrupt import Interrupt
    from lyra.kernel.kernel import Kernel


def questions_below(kernel: Kernel, pid: str) -> list[Interrupt]:
    """The open questions of a process and of those below it, the oldest first."""
    pending = kernel.interrupts.list_interrupts(status="pending")
    return [interrupt for interrupt in pending if is_below(kernel, kernel.interrupts.asker(interrupt), pid)]


def is_below(kernel: Kernel, pid: str, top: str) -> bool:
    """Whether a process is the one at the top, or one below it."""
    process = kernel.processes.get(pid)
    while process is not None:
        if top in (process.pid, process.known_as):
            return True
        process = process.parent
    return pid == top


def stop_turn(kernel: Kernel, pid: str) -> bool:
    """Stop the turn that an agent process is in, whose caller is not there any more, and withdraw its message; the
    process goes on with its next one. False where it is in none, or is not back where the restart has cut it off."""
    runtime = runtime_of(kernel)
    session, known = runtime.sessions.get(pid), kernel.processes.get(pid)
    process = None if known is None else known.stands_for or known
    if session is None or process is None or process.exit is not None or process.kill_reason is not None:
        return False
    if session.execution is None or not session.execution.running or process.replay is not None:
        return False
    if session.request_id:
        kernel.withdrawals.withdraw(process, session.request_id)
    return process.cancel(GIVEN_UP)
