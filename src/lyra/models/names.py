"""Names of models: `provider/model`, or a well-known bare id.

The providers are the rows of `lyra.core.providers`; their column `ids` says how bare ids begin. Model ids are data:
a prefix shows the provider, and no list of models is needed. Any other name that has settings with a base
URL is a server that speaks OpenAI's format.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from lyra.core.checking.check import did_you_mean
from lyra.core.providers import USUAL
from lyra.errors import ConfigError


class ModelName(NamedTuple):
    provider: str
    model: str

    def __str__(self) -> str:
        return f"{self.provider}/{self.model}"


def provider_of(model: str) -> str | None:
    """Return the provider of a bare id; None if no prefix matches."""
    word = model.lower()
    for provider, usual in USUAL.items():
        for start in usual.ids:
            # `o3` and `o3-mini`, but not `o3d`
            if word.startswith(start) and (not start[-1].isdigit() or word[len(start) : len(start) + 1] in ("", "-")):
                return provider
    return None


def model_name(name: str, others: Iterable[str] = ()) -> ModelName:
    """Return the provider and the model that `name` means; `others` are providers beside the ones of the table."""
    text: object = name
    if not isinstance(text, str) or not text.strip():
        raise ConfigError(f"a model is named like anthropic/claude-sonnet-4-5, not {name!r}", key="model")
    known = dict.fromkeys((*USUAL, *others))
    provider, slash, model = name.strip().partition("/")
    if slash and provider in known:
        if not model:
            raise ConfigError(f"{name!r} names a provider and no model", hint=f"write {provider}/MODEL", key="model")
        return ModelName(provider, model)
    if slash:
        raise _unknown(name, f"there is no provider {provider!r}", did_you_mean(provider, known), tuple(known), model)
    guessed = provider_of(provider)
    if guessed is not None:
        return ModelName(guessed, provider)
    if provider == "sim":  # the one provider with a default model
        return ModelName(provider, "echo")
    if provider in known:
        raise ConfigError(f"{name!r} names a provider and no model", hint=f"write {provider}/MODEL", key="model")
    raise _unknown(name, f"no provider is known for the model {name!r}", None, tuple(known), provider)


def _unknown(name: str, message: str, near: str | None, known: tuple[str, ...], model: str) -> ConfigError:
    if near:
        hint = f"did you mean {near}/{model}?"
    elif guess := _near_prefix(name):
        hint = f"did you mean {guess}?"
    else:
        hint = f"write PROVIDER/MODEL with one of {', '.join(known)}; a provider of your own needs a base_url"
    return ConfigError(message, hint=hint, key="model", model=name)


def _near_prefix(name: str) -> str | None:
    """`cluade-sonnet-4` → `claude-sonnet-4`: a slip in the word before the first dash."""
    first, dash, rest = name.partition("-")
    words = [start[:-1] for usual in USUAL.values() for start in usual.ids if start.endswith("-")]
    near = did_you_mean(first.lower(), words) if dash else None
    return f"{near}-{rest}" if near else None
