"""Names in generated code: a Python name for each name of a node, and none that means something else.

An input called `class`, `print` or `_x` gets another Python name (`class_`, `print_`, `x_`), so that it can hide
neither a keyword, nor a built-in, nor a helper of the generated module. `fresh` gives names for helper variables.
"""

from __future__ import annotations

import builtins
import keyword
import re
from typing import Final

from lyra.vesper.python import runtime

RUNTIME_NAMES: Final = tuple(runtime.__all__)

_IMPORTED: Final = ("Any", "Decimal", "Final", "UTC", "annotations", "datetime", "effects", "reduce", "run")
_TAKEN: Final = frozenset({*keyword.kwlist, *keyword.softkwlist, *dir(builtins), *_IMPORTED})
_LENGTH_MAX: Final = 80


def _identifier(text: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_]", "_", text)[:_LENGTH_MAX].strip("_") or "value"
    return f"n{plain}" if plain[0].isdigit() else plain


def function_name(node_id: str) -> str:
    """The name of a node's function: the node id, its dots as underscores."""
    name = _identifier(node_id)
    return f"{name}_" if name in _TAKEN else name


class Names:
    """The names of one generated module."""

    def __init__(self, *taken: str) -> None:
        self._taken = {*_TAKEN, *taken}
        self._helpers = set(RUNTIME_NAMES)  # a helper variable may not be called like one; a value of the node may

    def own(self, text: str) -> str:
        """The Python name of a value of the node."""
        base = _identifier(text)
        return self._chosen(base.lower() if keyword.iskeyword(base) else base, self._taken)

    def fresh(self, hint: str) -> str:
        """A name like the hint that is not used yet."""
        return self._chosen(_identifier(hint), self._taken | self._helpers)

    def _chosen(self, base: str, taken: set[str]) -> str:
        name, number = base, 1
        while name in taken:
            name = f"{base}_" if number == 1 else f"{base}_{number}"
            number += 1
        self._taken.add(name)
        return name

    def private(self, hint: str) -> str:
        """A name for the module itself, which begins with an underscore."""
        base = f"_{_identifier(hint)}"
        name, number = base, 1
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name)
        return name
