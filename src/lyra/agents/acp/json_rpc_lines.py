"""JsonRpcLines: JSON-RPC messages as lines of JSON, for the connection of the protocol's SDK.

What the other side writes is checked before the SDK sees it. A line that is no JSON, or too long, is answered with a
parse error; JSON that is no request, notification or response is answered as an invalid request. The conversation goes
on after either. Half of a surrogate pair, which JSON can escape and no journal can hold, becomes the replacement
character. Knows nothing of the protocol's methods; reads and writes through what it is given.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any, Final, NoReturn, Protocol

LINE_BYTES_MAX: Final = 50 * 1024 * 1024  # a prompt may have images
_PARSE_ERROR: Final = (-32700, "Parse error")
_INVALID_REQUEST: Final = (-32600, "Invalid request")
_INTERNAL_ERROR: Final = -32603
_HALF_PAIR: Final = re.compile("[\ud800-\udfff]")


class LineOutput(Protocol):
    async def put(self, line: bytes) -> None: ...

    async def drain(self) -> None: ...


class InvalidLine(Exception):
    """A line that is no message. `id` is that of the request, as far as there is one."""

    def __init__(self, error: tuple[int, str], reason: str, request_id: str | float | None = None) -> None:
        super().__init__(reason)
        self.code, self.words = error
        self.reason = reason
        self.id = request_id

    def response(self) -> dict[str, Any]:
        error = {"code": self.code, "message": f"{self.words}: {self.reason}", "data": {"reason": self.reason}}
        return {"jsonrpc": "2.0", "id": self.id, "error": error}


class JsonRpcLines:
    """Messages from `lines` and to `output`. A line longer than LINE_BYTES_MAX may come cut off."""

    def __init__(self, lines: AsyncIterator[bytes], output: LineOutput) -> None:
        self._lines = lines
        self._output = output

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message; None at the end of the input."""
        async for line in self._lines:
            if not line.strip():
                continue
            try:
                return read_message(line)
            except InvalidLine as invalid:
                await self.send(invalid.response())
        return None

    async def send(self, message: dict[str, Any]) -> None:
        # Errors of the SDK's checks may hold objects that JSON has no form for; a request is answered all the same.
        await self._output.put(json.dumps(message, separators=(",", ":"), default=str).encode() + b"\n")

    async def close(self) -> None:
        await self._output.drain()


def read_message(line: bytes) -> dict[str, Any]:
    """Return the message of one line; InvalidLine says what is wrong with it."""
    if len(line) > LINE_BYTES_MAX:
        raise InvalidLine(_PARSE_ERROR, f"the line is longer than {LINE_BYTES_MAX} bytes")
    try:
        message = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidLine(_PARSE_ERROR, f"the line is not JSON: {error}") from None
    if b"\\u" in line:
        message = _replace_half_pairs(message)
    if not isinstance(message, dict):
        raise InvalidLine(_INVALID_REQUEST, "a message is a JSON object; batches are not supported")
    return _check_message(message)


def _replace_half_pairs(value: Any) -> Any:
    if isinstance(value, str):
        return _HALF_PAIR.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, list):
        return [_replace_half_pairs(item) for item in value]
    if isinstance(value, dict):
        return {_replace_half_pairs(key): _replace_half_pairs(item) for key, item in value.items()}
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no value of JSON")


def _check_message(message: dict[str, Any]) -> dict[str, Any]:
    request_id = message.get("id")
    if isinstance(request_id, bool) or not isinstance(request_id, (str, int, float, type(None))):
        raise InvalidLine(_INVALID_REQUEST, "the id is a string, a number or null")
    if message.get("jsonrpc") != "2.0":
        raise InvalidLine(_INVALID_REQUEST, 'jsonrpc is "2.0"', request_id)
    if "method" in message:
        if not isinstance(message["method"], str):
            raise InvalidLine(_INVALID_REQUEST, "the method is a string", request_id)
        if not isinstance(message.get("params"), (dict, list, type(None))):
            raise InvalidLine(_INVALID_REQUEST, "params is an object or an array", request_id)
        return message
    if "result" not in message and "error" not in message:
        raise InvalidLine(_INVALID_REQUEST, "a message has a method, a result or an error", request_id)
    error = message.get("error")
    if error is None:
        return message
    given = error if isinstance(error, dict) else {"message": str(error)}
    code = given.get("code")
    whole = isinstance(code, int) and not isinstance(code, bool)
    words = str(given.get("message", "Error"))
    return {**message, "error": {**given, "code": code if whole else _INTERNAL_ERROR, "message": words}}
