"""The door: what is checked, in which order, and what the program sees."""

from __future__ import annotations

import asyncio
import enum
from dataclasses import dataclass

import pytest

from lyra.core.budgets.budget import Usage
from lyra.core.effect import Charged, Effect, effect
from lyra.core.policies.breaker import CircuitBreaker
from lyra.core.policies.rate import RateLimit
from lyra.errors import (
    BudgetExceeded,
    CapabilityDenied,
    CircuitOpen,
    ConfigError,
    DeadlineExceeded,
    ModelError,
    Overloaded,
    RateLimited,
)
from lyra.kernel import Kernel
from tests.kernel.conftest import pass_time, run, settle


async def echo(value):
    return value


def test_order_of_checks():
    """Grant before budget before admission: the first refusal is the one that is raised."""
    act = effect(echo, needs="fs.read:/x", cost="$1", rate_limit={"requests_per_minute": 1, "strategy": "reject"})

    async def tries(ctx):
        errors = []
        for _ in range(2):
            try:
                await ctx.do(act, 1)
            except Exception as error:
                errors.append(type(error).__name__)
        return errors

    async def main():
        async with Kernel() as kernel:
            assert await kernel.run(tries, grant=[], budget="$0") == ["CapabilityDenied"] * 2
            assert await kernel.run(tries, budget="$0.5") == ["BudgetExceeded"] * 2
            assert await kernel.run(tries, budget="$5") == ["RateLimited"]

    run(main())


def test_events_in_order(target):
    """Listeners see started before finished, after it is durable, with the sequence of the journal."""

    async def program(ctx):
        return await ctx.do(echo, 1)

    async def main():
        seen = []
        async with Kernel(target) as kernel:
            kernel.on_event(seen.append)
            await kernel.run(program)
            await settle(kernel)
        kinds = [event.kind for event in seen if not event.kind.endswith("state_changed")]
        assert kinds == ["process.created", "effect.started", "effect.finished", "process.terminated"]
        if target != "memory":
            assert [event.seq for event in seen if event.seq] == [1, 2, 3, 4]

    run(main())


def test_a_listener_that_fails_is_alone(caplog):
    """An exception in a listener reaches asyncio's handler; the kernel and other listeners go on."""

    async def program(ctx):
        return 1

    async def main():
        seen = []
        async with Kernel() as kernel:
            stop = kernel.on_event(lambda event: 1 / 0)
            kernel.on_event(seen.append)
            assert await kernel.run(program) == 1
            stop()
            stop()
        assert any(event.kind == "process.terminated" for event in seen)

    run(main())
    assert "listener failed" in caplog.text


def test_charged_settles_what_it_really_cost(target):
    """A function that returns Charged is settled at its true cost; the rest of the reservation is free again."""

    async def call():
        return Charged("hello", Usage(usd="$0.01", input_tokens=7))

    async def program(ctx):
        value = await ctx.do(call, cost="$0.05")
        return [value, str(ctx.budget.used()), ctx.budget.used("input_tokens"), str(ctx.budget.remaining())]

    async def main():
        async with Kernel(target) as kernel:
            assert await kernel.run(program, budget="$1") == ["hello", "$0.01", 7, "$0.99"]

    run(main())


def test_an_overrun_is_told():
    """More than was reserved is recorded as it was and published."""

    async def call():
        return Charged(1, Usage(usd="$0.09"))

    async def program(ctx):
        await ctx.do(call, cost="$0.05")
        return str(ctx.budget.used())

    async def main():
        seen = []
        async with Kernel() as kernel:
            kernel.on_event(seen.append)
            assert await kernel.run(program, budget="$1") == "$0.09"
        assert [event.data["overrun"] for event in seen if event.kind == "budget.overrun"] == [{"usd": 40_000}]

    run(main())


def test_a_warning_budget_lets_through():
    """`on_exceed = warn` performs the effect and says so."""

    async def program(ctx):
        return await ctx.do(echo, 1, cost="$2")

    async def main():
        seen = []
        async with Kernel() as kernel:
            kernel.on_event(seen.append)
            assert await kernel.run(program, budget={"usd": "$1", "on_exceed": "warn"}) == 1
        assert "budget.warning" in [event.kind for event in seen]

    run(main())


