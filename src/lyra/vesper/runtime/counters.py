"""Executions and comparisons that are counted but not written yet.

Each execution of a node changes a few numbers; a row for each would cost more than a small node. They are gathered
here, by any thread, and written by the runtime when enough have come together, when a mode is judged, and at the end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from lyra.vesper.evidence.figures import DURATION_BUCKETS_MS, empty_spread, observe

__all__ = ["Counters"]


class Counters:
    """What happened since the last row, by the digest of a node."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_digest: dict[str, dict[str, Any]] = {}

    def compared(self, node_id: str, digest: str) -> None:
        """Count a comparison without a difference."""
        with self._lock:
            self._row(node_id, digest)["compared"] += 1

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
            row = self._row(node_id, digest)
            row["compared"] += compared
            executions = row["executions"]
            executions[path] = executions.get(path, 0) + 1
            if code:
                row["errors"] += 1
                row["codes"][code] = row["codes"].get(code, 0) + 1
            spread = row["durations"].get(path)
            if spread is None:
                spread = row["durations"][path] = empty_spread(DURATION_BUCKETS_MS)
            observe(spread, DURATION_BUCKETS_MS, milliseconds)
            if count is not None:
                count(row["metrics"])
            return sum(executions.values())

    def _row(self, node_id: str, digest: str) -> dict[str, Any]:
        row = self._by_digest.get(digest)
        if row is None:
            head = {"node": node_id, "digest": digest, "compared": 0, "errors": 0}
            row = self._by_digest[digest] = {**head, "executions": {}, "codes": {}, "durations": {}, "metrics": {}}
        return row

    def take(self, digest: str | None = None) -> list[dict[str, Any]]:
        """The rows of one node or of all, which count from zero again."""
        with self._lock:
            if digest is None:
                rows, self._by_digest = list(self._by_digest.values()), {}
                return rows
            row = self._by_digest.pop(digest, None)
            return [] if row is None else [row]
