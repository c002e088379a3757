"""Starting a process again on request, through the supervisor that looks after it.

A guard starts the run that it stands for; any other supervisor starts its child, which gets another pid. What no
supervisor looks after, and what its supervisor never starts again, cannot be restarted (`why_no_restart`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lyra.errors import InvalidTransition

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel


class RestartTarget(NamedTuple):
    """The supervisor of a process, the id under which it has it, and why it does not start it again ("" if it does)."""

    supervisor: str
    child_id: str
    refusal: str


def why_no_restart(kernel: Kernel, pid: str) -> str:
    """Why a process cannot be restarted; "" where it can."""
    child = _child(kernel, pid)
    return "No supervisor looks after this process" if child is None else child.refusal


async def restart_process(kernel: Kernel, pid: str) -> str:
    """Restart a process; gives the pid that it has from now on. InvalidTransition where that cannot be."""
    child = _child(kernel, pid)
    refusal = "no supervisor looks after it" if child is None else child.refusal
    if child is None or refusal:
        raise InvalidTransition(f"process {pid} cannot be restarted: {refusal}", pid=pid)
    started = await kernel.supervisors.get(child.supervisor).replace_child(child.child_id)
    return pid if child.supervisor == pid else started.pid


def _child(kernel: Kernel, pid: str) -> RestartTarget | None:
    process = kernel.processes.get(pid)
    if process is None or not process.alive:
        return None
    plans, tables = kernel.supervisors.plans, kernel.supervisors.tables
    own = plans.get(pid)
    if own is not None and own.guards:
        return RestartTarget(pid, tables[pid].rows[0].spec.id, "") if tables[pid].rows else None
    parent = process.parent
    plan = None if parent is None else plans.get(parent.pid)
    if parent is None or plan is None:
        return None
    row = next((row for row in tables[parent.pid].rows if row.pid == pid), None)
    if row is None:
        return None
    is_kept = plan.template is None and row.spec.restart != "temporary"
    return RestartTarget(parent.pid, row.spec.id, "" if is_kept else "Its supervisor never starts it again")