def test_failed_effects_cost_nothing_unless_they_say(target):
    """An error frees the reservation; an error that carries a usage is charged for it."""

    class Paid(RuntimeError):
        usage = Usage(usd="$0.02")

    async def free():
        raise RuntimeError("no")

    async def paid():
        raise Paid("no, but billed")

    async def program(ctx):
        for act in (free, paid):
            with pytest.raises(RuntimeError):
                await ctx.do(act, cost="$0.10")
        return str(ctx.budget.used())

    async def main():
        async with Kernel(target) as kernel:
            assert await kernel.run(program, budget="$1") == "$0.02"

    run(main())


@pytest.mark.parametrize(
    ("error", "tries"),
    [
        (ModelError("slow down", kind="rate_limit"), 4),
        (TimeoutError("late"), 4),
        (ValueError("wrong"), 1),
        (ModelError("bad", kind="bad_request"), 1),
    ],
)
def test_retry_by_error_class(target, error, tries):
    """Errors that may pass are tried again up to max_attempts; errors that will not pass are not."""
    calls = []

    async def flaky():
        calls.append(1)
        raise error

    async def program(ctx):
        await ctx.do(flaky, retry={"max_attempts": 4, "backoff": {"initial_s": 0.001}})

    async def main():
        async with Kernel(target) as kernel:
            ended = await kernel.spawn(program).wait()
            assert type(ended.error) is type(error)
            assert len(calls) == tries

    run(main())


def test_retry_waits_on_the_kernels_clock(clock):
    """Back-off is virtual time under a simulated clock, and each wait is told."""
    calls = []

    async def flaky():
        calls.append(clock.now())
        if len(calls) < 4:
            raise ConnectionError("reset")
        return "ok"

    async def program(ctx):
        return await ctx.do(flaky, retry={"max_attempts": 5, "backoff": {"kind": "exponential", "initial_s": 1}})

    async def main():
        seen = []
        async with Kernel(clock=clock) as kernel:
            kernel.on_event(seen.append)
            handle = kernel.spawn(program)
            await pass_time(kernel, clock, 10)
            assert (await handle.wait()).result == "ok"
        assert calls == [1000, 1001, 1003, 1007]
        assert [event.data["delay_s"] for event in seen if event.kind == "effect.retried"] == [1, 2, 4]

    run(main())


def test_who_declares_an_effect_is_told_before_each_wait(clock):
    """With the arguments of the call, the try that comes next and how many there are at most."""
    told = []

    async def flaky(name):
        raise ConnectionError("reset")

    declared = Effect(
        flaky,
        name="flaky",
        retry={"max_attempts": 3, "backoff": {"kind": "constant", "initial_s": 2}},
        on_retry=lambda name, **facts: told.append((name, facts["attempt"], facts["of"], facts["wait_s"])),
    )

    async def program(ctx):
        return await ctx.do(declared, "x", idempotent=True)

    async def main():
        async with Kernel(clock=clock) as kernel:
            handle = kernel.spawn(program)
            await pass_time(kernel, clock, 10)
            assert (await handle.wait()).reason == "error"
        assert told == [("x", 2, 3, 2.0), ("x", 3, 3, 2.0)]

    run(main())


def test_timeout(clock):
    """One try may take `timeout_s`; then it is cancelled and DeadlineExceeded is raised (and may be retried)."""
    cancelled = []

    async def hang():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(1)
            raise

    async def program(ctx):
        with pytest.raises(DeadlineExceeded, match="2 s"):
            await ctx.do(hang, timeout_s=2)
        with pytest.raises(TimeoutError):
            await ctx.do(hang, timeout_s=2, retry={"max_attempts": 2, "backoff": {"initial_s": 1}})
        return "ok"

    async def main():
        async with Kernel(clock=clock) as kernel:
            handle = kernel.spawn(program)
            await pass_time(kernel, clock, 12)
            assert (await handle.wait()).result == "ok"
            assert len(cancelled) == 3

    run(main())


def test_rate_limit_queues_in_order(clock):
    """With `queue`, calls over the rate wait their turn, first come first served, across processes."""
    done = []

    async def call(number):
        done.append((number, clock.now()))

    async def program(ctx, number):
        await ctx.do(call, number, rate_limit={"requests_per_minute": 60, "burst": 1})

    async def main():
        async with Kernel(clock=clock) as kernel:
            for number in range(4):
                kernel.spawn(program, number)
            await pass_time(kernel, clock, 5)
        assert [number for number, _ in done] == [0, 1, 2, 3]
        assert [round(time - 1000) for _, time in done] == [0, 1, 2, 3]

    run(main())


