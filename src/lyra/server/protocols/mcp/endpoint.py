"""`POST /mcp`: an MCP client asks the agents of the server.

It stands alone so that the server starts without the MCP SDK.
"""

from __future__ import annotations

from typing import Final

from lyra.errors import ConfigError
from lyra.server.http.directory import refuse_if_draining
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer, Streamed


async def ask(call: HttpCall) -> RawAnswer | Streamed:
    refuse_if_draining(call.parts.is_draining)
    try:
        from lyra.server.protocols.mcp.agent_tools import agent_tools, answer_by_sdk, mcp_call
    except ImportError:
        raise ConfigError("MCP needs the mcp extra", hint="pip install 'lyra-agents[mcp]'") from None
    mcp_call.set(call)
    call.act = ""  # a call of a tool is told when it has ended; the rest of the protocol changes nothing
    return await answer_by_sdk(call, agent_tools())


ENDPOINTS: Final = (
    Endpoint(
        "mcp.ask",
        "POST",
        "/mcp",
        "Ask the agents as tools, by MCP over streamable HTTP",
        ask,
        checks_role=True,
        ends_with_client=True,
        statuses=(406,),
        about="The answer is JSON or server-sent events, as MCP says. There are no transport sessions: each request "
        "brings its token. A viewer may list the tools, and call none.",
    ),
)
