"""Gateway: from a request with a key to a provider's answer; and the table of its paths.

The paths are model calls in the forms of the vendors, the list of models, and for the operator the keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.agents.session.records import new_span
from lyra.agents.session.shared import runtime_of
from lyra.core.event import ModelCalled
from lyra.core.policies.retry import RETRYABLE, error_class
from lyra.core.trace_context import enclosing_span
from lyra.errors import BudgetExceeded, ConfigError, Denied, LyraError, ModelError, Unauthenticated
from lyra.kernel.base.waiting import consume_error
from lyra.kernel.journal.rows import PASSING
from lyra.models.pricing import list_published_names
from lyra.models.requests import read_messages
from lyra.server.gateway.call import GatewayCall, call_effect
from lyra.server.gateway.keys import GatewayKey, KeySettings, KeyTable
from lyra.server.gateway.relay import CACHE_HEADER, AnswerCache, CacheSlot, Relay
from lyra.server.gateway.request import FORMATS, GatewayRequest
from lyra.server.gateway.targets import ModelTarget, ModelTargets, failure_answer, failure_body, money_held
from lyra.server.http.api.processes import Accepted
from lyra.server.http.compat import ASKING, MODEL_ENDPOINTS, agent_model, agent_models, model_document, model_list
from lyra.server.http.directory import refuse_if_draining
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer, RequestBody, RequestQuery, Streamed
from lyra.server.http.problems import HttpRefusal, store_lost, too_many
from lyra.server.http.sse import sse_event
from lyra.server.identity import Caller
from lyra.server.token_limit import credential_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lyra.core.budgets.budget import Budget
    from lyra.core.effect import Effect
    from lyra.kernel.kernel import Kernel
    from lyra.server.http.parts import HttpParts


KEY_HINT: Final = "`lyra keys create` makes a key; send it as `authorization: Bearer KEY` or `x-api-key: KEY`"

_EFFECTS_MAX: Final = 10_000
_BOUND_HEADER: Final = "x-lyra-max-tokens"  # the bound of the answer, where it is not the request's own
_LEFT_OUT_HEADER: Final = "x-lyra-left-out"  # types of tools that were not sent, since a budget cannot hold them


def gateway_of(parts: HttpParts) -> Gateway:
    """Return the gateway of a server."""
    return parts.get_shared(_make)


def _make(parts: HttpParts) -> Gateway:
    return Gateway(parts.kernel)


async def identify_key(parts: HttpParts, headers: Mapping[str, str]) -> Caller | None:
    """Return the caller of a request with a key of the gateway's; None where it has none, so that tokens are looked
    at."""
    key = await gateway_of(parts).keys.find(credential_of(headers))
    return None if key is None else Caller.for_user(key.settings.user or f"key/{key.settings.name}")


class Gateway:
    """See the module."""

    __slots__ = ("_cache", "_calls", "_effects", "_kernel", "_targets", "keys")

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.keys = KeyTable(kernel)
        self._effects: dict[tuple[str, str], Effect] = {}
        self._targets = ModelTargets(kernel)
        self._cache = AnswerCache(kernel.clock)
        self._calls: set[asyncio.Task[None]] = set()  # in flight
        kernel.core.after_abort.append(self._store_lost)

    def _store_lost(self, error: LyraError) -> None:
        """Cut all calls off: their rows cannot be written any more, and the kernel that has the store charges them."""
        del error
        for task in list(self._calls):
            task.cancel()

    async def key_of(self, call: HttpCall) -> GatewayKey:
        """Return the key of a request; a token of the server represents a key without limits."""
        key = await self.keys.find(credential_of(call.headers))
        return await self.keys.open_user_key(call.caller.user_id) if key is None else key

    async def answer(self, call: HttpCall, request: GatewayRequest) -> Any:
        """Return the answer of a provider, or of an agent, to a request."""
        key = await self.key_of(call)
        wait_s = key.window.admit("")
        if wait_s:
            raise too_many(wait_s, "more a minute than this key may make")
        agent = agent_of(call, request.model)
        if agent:
            return await ask_agent(call, key, agent)
        return await self._ask_provider(call, key, request)

    async def _ask_provider(self, call: HttpCall, key: GatewayKey, request: GatewayRequest) -> RawAnswer | Streamed:
        """Return the answer of the model's provider, or of the first fallback that is not down."""
        targets = self._targets.resolve(key.settings, request)
        if request.format.is_free and not targets[0].is_native:
            tokens = runtime_of(self._kernel).estimate(targets[0].name, read_messages(request.data()).request)
            return RawAnswer(msgspec.json.encode({"input_tokens": tokens}))
        slot = self._cache.slot(key.settings, f"{call.endpoint.name}?{_query(call)}", call.raw_body, call.headers)
        if slot is not None and (kept := slot.answer()) is not None:
            return kept
        failure: LyraError | None = None
        for target in targets:
            try:
                return await self._ask(call, key, request, target, slot)
            except LyraError as error:
                if failure is not None and isinstance(error, ConfigError):
                    continue  # a fallback that cannot take this request
                failure = error
                if error_class(error) not in RETRYABLE or "held" in error.fields:
                    break
        assert failure is not None
        return failure_answer(failure, request.format.vendor, self._kernel)

    def _effect(self, key: GatewayKey, model: str) -> Effect:
        """Return the effect of calling a model with a key."""
        names = (key.payer, model)
        effect = self._effects.get(names)
        if effect is None:
            if len(self._effects) >= _EFFECTS_MAX:
                self._effects.clear()
            effect = self._effects[names] = call_effect(*names)
        return effect

    # ------------------------------------------------------------------ the call

    async def _ask(
        self, call: HttpCall, key: GatewayKey, request: GatewayRequest, target: ModelTarget, slot: CacheSlot | None
    ) -> RawAnswer | Streamed:
        """Return the answer of one model, which is kept where the key has a cache."""
        relay = Relay(keeps=slot is not None)
        asked = GatewayCall(
            self._kernel.entropy.text(16),
            key,
            request,
            target,
            headers=call.headers,
            query=_query(call),
            relay=relay,
        )
        asked.prepare(key.process.budget)  # what is refused here leaves no row
        task = self._kernel.tasks.start(self._perform(asked), name=f"lyra-gateway-{asked.id}")
        task.add_done_callback(consume_error)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        try:
            if request.stream:
                await relay.wait_begun()
            if not relay.has_begun:
                await self._outcome(task)
        except BaseException:
            if request.stream:  # the rest of a whole answer is waited for: its usage is told at its end
                task.cancel()
            raise
        more = {} if slot is None else {CACHE_HEADER: "miss"}
        if asked.bound_lowered is not None:
            more[_BOUND_HEADER] = str(asked.bound_lowered)
        if asked.tools_left_out:
            more[_LEFT_OUT_HEADER] = ", ".join(asked.tools_left_out)
        if relay.has_begun:
            return Streamed(self._pieces(asked, task, slot), {**relay.headers, **more})
        assert asked.answer is not None
        if slot is not None and asked.meter.is_answer:
            slot.keep(asked.answer.body, asked.answer.media, stream=False)
        return asked.answer._replace(headers={**asked.answer.headers, **more}) if more else asked.answer

    async def _perform(self, asked: GatewayCall) -> None:
        """Perform the call as an effect of the key's process, and tell the outcome of it."""
        kernel, key = self._kernel, asked.key
        effect = self._effect(key, asked.target.name)
        began_s = kernel.clock.monotonic()
        error: BaseException | None = None
        try:
            await kernel.door.perform(key.process, f"{PASSING}{asked.id}", effect, (asked,), {})
        except BaseException as raised:
            error = raised
            if isinstance(raised, ModelError) and asked.refusal is not None:
                raised.fields["refusal"] = asked.refusal
            raise
        finally:
            asked.relay.end()
            if asked.tries and "model.called" in kernel.agents_heard:
                took_s = kernel.clock.monotonic() - began_s
                kernel.publish(key.process.pid, "model.called", call_record(kernel, asked, took_s, error).to_data())

    async def _pieces(
        self, asked: GatewayCall, task: asyncio.Task[None], slot: CacheSlot | None
    ) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a stream. Closing it cuts the call off."""
        try:
            async for piece in asked.relay.pieces():
                yield piece
            try:
                await self._outcome(task)
            except LyraError as error:
                yield asked.relay.last if error.fields.get("told") else self._error_event(asked, error)
                return
            if slot is not None and asked.meter.is_answer and (kept := asked.relay.kept) is not None:
                slot.keep(kept, stream=True)
            if asked.relay.last:
                yield asked.relay.last
        finally:
            task.cancel()

    async def _outcome(self, task: asyncio.Task[None]) -> None:
        """Wait for a call. It continues where the client leaves: it is paid for, so that its usage is read."""
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                if self._kernel.failure is not None:
                    raise store_lost() from None
                raise Unauthenticated("the key was revoked, or the server stops") from None
            raise

    def _error_event(self, asked: GatewayCall, error: LyraError) -> bytes:
        vendor = asked.request.format.vendor
        return sse_event(failure_body(error, vendor, self._kernel), event="error" if vendor == "anthropic" else "")


def _query(call: HttpCall) -> str:
    """Return the query that goes to the provider."""
    return "beta=true" if getattr(call.query, "beta", "") == "true" else ""


# ---------------------------------------------------------------- record
# The record of a call through the gateway: the same fields as an agent's call of a model, and the key.

_BAD_RESPONSE: Final = "bad_response"  # the kind of error of what came with the status of a success and is no answer


def call_record(kernel: Kernel, asked: GatewayCall, took_s: float, error: BaseException | None) -> ModelCalled:
    """Return the record of a call that is over."""
    tokens = asked.tokens
    if tokens is None or error is not None:
        tokens = asked.meter.tokens(asked.quoted["input_tokens"], is_whole=error is None)
    is_billed = isinstance(error, LyraError) and bool(error.fields.get("billed"))
    has_cost = error is None or is_billed or asked.meter.has_begun or isinstance(error, asyncio.CancelledError)
    outer = enclosing_span()
    settings = asked.key.settings
    micro_usd = asked.micro_usd if has_cost else 0
    read, written = (tokens.cache_read_tokens, tokens.cache_write_tokens) if has_cost else (0, 0)
    return ModelCalled(
        trace_id=outer.trace_id if outer is not None else kernel.entropy.hex(128),
        span_id=new_span(kernel),
        agent=asked.key.payer,
        model=asked.target.name,
        input_tokens=tokens.total_input if has_cost else 0,
        output_tokens=tokens.output_tokens if has_cost else 0,
        cost_usd=None if micro_usd is None else micro_usd / 1_000_000,
        latency_ms=int(took_s * 1000),
        status=_status(error) if error is not None else "ok" if asked.meter.is_answer else _BAD_RESPONSE,
        retries=asked.tries - 1,
        parent_span=(outer.span_id or None) if outer is not None else None,
        key="" if settings.is_token else settings.name,
        team=settings.team,
        estimated=tokens.estimated and has_cost,
        cache_read_tokens=read,
        cache_write_tokens=written,
        total_input_tokens=tokens.total_input if read or written else 0,
    )


def _status(error: BaseException) -> str:
    return str(error.fields.get("kind") or error.code) if isinstance(error, LyraError) else "cancelled"


# ---------------------------------------------------------------- agents
# Agents behind the gateway: a model `agent/NAME`, or the bare name of an agent, is answered by that agent.

_COMPAT: Final = {endpoint.path: endpoint for endpoint in ASKING}
_PREFIX: Final = "agent/"


def agent_of(call: HttpCall, model: str) -> str:
    """Return the agent that a model's name means; "" where it means none."""
    if model.startswith(_PREFIX):
        return model.removeprefix(_PREFIX)
    return model if "/" not in model and model in call.parts.chats.directory.agents() else ""


