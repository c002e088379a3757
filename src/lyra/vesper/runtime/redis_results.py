"""Results in Redis: `redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]`.

Four commands of Redis's protocol (AUTH, SELECT, GET, SET) over one connection, which threads share. Each exchange has a
deadline of its own, however slowly the bytes arrive, and no answer is read beyond the largest result. A Redis that
does not answer, or answers with an error or with anything else, is as good as an empty one: the node is executed. It
is left alone for some seconds then, and the logger `lyra.vesper` is told once until it works again. The connection is
not encrypted; the password is in no message.
"""

from __future__ import annotations

import logging
import re
import socket
import threading
from typing import Final
from urllib.parse import unquote, urlsplit

from lyra.core.clock import SystemClock
from lyra.errors import ConfigError
from lyra.vesper.values.limits import REDIS_PAUSE_S, REDIS_TIMEOUT_S, RESULT_BYTES_MAX, RESULTS_TIME_S

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
        self._address, self._greeting = _parsed(url)
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
        """Redis's answer; a connection that it has closed meanwhile is made anew, once."""
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


def _parsed(url: str) -> tuple[tuple[str, int], list[list[bytes]]]:
    """Where Redis is, and the commands that begin a connection."""
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
