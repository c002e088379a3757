"""The middleware that is ready: each does what its name says, and what must not be done twice is not."""

from __future__ import annotations

import asyncio
import logging as std
from typing import Any

import pytest

from lyra import Agent, run, tool
from lyra.core.policies.policy import RateLimit
from lyra.core.rights.capability import Grant
from lyra.core.tool import Tool, ToolResult
from lyra.errors import ConfigError, RateLimited, ToolError
from lyra.models.sim import SimProvider
from lyra.testing.clock import SimClock
from lyra.testing.loop import SimLoop
from lyra.testing.loop import run as virtual
from lyra.tools.middleware import cache, logging, rate_limit, redact, retry, timeout, truncate
from lyra.tools.registry import ToolRegistry
from lyra.tools.wrapped import pure

KEY = "sk-abcdefghijklmnopqrstuvwx0123"


class Count:
    """A tool that counts its calls; `fails` of them fail first."""

    def __init__(self, output: Any = "done", *, fails: int = 0, error: Any = None, idempotent: bool = True) -> None:
        self.calls = 0
        self.output = output
        self._fails = fails
        self._error = error
        self.tool = tool(self.act, idempotent=idempotent)

    async def act(self, word: str = "") -> Any:
        """Act."""
        self.calls += 1
        if self.calls <= self._fails:
            raise self._error
        return self.output


async def called(tool_: Tool, *layers: Any, **arguments: Any) -> ToolResult:
    return await ToolRegistry([tool_], middleware=layers).call(tool_.name, arguments)


def here() -> SimClock:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    return loop.clock


# ---------------------------------------------------------------- logging


def test_each_call_is_a_line(caplog):
    """With its end and its time; arguments only when asked for, and without keys."""

    async def main() -> None:
        with caplog.at_level(std.INFO, "lyra.tools"):
            await called(Count().tool, logging(clock=SimClock()), word=KEY)
            await called(Count().tool, logging(arguments=True), word=KEY)
            await called(Count(fails=1, error=ToolError("no", reason="io_error")).tool, logging())

    asyncio.run(main())
    plain, full, failed = [record.getMessage() for record in caplog.records]
    assert plain == "act ok (0 ms)"
    assert full.startswith('act {"word":"***"} ok')
    assert failed.startswith("act failed: io_error")
    assert caplog.records[2].levelno == std.WARNING
    assert KEY not in caplog.text


def test_a_cancelled_call_is_a_line_too(caplog):
    """Nothing goes unnoticed."""

    async def slow() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        with caplog.at_level(std.INFO, "lyra.tools"):
            await called(tool(slow), timeout(1), logging())

    virtual(main())
    assert "slow was cancelled (" in caplog.text


# ---------------------------------------------------------------- timeout


def test_a_call_that_takes_longer_is_cancelled():
    """And its code says so; a time-out of the tool's own is left as it is."""
    ended: list[str] = []

    async def slow() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            ended.append("ended")

    async def own() -> None:
        raise TimeoutError("mine")

    async def main() -> None:
        clock = here()
        result = await called(tool(slow), timeout(5))
        assert (result.error_code, clock.monotonic()) == ("timeout", 5.0)
        assert "longer than 5 s" in result.output
        assert "mine" in (await called(tool(own), timeout(5))).output

    virtual(main())
    assert ended == ["ended"]


# ---------------------------------------------------------------- rate_limit


def test_calls_wait_their_turn_in_order():
    """Two at once, then one a second."""

    async def main() -> list[float]:
        clock = here()
        done: list[tuple[str, float]] = []

        async def act(word: str) -> None:
            done.append((word, clock.monotonic()))

        registry = ToolRegistry([act], middleware=[rate_limit(RateLimit(requests_per_minute=60, burst=2), clock=clock)])
        await asyncio.gather(*(registry.call("act", {"word": word}) for word in "abcd"))
        assert [word for word, _ in done] == list("abcd")
        return [round(time_s, 3) for _, time_s in done]

    assert virtual(main()) == [0.0, 0.0, 1.0, 2.0]


def test_one_too_many_is_rejected():
    """Where the strategy says so; each tool for itself where that is wanted."""

    async def main() -> None:
        first, other = Count().tool, tool(Count().act, name="other")
        limit = {"requests_per_minute": 60, "burst": 1, "strategy": "reject"}
        registry = ToolRegistry([first, other], middleware=[rate_limit(limit, clock=here())])
        assert not (await registry.call("act")).is_error
        assert "too often" in (await registry.call("other")).output
        registry = ToolRegistry([first, other], middleware=[rate_limit(limit, per_tool=True, clock=here())])
        assert not (await registry.call("act")).is_error
        assert not (await registry.call("other")).is_error
        assert (await registry.call("act")).is_error

    virtual(main())
    with pytest.raises(ConfigError, match="counts requests"):
        rate_limit({"tokens_per_minute": 5})


# ---------------------------------------------------------------- cache


def test_the_same_call_is_made_once_until_its_time_is_up():
    """Other arguments are another call; what is given is a copy."""

    async def main() -> None:
        clock = SimClock()
        count = Count({"a": [1]})
        registry = ToolRegistry([count.tool], middleware=[cache(ttl_s=10, clock=clock)])
        first = (await registry.call("act")).output
        first["a"].append(2)
        assert (await registry.call("act")).output == {"a": [1]}
        await registry.call("act", {"word": "x"})
        assert count.calls == 2
        clock.advance(10)
        await registry.call("act")
        assert count.calls == 3

    asyncio.run(main())


