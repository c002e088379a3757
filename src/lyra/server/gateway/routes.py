"""The table of what the gateway answers: model calls in the forms of the vendors, and the keys."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from lyra.agents.session.shared import runtime_of
from lyra.errors import ConfigError, Denied
from lyra.models.pricing import list_published_names
from lyra.server.gateway.gateway import KEY_HINT, agent_of, gateway_of, identify_key
from lyra.server.gateway.keys import GatewayKey, KeySettings, KeyTable
from lyra.server.gateway.request import FORMATS, GatewayRequest
from lyra.server.http.api.processes import Accepted
from lyra.server.http.compat import MODEL_ENDPOINTS, agent_model, agent_models, model_document, model_list
from lyra.server.http.directory import refuse_if_draining
from lyra.server.http.endpoint import Endpoint, HttpCall, RequestBody, RequestQuery
from lyra.server.http.problems import HttpRefusal


class KeyBody(RequestBody):
    """`budget` is an amount such as `$5`; without `models`, the key may call all. For `cache_s` seconds, an answer is
    given again for the same request."""

    name: str
    budget: str | None = None
    models: tuple[str, ...] = ()
    requests_per_minute: int | None = None
    user: str = ""
    team: str = ""
    fallbacks: tuple[str, ...] = ()
    cache_s: float = 0.0


class KeyMade(msgspec.Struct):
    """The key is shown once."""

    id: str
    key: str


class KeyView(msgspec.Struct, kw_only=True):
    """A key without its text. Amounts are micro-dollars; `reserved` is set aside for calls in flight."""

    id: str
    name: str
    user: str
    team: str
    models: list[str]
    fallbacks: list[str]
    requests_per_minute: int | None
    cache_s: float
    created_at: float
    budget_micro_usd: int | None
    spent_micro_usd: int
    reserved_micro_usd: int
    remaining_micro_usd: int | None
    calls: int
    input_tokens: int
    output_tokens: int


class KeyList(msgspec.Struct):
    keys: list[KeyView]


def key_view(key: GatewayKey) -> KeyView:
    settings, budget = key.settings, key.process.budget
    limit = budget.limit("usd")
    return KeyView(
        id=settings.id,
        name=settings.name,
        user=settings.user,
        team=settings.team,
        models=list(settings.models),
        fallbacks=list(settings.fallbacks),
        requests_per_minute=settings.requests_per_minute,
        cache_s=settings.cache_s,
        created_at=settings.created_at,
        budget_micro_usd=None if limit is None else int(limit),
        spent_micro_usd=int(budget.used("usd")),
        reserved_micro_usd=int(budget.reserved("usd")),
        remaining_micro_usd=None if limit is None else int(budget.remaining("usd") or 0),
        calls=int(budget.used("llm_calls")),
        input_tokens=int(budget.used("input_tokens")),
        output_tokens=int(budget.used("output_tokens")),
    )


def _keys(call: HttpCall) -> KeyTable:
    if not call.caller.is_operator:
        raise Denied("keys are the operator's", hint="use a token that is not bound to a user")
    return gateway_of(call.parts).keys


async def create_key(call: HttpCall) -> KeyMade:
    body: KeyBody = call.body
    call.act_target = body.name
    id_and_key = await _keys(call).create(
        name=body.name,
        budget=body.budget,
        models=body.models,
        requests_per_minute=body.requests_per_minute,
        user=body.user,
        team=body.team,
        fallbacks=body.fallbacks,
        cache_s=body.cache_s,
    )
    return KeyMade(*id_and_key)


async def list_keys(call: HttpCall) -> KeyList:
    keys = _keys(call)
    await keys.open()
    return KeyList([key_view(key) for key in keys.all()])


async def show_key(call: HttpCall) -> KeyView:
    return key_view(await _keys(call).get(call.path["key_id"]))


async def revoke_key(call: HttpCall) -> Accepted:
    await _keys(call).revoke(call.path["key_id"])
    return Accepted()


KEY_ENDPOINTS: Final = (
    Endpoint(
        "keys.create",
        "POST",
        "/api/keys",
        "Make a key of the gateway",
        create_key,
        body=KeyBody,
        answer=KeyMade,
        status=201,
        statuses=(403, 409),
    ),
    Endpoint(
        "keys.list",
        "GET",
        "/api/keys",
        "The keys of the gateway, with what they have spent",
        list_keys,
        answer=KeyList,
        statuses=(403,),
    ),
    Endpoint(
        "keys.show",
        "GET",
        "/api/keys/{key_id}",
        "One key, by its id or its name",
        show_key,
        answer=KeyView,
        statuses=(403, 404),
    ),
    Endpoint(
        "keys.revoke",
        "DELETE",
        "/api/keys/{key_id}",
        "Revoke a key: it is refused from now on, and its calls in flight are cut off",
        revoke_key,
        answer=Accepted,
        statuses=(403, 404),
    ),
)


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
