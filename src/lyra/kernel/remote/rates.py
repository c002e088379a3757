"""Requests that are counted over shards: the home of a user and an endpoint keeps their windows.

`kernel.check_rate_limit` of a shard is to be awaited: it asks the home, where the four windows are as in one kernel, so
that no period has more requests than the limit, and all of it can be used. The limits that hold for the user where it
is asked travel with the question. Limits that are set on one shard are posted to the others.

A share that is lent, as for effects (`shares`), would make a window inexact, and take a commit where this takes a call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

import msgspec

from lyra.errors import Conflict, LyraError, ProcessError, Unreachable
from lyra.kernel.remote.part import RemotePart
from lyra.kernel.workers.rate_limits import RateLimitConfig, RateLimiter, RateLimitResult

if TYPE_CHECKING:
    from lyra.kernel.assembly import KernelParts
    from lyra.kernel.remote.posts import Remote

_PATIENCE_S: Final = 10.0  # while the home moves from one host to another
_PAUSE_S: Final = 0.1


class RateQuestion:
    """What `check_rate_limit` gives in a shard: await it for the result."""

    __slots__ = ("_ask",)

    def __init__(self, ask: Callable[[], Awaitable[RateLimitResult]]) -> None:
        self._ask = ask

    def __await__(self) -> Generator[Any, None, RateLimitResult]:
        return self._ask().__await__()

    def __getattr__(self, name: str) -> NoReturn:
        raise ProcessError(
            "requests of a cluster are counted at their home, which has to be asked",
            hint="await kernel.check_rate_limit(…)",
        )


class SharedRates(RemotePart):
    """See the module."""

    SENDS: ClassVar[frozenset[str]] = frozenset({"rate.limited"})

    def __init__(self, parts: KernelParts, remote: Remote) -> None:
        self._parts = parts
        self._remote = remote
        self.call: Callable[..., Awaitable[Any]] | None = None  # filled in by the cluster

    @property
    def _limiter(self) -> RateLimiter:
        return self._parts.rate_limiter

    def ask(self, user_id: str, endpoint: str, config: RateLimitConfig, *, record: bool) -> Any:
        return RateQuestion(lambda: self.check(user_id, endpoint, config, record=record))

    async def check(
        self, user_id: str, endpoint: str, config: RateLimitConfig, *, record: bool = True, durable: bool = True
    ) -> RateLimitResult:
        """Ask the home whether one more request fits, and count it there. A question whose answer was lost may have
        been counted; it is asked again."""
        if self.call is None:
            return self._limiter._check_with(config, user_id, endpoint, record=record)
        home = self._remote.home_of(f"rate {endpoint} {user_id}")
        data = {"user": user_id, "endpoint": endpoint, "config": config.to_data(), "record": record, "durable": durable}
        clock = self._parts.core.clock
        until_s = clock.monotonic() + _PATIENCE_S
        while True:
            try:
                return msgspec.convert(await self.call(home, "rate", {**data, "shard": home}), RateLimitResult)
            except (Conflict, Unreachable) as error:
                lost: LyraError = error
            if clock.monotonic() >= until_s:
                raise lost
            await asyncio.sleep(_PAUSE_S)

    async def answer(self, data: dict[str, Any]) -> dict[str, Any]:
        """Check a limit as the home of its user and endpoint."""
        config = RateLimitConfig(**data["config"])
        result = self._limiter._check_with(config, data["user"], data["endpoint"], record=data["record"])
        if data["durable"]:
            await result
        told: dict[str, Any] = msgspec.to_builtins(result)
        return told

    def tell_limits(self, data: dict[str, Any]) -> None:
        """Have the other shards set the limits that were set here."""
        for shard in self._remote.shards:
            if shard != self._remote.shard:
                self._remote.post(shard, "rate.limited", data, refusable=False)

    def take(self, sender: str, what: str, data: dict[str, Any], before: Any) -> None:  # noqa: ARG002 (one signature)
        """Set limits that another shard has set."""
        self._parts.core.fact(self._limiter.state, "", "rate.limited", data)
