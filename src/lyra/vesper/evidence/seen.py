"""Which inputs of a node were compared, each counted once.

A distinct input is known by eight bytes: a hash, with two bits for whether it came past the entry checks and whether
the node succeeded with it. `SeenInputs` counts them and writes them as bytes, so that a store can add what another run
saw without counting an input twice. At most `SEEN_MAX` are kept, `REFUSED_MAX` of them refused ones: that leaves room
for more than the last gate of a node's modes asks for.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, Final

from lyra.vesper.direct.coercion import Misfit, input_reader
from lyra.vesper.ir import NodeProgram

SEEN_MAX: Final = 250_000
REFUSED_MAX: Final = 100_000
ACCEPTED: Final = 1
SUCCEEDED: Final = 2
_MARKS: Final = ACCEPTED | SUCCEEDED


class InputTexts:
    """Writes the inputs of a program as texts that only equal inputs share: as they are read, with the defaults of
    what is absent, so that another spelling of a value counts as the same one."""

    def __init__(self, program: NodeProgram) -> None:
        self._readers = [(declared.name, *input_reader(declared)) for declared in program.inputs]
        self._names = {name for name, _, _ in self._readers}

    def write(self, inputs: Mapping[str, Any]) -> str:
        if not inputs.keys() <= self._names:
            return repr(inputs)
        values = []
        for name, read, absent in self._readers:
            try:
                values.append(read(inputs[name]) if name in inputs else absent)
            except Misfit:
                return repr(inputs)  # they are refused
        text = repr(values)
        return repr(_sort_sets(values)) if "frozenset(" in text else text

    def key(self, inputs: Mapping[str, Any], more: Any = None, key: bytes = b"") -> int:
        """Return the number by which inputs are known, with what else tells two executions apart."""
        return text_key(f"{self.write(inputs)} {more!r}" if more else self.write(inputs), key)


def _sort_sets(value: Any) -> Any:
    """Return a value with its sets as sorted tuples."""
    if isinstance(value, frozenset):
        return tuple(sorted(value, key=repr))
    if isinstance(value, list):
        return [_sort_sets(item) for item in value]
    return {name: _sort_sets(item) for name, item in value.items()} if isinstance(value, dict) else value


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
        count = len(self._marks)
        if key in self._marks or count >= SEEN_MAX or (not marks and count - self.accepted >= REFUSED_MAX):
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
