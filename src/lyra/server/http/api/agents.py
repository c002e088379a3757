"""Agents, and talking to them: one answer, or a stream that can be read again."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lyra.agents.session.replies import Reply
from lyra.core.codec import to_plain
from lyra.server.http.directory import KnownAgent, refuse_if_draining
from lyra.server.http.endpoint import Endpoint, HttpCall, RequestBody, RequestQuery, Streamed


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
    """`message` is text; `session_id` goes on with an earlier conversation."""

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

ENDPOINTS: Final = (
    Endpoint(
        name="agents.list",
        method="GET",
        path="/api/agents",
        summary="The agents that the kernel knows",
        handler=list_agents,
        answer=AgentList,
    ),
    Endpoint(
        name="agents.get",
        method="GET",
        path="/api/agents/{name}",
        summary="One agent",
        handler=get_agent,
        answer=AgentSummary,
        statuses=(404,),
    ),
    Endpoint(
        name="agents.chat",
        method="POST",
        path="/api/agents/{name}/chat",
        summary="Say something to an agent and wait for its answer",
        handler=chat,
        body=ChatBody,
        answer=ChatAnswer,
        is_work=True,
        statuses=(404, 409, 402, 502),
        about="Without `session_id` a conversation begins; its id is in the answer.",
    ),
    Endpoint(
        name="agents.stream",
        method="POST",
        path="/api/agents/{name}/chat/stream",
        summary="Say something to an agent and read its answer as it comes",
        handler=chat_stream,
        body=ChatBody,
        streams=True,
        is_work=True,
        statuses=(404, 409, 402, 502),
        about=_EVENTS,
    ),
    Endpoint(
        name="agents.resume",
        method="GET",
        path="/api/agents/{name}/chat/stream",
        summary="Read an answer on after a lost connection, or again",
        handler=resume_stream,
        query=StreamQuery,
        streams=True,
        statuses=(404, 410, 409),
        about="The header `Last-Event-ID` says after which event; `session_id` alone gives the last answer as a whole.",
    ),
)
