"""The keys of model providers that this process knows: none is shown, written down or used as the name of a model.

`ProviderKeys` has those of one kernel, masks them in texts and refuses values that hold one; how a key is found in a
text is in `lyra.core.secrets`. `keys_in_environment` reads the usual variables. `check_model_name` refuses a name with
a key in it: a name is journaled, counted in the usage of sessions, shown and sent to a server, so a key that was typed
in its place is refused before any of that. The error never quotes the name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from lyra.core import codec
from lyra.core.providers import USUAL
from lyra.core.secrets.known_keys import KnownKeys
from lyra.core.secrets.process_keys import add_key_source
from lyra.core.secrets.redact import redact, redact_data
from lyra.errors import CapabilityDenied, ConfigError, EffectFailed
from lyra.models.settings import secrets_of

if TYPE_CHECKING:
    from lyra.agents.session.models.agent_models import AgentModels
    from lyra.config import Config


_NO_KEY: Final = "leave the key out; what needs one gets it from its own settings"
_AWS_SECRETS: Final = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_KEY_LEAST: Final = 8  # characters; masking a shorter value would destroy ordinary text
_SIMULATED: Final = "sim"  # its names hold paths of files, which may look like a key


def keys_in_environment() -> tuple[str, ...]:
    """The values of the variables where keys of providers usually are."""
    names = {name for usual in USUAL.values() for name in usual.key}
    values = (os.environ.get(name, "").strip() for name in (*names, *_AWS_SECRETS))
    return tuple(filter(is_key, values))


def known_to(config: Config | None) -> tuple[str, ...]:
    """The same, and the keys in a configuration; a kernel that was made without one has none."""
    providers = {} if config is None else config.providers
    written = (secret for name, given in providers.items() for secret in secrets_of(name, given))
    return (*keys_in_environment(), *filter(is_key, written))


def is_key(value: str) -> bool:
    """Whether a value is long enough to be masked in texts."""
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

    __slots__ = ("__weakref__", "_known", "_models", "_prepared", "_secrets", "forget")

    def __init__(self, models: AgentModels) -> None:
        self._models = models
        self._secrets: tuple[str, ...] = ()
        self._known: tuple[str, ...] = keys_in_environment()
        self._prepared: tuple[tuple[str, ...], KnownKeys] | None = None
        self.forget = add_key_source(self, lambda keys: keys.known)

    @property
    def known(self) -> tuple[str, ...]:
        """The API keys that this process knows: its providers', and those in the usual environment variables."""
        models = self._models
        secrets = (*models.client.secrets(), *models.settings.secrets)
        if secrets is not self._secrets and secrets != self._secrets:
            self._secrets = secrets
            self._known = tuple(sorted({*keys_in_environment(), *filter(is_key, secrets)}, key=len, reverse=True))
        return self._known

    @property
    def prepared(self) -> KnownKeys:
        """The same, prepared to be found in texts."""
        known = self.known
        if self._prepared is None or self._prepared[0] is not known:
            self._prepared = (known, KnownKeys.of(known))
        return self._prepared[1]

    def clean(self, text: str) -> str:
        """A text that is shown or written down, with known keys masked. For a text that runs or is stored there is
        `check_no_key`, which refuses it."""
        return self.prepared.mask(text)

    def check_no_key(self, value: Any, what: str) -> None:
        """Raise CapabilityDenied if there is a known key in the value. It is for what a program is about to act with:
        masked, it would be another value than the one that was asked for."""
        if self.prepared.holds(value):
            raise CapabilityDenied(f"{what} holds a key of a model provider, which programs may not use", hint=_NO_KEY)

    def without_key(self, value: Any, what: str) -> Any:
        """A value that a program reads, where there is no known key in it; EffectFailed otherwise. The journal cannot
        keep the key, and a program may write what it has read: masked, that would be another text."""
        if self.prepared.holds(value):
            raise EffectFailed(f"{what} holds a key of a model provider, which programs may not read")
        return value

    def clean_data(self, value: Any) -> Any:
        """Plain data with known keys masked; the same object where there is none in it."""
        if type(value) is str:
            return self.clean(value)
        keys = self.prepared
        if not keys or value is None or isinstance(value, (int, float)):
            return value
        data = codec.encode(value)
        return redact_data(codec.decode(data), self.known) if keys.may_be_in(data) else value
