"""Two runs side by side: which steps they share, where they first differ, and what each cost.

Steps are compared by what they are (kind, name, request, result, error, status; whole values, also where their texts
are cut) and not by when they were. Processes are the same that have the same place in the order of their start,
whatever their pids are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from lyra.observe.timeline.step import RunStep
from lyra.observe.timeline.timeline import RunTimeline

_TOLD_MAX: Final = 2_000  # steps in one answer
_TOLD_BEFORE: Final = 50  # of those that are the same
_NUMBERED: Final = re.compile(r"p[0-9]+x*\Z").match  # pids that a kernel gave


class StepPair(NamedTuple):
    """The steps of both runs under one number; None where a run has none."""

    number: int
    left: RunStep | None
    right: RunStep | None


class RunDifference(NamedTuple):
    """`first` is the number of the first step that differs; None where the runs are alike."""

    first: int | None
    left: RunTimeline
    right: RunTimeline

    @property
    def length(self) -> int:
        return max(len(self.left.steps), len(self.right.steps))

    def pairs(self, begin: int, end: int) -> list[StepPair]:
        """The steps with the numbers from `begin` to `end`, of both."""
        begin = max(1, begin)
        count = max(0, end - begin + 1)
        sides = zip_longest(self.left.page(begin - 1, count), self.right.page(begin - 1, count))
        return [StepPair(number, old, new) for number, (old, new) in enumerate(sides, start=begin)]

    def begin(self, before: int) -> int:
        """The number to show from on: so many steps before the first difference."""
        return 1 if self.first is None else max(1, self.first - before)

    def to_data(self) -> dict[str, Any]:
        """Of long runs the steps around the first difference."""
        begin = 1 if self.length <= _TOLD_MAX else self.begin(_TOLD_BEFORE)
        return {
            "is_same": self.first is None,
            "first_difference": self.first,
            "left": self.left.summary(),
            "right": self.right.summary(),
            "steps": [
                {
                    "number": pair.number,
                    "is_same": self.first is None or pair.number < self.first,
                    "left": None if pair.left is None else pair.left.to_data(),
                    "right": None if pair.right is None else pair.right.to_data(),
                }
                for pair in self.pairs(begin, begin + _TOLD_MAX - 1)
            ],
        }


def compare_runs(left: RunTimeline, right: RunTimeline) -> RunDifference:
    """The steps of both by number. After the first difference they stand beside each other by number alone."""
    pids_left, pids_right = _PidPlaces(left), _PidPlaces(right)
    pairs = enumerate(zip_longest(left.steps, right.steps), start=1)
    first = next((number for number, (old, new) in pairs if not _is_same(old, new, pids_left, pids_right)), None)
    return RunDifference(first, left, right)


class _PidPlaces:
    """What stands for the pids of a run: their place in the order of their start."""

    def __init__(self, timeline: RunTimeline) -> None:
        self._places = {pid: f"<{index}>" for index, pid in enumerate(timeline.pids)}
        self._all = _words(self._places)
        self._given = _words(pid for pid in self._places if _NUMBERED(pid))

    def of(self, pid: str) -> str:
        return self._places.get(pid, pid)

    def in_sentence(self, text: str) -> str:
        """A sentence of the kernel's, which may name any process."""
        return self._all.sub(lambda match: self._places[match[0]], text)

    def in_value(self, text: str) -> str:
        """A value of the program's: a pid that a person chose may be any word there."""
        return self._given.sub(lambda match: self._places[match[0]], text)


def _words(pids: Iterable[str]) -> re.Pattern[str]:
    longest_first = sorted(pids, key=len, reverse=True)
    return re.compile("|".join(rf"(?<!\w){re.escape(pid)}(?!\w)" for pid in longest_first) or r"(?!)")


def _is_same(old: RunStep | None, new: RunStep | None, left: _PidPlaces, right: _PidPlaces) -> bool:
    if old is None or new is None or left.of(old.pid) != right.of(new.pid):
        return False
    if (old.kind, old.status, old.digest) != (new.kind, new.status, new.digest):
        return False
    # The beginning of a fork says that it is one, and a pause how long it was still to last.
    what, other_what = (old.name, new.name) if old.kind in ("began", "sleep") else (old.what, new.what)
    if what != other_what and left.in_sentence(what) != right.in_sentence(other_what):
        return False
    values = zip((old.request, old.result, old.error), (new.request, new.result, new.error), strict=True)
    return all(
        text == other or left.in_value(text) == right.in_value(other) or ("…" in text and "…" in other)
        for text, other in values  # of texts that are cut the digests tell
    )
