"""The time quota of entries: reported when it passes, not only when it is checked.

From its first run on an entry has one timer on the kernel's clock: for the soft time-out, then for the hard one. When
it fires, the quota is checked (`usage`), which reports `resource.warning` or `resource.exceeded` once, as for every
other limit. Inference that the kernel runs for the entry ends there too, with `DeadlineExceeded`. While an entry waits
for a human its time does not run, and it has no timer. Times are counted from `started_at`, without those in `waiting`,
on a clock that does not jump while the kernel lives (`Core.now`), so a restart in between changes nothing; where a
restart finds a start in the future, the time begins anew. The worker that drives the entry decides whether it stops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lyra.kernel.base.subsystem import Subsystem

if TYPE_CHECKING:
    from lyra.core.clock import Timer
    from lyra.kernel.base.core import Core
    from lyra.kernel.workers.lifecycle import LifecycleManager
    from lyra.kernel.workers.usage import ResourceTracker


_GRAIN_S: Final = 0.001  # a quota is exceeded when usage is above it, so the timer fires this much later


class TimeLimits(Subsystem):
    def __init__(self, core: Core[Any], lifecycle: LifecycleManager, resources: ResourceTracker) -> None:
        self._core = core
        self._lifecycle = lifecycle
        self._resources = resources
        lifecycle.time_limits = resources.time_limits = self
        self._timers: dict[str, Timer] = {}

    def watch(self, pid: str) -> None:
        """Set the timer of an entry that began to run, or whose quota changed."""
        self.forget(pid)
        due_s = self._next_s(pid)
        if due_s is not None:
            clock = self._core.clock
            left_s = max(0.0, due_s - self._lifecycle.measure_elapsed_s(pid))
            self._timers[pid] = clock.call_at(clock.monotonic() + left_s, lambda: self._ring(pid))

    def on_moved(self, pid: str) -> None:
        """It is in another state: its time runs, or stands still."""
        if not self._lifecycle.is_timed(pid):
            self.forget(pid)
        elif pid not in self._timers:
            self.watch(pid)

    def forget(self, pid: str) -> None:
        """Cancel the timer of an entry."""
        timer = self._timers.pop(pid, None)
        if timer is not None:
            timer.cancel()

    def measure_left_s(self, pid: str) -> float | None:
        """Seconds until its time is up; None for one whose time does not run."""
        if not self._lifecycle.is_timed(pid):
            return None
        left_s = self._resources.get_quota(pid).timeout_seconds - self._lifecycle.measure_elapsed_s(pid)
        return max(0.0, left_s) + _GRAIN_S

    def on_restored(self) -> None:
        """After a restart: time ran on meanwhile."""
        now = self._core.now()
        for pid, entry in self._lifecycle.state.entries.items():
            if entry.is_ahead_of(now):
                self._core.fact(self._lifecycle.state, pid, "pcb.set_back", {"at": now})
            self.watch(pid)

    def stop(self) -> None:
        for pid in list(self._timers):
            self.forget(pid)

    def _next_s(self, pid: str) -> float | None:
        """Return how long it will have run when its quota has something to say; None when nothing is left to say."""
        account = self._resources.state.accounts.get(pid)
        if account is None or not self._lifecycle.is_timed(pid):
            return None
        reported = account.said.get("elapsed_seconds")
        if reported == "exceeded":
            return None
        soft_s, hard_s = account.quota.soft_timeout_seconds, account.quota.timeout_seconds
        return soft_s if reported is None and soft_s < hard_s else hard_s + _GRAIN_S

    def _ring(self, pid: str) -> None:
        del self._timers[pid]
        core = self._core
        if not core.stopping and core.failure is None:
            self._resources.check_quota(pid)
            self.watch(pid)
