"""Health checks of services: repeated on the kernel's clock, never two of one service at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lyra.core.checking.check import one_of
from lyra.errors import DeadlineExceeded
from lyra.kernel.base.timeouts import in_time
from lyra.kernel.services.service import STATUSES, HealthCheck, lower

if TYPE_CHECKING:
    from lyra.core.clock import Timer
    from lyra.kernel.services.registry import ServiceRegistry


class ServiceCheck:
    """The repeated health check of one service."""

    __slots__ = (
        "_check",
        "_degraded_after",
        "_failures",
        "_interval_s",
        "_name",
        "_registry",
        "_stopped",
        "_timer",
        "_unhealthy_after",
    )

    def __init__(
        self,
        registry: ServiceRegistry,
        name: str,
        check: HealthCheck,
        *,
        interval_s: float,
        degraded_after: int,
        unhealthy_after: int,
    ) -> None:
        self._registry = registry
        self._name = name
        self._check = check
        self._interval_s = interval_s
        self._degraded_after = degraded_after
        self._unhealthy_after = unhealthy_after
        self._failures = 0
        self._timer: Timer | None = None
        self._stopped = False

    def arm(self) -> None:
        clock = self._registry.core.clock
        self._timer = clock.call_at(clock.monotonic() + self._interval_s, self._ring)

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _ring(self) -> None:
        if not self._stopped:
            self._registry.core.tasks.start(self._once(), name=f"lyra-health {self._name}")

    async def _once(self) -> None:
        core = self._registry.core
        try:
            late = DeadlineExceeded(f"the health check of {self._name} took too long")
            status = self._status(await in_time(core.clock, _answer(self._check), self._interval_s, late))
        except Exception:  # noqa: BLE001 - whatever it raised, the service did not answer well
            status = self._status(False)
        if self._stopped or core.stopping or core.failure is not None:
            return
        if status is not None:
            self._registry.update_health(self._name, status)
        self.arm()

    def _status(self, answer: Any) -> str | None:
        """The status that an answer stands for; None leaves the status unchanged."""
        if answer is not False:
            self._failures = 0
            return "healthy" if answer is None or answer is True else one_of(lower(answer), STATUSES, "a health check")
        self._failures += 1
        if self._failures >= self._unhealthy_after:
            return "unhealthy"
        return "degraded" if self._failures >= self._degraded_after else None


async def _answer(check: HealthCheck) -> Any:
    answer = check()
    return await answer if hasattr(type(answer), "__await__") else answer
