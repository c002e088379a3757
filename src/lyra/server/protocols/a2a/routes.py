"""The paths of A2A: the cards of agents, one path for each agent that takes its requests, and those of HTTP+JSON
(`rest`)."""

from __future__ import annotations

from typing import Any, Final

from lyra.errors import ConfigError
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer, Streamed
from lyra.server.http.problems import HttpRefusal
from lyra.server.protocols.a2a.card import agent_card, card_data, default_agent
from lyra.server.protocols.a2a.requests import answer_request
from lyra.server.protocols.a2a.rest import REST_ENDPOINTS
from lyra.server.protocols.a2a.tasks import A2aTasks

_CARD: Final = ".well-known/agent-card.json"


async def default_card(call: HttpCall) -> dict[str, Any]:
    directory = call.parts.chats.directory
    return card_data(agent_card(directory.declaration(default_agent(directory)), call.base_url))


async def card(call: HttpCall) -> dict[str, Any]:
    try:
        agent = call.parts.chats.directory.declaration(call.path["agent"])
    except (HttpRefusal, ConfigError):  # a stranger is not told which names there are
        raise HttpRefusal(404, "there is no agent of that name") from None
    return card_data(agent_card(agent, call.base_url))


async def request(call: HttpCall) -> RawAnswer | Streamed:
    return await answer_request(call, call.parts.chats.directory.declaration(call.path["agent"]))


A2A_ENDPOINTS: Final = (
    Endpoint(
        name="a2a.default_card",
        method="GET",
        path=f"/{_CARD}",
        summary="The A2A card of the server's agent",
        handler=default_card,
        is_open=True,
        statuses=(404,),
        about="Of several agents, the first by name.",
    ),
    Endpoint(
        name="a2a.card",
        method="GET",
        path=f"/a2a/{{agent}}/{_CARD}",
        summary="The A2A card of an agent",
        handler=card,
        is_open=True,
        statuses=(404,),
    ),
    Endpoint(
        name="a2a.request",
        method="POST",
        path="/a2a/{agent}",
        summary="A request of A2A: a JSON-RPC 2.0 call of version 1.0 or 0.3 of the protocol",
        handler=request,
        may_stream=True,
        checks_role=True,
        statuses=(404,),
        opens=A2aTasks,
        about="Methods that stream answer with server-sent events. Errors have the shape of JSON-RPC. A viewer may look"
        " tasks up, list and follow them.",
    ),
    *REST_ENDPOINTS,
)
