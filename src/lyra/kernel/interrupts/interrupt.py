"""One question to a human: its kind, its owner, its time to live and, in the end, its answer.

`KINDS` is the table of kinds; `in_doubt` is for effects whose outcome is unknown after a crash. Plain values only:
`service` asks, waits and answers, `state` has the queue of open questions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from lyra.core import codec
from lyra.core.checking.check import FrozenSettings, one_of, real
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
