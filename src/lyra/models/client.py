"""LLMClient: access to every model, by name.

    client = LLMClient()
    async for event in client.stream("anthropic/claude-sonnet-4-5", request): ...
    answer = await client.complete("gpt-4o", request)

A name is resolved to its provider at the first call, and only that provider's module is imported; the provider is
kept, with its connections, until `close`. `providers` are settings by name (as `[providers.NAME]` of a configuration
has them), or a function that is called at the first use of a model that is not simulated; `register` adds a provider
or replaces one, and `model` gives a model, with its price, to an Agent. The client never retries, limits or counts:
the kernel's door does.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping
from importlib import import_module
from types import TracebackType
from typing import Any, Self

import msgspec

from lyra.core.providers import COMPATIBLE, USUAL
from lyra.errors import ConfigError
from lyra.models.names import ModelName, model_name
from lyra.models.pricing import Price, Prices
from lyra.models.provider import LLMProvider, Request, closing
from lyra.models.settings import secrets_of, settings_of
from lyra.models.stream import Completion, StreamEvent, refuse_broken_call
from lyra.models.wire.faults import from_exception


class LLMClient:
    """`env` replaces the environment variables, for keys that are kept elsewhere."""

    def __init__(
        self,
        providers: Mapping[str, Mapping[str, Any]] | Callable[[], Mapping[str, Mapping[str, Any]]] | None = None,
        *,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._settings = providers
        self._env = env
        self._providers: dict[str, LLMProvider] = {}
        self.key_holders: tuple[LLMProvider, ...] = ()  # providers that may hold keys, which may change
        # Replaces the providers, for example by a recording; its second argument makes the real provider.
        self.stand_in: Callable[[str, Callable[[], LLMProvider]], LLMProvider] | None = None

    def register(self, name: str, provider: LLMProvider) -> None:
        """Answer `name/…` with this provider from now on."""
        if not name or "/" in name:
            raise ConfigError(f"a provider's name has no '/' in it: {name!r}", key="name")
        self._keep(name, provider)

    def _keep(self, name: str, provider: LLMProvider) -> None:
        self._providers[name] = provider
        providers = self._providers.values()
        self.key_holders = tuple([holder for holder in providers if type(holder).secrets is not LLMProvider.secrets])

    def resolve(self, name: str) -> ModelName:
        """Return the provider and the model behind a name; nothing is imported or opened."""
        others = () if str(name).startswith("sim/") else self._load_settings()
        return model_name(name, (*others, *self._providers))

    def _load_settings(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the settings; a function is called at the first use."""
        if callable(self._settings):
            self._settings = self._settings()
        return self._settings or {}

    def configured(self) -> tuple[str, ...]:
        """Return the providers that have settings, or a key in a variable of the environment."""
        env = os.environ if self._env is None else self._env
        given = self._load_settings()
        with_key = (name for name, usual in USUAL.items() if any(env.get(key, "").strip() for key in usual.key))
        return tuple(dict.fromkeys((*given, *with_key, *self._providers)))

    def provider(self, name: str) -> LLMProvider:
        """Return the provider of that name (`anthropic`, not `anthropic/…`), made at its first use."""
        if self.stand_in is not None:
            return self.stand_in(name, lambda: self._get_or_make(name))
        return self._get_or_make(name)

    def _get_or_make(self, name: str) -> LLMProvider:
        provider = self._providers.get(name)
        if provider is None:
            provider = _make(name, self._load_settings().get(name) if name != "sim" else None, self._env)
            self._keep(name, provider)
        return provider

    def stream(self, name: str, request: Request) -> AsyncIterator[StreamEvent]:
        """Return the events of the answer of the model called `name`; the request's own model does not matter."""
        return stream_of(*self._route(name, request))

    async def complete(self, name: str, request: Request) -> Completion:
        """Return the whole answer."""
        provider, request = self._route(name, request)
        try:
            return await provider.complete(request)
        except Exception as error:
            classified = from_exception(error, provider.name)
            if classified is None:
                raise
            raise classified from error

    def _route(self, name: str, request: Request) -> tuple[LLMProvider, Request]:
        provider, model = self.resolve(name)
        if request.model != model:
            request = msgspec.structs.replace(request, model=model)
        return self.provider(provider), request

    def model(self, name: str, *, price: Mapping[str, Any] | None = None) -> LLMProvider:
        """Return a model of this client to give to an Agent: `Agent(model=client.model("here/qwen-3"))`.

        `price` is what it costs, with the keys of `[prices]` in a configuration, such as `input_usd_per_mtok`.
        """
        return ClientModel(self, self.resolve(name), price)

    def secrets(self) -> tuple[str, ...]:
        """Every key that the providers in use hold, to be redacted from logs and errors."""
        return tuple([secret for provider in self.key_holders for secret in provider.secrets()])

    def all_secrets(self) -> tuple[str, ...]:
        """`secrets`, and the keys of unused providers in settings and environment variables."""
        given = {} if callable(self._settings) else self._settings or {}
        told = (secret for name in (*USUAL, *given) for secret in secrets_of(name, given.get(name), self._env))
        return tuple(dict.fromkeys((*self.secrets(), *told)))

    async def close(self) -> None:
        """Give back every connection; the client may be used again."""
        for provider in self._providers.values():
            await provider.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class ClientModel(LLMProvider):
    """One model of a client, as an Agent takes it; `LLMClient.model` makes it. Its connections are the client's."""

    def __init__(self, client: LLMClient, model: ModelName, price: Mapping[str, Any] | None) -> None:
        self.name = str(model)
        self._client = client
        self._model = model
        self._price = None if price is None else Prices({self.name: price}).find(self.name)

    @property
    def _provider(self) -> LLMProvider:
        return self._client.provider(self._model.provider)

    def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        return self._client.stream(self.name, request)

    def secrets(self) -> tuple[str, ...]:
        return self._provider.secrets()

    def load(self) -> None:
        self._provider.load()

    def price(self, model: str) -> Price | None:
        return self._price if self._price is not None else self._provider.price(self._model.model)

    def answers_in_order(self, model: str) -> bool:
        return self._provider.answers_in_order(self._model.model)


def _make(name: str, given: Mapping[str, Any] | None, env: Mapping[str, str] | None) -> LLMProvider:
    settings = None if name == "sim" else settings_of(name, given, env)
    # A name that is not in the table has a base URL, which settings_of has checked: it speaks OpenAI's format.
    module, _, attribute = USUAL.get(name, COMPATIBLE).client.partition(":")
    kind = getattr(import_module(module), attribute)
    provider: LLMProvider = kind() if settings is None else kind(settings)
    return provider


async def stream_of(provider: LLMProvider, request: Request) -> AsyncIterator[StreamEvent]:
    """Yield the events of a provider's answer; whatever exception the provider raises comes out as a ModelError."""
    try:
        async with closing(provider.stream(request)) as events:
            async for event in events:
                refuse_broken_call(event)
                yield event
    except Exception as error:
        classified = from_exception(error, provider.name)
        if classified is None:
            raise
        raise classified from error
