"""One kernel behind its faces: `Server` opens the kernel, then gRPC and HTTP, and stops them in the other order.

Stopping drains: readiness says no and both faces refuse what is new; requests and pipelines in flight have `drain_s` to
finish, while workers can still deliver what they need; then the faces close, and the kernel after them. What has not
finished by then is in the store and continues when it is opened again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Protocol

from lyra.agents.session.models import collect_keys
from lyra.core.address import Address
from lyra.core.secrets.process_keys import add_key_source
from lyra.errors import ConfigError
from lyra.observe import attach_metrics, export_as_configured
from lyra.server.settings import ServeSettings, announce, withdraw

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel

# What each face imports from the server extra.
_MODULES: Final = {
    "gRPC": ("grpc", "grpc_health", "grpc_reflection", "prometheus_client"),
    "HTTP": ("uvicorn", "prometheus_client"),
}
_CLOSE_S: Final = 1.0  # for the kernel itself, where the faces took all of the time to drain


class Face(Protocol):
    """A way to reach the kernel: it listens from `start` on, refuses what is new from `drain` on, is idle when nothing
    that it began is under way, and `stop` returns when its requests are answered."""

    async def start(self) -> Address: ...

    async def drain(self) -> None: ...

    async def wait_idle(self) -> None: ...

    async def stop(self, drain_s: float) -> None: ...


def check_libraries(settings: ServeSettings, extra: str = "server") -> None:
    """Refuse faces whose libraries are not installed, by their names and before a store is opened."""
    wanted = {"gRPC": settings.grpc, "HTTP": settings.http}
    missing = [
        name
        for name, address in wanted.items()
        if address is not None and any(find_spec(module) is None for module in _MODULES[name])
    ]
    if missing:
        text = f"serving over {' and '.join(missing)} needs the {extra} extra"
        raise ConfigError(text, hint=f"pip install 'lyra-agents[{extra}]'")


class Server:
    """A kernel that is served; an async context manager. `setup` is called with the kernel before anything listens."""

    def __init__(
        self, kernel: Kernel, settings: ServeSettings, *, setup: Callable[[Kernel], Any] | None = None
    ) -> None:
        self.kernel = kernel
        self.settings = settings
        self._setup = setup
        self._faces: list[Face] = []
        self.grpc: Address | None = None  # where it listens, once it does
        self.http: Address | None = None
        add_key_source(self, lambda server: collect_keys(server.kernel.config))

    async def __aenter__(self) -> Server:
        if self.settings.cluster:
            raise ConfigError("one kernel is no host of a cluster", hint="lyra serve --cluster", key="server.cluster")
        check_libraries(self.settings)
        await self.kernel.start()
        try:
            await self._open()
        except BaseException:
            await self.stop()
            raise
        return self

    async def _open(self) -> None:
        export_as_configured(self.kernel)
        if self._setup is not None:
            prepared = self._setup(self.kernel)
            if hasattr(prepared, "__await__"):
                await prepared
        if self.settings.grpc is not None:
            from lyra.server.grpc.face import GrpcFace

            metrics = attach_metrics(self.kernel)
            self.grpc = await self._start(GrpcFace(self.kernel, self.settings, observe=metrics.grpc_request))
        if self.settings.http is not None:
            from lyra.server.dashboard.login import problem_page
            from lyra.server.http.face import HttpFace
            from lyra.server.site import begin_listening, site

            endpoints = site(gateway=self.settings.gateway)
            face = HttpFace(self.kernel, self.settings, endpoints=endpoints, problem_page=problem_page)
            begin_listening(face.app.parts)
            self.http = await self._start(face)
            if self._is_announced:
                assert self.kernel.config is not None
                announce(self.kernel.config.store_target(), self.ready_line()["http"])

    @property
    def _is_announced(self) -> bool:
        """Whether commands that name the store have to find the server."""
        return self.http is not None and self.settings.gateway and self.kernel.config is not None

    async def _start(self, face: Face) -> Address:
        self._faces.append(face)
        return await face.start()

    def when_lost(self, stop: Callable[[], None]) -> None:
        """Have `stop` called when the store is lost: another kernel has taken it over, or it has failed."""
        self.kernel.core.after_abort.append(lambda _error: stop())
        if self.kernel.failure is not None:
            stop()

    def ready_line(self) -> dict[str, str]:
        """Return what a program that started the server is told: where to reach it."""
        scheme = "http" if self.settings.tls is None else "https"
        line = {}
        if self.grpc is not None:
            line["grpc"] = str(self.grpc)
        if self.http is not None:
            line["http"] = f"{scheme}://{self.http}"
        return line

    async def stop(self) -> None:
        """Drain the faces, then close the kernel; all of it within `drain_s`. A second call changes nothing."""
        faces, self._faces = self._faces[::-1], []  # HTTP first: load balancers ask it whether the server is ready
        clock = self.kernel.clock
        drain_s = 0.0 if self.kernel.failure is not None else self.settings.drain_s  # without its store, nothing ends
        until_s = clock.monotonic() + drain_s
        try:
            for face in faces:
                await face.drain()
            try:
                async with asyncio.timeout(drain_s):
                    await asyncio.gather(*(face.wait_idle() for face in faces))
            except TimeoutError:
                pass  # the rest continues when the store is opened again
            for face in faces:
                await face.stop(max(0.0, until_s - clock.monotonic()))
        finally:
            if self._is_announced:
                assert self.kernel.config is not None
                withdraw(self.kernel.config.store_target(), self.ready_line()["http"])
            left_s = max(_CLOSE_S, until_s - clock.monotonic())
            await self.kernel.shutdown("server stopped", drain_s=min(left_s, drain_s))

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()
