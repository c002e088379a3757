"""The keys of model providers that this process knows, and the check that none is used as the name of a model.

`keys_in_environment` reads the usual variables. `check_model_name` refuses a name with a key in it: a name is
journaled, counted in the usage of sessions, shown and sent to a server, so a key that was typed in its place is refused
before any of that. The error never quotes the name. Masking keys in texts is `lyra.core.secrets`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from lyra.core.providers import USUAL
from lyra.core.secrets.redact import redact
from lyra.errors import ConfigError
from lyra.models.settings import secrets_of

if TYPE_CHECKING:
    from lyra.config import Config

__all__ = ["check_model_name", "is_key", "keys_in_environment", "known_to"]

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
