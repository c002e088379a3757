"""ModelTargets: from the name of a model in a request to the provider that is asked, its price and its circuit breaker.

A name is `provider/model`, or a bare id that shows its provider. Whether a key may call it is decided before anything
about the provider is looked up, so that a refusal tells nothing of the server's settings.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from lyra.agents.session.shared import runtime_of
from lyra.core.policies.breaker import Breaker, CircuitBreaker
from lyra.core.secrets.known_keys import KnownKeys
from lyra.errors import ConfigError
from lyra.models.pricing import Price
from lyra.models.provider import LLMProvider
from lyra.server.gateway.upstream import speaks
from lyra.server.http.problems import HttpRefusal

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.server.gateway.formats import WireFormat
    from lyra.server.gateway.key import KeySettings
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

    def of(self, settings: KeySettings, request: GatewayRequest) -> list[ModelTarget]:
        """The model that a request asks for, and the fallbacks of its key that the server has settings for."""
        try:
            resolved = runtime_of(self._kernel).client.resolve(request.model)
        except ConfigError as error:
            raise HttpRefusal(404, error.message, hint=error.hint) from None
        settings.require(str(resolved))
        for other in request.other_models:
            settings.require(f"{resolved.provider}/{other}")
        targets = [self._target(str(resolved), request.format)]
        for name in dict.fromkeys(settings.fallbacks):
            if name != targets[0].name:
                with suppress(HttpRefusal):  # logged
                    targets.append(self._target(name, request.format))
        return targets

    def _target(self, name: str, wire: WireFormat) -> ModelTarget:
        runtime = runtime_of(self._kernel)
        try:
            resolved = runtime.client.resolve(name)
            provider = runtime.client.provider(resolved.provider)
            runtime.settings.need(str(resolved))
            own_price = provider.price(resolved.model)
        except ConfigError as error:
            _log.warning("a model that was asked for cannot be called: %s", error.message)
            raise HttpRefusal(404, f"this server has no settings for the model {name[:200]!r}") from None
        if resolved.provider not in self._loaded:
            provider.load()
            self._loaded.add(resolved.provider)
        full, prices = str(resolved), runtime.settings.prices
        price = own_price or (prices.of(full) if wire.limits else prices.of_embeddings(full))
        secrets = (secret for secret in provider.secrets() if len(secret) >= _SECRET_LEAST)
        keys = KnownKeys.of((*runtime.known, *secrets))
        return ModelTarget(provider, resolved.model, full, price, self._breaker(full), speaks(provider, wire), keys)

    def _breaker(self, model: str) -> Breaker:
        breaker = self._breakers.get(model)
        if breaker is None:
            if len(self._breakers) >= _BREAKERS_MAX:
                self._breakers.clear()
            breaker = self._breakers[model] = Breaker(_BREAKER)
        return breaker
