"""KeyTable: the keys of one kernel. Makes, lists and revokes them, and finds the key that a request comes with.

A key's text is shown once, when it is made. The store keeps its hash, in the arguments of the key's process; after a
restart the processes continue, and each enters itself here again. A token of the server works as a key, too: each user
of a token has a key process without limits of its own, made at the first request.

In a cluster a key lives on one shard, which its name, its id and its text each lead to (`find_key_home`): its budget,
its requests a minute and its cache are there, wherever calls arrive.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core.budgets.money import money
from lyra.core.naming import GATEWAY_KEY, give_name
from lyra.core.rights.scope import BARRIER, Glob
from lyra.errors import ConfigError, Conflict, Denied, NameTaken, NoSuchProcess, Overloaded, Unauthenticated
from lyra.observe.history.calls import KEY_AGENT
from lyra.server.owners import GATEWAY_KEYS, OwnedPid, make_owned_pid, spawn_for
from lyra.server.token_limit import RequestWindow

if TYPE_CHECKING:
    from collections.abc import Callable

    from lyra.kernel.kernel import Kernel
    from lyra.kernel.process.process import Process
    from lyra.kernel.programs.context import Context


_KIND: Final = "key"
_KEYS_MAX: Final = 10_000
_ENTER_S: Final = 10.0  # for the processes of the store to enter themselves after a start
_OWN: Final = "token"  # in the pid of the key of a server token


class GatewayKey:
    """A key that is in force: its settings and its process."""

    __slots__ = ("payer", "process", "settings", "window")

    def __init__(self, settings: KeySettings, process: Process) -> None:
        self.settings = settings
        self.payer = f"{'token/' if settings.is_token else KEY_AGENT}{settings.name}"  # in the place of an agent
        self.process = process
        self.window = RequestWindow(settings.requests_per_minute, process.core.clock)

    @property
    def is_for_token(self) -> bool:
        """Whether it stands for tokens of the server."""
        return not self.settings.hash


class KeyTable:
    """See the module."""

    __slots__ = ("_by_hash", "_by_id", "_is_restored", "_kernel", "_starting")

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._by_id: dict[str, GatewayKey] = {}
        self._by_hash: dict[str, GatewayKey] = {}
        self._is_restored = False
        self._starting: set[str] = set()  # names of keys that are being made

    async def open(self) -> None:
        """Have the keys of the store continue; a second call changes nothing."""
        if self._is_restored:
            return
        kernel = self._kernel
        if kernel.parts.get(GATEWAY_KEYS) is not self:
            kernel.parts[GATEWAY_KEYS] = self
            kernel.register(hold_key)
        async with asyncio.timeout(_ENTER_S):
            while any(pid not in self._pids() for pid in self._living()):  # noqa: ASYNC110 - a step or two away
                await asyncio.sleep(0)
        self._is_restored = True

    async def close(self) -> None:
        """Called with the kernel."""
        self._by_id.clear()
        self._by_hash.clear()

    def _pids(self) -> set[str]:
        return {key.process.pid for key in self._by_id.values()}

    def _living(self) -> list[str]:
        """Return the pids of keys in the table of processes that have not ended."""
        return [pid for pid, process in list(self._kernel.processes.items()) if _is_key(pid) and process.exit is None]

    def enter(self, process: Process, settings: KeySettings) -> bool:
        """Enter the process of a key that begins, or continues after a restart. False for a process that is a copy of
        one: a fork would bring a revoked key back, or give it a second budget."""
        if process.pid != make_owned_pid(_KIND, settings.user, settings.id):
            return False
        key = self._by_id[settings.id] = GatewayKey(settings, process)
        if settings.hash:
            self._by_hash[settings.hash] = key
        return True

    async def create(self, *, name: str, budget: str | None = None, **settings: Any) -> tuple[str, str]:
        """Make a key; its id and its text, which is shown to its maker and kept nowhere."""
        await self.open()
        keys = self.all()
        if len(keys) >= _KEYS_MAX:
            raise Overloaded(f"{_KEYS_MAX} keys, the most there may be", hint="revoke one")
        if name in self._starting or any(key.settings.name == name for key in keys):
            raise NameTaken(f"there is a key {name!r} already", hint="revoke it first, or take another name")
        remote, entropy = self._kernel.core.remote, self._kernel.entropy
        if remote is not None and remote.home_of(name) != remote.shard:
            raise Conflict(f"the key {name!r} is made on shard {remote.home_of(name)}", elsewhere=True)
        key_id, text = "", ""
        while not key_id or (remote is not None and remote.home_of(key_id) != remote.shard):
            key_id = f"key-{entropy.text(12)}"
        while not text or (remote is not None and remote.home_of(hash_key(text)) != remote.shard):
            text = f"{KEY_PREFIX}{entropy.token()}"
        known = KeySettings(
            id=key_id, name=name, hash=hash_key(text), created_at=round(self._kernel.clock.now(), 3), **settings
        )
        self._starting.add(name)
        try:
            await self._start(check_settings(known), _limits(budget))
        finally:
            self._starting.discard(name)
        return key_id, text

    async def _start(self, settings: KeySettings, limits: dict[str, Any]) -> None:
        pid = make_owned_pid(_KIND, settings.user, settings.id)
        await spawn_for(self._kernel, settings.user, hold_key, msgspec.to_builtins(settings), pid=pid, budget=limits)
        while settings.id not in self._by_id:  # noqa: ASYNC110 - a step away
            await asyncio.sleep(0)

    async def revoke(self, key_id: str) -> None:
        """End a key: from now on it is not known, and its calls in flight are cut off."""
        key = await self.get(key_id)
        self._by_hash.pop(key.settings.hash, None)
        del self._by_id[key.settings.id]
        await self._kernel.kill(key.process.pid, "revoked")

    def all(self) -> list[GatewayKey]:
        """Return the keys in force that people made, the oldest first."""
        keys = [key for key in self._by_id.values() if not key.is_for_token and key.process.exit is None]
        return sorted(keys, key=lambda key: key.settings.created_at)

    def name_of(self, pid: str) -> str:
        """Return the name of the key that a process represents; "" for another process, and for that of a token."""
        owned = OwnedPid.read(pid)
        key = self._by_id.get(owned.rest) if owned is not None and owned.kind == _KIND else None
        return "" if key is None or key.settings.is_token else key.settings.name

    async def get(self, key_id: str) -> GatewayKey:
        """Return the key of an id or a name."""
        await self.open()
        for key in self.all():
            if key_id in (key.settings.id, key.settings.name):
                return key
        raise NoSuchProcess(f"no key {key_id[:80]!r}", hint="`lyra keys list` shows them")

    async def find(self, text: str) -> GatewayKey | None:
        """Return the key that a request comes with; None where the text is no key of the gateway's."""
        if not text.startswith(KEY_PREFIX):
            return None
        await self.open()
        key = self._by_hash.get(hash_key(text))
        if key is None or key.process.exit is not None:
            raise Unauthenticated("the key is not known, or was revoked", hint="`lyra keys create` makes one")
        return key

    async def open_user_key(self, user_id: str) -> GatewayKey:
        """Return the key of those who come with a token of the server."""
        await self.open()
        key_id = make_user_key_id(user_id)
        key = self._by_id.get(key_id)
        if key is None or key.process.exit is not None:
            name = user_id or "operator"
            await self._start(KeySettings(id=key_id, name=name, hash="", created_at=0.0, user=user_id), _limits(None))
            key = self._by_id[key_id]
        return key


