"""The tables of words: the number of each kernel word in its enum of the contract, and back.

Every table is read from the contract itself: a value's name without the prefix of its enum, in lower case, is the
kernel's word. 0 (unspecified) is no word.
"""

from __future__ import annotations

from typing import Any, Final

from lyra.errors import ConfigError
from lyra.server.generated import engine_pb2 as pb


class Words:
    """One enum: `number` (or the table `numbers` itself) on the way out, `word` on the way in."""

    __slots__ = ("_field", "_words", "numbers")

    def __init__(self, enum: Any, prefix: str, field: str) -> None:
        self._field = field
        self._words: dict[int, str] = {
            number: name.removeprefix(prefix).lower() for name, number in enum.items() if number
        }
        self.numbers: dict[str, Any] = {word: number for number, word in self._words.items()}

    def number(self, word: str | None) -> Any:
        """The number of a word; 0 for None and for a word that the contract does not have."""
        return self.numbers.get(word, 0) if word is not None else 0

    def word(self, number: int) -> str | None:
        """The word of a number; None for 0."""
        if number and number not in self._words:
            raise ConfigError(f"{self._field} has no value {number}", key=self._field)
        return self._words.get(number)

    def required(self, number: int) -> str:
        """The same for a field that must be given."""
        word = self.word(number)
        if word is None:
            raise ConfigError(f"{self._field} is required", key=self._field)
        return word

    def words(self) -> frozenset[str]:
        return frozenset(self.numbers)


PROCESS_STATE: Final = Words(pb.ProcessState, "PROCESS_STATE_", "state")
PRIORITY: Final = Words(pb.SchedulingPriority, "SCHEDULING_PRIORITY_", "priority")
TERMINAL_REASON: Final = Words(pb.TerminalReason, "", "terminal_reason")
INTERRUPT_KIND: Final = Words(pb.InterruptKind, "", "kind")
INTERRUPT_STATUS: Final = Words(pb.InterruptStatus, "INTERRUPT_", "status")
EVENT_TYPE: Final = Words(pb.ExecutionEventType, "", "type")
INSTRUCTION_KIND: Final = Words(pb.InstructionKind, "", "kind")
HEALTH: Final = Words(pb.HealthStatus, "HEALTH_", "status")
