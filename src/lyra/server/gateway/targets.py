"""ModelTargets: from the name of a model in a request to the provider that is asked, its price and its circuit breaker.

A name is `provider/model`, or a bare id that shows its provider. Whether a key may call it is decided before anything
about the provider is looked up, so that a refusal tells nothing of the server's settings. The failure of a call is told
to the client in the provider's own words where the client may have them, else in the vendor's shape.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.agents.session.shared import AgentRuntime, runtime_of
from lyra.core.budgets.money import Money
from lyra.core.policies.breaker import Breaker, CircuitBreaker
from lyra.core.secrets.known_keys import KnownKeys
from lyra.errors import ConfigError, LyraError, ModelError, RateLimited
from lyra.models.pricing import Price
from lyra.models.provider import LLMProvider, Request
from lyra.models.providers.anthropic import Anthropic
from lyra.models.providers.openai import Azure, OpenAI
from lyra.models.wire.faults import UNREADABLE, from_status, retry_after
from lyra.models.wire.http import UnreadAnswer, usual_sentence
from lyra.models.wire.remote import RemoteProvider
from lyra.server.gateway.request import GatewayRequest, WireFormat
from lyra.server.http.endpoint import RawAnswer
from lyra.server.http.problems import HttpProblem, HttpRefusal, error_body, problem_of

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.models.names import ModelName
    from lyra.server.gateway.keys import KeySettings


_log: Final = logging.getLogger("lyra.server")
_SECRET_LEAST: Final = 8  # characters; a shorter value is no key and may be part of other words
_BREAKERS_MAX: Final = 10_000
_BREAKER: Final = CircuitBreaker(threshold=10, reset_after=15.0)


class ModelTarget(msgspec.Struct, frozen=True):
    """A model that is asked: its provider, the provider's name for it, Lyra's name for it, its price if known."""

    provider: LLMProvider
    model: str
    name: str
    price: Price | None
    breaker: Breaker
    is_native: bool  # the provider speaks the format of the request
    keys: KnownKeys  # those of the server, which no answer may quote


class ModelTargets:
    """The models that one gateway reaches."""

    __slots__ = ("_breakers", "_kernel", "_loaded")

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._breakers: dict[str, Breaker] = {}  # by model, shared by all keys
        self._loaded: set[str] = set()  # providers whose libraries are imported

    def resolve(self, settings: KeySettings, request: GatewayRequest) -> list[ModelTarget]:
        """Return the model that a request asks for, and the fallbacks of its key that the server has settings for."""
        runtime = runtime_of(self._kernel)
        try:
            resolved = runtime.models.client.resolve(request.model)
        except ConfigError as error:
            raise HttpRefusal(404, error.message, hint=error.hint) from None
        full = str(resolved)
        settings.require(full)
        for other in request.other_models:
            settings.require(f"{resolved.provider}/{other}")
        targets = [self._target(runtime, full, resolved, request.format)]
        for name in dict.fromkeys(settings.fallbacks):
            if name != full:
                with suppress(HttpRefusal):  # logged
                    targets.append(self._target(runtime, name, None, request.format))
        return targets

    def _target(self, runtime: AgentRuntime, name: str, resolved: ModelName | None, wire: WireFormat) -> ModelTarget:
        """Return a model; `resolved` is what its name means, where that is known."""
        client = runtime.models.client
        try:
            if resolved is None:
                resolved = client.resolve(name)
                name = str(resolved)
            provider = client.provider(resolved.provider)
            runtime.settings.need(name)
            own_price = provider.price(resolved.model)
        except ConfigError as error:
            _log.warning("a model that was asked for cannot be called: %s", error.message)
            raise HttpRefusal(404, f"this server has no settings for the model {name[:200]!r}") from None
        if resolved.provider not in self._loaded:
            provider.load()
            self._loaded.add(resolved.provider)
        prices = runtime.settings.prices
        price = own_price or (prices.find(name) if wire.limits else prices.find_for_embeddings(name))
        keys = runtime.keys.prepared
        if provider not in client.key_holders:  # its keys are not among the known ones
            secrets = [secret for secret in provider.secrets() if len(secret) >= _SECRET_LEAST]
            keys = KnownKeys.prepare((*runtime.known, *secrets))
        breaker = self._breakers.get(name)
        if breaker is None:
            if len(self._breakers) >= _BREAKERS_MAX:
                self._breakers.clear()
            breaker = self._breakers[name] = Breaker(_BREAKER)
        return ModelTarget(provider, resolved.model, name, price, breaker, speaks(provider, wire), keys)


# ---------------------------------------------------------------- upstream
# The provider's side of a call: its address and its headers for a wire format, and the headers that may pass.

# Headers of a client that its vendor's API reads; the rest is about the connection, or about another account.
_FORWARDED: Final = ("anthropic-version", "anthropic-beta", "openai-beta")
_IDEMPOTENCY: Final = "idempotency-key"
_RETURNED: Final = frozenset(
    {
        *("request-id", "x-request-id", "openai-processing-ms", "openai-version", "openai-model"),
        *("retry-after", "retry-after-ms", "x-should-retry"),
    }
)


def speaks(provider: LLMProvider, wire: WireFormat) -> bool:
    """Return whether a provider takes requests of this format as they are."""
    if isinstance(provider, OpenAI):
        return wire.vendor == "openai"
    return isinstance(provider, Anthropic) and wire.vendor == "anthropic"


def upstream_url(provider: RemoteProvider, wire: WireFormat, model: str, query: str = "") -> str:
    """Return where a provider takes requests of a format."""
    if isinstance(provider, Azure):
        url = provider.url_of(wire.path, model)
    else:
        url = f"{provider.settings.base_url}/{wire.path}"
    return url if not query else f"{url}{'&' if '?' in url else '?'}{query}"


def upstream_headers(provider: RemoteProvider, model: str, given: Mapping[str, str], key_id: str) -> dict[str, str]:
    """Return the headers of a request: those of the client that may pass, and the provider's own."""
    passed = {name: given[name] for name in _FORWARDED if name in given and _is_sendable(given[name])}
    if given.get(_IDEMPOTENCY):  # of this key alone: all keys share the provider's account
        passed[_IDEMPOTENCY] = hashlib.sha256(f"{key_id}\0{given[_IDEMPOTENCY]}".encode()).hexdigest()
    own = {**provider.headers(Request(model, ())), **provider.settings.sent_headers()}
    accept = given.get("accept", "*/*")
    if "anthropic-version" in passed:
        own.pop("anthropic-version", None)
    return {"content-type": "application/json", "accept": accept if _is_sendable(accept) else "*/*", **passed, **own}


