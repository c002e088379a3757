"""The agents of a server as tools of MCP: each takes a message and gives the answer.

A call without `session_id` begins a conversation, a durable session of the caller's as over `/api/agents/NAME/chat`;
with it the conversation continues. What the agent does on the way is told as progress. Which caller it is comes from
the request (`mcp_call`), never from the arguments.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from lyra._version import __version__
from lyra.agents.session.events import Interrupted, ToolProgress, ToolStarted
from lyra.errors import ConfigError, InternalError, LyraError
from lyra.mcp.serve import progress_of
from lyra.server.http.endpoint import HttpCall, RawAnswer, Streamed
from lyra.server.http.guard import check_work_limits
from lyra.server.http.problems import HttpRefusal, problem_of
from lyra.server.identity import record_act

if TYPE_CHECKING:
    from lyra.agents.declaration.agent import AgentDeclaration


# The request that the running tool call belongs to.
mcp_call: Final[ContextVar[HttpCall]] = ContextVar("lyra_mcp_call")

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]")
_INPUT: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "message": {"type": "string", "description": "what to say to the agent, complete in itself"},
        "session_id": {"type": "string", "description": "goes on with the conversation of an earlier answer"},
    },
    "required": ["message"],
    "additionalProperties": False,
}
_OUTPUT: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "session_id": {"type": "string"}},
    "required": ["text", "session_id"],
}


def agent_tools() -> Server[Any]:
    """Return the MCP server; who asks is in `mcp_call`."""
    return Server("lyra", version=__version__, on_list_tools=_list_tools, on_call_tool=_call_tool)


def _agents(call: HttpCall) -> dict[str, AgentDeclaration]:
    """Return the agents that can be talked to, by the names of their tools; of two with one name, the first."""
    agents: dict[str, AgentDeclaration] = {}
    for known in call.parts.chats.directory.agents().values():
        if known.declaration is not None:
            agents.setdefault(_NOT_IN_NAMES.sub("_", known.name), known.declaration)
    return agents


async def _list_tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(
        tools=[
            types.Tool(
                name=name,
                description=agent.description or f"Ask the agent {agent.name}.",
                input_schema=_INPUT,
                output_schema=_OUTPUT,
            )
            for name, agent in _agents(mcp_call.get()).items()
        ]
    )


async def _call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    async with progress_of(ctx) as tell:
        return await _answer_or_problem(mcp_call.get(), params, tell)


async def _answer_or_problem(call: HttpCall, params: types.CallToolRequestParams, tell: Any) -> types.CallToolResult:
    outcome = "failed"
    try:
        call.caller.require_change()
        asked = check_work_limits(call.kernel, call.caller.user_id, call.endpoint.name)
        if asked is not None:
            await asked
        agent = _agents(call).get(params.name)
        if agent is None:
            raise HttpRefusal(404, f"no agent {params.name[:100]!r}")
        result = await _answer(call, agent, params.arguments or {}, tell)
        outcome = "ok"
        return result
    except (LyraError, HttpRefusal) as error:
        problem = problem_of(error, call.kernel)
        outcome = problem.code
        text = f"{problem.message} ({problem.hint})" if problem.hint else problem.message
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)
    finally:
        record_act(call.kernel, call.caller, "mcp.call", {"agent": params.name}, outcome, call.act_target)


async def _answer(
    call: HttpCall, agent: AgentDeclaration, arguments: dict[str, Any], tell: Any
) -> types.CallToolResult:
    unknown = [name for name in arguments if name not in _INPUT["properties"]]
    if unknown:
        raise ConfigError(f"there is no argument {unknown[0][:60]!r}", hint="it takes message and session_id")
    message, session_id = arguments.get("message"), arguments.get("session_id", "")
    if not isinstance(message, str) or not isinstance(session_id, str):
        raise ConfigError("message and session_id are texts", key="message")
    call.act_target = session_id
    session_id, process = await call.parts.chats.open(agent.name, call.caller, session_id)
    call.act_target = session_id
    stream = process.stream(message, events=True)
    async with aclosing(aiter(stream)) as events:  # type: ignore[type-var]  # it is a generator
        async for event in events:
            if isinstance(event, ToolStarted):
                tell(event.name, None)
            elif isinstance(event, ToolProgress):
                tell(event.text, event.fraction)
            elif isinstance(event, Interrupted):
                tell(f"waits for a person: {event.question}", None)
    answer = await stream
    text = str(answer) if isinstance(answer, str) else process.messages[-1].text
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)],
        structured_content={"text": text, "session_id": session_id},
    )


# From a checked request to the SDK's own handling of streamable HTTP, and back to an answer of the server.

_STREAM: Final = "text/event-stream"
_JSON: Final = "application/json"
_REFUSAL_CHARS_MAX: Final = 200
_PASSED_ON: Final = frozenset({"accept", "content-type"})  # with those that begin with `mcp-`
_WAITING_MAX: Final = 256  # pieces of an answer for a slow client


async def answer_by_sdk(call: HttpCall, server: Server[Any]) -> RawAnswer | Streamed:
    """Return the answer to one request."""
    messages: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue(_WAITING_MAX)
    task = call.kernel.tasks.start(_run(call, server, messages), name="lyra-mcp")
    try:
        start = await messages.get()
        if start is None:
            raise InternalError("the request was not answered")
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in start["headers"]}
        media = headers.get("content-type", "")
        if media.startswith(_STREAM):
            return Streamed(_pieces(messages, task))
        body = b"".join([piece async for piece in _pieces(messages, task)])
        if start["status"] >= 400 and not media.startswith(_JSON):
            raise HttpRefusal(start["status"], body.decode(errors="replace")[:_REFUSAL_CHARS_MAX])
        return RawAnswer(body, media or _JSON, start["status"])
    except BaseException:
        task.cancel()
        raise


async def _pieces(
    messages: asyncio.Queue[dict[str, Any] | None], task: asyncio.Task[None]
) -> AsyncGenerator[bytes, None]:
    try:
        while (message := await messages.get()) is not None:
            if message.get("body"):
                yield message["body"]
    finally:
        task.cancel()


async def _run(call: HttpCall, server: Server[Any], messages: asyncio.Queue[dict[str, Any] | None]) -> None:
    bodies: list[dict[str, Any]] = [{"type": "http.request", "body": call.raw_body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if bodies:
            return bodies.pop()
        return await asyncio.Future()  # the client's leaving cancels this task

    size = len(call.raw_body) + 1  # the guard has checked it
    manager = StreamableHTTPSessionManager(server, stateless=True, max_request_body_size=size)
    is_cancelled = True
    try:
        async with manager.run():
            await manager.handle_request(_scope(call), receive, messages.put)  # type: ignore[arg-type]
        is_cancelled = False
    except Exception:
        is_cancelled = False
        raise
    finally:
        if is_cancelled and messages.full():  # its reader has left, and would never make room for the end
            messages.get_nowait()
        await messages.put(None)


def _scope(call: HttpCall) -> dict[str, Any]:
    wanted = [(name, value) for name, value in call.headers.items() if name in _PASSED_ON or name.startswith("mcp-")]
    return {
        "type": "http",
        "http_version": "1.1",
        "method": call.endpoint.method,
        "scheme": "http",
        "path": call.endpoint.path,
        "query_string": b"",
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in wanted],
    }
