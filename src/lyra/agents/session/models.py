"""The models that the agents of one kernel ask: found by name, loaded before the first question, priced and limited.

A name is resolved once. Libraries and prices, which take a quarter of a second, are loaded before the time of a call
begins. Token estimates are shared by all agents and corrected by what providers count. Nothing here asks a model: see
`lyra.agents.turn.model_effect`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from lyra.agents.session.session import cache_of
from lyra.core import codec
from lyra.core.policies.policy import RateLimit
from lyra.core.providers import USUAL
from lyra.core.secrets.known_keys import KnownKeys
from lyra.core.secrets.process_keys import add_key_source
from lyra.core.secrets.redact import redact, redact_data
from lyra.errors import CapabilityDenied, ConfigError, EffectFailed
from lyra.models.client import LLMClient
from lyra.models.pricing import Price, Prices
from lyra.models.provider import LLMProvider, Request
from lyra.models.settings import secrets_of
from lyra.models.tokens import Estimator

if TYPE_CHECKING:
    from lyra.agents.declaration.agent import AgentDeclaration
    from lyra.config import Config
    from lyra.core.clock import Clock
    from lyra.kernel.effects.gates import Gate, TwoGates
    from lyra.kernel.kernel import Kernel


_MANY: Final = 10**9  # requests of one call that may ask its model any number of times
_PRICE_AFTER_S: Final = 0.1  # the request has been sent by then


class AgentModels:
    """See the module. `client` reaches the providers; `keys` are those that no text may hold."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.settings = ModelSettings(kernel.config, kernel.clock)
        self.client: LLMClient = kernel.parts.get("models") or LLMClient(self.settings.providers)
        self.keys = ProviderKeys(self)
        self.tokens = Estimator()
        self._resolved: dict[str | LLMProvider, tuple[LLMProvider, str, str]] = {}
        self._loaded: set[str | LLMProvider] = set()
        self.sends_before_pricing = False  # Sage: a person waits, and no model answers within a quarter of a second
        self.priced: set[str] = set()  # models whose price has been looked up, or will be in a moment

    def find(self, model: str | LLMProvider) -> tuple[LLMProvider, str, str]:
        """(provider, its name for the model, Lyra's name for it) of a model as an Agent names it."""
        recorded = self.client.stand_in is not None  # a temporary provider: not to be kept
        resolved = None if recorded else self._resolved.get(model)
        if resolved is None:
            if isinstance(model, LLMProvider):
                resolved = (model, "", model.name or type(model).__name__)
            else:
                resolved = self._resolve(model)
            if not recorded:
                self._resolved[model] = resolved
        return resolved

    def load(self, model: str | LLMProvider, *, priced: bool = True) -> tuple[LLMProvider, str, str]:
        """`find`, and load libraries and prices before the first question. That takes a quarter of a second, which must
        not count as the call's time, nor lie between an answer and its row in the journal. A call that no money budget
        holds need not be `priced` here: see `look_up_price`."""
        resolved = self._resolved.get(model) if self.client.stand_in is None else None
        if resolved is None:
            resolved = self.find(model)
        provider, named, name = resolved
        if model not in self._loaded:
            provider.price(named)  # a scripted provider reads its script for this
            provider.load()
            self._loaded.add(model)
        if priced and name not in self.priced:
            self.settings.prices.find(name)
            self.priced.add(name)
        return resolved

    def look_up_price(self, provider: LLMProvider, named: str, name: str) -> None:
        """Look up the price of a model that is asked for the first time: before the request where there is a journal,
        since an answer that has arrived and has no row yet is paid for again after a crash; else, and where the first
        request must not wait (`sends_before_pricing`), while the answer is waited for."""
        if name not in self.priced:
            self.priced.add(name)
            if self._kernel.journal is not None and not self.sends_before_pricing:
                self.price(provider, named, name)
            elif not name.startswith("sim/"):
                self._kernel.loop.call_later(_PRICE_AFTER_S, self.price, provider, named, name)

    def prepare(self, agent: AgentDeclaration) -> None:
        """Load all models of an agent, before the time of a call begins."""
        for model in agent.models:
            with suppress(ConfigError):  # the call itself will raise it
                self.load(model)

    def answers_in_order(self, agent: AgentDeclaration) -> bool:
        """Return whether a model of the agent answers by the order of its questions, as some scripts do."""
        for model in agent.models:
            with suppress(ConfigError):  # the call itself will raise it
                provider, name, _ = self.find(model)
                if provider.answers_in_order(name):
                    return True
        return False

    def why_in_turn(self, agent: AgentDeclaration, *, timed: bool) -> str:
        """Return why the models of an agent forbid to ask it early: they answer by which questions came before, or have
        a limit that could fail a call which waits for others; "" where neither is so."""
        if self.answers_in_order(agent):
            return f"a model of agent {agent.name} answers by the order of its questions"
        if any(timed or limit.strategy != "queue" for limit in self.model_limits(agent).values()):
            return f"a model of agent {agent.name} has a limit that could fail a call which waits for others"
        return ""

    def model_limits(self, agent: AgentDeclaration) -> dict[str, RateLimit]:
        """Return the rate limits of its models, which it shares with other agents."""
        names = []
        for model in agent.models:
            with suppress(ConfigError):
                names.append(self.find(model)[2])
        limits = self.settings.limits
        return {name: limits[name] for name in names if name in limits}

    def ready_in(self, agent: AgentDeclaration, *, timed: bool) -> float:
        """Seconds until no limit can fail a call of the agent because it comes too soon."""
        declared = self._kernel.declared
        effects = [effect for effect in cache_of(agent).model_effects.values() if effect.gated]
        gates: list[Gate | TwoGates] = [declared.gate(effect) for effect in effects]
        for name, limit in self.model_limits(agent).items():
            shared = declared.gates.get((name, limit, None))
            gates += [] if shared is None else [shared]
        asks_once = not agent.toolbox and not agent.sources and agent.output is None
        requests = agent.retry.max_attempts if asks_once else _MANY
        return max((gate.ready_in(requests, timed=timed) for gate in gates), default=0.0)

    def _resolve(self, model: str) -> tuple[LLMProvider, str, str]:
        try:
            self.settings.need(model)
            check_model_name(model, self.keys.known)
            name = self.client.resolve(model)
            return self.client.provider(name.provider), name.model, f"{name.provider}/{name.model}"
        except ConfigError as mistake:
            raise self.settings.explain(mistake, model) from None

    def price(self, provider: LLMProvider, named: str, name: str) -> Price | None:
        """Return the price of a model, as `find` resolves it: its provider's own, else the published one."""
        own = provider.price(named)
        return own if own is not None else self.settings.prices.find(name)

    def estimate(self, model: str, request: Request) -> int:
        """Tokens that a request will take; rather too many than too few."""
        return self.tokens.estimate(model, request)

    async def close(self) -> None:
        """Close the clients that the kernel opened. A client that was handed in belongs to its owner."""
        if self._kernel.parts.get("models") is not self.client:
            await self.client.close()
        self.keys.forget()


