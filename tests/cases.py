"""How many random cases a test tries: a quarter of them in `make test`, all of them in `make cases`.

Only repetitions of one kind of case are counted so. Cases that are written down one by one are all tried every time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

ALL = os.environ.get("LYRA_TESTS_ALL_CASES") == "1"
_FEWEST = 25


def cases(count: int) -> int:
    """Of `count` random cases, the number to try now."""
    return count if ALL else max(min(count, _FEWEST), count // 4)


def first(parameters: Iterable[Any], count: int) -> list[Any]:
    """Return the parameters of a test with all but the first `count` left to `make verify`; `make cases` tries all."""
    return [value if at < count else pytest.param(value, marks=pytest.mark.long) for at, value in enumerate(parameters)]
