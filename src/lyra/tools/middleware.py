"""Ready-made middleware: logging, timeout, rate_limit, cache, truncate, redact, retry.

    registry = ToolRegistry([search, fetch], middleware=[logging(), timeout(20), retry(3)])

Each function makes one layer (`lyra.tools.wrapped`); the first of a list is the outermost. `cache` and
`retry` apply only to idempotent tools; other tools are retried only after errors that say the call was never made.
Time comes from the given Clock. A layer may be shared by several tools and agents: its limits then hold for
all of them together.
"""

from __future__ import annotations

import asyncio
import json
import logging as std
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final
from weakref import WeakKeyDictionary

import msgspec

from lyra.core import codec
from lyra.core.checking.check import check_integer, real
from lyra.core.clock import Clock, RunningClock
from lyra.core.ids import Entropy, make_random
from lyra.core.policies.rate import RateLimit, TokenBucket
from lyra.core.policies.retry import Backoff, Retry
from lyra.core.secrets.redact import redact as redact_text
from lyra.core.secrets.redact import redact_data
from lyra.core.secrets.secret import Secret
from lyra.core.tool import ERROR_CODES, ToolCall, error_code, rights
from lyra.errors import CircuitOpen, ConfigError, LyraError, Overloaded, RateLimited, ToolError
from lyra.tools.wrapped import Middleware, Next, pure

_CLOCK: Final = RunningClock()
_ARGUMENTS_SHOWN: Final = 500  # characters
_CACHED_BYTES_MAX: Final = 1 << 20  # of one value; a larger one is not cached
_AGAIN: Final = ("timeout", "io_error", "exec_failed")
_NEVER_MADE: Final = (RateLimited, Overloaded, CircuitOpen)  # the call was refused before it began


def logging(
    logger: std.Logger | str = "lyra.tools", *, level: int = std.INFO, arguments: bool = False, clock: Clock = _CLOCK
) -> Middleware:
    """Log a line for each call: its name, how it ended, how long it took. Arguments only when asked for, and
    redacted."""
    log = std.getLogger(logger) if isinstance(logger, str) else logger

    @pure
    async def mw(call: ToolCall, inner: Next) -> Any:
        began = clock.monotonic()
        with_what = f" {_render_arguments(call.arguments)}" if arguments else ""
        ended = "was cancelled"
        try:
            output = await inner(call)
            ended = "ok"
        except Exception as error:
            ended = f"failed: {error_code(error)}"
            raise
        finally:
            took_ms = (clock.monotonic() - began) * 1000
            log.log(level if ended == "ok" else std.WARNING, "%s%s %s (%.0f ms)", call.name, with_what, ended, took_ms)
        return output

    return mw


def _render_arguments(arguments: dict[str, Any]) -> str:
    text = msgspec.json.encode(redact_data(arguments), enc_hook=str).decode()
    return text if len(text) <= _ARGUMENTS_SHOWN else text[:_ARGUMENTS_SHOWN] + "…"


def timeout(seconds: float) -> Middleware:
    """Cancel a call that takes longer; it fails with the code `timeout`. A function in a thread runs on."""
    limit_s = real(seconds, "seconds", above=0.0)

    async def mw(call: ToolCall, inner: Next) -> Any:
        try:
            async with asyncio.timeout(limit_s) as scope:
                return await inner(call)
        except TimeoutError:
            if not scope.expired():
                raise
            message = f"tool {call.name} took longer than {limit_s:g} s"
            raise ToolError(message, tool=call.name, reason="timeout") from None

    return mw


def rate_limit(limit: RateLimit | int | dict[str, Any], *, per_tool: bool = False, clock: Clock = _CLOCK) -> Middleware:
    """Allow so many calls a minute (a number, or a RateLimit of requests), of all tools together or of each
    (`per_tool`).

    Where the limit's strategy is `reject` a call too many raises RateLimited; else it waits its turn.
    """
    wanted = RateLimit(requests_per_minute=limit) if isinstance(limit, int) else RateLimit.of(limit)
    if wanted.requests_per_minute is None:
        raise ConfigError("a rate limit of tools counts requests", hint="give requests_per_minute", key="limit")
    buckets: dict[str, TokenBucket] = {}
    queues: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Lock]] = WeakKeyDictionary()

    async def mw(call: ToolCall, inner: Next) -> Any:
        key = call.name if per_tool else ""
        bucket = buckets.setdefault(key, TokenBucket(wanted))
        if wanted.strategy == "reject":
            wait_s = bucket.take(clock.monotonic())
            if wait_s:
                raise RateLimited(f"tool {call.name} is called too often", retry_after_s=wait_s, tool=call.name)
            return await inner(call)
        queue = queues.setdefault(asyncio.get_running_loop(), {}).setdefault(key, asyncio.Lock())
        async with queue:  # in the order in which they came
            while wait_s := bucket.take(clock.monotonic()):
                await _sleep(clock, wait_s)
        return await inner(call)

    return mw


