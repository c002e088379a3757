"""Pipelines that were started over HTTP: each a durable process of its user, with a log of its events.

The run does not depend on a reader. After a restart it goes on when its kernel knows its agents; a reader then gets
where it stands, and what comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any

from lyra.core.limits import SERVER_STREAM_BYTES_MAX, SERVER_STREAM_EVENTS_MAX, SERVER_STREAMS_KEPT
from lyra.errors import LyraError
from lyra.server.http.owned import OwnedProcesses
from lyra.server.http.problems import problem_of
from lyra.server.http.sse import SseLog

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.pipelines.events import PipelineEvent
    from lyra.kernel.process.process import Process
    from lyra.server.identity import Caller


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
        run_id = self._kernel.entropy.text(16)
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
        """The events of a run: all that are kept, or those after the one of that id."""
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