# The keys of model providers that this process knows: none is shown, written down or used as the name of a model.

_NO_KEY: Final = "leave the key out; what needs one gets it from its own settings"
_KEY_VARIABLES: Final = (
    *dict.fromkeys(name for usual in USUAL.values() for name in usual.key),
    *("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
)
_KEY_LEAST: Final = 8  # characters; masking a shorter value would destroy ordinary text
_SIMULATED: Final = "sim"  # its names hold paths of files, which may look like a key


def keys_in_environment() -> tuple[str, ...]:
    """Return the values of the variables where keys of providers usually are."""
    values = [os.environ.get(name, "").strip() for name in _KEY_VARIABLES]
    return tuple([value for value in values if len(value) >= _KEY_LEAST])


def collect_keys(config: Config | None) -> tuple[str, ...]:
    """Return the keys of providers and those in the kernel's configuration, if it was made with one."""
    providers = {} if config is None else config.providers
    written = (secret for name, given in providers.items() for secret in secrets_of(name, given))
    return (*keys_in_environment(), *filter(is_key, written))


def is_key(value: str) -> bool:
    """Return whether a value is long enough to be masked in texts."""
    return len(value) >= _KEY_LEAST


def check_model_name(model: str, known: Iterable[str]) -> None:
    """Raise ConfigError where the name of a model holds a known key, or a word in the form of one."""
    provider, slash, name = model.partition("/")
    if not slash:
        provider, name = "", model
    if redact(name, known, forms=provider != _SIMULATED) != name:
        raise ConfigError(
            "the name of the model is a key: it was not used, sent or kept",
            hint="name a model, such as openai/gpt-5; a key belongs in a variable, such as OPENAI_API_KEY",
            key="model",
        )


class ProviderKeys:
    """The keys that the agents of one kernel know. The kernel masks them in the texts of errors, until `forget`."""

    def __init__(self, models: AgentModels) -> None:
        self._models = models
        self._configured: tuple[str, ...] = ()
        self._secrets: tuple[str, ...] = ()
        self._know()
        self.forget = add_key_source(self, lambda keys: keys.known)

    @property
    def known(self) -> tuple[str, ...]:
        """The API keys that this process knows: its providers', and those in the usual environment variables."""
        self.prepared  # noqa: B018 (it takes up keys that have changed)
        return self._known

    @property
    def prepared(self) -> KnownKeys:
        """The known keys, prepared to be found in texts. Only providers that may hold keys are asked for them again."""
        models = self._models
        if models.client.key_holders or models.settings.secrets is not self._configured:
            self._configured = models.settings.secrets
            secrets = (*models.client.secrets(), *self._configured)
            if secrets != self._secrets:
                self._secrets = secrets
                self._know()
        return self._prepared

    def _know(self) -> None:
        self._known = tuple(sorted({*keys_in_environment(), *filter(is_key, self._secrets)}, key=len, reverse=True))
        self._prepared = KnownKeys.prepare(self._known)

    def clean(self, text: str) -> str:
        """Return a text that is shown or written down, with known keys masked. For a text that runs or is stored there
        is `check_no_key`, which refuses it."""
        keys = self.prepared
        return keys.mask(text) if keys.wholes else text

    def check_no_key(self, value: Any, what: str) -> None:
        """Raise CapabilityDenied if there is a known key in the value. It is for what a program is about to act with:
        masked, it would be another value than the one that was asked for."""
        if self.prepared.holds(value):
            raise CapabilityDenied(f"{what} holds a key of a model provider, which programs may not use", hint=_NO_KEY)

    def without_key(self, value: Any, what: str) -> Any:
        """Return a value that a program reads, where there is no known key in it; EffectFailed otherwise. The journal
        cannot keep the key, and a program may write what it has read: masked, that would be another text."""
        if self.prepared.holds(value):
            raise EffectFailed(f"{what} holds a key of a model provider, which programs may not read")
        return value

    def clean_data(self, value: Any) -> Any:
        """Plain data with known keys masked; the same object where there is none in it."""
        keys = self.prepared
        if not keys.wholes or value is None or isinstance(value, (int, float)):
            return value
        if type(value) is str:
            return keys.mask(value)
        data = codec.encode(value)
        return redact_data(codec.decode(data), self.known) if keys.may_be_in(data) else value


# The configuration of models in one kernel: providers, prices, rate limits.


class ModelSettings:
    """`prices` and `limits` by `provider/model`, as far as they have been read."""

    def __init__(self, config: Config | None, clock: Clock) -> None:
        self._clock = clock
        self._config: Config | None = None
        self.prices = Prices(clock=clock)
        self.limits: dict[str, RateLimit] = {}
        self.secrets: tuple[str, ...] = ()  # every key in it, also of providers that were not asked yet
        if config is not None:
            self._use(config)

    def need(self, model: str) -> None:
        """Read the configuration if it may have settings for this model."""
        if self._config is None and not model.startswith("sim/"):
            self._load()

    def providers(self) -> Mapping[str, Mapping[str, Any]]:
        return (self._config or self._load()).providers

    def explain(self, mistake: ConfigError, model: str) -> ConfigError:
        """Return the error with a hint to settings of a project's file that were not allowed to apply, or wait for
        trust."""
        about = f"providers.{model.partition('/')[0]}." if "/" in model else f"{mistake.fields.get('key')}"
        notes = (*self._config.notes, self._config.describe_passed_over()) if self._config is not None else ()
        relevant = [note for note in notes if f" {about}" in note]
        if relevant:
            mistake.hint = "; ".join((*([mistake.hint] if mistake.hint else ()), *relevant))
        return mistake

    def _load(self) -> Config:
        from lyra.config import Config

        return self._use(Config.load())

    def _use(self, config: Config) -> Config:
        self._config = config
        self.limits = config.limits
        secrets = (secret for name, given in config.providers.items() for secret in secrets_of(name, given))
        self.secrets = tuple(dict.fromkeys(secrets))
        if config.prices:
            self.prices = Prices.from_config(config, clock=self._clock)
        return config
