"""Single fields: numbers that fit, times in milliseconds, texts that protobuf takes, JSON in bytes.

On the way out a number is clamped to its field and text keeps what UTF-8 can hold. On the way in JSON is checked for
its form and its depth; a mistake is a ConfigError that names the field.
"""

from __future__ import annotations

from math import isfinite
from typing import Any, Final

import msgspec

from lyra.core.checking.check import is_nested_deeper
from lyra.core.codec import to_plain
from lyra.core.limits import VALUE_DEPTH_MAX
from lyra.errors import ConfigError
from lyra.server.generated import engine_pb2 as pb

_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1
_write: Final = msgspec.json.Encoder(enc_hook=to_plain).encode
_read: Final = msgspec.json.Decoder().decode


def require(value: str, field: str) -> str:
    """Return the text of a field that must not be empty."""
    if not value:
        raise ConfigError(f"{field} is required", key=field)
    return value


def int32(value: float) -> int:
    number = int(value)
    return number if -_INT32_MAX <= number <= _INT32_MAX else _INT32_MAX if number > 0 else -_INT32_MAX


def int64(value: float) -> int:
    number = int(value)
    return number if -_INT64_MAX <= number <= _INT64_MAX else _INT64_MAX if number > 0 else -_INT64_MAX


def milliseconds(seconds_since_1970: float | None) -> int:
    """Return a time; 0 represents one that has not come."""
    if seconds_since_1970 is None or not isfinite(seconds_since_1970):
        return 0
    return int64(seconds_since_1970 * 1000)


def text(value: Any) -> str:
    """Text that protobuf takes: half a surrogate pair becomes a question mark."""
    word = value if type(value) is str else str(value)
    return word if word.isascii() else word.encode("utf-8", "replace").decode()


def json_bytes(value: Any) -> bytes:
    """Return a value as JSON; b"" for None."""
    if value is None:
        return b""
    try:
        return _write(value)
    except (TypeError, ValueError, OverflowError, RecursionError):  # no form in JSON: its text instead
        return _write(text(repr(value)))


def seconds(milliseconds_since_1970: int) -> float | None:
    return milliseconds_since_1970 / 1000 if milliseconds_since_1970 else None


def json_value(data: bytes, field: str) -> Any:
    """Return the value of JSON in bytes; None for empty bytes."""
    if not data:
        return None
    try:
        value = _read(data)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError):
        raise ConfigError(f"{field} is not JSON", key=field) from None
    if is_nested_deeper(value, VALUE_DEPTH_MAX):
        raise ConfigError(f"{field} is nested more than {VALUE_DEPTH_MAX} levels deep", key=field)
    return value


def json_mapping(data: bytes, field: str) -> dict[str, Any] | None:
    """Read a field that holds a JSON object."""
    value = json_value(data, field)
    if value is not None and not isinstance(value, dict):
        raise ConfigError(f"{field} is a JSON object, not {type(value).__name__}", key=field)
    return value


# The tables of words: the number of each kernel word in its enum of the contract, and back.


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
        """Return the number of a word; 0 for None and for a word that the contract does not have."""
        return self.numbers.get(word, 0) if word is not None else 0

    def word(self, number: int) -> str | None:
        """Return the word of a number; None for 0."""
        if number and number not in self._words:
            raise ConfigError(f"{self._field} has no value {number}", key=self._field)
        return self._words.get(number)

    def require(self, number: int) -> str:
        """Read a field that must be given."""
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
WORDS: Final = {  # by the name of the enum
    "ProcessState": PROCESS_STATE,
    "SchedulingPriority": PRIORITY,
    "TerminalReason": TERMINAL_REASON,
    "InterruptKind": INTERRUPT_KIND,
    "InterruptStatus": INTERRUPT_STATUS,
    "ExecutionEventType": EVENT_TYPE,
    "InstructionKind": INSTRUCTION_KIND,
    "HealthStatus": HEALTH,
}
