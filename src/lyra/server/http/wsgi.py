"""The HTTP face of a kernel for WSGI: Flask, Django and other applications whose requests are threads.

    flask_app.wsgi_app = DispatcherMiddleware(flask_app.wsgi_app, {"/lyra": lyra.server.wsgi(kernel)})

The kernel runs on a loop in its own thread, which is started at the first request and stopped by `close`, at the
latest when the program ends. A request's thread hands the request to that loop and gives the answer on as it comes. A
store has one owner: run one process with many threads, not several processes.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from lyra.core.limits import SERVER_MESSAGE_BYTES_MAX
from lyra.server.http.app import HttpApp, make_app

if TYPE_CHECKING:
    from concurrent.futures import Future

    from lyra.kernel.kernel import Kernel


_PIECES_MAX: Final = 64  # of an answer that wait for a slow client
_OF_THE_CONNECTION: Final = frozenset({"connection", "keep-alive", "transfer-encoding"})  # the WSGI server's own
_PLAIN_NAMES: Final = {"CONTENT_TYPE": b"content-type", "CONTENT_LENGTH": b"content-length"}

Environ = Mapping[str, Any]
StartResponse = Callable[..., Any]
Message = MutableMapping[str, Any]


class WsgiApp:
    """See the module. The options are those of `make_app`."""

    def __init__(self, kernel: Kernel, **options: Any) -> None:
        self._kernel = kernel
        self._options = options
        self._body_max: int = options.get("message_bytes_max", SERVER_MESSAGE_BYTES_MAX)
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._app: HttpApp | None = None
        self._thread: threading.Thread | None = None

    def __call__(self, environ: Environ, start_response: StartResponse) -> _Exchange:
        loop, app = self._open()
        exchange = _Exchange(loop, app, _scope_of(environ), _body_of(environ, self._body_max))
        status, headers = exchange.head()
        start_response(f"{status} {_phrase(status)}", headers)
        return exchange

    def _open(self) -> tuple[asyncio.AbstractEventLoop, HttpApp]:
        with self._lock:
            if self._loop is None or self._app is None:
                loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=loop.run_forever, name="lyra-wsgi", daemon=True)
                self._thread.start()
                try:
                    asyncio.run_coroutine_threadsafe(self._kernel.start(), loop).result()
                    self._app = make_app(self._kernel, **self._options)
                except BaseException:
                    self._end_loop(loop)
                    raise
                self._loop = loop
                atexit.register(self.close)
            return self._loop, self._app

    def close(self) -> None:
        """Close the kernel and end its thread; a second call changes nothing."""
        with self._lock:
            loop, self._loop = self._loop, None
            if loop is None:
                return
            atexit.unregister(self.close)
            asyncio.run_coroutine_threadsafe(self._kernel.shutdown("the application ended"), loop).result()
            self._end_loop(loop)

    def _end_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_soon_threadsafe(loop.stop)
        if self._thread is not None:
            self._thread.join()
        loop.close()


class _Exchange:
    """One request and its answer: an iterator of the answer's pieces, which a WSGI server closes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, app: HttpApp, scope: dict[str, Any], body: bytes) -> None:
        self._loop = loop
        self._app = app
        self._scope = scope
        self._body: bytes | None = body
        self._messages: asyncio.Queue[Message | None] = asyncio.Queue(_PIECES_MAX)
        self._left = asyncio.Event()
        self._answering: Future[None] = asyncio.run_coroutine_threadsafe(self._answer(), loop)
        self._ended = False

    async def _answer(self) -> None:
        try:
            await self._app(self._scope, self._receive, self._send)
        finally:
            self._left.set()
            await self._messages.put(None)

    async def _send(self, message: Message) -> None:
        await self._messages.put(message)

    async def _receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    def _next_message(self) -> Message | None:
        return asyncio.run_coroutine_threadsafe(self._messages.get(), self._loop).result()

    def head(self) -> tuple[int, list[tuple[str, str]]]:
        """Return the status and the headers; waits for them."""
        message = self._next_message()
        if message is None:
            self._ended = True
            self._answering.result()  # raises what went wrong
            return 500, []
        lines = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"]]
        return message["status"], [(name, value) for name, value in lines if name not in _OF_THE_CONNECTION]

    def __iter__(self) -> Iterator[bytes]:
        while not self._ended:
            message = self._next_message()
            if message is None:
                self._ended = True
                return
            if message.get("body"):
                yield message["body"]
            self._ended = not message.get("more_body", False)

    def close(self) -> None:
        """Close the exchange: the answer was sent, or the client left."""
        self._loop.call_soon_threadsafe(self._left.set)
        if not self._answering.done():
            self._answering.cancel()


def _scope_of(environ: Environ) -> dict[str, Any]:
    root, path = (environ.get(name, "").encode("latin-1") for name in ("SCRIPT_NAME", "PATH_INFO"))
    headers = [
        (_PLAIN_NAMES.get(name) or name[5:].replace("_", "-").lower().encode("latin-1"), str(value).encode("latin-1"))
        for name, value in environ.items()
        if value != "" and (name.startswith("HTTP_") or name in _PLAIN_NAMES)
    ]
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": environ["REQUEST_METHOD"],
        "scheme": environ.get("wsgi.url_scheme", "http"),
        "path": (root + path).decode("utf-8", "replace"),
        "raw_path": quote(root + path).encode("ascii"),
        "root_path": quote(root),
        "query_string": environ.get("QUERY_STRING", "").encode("latin-1"),
        "headers": headers,
        "client": (environ.get("REMOTE_ADDR", ""), 0),
        "server": (environ.get("SERVER_NAME", ""), int(environ.get("SERVER_PORT") or 0)),
    }


def _body_of(environ: Environ, most: int) -> bytes:
    """Return the body, and of one that is too large one byte more than is taken, so that it is refused."""
    length = str(environ.get("CONTENT_LENGTH") or "")
    if length.isdigit():
        return bytes(environ["wsgi.input"].read(min(int(length), most + 1)))
    if environ.get("wsgi.input_terminated") or environ.get("HTTP_TRANSFER_ENCODING"):
        return bytes(environ["wsgi.input"].read(most + 1))
    return b""


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"
