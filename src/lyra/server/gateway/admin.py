"""`/api/keys`: make, list, show and revoke keys of the gateway. For the operator alone."""

from __future__ import annotations

from typing import Final

import msgspec

from lyra.errors import Denied
from lyra.server.gateway.gateway import gateway_of
from lyra.server.gateway.keys import GatewayKey, KeyTable
from lyra.server.http.api.processes import Accepted
from lyra.server.http.endpoint import Endpoint, HttpCall, RequestBody


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
