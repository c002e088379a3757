"""Results of nodes that declare themselves `idempotent: true`, kept so that equal inputs need no second execution.

A result is found by the digest of the node, its inputs and the ambient objects, all as one hash: inputs are never
stored. Only successes are kept, and none beyond the limits. They are kept in memory, or in Redis where the runtime is
given its address (see `redis_results`), for other processes to find; a result with a sensitive field is not sent there.
What is kept and is no result of the node, by its names, is not used.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from lyra.core.clock import SystemClock
from lyra.core.codec import canonical
from lyra.errors import LyraError
from lyra.vesper.runtime.redis_results import RedisResults
from lyra.vesper.values.json_values import from_json, to_json
from lyra.vesper.values.limits import RESULT_BYTES_MAX, RESULTS_BYTES_MAX, RESULTS_MAX, RESULTS_TIME_S
from lyra.vesper.values.outcome import Outcome

if TYPE_CHECKING:
    from lyra.vesper.ir import NodeProgram


class ResultStore(Protocol):
    """Keeps texts by key for a while, or does not."""

    is_shared: bool  # with other processes

    def get(self, key: str) -> bytes | None: ...

    def put(self, key: str, value: bytes) -> None: ...

    def close(self) -> None: ...


class ResultCache:
    """Finds and keeps the outcomes of idempotent nodes."""

    def __init__(self, store: ResultStore) -> None:
        self._store = store

    def key(self, program: NodeProgram, inputs: Mapping[str, Any], ambient: Mapping[str, Any]) -> str:
        """The hash by which a result is found; empty where there is none to look for."""
        if not program.idempotent:
            return ""
        try:
            parts = canonical([program.digest, to_json(dict(inputs)), to_json(dict(ambient))])
        except (TypeError, ValueError, LyraError):
            return ""
        return f"vesper:{hashlib.sha256(parts).hexdigest()}"

    def find(self, key: str, program: NodeProgram) -> Outcome | None:
        data = self._store.get(key) if key else None
        if data is None:
            return None
        try:
            outputs, path, unverifiable = msgspec.json.decode(data, type=tuple[dict[str, Any], str, tuple[str, ...]])
            if not _has_names_of(program, outputs):
                return None
            return Outcome("success", from_json(outputs), None, path, unverifiable)
        except (msgspec.MsgspecError, ValueError, ArithmeticError):
            return None

    def keep(self, key: str, program: NodeProgram, outcome: Outcome) -> None:
        is_secret = any(field.sensitive for field in program.success)
        if not key or outcome.status != "success" or (is_secret and self._store.is_shared):
            return
        data = msgspec.json.encode((to_json(outcome.outputs), outcome.path, outcome.unverifiable))
        if len(data) <= RESULT_BYTES_MAX:
            self._store.put(key, data)

    def close(self) -> None:
        self._store.close()


class MemoryResults:
    """The results of this process, the least used given up first."""

    is_shared = False

    def __init__(self, monotonic: Callable[[], float] = SystemClock.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[float, bytes]] = OrderedDict()
        self._bytes = 0

    def get(self, key: str) -> bytes | None:
        with self._lock:
            entry = self._kept.get(key)
            if entry is None:
                return None
            if entry[0] < self._monotonic():
                self._drop(key)
                return None
            self._kept.move_to_end(key)
            return entry[1]

    def put(self, key: str, value: bytes) -> None:
        with self._lock:
            if key in self._kept:
                self._drop(key)
            self._kept[key] = self._monotonic() + RESULTS_TIME_S, value
            self._bytes += len(value)
            while len(self._kept) > RESULTS_MAX or self._bytes > RESULTS_BYTES_MAX:
                self._drop(next(iter(self._kept)))

    def close(self) -> None:
        """Nothing is open."""

    def _drop(self, key: str) -> None:
        self._bytes -= len(self._kept.pop(key)[1])

    def __len__(self) -> int:
        return len(self._kept)


def _has_names_of(program: NodeProgram, outputs: Mapping[str, Any]) -> bool:
    """Whether these are all the required outputs of a program, and none that it does not declare."""
    required = {field.name for field in program.success if field.required}
    return required <= set(outputs) <= {field.name for field in program.success}


def open_results(address: str | ResultStore) -> ResultCache:
    """`memory`, or an address of Redis."""
    if not isinstance(address, str):
        return ResultCache(address)
    return ResultCache(MemoryResults() if address == "memory" else RedisResults(address))
