"""A key: who may call which models through the gateway, how often and for how much money.

`KeySettings` is what a key was made with; the key's text is not part of it, only its hash. A key is a process of the
kernel (`hold_key`): its budget is the process's budget and its end is the revocation, so that both are in the store.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core.naming import GATEWAY_KEY, named
from lyra.core.rights.scope import BARRIER, Glob
from lyra.errors import ConfigError, Denied
from lyra.observe.history.calls import KEY_AGENT
from lyra.server.owners import GATEWAY_KEYS

if TYPE_CHECKING:
    from lyra.kernel.programs.context import Context


KEY_PREFIX: Final = "sk-lyra-"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@+-]{0,63}")
_PATTERN: Final = re.compile(r"[\x21-\x7e]{1,200}")
_PATTERNS_MAX: Final = 100
_CACHE_S_MAX: Final = 30 * 86_400


class KeySettings(msgspec.Struct, frozen=True, kw_only=True):
    """`models` are patterns of the names that it may call (none: all); `fallbacks` are tried when a model is down."""

    id: str
    name: str
    hash: str  # SHA-256 of the key, in hexadecimal
    created_at: float
    models: tuple[str, ...] = ()
    requests_per_minute: int | None = None
    user: str = ""
    team: str = ""
    fallbacks: tuple[str, ...] = ()
    cache_s: float = 0.0  # how long an answer may be given again for the same request; 0: never

    @property
    def is_token(self) -> bool:
        """Whether this stands for a token of the server, which is no key."""
        return not self.hash

    @property
    def payer(self) -> str:
        """What stands in the place of an agent in the records of its calls."""
        return f"{'token/' if self.is_token else KEY_AGENT}{self.name}"

    def allows(self, *names: str) -> bool:
        """Whether the model of any of these names may be called."""
        return not self.models or any(_matches(pattern, name) for pattern in self.models for name in names)

    def require(self, model: str) -> None:
        """Refuse a model that the key may not call. A pattern without a provider means the model's own name."""
        if not self.allows(model, model.partition("/")[2] or model):
            raise Denied(
                f"this key may not call {model[:200]}", hint=f"it may call {', '.join(self.models)}", model=model[:200]
            )


def _matches(pattern: str, name: str) -> bool:
    return _glob(pattern).matches(name)


@lru_cache(maxsize=10_000)
def _glob(pattern: str) -> Glob:
    """A pattern whose `*` stands for any text, also one with a slash."""
    return Glob(pattern, BARRIER)


def hashed(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def checked_settings(settings: KeySettings) -> KeySettings:
    """The settings, if they can be used."""
    if not _NAME.fullmatch(settings.name):
        raise ConfigError(
            "the name of a key has letters, digits and _ . @ + -, at most 64",
            hint="such as `ci-bot` or `ada@example.org`",
            key="name",
        )
    for label in ("user", "team"):
        text = getattr(settings, label)
        if text and not _NAME.fullmatch(text):
            raise ConfigError(f"a {label} has letters, digits and _ . @ + -, at most 64", key=label)
    for patterns in (settings.models, settings.fallbacks):
        if len(patterns) > _PATTERNS_MAX or not all(_PATTERN.fullmatch(pattern) for pattern in patterns):
            raise ConfigError(f"a key has at most {_PATTERNS_MAX} names of models, without spaces", key="models")
    if settings.requests_per_minute is not None and not 1 <= settings.requests_per_minute <= 10**9:
        raise ConfigError("requests_per_minute is a number from 1 to 1,000,000,000", key="requests_per_minute")
    if not 0 <= settings.cache_s <= _CACHE_S_MAX:
        raise ConfigError(f"cache_s is at most {_CACHE_S_MAX} seconds", key="cache_s")
    return settings


@named(GATEWAY_KEY)
async def hold_key(ctx: Context, settings: dict[str, Any]) -> None:
    """The program of a key: it stands for the key until that is revoked."""
    process = ctx.own_process
    if process.kernel.parts[GATEWAY_KEYS].enter(process, msgspec.convert(settings, KeySettings)):
        while True:
            await ctx.receive()
