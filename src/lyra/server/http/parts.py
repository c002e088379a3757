"""What the handlers of one server share: the kernel, the chats, the feed of events, the sums of costs.

Made with the application, opened at the first request, closed with the server. Nothing here is durable: what has to
survive is in the kernel's store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lyra.observe.metrics import PrometheusMetrics, attach_metrics
from lyra.server.http.chats import Chats
from lyra.server.http.feed import EventFeed
from lyra.server.http.history import History
from lyra.server.http.pipeline_runs import PipelineRuns
from lyra.server.http.records import Records

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel

__all__ = ["HttpParts"]


class HttpParts:
    """See the module."""

    __slots__ = ("chats", "feed", "history", "is_draining", "is_open", "kernel", "metrics", "pipelines", "records")

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.metrics: PrometheusMetrics | None = None
        self.chats = Chats(kernel)
        self.feed = EventFeed(kernel)
        self.history = History(kernel)
        self.pipelines = PipelineRuns(kernel)
        self.records = Records()
        self.is_open = False
        self.is_draining = False

    def open(self) -> None:
        """Begin to listen to the kernel; a second call changes nothing."""
        if not self.is_open:
            self.is_open = True
            self.records.attach(self.kernel)
            self.history.attach()
            self.metrics = attach_metrics(self.kernel)
            self.chats.restore()
            self.pipelines.runs.restore()

    def drain(self) -> None:
        """The server stops: streams without an end are ended, others come to theirs."""
        self.is_draining = True
        self.feed.close()
