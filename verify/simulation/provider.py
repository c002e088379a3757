"""The simulated outside world: a service that misbehaves on purpose and remembers everything that was asked of it.

Every act of a simulated program ends here. `Provider.perform` draws what happens from the seed (`FAULTS` is the table)
and counts acts by idempotency key, so that the promises "a finished effect is never performed again" and "an act that
must not happen twice happens once, unless an answer said retry" are judged by the provider that would have been
harmed, not by the kernel's own journal. The effects that programs use are `EFFECTS`; `use(provider)` makes them talk
to one provider.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from lyra.core.budgets.budget import Usage
from lyra.core.budgets.money import Money
from lyra.core.effect import Charged, Effect
from lyra.core.ids import ProcessRandom
from lyra.errors import ModelError, ToolError

__all__ = ["EFFECTS", "FAULTS", "Provider", "ToolCrash", "use"]


class ToolCrash(BaseException):
    """A tool that ends with something no `except Exception` sees."""


# What may happen to one act, and how often out of a hundred when the world is rough.
FAULTS: Final[dict[str, int]] = {
    "ok": 46,  # answers at once
    "slow": 14,  # answers after a while
    "429": 6,  # too many requests, with a pause to keep
    "500": 6,  # fails and may work next time
    "bad_request": 3,  # fails and always will
    "hang": 4,  # never answers: a time-out or a kill has to end it
    "half_stream": 5,  # gives part of its answer, then breaks off
    "tool_crash": 4,  # an exception that was not declared
    "base_crash": 1,  # an exception that is not an Exception
    "cheap": 3,  # costs less than was set aside
    "overrun": 2,  # costs more
    "unkept": 2,  # gives a value that cannot be saved
    "large": 1,  # gives a value too large for a row
    "nested": 3,  # uses asyncio's own tools inside
}
_LARGE_BYTES: Final = 70_000


class Provider:
    """Counts acts by key and decides what each one meets."""

    def __init__(self, rng: ProcessRandom, *, rough: bool = True) -> None:
        self._rng = rng
        self._rough = rough
        self._words = [word for word, weight in FAULTS.items() for _ in range(weight)]
        self.performed: dict[str, int] = {}
        self.overruns = 0
        self.on_perform: Callable[[str, dict[str, Any]], None] = _ignore_request

    async def perform(self, request: dict[str, Any], key: str) -> Any:
        count = self.performed[key] = self.performed.get(key, 0) + 1
        self.on_perform(key, request)
        word = self._rng.choice(self._words) if self._rough else "ok"
        answer: dict[str, Any] = {"key": key, "nth": count, "of": request["kind"]}
        happening: Callable[..., Any] = _HAPPENINGS.get(word, _answers)
        return await happening(self, answer, request)

    async def _after(self, least_s: float, most_s: float) -> None:
        await asyncio.sleep(self._rng.uniform(least_s, most_s))


def _ignore_request(_key: str, _request: dict[str, Any]) -> None:
    pass


async def _answers(_provider: Provider, answer: dict[str, Any], _request: dict[str, Any]) -> Any:
    return answer


async def _slow(provider: Provider, answer: dict[str, Any], _request: dict[str, Any]) -> Any:
    await provider._after(0.01, 20.0)
    return answer


async def _too_many(provider: Provider, _answer: dict[str, Any], _request: dict[str, Any]) -> Any:
    await provider._after(0.0, 0.1)
    raise ModelError("429 too many requests", kind="rate_limit", status=429, retry_after_s=2.0)


async def _fails(_provider: Provider, _answer: dict[str, Any], _request: dict[str, Any]) -> Any:
    raise ModelError("500 something broke", kind="temporary", status=500)


async def _bad_request(_provider: Provider, _answer: dict[str, Any], _request: dict[str, Any]) -> Any:
    raise ModelError("400 bad request", kind="bad_request", status=400)


async def _hangs(_provider: Provider, _answer: dict[str, Any], _request: dict[str, Any]) -> Any:
    await asyncio.get_running_loop().create_future()


async def _half_stream(provider: Provider, answer: dict[str, Any], _request: dict[str, Any]) -> Any:
    async def pieces() -> Any:
        for piece in ("half", "an"):
            await provider._after(0.0, 1.0)
            yield piece
        raise ModelError("the stream broke off", kind="temporary")

    answer["pieces"] = [piece async for piece in pieces()]
    return answer


async def _tool_crash(_provider: Provider, _answer: dict[str, Any], _request: dict[str, Any]) -> Any:
    raise ToolError("the tool crashed")


async def _base_crash(_provider: Provider, _answer: dict[str, Any], _request: dict[str, Any]) -> Any:
    raise ToolCrash("the tool crashed hard")


async def _cheap(_provider: Provider, answer: dict[str, Any], request: dict[str, Any]) -> Any:
    return Charged(answer, Usage(usd=request["micro_usd"] // 2))


async def _overrun(provider: Provider, answer: dict[str, Any], request: dict[str, Any]) -> Any:
    provider.overruns += 1
    return Charged(answer, Usage(usd=request["micro_usd"] + 7))


async def _unkept(_provider: Provider, answer: dict[str, Any], _request: dict[str, Any]) -> Any:
    return {**answer, "object": object()}


async def _large(_provider: Provider, answer: dict[str, Any], _request: dict[str, Any]) -> Any:
    return {**answer, "text": "x" * _LARGE_BYTES}


async def _nested(provider: Provider, answer: dict[str, Any], _request: dict[str, Any]) -> Any:
    async with asyncio.timeout(60.0):
        await asyncio.gather(provider._after(0.0, 2.0), asyncio.sleep(0))
    return answer


_HAPPENINGS: Final[dict[str, Callable[[Provider, dict[str, Any], dict[str, Any]], Any]]] = {
    "slow": _slow,
    "429": _too_many,
    "500": _fails,
    "bad_request": _bad_request,
    "hang": _hangs,
    "half_stream": _half_stream,
    "tool_crash": _tool_crash,
    "base_crash": _base_crash,
    "cheap": _cheap,
    "overrun": _overrun,
    "unkept": _unkept,
    "large": _large,
    "nested": _nested,
}

# ---------------------------------------------------------------------- the effects that programs use

_current: Provider | None = None


@contextmanager
def use(provider: Provider) -> Iterator[None]:
    """Acts inside the block go to this provider."""
    global _current
    previous, _current = _current, provider
    try:
        yield
    finally:
        _current = previous


async def _act(request: dict[str, Any], idempotency_key: str) -> Any:
    assert _current is not None, "no provider: use(provider) first"
    return await _current.perform(request, idempotency_key)


def _declared(name: str, **options: Any) -> Effect:
    return Effect(_act, name=f"sim:{name}", needs=lambda request: request["needs"], **options)


_BACKOFF: Final = {"kind": "exponential", "initial_s": 0.5, "jitter": 0.5}

EFFECTS: Final[dict[str, Effect]] = {
    "read": _declared("read", idempotent=True),
    "pay": _declared("pay", cost=Money(10_000), timeout_s=30.0),
    "post": _declared("post"),
    "model": _declared("model", cost=Money(2_000), retry={"max_attempts": 3, "backoff": _BACKOFF}, timeout_s=10.0),
    "fetch": _declared("fetch", idempotent=True, retry={"max_attempts": 2}, timeout_s=5.0),
    "queued": _declared(
        "queued", idempotent=True, rate_limit={"requests_per_minute": 30, "burst": 2, "strategy": "queue"}
    ),
    "rejected": _declared(
        "rejected", idempotent=True, rate_limit={"requests_per_minute": 20, "burst": 1, "strategy": "reject"}
    ),
    "pressed": _declared(
        "pressed",
        cost=Money(500),
        rate_limit={"requests_per_minute": 20, "burst": 1, "strategy": "backpressure"},
        retry={"max_attempts": 2},
    ),
    "fragile": _declared(
        "fragile", idempotent=True, circuit_breaker={"threshold": 2, "reset_after": 20.0}, timeout_s=4.0, retry=2
    ),
}