async def ask_agent(call: HttpCall, key: GatewayKey, agent: str) -> Any:
    """Return the answer of an agent, in the form of the endpoint that was asked."""
    key.settings.require(f"{_PREFIX}{agent}")
    compat = _COMPAT.get(call.endpoint.path)
    if compat is None:
        raise HttpRefusal(404, "agents are asked by /v1/chat/completions or /v1/messages")
    call.endpoint = compat
    call.take_body(call.raw_body)
    call.parent = key.process
    try:
        return await compat.handler(call)
    except BudgetExceeded as error:
        if held := _find_held_money(error, key.process.budget):
            raise money_held(held) from error
        raise


def _find_held_money(error: BudgetExceeded, budget: Budget) -> int:
    """Return what calls in flight hold of a key's budget, where that alone is why the money is not there; else 0."""
    asked, limit = error.fields.get("asked"), error.fields.get("limit")
    if error.fields.get("dimension") != "usd" or not isinstance(asked, int) or not isinstance(limit, int):
        return 0
    left, unspent = budget.spendable("usd"), budget.spendable("usd", with_reserved=True)
    would_fit = error.fields.get("used", 0) + asked <= limit and asked <= (unspent or 0)
    return (unspent or 0) - (left or 0) if would_fit else 0


# ---------------------------------------------------------------- token count
# The tokens of a request to a model whose provider does not count them beforehand: Lyra's own estimate.


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
