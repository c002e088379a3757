"""The sites of a host: for each shard that is open here the application of its kernel.

A site is made when its shard opens, and is found until its shard begins to close: from then on requests go to the host
that has the shard next. What the site has begun ends with its kernel, or goes on there.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from lyra.agents.session.models import collect_keys
from lyra.cluster.calls import elsewhere
from lyra.cluster.joining import ShardHooks
from lyra.cluster.peers import refuse_stream
from lyra.core.secrets.process_keys import add_key_source
from lyra.kernel.base.tasks import Tasks
from lyra.observe import export_as_configured
from lyra.server.cluster.forwarding import SentRequest, is_of_all, read_site
from lyra.server.cluster.whole import SOURCES, Whole, make_whole
from lyra.server.dashboard.login import problem_page
from lyra.server.grpc.shared_work import open_desk
from lyra.server.http.app import HttpApp, make_app
from lyra.server.http.guard import ANY_HOST
from lyra.server.site import begin_listening, site

if TYPE_CHECKING:
    from lyra.cluster.directory import Directory
    from lyra.cluster.host import Host, SetUp
    from lyra.errors import Conflict
    from lyra.kernel.kernel import Kernel
    from lyra.server.cluster.grpc_site import GrpcSite
    from lyra.server.settings import ServeSettings

HTTP_CALL: Final = "http"
GRPC_CALL: Final = "grpc"
_IDLE_S: Final = 5.0  # that requests to a shard which is about to move get to be answered before its kernel drains
_LOOK_S: Final = 0.02


class Sites(ShardHooks):
    """See the module."""

    def __init__(self, settings: ServeSettings, setup: SetUp | None = None) -> None:
        super().__init__(setup)
        self.settings = settings
        self.endpoints = (*site(gateway=settings.gateway), *SOURCES)
        self.tasks = Tasks()
        self._open: dict[str, HttpApp] = {}  # by shard
        self._grpc: dict[str, GrpcSite] = {}
        self._open_whole: dict[str, HttpApp] = {}  # the site of all shards, by the shard whose kernel it uses
        self.whole = Whole()
        self._host: Host | None = None
        self._webhook_key = b""

    def bind(self, host: Host, directory: Directory) -> None:
        self._host = host
        # The same on every host: a receiver knows the signature of a webhook also after its shard has moved.
        secret = directory.secret.reveal().encode()
        self._webhook_key = hashlib.sha256(b"lyra webhooks of a cluster\0" + secret).digest()

    def find(self, shard: str, *, is_whole: bool = False) -> HttpApp | None:
        """Return the site of a shard that is open here, or that of all shards beside it; None where it is not, or about
        to close."""
        return (self._open_whole if is_whole else self._open).get(shard)

    def find_grpc(self, shard: str) -> GrpcSite | None:
        """Return the services of a shard that is open here; None where it is not, or gRPC is not served."""
        return self._grpc.get(shard)

    @property
    def is_busy(self) -> bool:
        """Whether a site answers a request."""
        return any(app.is_answering for app in (*self._open.values(), *self._open_whole.values()))

    def list_open(self) -> list[str]:
        return list(self._open)

    # ------------------------------------------------------------------ shards come and go

    async def open(self, kernel: Kernel) -> None:
        export_as_configured(kernel)
        add_key_source(kernel, lambda kernel: collect_keys(kernel.config))
        open_desk(kernel)
        await super().open(kernel)
        settings = self.settings
        app = make_app(
            kernel,
            tokens=settings.tokens,
            hosts={ANY_HOST},  # the front knows under which names it is reached
            message_bytes_max=settings.message_bytes_max,
            requests_per_minute=settings.requests_per_minute,
            webhook_key=self._webhook_key,
            endpoints=self.endpoints,
            problem_page=problem_page,
        )
        begin_listening(app.parts)
        app.open()
        app.parts.records.read_ahead()
        shard = kernel.core.remote.shard
        if settings.grpc is not None:
            from lyra.server.cluster.grpc_site import GrpcSite

            self._grpc[shard] = GrpcSite(kernel, settings)
        self._open[shard] = app
        self._open_whole[shard] = make_whole(app, self.whole)

    async def close(self, kernel: Kernel, drain_s: float) -> None:
        shard = kernel.core.remote.shard
        app, services = self._open.pop(shard, None), self._grpc.pop(shard, None)
        self._open_whole.pop(shard, None)
        if services is not None:
            await services.close()
        if app is None:
            return
        app.drain()
        until_s = kernel.clock.monotonic() + min(drain_s, _IDLE_S)
        while app.is_answering and kernel.clock.monotonic() < until_s:  # noqa: ASYNC110 - no event tells the last
            await asyncio.sleep(_LOOK_S)

    # ------------------------------------------------------------------ requests that other hosts pass on

    async def stream(self, method: str, data: Any) -> AsyncGenerator[Any, None]:
        read = {HTTP_CALL: self._read_http, GRPC_CALL: self._read_grpc}.get(method)
        if read is None:
            refuse_stream(method, data)
        async with aclosing(read(data["shard"], data)) as pieces:
            async for piece in pieces:
                yield piece

    async def _read_http(self, shard: str, data: Any) -> AsyncGenerator[Any, None]:
        app = self.find(shard, is_whole=is_of_all(data["scope"]))
        if app is None:
            raise self._elsewhere(shard)
        async with aclosing(read_site(app, SentRequest.from_data(data), self.tasks)) as pieces:
            async for piece in pieces:
                yield piece

    async def _read_grpc(self, shard: str, data: Any) -> AsyncGenerator[Any, None]:
        """Yield the messages of a call, or the status of one that failed."""
        from lyra.server.cluster.grpc_site import CallRefused

        services = self.find_grpc(shard)
        if services is None:
            raise self._elsewhere(shard)
        call = services.read(data["method"], bytes(data["data"]), data["metadata"], data["peer"])
        try:
            async with aclosing(call) as messages:
                async for message in messages:
                    yield message
        except CallRefused as refused:
            yield refused.to_data()

    def _elsewhere(self, shard: str) -> Conflict:
        assert self._host is not None
        return elsewhere(self._host, shard)