def make_user_key_id(user_id: str) -> str:
    """Return the id of the key of those who come with a token of this user."""
    return f"{_OWN}-{hash_key(user_id)[:24]}" if user_id else _OWN


def find_key_home(credential: str, user_id: str, home_of: Callable[[str], str]) -> str:
    """Return the shard of the key that a request comes with, or of the key of its user, where it comes with a token."""
    return home_of(hash_key(credential) if credential.startswith(KEY_PREFIX) else make_user_key_id(user_id))


def _is_key(pid: str) -> bool:
    owned = OwnedPid.read(pid)
    return owned is not None and owned.kind == _KIND


def _limits(budget: str | None) -> dict[str, Any]:
    """Return the scope of a key: one of its own also without a limit, in which its spending is counted."""
    limits: dict[str, Any] = {"name": "the key's budget"}
    if budget is not None:
        limits["usd"] = money(budget)
    return limits


# ---------------------------------------------------------------- key
# A key: who may call which models through the gateway, how often and for how much money.

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

    def allows(self, *names: str) -> bool:
        """Return whether the model of any of these names may be called."""
        return not self.models or any(_glob(pattern).matches(name) for pattern in self.models for name in names)

    def require(self, model: str) -> None:
        """Refuse a model that the key may not call. A pattern without a provider means the model's own name."""
        if not self.allows(model, model.partition("/")[2] or model):
            raise Denied(
                f"this key may not call {model[:200]}", hint=f"it may call {', '.join(self.models)}", model=model[:200]
            )


@lru_cache(maxsize=10_000)
def _glob(pattern: str) -> Glob:
    """Return a pattern whose `*` stands for any text, also one with a slash."""
    return Glob(pattern, BARRIER)


def hash_key(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def check_settings(settings: KeySettings) -> KeySettings:
    """Return the settings, if they can be used."""
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


@give_name(GATEWAY_KEY)
async def hold_key(ctx: Context, settings: dict[str, Any]) -> None:
    """Run the program of a key: it stands for the key until that is revoked."""
    process = ctx.own_process
    if process.kernel.parts[GATEWAY_KEYS].enter(process, msgspec.convert(settings, KeySettings)):
        while True:
            await ctx.receive()
