"""Values at which a program may change its mind: its constants and their neighbours, and the ends of its types.

Collected from the whole IR once per program. Random values alone rarely hit `amount == 10000`; these always do.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

import msgspec

from lyra.vesper import ir
from lyra.vesper.ir import LoopStep, NodeProgram
from lyra.vesper.values.types import INTEGER_MAX, INTEGER_MIN

_ROOT_OF_MAX: Final = 3_037_000_499  # its square is the largest that fits 64 bits
_INTEGERS: Final = (0, 1, -1, 2, -2, 3, 5, 7, 10, 100, 1000, INTEGER_MAX, INTEGER_MAX - 1, INTEGER_MIN, INTEGER_MIN + 1)
_DECIMALS: Final = (
    "0",
    "-0",
    "0.00",
    "1",
    "-1",
    "0.1",
    "0.5",
    "1.5",
    "2.5",
    "0.005",
    "0.015",
    "-0.125",
    "1.10",
    "99.99",
)
_LONG_DECIMALS: Final = ("1e3", "1E-20", "12345678901234567890123456789.5", "0.3333333333333333333333333333", "1e30")
_TEXTS: Final = ("", " ", "a", "A", "ab", "abc", " x ", "ß", "é", "0", "-1", "true", "null", "𝄞", "a\nb", "İ")


def parts_of(node: Any) -> Iterator[Any]:
    """A struct of the IR and all structs inside it."""
    todo = [node]
    while todo:
        part = todo.pop()
        if isinstance(part, tuple | list):
            todo.extend(part)
        elif isinstance(part, msgspec.Struct):
            yield part
            todo.extend(getattr(part, name) for name in part.__struct_fields__)


def _constant_in(part: Any) -> Any:
    """The constant that a part of a program holds: its value, or its number of rounds."""
    match part:
        case ir.Constant():
            return part.value
        case LoopStep():
            return part.max_iterations
    return None


class Boundaries:
    """Interesting values of each kind, for one program."""

    def __init__(self, program: NodeProgram) -> None:
        integers: dict[int, None] = dict.fromkeys(_INTEGERS)
        integers.update(dict.fromkeys([_ROOT_OF_MAX, _ROOT_OF_MAX + 1]))
        decimals: dict[str, None] = dict.fromkeys((*_DECIMALS, *_LONG_DECIMALS))
        texts: dict[str, None] = dict.fromkeys(_TEXTS)
        self.lengths: list[int] = [0, 1, 2, 3]
        for part in parts_of(program):
            value = _constant_in(part)
            if isinstance(value, bool) or value is None:
                continue
            if isinstance(value, int):
                integers.update((number, None) for number in (value - 1, value, value + 1, -value))
                decimals.update((text, None) for text in (str(value), f"{value}.01", f"{value - 1}.99"))
                self.lengths += [n for n in (value - 1, value, value + 1) if 0 <= n <= 64]
            elif isinstance(value, Decimal):
                unit = Decimal((0, (1,), min(0, int(value.as_tuple().exponent))))
                decimals.update((format(number, "f"), None) for number in (value - unit, value, value + unit, -value))
                integers.update((number, None) for number in (int(value), int(value) + 1))
            elif isinstance(value, str):
                texts.update((text, None) for text in (value, value + "x", value[:-1], value.upper(), value.lower()))
        self.integers = [number for number in integers if INTEGER_MIN <= number <= INTEGER_MAX]
        self.decimals = list(decimals)
        self.texts = list(texts)
