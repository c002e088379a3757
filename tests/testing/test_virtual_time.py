"""`run_in_virtual_time` covers every timer of a kernel without a clock of its own: nothing waits for real."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any

import pytest

import lyra
from lyra import Agent, Backoff, CircuitBreaker, Kernel, RateLimit, Retry, effect, tool
from lyra.errors import CircuitOpen, DeadlineExceeded, ModelError
from lyra.kernel import Child
from lyra.testing import SimClock, run_in_virtual_time
from tests.agents.support import says


@effect(rate_limit={"requests_per_minute": 2})
async def limited(number: int) -> int:
    return number


@effect(circuit_breaker={"threshold": 1, "reset_after": 3600})
async def broken(fails: bool) -> str:
    if fails:
        raise ConnectionError("down")
    return "up"


@effect(retry={"max_attempts": 3, "backoff": {"kind": "constant", "initial_s": 30}})
async def flaky(seen: str) -> None:
    raise ConnectionError("down")


async def program(ctx: Any) -> dict[str, float]:
    took: dict[str, float] = {}
    began = ctx.now()
    for number in range(6):
        await ctx.do(limited, number)
    took["rate limit"] = ctx.now() - began
    with pytest.raises(ConnectionError):
        await ctx.do(broken, True)
    with pytest.raises(CircuitOpen):
        await ctx.do(broken, False)
    await ctx.sleep(3601)
    assert await ctx.do(broken, False) == "up"
    began = ctx.now()
    with pytest.raises(ConnectionError):
        await ctx.do(flaky, "x")
    took["retries"] = ctx.now() - began
    began = ctx.now()
    assert await ctx.receive(timeout=86_400) is None
    took["receive"] = ctx.now() - began
    return took


def test_timers_of_effects_and_programs() -> None:
    """Rate limits, breakers, back-offs, sleeps and time-outs pass in virtual time, as the program sees it."""

    async def main() -> Any:
        async with Kernel() as kernel:
            return await kernel.run(program)

    began = monotonic()
    took = run_in_virtual_time(main())
    assert monotonic() - began < 30
    assert took["rate limit"] >= 60
    assert took["retries"] >= 60
    assert took["receive"] >= 86_400


def test_timers_of_agents() -> None:
    """The rate limit and the breaker of an agent, the time-out of a tool, and the pause of `lyra.run` between tries."""

    @tool(timeout_s=30)
    async def slow() -> str:
        """Slow."""
        await asyncio.sleep(3600)
        return "late"

    limited_agent = Agent("a", model=says("x"), rate_limit=RateLimit(requests_per_minute=1, burst=1))
    model = says({"tool_calls": [{"name": "slow"}]}, "done")
    down = Agent(
        "c",
        model=says({"error": {"kind": "overloaded"}}),
        circuit_breaker=CircuitBreaker(threshold=1, reset_after=600),
        retry=Retry(max_attempts=2, backoff=Backoff(kind="constant", initial_s=60)),
    )

    async def main() -> list[Any]:
        answers = [await lyra.run(limited_agent, "go") for _ in range(4)]
        answers.append(await lyra.run(Agent("b", model=model, tools=[slow]), "go"))
        for _ in range(2):
            with pytest.raises((ModelError, CircuitOpen)):
                await lyra.run(down, "go")
        return answers

    began = monotonic()
    assert run_in_virtual_time(main()) == ["x"] * 4 + ["done"]
    assert monotonic() - began < 30
    assert model.requests[-1].messages[-1].tool_results[0].error_code == "timeout"


async def for_ever(*_: Any) -> None:
    await asyncio.sleep(1_000_000)


async def query(kernel: Kernel) -> None:
    kernel.bus.register_handler("slow", for_ever)
    with pytest.raises(DeadlineExceeded):
        await kernel.bus.query("slow", 1, timeout_s=60)


async def question(kernel: Kernel) -> None:
    async def asks(ctx: Any) -> None:
        with pytest.raises(DeadlineExceeded):
            await ctx.ask("Are you there?", "timeout")

    await kernel.run(asks)


async def stage(kernel: Kernel) -> None:
    kernel.register_agent("slow", for_ever)
    config = {"name": "line", "agents": [{"name": "slow", "timeout_seconds": 100}]}
    events = [event async for event in kernel.execute_pipeline(config)]
    assert "took longer than 100 s" in events[-1].envelope.termination_reason


async def back_off(kernel: Kernel) -> None:
    async def crash(ctx: Any) -> None:
        raise RuntimeError("down")

    pauses = {"kind": "constant", "initial_s": 25}
    supervisor = await kernel.supervise([Child("c", crash)], max_restarts=2, window_s=9_999, backoff=pauses)
    await supervisor.wait()


async def quota(kernel: Kernel) -> None:
    exceeded = asyncio.Event()
    kernel.on_event(lambda event: exceeded.set(), ["resource.exceeded"])
    kernel.submit("worker", quota={"timeout_seconds": 50, "soft_timeout_seconds": 50})
    kernel.schedule("worker")
    kernel.get_next_runnable()
    await exceeded.wait()


async def rate_of_a_user(kernel: Kernel) -> None:
    while (check := kernel.check_rate_limit("user")).allowed:
        pass
    await asyncio.sleep(check.retry_after_seconds + 0.01)
    assert kernel.check_rate_limit("user").allowed


async def dispatch(kernel: Kernel) -> None:
    kernel.register_service({"name": "service", "service_type": "worker", "status": "healthy"})
    kernel.register_handler("service", for_ever)
    with pytest.raises(DeadlineExceeded):
        await kernel.dispatch("service", timeout_s=100)


async def time_of_a_budget(kernel: Kernel) -> None:
    with pytest.raises(DeadlineExceeded):
        await kernel.run(for_ever, budget={"seconds": 70})


@pytest.mark.parametrize(
    ("timer", "seconds"),
    [
        (query, 60),
        (question, 300),
        (stage, 100),
        (back_off, 50),
        (quota, 50),
        (rate_of_a_user, 9),
        (dispatch, 100),
        (time_of_a_budget, 70),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_timers_of_the_kernel(timer: Any, seconds: float) -> None:
    """Time-outs of queries, dispatches and stages, the lives of questions, pauses of supervisors, quotas, rates of
    users and the seconds of budgets pass in virtual time; the limit holds there as it would in real time."""

    async def main() -> float:
        async with Kernel() as kernel:
            began = kernel.clock.monotonic()
            await timer(kernel)
            return kernel.clock.monotonic() - began

    began = monotonic()
    took = run_in_virtual_time(main())
    assert monotonic() - began < 8  # each of them would be longer in real time, or wait for ever
    assert seconds <= took < 1.2 * seconds + 10


def test_the_clock_that_is_given_is_the_one_that_runs() -> None:
    """A test reads and sets the wall clock of what it ran."""
    clock = SimClock(5_000.0)

    async def main() -> float:
        async with Kernel() as kernel:
            return await kernel.run(sleeper)

    assert run_in_virtual_time(main(), clock=clock) == 8_600.0
    assert clock.now() >= 8_600.0


async def sleeper(ctx: Any) -> float:
    await ctx.sleep(3_600)
    return float(ctx.now())