def test_a_killed_waiter_passes_its_turn_on(clock):
    """A process killed while it waits for the rate does not hold up those behind it."""
    done = []

    async def call(number):
        done.append(number)

    async def program(ctx, number):
        await ctx.do(call, number, rate_limit={"requests_per_minute": 60, "burst": 1})

    async def main():
        async with Kernel(clock=clock) as kernel:
            handles = [kernel.spawn(program, number) for number in range(5)]
            await settle(kernel)
            kernel.kill(handles[1].pid)
            kernel.kill(handles[2].pid)
            await pass_time(kernel, clock, 5)
        assert done == [0, 3, 4]

    run(main())


def test_rate_limit_reject_and_backpressure(clock):
    """`reject` never waits; `backpressure` waits while the line is short and then refuses."""

    async def program(ctx, strategy):
        limit = {"requests_per_minute": 60, "burst": 1, "strategy": strategy}
        await ctx.do(echo, 1, rate_limit=limit, name=strategy)

    async def main():
        async with Kernel(clock=clock) as kernel:
            reject = [kernel.spawn(program, "reject") for _ in range(2)]
            press = [kernel.spawn(program, "backpressure") for _ in range(4)]
            await pass_time(kernel, clock, 10)
            errors = [type((await handle.wait()).error) for handle in reject]
            assert errors == [type(None), RateLimited]
            errors = [type((await handle.wait()).error) for handle in press]
            assert errors.count(Overloaded) == 2

    run(main())


def test_tokens_a_minute_follow_what_was_really_used(clock):
    """The limit on tokens counts the estimate at admission and the truth afterwards."""
    done = []

    async def call(tokens):
        done.append(clock.now())
        return Charged(None, Usage(input_tokens=tokens))

    async def program(ctx):
        for tokens in (10, 10, 500, 10):
            await ctx.do(call, tokens, cost={"input_tokens": 100}, rate_limit={"tokens_per_minute": 600})

    async def main():
        async with Kernel(clock=clock) as kernel:
            handle = kernel.spawn(program)
            await pass_time(kernel, clock, 60)
            await handle.wait()
        # 10 + 10 + 500 of 600 are gone when the fourth asks for 100: 20 are missing, at ten a second.
        assert [round(time - 1000) for time in done] == [0, 0, 0, 2]

    run(main())


def test_breaker_opens_probes_and_closes(clock):
    """After `threshold` failures calls are refused; after `reset_after` one probe decides. A 400 never counts."""
    broken = [True]
    calls = []

    async def service():
        calls.append(1)
        if broken[0]:
            raise ModelError("down", kind="temporary")
        return "ok"

    async def bad():
        raise ModelError("bad", kind="bad_request")

    breaker = {"threshold": 2, "reset_after": 10}

    async def program(ctx):
        seen = []
        for _ in range(4):
            try:
                await ctx.do(service, circuit_breaker=breaker)
            except (ModelError, CircuitOpen) as error:
                seen.append(type(error).__name__)
        await ctx.sleep(11)
        broken[0] = False
        seen.append(await ctx.do(service, circuit_breaker=breaker))
        for _ in range(5):
            with pytest.raises(ModelError):
                await ctx.do(bad, circuit_breaker=breaker)
        return seen

    async def main():
        async with Kernel(clock=clock) as kernel:
            handle = kernel.spawn(program)
            await pass_time(kernel, clock, 15)
            assert (await handle.wait()).result == ["ModelError", "ModelError", "CircuitOpen", "CircuitOpen", "ok"]
            assert len(calls) == 3

    run(main())


def test_a_breaker_may_count_calls_instead_of_tries(clock):
    """`per="call"`: one failure is a call that failed after its retries; the call that opens it has its own error. A
    probe has its retries too, and one that is cancelled between two of them leaves room for the next."""
    broken = [True]
    calls = []

    async def service():
        calls.append(1)
        if broken[0]:
            raise ModelError("down", kind="temporary")
        return "ok"

    options = {
        "circuit_breaker": {"threshold": 2, "reset_after": 10, "per": "call"},
        "retry": {"max_attempts": 3, "backoff": {"kind": "constant", "initial_s": 0.5, "max_s": 0.5}},
        "rate_limit": {"requests_per_minute": 6000, "burst": 100},
    }

    async def call_once(ctx):
        before = len(calls)
        try:
            outcome = await ctx.do(service, **options)
        except (ModelError, CircuitOpen) as error:
            outcome = type(error).__name__
        return f"{outcome} {len(calls) - before}"

    async def program(ctx):
        seen = [await call_once(ctx) for _ in range(3)]
        await ctx.sleep(11)
        given_up = ctx.spawn(call_once)  # the probe
        await ctx.sleep(0.2)
        ctx.stop(given_up, grace_s=0.0)
        await given_up.wait()
        seen += [await call_once(ctx), await call_once(ctx)]
        await ctx.sleep(11)
        broken[0] = False
        return [*seen, await call_once(ctx)]

    async def main():
        async with Kernel(clock=clock) as kernel:
            handle = kernel.spawn(program)
            await pass_time(kernel, clock, 60)
            ended = await handle.wait()
            failed, refused = "ModelError 3", "CircuitOpen 0"
            assert ended.result == [failed, failed, refused, failed, refused, "ok 1"], ended

    run(main())


