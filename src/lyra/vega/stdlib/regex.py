"""`regex::…`: patterns as in Python, matched in time that grows with the text, never exponentially.

Matches with `core.linear_regex`, so that no pattern can hang a process. What cannot be matched so (back references,
look-around) is refused. A bound on steps keeps even a large text short.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, Final

from lyra.core.limits import VEGA_REGEX_PROGRAM_MAX, VEGA_REGEX_STEPS_MAX
from lyra.core.linear_regex import BadPattern, PatternTooLarge, RegexProgram, TooManySteps, Unsupported
from lyra.vega.stdlib.arguments import needed
from lyra.vega.stdlib.strings import limited
from lyra.vega.values.fuel import WORK
from lyra.vega.values.values import Fault


class Pattern:
    """A pattern, and how it is searched within the limits of Vega."""

    def __init__(self, source: str) -> None:
        try:
            self._program = RegexProgram(source, size_max=VEGA_REGEX_PROGRAM_MAX)
        except PatternTooLarge:
            raise Fault("ValueError", "the pattern is too long when its repetitions are written out") from None
        except Unsupported as error:
            raise Fault("ValueError", f"regex patterns have no {error}") from None
        except BadPattern as error:
            raise Fault("ValueError", f"not a pattern: {error}") from None

    def search(self, text: str, start: int, steps_max: int) -> tuple[tuple[int, ...] | None, int]:
        """As `RegexProgram.search`; the steps count as work of the program."""
        try:
            match, steps = self._program.search(text, start, steps_max)
        except TooManySteps:
            raise Fault("LimitExceeded", "the pattern needs too many steps on this text") from None
        WORK.units += steps
        return match, steps

    def first(self, text: str) -> tuple[int, ...] | None:
        return self.search(text, 0, VEGA_REGEX_STEPS_MAX)[0]

    def all(self, text: str) -> Iterator[tuple[int, ...]]:
        start, steps_left = 0, VEGA_REGEX_STEPS_MAX
        while start <= len(text):
            match, steps = self.search(text, start, steps_left)
            if match is None:
                return
            steps_left -= steps
            yield match
            start = match[1] if match[1] > match[0] else match[1] + 1


@functools.lru_cache(maxsize=64)
def _pattern(source: str) -> Pattern:
    return Pattern(source)


def _compiled(function: str, text: Any, pattern: Any) -> Pattern:
    needed(function, (text, "str"), (pattern, "str"))
    return _pattern(pattern)


def _matches(text: Any, pattern: Any) -> bool:
    return _compiled("regex::matches", text, pattern).first(text) is not None


def _find(text: Any, pattern: Any) -> list[Any] | None:
    match = _compiled("regex::find", text, pattern).first(text)
    if match is None:
        return None
    return [text[match[index] : match[index + 1]] if match[index] >= 0 else None for index in range(0, len(match), 2)]


def _find_all(text: Any, pattern: Any) -> list[str]:
    return [text[match[0] : match[1]] for match in _compiled("regex::find_all", text, pattern).all(text)]


def _replace(text: Any, pattern: Any, new: Any) -> str:
    needed("regex::replace", (new, "str"))
    pieces, last_end, size = [], 0, 0
    for match in _compiled("regex::replace", text, pattern).all(text):
        pieces += [text[last_end : match[0]], new]
        size += len(pieces[-2]) + len(new)
        limited(size)
        last_end = match[1]
    return "".join(pieces) + str(text[last_end:])


def _split(text: Any, pattern: Any) -> list[str]:
    pieces, last_end = [], 0
    for match in _compiled("regex::split", text, pattern).all(text):
        if match[1] == match[0]:
            continue
        pieces.append(text[last_end : match[0]])
        last_end = match[1]
    return [*pieces, text[last_end:]]


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "regex::matches": _matches,
    "regex::find": _find,
    "regex::find_all": _find_all,
    "regex::replace": _replace,
    "regex::split": _split,
}
