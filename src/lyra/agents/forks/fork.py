"""`fork_run`: start a fork of a run at one of its steps, in a kernel that owns the store of the run.

    fork = await fork_run(kernel, store, "talk", 5, ForkChange(reply="No."))

The fork is a process of its own. The run that it was forked from is read and not changed, and nothing of it is
performed again; what the fork does from there on is real, and counts in the fork's own budget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lyra.agents.forks.change import ForkChange, fork_point
from lyra.agents.forks.restored import restored_agent
from lyra.kernel.forks import start_fork
from lyra.observe.timeline.journal import StoredRows
from lyra.observe.timeline.timeline import RunTimeline

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.programs.handle import Handle
    from lyra.store.protocol import Store

__all__ = ["fork_run", "wait_for_fork"]


async def fork_run(
    kernel: Kernel, store: Store, pid: str, number: int, change: ForkChange, *, new_pid: str | None = None
) -> str:
    """Start the fork; gives its pid, once it is in the store. `store` is read: the kernel's, or a reader of it."""
    timeline = RunTimeline(StoredRows(store), pid)
    point = fork_point(timeline, store, number, change)
    if kernel.programs.get(timeline.program) is None:
        agent = restored_agent(timeline, store)
        if agent is not None:
            kernel.register(agent)
    return await start_fork(kernel, point, store.read(), pid=new_pid)


async def wait_for_fork(kernel: Kernel, pid: str) -> Handle[Any]:
    """Return when the fork has ended, or, where it is a conversation, when its turn is over."""
    process = kernel.process(pid)
    program = kernel.programs.get(kernel.processes[pid].program)
    if getattr(program, "__lyra_handle__", None) is None:
        await process.wait()
        return process
    current = kernel.agent(pid).current
    if current is not None:
        await current
        await kernel.durable()
    return process
