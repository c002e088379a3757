"""What the handlers of one server share: the kernel, the chats, the feed of events, the sums of costs.

Made with the application, opened at the first request, closed with the server. Nothing here is durable: what has to
survive is in the kernel's store.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from lyra.core.limits import (
    SERVER_FEED_BYTES_MAX,
    SERVER_FEED_EVENTS_MAX,
    SERVER_STREAM_BYTES_MAX,
    SERVER_STREAM_EVENTS_MAX,
    SERVER_STREAMS_KEPT,
)
from lyra.errors import LyraError
from lyra.observe.metrics import PrometheusMetrics, attach_metrics
from lyra.server.http.chats import Chats
from lyra.server.http.past.history import History
from lyra.server.http.past.records import Records
from lyra.server.http.problems import problem_of
from lyra.server.http.sse import LoggedEvent, SseLog
from lyra.server.http.webhooks.deliveries import Deliveries
from lyra.server.http.webhooks.incoming import IncomingHooks
from lyra.server.owners import OwnedProcesses, draw_id, owner_if_known

if TYPE_CHECKING:
    from lyra.core.clock import Timer
    from lyra.core.event import Event
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.pipelines.feeds import PipelineEvent
    from lyra.kernel.process.process import Process
    from lyra.server.http.endpoint import Endpoint
    from lyra.server.identity import Caller


T = TypeVar("T")


class HttpParts:
    """See the module."""

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
        self.whole: Any = None  # of the site of all shards of a cluster: it asks them (`server.cluster.whole`)
        self._shared: dict[Callable[[HttpParts], Any], Any] = {}

    def get_shared(self, make: Callable[[HttpParts], T]) -> T:
        """Return what the handlers of one part of the site share: made by the first of them, once for each server."""
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
                    self.get_shared(endpoint.opens)

    def drain(self) -> None:
        """End the streams without an end as the server stops; others come to theirs."""
        self.is_draining = True
        self.feed.close()


# The feed of all events of the kernel, for any number of readers: one log that they share.

_LINGER_S: Final = 60.0


class KernelFeed:
    """See the module."""

    __slots__ = ("_kernel", "_stop", "_timer", "log", "readers")

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.log = SseLog(kernel.entropy.text(8), events_max=SERVER_FEED_EVENTS_MAX, bytes_max=SERVER_FEED_BYTES_MAX)
        self.readers = 0
        self._stop: Callable[[], None] | None = None
        self._timer: Timer | None = None

    async def read(
        self, caller: Caller, event_id: str, kinds: Collection[str], pid: str = ""
    ) -> AsyncGenerator[bytes, None]:
        """Yield the events of the caller from now on, or after the one of that id; of some kinds, or of one process."""

        def is_wanted(logged: LoggedEvent) -> bool:
            of_kind = not kinds or logged.word in kinds
            return of_kind and (not pid or logged.pid == pid) and caller.owns(logged.owner)

        name, _, number = event_id.rpartition(".")
        known = name == self.log.name and number.isdigit() and len(number) < 16 and int(number) <= self.log.last
        after = int(number) if known else self.log.last
        self.readers += 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._stop is None:
            self._stop = self._kernel.on_event(self._hear)
        try:
            yield b": open\n\n"
            yield f": at {self.log.name}.{after}\n\n".encode()  # its place, for those who read several feeds as one
            async for piece in self.log.read(after, wanted=is_wanted):
                yield piece
        finally:
            self.readers -= 1
            if self.readers == 0 and self._timer is None:
                clock = self._kernel.clock
                self._timer = clock.call_at(clock.monotonic() + _LINGER_S, self._stop_listening)

    def _stop_listening(self) -> None:
        self._timer = None
        if self._stop is not None and not self.readers:
            self._stop()
            self._stop = None

    def _hear(self, event: Event) -> None:
        data = {"seq": event.seq, "time": event.time, "pid": event.pid, "kind": event.kind, "data": event.data}
        user = event.data.get("user_id")
        owner = user if isinstance(user, str) and user else owner_if_known(self._kernel, event.pid) if event.pid else ""
        self.log.append(event.kind, data, owner=owner, pid=event.pid)

    def close(self) -> None:
        """End all readers."""
        self.log.end()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._stop is not None:
            self._stop()
            self._stop = None


# Pipelines that were started over HTTP: each a durable process of its user, with a log of its events.


class PipelineRuns:
    """See the module."""

    __slots__ = ("_kernel", "_logs", "_running", "runs")

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.runs = OwnedProcesses(kernel, "run", "run")
        self._logs: dict[str, SseLog] = {}  # by id of the run, the oldest first
        self._running: dict[str, asyncio.Task[None]] = {}  # those that are followed, by id of the run

    async def start(self, caller: Caller, config: Any, envelope: Mapping[str, Any]) -> str:
        """Start a pipeline; its id. It is in the store when this returns, and what is wrong with it is raised here."""
        run_id = draw_id(self._kernel, 16)
        pid = self.runs.claim(run_id, caller)
        work = {**envelope, "user_id": caller.user_id or "anonymous"}
        events = self._kernel.execute_pipeline(config, work, pid=pid)
        first = await anext(events)
        self._follow(run_id, events, first)
        return run_id

    @property
    def is_busy(self) -> bool:
        """Whether a run is under way that waits for no person."""
        sessions = self._kernel.orchestrator.state.sessions
        processes = [self.runs.find(run_id) for run_id in self._running]
        held = [sessions.get(process.pid) for process in processes if process is not None]
        return any(session is not None and not session.envelope.interrupt_pending for session in held)

    def _follow(self, run_id: str, events: AsyncGenerator[PipelineEvent, None], first: PipelineEvent | None) -> SseLog:
        for name in [name for name, log in self._logs.items() if log.ended][:-SERVER_STREAMS_KEPT]:
            del self._logs[name]
        log = self._logs[run_id] = SseLog(
            f"{run_id}:{self._kernel.entropy.text(8)}",
            events_max=SERVER_STREAM_EVENTS_MAX,
            bytes_max=SERVER_STREAM_BYTES_MAX,
        )
        task = self._kernel.tasks.start(self._tell_all(log, events, first), name="lyra-pipeline-run")
        self._running[run_id] = task
        task.add_done_callback(lambda _task: self._running.pop(run_id, None))
        return log

    async def _tell_all(
        self, log: SseLog, events: AsyncGenerator[PipelineEvent, None], first: PipelineEvent | None
    ) -> None:
        try:
            if first is not None:
                _tell(log, first)
            async for event in events:
                _tell(log, event)
        except LyraError as error:
            problem = problem_of(error, self._kernel)
            log.append("error", {"code": problem.code, "message": problem.message})
        finally:
            log.end()

    def read(self, run_id: str, caller: Caller, event_id: str) -> AsyncGenerator[bytes, None]:
        """Return the events of a run: all that are kept, or those after the one of that id."""
        process = self.runs.get(run_id, caller)
        log = self._logs.get(run_id)
        if log is None:
            config = self._kernel.orchestrator.state.sessions[process.pid].pipeline_config
            log = self._follow(run_id, self._kernel.execute_pipeline(config, pid=process.pid), None)
        name, _, number = event_id.rpartition(".")
        known = name == log.name and number.isdigit() and len(number) < 16
        return log.read(int(number) if known else log.first - 1)

    async def stop(self, process: Process, reason: str) -> None:
        await self._kernel.orchestrator.terminate_session(process.pid, "user_cancelled", reason)


def _tell(log: SseLog, event: PipelineEvent) -> None:
    data: dict[str, Any] = {"stage": event.stage, "data": event.data}
    if event.type == "pipeline_completed":
        data["outputs"] = event.envelope.outputs
        data["terminal_reason"] = event.envelope.terminal_reason
    log.append(event.type, data)
