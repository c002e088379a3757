"""HttpFace: the HTTP application on a socket, served by uvicorn in the loop of the kernel.

`start` listens and gives the address. From `drain` on it refuses what is new and says that it is not ready; `stop`
waits for the requests and answers in flight, ends the streams that have no end, and closes. TLS and the certificates of
clients are as the settings say.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

from lyra.core.address import Address
from lyra.core.limits import SERVER_KEEP_ALIVE_S
from lyra.errors import ConfigError
from lyra.server.http.app import ConnectionLimits, HttpApp, make_app, make_guarded_protocol
from lyra.server.http.guard import LOOPBACK_HOSTS

if TYPE_CHECKING:
    from lyra.core.clock import Clock
    from lyra.kernel.base.tasks import Tasks
    from lyra.kernel.kernel import Kernel
    from lyra.server.settings import ServeSettings


_TICK_S: Final = 1.0
_LOOK_S: Final = 0.02  # between two looks whether a draining server is idle
_FLUSH_S: Final = 0.2  # for the last answers to reach their clients, at least


class ServedApp(Protocol):
    """What a listener serves: an ASGI application that begins when it listens, and drains."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None: ...

    @property
    def is_busy(self) -> bool:
        """Whether something is under way that gets its time when the server stops."""
        ...

    def open(self) -> None: ...

    def drain(self) -> None:
        """Refuse what is new and end the streams that have no end; a second call changes nothing."""
        ...


class HttpListener:
    """An application on a socket."""

    def __init__(
        self,
        app: ServedApp,
        settings: ServeSettings,
        tasks: Tasks,
        clock: Clock,
        *,
        limits: ConnectionLimits | None = None,
    ) -> None:
        assert settings.http is not None
        self._app = app
        self._settings = settings
        self._address = settings.http
        self._tasks = tasks
        self._clock = clock
        self._limits = limits or ConnectionLimits(settings.connections_max)
        self._server: Any = None
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> Address:
        uvicorn = _uvicorn()
        listener = await _listener(self._address)
        config = uvicorn.Config(
            self._app,
            http=make_guarded_protocol(self._limits),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=SERVER_KEEP_ALIVE_S,
            **self._tls_options(),
        )
        try:
            config.load()
        except (OSError, ssl.SSLError, ValueError) as error:
            listener.close()
            raise ConfigError(f"the TLS files cannot be used: {error}", hint="see [server] tls_cert, tls_key") from None
        self._server = _server_class()(config)
        self._app.open()
        self._serving = self._tasks.start(self._server.serve(sockets=[listener]), name="lyra-http")
        while not self._server.started:
            if self._serving.done():
                self._serving.result()
            await asyncio.sleep(0)
        host, port = listener.getsockname()[:2]
        return Address(host if self._address.host != "localhost" else "localhost", port)

    def _tls_options(self) -> dict[str, Any]:
        tls = self._settings.tls
        if tls is None:
            return {}
        options: dict[str, Any] = {"ssl_certfile": tls.cert, "ssl_keyfile": tls.key}
        if tls.client_ca is not None:
            options |= {"ssl_ca_certs": tls.client_ca, "ssl_cert_reqs": ssl.CERT_REQUIRED}
        return options

    async def stop(self, drain_s: float) -> None:
        """Take nothing new, let what is in flight finish within `drain_s`; a second call changes nothing."""
        server, serving = self._server, self._serving
        if server is None or serving is None:
            return
        self._server = self._serving = None
        self._app.drain()
        until_s = self._clock.monotonic() + drain_s
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(drain_s):
                await self.wait_idle()
        server.stop(max(_FLUSH_S, until_s - self._clock.monotonic()))
        await asyncio.wait((serving,))
        for connection in list(server.server_state.connections):
            connection.transport.abort()

    async def drain(self) -> None:
        """Refuse what is new and end the streams that have no end; a second call changes nothing."""
        self._app.drain()

    async def wait_idle(self) -> None:
        """Wait until no request is being answered, and no answer or pipeline is on its way."""
        while self._app.is_busy:  # noqa: ASYNC110 - what it waits for has no event in common
            await asyncio.sleep(_LOOK_S)


class HttpFace(HttpListener):
    """The application of one kernel on a socket; see the module."""

    def __init__(
        self, kernel: Kernel, settings: ServeSettings, *, limits: ConnectionLimits | None = None, **options: Any
    ) -> None:
        """`options` are those of `lyra.server.app` that the settings do not have."""
        assert settings.http is not None
        self.app: HttpApp = make_app(
            kernel,
            tokens=settings.tokens,
            hosts={*LOOPBACK_HOSTS, settings.http.host, *settings.hosts},
            message_bytes_max=settings.message_bytes_max,
            requests_per_minute=settings.requests_per_minute,
            **options,
        )
        super().__init__(self.app, settings, kernel.tasks, kernel.clock, limits=limits)

    async def start(self) -> Address:
        address = await super().start()
        self.app.parts.records.read_ahead()
        return address


def _uvicorn() -> Any:
    try:
        import uvicorn
    except ImportError:
        raise ConfigError(
            "HTTP needs uvicorn, which is not installed", hint="pip install 'lyra-agents[server]'"
        ) from None
    return uvicorn


def _server_class() -> Any:
    """uvicorn's server without its own handling of signals: `lyra serve`, or the application, has its own. It wakes
    once a second, for the date in its answers, and stops when it is told to, not at the next tick."""
    import uvicorn

    class QuietServer(uvicorn.Server):
        def __init__(self, config: uvicorn.Config) -> None:
            super().__init__(config)
            self.stopped = asyncio.Event()

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

        async def main_loop(self) -> None:
            while not await self.on_tick(0):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_TICK_S):
                        await self.stopped.wait()

        def stop(self, drain_s: float) -> None:
            self.config.timeout_graceful_shutdown = drain_s  # type: ignore[assignment]  # it takes any number
            self.should_exit = True
            self.stopped.set()

    return QuietServer


async def _listener(address: Address) -> socket.socket:
    """Return a socket that is bound to the address; ConfigError where that is not possible."""
    loop = asyncio.get_running_loop()
    listener: socket.socket | None = None
    try:
        places = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, place = places[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setblocking(False)
        listener.bind(place)
    except OSError as error:
        if listener is not None:
            listener.close()
        raise ConfigError(
            f"cannot listen on {address}: {error.strerror or error}", hint="is another server there? port 0 takes any"
        ) from None
    return listener
