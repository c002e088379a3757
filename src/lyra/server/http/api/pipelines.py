"""Pipelines: start one, see where it stands, follow it, take its result, end it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Annotated, Any, Final

import msgspec

from lyra.core.codec import to_plain
from lyra.errors import InvalidTransition
from lyra.kernel.process.process import Process
from lyra.server.http.directory import refuse_if_draining
from lyra.server.http.endpoint import Endpoint, HttpCall, RequestBody, RequestQuery, Streamed
from lyra.server.owners import owner_of


class StartBody(RequestBody):
    """`pipeline` is a declaration as in a file; `input` is the text that it works on, `metadata` goes with it."""

    pipeline: dict[str, Any]
    input: str = ""
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)


class RunStarted(msgspec.Struct):
    run_id: str
    status: str = "running"


class PipelineRunView(msgspec.Struct, kw_only=True):
    """A run; `status` is running, waiting (for an answer), completed, bounds_exceeded or failed."""

    run_id: str
    pid: str
    pipeline: str
    user_id: str
    status: str
    current_stage: str
    active_stages: list[str]
    stage_visits: dict[str, int]
    terminal_reason: str | None
    created_at: float
    last_activity_at: float


class PipelineRunList(msgspec.Struct):
    runs: list[PipelineRunView]


class PipelineResult(msgspec.Struct, kw_only=True):
    """What each stage gave, by the key of its output."""

    run_id: str
    status: str
    terminal_reason: str | None
    outputs: dict[str, Any]
    errors: list[dict[str, Any]]


class WaitQuery(RequestQuery):
    """Seconds to wait for the end; without it, a run that has not ended is 409."""

    wait_s: Annotated[float, msgspec.Meta(ge=0, le=60)] = 0.0


def _view(call: HttpCall, run_id: str, process: Process) -> PipelineRunView:
    state = call.kernel.get_orchestration_state(process.pid)
    reason = state.terminal_reason
    status = "waiting" if state.interrupt_pending else "running"
    if state.terminated:
        status = "completed" if reason is None else reason.outcome()
    return PipelineRunView(
        run_id=run_id,
        pid=process.pid,
        pipeline=state.pipeline,
        user_id=owner_of(call.kernel, process.pid),
        status=status,
        current_stage=state.current_stage,
        active_stages=state.active_stages,
        stage_visits=state.stage_visits,
        terminal_reason=None if reason is None else reason.value,
        created_at=state.created_at,
        last_activity_at=state.last_activity_at,
    )


async def start(call: HttpCall) -> RunStarted:
    refuse_if_draining(call.parts.is_draining)
    body: StartBody = call.body
    envelope = {"raw_input": body.input, "metadata": body.metadata}
    return RunStarted(await call.parts.pipelines.start(call.caller, body.pipeline, envelope))


async def list_runs(call: HttpCall) -> PipelineRunList:
    return PipelineRunList(
        [_view(call, name, process) for name, process in call.parts.pipelines.runs.list_for(call.caller)]
    )


async def get_run(call: HttpCall) -> PipelineRunView:
    run_id = call.path["run_id"]
    return _view(call, run_id, call.parts.pipelines.runs.get(run_id, call.caller))


async def follow(call: HttpCall) -> Streamed:
    event_id = call.headers.get("last-event-id", "")
    return Streamed(call.parts.pipelines.read(call.path["run_id"], call.caller, event_id))


async def get_result(call: HttpCall) -> PipelineResult:
    run_id = call.path["run_id"]
    process = call.parts.pipelines.runs.get(run_id, call.caller)
    wait_s: float = call.query.wait_s
    if process.alive and wait_s:
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await call.kernel.process(process.pid).wait()
    if process.alive:
        raise InvalidTransition("the run has not ended", hint="ask with wait_s, or follow its events")
    view = _view(call, run_id, process)
    envelope = call.kernel.get_envelope(process.pid)
    return PipelineResult(
        run_id=run_id,
        status=view.status,
        terminal_reason=view.terminal_reason,
        outputs=msgspec.to_builtins(envelope.outputs, enc_hook=to_plain),
        errors=msgspec.to_builtins(envelope.errors, enc_hook=to_plain),
    )


async def end(call: HttpCall) -> PipelineRunView:
    run_id = call.path["run_id"]
    process = call.parts.pipelines.runs.get(run_id, call.caller)
    await call.parts.pipelines.stop(process, "cancelled by its user")
    return _view(call, run_id, process)


_PATH: Final = "/api/pipelines/{run_id}"

ENDPOINTS: Final = (
    Endpoint(
        "pipelines.start",
        "POST",
        "/api/pipelines",
        "Start a pipeline with the agents that the kernel knows",
        start,
        body=StartBody,
        answer=RunStarted,
        status=202,
        is_work=True,
        statuses=(409,),
    ),
    Endpoint(
        "pipelines.list",
        "GET",
        "/api/pipelines",
        "The pipelines that the caller has started",
        list_runs,
        answer=PipelineRunList,
    ),
    Endpoint(
        "pipelines.get", "GET", _PATH, "Where a pipeline stands", get_run, answer=PipelineRunView, statuses=(404,)
    ),
    Endpoint("pipelines.end", "DELETE", _PATH, "End a pipeline", end, answer=PipelineRunView, statuses=(404, 409)),
    Endpoint(
        "pipelines.events",
        "GET",
        f"{_PATH}/events",
        "What happens in a pipeline, from its beginning",
        follow,
        streams=True,
        statuses=(404,),
        about="Events: `stage_started`, `stage_completed`, `stage_failed`, … and, as the last, `pipeline_completed`.",
    ),
    Endpoint(
        "pipelines.result",
        "GET",
        f"{_PATH}/result",
        "What came of a pipeline",
        get_result,
        query=WaitQuery,
        answer=PipelineResult,
        statuses=(404, 409),
    ),
)
