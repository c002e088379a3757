"""Tidying up and going down: what is over is forgotten after a while, and a shutdown loses nothing.

`clean` is one round: entries of the lifecycle that ended long ago, questions that nobody answered in time, ended
questions, pipelines that nobody drives, usage of pids that nobody has, empty rate windows. `Rounds` repeats it on the
kernel's clock, where somebody asks for that. `shut_down` ends the entries and closes the kernel; program processes of a
durable kernel are kept for its next start, as always. Nothing alive is ever cleaned up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lyra.core import limits
from lyra.errors import LyraError, ProcessError, error_to_data
from lyra.kernel.lifecycle import TERMINAL

if TYPE_CHECKING:
    from lyra.core.clock import Timer
    from lyra.kernel.kernel import Kernel

__all__ = ["Rounds", "clean", "shut_down"]


def clean(
    kernel: Kernel,
    *,
    processes_s: float = limits.CLEANUP_PROCESSES_S,
    interrupts_s: float = limits.CLEANUP_INTERRUPTS_S,
    sessions_s: float = limits.CLEANUP_SESSIONS_S,
) -> dict[str, int]:
    """One round; gives how many of each were ended or forgotten."""
    expired = kernel.interrupts.expire_old_interrupts()
    ended = _ended_entries(kernel, before=kernel.clock.now() - processes_s)
    for pid in ended:
        kernel.lifecycle.cleanup_process(pid)
    return {
        "processes": len(ended),
        "interrupts_expired": expired,
        "interrupts": kernel.interrupts.cleanup_resolved(interrupts_s),
        "sessions": kernel.orchestrator.cleanup_stale_sessions(sessions_s),
        "accounts": kernel.resources.close_idle(processes_s),
        "rate_windows": kernel.rate_limiter.cleanup_expired(),
    }


def _ended_entries(kernel: Kernel, *, before: float) -> list[str]:
    return [
        pid
        for pid, entry in kernel.lifecycle.state.entries.items()
        if entry.state in TERMINAL and entry.completed_at is not None and entry.completed_at <= before
    ]


class Rounds:
    """A round every so many seconds, until the kernel closes."""

    __slots__ = ("_every_s", "_kernel", "_timer")

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
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
        clock = self._kernel.clock
        self._timer = clock.call_at(clock.monotonic() + self._every_s, self._round)

    def _round(self) -> None:
        self._timer = None
        kernel = self._kernel
        if kernel.stopping or kernel.draining or kernel.failure is not None:
            return
        try:
            clean(kernel)
        except LyraError as error:
            kernel.publish("", "cleanup.failed", {"message": error.message})
        self._next()


async def shut_down(kernel: Kernel, *, reason: str = "shutdown", drain_s: float) -> None:
    """Take nothing new, end every entry in the order of their coming, let effects in flight finish, close.

    Whatever goes wrong on the way does not stop the rest; it is raised together at the end.
    """
    kernel.lifecycle.closed = True
    errors: list[LyraError] = []
    if kernel.started and not kernel.stopping and kernel.failure is None:
        for pid, entry in list(kernel.lifecycle.state.entries.items()):
            if entry.state not in TERMINAL:
                try:
                    kernel.lifecycle.terminate(pid, reason, force=True)
                except LyraError as error:
                    errors.append(error)
    try:
        await kernel.close(drain_s=drain_s)
    except LyraError as error:
        errors.append(error)
    if errors:
        raise ProcessError(
            f"the shutdown met {len(errors)} errors; the first: {errors[0].message}",
            errors=[error_to_data(error) for error in errors],
        ) from errors[0]
