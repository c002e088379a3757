"""Which inputs of a node were compared, each counted once.

A distinct input is known by eight bytes: a hash, with two bits for whether it came past the entry checks and whether
the node succeeded with it. `SeenInputs` counts them and writes them as bytes, so that a store can add what another run
saw without counting an input twice. At most `SEEN_MAX` are kept, which is more than the last gate of a node's modes
asks for.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, Final

SEEN_MAX: Final = 250_000
ACCEPTED: Final = 1
SUCCEEDED: Final = 2
_MARKS: Final = ACCEPTED | SUCCEEDED


def input_key(inputs: Mapping[str, Any], more: Any = None, key: bytes = b"") -> int:
    """Return the number by which inputs are known, with what else tells two executions apart."""
    if more is None:
        return text_key(input_text(inputs), key)
    try:
        text = repr((sorted(inputs.items()), more))
    except TypeError:
        text = repr((inputs, more))
    return text_key(text, key)


def input_text(inputs: Mapping[str, Any]) -> str:
    """Return a text that only equal inputs share."""
    try:
        return repr(sorted(inputs.items()))
    except TypeError:
        return repr((inputs, None))


def text_key(text: str, key: bytes = b"") -> int:
    """Return the number by which inputs with this text are known."""
    data = text.encode("utf-8", "surrogatepass")
    digest = blake2b(data, digest_size=8, key=key) if key else blake2b(data, digest_size=8)
    return int.from_bytes(digest.digest(), "little") & ~_MARKS


class SeenInputs:
    """Distinct inputs, and how many of them were accepted and succeeded."""

    __slots__ = ("_marks", "accepted", "successes")

    def __init__(self, data: bytes = b"") -> None:
        self._marks: dict[int, int] = {}
        self.accepted = 0
        self.successes = 0
        self.update(data)

    def __len__(self) -> int:
        return len(self._marks)

    def add(self, key: int, marks: int) -> bool:
        """Count an input; returns whether it is a new one."""
        if key in self._marks or len(self._marks) >= SEEN_MAX:
            return False
        self._marks[key] = marks
        self.accepted += bool(marks & ACCEPTED)
        self.successes += bool(marks & SUCCEEDED)
        return True

    def update(self, data: bytes) -> None:
        """Count the inputs that another one wrote."""
        for number in _numbers(data):
            self.add(number & ~_MARKS, number & _MARKS)

    @property
    def data(self) -> bytes:
        return array("Q", (key | marks for key, marks in self._marks.items())).tobytes()


def _numbers(data: bytes) -> Iterable[int]:
    numbers = array("Q")
    numbers.frombytes(data[: len(data) // 8 * 8])
    return numbers
