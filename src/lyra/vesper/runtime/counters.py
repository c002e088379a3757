"""Executions and comparisons that are counted but not written yet.

Each execution of a node changes a few numbers; a row for each would cost more than a small node. They are gathered
here, by any thread, and written by the runtime when enough have come together, when a mode is judged, and at the end.
"""

from __future__ import annotations

import threading
from typing import Any

__all__ = ["Counters"]


class Counters:
    """What happened since the last row, by the digest of a node."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_digest: dict[str, dict[str, Any]] = {}

    def add(self, node_id: str, digest: str, path: str = "", *, compared: bool = False, failed: bool = False) -> int:
        """Count an execution on a path, a comparison, or both; gives how many of this node wait to be written."""
        with self._lock:
            row = self._by_digest.get(digest)
            if row is None:
                row = self._by_digest[digest] = {
                    "node": node_id,
                    "digest": digest,
                    "compared": 0,
                    "errors": 0,
                    "executions": {},
                }
            row["compared"] += compared
            row["errors"] += failed
            executions = row["executions"]
            if path:
                executions[path] = executions.get(path, 0) + 1
            return int(row["compared"]) + int(sum(executions.values()))

    def take(self, digest: str | None = None) -> list[dict[str, Any]]:
        """The rows of one node or of all, which count from zero again."""
        with self._lock:
            if digest is None:
                rows, self._by_digest = list(self._by_digest.values()), {}
                return rows
            row = self._by_digest.pop(digest, None)
            return [] if row is None else [row]
