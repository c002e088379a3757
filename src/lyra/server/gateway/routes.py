"""The table of what the gateway answers: model calls in the forms of the vendors, and the keys."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from lyra.server.gateway.admin import KEY_ENDPOINTS
from lyra.server.gateway.formats import FORMATS
from lyra.server.gateway.gateway import KEY_HINT, gateway_of, identify_key
from lyra.server.gateway.model_list import MODEL_LIST
from lyra.server.gateway.request import GatewayRequest
from lyra.server.http.directory import refuse_if_draining
from lyra.server.http.endpoint import Endpoint, HttpCall, RequestQuery

_STATUSES: Final = (400, 402, 403, 404, 429, 502, 503)


class GatewayQuery(RequestQuery):
    """`beta` is how clients of Anthropic ask for its beta features."""

    beta: str = ""


def _handler(name: str) -> Callable[[HttpCall], Awaitable[Any]]:
    wire = FORMATS[name]

    async def handle(call: HttpCall) -> Any:
        refuse_if_draining(call.parts.is_draining)
        return await gateway_of(call.parts).answer(call, GatewayRequest(wire, call.raw_body))

    return handle


def _endpoint(name: str, path: str, summary: str) -> Endpoint:
    return Endpoint(
        name=f"gateway.{name}",
        method="POST",
        path=path,
        summary=summary,
        handler=_handler(name),
        identify=identify_key,
        credential_hint=KEY_HINT,
        query=GatewayQuery,
        may_stream=True,
        ends_with_client=True,
        is_work=True,
        statuses=_STATUSES,
    )


GATEWAY: Final[tuple[Endpoint, ...]] = (
    *MODEL_LIST,
    _endpoint("chat", "/v1/chat/completions", "Ask a provider's model, or an agent, as a client of OpenAI does"),
    _endpoint("responses", "/v1/responses", "Ask a provider's model by OpenAI's Responses API"),
    _endpoint("messages", "/v1/messages", "Ask a provider's model, or an agent, as a client of Anthropic does"),
    _endpoint("count_tokens", "/v1/messages/count_tokens", "Count the tokens of a request of Anthropic's format"),
    _endpoint("embeddings", "/v1/embeddings", "Have a provider's model embed texts"),
    *KEY_ENDPOINTS,
)
