"""`POST /agui/{agent}`: what a front end asks, and `GET /agui/{agent}`, what the agent can do."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

from lyra.server.http.directory import refuse_if_draining
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer, Streamed
from lyra.server.protocols.agui.input import AguiBody, AguiRequest
from lyra.server.protocols.agui.sdk import agui_types, read_input
from lyra.server.protocols.agui.threads import AguiThreads


async def run_agent(call: HttpCall) -> Streamed:
    refuse_if_draining(call.parts.is_draining)
    request = AguiRequest(read_input(call.raw_body))
    agent = call.parts.chats.directory.declaration(call.path["agent"])
    threads: AguiThreads = call.parts.shared(AguiThreads)
    events = (await threads.run(agent, call.caller, request)).stream()
    first = await anext(events)  # from here on the run ends with its stream, also where the client has left by now
    return Streamed(_after(first, events))


async def _after(first: bytes, events: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(events):
        yield first
        async for piece in events:
            yield piece


async def capabilities(call: HttpCall) -> RawAnswer:
    types = agui_types()
    agent: Any = call.parts.chats.directory.declaration(call.path["agent"])
    described = types.AgentCapabilities(
        identity=types.IdentityCapabilities(name=agent.name, type="lyra", description=agent.description or None),
        transport=types.TransportCapabilities(streaming=True, resumable=False),
        tools=types.ToolsCapabilities(
            supported=True,
            client_provided=True,
            items=[
                types.Tool(name=tool.name, description=tool.description, parameters=tool.schema)
                for tool in agent.toolbox
            ],
        ),
        state=types.StateCapabilities(snapshots=True, deltas=True, persistent_state=True),
        human_in_the_loop=types.HumanInTheLoopCapabilities(supported=True, approvals=True, interrupts=True),
    )
    return RawAnswer(described.model_dump_json(by_alias=True).encode())


_PATH: Final = "/agui/{agent}"

ENDPOINTS: Final = (
    Endpoint(
        name="agui.run",
        method="POST",
        path=_PATH,
        summary="Run an agent for a front end by the AG-UI protocol",
        handler=run_agent,
        body=AguiBody,
        streams=True,
        is_work=True,
        statuses=(404, 409, 402, 502),
        about="The stream has the events of AG-UI 1.0, each as one `data` line.",
    ),
    Endpoint(
        name="agui.capabilities",
        method="GET",
        path=_PATH,
        summary="What an agent can do, as AG-UI's AgentCapabilities",
        handler=capabilities,
        statuses=(404,),
    ),
)
