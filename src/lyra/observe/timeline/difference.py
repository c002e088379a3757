"""Two runs side by side: which steps they share, where they first differ, and what each cost.

Steps are compared by what they are (kind, name, request, result, error, status) and not by when they were or which pid
did them: pids are replaced by the order in which a run made them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from lyra.observe.timeline.steps import RunStep
from lyra.observe.timeline.timeline import RunTimeline

__all__ = ["RunDifference", "compare_runs"]

_SIDE_BY_SIDE_MAX: Final = 2_000


class RunDifference(NamedTuple):
    """`first` is the number of the first step that differs; None where the runs are alike."""

    first: int | None
    rows: list[tuple[RunStep | None, RunStep | None]]
    left: RunTimeline
    right: RunTimeline

    def to_data(self) -> dict[str, Any]:
        return {
            "is_same": self.first is None,
            "first_difference": self.first,
            "left": self.left.summary(),
            "right": self.right.summary(),
            "steps": [
                {
                    "number": number,
                    "is_same": self.first is None or number < self.first,
                    "left": None if old is None else old.to_data(),
                    "right": None if new is None else new.to_data(),
                }
                for number, (old, new) in enumerate(self.rows, start=1)
            ],
        }


def compare_runs(left: RunTimeline, right: RunTimeline, *, rows_max: int = _SIDE_BY_SIDE_MAX) -> RunDifference:
    """The steps of both by number. After the first difference they stand beside each other by number alone."""
    left_keys, right_keys = _keys(left), _keys(right)
    length = max(len(left_keys), len(right_keys))
    first = next(
        (
            index + 1
            for index in range(length)
            if index >= len(left_keys) or index >= len(right_keys) or left_keys[index] != right_keys[index]
        ),
        None,
    )
    rows = [(_step(left.steps, index), _step(right.steps, index)) for index in range(min(length, rows_max))]
    return RunDifference(first, rows, left, right)


def _step(steps: Sequence[RunStep], index: int) -> RunStep | None:
    return steps[index] if index < len(steps) else None


def _keys(timeline: RunTimeline) -> list[tuple[str, ...]]:
    places = {pid: f"<{index}>" for index, pid in enumerate(timeline.pids)}
    pattern = re.compile("|".join(rf"(?<!\w){re.escape(pid)}(?!\w)" for pid in sorted(places, key=len, reverse=True)))

    def without_pids(text: str) -> str:
        return pattern.sub(lambda match: places[match[0]], text)

    return [
        tuple(without_pids(text) for text in _told(step, is_first=index == 0))
        for index, step in enumerate(timeline.steps)
    ]


def _told(step: RunStep, *, is_first: bool) -> tuple[str, ...]:
    what = step.name if is_first or step.kind == "sleep" else step.what  # a fork says at its beginning that it is one
    return step.pid, step.kind, what, step.request, step.result, step.error, step.status
