"""One question to a human: its kind, its owner, its time to live and, in the end, its answer.

The table of kinds is the requirement document's, with `in_doubt` added for effects whose outcome nobody knows. Plain
values only: who asks, waits and answers is in `interrupts`, who is next in `interrupt_state`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, ClassVar, Final

import msgspec

from lyra.core import codec
from lyra.core.checking.check import Declaration, one_of, real
from lyra.errors import ConfigError
from lyra.kernel.journal.durable_value import DurableValue

__all__ = [
    "DECISIONS_IN_DOUBT",
    "KINDS",
    "STATUSES",
    "Answer",
    "FlowInterrupt",
    "Interrupt",
    "InterruptConfig",
    "InterruptKind",
    "InterruptStatus",
    "known_word",
]


class InterruptConfig(Declaration, frozen=True):
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
    "in_doubt": InterruptConfig(None, False, True),  # only a person knows; it never answers itself
}

DECISIONS_IN_DOUBT: Final = ("retry", "skip", "fail")


class Answer(msgspec.Struct, frozen=True):
    """What came back."""

    text: str = ""
    approved: bool | None = None  # None: not said
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
    # What only a question from outside a program has:
    data: Any = None
    request_id: str = ""
    user_id: str = ""  # its owner; empty: anybody may answer
    session_id: str = ""
    envelope_id: str = ""
    trace_id: str = ""
    span_id: str = ""
    auto_expire: bool = True

    @property
    def due(self) -> float | None:
        """When it ends by itself; None: never."""
        return self.expires_at if self.auto_expire else None

    def copy(self) -> Interrupt:
        """What callers hold is a value: it does not change under them, and they cannot change the kernel's."""
        made: Interrupt = self.__copy__()  # type: ignore[attr-defined]  # of every Struct
        if isinstance(self.data, (dict, list)):
            made.data = codec.decode(codec.encode(self.data))
        if self.response is not None and isinstance(self.response.data, (dict, list)):
            said = codec.decode(codec.encode(self.response.data))
            made.response = msgspec.structs.replace(self.response, data=said)
        return made


FlowInterrupt = Interrupt  # the name on the wire


def known_word(word: Any, words: Iterable[str], what: str) -> str:
    """Words may be written in capitals."""
    return one_of(word.lower() if isinstance(word, str) else word, words, what)
