"""How many random cases a test tries: an eighth of them in `make test`, all of them in `make cases`.

Only repetitions of one kind of case are counted so. Cases that are written down one by one are all tried every time.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest

ALL = os.environ.get("LYRA_TESTS_ALL_CASES") == "1"
_FEWEST = 15


def cases(count: int) -> int:
    """Of `count` random cases, the number to try now."""
    return count if ALL else max(min(count, _FEWEST), count // 8)


def first(parameters: Iterable[Any], count: int) -> list[Any]:
    """Return the parameters of a test with all but the first `count` left to `make verify`; `make cases` tries all."""
    rows = [value if isinstance(value, tuple) else (value,) for value in parameters]
    return [pytest.param(*row, marks=() if at < count else pytest.mark.long) for at, row in enumerate(rows)]


def each(parameters: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Give a quick test every one of these parameters, a tuple being several, in one go; all that fail are named.

    A test of its own costs some milliseconds in every worker: more than most entries of a long table take.
    """

    def decorate(test: Callable[..., None]) -> Callable[[], None]:
        def test_each() -> None:
            failures = []
            for value in parameters:
                try:
                    test(*(value if isinstance(value, tuple) else (value,)))
                except (Exception, pytest.fail.Exception) as error:
                    failures.append(f"{value!r:.200}: {type(error).__name__} {error}")
            assert not failures, f"{len(failures)} failed:\n" + "\n".join(failures)

        functools.update_wrapper(test_each, test)
        del vars(test_each)["__wrapped__"]  # its parameters are no fixtures
        return test_each

    return decorate
