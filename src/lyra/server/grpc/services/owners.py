"""To whom things belong, and the check of it: a process, an envelope's user, a question."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lyra.kernel.workers.envelopes import ANONYMOUS

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.server.identity import Caller

__all__ = ["owner_of", "require_process"]


def owner_of(kernel: Kernel, pid: str) -> str:
    """The user of a process: its entry's, else its pipeline's; "" for a program of the server itself. NoSuchProcess
    where there is none."""
    session = kernel.orchestrator.state.sessions.get(pid)
    if session is not None and kernel.lifecycle.find(pid) is None:
        user_id = session.envelope.user_id
    else:
        user_id = kernel.lifecycle.owner(pid).user_id
        if not user_id and session is not None:
            user_id = session.envelope.user_id
    return "" if user_id == ANONYMOUS else user_id


def require_process(kernel: Kernel, caller: Caller, pid: str) -> str:
    """The pid of a process that the caller may see and change."""
    caller.require_owner(owner_of(kernel, pid), f"process {pid}")
    return pid