def _is_sendable(value: str) -> bool:
    """Return whether a header's value may be sent on: what the formats define is printable ASCII; others are left
    out."""
    return value.isascii() and value.isprintable()


def answer_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a provider's answer that go to the client."""
    return {name: value for name, value in headers.items() if name in _RETURNED}


_HELD_RETRY_S: Final = 5.0  # when to ask again for money that calls in flight hold
_REFUSAL_BYTES_MAX: Final = 1024 * 1024  # of a longer one the client is told the status alone
_SERVER_KEY_REFUSED: Final = (401, 402, 403)  # about the server's key or account, not the client's

# Statuses of failures of which the provider's own answer is not passed on: it spoke another format, or the connection
# failed. `auth` is about the server's key and not the client's.
_STATUSES: Final[dict[str, int]] = {
    "rate_limit": 429,
    "overloaded": 503,
    "timeout": 504,
    "bad_request": 400,
    "not_found": 404,
    "context_overflow": 400,
    "content_filter": 400,
}


# What the client is told of failures whose sentence names the server's own addresses or keys.
_SENTENCES: Final[dict[str, str]] = {
    "connection": "the model's provider cannot be reached",
    "auth": "the model's provider refused the key of this server",
    "bad_response": "what came from the model's provider is not an answer",
}


def money_held(micro_usd: int) -> RateLimited:
    """Return the refusal of a call for which the key's budget has the money, once calls in flight have ended."""
    return RateLimited(
        f"calls in flight hold {Money(micro_usd)} of the key's budget, which this call needs",
        hint="ask again when they have ended",
        retry_after_s=_HELD_RETRY_S,
        held=micro_usd,
    )


async def read_refusal(
    provider: RemoteProvider, answer: UnreadAnswer, model: str, now: float
) -> tuple[ModelError, RawAnswer | None]:
    """Return the error of an answer that is none, and the provider's own words for the client; None where it may not
    have them: of a redirect, and of what is about the server's key."""
    status, body = answer.status, await answer.read(_REFUSAL_BYTES_MAX)
    is_whole = len(body) <= _REFUSAL_BYTES_MAX
    try:
        data = msgspec.json.decode(body) if is_whole else None
    except UNREADABLE:
        data = None
    code, sentence = provider.sentence(status, data) if data is not None else usual_sentence(0, None)
    error = from_status(
        status,
        provider.http.clean(sentence) or f"{provider.name} answered with status {status}",
        code=provider.http.clean(code),
        provider=provider.name,
        model=model,
        retry_after_s=retry_after(answer.headers, now),
    )
    if status < 400 or status in _SERVER_KEY_REFUSED or not is_whole:
        return error, None
    media = answer.headers.get("content-type", "application/json")
    return error, RawAnswer(provider.http.redact(body), media, status, answer_headers(answer.headers))


def failure_answer(error: LyraError, vendor: str, kernel: Kernel) -> RawAnswer:
    """Return the answer to a call that failed before the client had a part of an answer."""
    refusal: Any = error.fields.get("refusal")
    if isinstance(refusal, RawAnswer):
        return refusal
    problem = _problem(error, kernel)
    return RawAnswer(
        msgspec.json.encode(error_body(problem, vendor)), "application/json", problem.status, problem.headers
    )


def failure_body(error: LyraError, vendor: str, kernel: Kernel) -> dict[str, Any]:
    """Return the body of a failure in the middle of a stream."""
    return error_body(_problem(error, kernel), vendor)


def _problem(error: LyraError, kernel: Kernel) -> HttpProblem:
    problem = problem_of(error, kernel)
    if not isinstance(error, ModelError):
        return problem
    kind = str(error.fields.get("kind"))
    if kind in _SENTENCES:
        return problem._replace(message=_SENTENCES[kind], hint="")
    status = _STATUSES.get(kind)
    if status is None:
        return problem
    wait_s = error.fields.get("retry_after_s")
    headers = {"retry-after": str(math.ceil(wait_s))} if isinstance(wait_s, (int, float)) else {}
    return problem._replace(status=status, hint="", headers=headers)
