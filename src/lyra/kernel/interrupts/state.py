"""The state of questions from outside programs, and the queue of all open questions.

`InterruptState` is durable. `Line` is rebuilt from it, and from the questions of programs: for each process it gives
the oldest open question, and the time when the last one expires. Both cost the same with ten thousand open questions as
with a single one: they are the tops of two heaps, from which ended questions are dropped when they are reached.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict
from collections.abc import Container, Iterator
from typing import Any, ClassVar, Final

import msgspec

from lyra.core.limits import ENDED_INTERRUPTS_KEPT
from lyra.kernel.interrupts.interrupt import KINDS, Answer, Interrupt, InterruptConfig

_SLACK: Final = 64  # entries of ended questions that a heap may hold before it is rebuilt


class InterruptState:
    """The questions from outside programs, and the settings of each kind: a fold of four kinds of rows."""

    NAME: ClassVar[str] = "interrupts"
    KINDS: ClassVar[frozenset[str]] = frozenset(
        {"pcb.interrupt_created", "pcb.interrupt_ended", "pcb.interrupts_forgotten", "pcb.interrupt_config"}
    )

    __slots__ = ("by_id", "by_pid", "configs", "ended")

    def __init__(self) -> None:
        self.configs: dict[str, InterruptConfig] = dict(KINDS)
        self.by_id: dict[str, Interrupt] = {}
        self.by_pid: dict[str, dict[str, None]] = {}  # pid → its questions, oldest first
        self.ended: OrderedDict[str, None] = OrderedDict()  # in the order of their end; the first is taken off in O(1)

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:
        del time  # every row has its own time, which is the same live and after a restart
        if kind == "pcb.interrupt_created":
            self._keep(msgspec.convert({**data, "pid": pid}, Interrupt))
        elif kind == "pcb.interrupt_ended":
            interrupt = self.by_id[data["id"]]
            interrupt.status = data["status"]
            interrupt.resolved_at = data["at"]
            interrupt.reason = data["reason"]
            interrupt.response = msgspec.convert(data["response"], Answer | None)
            interrupt.tainted = interrupt.tainted or data.get("tainted", False) is True
            self.ended[interrupt.id] = None
            if len(self.ended) > ENDED_INTERRUPTS_KEPT:
                self._forget(next(iter(self.ended)))
        elif kind == "pcb.interrupt_config":
            config = {name: value for name, value in data.items() if name != "kind"}
            self.configs[data["kind"]] = InterruptConfig(**config)
        else:
            for interrupt_id in data["ids"]:
                self._forget(interrupt_id)

    def dump(self) -> Any:
        configs = {kind: msgspec.to_builtins(config) for kind, config in self.configs.items()}
        return {"interrupts": list(self.by_id.values()), "ended": list(self.ended), "configs": configs}

    def load(self, data: Any) -> None:
        for interrupt in msgspec.convert(data["interrupts"], list[Interrupt]):
            self._keep(interrupt)
        self.ended = OrderedDict.fromkeys(data["ended"])
        for kind, config in data.get("configs", {}).items():
            self.configs[kind] = InterruptConfig(**config)

    def _keep(self, interrupt: Interrupt) -> None:
        self.by_id[interrupt.id] = interrupt
        self.by_pid.setdefault(interrupt.pid, {})[interrupt.id] = None

    def _forget(self, interrupt_id: str) -> None:
        self.ended.pop(interrupt_id, None)
        interrupt = self.by_id.pop(interrupt_id)
        siblings = self.by_pid[interrupt.pid]
        del siblings[interrupt_id]
        if not siblings:
            del self.by_pid[interrupt.pid]


class Line:
    """The open questions of every process. A question enters once and leaves once, with its end."""

    __slots__ = ("_entered", "by_pid")

    def __init__(self) -> None:
        self.by_pid: dict[str, _Open] = {}  # those that have some
        self._entered = 0

    def enter(self, interrupt: Interrupt, *, outside: bool) -> None:
        """Add an open question. `outside`: not asked by the program; of two with one time the program's own is
        first."""
        self._entered += 1
        questions = self.by_pid.get(interrupt.pid)
        if questions is None:
            questions = self.by_pid[interrupt.pid] = _Open()
        questions.add((interrupt.created_at, outside, self._entered, interrupt))

    def leave(self, interrupt: Interrupt) -> None:
        """Remove a question whose status is no longer pending."""
        questions = self.by_pid.get(interrupt.pid)
        if questions is not None:
            questions.count -= 1
            if questions.count <= 0:
                del self.by_pid[interrupt.pid]
            else:
                questions.tidy()

    def drop(self, pid: str, ids: Container[str]) -> None:
        """Remove these questions of a process although they are pending; the others stay."""
        questions = self.by_pid.pop(pid, None)
        for outside in (False, True):
            for interrupt in [] if questions is None else questions.in_order(outside=outside):
                if interrupt.id not in ids:
                    self.enter(interrupt, outside=outside)

    def first(self, pid: str) -> Interrupt | None:
        """Return the oldest pending question, which may be overdue."""
        questions = self.by_pid.get(pid)
        return None if questions is None else questions.first()

    def open_until(self, pid: str) -> float:
        """When the last of them expires; minus infinity when none is open."""
        questions = self.by_pid.get(pid)
        return -math.inf if questions is None else questions.open_until()

    def list_open(self, pid: str, *, outside: bool | None = None) -> list[Interrupt]:
        """All open questions of a process: first its program's, then those from outside, each in order."""
        questions = self.by_pid.get(pid)
        return [] if questions is None else list(questions.in_order(outside=outside))


class _Open:
    """The open questions of one process, in heaps by age and by expiry."""

    __slots__ = ("by_age", "by_end", "count")

    def __init__(self) -> None:
        self.by_age: list[tuple[float, bool, int, Interrupt]] = []
        self.by_end: list[tuple[float, int, Interrupt]] = []  # the last to expire first
        self.count = 0

    def add(self, entry: tuple[float, bool, int, Interrupt]) -> None:
        heapq.heappush(self.by_age, entry)
        heapq.heappush(self.by_end, _end_of(entry))
        self.count += 1

    def first(self) -> Interrupt | None:
        while self.by_age and self.by_age[0][-1].status != "pending":
            heapq.heappop(self.by_age)
        return self.by_age[0][-1] if self.by_age else None

    def open_until(self) -> float:
        while self.by_end and self.by_end[0][-1].status != "pending":
            heapq.heappop(self.by_end)
        return -self.by_end[0][0] if self.by_end else -math.inf

    def in_order(self, *, outside: bool | None) -> Iterator[Interrupt]:
        for entry in sorted(self.by_age, key=lambda entry: entry[1:3]):
            if entry[-1].status == "pending" and outside in (None, entry[1]):
                yield entry[-1]

    def tidy(self) -> None:
        """Rebuild the heaps when most of their entries are ended questions."""
        if max(len(self.by_age), len(self.by_end)) > _SLACK + 2 * self.count:
            self.by_age = [entry for entry in self.by_age if entry[-1].status == "pending"]
            self.by_end = [_end_of(entry) for entry in self.by_age]
            heapq.heapify(self.by_age)
            heapq.heapify(self.by_end)


def _end_of(entry: tuple[float, bool, int, Interrupt]) -> tuple[float, int, Interrupt]:
    due = entry[-1].due
    return (-math.inf if due is None else -due, entry[2], entry[3])
