"""The context of one execution: everything a node may read that is not an input.

An `Execution` fixes the time, the trace id, the ambient objects and the predicates of the host program before the first
step. Both paths are given the same object, so that they cannot differ by when they ran. It holds no state: ids of a
sequence come from their number (`uuid(0)`, `uuid(1)`), and a path counts for itself. `monotonic` measures time limits
and nothing else; a test passes a function of its own.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from lyra.core.clock import SystemClock


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """What both paths of one execution are given."""

    now: datetime  # aware, UTC
    trace_id: str = ""
    predicates: Mapping[str, Callable[..., Any]] = {}  # of the host program, by name
    ambient: Mapping[str, Any] = {}  # objects such as user, order and request, as JSON-shaped values
    monotonic: Callable[[], float] = SystemClock.monotonic  # seconds; for time limits

    def uuid(self, number: int) -> str:
        """The id of that number in this execution's sequence."""
        digest = hashlib.sha256(f"{self.trace_id}:{number}".encode()).digest()
        return str(uuid.UUID(bytes=digest[:16], version=4))


def new_execution(
    *,
    trace_id: str = "",
    predicates: Mapping[str, Callable[..., Any]] | None = None,
    ambient: Mapping[str, Any] | None = None,
) -> Execution:
    """An execution that starts now by the machine's clock."""
    now = datetime.fromtimestamp(SystemClock.now(), UTC)
    return Execution(now=now, trace_id=trace_id, predicates=predicates or {}, ambient=ambient or {})
