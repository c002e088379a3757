"""Agents, and talking to them: one answer, or a stream that can be read again."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

import msgspec

from lyra.agents.session.agent_process import AgentProcess
from lyra.agents.session.replies import Reply
from lyra.core.codec import to_plain
from lyra.errors import InvalidTransition
from lyra.server.http.api.pipelines import RunStarted, WaitQuery
from lyra.server.http.directory import KnownAgent, refuse_if_draining
from lyra.server.http.endpoint import Endpoint, HttpCall, RequestBody, RequestQuery, Streamed
from lyra.server.owners import owner_of


class AgentSummary(msgspec.Struct, kw_only=True):
    """An agent; one of kind `function` runs stages of pipelines and cannot be talked to."""

    name: str
    kind: str
    description: str
    models: list[str]
    tools: list[str]


class AgentList(msgspec.Struct):
    agents: list[AgentSummary]


class ChatBody(RequestBody):
    """`message` is text; `session_id` continues with an earlier conversation."""

    message: str
    session_id: str = ""


class ChatUsage(msgspec.Struct):
    """What an answer took, its helpers included; `cost_usd` is null where a price is not known. Empty for an agent with
    an output type."""

    input_tokens: int | msgspec.UnsetType = msgspec.UNSET
    output_tokens: int | msgspec.UnsetType = msgspec.UNSET
    cost_usd: float | msgspec.UnsetType | None = msgspec.UNSET


class ChatAnswer(msgspec.Struct, kw_only=True):
    """The answer; `output` is the value of an agent with an output type. `status` is `max_tokens` for one that was cut
    off."""

    text: str
    session_id: str
    status: str = "success"
    output: Any = None
    usage: ChatUsage = msgspec.field(default_factory=ChatUsage)


class StreamQuery(RequestQuery):
    session_id: str = ""


def _view(agent: KnownAgent) -> AgentSummary:
    declaration = agent.declaration
    return AgentSummary(
        name=agent.name,
        kind="function" if declaration is None else "agent",
        description="" if declaration is None else declaration.description,
        models=agent.models,
        tools=[] if declaration is None else [tool.name for tool in declaration.toolbox],
    )


async def list_agents(call: HttpCall) -> AgentList:
    return AgentList([_view(agent) for agent in call.parts.chats.directory.agents(call.caller).values()])


async def get_agent(call: HttpCall) -> AgentSummary:
    return _view(call.parts.chats.directory.get(call.path["name"], call.caller))


async def chat(call: HttpCall) -> ChatAnswer:
    refuse_if_draining(call.parts.is_draining)
    body: ChatBody = call.body
    session_id, process = await call.parts.chats.open(call.path["name"], call.caller, body.session_id)
    answer = await process.send(body.message)
    if isinstance(answer, Reply):
        usage = ChatUsage(answer.input_tokens, answer.output_tokens, answer.cost_usd)
        return ChatAnswer(text=str(answer), session_id=session_id, status=answer.status, usage=usage)
    plain = msgspec.to_builtins(answer, enc_hook=to_plain)
    text = plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()
    return ChatAnswer(text=text, session_id=session_id, output=plain)


async def chat_stream(call: HttpCall) -> Streamed:
    refuse_if_draining(call.parts.is_draining)
    body: ChatBody = call.body
    chats = call.parts.chats
    session_id, process = await chats.open(call.path["name"], call.caller, body.session_id)
    stream = await chats.begin(session_id, call.caller, process, body.message)
    return Streamed(stream.read(0))


async def resume_stream(call: HttpCall) -> Streamed:
    call.parts.chats.directory.get(call.path["name"], call.caller)
    stream, after = call.parts.chats.find(call.headers.get("last-event-id", ""), call.query.session_id, call.caller)
    return Streamed(stream.read(after))


_EVENTS: Final = (
    "Events: `session`, `text_delta`, `thinking_delta`, `tool_start`, `tool_progress`, `tool_end`, `usage`, "
    "`interrupt`, `notice`, `error`, `restart`, `missed` and, as the last, `result`."
)


# ---------------------------------------------------------------- sessions
# Sessions: the conversations that were begun over HTTP; each is a durable process of its user.


class SessionView(msgspec.Struct, kw_only=True):
    """A conversation; `state` is where the agent is: ready between two messages."""

    session_id: str
    pid: str
    agent: str
    user_id: str
    state: str
    alive: bool
    created_at: float
    message_count: int
    cost_usd: float


class SessionList(msgspec.Struct):
    sessions: list[SessionView]


class SpokenMessage(msgspec.Struct, kw_only=True):
    role: str
    text: str
    tool_calls: list[str] = []


class SessionDetail(SessionView, kw_only=True):
    messages: list[SpokenMessage]


class CancelAnswer(msgspec.Struct):
    """How many answers that were on their way were given up."""

    cancelled: int


def _session_view(call: HttpCall, session_id: str, pid: str) -> dict[str, Any]:
    process = call.kernel.processes[pid]
    run = process.stands_for or process
    agent = None if call.kernel.missing_program(process) is not None else call.kernel.agent(pid)
    return {
        "session_id": session_id,
        "pid": pid,
        "agent": run.program.partition(":")[2],
        "user_id": owner_of(call.kernel, pid),
        "state": "dormant" if agent is None else agent.agent_state.value,
        "alive": process.alive,
        "created_at": process.created_at,
        "message_count": 0 if agent is None else len(agent.messages),
        "cost_usd": int(process.spent.usd) / 1_000_000,
    }


async def list_sessions(call: HttpCall) -> SessionList:
    owned = call.parts.chats.sessions.list_for(call.caller)
    return SessionList([SessionView(**_session_view(call, name, process.pid)) for name, process in owned])


async def get_session(call: HttpCall) -> SessionDetail:
    session_id = call.path["session_id"]
    process: AgentProcess[Any] = call.parts.chats.handle(session_id, call.caller)
    messages = [
        SpokenMessage(role=message.role, text=message.text, tool_calls=[tool.name for tool in message.tool_calls])
        for message in process.messages
    ]
    return SessionDetail(**_session_view(call, session_id, process.pid), messages=messages)


async def end_session(call: HttpCall) -> SessionView:
    session_id = call.path["session_id"]
    process = call.parts.chats.sessions.get(session_id, call.caller)
    await call.kernel.kill(process.pid, "shutdown")
    return SessionView(**_session_view(call, session_id, process.pid))


async def cancel_answer(call: HttpCall) -> CancelAnswer:
    cancelled = call.parts.chats.cancel(call.path["session_id"], call.caller)
    await call.kernel.durable()  # a message that is told to be cancelled is not carried out by a later server
    return CancelAnswer(cancelled)


_PATH: Final = "/api/sessions/{session_id}"


# ---------------------------------------------------------------- runs
# Runs: an agent is given one task, works on it without a reader, and is asked later the outcome of it.


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


def _run_view(run_id: str, process: AgentProcess[Any]) -> RunView:
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
    owned = call.parts.chats.sessions.list_for(call.caller)
    known = [(name, process) for name, process in owned if call.kernel.missing_program(process) is None]
    return RunList([_run_view(name, call.kernel.agent(process.pid)) for name, process in known])


async def get_run(call: HttpCall) -> RunView:
    run_id = call.path["run_id"]
    return _run_view(run_id, call.parts.chats.handle(run_id, call.caller))


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
    return _run_view(run_id, process)


async def follow(call: HttpCall) -> Streamed:
    stream, after = call.parts.chats.find(call.headers.get("last-event-id", ""), call.path["run_id"], call.caller)
    return Streamed(stream.read(after))


_RUN_PATH: Final = "/api/runs/{run_id}"


ENDPOINTS: Final = (
    Endpoint("agents.list", "GET", "/api/agents", "The agents that the kernel knows", list_agents, answer=AgentList),
    Endpoint("agents.get", "GET", "/api/agents/{name}", "One agent", get_agent, answer=AgentSummary, statuses=(404,)),
    Endpoint(
        "agents.chat",
        "POST",
        "/api/agents/{name}/chat",
        "Say something to an agent and wait for its answer",
        chat,
        body=ChatBody,
        answer=ChatAnswer,
        is_work=True,
        statuses=(404, 409, 402, 502),
        about="Without `session_id` a conversation begins; its id is in the answer.",
    ),
    Endpoint(
        "agents.stream",
        "POST",
        "/api/agents/{name}/chat/stream",
        "Say something to an agent and read its answer as it comes",
        chat_stream,
        body=ChatBody,
        streams=True,
        is_work=True,
        statuses=(404, 409, 402, 502),
        about=_EVENTS,
    ),
    Endpoint(
        "agents.resume",
        "GET",
        "/api/agents/{name}/chat/stream",
        "Read an answer on after a lost connection, or again",
        resume_stream,
        query=StreamQuery,
        streams=True,
        statuses=(404, 410, 409),
        about="The header `Last-Event-ID` says after which event; `session_id` alone gives the last answer as a whole.",
    ),
    Endpoint(
        "sessions.list", "GET", "/api/sessions", "The conversations of the caller", list_sessions, answer=SessionList
    ),
    Endpoint(
        "sessions.get",
        "GET",
        _PATH,
        "One conversation with its messages",
        get_session,
        answer=SessionDetail,
        statuses=(404,),
    ),
    Endpoint("sessions.end", "DELETE", _PATH, "End a conversation", end_session, answer=SessionView, statuses=(404,)),
    Endpoint(
        "sessions.cancel",
        "POST",
        f"{_PATH}/cancel",
        "Give up the answer that is on its way; the conversation goes on",
        cancel_answer,
        answer=CancelAnswer,
        statuses=(404,),
    ),
    Endpoint(
        "runs.start",
        "POST",
        "/api/runs",
        "Give an agent a task and go on",
        start,
        body=TaskBody,
        answer=RunStarted,
        status=202,
        is_work=True,
        statuses=(404, 409),
    ),
    Endpoint(
        "runs.list",
        "GET",
        "/api/runs",
        "The runs and chats of the caller, with the last answer of each",
        list_runs,
        answer=RunList,
    ),
    Endpoint("runs.get", "GET", _RUN_PATH, "How a run is doing", get_run, answer=RunView, statuses=(404,)),
    Endpoint(
        "runs.events",
        "GET",
        f"{_RUN_PATH}/events",
        "The events of a run, as of a chat",
        follow,
        streams=True,
        statuses=(404, 410),
    ),
    Endpoint(
        "runs.result",
        "GET",
        f"{_RUN_PATH}/result",
        "What came of a run",
        get_result,
        query=WaitQuery,
        answer=RunView,
        statuses=(404, 409, 402, 502),
    ),
)
