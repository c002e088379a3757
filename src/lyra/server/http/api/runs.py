"""Runs: an agent is given one task, works on it without a reader, and is asked later what came of it.

A run is a session that was given one message: its id is the session's, so that the conversation can go on in a chat.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

import msgspec

from lyra.agents.session.agent_process import AgentProcess
from lyra.errors import InvalidTransition
from lyra.server.http.api.pipelines import RunStarted, WaitQuery
from lyra.server.http.directory import refuse_if_draining
from lyra.server.http.endpoint import Endpoint, HttpCall, RequestBody, Streamed


class TaskBody(RequestBody):
    agent: str
    message: str


class RunView(msgspec.Struct, kw_only=True):
    """A run; `status` is running, success, or the word for its failure."""

    run_id: str
    pid: str
    status: str
    text: str
    cost_usd: float | None


class RunList(msgspec.Struct):
    runs: list[RunView]


def _view(run_id: str, process: AgentProcess[Any]) -> RunView:
    execution = process.execution
    running = process.current is not None
    text = "" if running else next((row.text for row in reversed(process.messages) if row.role == "assistant"), "")
    status = "running" if running else "unknown" if execution is None else str(execution.status)
    return RunView(
        run_id=run_id, pid=process.pid, status=status, text=text, cost_usd=None if running else process.metrics.cost_usd
    )


async def start(call: HttpCall) -> RunStarted:
    refuse_if_draining(call.parts.is_draining)
    body: TaskBody = call.body
    chats = call.parts.chats
    run_id, process = await chats.open(body.agent, call.caller, "")
    await chats.begin(run_id, call.caller, process, body.message)
    return RunStarted(run_id)


async def list_runs(call: HttpCall) -> RunList:
    owned = call.parts.chats.sessions.of(call.caller)
    known = [(name, process) for name, process in owned if call.kernel.missing_program(process) is None]
    return RunList([_view(name, call.kernel.agent(process.pid)) for name, process in known])


async def get_run(call: HttpCall) -> RunView:
    run_id = call.path["run_id"]
    return _view(run_id, call.parts.chats.handle(run_id, call.caller))


async def get_result(call: HttpCall) -> RunView:
    run_id = call.path["run_id"]
    process = call.parts.chats.handle(run_id, call.caller)
    current = process.current
    if current is not None and call.query.wait_s:
        with suppress(TimeoutError):
            async with asyncio.timeout(call.query.wait_s):
                await current
    if process.current is not None:
        raise InvalidTransition("the run has not ended", hint="ask with wait_s, or follow its events")
    return _view(run_id, process)


async def follow(call: HttpCall) -> Streamed:
    stream, after = call.parts.chats.find(call.headers.get("last-event-id", ""), call.path["run_id"], call.caller)
    return Streamed(stream.read(after))


_PATH: Final = "/api/runs/{run_id}"

ENDPOINTS: Final = (
    Endpoint(
        name="runs.start",
        method="POST",
        path="/api/runs",
        summary="Give an agent a task and go on",
        handler=start,
        body=TaskBody,
        answer=RunStarted,
        status=202,
        is_work=True,
        statuses=(404, 409),
    ),
    Endpoint(
        name="runs.list",
        method="GET",
        path="/api/runs",
        summary="The runs and chats of the caller, with the last answer of each",
        handler=list_runs,
        answer=RunList,
    ),
    Endpoint(
        name="runs.get",
        method="GET",
        path=_PATH,
        summary="How a run is doing",
        handler=get_run,
        answer=RunView,
        statuses=(404,),
    ),
    Endpoint(
        name="runs.events",
        method="GET",
        path=f"{_PATH}/events",
        summary="The events of a run, as of a chat",
        handler=follow,
        streams=True,
        statuses=(404, 410),
    ),
    Endpoint(
        name="runs.result",
        method="GET",
        path=f"{_PATH}/result",
        summary="What came of a run",
        handler=get_result,
        query=WaitQuery,
        answer=RunView,
        statuses=(404, 409, 402, 502),
    ),
)
