"""Results of nodes that declare themselves `idempotent: true`, kept so that equal inputs need no second execution.

A result is found by the digest of the node, its inputs and the ambient objects, all as one hash: inputs are never
stored. Only successes are kept, and none beyond the limits. They are kept in memory, or in Redis where the runtime is
given its address (`redis://[:PASSWORD@]HOST[:PORT][/DATABASE]`), for other processes to find; a result with a sensitive
field is not sent there. A Redis that does not answer, or gives what is no result, is as good as an empty one.
"""

from __future__ import annotations

import hashlib
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import unquote, urlsplit

import msgspec

from lyra.core.clock import SystemClock
from lyra.core.codec import canonical
from lyra.errors import ConfigError, LyraError
from lyra.vesper.values.limits import RESULT_BYTES_MAX, RESULTS_BYTES_MAX, RESULTS_MAX, RESULTS_TIME_S
from lyra.vesper.values.outcome import Outcome
from lyra.vesper.values.tagged import from_json, to_json

if TYPE_CHECKING:
    from lyra.vesper.ir.program import NodeProgram

__all__ = ["MemoryResults", "RedisResults", "ResultCache", "ResultStore", "open_results"]

_TIMEOUT_S: Final = 1.0
_PAUSE_S: Final = 5.0  # after a failure, before Redis is asked again
_LINE_MAX: Final = 1024


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

    def find(self, key: str) -> Outcome | None:
        data = self._store.get(key) if key else None
        if data is None:
            return None
        try:
            outputs, path, unverifiable = msgspec.json.decode(data, type=tuple[dict[str, Any], str, tuple[str, ...]])
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


class RedisResults:
    """Results in Redis, by the few commands that this needs."""

    is_shared = True

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme != "redis" or not parts.hostname or not (parts.path.strip("/") or "0").isdigit():
            raise ConfigError("no address of Redis", hint="redis://HOST:PORT/DATABASE", key="results")
        self._address = parts.hostname, parts.port or 6379
        self._greeting = [[b"AUTH", unquote(parts.password).encode()]] if parts.password else []
        if parts.path.strip("/"):
            self._greeting.append([b"SELECT", parts.path.strip("/").encode()])
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._resting_until = 0.0

    def get(self, key: str) -> bytes | None:
        return self._ask([b"GET", key.encode()])

    def put(self, key: str, value: bytes) -> None:
        self._ask([b"SET", key.encode(), value, b"PX", str(int(RESULTS_TIME_S * 1000)).encode()])

    def close(self) -> None:
        with self._lock:
            self._hang_up()

    def _ask(self, words: list[bytes]) -> bytes | None:
        with self._lock:
            if SystemClock.monotonic() < self._resting_until:
                return None
            try:
                return self._command(self._connected(), words)
            except (OSError, ValueError):
                self._hang_up()
                self._resting_until = SystemClock.monotonic() + _PAUSE_S
                return None

    def _connected(self) -> socket.socket:
        if self._connection is None:
            self._connection = socket.create_connection(self._address, _TIMEOUT_S)
            for words in self._greeting:
                self._command(self._connection, words)
        return self._connection

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _command(self, connection: socket.socket, words: list[bytes]) -> bytes | None:
        """Send a command in Redis's protocol; gives the answer's text. ValueError where it is an error."""
        connection.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
        with connection.makefile("rb") as answers:
            line = answers.readline(_LINE_MAX)
            if line[:1] == b"+":
                return None
            length = int(line[1:]) if line[:1] == b"$" else -2
            if length < -1 or length > RESULT_BYTES_MAX:
                raise ValueError("no answer that was expected")
            if length == -1:
                return None
            data = answers.read(length + 2)
        if len(data) != length + 2:
            raise ValueError("the answer is cut off")
        return data[:-2]


def open_results(address: str | ResultStore) -> ResultCache:
    """`memory`, or an address of Redis."""
    if not isinstance(address, str):
        return ResultCache(address)
    return ResultCache(MemoryResults() if address == "memory" else RedisResults(address))
