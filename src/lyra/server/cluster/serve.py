"""ClusterServer: a host of a cluster with the faces of a server.

    async with ClusterServer(config, settings, url) as server:
        print(server.ready_line())

Stopping drains: the faces refuse what is new and finish what is in flight, and then the other hosts take the shards.
Meanwhile the sites answer what other hosts pass on.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from lyra.cluster.joining import join
from lyra.cluster.peers import make_handler
from lyra.core.clock import SystemClock
from lyra.errors import ConfigError
from lyra.server.cluster.front import Front
from lyra.server.cluster.reach import Reach
from lyra.server.cluster.sites import Sites
from lyra.server.http.face import HttpListener
from lyra.server.settings import announce, withdraw

if TYPE_CHECKING:
    from lyra.cluster.host import Host, SetUp
    from lyra.config import Config
    from lyra.core.address import Address
    from lyra.server.serve import Face
    from lyra.server.settings import ServeSettings


class ClusterServer:
    """See the module. `resources`, `shards` and `lease_s` are those of `cluster.joining.join`."""

    def __init__(
        self,
        config: Config,
        settings: ServeSettings,
        url: str,
        *,
        setup: SetUp | None = None,
        resources: Mapping[str, float] | None = None,
        shards: int | None = None,
        lease_s: float | None = None,
    ) -> None:
        if settings.http is None:
            raise ConfigError("a server of a cluster has HTTP", hint="give --http HOST:PORT", key="server.http")
        self.settings = settings
        self.grpc: Address | None = None  # where it listens, once it does
        self.http: Address | None = None
        self._sites = Sites(settings, setup)
        self._join = join(config, url, self._sites, resources=resources, shards=shards, lease_s=lease_s)
        self._url = url
        self._has_tls = config.cluster.tls_ca is not None
        self._stack = AsyncExitStack()
        self._faces: list[Face] = []
        self.host: Host

    async def __aenter__(self) -> ClusterServer:
        try:
            self.host = await self._stack.enter_async_context(self._join)
            self._stack.push_async_callback(self._sites.tasks.close)
            reach = Reach(self.host, self._sites)
            if self.settings.grpc is not None:
                from lyra.server.cluster.grpc_front import GrpcFront

                peers = None  # where hosts prove themselves with certificates: this port asks its clients for none
                if not self._has_tls:
                    peers = make_handler(self.host.answer, self.host.directory.secret, self._sites.stream)
                self.grpc = await self._start(GrpcFront(reach, self.settings, peers))
            front = Front(reach, self.settings)
            self.http = await self._start(HttpListener(front, self.settings, self._sites.tasks, SystemClock()))
            if self.settings.gateway:
                announce(self._url, self.ready_line()["http"])
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def _start(self, face: Face) -> Address:
        self._faces.insert(0, face)  # HTTP drains first: load balancers ask it whether the server is ready
        return await face.start()

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()

    def ready_line(self) -> dict[str, Any]:
        """Return what a program that started the server is told: which host it is, and where to reach it."""
        scheme = "http" if self.settings.tls is None else "https"
        line = {"host": self.host.name, "http": f"{scheme}://{self.http}", "peers": self.host.row.address}
        return line if self.grpc is None else {**line, "grpc": str(self.grpc)}

    async def stop(self) -> None:
        """Drain the faces, give the shards away, leave the cluster. A second call changes nothing."""
        faces, self._faces = self._faces, []
        if not faces:
            return
        if self.settings.gateway:
            withdraw(self._url, self.ready_line()["http"])
        clock = SystemClock()
        until_s = clock.monotonic() + self.settings.drain_s
        try:
            for face in faces:
                await face.drain()
            for face in faces:
                await face.stop(max(0.0, until_s - clock.monotonic()))
            await self.host.leave()
        finally:
            await self._stack.aclose()
