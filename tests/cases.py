"""How many random cases a test tries: a quarter of them in `make test`, all of them in `make cases`.

Only repetitions of one kind of case are counted so. Cases that are written down one by one are all tried every time.
"""

from __future__ import annotations

import os

ALL = os.environ.get("LYRA_TESTS_ALL_CASES") == "1"
_FEWEST = 25


def cases(count: int) -> int:
    """Of `count` random cases, the number to try now."""
    return count if ALL else max(min(count, _FEWEST), count // 4)
