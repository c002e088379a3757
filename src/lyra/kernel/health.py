"""Health monitoring: Events about processes that need attention.

    alert             when                                                           again
    stale_progress    in the middle of something for `stale_s` with nothing to show  after it moved on and stopped again
    error_loop        `errors` failed effects (or turns of an agent that came to     after the failures became fewer
                      nothing) within `error_window_s`
    high_cost         `cost_percent` of a budget's money is spent                    when more was spent since
                      its model calls cost `cost_usd`, budget or not                 when they cost as much again
    timeout_warning   `timeout_percent` of a budget's seconds have passed            never
    high_iterations   `iterations_percent` of its iterations, or `effects` effects   never

The monitor folds facts as they come (`kernel.watch`) and looks at the table every `interval_s` seconds of the kernel's
clock; it changes nothing and stops no process. It costs an effect a line in its books, and a step a note of the time. A
process that waits for a message, a human, a child or a timer is not stale; an entry that a worker outside took is, when
no report about it has come (what it uses up is told by its quota, not here). Money, seconds and iterations belong
to a budget's scope: of several processes that spend from one, the first in the table gets the alert. An alert is an
Event `health.alert` with the process's pid (its guard's, if it has one) and `{alert, pid, …figures}`; it is not
journaled.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from lyra.core.budgets.budget import Budget
from lyra.core.checking.check import FrozenSettings, check_integer, real
from lyra.core.event import ModelCalled
from lyra.core.limits import HEALTH_INTERVAL_S
from lyra.errors import InvalidTransition
from lyra.kernel.base.subsystem import Subsystem
from lyra.kernel.journal import rows

if TYPE_CHECKING:
    from lyra.core.clock import Timer
    from lyra.kernel.base.core import Core
    from lyra.kernel.base.listeners import Watchers
    from lyra.kernel.interrupts.service import InterruptService
    from lyra.kernel.process.process import Process
    from lyra.kernel.process.scheduler import Scheduler
    from lyra.kernel.programs.lifetime import Lifetimes
    from lyra.kernel.workers.entry import Entry
    from lyra.kernel.workers.lifecycle import LifecycleManager


ALERTS: Final[dict[str, str]] = {
    "stale_progress": "in the middle of something, and nothing happens",
    "error_loop": "its effects fail again and again",
    "high_cost": "most of its money is spent",
    "timeout_warning": "most of its time has passed",
    "high_iterations": "it goes round and round",
}

_read_started: Final = rows.DECODERS["effect.started"].decode
_read_finished: Final = rows.DECODERS["effect.finished"].decode
_A_SLICE: Final = 500  # processes looked at before others have their turn
_REPORTS: Final = (  # what shows that a worker is at work on an entry
    *("pcb.moved", "pcb.noted", "pcb.used", "pcb.interrupt_created", "pcb.interrupt_ended"),
    *("pipeline.started", "pipeline.reported", "pipeline.resumed"),
)
_NO_FAILURE: Final = ("cancelled", "cut_off")  # how an effect ends that was stopped, not broken
# How an agent's turn comes to nothing although its effects were well; other failures are those of an effect.
_NO_ANSWER: Final = frozenset(
    {"max_iterations", "repetition", "repeated_text", "empty", "max_tokens", "content_filter", "output_invalid"}
)


class HealthThresholds(FrozenSettings, frozen=True):
    """When an alert is due; None turns one off."""

    WORD: ClassVar[str] = "health thresholds"

    stale_s: float | None = 300.0
    errors: int | None = 5
    error_window_s: float = 60.0
    cost_percent: float | None = 80.0
    cost_usd: float | None = None
    timeout_percent: float | None = 80.0
    iterations_percent: float | None = 80.0
    effects: int | None = 10_000

    def __post_init__(self) -> None:
        self._put(error_window_s=real(self.error_window_s, "error_window_s", above=0.0))
        for name in ("stale_s", "cost_percent", "cost_usd", "timeout_percent", "iterations_percent"):
            if getattr(self, name) is not None:
                self._put(**{name: real(getattr(self, name), name, above=0.0)})
        for name in ("errors", "effects"):
            if getattr(self, name) is not None:
                self._put(**{name: check_integer(getattr(self, name), name, least=1)})

    @classmethod
    def of(cls, value: Any) -> HealthThresholds:
        if isinstance(value, HealthThresholds):
            return value
        return cls() if value is None else cls.from_data(value)


class _Watch:
    """What the monitor has seen of one process."""

    def __init__(self, now: float) -> None:
        self.moved_at = now
        self.effects = 0
        self.in_flight: dict[Any, str] = {}  # key → name
        self.paid_usd = 0.0  # for model calls
        self.errors: deque[float] | None = None  # the last `errors` of them, made with the first
        # What has been said already:
        self.stale = False
        self.looping = False
        self.cost = -1
        self.said_usd = 0.0
        self.timed = False
        self.iterating = False


_THRESHOLDS: Final = HealthThresholds()


class HealthMonitor(Subsystem):
    def __init__(
        self,
        core: Core[Process],
        scheduler: Scheduler,
        lifetimes: Lifetimes,
        interrupts: InterruptService,
        lifecycle: LifecycleManager,
    ) -> None:
        self._core = core
        self._scheduler = scheduler
        self._lifetimes = lifetimes
        self._interrupts = interrupts
        self._lifecycle = lifecycle
        self._now = core.clock.monotonic
        self.thresholds = _THRESHOLDS
        self._interval_s = HEALTH_INTERVAL_S
        self._watched: dict[str, _Watch] = {}
        self._scopes: set[int] = set()  # budgets already looked at in this round
        self._running = False
        self._timer: Timer | None = None
        self._checking: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        return self._running

    def watch(self, watchers: Watchers) -> None:
        """Have a function a kind called with the pid and the data (or the row's bytes), which costs less than an Event
        each. Meanwhile the scheduler notes when each program had its last step."""
        self._core.raise_if_elsewhere()
        self._scheduler.stepped = {} if watchers else None
        self._core.listeners.watch(watchers)

    def start(
        self,
        interval_s: float = HEALTH_INTERVAL_S,
        thresholds: HealthThresholds | Mapping[str, Any] | None = None,
    ) -> None:
        """Begin to watch. One that runs already is refused: stop it first, to watch otherwise."""
        self._core.raise_if_closed()
        if self.running:
            raise InvalidTransition("the health monitor runs already", hint="kernel.health.stop() first")
        interval_s = real(interval_s, "interval_s", above=0.0)
        self.thresholds = HealthThresholds.of(thresholds)
        self._interval_s = interval_s
        self.watch(self._list_handlers())
        self._running = True
        now = self._now()
        self._watched = {pid: _Watch(now) for pid, process in self._core.processes.items() if process.exit is None}
        self._watched.update({pid: _Watch(now) for pid, entry in self._entries() if entry.state == "running"})
        self._arm()

    def stop(self) -> None:
        """Watch no longer; stopping twice is harmless."""
        self._core.raise_if_elsewhere()
        if self._running:
            self.watch({})
            self._running = False
        if self._timer is not None:
            self._timer.cancel()
        if self._checking is not None:
            self._checking.cancel()
        self._watched.clear()

    # ------------------------------------------------------------------ hearing

    def _list_handlers(self) -> dict[str, Callable[[str, dict[str, Any] | bytes], object]]:
        return {
            "effect.started": self._on_started,
            "effect.finished": self._on_finished,
            "effect.retried": self._on_activity,
            "process.created": self._on_activity,
            "process.terminated": self._on_terminated,
            "message.received": self._on_activity,
            "timer.set": self._on_activity,
            "interrupt.resolved": self._on_activity,
            "model.called": self._on_model_called,
            "agent.answered": self._on_turn_ended,
            **dict.fromkeys(_REPORTS, self._on_activity),
        }

    def _on_activity(self, pid: str, _data: dict[str, Any] | bytes = b"") -> _Watch | None:
        """Note a sign of life; None for one that is not in the table, or over, or without a worker."""
        watch = self._watched.get(pid)
        if watch is None:
            process = self._core.processes.get(pid)
            entry = self._lifecycle.state.entries.get(pid) if process is None else None
            if (process is None or process.exit is not None) and (entry is None or entry.state != "running"):
                return None
            watch = self._watched[pid] = _Watch(self._now())
        else:
            watch.moved_at = self._now()
            watch.stale = False
        return watch

    def _on_started(self, pid: str, data: dict[str, Any] | bytes) -> None:
        watch = self._watched.get(pid) or self._on_activity(pid)
        if watch is None:
            return
        watch.moved_at = self._now()
        watch.stale = False
        watch.effects += 1
        if isinstance(data, dict):
            watch.in_flight[data["key"]] = data["name"]
        else:
            row = _read_started(data)
            watch.in_flight[row.key] = row.name

    def _on_finished(self, pid: str, data: dict[str, Any] | bytes) -> None:
        watch = self._watched.get(pid) or self._on_activity(pid)
        if watch is None:
            return
        watch.moved_at = self._now()
        watch.stale = False
        key: Any
        if isinstance(data, dict):
            key, error = data["key"], data.get("error")
        else:
            row = _read_finished(data)
            key, error = row.key, row.error
        watch.in_flight.pop(key, None)
        if error is not None and error.get("code") not in _NO_FAILURE:
            self._count_error(watch, pid, error)

    def _on_model_called(self, pid: str, data: dict[str, Any] | bytes) -> None:
        """Note that an agent asked a model."""
        watch, limit = self._on_activity(pid), self.thresholds.cost_usd
        if watch is None or limit is None:
            return
        assert isinstance(data, dict)  # never journaled
        watch.paid_usd += ModelCalled.from_data(data).cost_usd or 0.0
        if watch.paid_usd - watch.said_usd >= limit:
            watch.said_usd = watch.paid_usd
            spent, most = round(watch.paid_usd * 1_000_000), round(limit * 1_000_000)
            self._alert(pid, "high_cost", spent_micro_usd=spent, limit_micro_usd=most)

    def _on_turn_ended(self, pid: str, data: dict[str, Any] | bytes) -> None:
        """Note that an agent's turn is over."""
        watch = self._on_activity(pid)
        assert isinstance(data, dict)  # never journaled
        if watch is not None and data["status"] in _NO_ANSWER:
            self._count_error(watch, pid, {"message": data["status"]})

    def _on_terminated(self, pid: str, _data: dict[str, Any] | bytes) -> None:
        self._watched.pop(pid, None)
        if self._scheduler.stepped is not None:
            self._scheduler.stepped.pop(pid, None)

    def _count_error(self, watch: _Watch, pid: str, error: Mapping[str, Any]) -> None:
        most = self.thresholds.errors
        if most is None:
            return
        if watch.errors is None:
            watch.errors = deque(maxlen=most)
        now = self._now()
        watch.errors.append(now)
        looping = len(watch.errors) == most and now - watch.errors[0] <= self.thresholds.error_window_s
        if looping and not watch.looping:
            window_s = self.thresholds.error_window_s
            self._alert(pid, "error_loop", errors=most, window_s=window_s, last_error=str(error.get("message", "")))
        watch.looping = looping

    def _last_step(self, pid: str, watch: _Watch) -> None:
        """Steps are so many that they are only noted; what that comes to is seen here."""
        stepped = self._scheduler.stepped
        last_step_s = None if stepped is None else stepped.pop(pid, None)
        if last_step_s is not None:
            watch.moved_at = max(watch.moved_at, last_step_s)
            watch.stale = False

    # ------------------------------------------------------------------ looking

    def check(self) -> int:
        """Look at every process now; gives how many alerts that came to."""
        self._scopes.clear()
        alerts = sum(self._look(process) for process in list(self._core.processes.values()))
        return alerts + sum(self._look_at_entry(pid, entry) for pid, entry in self._entries())

    def _entries(self) -> list[tuple[str, Entry]]:
        return list(self._lifecycle.state.entries.items())

    def _arm(self) -> None:
        clock = self._core.clock
        self._timer = clock.call_at(clock.monotonic() + self._interval_s, self._ring)

    def _ring(self) -> None:
        if self.running and not self._core.stopping:
            self._checking = self._core.tasks.start(self._check_in_slices(), name="lyra-health")

    async def _check_in_slices(self) -> None:
        self._scopes.clear()
        for index, process in enumerate(list(self._core.processes.values()), 1):
            self._look(process)
            if index % _A_SLICE == 0:
                await asyncio.sleep(0)  # the processes' turn
        for index, (pid, entry) in enumerate(self._entries(), 1):
            self._look_at_entry(pid, entry)
            if index % _A_SLICE == 0:
                await asyncio.sleep(0)
        self._checking = None
        if self.running:
            self._arm()

    def _look(self, process: Process) -> int:
        if process.exit is not None:
            return 0
        now = self._now()
        watch = self._watched.get(process.pid)
        if watch is None:
            watch = self._watched[process.pid] = _Watch(now)
        self._last_step(process.pid, watch)
        alerts = self._stale(process, watch, now) + self._effects(process, watch)
        if process.budget is not self._core.budget and id(process.budget) not in self._scopes:
            self._scopes.add(id(process.budget))
            alerts += self._iterations(process, watch) + self._cost(process, watch) + self._time(process, watch, now)
        return alerts

    def _look_at_entry(self, pid: str, entry: Entry) -> int:
        """Check that the worker that took an entry is at work."""
        limit_s = self.thresholds.stale_s
        if entry.state != "running" or limit_s is None or self._interrupts.has_pending(pid):
            return 0
        now = self._now()
        watch = self._watched.get(pid)
        if watch is None:
            watch = self._watched[pid] = _Watch(now)
        if watch.stale or now - watch.moved_at < limit_s:
            return 0
        watch.stale = True
        return self._alert(pid, "stale_progress", seconds=now - watch.moved_at, stage=entry.current_stage)

    def _stale(self, process: Process, watch: _Watch, now: float) -> int:
        limit_s = self.thresholds.stale_s
        if limit_s is None or watch.stale or now - watch.moved_at < limit_s or not self._in_the_middle(process, watch):
            return 0
        watch.stale = True
        doing = next(iter(watch.in_flight.values()), "")
        return self._alert(process.pid, "stale_progress", seconds=now - watch.moved_at, effect=doing)

    def _in_the_middle(self, process: Process, watch: _Watch) -> bool:
        """Not at rest: it performs an effect, waits for a step, or awaits something that is not the kernel's."""
        if self._interrupts._open_questions(process.pid):
            return False
        if watch.in_flight or process.state in ("ready", "running"):
            return True
        alone = process not in self._lifetimes._branches  # branches may receive, sleep, or wait for children
        return process._fut_waiter is not None and process.receiver is None and alone

    def _effects(self, process: Process, watch: _Watch) -> int:
        most = self.thresholds.effects
        if watch.iterating or most is None or watch.effects < most:
            return 0
        watch.iterating = True
        return self._alert(process.pid, "high_iterations", effects=watch.effects)

    def _iterations(self, process: Process, watch: _Watch) -> int:
        used, limit = int(process.budget.used("iterations")), process.budget.limit("iterations")
        share = self.thresholds.iterations_percent
        if watch.iterating or share is None or limit is None or used == 0 or used * 100 < share * limit:
            return 0
        watch.iterating = True
        return self._alert(process.pid, "high_iterations", iterations=used, limit=int(limit))

    def _cost(self, process: Process, watch: _Watch) -> int:
        spent, limit = int(process.budget.used("usd")), process.budget.limit("usd")
        share = self.thresholds.cost_percent
        if share is None or limit is None or spent <= watch.cost or spent == 0 or spent * 100 < share * limit:
            return 0
        watch.cost = spent
        return self._alert(process.pid, "high_cost", spent_micro_usd=spent, limit_micro_usd=int(limit))

    def _time(self, process: Process, watch: _Watch, now: float) -> int:
        scope: Budget = process.budget
        due = self._lifetimes.deadlines.due(scope)
        share = self.thresholds.timeout_percent
        if share is None or due is None or scope.seconds is None or watch.timed:
            return 0
        passed_s = scope.seconds - (due - now)
        if passed_s * 100 < share * scope.seconds:
            return 0
        watch.timed = True
        return self._alert(process.pid, "timeout_warning", seconds=passed_s, limit_s=scope.seconds)

    def _alert(self, pid: str, alert: str, **figures: Any) -> int:
        assert alert in ALERTS
        process = self._core.processes.get(pid)
        pid = pid if process is None else process.known_as
        self._core.publish(pid, "health.alert", {"alert": alert, "pid": pid, **figures})
        return 1
