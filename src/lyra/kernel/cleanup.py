"""Tidying up and going down: what is over is forgotten after a while, and a shutdown loses nothing.

`clean` is one round: processes that ended long ago, questions that were not answered in time, ended questions,
pipelines that no worker drives and no question holds up, envelopes that were not changed, usage of pids that are gone,
empty rate windows. `Rounds`
repeats it on the kernel's clock, where a caller asks for that. `shut_down` takes nothing new and closes: what a store
keeps continues when it is opened again, entries, their questions and their pipelines among it; without a store entries
end. Nothing alive is ever cleaned up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from lyra.core import limits
from lyra.core.checking.check import sendable_text
from lyra.errors import LyraError, ProcessError, error_to_data
from lyra.kernel.base.subsystem import Subsystem
from lyra.kernel.workers.lifecycle import TERMINAL, LifecycleManager

if TYPE_CHECKING:
    from lyra.core.clock import Timer
    from lyra.kernel.base.core import Core
    from lyra.kernel.interrupts.service import InterruptService
    from lyra.kernel.pipelines.orchestrator import Orchestrator
    from lyra.kernel.process.process import Process
    from lyra.kernel.services.registry import ServiceRegistry
    from lyra.kernel.workers.envelope_table import EnvelopeTable
    from lyra.kernel.workers.rate_limits import RateLimiter
    from lyra.kernel.workers.usage import ResourceTracker


def clean(
    parts: WorkerParts,
    *,
    processes_s: float = limits.CLEANUP_PROCESSES_S,
    interrupts_s: float = limits.CLEANUP_INTERRUPTS_S,
    sessions_s: float = limits.CLEANUP_SESSIONS_S,
    envelopes_s: float = limits.CLEANUP_ENVELOPES_S,
) -> dict[str, int]:
    """One round; gives how many of each were ended or forgotten."""
    expired = parts.interrupts.expire_old_interrupts()
    ended = _list_ended(parts, before=parts.core.now() - processes_s)
    for pid in ended:
        parts.lifecycle.cleanup_process(pid)
    return {
        "processes": len(ended),
        "interrupts_expired": expired,
        "interrupts": parts.interrupts.cleanup_resolved(interrupts_s),
        "sessions": parts.orchestrator.cleanup_stale_sessions(sessions_s),
        "envelopes": parts.envelopes.forget_older_than(envelopes_s),
        "accounts": parts.resources.close_idle(processes_s),
        "rate_windows": parts.rate_limiter.cleanup_expired(),
    }


def _list_ended(parts: WorkerParts, *, before: float) -> list[str]:
    """Entries, and where no store decides how long they are kept, programs."""
    entries = [
        pid
        for pid, entry in parts.lifecycle.state.entries.items()
        if entry.state in TERMINAL and entry.completed_at is not None and entry.completed_at <= before
    ]
    if parts.core.journal is not None:
        return entries
    ended = parts.core.processes.list_ended()
    programs = [process.pid for process in ended if process.ended_at is not None and process.ended_at <= before]
    return entries + programs


class Rounds(Subsystem):
    """A round every so many seconds, until the kernel closes."""

    def __init__(self, parts: WorkerParts) -> None:
        self._parts = parts
        self._every_s = 0.0
        self._timer: Timer | None = None

    def begin(self, every_s: float) -> None:
        self.stop()
        self._every_s = every_s
        self._next()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _next(self) -> None:
        clock = self._parts.core.clock
        self._timer = clock.call_at(clock.monotonic() + self._every_s, self._round)

    def _round(self) -> None:
        self._timer = None
        core = self._parts.core
        if core.stopping or core.draining or core.failure is not None:
            return
        try:
            clean(self._parts)
        except LyraError as error:
            core.publish("", "cleanup.failed", {"message": error.message})
        self._next()


async def shut_down(
    parts: WorkerParts, close: Callable[..., Awaitable[None]], *, reason: str = "shutdown", drain_s: float
) -> None:
    """Take nothing new, let what is in flight finish, close. With a store an entry that runs is put back in line for
    the next start, and the others stay as they are; without one they end, in the order of their coming.

    Whatever goes wrong on the way does not stop the rest; it is raised together at the end.
    """
    core = parts.core
    core.raise_if_elsewhere()
    reason = sendable_text(reason, "a reason")
    errors: list[LyraError] = []
    is_open = core.started and not core.stopping and core.failure is None and not parts.lifecycle.closed
    parts.lifecycle.closed = True
    if is_open:
        core.publish("", "kernel.stopping", {"reason": reason})
        try:
            await core.drain(drain_s, outside=True)
        except LyraError as error:
            errors.append(error)
        for pid, entry in list(parts.lifecycle.state.entries.items()):
            if entry.state not in TERMINAL:
                try:
                    if parts.core.journal is None:
                        parts.lifecycle.terminate(pid, reason, force=True)
                    else:
                        parts.lifecycle.put_back(pid, reason)
                except LyraError as error:
                    errors.append(error)
    try:
        await close(drain_s=drain_s)
    except LyraError as error:
        errors.append(error)
    if errors:
        raise ProcessError(
            f"the shutdown met {len(errors)} errors; the first: {errors[0].message}",
            errors=[error_to_data(error) for error in errors],
        ) from errors[0]


class WorkerParts(NamedTuple):
    core: Core[Process]
    interrupts: InterruptService
    lifecycle: LifecycleManager
    resources: ResourceTracker
    rate_limiter: RateLimiter
    services: ServiceRegistry
    orchestrator: Orchestrator
    envelopes: EnvelopeTable
