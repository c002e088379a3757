"""Scheduled jobs: which ticks are due, and each executed once, also after a restart.

    jobs = ScheduledEntry(runtime, nodes)
    jobs.run_due()          # by a timer, at or after jobs.next_tick()

A node of the type `scheduled_job` names its schedule in its metadata. The last tick of each job is a fact in the
journal. Ticks that were missed while nothing ran are made up for by one execution, for the latest of them. An execution
with effects belongs to its tick: one that a crash interrupted goes on, and is not started again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final

from lyra.core.clock import SystemClock
from lyra.vesper.values.triggers import Schedule, schedule_of

if TYPE_CHECKING:
    from lyra.vesper.nodes import Node
    from lyra.vesper.runtime.runtime import Runtime
    from lyra.vesper.values.outcome import Outcome

__all__ = ["ScheduleState", "ScheduledEntry"]

_MOMENT: Final = "scheduled_for"  # the input that is given the tick, where a node declares it


class ScheduleState:
    """The durable state: the last tick of each job, in seconds since 1970."""

    NAME: ClassVar[str] = "vesper-schedule"
    KINDS: ClassVar[frozenset[str]] = frozenset({"vesper.ticked"})

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last: dict[str, float] = {}

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:  # noqa: ARG002 (one signature)
        self.last[data["node"]] = float(data["tick"])

    def dump(self) -> Any:
        return self.last

    def load(self, data: Any) -> None:
        self.last = {str(node): float(tick) for node, tick in data.items()}


class ScheduledEntry:
    """The jobs among some nodes. A job that is new has its first tick after now."""

    def __init__(self, runtime: Runtime, nodes: Iterable[Node], *, now: datetime | None = None) -> None:
        self._runtime = runtime
        self._lock = threading.Lock()
        self._jobs: list[tuple[Node, Schedule]] = []
        for node in nodes:
            if node.kind == "scheduled_job" and node.metadata.schedule:
                runtime.program(node)  # a node with mistakes has no ticks
                schedule = schedule_of(node.metadata.schedule)
                assert schedule is not None  # the checker has read it
                self._jobs.append((node, schedule))
        runtime.start()
        for node, _ in self._jobs:
            if node.node_id not in runtime.schedule_state.last:
                self._ticked(node, now or _now())

    def next_tick(self, now: datetime | None = None) -> datetime | None:
        """When the next job is due; None where there is none."""
        ticks = [schedule.next(now or _now()) for _, schedule in self._jobs]
        return min((tick for tick in ticks if tick is not None), default=None)

    def due(self, now: datetime | None = None) -> list[tuple[Node, datetime]]:
        """The jobs whose latest tick was not run yet, with that tick."""
        ticks = [(node, schedule.last(now or _now())) for node, schedule in self._jobs]
        last = self._runtime.schedule_state.last
        return [(node, tick) for node, tick in ticks if tick is not None and tick.timestamp() > last[node.node_id]]

    def run_due(self, now: datetime | None = None) -> list[tuple[str, datetime, Outcome]]:
        """Execute each job that is due; gives their outcomes."""
        with self._lock:
            return [(node.node_id, tick, self._run(node, tick)) for node, tick in self.due(now)]

    def _run(self, node: Node, tick: datetime) -> Outcome:
        word = f"{node.node_id}/{tick.isoformat()}"
        given = {_MOMENT: tick, "idempotency_key": word}
        names = {entry.name for entry in self._runtime.program(node).inputs}
        inputs = {name: value for name, value in given.items() if name in names}
        outcome = self._runtime.execute(node, inputs, once=word)
        self._ticked(node, tick)
        return outcome

    def _ticked(self, node: Node, tick: datetime) -> None:
        row = {"node": node.node_id, "tick": tick.timestamp()}
        self._runtime.write_fact(self._runtime.schedule_state, "vesper.ticked", row)


def _now() -> datetime:
    return datetime.fromtimestamp(SystemClock.now(), UTC)