def cache(*, ttl_s: float = 300.0, entries_max: int = 256, clock: Clock = _CLOCK) -> Middleware:
    """Return the result of an equal call for `ttl_s` seconds. Only for idempotent tools, and only for calls that
    succeeded. Callers with different Grants never share a result.
    """
    real(ttl_s, "ttl_s", above=0.0)
    check_integer(entries_max, "entries_max", least=1)
    kept: OrderedDict[tuple[Any, ...], tuple[float, bytes]] = OrderedDict()

    async def mw(call: ToolCall, inner: Next) -> Any:
        if not inner.tool.idempotent or _encode_plain(call.arguments) is None:
            return await inner(call)
        key = (call.name, rights.get(), codec.canonical(call.arguments))
        cached = kept.get(key)
        if cached is not None and clock.monotonic() < cached[0]:
            kept.move_to_end(key)
            return codec.decode(cached[1])
        output = await inner(call)
        data = _encode_plain(output)
        if data is not None and len(data) <= _CACHED_BYTES_MAX:
            kept[key] = (clock.monotonic() + ttl_s, data)
            kept.move_to_end(key)
            while len(kept) > entries_max:
                kept.popitem(last=False)
        return output

    return mw


def _encode_plain(value: Any) -> bytes | None:
    """Return the encoded value; None if it is not plain data or would be decoded as another value."""
    try:
        data = codec.encode(value)
    except ConfigError:
        return None
    return data if codec.decode(data) == value else None


def truncate(chars: int = 20_000) -> Middleware:
    """Cut the middle out of a text that is longer, which says so. Other data is measured, and if need be shown, as
    JSON."""
    most = check_integer(chars, "chars", least=2)

    @pure
    async def mw(call: ToolCall, inner: Next) -> Any:
        output = await inner(call)
        if isinstance(output, str):
            return _cut(output, most)
        if isinstance(output, (dict, list, tuple)):
            text = json.dumps(output, ensure_ascii=False, separators=(",", ":"), default=str)
            return output if len(text) <= most else _cut(text, most)
        return output

    return mw


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"


def redact(secrets: Iterable[str | Secret] = ()) -> Middleware:
    """Mask secrets in results and errors: those given (a text, a Secret or `env:NAME`), and texts in the form of a
    key."""
    given = [secret if isinstance(secret, Secret) else Secret.parse(secret) for secret in secrets]

    @pure
    async def mw(call: ToolCall, inner: Next) -> Any:
        known = [secret.reveal() for secret in given]
        try:
            return redact_data(await inner(call), known)
        except Exception as error:
            message = str(error)
            clean = redact_text(message, known)
            if clean == message and not (isinstance(error, LyraError) and _tells(error, known)):
                raise
            raise ToolError(clean, tool=call.name, reason=error_code(error)) from None

    return mw


def _tells(error: LyraError, known: list[str]) -> bool:
    """Return whether the hint, place or fields of the error contain a secret."""
    carried = [error.hint or "", error.place or "", error.fields]
    text = msgspec.json.encode(carried, enc_hook=str).decode()
    return redact_text(text, known) != text


def retry(
    attempts: int = 3,
    *,
    backoff: Backoff | str | dict[str, Any] | None = None,
    on: Iterable[str] = _AGAIN,
    clock: Clock = _CLOCK,
    seed: int | None = None,
) -> Middleware:
    """Try again, `attempts` times in all, after an error with one of these codes. A tool that is not idempotent is
    tried again only where the error says that it was never begun (a limit turned it away)."""
    check_integer(attempts, "attempts", least=1, most=100)
    codes = frozenset(on)
    for code in sorted(codes - set(ERROR_CODES)):
        raise ConfigError(f"there is no error code {code!r}", hint=f"there are {', '.join(ERROR_CODES)}", key="on")
    pauses = Backoff(initial_s=0.5, jitter=0.2) if backoff is None else Backoff.of(backoff)
    tries = Retry(max_attempts=attempts, backoff=pauses)
    rng = make_random(Entropy().bits() if seed is None else seed)

    async def mw(call: ToolCall, inner: Next) -> Any:
        for attempt in range(1, attempts):
            try:
                return await inner(call)
            except Exception as error:
                if not isinstance(error, _NEVER_MADE) and not (inner.tool.idempotent and error_code(error) in codes):
                    raise
                pause_s = tries.delay(attempt, rng, error)
            await _sleep(clock, pause_s)
        return await inner(call)

    return mw


async def _sleep(clock: Clock, seconds: float) -> None:
    """Sleep by the given clock, so that a simulated clock does not wait."""
    if seconds <= 0.0:
        return
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = clock.call_at(clock.monotonic() + seconds, lambda: None if over.done() else over.set_result(None))
    try:
        await over
    finally:
        timer.cancel()
