"""Messages of the Language Server Protocol over two streams: JSON-RPC with a header that says how long each is.

`MessageStream` sends requests and notifications, and hands answers to the callers that wait for them. Requests of a
server are answered with what says least. A message that is too long, or that is none, ends the stream: the server is
not what it should be.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any, Final

_MESSAGE_BYTES_MAX: Final = 16 << 20
_HEADERS_MAX: Final = 20
_HEADER: Final = re.compile(rb"[A-Za-z-]{1,100}")
_METHOD_NOT_FOUND: Final = -32601
_ENDED: Final = "it has ended"
# Answers to requests of a server, which may ask for settings and register what it can do later.
_ANSWERS: Final[dict[str, Callable[[Any], Any]]] = {
    "workspace/configuration": lambda params: [None for _ in (params or {}).get("items", ())],
    "workspace/workspaceFolders": lambda _params: None,
    "client/registerCapability": lambda _params: None,
    "client/unregisterCapability": lambda _params: None,
    "window/workDoneProgress/create": lambda _params: None,
    "workspace/diagnostic/refresh": lambda _params: None,
}


class StreamEnded(Exception):
    """The server has ended, or says what is no message."""


class MessageStream:
    """`told` is called with the method and the parameters of every notification."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, told: Callable[[str, Any], None]
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._told = told
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._count = 0
        self._ended: StreamEnded | None = None

    async def request(self, method: str, params: Any) -> Any:
        """The answer to a request; None where the server answers with an error."""
        self._count += 1
        number = self._count
        if self._ended is not None:
            raise self._ended
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            await self._send({"id": number, "method": method, "params": params})
            return await answer
        finally:
            self._waiting.pop(number, None)

    async def notify(self, method: str, params: Any) -> None:
        await self._send({"method": method, "params": params})

    async def _send(self, message: dict[str, Any]) -> None:
        if self._ended is not None:
            raise self._ended
        data = json.dumps({"jsonrpc": "2.0", **message}).encode()
        try:
            self._writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(data), data))
            await self._writer.drain()
        except OSError:
            raise self._end(_ENDED) from None  # its end is seen here or by the reader, whichever comes first

    # ------------------------------------------------------------ receiving
    async def receive(self) -> None:
        """Read messages until the stream ends."""
        why = _ENDED
        try:
            while True:
                await self._take(await self._message())
        except (asyncio.IncompleteReadError, OSError):
            pass
        except (ValueError, RecursionError, asyncio.LimitOverrunError):
            why = "it does not speak the Language Server Protocol"
        except StreamEnded as ended:
            why = str(ended)
        finally:
            self._end(why)

    def _end(self, why: str) -> StreamEnded:
        self._ended = self._ended or StreamEnded(why)
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(self._ended)
        return self._ended

    async def _message(self) -> Any:
        length = -1
        for _ in range(_HEADERS_MAX):
            line = (await self._reader.readuntil(b"\r\n")).strip()
            if not line and length >= 0:
                break
            name, _, value = line.partition(b":")
            if not _HEADER.fullmatch(name):
                raise ValueError("a message has headers")
            if name.lower() == b"content-length":
                length = int(value)
        if not 0 <= length <= _MESSAGE_BYTES_MAX:
            raise ValueError("a message has a length")
        return json.loads(await self._reader.readexactly(length))

    async def _take(self, message: Any) -> None:
        if not isinstance(message, dict):
            raise ValueError("a message is an object")
        method, number = message.get("method"), message.get("id")
        if not isinstance(method, str):
            answer = self._waiting.get(number) if isinstance(number, int) else None
            if answer is not None and not answer.done():
                answer.set_result(message.get("result"))
        elif number is None:
            self._told(method, message.get("params"))
        else:
            await self._answer(number, method, message.get("params"))

    async def _answer(self, number: Any, method: str, params: Any) -> None:
        known = _ANSWERS.get(method)
        if known is None:
            await self._send({"id": number, "error": {"code": _METHOD_NOT_FOUND, "message": "not supported"}})
            return
        await self._send({"id": number, "result": known(params if isinstance(params, dict) else None)})
