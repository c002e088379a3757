"""Results of nodes that declare themselves `idempotent: true`, kept so that equal inputs need no second execution.

A result is found by the digest of the node, its inputs and the ambient objects, all as one hash: inputs are never
stored. Only successes are kept, and none beyond the limits. They are kept in memory, or in Redis where the runtime is
given its address, for other processes to find; a result with a sensitive field is not sent there. What is kept and is
no result of the node, by its names, is not used.

Redis (`redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]`) is asked by four commands over one connection, which threads
share. Each exchange has a deadline of its own, however slowly the bytes arrive, and no answer is read beyond the
largest result. A Redis that does not answer, or answers with an error or with anything else, counts as an empty
cache: the node is executed. Lyra does not ask it again for some seconds, and the logger `lyra.vesper` gets one warning
until it works again. The connection is not encrypted; the password is in no message.
"""

from __future__ import annotations

import hashlib
import logging
import re
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
from lyra.vesper.check.derived import find_hidden_names
from lyra.vesper.values.json_values import from_json, to_json
from lyra.vesper.values.limits import (
    REDIS_PAUSE_S,
    REDIS_TIMEOUT_S,
    RESULT_BYTES_MAX,
    RESULTS_BYTES_MAX,
    RESULTS_MAX,
    RESULTS_TIME_S,
)
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
        """Return the hash under which a result is kept; empty where results of this execution are not kept."""
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
        if not key or outcome.status != "success":
            return
        if self._store.is_shared and not find_hidden_names(program).isdisjoint(outcome.outputs):
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
        """Do nothing: there is no connection."""

    def _drop(self, key: str) -> None:
        self._bytes -= len(self._kept.pop(key)[1])

    def __len__(self) -> int:
        return len(self._kept)


def _has_names_of(program: NodeProgram, outputs: Mapping[str, Any]) -> bool:
    """Return whether these are all the required outputs of a program, and none that it does not declare."""
    required = {field.name for field in program.success if field.required}
    return required <= set(outputs) <= {field.name for field in program.success}


def open_results(address: str | ResultStore) -> ResultCache:
    """Return the cache at `memory`, at an address of Redis, or in a store that is given."""
    if not isinstance(address, str):
        return ResultCache(address)
    return ResultCache(MemoryResults() if address == "memory" else RedisResults(address))


_PORT: Final = 6379
_LINE_BYTES_MAX: Final = 1024
_LENGTH: Final = re.compile(rb"\$(-1|[0-9]{1,10})")
_ERROR_CODE: Final = re.compile(rb"-([A-Z]{1,20}) ")
_CHUNK_BYTES: Final = 65_536

_log = logging.getLogger("lyra.vesper")


class RedisResults:
    """Results in Redis, by the few commands that this needs."""

    is_shared = True

    def __init__(self, url: str) -> None:
        self._address, self._greeting = _parse_url(url)
        self._lock = threading.Lock()
        self._connection: _RedisConnection | None = None
        self._resting_until = 0.0
        self._is_told = False

    def get(self, key: str) -> bytes | None:
        return self._ask([b"GET", key.encode()])

    def put(self, key: str, value: bytes) -> None:
        self._ask([b"SET", key.encode(), value, b"PX", b"%d" % int(RESULTS_TIME_S * 1000)])

    def close(self) -> None:
        with self._lock:
            self._hang_up()

    def _ask(self, words: list[bytes]) -> bytes | None:
        with self._lock:
            if SystemClock.monotonic() < self._resting_until:
                return None
            try:
                answer = self._answer(words)
            except (OSError, ValueError) as error:
                self._hang_up()
                self._resting_until = SystemClock.monotonic() + REDIS_PAUSE_S
                self._tell(error)
                return None
            self._is_told = False
            return answer

    def _answer(self, words: list[bytes]) -> bytes | None:
        """Return the answer of Redis; connect again, once, where it has closed the connection."""
        if self._connection is not None:
            try:
                return self._connection.command(words)
            except ConnectionError:
                self._hang_up()
        self._connection = _RedisConnection(self._address)
        for greeting in self._greeting:
            self._connection.command(greeting)
        return self._connection.command(words)

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _tell(self, error: Exception) -> None:
        if not self._is_told:
            self._is_told = True
            reason = error.strerror or type(error).__name__ if isinstance(error, OSError) else str(error)
            _log.warning("results of nodes are not kept in Redis at %s:%s: %s", *self._address, reason)


class _RedisConnection:
    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, REDIS_TIMEOUT_S)
        self._received = bytearray()

    def close(self) -> None:
        self._socket.close()

    def command(self, words: list[bytes]) -> bytes | None:
        """Send a command; gives the text that GET asked for. ValueError where the answer is an error, or another."""
        deadline = SystemClock.monotonic() + REDIS_TIMEOUT_S
        self._socket.settimeout(REDIS_TIMEOUT_S)
        self._socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
        line = self._line(deadline)
        if words[0] != b"GET":
            _expect(line == b"+OK", words[0], line)
            return None
        length = _LENGTH.fullmatch(line)
        _expect(length is not None and int(length[1]) <= RESULT_BYTES_MAX, words[0], line)
        return None if length is None or length[1] == b"-1" else self._text(int(length[1]), deadline)

    def _line(self, deadline: float) -> bytes:
        while (end := self._received.find(b"\r\n")) < 0:
            if len(self._received) > _LINE_BYTES_MAX:
                raise ValueError("an answer without an end")
            self._receive(deadline)
        line = bytes(self._received[:end])
        del self._received[: end + 2]
        return line

    def _text(self, length: int, deadline: float) -> bytes:
        while len(self._received) < length + 2:
            self._receive(deadline)
        data = bytes(self._received)
        self._received.clear()
        if data[length:] != b"\r\n":
            raise ValueError("an answer of another length than it says")
        return data[:length]

    def _receive(self, deadline: float) -> None:
        left = deadline - SystemClock.monotonic()
        if left <= 0:
            raise TimeoutError("no answer in time")
        self._socket.settimeout(left)
        data = self._socket.recv(_CHUNK_BYTES)
        if not data:
            raise ConnectionError("the connection was closed")
        self._received += data


def _expect(is_expected: object, command: bytes, line: bytes) -> None:
    """Refuse an answer; of its text only the code of an error is shown."""
    if not is_expected:
        code = _ERROR_CODE.match(line)
        raise ValueError(f"{command.decode()} was answered with {code[1].decode() if code else 'something else'}")


def _parse_url(url: str) -> tuple[tuple[str, int], list[list[bytes]]]:
    """Return where Redis is, and the commands that begin a connection."""
    wrong = ConfigError("no address of Redis", hint="redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]", key="results")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise wrong from None  # its text may have a part of the password
    database = parts.path.removeprefix("/")
    is_number = database.isascii() and database.isdigit()
    if parts.scheme != "redis" or not parts.hostname or (database and not is_number) or parts.query or parts.fragment:
        raise wrong
    if parts.username and not parts.password:
        raise wrong
    greeting = []
    if parts.password:
        names = [unquote(parts.username).encode()] if parts.username else []
        greeting.append([b"AUTH", *names, unquote(parts.password).encode()])
    if database:
        greeting.append([b"SELECT", database.encode()])
    return (parts.hostname, port or _PORT), greeting