def test_what_is_not_cached():
    """Tools that change something, failures, what another Grant let through, and more than there is room for."""

    async def main() -> None:
        acts = Count(idempotent=False)
        registry = ToolRegistry([acts.tool], middleware=[cache()])
        await registry.call("act")
        await registry.call("act")
        assert acts.calls == 2

        failing = Count(fails=1, error=ToolError("no"))
        registry = ToolRegistry([failing.tool], middleware=[cache()])
        assert (await registry.call("act")).is_error
        assert (await registry.call("act")).output == "done"

        count = Count()
        registry = ToolRegistry([count.tool], middleware=[cache()])
        await registry.call("act", grant=Grant(["fs.read:/a"]))
        await registry.call("act", grant=Grant(["fs.read:/a"]))
        await registry.call("act", grant=Grant(["fs.read:/b"]))
        assert count.calls == 2

        count = Count()
        registry = ToolRegistry([count.tool], middleware=[cache(entries_max=2)])
        for word in "abca":
            await registry.call("act", {"word": word})
        assert count.calls == 4

        pair = Count((1, 2))  # kept as data it would come back as a list
        registry = ToolRegistry([pair.tool], middleware=[cache()])
        assert [(await registry.call("act")).output for _ in range(2)] == [(1, 2), (1, 2)]

        large = Count("x" * (2 << 20))
        registry = ToolRegistry([large.tool], middleware=[cache()])
        await registry.call("act")
        await registry.call("act")
        assert large.calls == 2

    asyncio.run(main())


# ---------------------------------------------------------------- truncate


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        ("short", "short"),
        ("a" * 50 + "b" * 50, "aaaaa\n… 90 characters left out …\nbbbbb"),
        ([1, 2], [1, 2]),
        (["x" * 40], '["xxx\n… 34 characters left out …\nxxx"]'),
        (7, 7),
    ],
)
def test_a_long_output_loses_its_middle(output, shown):
    """And says how much."""
    assert asyncio.run(called(Count(output).tool, truncate(10))).output == shown


# ---------------------------------------------------------------- redact


def test_no_key_comes_out(monkeypatch):
    """Known ones and forms of keys, in texts, in data, in errors."""
    monkeypatch.setenv("MY_TOKEN", "correct-horse-battery")
    layer = redact(["env:MY_TOKEN"])

    async def main() -> None:
        for output in ("it is correct-horse-battery", {"a": [f"key {KEY}"]}):
            text = str((await called(Count(output).tool, layer)).output)
            assert "***" in text
            assert "horse" not in text
            assert KEY not in text
        error = ToolError("bad correct-horse-battery", reason="io_error")
        result = await called(Count(fails=1, error=error).tool, layer)
        assert (result.output, result.error_code) == ("bad ***", "io_error")
        hinted = ToolError("bad", hint=f"try {KEY}")
        assert KEY not in (await called(Count(fails=1, error=hinted).tool, layer)).output

    asyncio.run(main())


# ---------------------------------------------------------------- retry


def outcome(count: Count, **options: Any) -> tuple[bool, int, float]:
    async def main() -> tuple[bool, int, float]:
        clock = here()
        layer = retry(3, backoff={"initial_s": 1.0}, clock=clock, **options)
        result = await called(count.tool, layer)
        return result.is_error, count.calls, clock.monotonic()

    counts: tuple[bool, int, float] = virtual(main())
    return counts


def test_what_may_be_done_twice_is_tried_again():
    """With pauses, and not for ever."""
    assert outcome(Count(fails=2, error=ToolError("no", reason="io_error"))) == (False, 3, 3.0)
    assert outcome(Count(fails=9, error=ToolError("no", reason="timeout"))) == (True, 3, 3.0)


def test_what_cannot_get_better_is_not():
    """A mistake is the same mistake the second time."""
    for code in ("invalid_arguments", "not_found", "permission_denied", "cancelled"):
        assert outcome(Count(fails=9, error=ToolError("no", reason=code))) == (True, 1, 0.0)
    assert outcome(Count(fails=1, error=ToolError("no", reason="not_found")), on=["not_found"]) == (False, 2, 1.0)
    with pytest.raises(ConfigError, match="no error code"):
        retry(on=["nonsense"])


def test_what_must_not_be_done_twice_is_not():
    """But for a call that a limit turned away: it was never made."""
    acts = Count(fails=9, error=ToolError("no", reason="timeout"), idempotent=False)
    assert outcome(acts) == (True, 1, 0.0)
    turned_away = Count(fails=1, error=RateLimited("slow down", retry_after_s=7.0), idempotent=False)
    assert outcome(turned_away) == (False, 2, 7.0)


# ---------------------------------------------------------------- tools that are part of a program


def test_around_a_tool_that_takes_ctx_go_only_layers_that_leave_its_course_alone():
    """It runs again on a replay, where a cache or a retry would have it do something else."""
    seen: list[str] = []

    @pure
    async def noted(call: Any, inner: Any) -> Any:
        seen.append(call.name)
        return await inner(call)

    async def other(call: Any, inner: Any) -> Any:
        raise AssertionError("not around this one")

    @tool
    async def ask(ctx: Any) -> str:
        """Ask."""
        return "x" * 100

    script = [{"tool_calls": [{"name": "ask"}]}, {"text": "{result}"}]
    registry = ToolRegistry([ask], middleware=[noted, other, cache(), truncate(10)])
    assert run(Agent("worker", model=SimProvider(script), tools=registry), "go").startswith("xxxxx\n… 90")
    assert seen == ["ask"]
