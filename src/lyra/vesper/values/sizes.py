"""How much memory a value takes, roughly: the characters of its texts, and a fixed number of bytes for each element."""

from __future__ import annotations

from typing import Any

from lyra.vesper.values.limits import ELEMENT_BYTES


def is_larger(value: Any, bytes_max: int) -> bool:
    """Whether a value takes more than so many bytes. Counting ends where that is known."""
    left = bytes_max
    rest = [value]
    while rest:
        item = rest.pop()
        if isinstance(item, (str, bytes)):
            left -= len(item)
        elif isinstance(item, dict):
            left -= ELEMENT_BYTES * len(item) + sum(map(len, item))
            rest.extend(item.values())
        elif isinstance(item, (list, tuple, set, frozenset)):
            left -= ELEMENT_BYTES * len(item)
            rest.extend(item)
        if left < 0:
            return True
    return False
