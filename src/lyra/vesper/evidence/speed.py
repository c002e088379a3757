"""How quickly a node runs, beside its own past: medians of its successes, path by path.

Durations are gathered in windows of `WINDOW` successes. The medians of the latest windows are the node's past, also
that before its file was changed. A node is slower when two windows in a row have a median of more than `SLOWER` times
the usual one; such windows do not become its past, until there are `MEDIANS_KEPT` of them: then that is its new pace.
The state is folded from rows of the journal, so that many short commands add up as one long run does.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import Any, Final

import msgspec

WINDOW: Final = 100  # successes of which the median is taken
MEDIANS_KEPT: Final = 20
_PAST_MIN: Final = 3  # windows that are needed as a past
_IN_A_ROW: Final = 2
SLOWER: Final = 1.5
_NOISE_MS: Final = 0.005  # a difference that is no more than this is none


class PathSpeed(msgspec.Struct):
    """The durations of one path of one node, in milliseconds."""

    waiting: list[float] = []
    medians: list[float] = []  # of the latest windows that were not slow
    latest_ms: float = 0.0  # the median of the last full window
    slow_windows: int = 0  # in a row

    @property
    def usual_ms(self) -> float:
        return median(self.medians) if self.medians else 0.0

    @property
    def is_slow(self) -> bool:
        return self.slow_windows >= _IN_A_ROW

    def add(self, durations: Iterable[float]) -> None:
        self.waiting.extend(durations)
        while len(self.waiting) >= WINDOW:
            window, self.waiting = self.waiting[:WINDOW], self.waiting[WINDOW:]
            self._judge(median(window))

    def _judge(self, milliseconds: float) -> None:
        self.latest_ms, usual = milliseconds, self.usual_ms
        is_over = milliseconds > SLOWER * usual and milliseconds - usual > _NOISE_MS
        if len(self.medians) >= _PAST_MIN and is_over:
            self.slow_windows += 1
            if self.slow_windows < MEDIANS_KEPT:
                return
            self.medians.clear()
        self.slow_windows = 0
        self.medians.append(milliseconds)
        del self.medians[:-MEDIANS_KEPT]

    def to_data(self) -> dict[str, Any]:
        return {"latest_ms": self.latest_ms, "usual_ms": self.usual_ms, "is_slower": self.is_slow}


def slow_alert(node_id: str, digest: str, path: str, speed: PathSpeed) -> dict[str, Any]:
    """Return the alert of a node that became slower."""
    figures = {"path": path, "latest_ms": f"{speed.latest_ms:.4f}", "usual_ms": f"{speed.usual_ms:.4f}"}
    head = {"node": node_id, "digest": digest, "condition": "slower than its own past", "severity": "warning"}
    return {**head, "notify": [], "figures": figures}
