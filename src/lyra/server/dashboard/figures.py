"""The figures of the header: what is alive, what waits, what failed, what it costs today, how long models take.

A listener of the kernel, one for each server. A user sees the figures of their own processes, an operator and a viewer
those of all. What is kept is bounded: the failures of the last minute, the last calls of models, and the spend of each
hour of today; what today cost before the server began is in the journal. A fault that a process hands on to the one
that started it is one failure, not two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lyra.core.event import Event, ModelCalled, is_failed_end
from lyra.server.owners import owner_if_known

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.server.http.parts import HttpParts
    from lyra.server.identity import Caller


_MINUTE_S: Final = 60.0
_HOURS: Final = 24
_FAILURES_KEPT: Final = 10_000
_CALLS_KEPT: Final = 1_000
_OWNERS_KEPT: Final = 10_000
_LOOKED_AT_MAX: Final = 64
_HANDED_ON_S: Final = 5.0  # a process that fails with the fault of its child does so soon after it


class FiguresNow(NamedTuple):
    """The figures at one moment."""

    alive: int
    waiting: int  # for a person
    failed_per_minute: int
    spent_micro_usd: int  # today, by UTC
    limit_micro_usd: int | None  # of the kernel's budget, where it has one
    left_micro_usd: int | None  # of that budget, which also counts earlier days
    hours_micro_usd: tuple[int, ...]  # of today, up to this hour
    p95_s: float | None


class CountedFailure(NamedTuple):
    """A process that failed: when, whose it was, which process had started it, and why."""

    time: float
    owner: str
    parent: str
    why: str


class HeaderFigures:
    """See the module."""

    def __init__(self, parts: HttpParts) -> None:
        self._kernel: Kernel = parts.kernel
        self._records = parts.records
        self._failures: deque[CountedFailure] = deque(maxlen=_FAILURES_KEPT)
        self._calls: deque[tuple[str, float]] = deque(maxlen=_CALLS_KEPT)  # user, seconds
        self._hours: dict[str, list[int]] = {}  # micro-dollars of each hour of the day, by user
        self._day = ""
        self._asked_past = False
        self._kernel.on_event(self._hear, kinds=("process.terminated", "model.called"))

    def _hear(self, event: Event) -> None:
        owner = owner_if_known(self._kernel, event.pid) if event.pid else ""
        if event.kind == "process.terminated":
            if is_failed_end(event.data):
                self._count_failure(event, owner)
            return
        called = ModelCalled.from_data(event.data)
        self._calls.append((owner, called.latency_ms / 1000))
        self._begin_day(_day(event.time))
        self._count_spend(event.time, owner, called)

    def _count_failure(self, event: Event, owner: str) -> None:
        process = self._kernel.processes.get(event.pid)
        shown_as = event.pid if process is None else process.known_as
        parent = None if process is None else process.parent
        above = "" if parent is None else parent.known_as
        error = event.data.get("error")
        why = str(error.get("message") if isinstance(error, Mapping) else error or event.data.get("reason"))
        for failure in islice(reversed(self._failures), _LOOKED_AT_MAX):
            if event.time - failure.time > _HANDED_ON_S:
                break
            if failure.parent == shown_as and failure.why == why:
                self._failures.append(failure._replace(parent=above))  # so that one above hands it on, too
                self._failures.remove(failure)
                return
        self._failures.append(CountedFailure(event.time, owner, above, why))

    def _count_spend(self, time: float, owner: str, called: ModelCalled) -> None:
        moment = datetime.fromtimestamp(time, UTC)
        if owner not in self._hours and len(self._hours) >= _OWNERS_KEPT:
            owner = ""
        hours = self._hours.setdefault(owner, [0] * _HOURS)
        hours[moment.hour] += called.micro_usd

    def _begin_day(self, day: str) -> None:
        if day != self._day:
            self._day = day
            self._hours.clear()

    async def _load_past(self) -> None:
        """Add the calls of today from before the server began."""
        await self._records.load_past()
        for owner, span in self._records.past_spans():
            if span.kind == "model" and _day(span.time) >= self._day:  # the clock may have been ahead
                self._count_spend(min(span.time, self._kernel.core.now()), owner, span.model_call)

    # ------------------------------------------------------------------ reading

    def read(self, caller: Caller) -> FiguresNow:
        """Return the figures that a caller may see."""
        now = self._kernel.core.now()
        today = datetime.fromtimestamp(now, UTC)
        self._begin_day(_day(now))
        if not self._asked_past:
            self._asked_past = True
            self._kernel.tasks.start(self._load_past(), name="lyra-costs-past")
        hours = [0] * _HOURS
        for owner, sums in self._hours.items():
            if caller.owns(owner):
                hours = [total + spent for total, spent in zip(hours, sums, strict=True)]
        return FiguresNow(
            alive=self._alive(caller),
            waiting=self.questions(caller),
            failed_per_minute=sum(
                1 for failure in self._failures if now - failure.time < _MINUTE_S and caller.owns(failure.owner)
            ),
            spent_micro_usd=self._sum_spent(caller, _day(now)),
            limit_micro_usd=_amount(self._kernel.budget.limit("usd")) if caller.is_operator else None,
            left_micro_usd=_amount(self._kernel.budget.remaining("usd")) if caller.is_operator else None,
            hours_micro_usd=tuple(hours[: today.hour + 1]),
            p95_s=_p95([seconds for owner, seconds in self._calls if caller.owns(owner)]),
        )

    def questions(self, caller: Caller) -> int:
        """Return how many questions wait for this person."""
        kernel = self._kernel
        return sum(
            1
            for interrupt in kernel.interrupts.list_interrupts(None, status="pending")
            if caller.is_operator or caller.owns(interrupt.user_id or owner_if_known(kernel, interrupt.pid))
        )

    def _alive(self, caller: Caller) -> int:
        kernel = self._kernel
        if caller.is_operator:
            return kernel.live
        return sum(1 for row in kernel.processes.values() if row.alive and caller.owns(owner_if_known(kernel, row.pid)))

    def _sum_spent(self, caller: Caller, day: str) -> int:
        return sum(row.cost_micro_usd for row in self._records.sums() if row.day >= day and caller.owns(row.owner))


def _day(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).date().isoformat()


def _amount(money: Any) -> int | None:
    return None if money is None else int(money)


def _p95(seconds: list[float]) -> float | None:
    return sorted(seconds)[max(0, -(-len(seconds) * 95 // 100) - 1)] if seconds else None
