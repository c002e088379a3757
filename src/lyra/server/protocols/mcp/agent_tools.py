"""The agents of a server as tools of MCP: each takes a message and gives the answer.

A call without `session_id` begins a conversation, a durable session of the caller's as over `/api/agents/NAME/chat`;
with it the conversation goes on. What the agent does on the way is told as progress. Which caller it is comes from the
request (`mcp_call`), never from the arguments.
"""

from __future__ import annotations

import re
from contextlib import aclosing
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

import mcp_types as types
from mcp.server.lowlevel.server import Server

from lyra._version import __version__
from lyra.agents.session.events import Interrupted, ToolProgress, ToolStarted
from lyra.errors import ConfigError, LyraError
from lyra.mcp.serve import progress_of
from lyra.server.act_record import record_act
from lyra.server.http.guard import check_work_limits
from lyra.server.http.problems import HttpRefusal, problem_of

if TYPE_CHECKING:
    from lyra.agents.declaration.agent import AgentDeclaration
    from lyra.server.http.endpoint import HttpCall


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
    """The MCP server; who asks is in `mcp_call`."""
    return Server("lyra", version=__version__, on_list_tools=_list_tools, on_call_tool=_call_tool)


def _agents(call: HttpCall) -> dict[str, AgentDeclaration]:
    """The agents that can be talked to, by the names of their tools; of two with one name, the first."""
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
        check_work_limits(call.kernel, call.caller.user_id, call.endpoint.name)
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
