"""The configuration of models in one kernel: providers, prices, rate limits.

`Kernel.from_config` brings its configuration along; any other kernel reads the files that `lyra config path` names,
once, when the first model is asked for by its name. Simulated models have no settings, and the files are not read for
them: a test with them must not depend on the machine it runs on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lyra.core.policies.rate import RateLimit
from lyra.errors import ConfigError
from lyra.models.pricing import Prices
from lyra.models.settings import secrets_of

if TYPE_CHECKING:
    from lyra.config import Config
    from lyra.core.clock import Clock


class ModelSettings:
    """`prices` and `limits` by `provider/model`, as far as they have been read."""

    __slots__ = ("_clock", "_config", "limits", "prices", "secrets")

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
        """The same error, with a hint to settings of a project's file that were not allowed to apply, or wait for
        trust."""
        about = f"providers.{model.partition('/')[0]}." if "/" in model else f"{mistake.fields.get('key')}"
        notes = (*self._config.notes, self._config.passed_over_sentence()) if self._config is not None else ()
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
            self.prices = Prices.of_config(config, clock=self._clock)
        return config
