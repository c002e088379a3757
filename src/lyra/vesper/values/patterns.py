"""Regular expressions of nodes, as all paths, the checker and the tests use them.

They have Python's syntax and are matched by `core.linear_regex`, whose time grows with the text, never exponentially.
What cannot be matched so is refused: back references, look-around, possessive and atomic parts, `(?a:…)` and `(?u:…)`.
`$` is the end of the text: unlike in Python it does not stand before a line feed that ends it, so `^[0-9]+$` takes
nothing but digits. With `(?m)` it is the end of each line. All else matches as Python's `re` does.
"""

from __future__ import annotations

from functools import lru_cache

from lyra.core.linear_regex import RegexProgram
from lyra.vesper.values.limits import PATTERN_SIZE_MAX


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> RegexProgram:
    """Return the program of a pattern; BadPattern where it cannot be used."""
    return RegexProgram(pattern, size_max=PATTERN_SIZE_MAX, is_end_strict=True)
