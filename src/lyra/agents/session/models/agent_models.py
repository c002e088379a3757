"""The models that the agents of one kernel ask: found by name, loaded before the first question, priced and limited.

A name is resolved once. Libraries and prices, which take a quarter of a second, are loaded before the time of a call
begins. Token estimates are shared by all agents and corrected by what providers count. Nothing here asks a model: see
`lyra.agents.turn.model_effect`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from lyra.agents.session.agent_cache import cache_of
from lyra.agents.session.models.model_settings import ModelSettings
from lyra.agents.session.models.provider_keys import ProviderKeys, check_model_name
from lyra.errors import ConfigError
from lyra.models.client import LLMClient
from lyra.models.provider import LLMProvider
from lyra.models.tokens import Estimator

if TYPE_CHECKING:
    from lyra.agents.declaration.agent import AgentDeclaration
    from lyra.core.policies.policy import RateLimit
    from lyra.kernel.effects.gates import Gate, TwoGates
    from lyra.kernel.kernel import Kernel
    from lyra.models.pricing import Price
    from lyra.models.request import Request


_MANY: Final = 10**9  # requests of one call that may ask its model any number of times
_PRICE_AFTER_S: Final = 0.1  # the request has been sent by then


class AgentModels:
    """See the module. `client` reaches the providers; `keys` are those that no text may hold."""

    __slots__ = (
        "_kernel",
        "_loaded",
        "_priced",
        "_resolved",
        "client",
        "keys",
        "sends_before_pricing",
        "settings",
        "tokens",
    )

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.settings = ModelSettings(kernel.config, kernel.clock)
        self.client: LLMClient = kernel.parts.get("models") or LLMClient(self.settings.providers)
        self.keys = ProviderKeys(self)
        self.tokens = Estimator()
        self._resolved: dict[str | LLMProvider, tuple[LLMProvider, str, str]] = {}
        self._loaded: set[str | LLMProvider] = set()
        self.sends_before_pricing = False  # Sage: a person waits, and no model answers within a quarter of a second
        self._priced: set[str] = set()  # models whose price has been looked up, or will be in a moment

    def find(self, model: str | LLMProvider) -> tuple[LLMProvider, str, str]:
        """(provider, its name for the model, Lyra's name for it) of a model as an Agent names it."""
        recorded = self.client.stand_in is not None  # a temporary provider: not to be kept
        resolved = None if recorded else self._resolved.get(model)
        if resolved is None:
            if isinstance(model, LLMProvider):
                resolved = (model, "", model.name or type(model).__name__)
            else:
                resolved = self._named(model)
            if not recorded:
                self._resolved[model] = resolved
        return resolved

    def load(self, model: str | LLMProvider, *, priced: bool = True) -> tuple[LLMProvider, str, str]:
        """`find`, and load libraries and prices before the first question. That takes a quarter of a second, which must
        not count as the call's time, nor lie between an answer and its row in the journal. A call that no money budget
        holds need not be `priced` here: see `look_up_price`."""
        resolved = provider, named, name = self.find(model)
        if model not in self._loaded:
            provider.price(named)  # a scripted provider reads its script for this
            provider.load()
            self._loaded.add(model)
        if priced and name not in self._priced:
            self.settings.prices.of(name)
            self._priced.add(name)
        return resolved

    def look_up_price(self, provider: LLMProvider, named: str, name: str) -> None:
        """Look up the price of a model that is asked for the first time: before the request where there is a journal,
        since an answer that has arrived and has no row yet is paid for again after a crash; else, and where the first
        request must not wait (`sends_before_pricing`), while the answer is waited for."""
        if name not in self._priced:
            self._priced.add(name)
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
        """Whether a model of the agent answers by the order of its questions, as some scripts do."""
        for model in agent.models:
            with suppress(ConfigError):  # the call itself will raise it
                provider, name, _ = self.find(model)
                if provider.answers_in_order(name):
                    return True
        return False

    def model_limits(self, agent: AgentDeclaration) -> dict[str, RateLimit]:
        """The rate limits of its models, which it shares with other agents."""
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

    def _named(self, model: str) -> tuple[LLMProvider, str, str]:
        try:
            self.settings.need(model)
            check_model_name(model, self.keys.known)
            name = self.client.resolve(model)
            return self.client.provider(name.provider), name.model, f"{name.provider}/{name.model}"
        except ConfigError as mistake:
            raise self.settings.explain(mistake, model) from None

    def price(self, provider: LLMProvider, named: str, name: str) -> Price | None:
        """The price of a model, as `find` resolves it: its provider's own, else the published one."""
        own = provider.price(named)
        return own if own is not None else self.settings.prices.of(name)

    def estimate(self, model: str, request: Request) -> int:
        """Tokens that a request will take; rather too many than too few."""
        return self.tokens.estimate(model, request)

    async def close(self) -> None:
        """The kernel has closed. A client that was handed in belongs to its owner."""
        if self._kernel.parts.get("models") is not self.client:
            await self.client.close()
        self.keys.forget()
