"""What the handlers of one server share: the kernel, the chats, the feed of events, the sums of costs.

Made with the application, opened at the first request, closed with the server. Nothing here is durable: what has to
survive is in the kernel's store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar

from lyra.observe.metrics import PrometheusMetrics, attach_metrics
from lyra.server.http.chats import Chats
from lyra.server.http.feed import KernelFeed
from lyra.server.http.past.history import History
from lyra.server.http.past.records import Records
from lyra.server.http.pipeline_runs import PipelineRuns
from lyra.server.http.webhooks.deliveries import Deliveries
from lyra.server.http.webhooks.incoming import IncomingHooks

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.server.http.endpoint import Endpoint


T = TypeVar("T")


class HttpParts:
    """See the module."""

    __slots__ = (
        "_shared",
        "chats",
        "deliveries",
        "endpoints",
        "feed",
        "history",
        "hooks",
        "is_draining",
        "is_open",
        "kernel",
        "metrics",
        "pipelines",
        "records",
    )

    def __init__(
        self,
        kernel: Kernel,
        endpoints: tuple[Endpoint, ...],
        *,
        webhook_key: bytes | None = None,
        inside: Collection[str] = (),
    ) -> None:
        self.kernel = kernel
        self.endpoints = endpoints  # the whole table
        self.metrics: PrometheusMetrics | None = None
        self.chats = Chats(kernel)
        self.feed = KernelFeed(kernel)
        self.history = History(kernel)
        self.pipelines = PipelineRuns(kernel)
        self.records = Records()
        self.deliveries = Deliveries(kernel, key=webhook_key, inside=inside)
        self.hooks = IncomingHooks(kernel, self.chats, self.deliveries)
        self.is_open = False
        self.is_draining = False
        self._shared: dict[Callable[[HttpParts], Any], Any] = {}

    def shared(self, make: Callable[[HttpParts], T]) -> T:
        """What the handlers of one part of the site share: made by the first of them, once for each server."""
        if make not in self._shared:
            self._shared[make] = make(self)
        part: T = self._shared[make]
        return part

    def open(self) -> None:
        """Begin to listen to the kernel; a second call changes nothing."""
        if not self.is_open:
            self.is_open = True
            self.records.attach(self.kernel)
            self.history.attach()
            self.metrics = attach_metrics(self.kernel)
            self.chats.restore()
            self.pipelines.runs.restore()
            self.deliveries.open()
            self.hooks.open()
            for endpoint in self.endpoints:
                if endpoint.opens is not None:
                    self.shared(endpoint.opens)

    def drain(self) -> None:
        """The server stops: streams without an end are ended, others come to theirs."""
        self.is_draining = True
        self.feed.close()
