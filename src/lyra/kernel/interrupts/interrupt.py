"""One question to a human: its kind, its owner, its time to live and, in the end, its answer.

`KINDS` is the table of kinds; `in_doubt` is for effects whose outcome is unknown after a crash. Plain values only:
`service` asks, waits and answers.

`InterruptState`, of the questions from outside programs, is durable. `Line` is rebuilt from it, and from the questions
of programs: for each process it gives the oldest open question, and the time when the last one expires. Both cost the
same with ten thousand open questions as with a few.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from lyra.core import codec
from lyra.core.checking.check import FrozenSettings, one_of, real
from lyra.core.limits import ENDED_INTERRUPTS_KEPT
from lyra.errors import ConfigError
from lyra.kernel.journal.rows import DurableValue

if TYPE_CHECKING:
    from lyra.core.clock import Timer
    from lyra.kernel.base.core import Core


class InterruptConfig(FrozenSettings, frozen=True):
    """How questions of one kind behave: seconds to live (None: for ever), whether they end by themselves when those
    are over, and whether an empty answer is refused."""

    WORD: ClassVar[str] = "interrupt config"

    default_ttl: float | None = 3600.0
    auto_expire: bool = True
    require_response: bool = True

    def __post_init__(self) -> None:
        if self.default_ttl is not None:
            self._put(default_ttl=real(self.default_ttl, "default_ttl", above=0.0))
        for name in ("auto_expire", "require_response"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name} is true or false, not {getattr(self, name)!r}", key=name)

    @classmethod
    def of(cls, value: Any) -> InterruptConfig:
        return value if isinstance(value, InterruptConfig) else cls.from_data(value)


class InterruptKind(StrEnum):
    CLARIFICATION = "clarification"
    CONFIRMATION = "confirmation"
    AGENT_REVIEW = "agent_review"
    CHECKPOINT = "checkpoint"
    RESOURCE_EXHAUSTED = "resource_exhausted"
    TIMEOUT = "timeout"
    SYSTEM_ERROR = "system_error"
    IN_DOUBT = "in_doubt"


class InterruptStatus(StrEnum):
    PENDING = "pending"
    RESOLVED = "resolved"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


STATUSES: Final[tuple[str, ...]] = tuple(status.value for status in InterruptStatus)

KINDS: Final[dict[str, InterruptConfig]] = {
    "clarification": InterruptConfig(24 * 3600.0, True, True),
    "confirmation": InterruptConfig(3600.0, True, True),
    "agent_review": InterruptConfig(1800.0, True, True),
    "checkpoint": InterruptConfig(None, False, False),
    "resource_exhausted": InterruptConfig(300.0, True, False),
    "timeout": InterruptConfig(300.0, True, False),
    "system_error": InterruptConfig(3600.0, True, False),
    "in_doubt": InterruptConfig(None, False, True),  # only a person knows the outcome, so it never expires
}

DECISIONS_IN_DOUBT: Final = ("retry", "skip", "fail")


class Answer(msgspec.Struct, frozen=True):
    """The answer to a question."""

    text: str = ""
    approved: bool | None = None  # None: not given
    decision: str = ""
    data: Any = None
    received_at: float | None = None  # set by the kernel

    @classmethod
    def of(cls, response: Answer | Mapping[str, Any]) -> Answer:
        if isinstance(response, Answer):
            return response
        try:
            return msgspec.convert(dict(response), Answer)
        except (msgspec.ValidationError, TypeError, ValueError) as error:
            raise ConfigError(f"not an answer: {error}", hint="use text, approved, decision, data") from error

    @property
    def empty(self) -> bool:
        return not self.text and self.approved is None and not self.decision and self.data is None


class Interrupt(DurableValue, msgspec.Struct, dict=True):
    id: str
    pid: str
    kind: str
    question: str = ""
    message: str = ""
    status: str = "pending"  # → resolved | expired | cancelled
    created_at: float = 0.0
    expires_at: float | None = None
    resolved_at: float | None = None
    response: Answer | None = None
    reason: str = ""
    seq: int = 0  # the journal row that ended it
    # Only set for questions from outside programs:
    data: Any = None
    request_id: str = ""
    user_id: str = ""  # its owner; empty: any user may answer
    session_id: str = ""
    envelope_id: str = ""
    trace_id: str = ""
    span_id: str = ""
    auto_expire: bool = True
    tainted: bool = False  # the process that asked or answered had read text from outside

    @property
    def due(self) -> float | None:
        """When it expires; None: never."""
        return self.expires_at if self.auto_expire else None

    def copy(self) -> Interrupt:
        """Return a copy for callers, which the kernel never changes, and whose changes do not reach the kernel."""
        copied: Interrupt = self.__copy__()  # type: ignore[attr-defined]  # every Struct has it
        if isinstance(self.data, (dict, list)):
            copied.data = codec.decode(codec.encode(self.data))
        if self.response is not None and isinstance(self.response.data, (dict, list)):
            data = codec.decode(codec.encode(self.response.data))
            copied.response = msgspec.structs.replace(self.response, data=data)
        return copied


FlowInterrupt = Interrupt  # its name in the worker API


def check_word(word: Any, words: Iterable[str], what: str) -> str:
    """One of the known words, in lower case; capitals are accepted."""
    return one_of(word.lower() if isinstance(word, str) else word, words, what)


# ---------------------------------------------------------------- expiry
# The timers of open questions: each ends its question when the time to answer is over.


class ExpiryTimers:
    """One for each open question that expires by itself."""

    def __init__(self, core: Core[Any], expire: Callable[[Interrupt], None]) -> None:
        self._core = core
        self._expire = expire
        self._timers: dict[str, Timer] = {}

    def arm(self, interrupt: Interrupt) -> None:
        due = interrupt.due
        if due is not None:
            clock = self._core.clock
            # Never longer than its whole time to live: it may have been asked by a clock that was ahead.
            left_s = min(due - self._core.now(), due - interrupt.created_at)
            rings_at = clock.monotonic() + max(0.0, left_s)
            self._timers[interrupt.id] = clock.call_at(rings_at, lambda: self._expire(interrupt))

    def disarm(self, interrupt_id: str) -> None:
        timer = self._timers.pop(interrupt_id, None)
        if timer is not None:
            timer.cancel()

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()


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
