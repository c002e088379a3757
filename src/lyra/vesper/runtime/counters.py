"""Executions and comparisons that are counted but not written yet.

Each execution of a node changes a few numbers; a row for each would cost more than a small node. They are gathered
here, by any thread, and written by the runtime when enough have come together, when a mode is judged, and at the end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from lyra.vesper.evidence.figures import DURATION_BUCKETS_MS, empty_spread, observe


class Counters:
    """What happened since the last row, by the digest of a node."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_digest: dict[str, _NodeCount] = {}

    def compared(self, node_id: str, digest: str) -> None:
        """Count a comparison without a difference."""
        with self._lock:
            self._count(node_id, digest).compared += 1

    def executed(
        self,
        node_id: str,
        digest: str,
        path: str,
        milliseconds: float,
        *,
        compared: bool = False,
        code: str = "",
        count: Callable[[dict[str, Any]], None] | None = None,
    ) -> int:
        """Count an execution: its path, its duration, its comparison, its error; `count` adds to the metrics that the
        node declares. Gives how many executions of this node wait to be written."""
        with self._lock:
            known = self._by_digest.get(digest) or self._count(node_id, digest)
            spread = known.durations.get(path)
            if spread is None:
                spread = known.durations[path] = empty_spread(DURATION_BUCKETS_MS)
            observe(spread, DURATION_BUCKETS_MS, milliseconds)
            known.compared += compared
            if code:
                known.codes[code] = known.codes.get(code, 0) + 1
            if count is not None:
                count(known.metrics)
            known.waiting += 1
            return known.waiting

    def _count(self, node_id: str, digest: str) -> _NodeCount:
        known = self._by_digest.get(digest)
        if known is None:
            known = self._by_digest[digest] = _NodeCount(node_id, digest)
        return known

    def take(self, digest: str | None = None) -> list[dict[str, Any]]:
        """The rows of one node or of all, which count from zero again."""
        with self._lock:
            if digest is None:
                counts, self._by_digest = list(self._by_digest.values()), {}
            else:
                known = self._by_digest.pop(digest, None)
                counts = [] if known is None else [known]
        return [known.row() for known in counts]


class _NodeCount:
    """What happened to one content of one node."""

    __slots__ = ("codes", "compared", "digest", "durations", "metrics", "node_id", "waiting")

    def __init__(self, node_id: str, digest: str) -> None:
        self.node_id = node_id
        self.digest = digest
        self.compared = 0
        self.waiting = 0  # executions
        self.codes: dict[str, int] = {}
        self.durations: dict[str, list[float]] = {}
        self.metrics: dict[str, Any] = {}

    def row(self) -> dict[str, Any]:
        return {
            "node": self.node_id,
            "digest": self.digest,
            "compared": self.compared,
            "errors": sum(self.codes.values()),
            "executions": {path: int(sum(spread[:-1])) for path, spread in self.durations.items()},
            "codes": self.codes,
            "durations": self.durations,
            "metrics": self.metrics,
        }