def test_a_breaker_counts_tries_or_calls():
    with pytest.raises(ConfigError, match='per is "try" or "call"'):
        CircuitBreaker(per="turn")


def test_needs_may_depend_on_the_arguments():
    """Capabilities given as a function are asked for the very path that is used."""

    @effect(needs=lambda path: f"fs.read:{path}")
    async def read(path):
        return path

    async def program(ctx):
        assert await ctx.do(read, "/project/a") == "/project/a"
        with pytest.raises(CapabilityDenied, match="/etc/passwd"):
            await ctx.do(read, "/etc/passwd")

    async def main():
        async with Kernel() as kernel:
            await kernel.run(program, grant=["fs.read:/project/**"])

    run(main())


def test_keywords_reach_the_function_and_options_do_not(target):
    """Option words are the door's; every other keyword is the function's."""

    async def act(a, *, b):
        return [a, b]

    async def program(ctx):
        return await ctx.do(act, 1, b=2, idempotent=True, cost="$0.01")

    async def main():
        async with Kernel(target) as kernel:
            assert await kernel.run(program) == [1, 2]

    run(main())


def test_the_idempotency_key(path):
    """A function with a parameter `idempotency_key` gets store.generation:pid:key:digest, whatever the branch; the pid
    that a caller chose has the number of its life, and the digest is of the effect's name and arguments."""
    keys = []

    async def act(idempotency_key):
        keys.append(idempotency_key)

    async def program(ctx):
        await ctx.do(act)
        await asyncio.gather(ctx.do(act), ctx.do(act))

    async def main():
        async with Kernel(path) as kernel:
            await kernel.run(program, pid="main")
            store_id = kernel.journal.store.identity().id
            generation = kernel.core.generation
        digest = Effect.of(act).digest.hex()
        assert keys == [f"{store_id}.{generation}:main~1:{number}:{digest}" for number in range(3)]

    run(main())


@dataclass
class Page:
    url: str
    words: int


def test_typed_results_are_the_same_live_and_replayed(path):
    """A result comes back as the declared type, because it is read back from what was stored."""
    calls = []

    async def fetch(url: str) -> Page:
        calls.append(url)
        return Page(url, 3)

    async def plain(url):
        return (1, {"a": (2, 3)})

    async def program(ctx, page: Page):
        assert isinstance(page, Page)
        first = await ctx.do(fetch, "x")
        second = await ctx.do(plain, "x")
        assert isinstance(first, Page)
        assert second == [1, {"a": [2, 3]}]
        await ctx.ask("on?")

    async def main():
        async with Kernel(path) as kernel:
            handle = kernel.spawn(program, Page("y", 1), pid="main")
            await settle(kernel)
            assert handle.alive, await handle.wait()
        async with Kernel(path) as kernel:
            handle = kernel.spawn(program, Page("y", 1), pid="main")
            await settle(kernel)
            await kernel.resolve_interrupt(kernel.interrupts.pending()[0].id, {"text": "yes"})
            ended = await handle.wait()
            assert ended.error is None
        assert calls == ["x"]

    run(main())


class Color(enum.Enum):
    red = "red"


def test_declared_types_hold_for_plain_values_too(path):
    """A function that returns plain text for a declared Enum gives the Enum, live and on replay."""

    async def paint() -> Color:
        return "red"  # type: ignore[return-value]

    async def program(ctx):
        kind = type(await ctx.do(paint)).__name__
        await ctx.ask("?")
        return kind

    async def main():
        async with Kernel(path) as kernel:
            kernel.spawn(program, pid="main")
            await settle(kernel)
            live = kernel.journal.store.last_seq()
            assert live
        async with Kernel(path, programs=[program]) as kernel:
            await kernel.resolve_interrupt(kernel.interrupts.pending()[0].id, {"text": "on"})
            assert (await kernel.process("main").wait()).result == "Color"
        async with Kernel("memory") as kernel:
            handle = kernel.spawn(program)
            await settle(kernel)
            await kernel.resolve_interrupt(kernel.interrupts.pending()[0].id, {"text": "on"})
            assert (await handle.wait()).result == "str"  # without a journal nothing makes the round trip

    run(main())


