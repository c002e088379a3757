"""The table of what the gateway answers: model calls in the forms of the vendors, and the keys."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from lyra.agents.session.shared import runtime_of
from lyra.errors import ConfigError
from lyra.models.pricing import list_published_names
from lyra.server.gateway.admin import KEY_ENDPOINTS
from lyra.server.gateway.gateway import KEY_HINT, agent_of, gateway_of, identify_key
from lyra.server.gateway.keys import KeySettings
from lyra.server.gateway.request import FORMATS, GatewayRequest
from lyra.server.http.compat import MODEL_ENDPOINTS, agent_model, agent_models, model_document, model_list
from lyra.server.http.directory import refuse_if_draining
from lyra.server.http.endpoint import Endpoint, HttpCall, RequestQuery
from lyra.server.http.problems import HttpRefusal

# ---------------------------------------------------------------- model list
# `/v1/models` of the gateway: the models that a key may call.


async def list_models(call: HttpCall) -> dict[str, Any]:
    settings = (await gateway_of(call.parts).key_of(call)).settings
    agents = [model for model in agent_models(call) if settings.allows(model["id"])]
    return model_list(call, [*agents, *(_document(call, name) for name in _names(call, settings))])


def _names(call: HttpCall, settings: KeySettings) -> list[str]:
    """Return the names of providers' models that the key may call, as far as they are known."""
    client = runtime_of(call.kernel).client
    whole = [pattern for pattern in settings.models if "/" in pattern and "*" not in pattern and "?" not in pattern]
    published = [f"{provider}/{name}" for provider in client.configured() for name in list_published_names(provider)]
    allowed = [name for name in published if settings.allows(name, name.partition("/")[2])]
    named = [name for name in whole if not name.startswith("agent/")]
    return list(dict.fromkeys((*named, *allowed)))


def _document(call: HttpCall, name: str) -> dict[str, Any]:
    provider, _, model = name.partition("/")
    return model_document(call, name, model, provider)


async def get_model(call: HttpCall) -> dict[str, Any]:
    settings = (await gateway_of(call.parts).key_of(call)).settings
    model = call.path["model"]
    agent = agent_of(call, model)
    if agent:
        settings.require(f"agent/{agent}")
        return agent_model(call, call.parts.chats.directory.get(agent))
    try:
        name = str(runtime_of(call.kernel).client.resolve(model))
    except ConfigError as error:
        raise HttpRefusal(404, error.message, hint=error.hint) from None
    settings.require(name)
    return _document(call, name)


_HANDLERS: Final = {"models.list": list_models, "models.get": get_model}
MODEL_LIST: Final[tuple[Endpoint, ...]] = tuple(
    msgspec.structs.replace(
        endpoint,
        handler=_HANDLERS[endpoint.name],
        identify=identify_key,
        credential_hint=KEY_HINT,
        summary=summary,
        statuses=(403, 404),
    )
    for endpoint, summary in zip(
        MODEL_ENDPOINTS, ("The models and agents that a key may call", "One model or agent"), strict=True
    )
)


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
        f"gateway.{name}",
        "POST",
        path,
        summary,
        _handler(name),
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
