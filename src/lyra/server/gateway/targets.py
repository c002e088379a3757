"""ModelTargets: from the name of a model in a request to the provider that is asked, its price and its circuit breaker.

A name is `provider/model`, or a bare id that shows its provider. Whether a key may call it is decided before anything
about the provider is looked up, so that a refusal tells nothing of the server's settings.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from lyra.agents.session.shared import runtime_of
from lyra.core.policies.breaker import Breaker, CircuitBreaker
from lyra.core.secrets.known_keys import KnownKeys
from lyra.errors import ConfigError
from lyra.models.pricing import Price
from lyra.models.provider import LLMProvider, Request
from lyra.models.providers.anthropic import Anthropic
from lyra.models.providers.openai import Azure, OpenAI
from lyra.models.wire.remote import RemoteProvider
from lyra.server.gateway.request import WireFormat
from lyra.server.http.problems import HttpRefusal

if TYPE_CHECKING:
    from lyra.agents.session.shared import AgentRuntime
    from lyra.kernel.kernel import Kernel
    from lyra.models.names import ModelName
    from lyra.server.gateway.keys import KeySettings
    from lyra.server.gateway.request import GatewayRequest


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