def test_what_cannot_be_kept_is_a_failed_effect(path):
    """A result, argument or final value without a stored form is an error that names its type."""

    async def odd():
        return object()

    async def program(ctx):
        with pytest.raises(ConfigError, match="object"):
            await ctx.do(odd)
        with pytest.raises(ConfigError, match="object"):
            await ctx.do(echo, object())
        with pytest.raises(ConfigError, match="object"):
            ctx.spawn(program, object())
        return object()

    async def main():
        async with Kernel(path) as kernel:
            ended = await kernel.spawn(program).wait()
            assert ended.reason == "error"
            assert "object" in str(ended.error)

    run(main())


def test_large_values_go_to_blobs(path):
    """A result, argument, message or checkpoint over the limit is stored once, outside the journal's rows."""
    big = "x" * 200_000

    async def make():
        return big

    async def kid(ctx, text):
        message = await ctx.receive()
        return message == text

    async def program(ctx):
        value = await ctx.do(make)
        child = ctx.spawn(kid, value)
        await ctx.send(child, value)
        same = (await child.wait()).result
        await ctx.checkpoint(value)
        await ctx.ask("go?")
        return [same, len(ctx.restored or ""), len(value)]

    async def main():
        async with Kernel(path) as kernel:
            handle = kernel.spawn(program, pid="main")
            await settle(kernel)
            assert handle.alive, await handle.wait()
            assert max(len(row.data) for row in kernel.journal.store.read()) < 1000
        async with Kernel(path) as kernel:
            handle = kernel.spawn(program, pid="main")
            await settle(kernel)

    run(main())


def test_unknown_options_are_the_functions_own():
    """A misspelt option is an unexpected keyword of the function, not silence."""

    async def program(ctx):
        with pytest.raises(TypeError, match="idempotant"):
            await ctx.do(echo, 1, idempotant=True)

    async def main():
        async with Kernel() as kernel:
            await kernel.run(program)

    run(main())


def test_effect_declares_only_what_exists():
    """The decorator knows its options and suggests the nearest."""
    with pytest.raises(ConfigError, match="idempotant"):
        effect(idempotant=True)  # type: ignore[call-overload]


def test_budget_exceeded_says_how_much():
    """The error carries what was asked and what is left."""

    async def program(ctx):
        await ctx.do(echo, 1, cost="$2")

    async def main():
        async with Kernel() as kernel:
            ended = await kernel.spawn(program, budget={"usd": "$1.50", "name": "trip"}).wait()
            error = ended.error
            assert isinstance(error, BudgetExceeded)
            assert (error.asked, error.remaining, error.scope) == (2_000_000, 1_500_000, "trip")
            assert "$1.50" in str(error)

    run(main())


def test_a_lasting_effect_is_admitted_by_what_other_kernels_did():
    """Its rate limit counts the calls of all kernels in this process; that of another begins anew in each."""

    async def act() -> int:
        return 1

    limit = {"rate_limit": RateLimit(requests_per_minute=1, burst=1, strategy="reject")}
    lasting, other = Effect(act, policy=limit, lasting=True), Effect(act, policy=limit)

    async def program(ctx, name):
        return await ctx.do({"lasting": lasting, "other": other}[name])

    async def main():
        for _ in range(2):
            async with Kernel() as kernel:
                assert await kernel.run(program, "other") == 1
        async with Kernel() as kernel:
            assert await kernel.run(program, "lasting") == 1
        async with Kernel() as kernel:
            with pytest.raises(RateLimited):
                await kernel.run(program, "lasting")

    run(main())


def test_what_an_effect_says_is_unchanged_is_not_read_back(path):
    """Any other value is what was written and read: a list, for a tuple."""

    async def act() -> object:
        return (1, [2])

    async def program(ctx):
        plain = await ctx.do(Effect(act, name="plain"))
        kept = await ctx.do(Effect(act, name="kept", unchanged=lambda value: True))
        read = await ctx.do(Effect(act, name="read", unchanged=lambda value: False))
        return [type(value).__name__ for value in (plain, kept, read)]

    async def main():
        async with Kernel(path) as kernel:
            assert await kernel.run(program) == ["list", "tuple", "list"]

    run(main())
