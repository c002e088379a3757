"""Every policy, against a real HTTP server, for the blocking and for the streaming call."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

import lyra
from lyra import Agent, Kernel
from lyra.agents.turn import model_effect
from lyra.core.policies.retry import Retry
from lyra.errors import (
    AgentFailed,
    BudgetExceeded,
    CircuitOpen,
    ConfigError,
    DeadlineExceeded,
    ModelError,
    Overloaded,
    RateLimited,
)
from lyra.models.settings import Timeouts
from lyra.models.wire.faults import fault
from tests.models.server import Reply, Server, run, sse

KEY = "sk-ant-planted-0123456789abcdef"
QUICK = {"max_attempts": 3, "backoff": {"initial_s": 0.01}}
MODEL = "anthropic/claude-sonnet-4-20250514"  # $3 and $15 a million tokens


def text_reply(text: str, *, tokens_in: int = 10, tokens_out: int = 5, pieces: int = 3, **more: Any) -> Reply:
    """A whole answer of Anthropic's."""
    return Reply(sse(*_events(text, tokens_in, tokens_out, pieces)), **more)


def _events(text: str, tokens_in: int, tokens_out: int, pieces: int) -> list[dict[str, Any]]:
    size = max(len(text) // pieces, 1)
    parts = [text[start : start + size] for start in range(0, len(text), size)]
    usage = {"input_tokens": tokens_in, "output_tokens": 1}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "claude", "content": [], "usage": usage}
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *[{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": part}} for part in parts],
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": tokens_out},
        },
        {"type": "message_stop"},
    ]


def broken(text: str, shown: int) -> Reply:
    """An answer whose line breaks after so many pieces."""
    return Reply(sse(*_events(text, 10, 5, 3)[: 2 + shown]), cut=True)


def refused(status: int, kind: str = "api_error", **headers: str) -> Reply:
    return Reply.json({"type": "error", "error": {"type": kind, "message": "no"}}, status=status, headers=headers)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)


@pytest.fixture(params=["send", "stream"])
def ask(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`await ask(server, agent, text…)` gives the answers, or raises what went wrong."""

    async def through(server: Server, agent: Agent, *texts: str, kernel: Kernel | None = None, **options: Any) -> Any:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        if kernel is None:
            async with Kernel() as own:
                return await through(server, agent, *texts, kernel=own, **options)
        process = await kernel.spawn(agent)
        answers = [await ask_once(process, text, options) for text in texts or ("hello",)]
        return answers[0] if len(answers) == 1 else answers

    async def ask_once(process: Any, text: str, options: dict[str, Any]) -> str:
        if request.param == "send":
            return str(await process.send(text, **options))
        return "".join([piece async for piece in process.stream(text, **options)])

    return through


# ---------------------------------------------------------------- budget
def test_a_call_that_the_money_cannot_pay_is_never_made(ask):
    """Refused before anything is sent."""

    async def main() -> None:
        async with Server(text_reply("no")) as server:
            with pytest.raises(BudgetExceeded):
                await ask(server, Agent("a", model=MODEL, budget="$0.000001"))
            assert server.requests == []

    run(main())


def test_the_answer_is_as_long_as_the_money_left_can_pay(ask):
    """`max_tokens` is clamped, and what was really used is settled."""

    async def main() -> None:
        async with Server(text_reply("yes", tokens_in=10, tokens_out=20)) as server, Kernel() as kernel:
            process_budget = lyra.Budget(usd="$0.01")
            agent = Agent("a", model=MODEL, budget=process_budget, max_tokens=100_000)
            assert await ask(server, agent, kernel=kernel) == "yes"
            sent = server.requests[0].data["max_tokens"]
            assert 100 < sent < 0.01 / 15e-6
            (process,) = kernel.processes.values()
            assert int(process.budget.used("usd")) == 10 * 3 + 20 * 15
            assert int(process.budget.reserved("usd")) == 0

    run(main())


def test_nested_scopes_hold_together(ask):
    """The inner scope's spending counts in the outer one; the tighter one refuses."""

    async def main() -> None:
        async with Server(text_reply("yes", tokens_in=10, tokens_out=20)) as server:
            agent = Agent("a", model=MODEL, max_tokens=100)
            with lyra.budget("$1.00") as outer:
                with lyra.budget("$0.10") as inner:
                    await ask(server, agent)
                    assert int(inner.used) == 330
                await ask(server, agent)
                assert int(outer.used) == 660
                assert outer.remaining == lyra.Money(1_000_000 - 660)
                assert outer.limit == lyra.Money(1_000_000)
                with lyra.budget("$0.00001"), pytest.raises(BudgetExceeded):
                    await ask(server, agent)
            assert len(server.requests) == 2

    run(main())


@pytest.mark.parametrize("on_exceed", ["warn", "allow"])
def test_a_scope_that_warns_or_allows_lets_it_through(ask, on_exceed):
    """Money that is over is spent and counted; a warning is an Event."""

    async def main() -> None:
        events: list[Any] = []
        async with Server(text_reply("yes", tokens_in=10, tokens_out=20)) as server, Kernel() as kernel:
            kernel.on_event(events.append)
            agent = Agent("a", model=MODEL, budget={"usd": "$0.00001", "on_exceed": on_exceed}, max_tokens=50)
            assert await ask(server, agent, kernel=kernel) == "yes"
            assert server.requests[0].data["max_tokens"] == 50
        assert ("budget.warning" in [event.kind for event in events]) == (on_exceed == "warn")

    run(main())


def test_money_for_a_model_without_a_price_is_an_error(ask):
    """A budget that cannot be kept is refused, and says why."""

    async def main() -> None:
        async with Server(text_reply("yes")) as server:
            with pytest.raises(ConfigError, match="price of anthropic/claude-of-tomorrow is unknown"):
                await ask(server, Agent("a", model="anthropic/claude-of-tomorrow", budget="$1"))
            assert server.requests == []
            assert await ask(server, Agent("a", model="anthropic/claude-of-tomorrow")) == "yes"

    run(main())


def test_a_call_may_have_a_budget_of_its_own(ask):
    """`send(…, budget=)` is a scope for that message."""

    async def main() -> None:
        async with Server(text_reply("yes")) as server:
            agent = Agent("a", model=MODEL, max_tokens=100)
            assert await ask(server, agent, budget="$0.10") == "yes"
            with pytest.raises(BudgetExceeded):
                await ask(server, agent, budget="$0.000001")

    run(main())


def test_sixty_four_spenders_never_pass_a_budget(ask):
    """A call that does not fit is refused; the sum is right to the micro-dollar."""

    async def main() -> None:
        async with Server(text_reply("yes", tokens_in=10, tokens_out=100)) as server, Kernel() as kernel:
            agent = Agent("a", model=MODEL, max_tokens=100)
            with lyra.budget("$0.02") as scope:
                calls = [ask(server, agent, kernel=kernel) for _ in range(64)]
                results = await asyncio.gather(*calls, return_exceptions=True)
            good = [result for result in results if result == "yes"]
            assert all(isinstance(result, str | BudgetExceeded) for result in results)
            assert 5 <= len(good) < 64
            assert int(scope.used) == len(good) * (30 + 1500) <= 20_000

    run(main())


# ---------------------------------------------------------------- retry
@pytest.mark.parametrize("status", [429, 500, 503, 529])
def test_what_may_pass_is_tried_again(ask, status):
    """Three tries: two failures, then the answer."""

    async def main() -> None:
        async with Server(refused(status), refused(status), text_reply("third")) as server:
            assert await ask(server, Agent("a", model=MODEL, retry=QUICK)) == "third"
            assert len(server.requests) == 3

    run(main())


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_what_will_not_pass_is_not_tried_again(ask, status):
    async def main() -> None:
        async with Server(refused(status)) as server:
            with pytest.raises(ModelError):
                await ask(server, Agent("a", model=MODEL, retry=QUICK))
            assert len(server.requests) == 1

    run(main())


def test_the_pause_that_the_server_asks_for_is_kept(ask):
    async def main() -> None:
        async with Server(refused(429, "rate_limit_error", **{"retry-after": "0.4"}), text_reply("then")) as server:
            began = time.monotonic()
            assert await ask(server, Agent("a", model=MODEL, retry=QUICK)) == "then"
            assert time.monotonic() - began >= 0.4

    run(main())


@pytest.mark.parametrize("shown", [0, 1, 2, 3])
def test_a_broken_stream_is_tried_again_and_nothing_is_shown_twice(ask, shown):
    """Wherever the line breaks, the whole text comes out once."""

    async def main() -> None:
        async with Server(broken("abc def ghi", shown), text_reply("abc def ghi", pieces=5)) as server:
            assert await ask(server, Agent("a", model=MODEL, retry=QUICK)) == "abc def ghi"
            assert len(server.requests) == 2

    run(main())


def test_a_second_try_that_differs_says_so(monkeypatch):
    """The events tell what to forget; the answer is the second one."""

    async def main() -> None:
        async with Server(broken("abc def ghi", 2), text_reply("another", pieces=2)) as server, Kernel() as kernel:
            monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
            process = await kernel.spawn(Agent("a", model=MODEL, retry=QUICK))
            events = [event async for event in process.stream("hello", events=True)]
            assert [event.text for event in events if event.type == "restart"] == ["abc de"]
            assert events[-1].type == "done"
            assert events[-1].text == "another"

    run(main())


def test_a_truncated_answer_is_never_accepted(ask):
    """Without its last event an answer is none, also when the line was closed in order."""

    async def main() -> None:
        reply = Reply(sse(*_events("abc", 10, 5, 3)[:-1]))
        async with Server(reply) as server:
            with pytest.raises(ModelError) as caught:
                await ask(server, Agent("a", model=MODEL, retry=QUICK))
            assert caught.value.kind == "stream_truncated"
            assert len(server.requests) == 3

    run(main())


# ---------------------------------------------------------------- rate limits
def test_queue_waits(ask):
    async def main() -> None:
        limit = lyra.RateLimit(requests_per_minute=240, burst=1)
        async with Server(text_reply("yes")) as server:
            began = time.monotonic()
            await ask(server, Agent("a", model=MODEL, rate_limit=limit), "1", "2", "3")
            assert time.monotonic() - began >= 0.45

    run(main())


def test_reject_refuses(ask):
    async def main() -> None:
        limit = {"requests_per_minute": 60, "burst": 1, "strategy": "reject"}
        async with Server(text_reply("yes")) as server:
            with pytest.raises(RateLimited):
                await ask(server, Agent("a", model=MODEL, rate_limit=limit, retry=None), "1", "2")
            assert len(server.requests) == 1

    run(main())


def test_backpressure_tells_those_behind(ask):
    async def main() -> None:
        limit = {"requests_per_minute": 240, "burst": 1, "strategy": "backpressure"}
        agent = Agent("a", model=MODEL, rate_limit=limit, retry=None)
        async with Server(text_reply("yes")) as server, Kernel() as kernel:
            calls = [ask(server, agent, kernel=kernel) for _ in range(5)]
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert results.count("yes") == 2
            assert sum(isinstance(result, Overloaded) for result in results) == 3

    run(main())


def test_tokens_a_minute_count(ask):
    """The second call waits for tokens, not for requests."""

    async def main() -> None:
        limit = {"tokens_per_minute": 3000}
        agent = Agent("a", model=MODEL, rate_limit=limit, max_tokens=2000)
        async with Server(text_reply("yes", tokens_in=1000, tokens_out=1950)) as server, Kernel() as kernel:
            await ask(server, agent, kernel=kernel)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.4):
                    await ask(server, agent, kernel=kernel)
            assert len(server.requests) == 1

    run(main())


# ---------------------------------------------------------------- circuit breaker
def test_the_breaker_opens_closes_and_says_so(ask):
    """After two failures no call is made; after the pause one call tries again."""

    async def main() -> None:
        said_so: list[str] = []
        breaker = lyra.CircuitBreaker(
            threshold=2,
            reset_after=0.3,
            on_open=lambda: said_so.append("open"),
            on_close=lambda: said_so.append("close"),
        )
        agent = Agent("a", model=MODEL, circuit_breaker=breaker, retry=None)
        async with Server(refused(500), refused(500), text_reply("back")) as server, Kernel() as kernel:
            for _ in range(2):
                with pytest.raises(ModelError):
                    await ask(server, agent, kernel=kernel)
            with pytest.raises(CircuitOpen):
                await ask(server, agent, kernel=kernel)
            assert len(server.requests) == 2
            await asyncio.sleep(0.35)
            assert await ask(server, agent, kernel=kernel) == "back"
            assert said_so == ["open", "close"]

    run(main())


def test_a_bad_request_never_opens_a_breaker(ask):
    async def main() -> None:
        agent = Agent("a", model=MODEL, circuit_breaker={"threshold": 1}, retry=None)
        async with Server(refused(400), refused(400), text_reply("fine")) as server, Kernel() as kernel:
            for _ in range(2):
                with pytest.raises(ModelError):
                    await ask(server, agent, kernel=kernel)
            assert await ask(server, agent, kernel=kernel) == "fine"

    run(main())


# ---------------------------------------------------------------- fallback
def test_another_model_answers_when_the_first_cannot(ask):
    async def main() -> None:
        agent = Agent("a", model=MODEL, fallback=["anthropic/claude-3-5-haiku-20241022"], retry=QUICK)
        async with Server(refused(529), refused(529), refused(529), text_reply("second best")) as server:
            assert await ask(server, agent) == "second best"
            models = [request.data["model"] for request in server.requests]
            assert models == ["claude-sonnet-4-20250514"] * 3 + ["claude-3-5-haiku-20241022"]

    run(main())


def test_a_bad_request_never_falls_back(ask):
    async def main() -> None:
        agent = Agent("a", model=MODEL, fallback=["anthropic/claude-3-5-haiku-20241022"], retry=QUICK)
        async with Server(refused(400)) as server:
            with pytest.raises(ModelError):
                await ask(server, agent)
            assert len(server.requests) == 1

    run(main())


# ---------------------------------------------------------------- time-outs
@pytest.mark.parametrize(
    ("reply", "timeouts"),
    [
        (text_reply("late", delay_s=5.0), Timeouts(first_s=0.2)),
        (Reply(sse(*_events("abc", 1, 1, 3)[:4]), hang=True), Timeouts(idle_s=0.2)),
        (text_reply("slow and slower", pieces=15, split=40, pause_s=0.1), Timeouts(total_s=0.4)),
    ],
    ids=["first", "idle", "total"],
)
def test_time_is_limited(ask, reply, timeouts):
    """Until the first piece, between two, and over all."""

    async def main() -> None:
        async with Server(reply) as server:
            began = time.monotonic()
            with pytest.raises(ModelError) as caught:
                await ask(server, Agent("a", model=MODEL, retry=None, timeouts=timeouts))
            assert caught.value.kind == "timeout"
            assert time.monotonic() - began < 2.0

    run(main())


def test_a_caller_may_stop_waiting(monkeypatch):
    """`timeout=` ends the call, not the process, and the connection is closed."""

    async def main() -> None:
        async with Server(text_reply("late", delay_s=5.0), text_reply("next")) as server, Kernel() as kernel:
            monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
            process = await kernel.spawn(Agent("a", model=MODEL))
            with pytest.raises(DeadlineExceeded):
                await process.send("first", timeout=0.2)
            assert await process.send("second", timeout=5) == "next"
            assert [message.text for message in process.messages] == ["second", "next"]

    run(main())


# ---------------------------------------------------------------- errors with names
@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (refused(401, "authentication_error"), "auth"),
        (refused(404, "not_found_error"), "not_found"),
        (Reply(b"<html>hello</html>", headers={"content-type": "text/html"}), "bad_response"),
    ],
    ids=["key", "model", "html"],
)
def test_what_goes_wrong_has_a_name_and_a_hint(ask, reply, kind):
    async def main() -> None:
        async with Server(reply) as server:
            with pytest.raises(ModelError) as caught:
                await ask(server, Agent("a", model=MODEL, retry=QUICK))
            assert caught.value.kind == kind
            assert caught.value.hint
            assert KEY not in caught.value.render() + repr(caught.value.fields)

    run(main())


def test_no_server_there(ask, monkeypatch):
    async def main() -> None:
        async with Server(text_reply("x")) as server:
            pass
        with pytest.raises(ModelError) as caught:
            await ask(server, Agent("a", model=MODEL, retry=QUICK))
        assert caught.value.kind == "connection"
        assert caught.value.hint

    run(main())


def test_no_key(monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    with pytest.raises(ConfigError, match="ANTHROPIC_API_KEY"):
        lyra.run(Agent("a", model=MODEL), "hello")


def test_a_process_that_ends_fails_its_callers(monkeypatch):
    """A waiting caller gets an error."""

    async def main() -> None:
        async with Server(text_reply("late", delay_s=5.0)) as server, Kernel() as kernel:
            monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
            process = await kernel.spawn(Agent("a", model=MODEL))
            pending = process.send_async("hello")
            await asyncio.sleep(0.1)
            await process.stop()
            with pytest.raises(AgentFailed):
                await pending
            with pytest.raises(AgentFailed):
                await process.send("again")

    run(main())


# ---------------------------------------------------------------- what failures cost
ARRIVED = 7  # estimated tokens of the text that came before the answer broke off; its provider had counted one


def half(tokens_in: int) -> Reply:
    """An answer that breaks off after its provider has counted the input."""
    return Reply(sse(*_events("abc def ghi", tokens_in, 5, 3)[:4]), cut=True)


def test_tokens_of_a_failed_try_are_paid_for(ask):
    """Input that the provider counted and text that arrived are spent, whatever became of the answer."""

    async def main() -> None:
        async with (
            Server(half(1000), text_reply("abc def ghi", tokens_in=1000, tokens_out=20)) as server,
            Kernel() as kernel,
        ):
            with lyra.budget("$1") as scope:
                agent = Agent("a", model=MODEL, budget="$1", retry=QUICK, max_tokens=100)
                assert await ask(server, agent, kernel=kernel) == "abc def ghi"
            (process,) = kernel.processes.values()
            paid = 2 * 1000 * 3 + (ARRIVED + 20) * 15
            assert int(scope.used) == int(process.budget.used("usd")) == paid
            assert int(process.budget.reserved("usd")) == 0

    run(main())


def test_failures_cannot_pass_a_budget(ask):
    """A provider that counts and never answers is asked only as often as the money lasts."""

    async def main() -> None:
        async with Server(half(100_000)) as server, Kernel() as kernel:
            agent = Agent("a", model=MODEL, retry={"max_attempts": 3, "backoff": {"initial_s": 0.01}}, max_tokens=100)
            with lyra.budget("$0.50") as scope:
                for _ in range(6):
                    with pytest.raises((ModelError, BudgetExceeded)):
                        await ask(server, agent, kernel=kernel)
            # The provider counts far more than was asked of it: the first such surprise is over before it is known.
            assert len(server.requests) == 2
            assert int(scope.used) == 2 * (100_000 * 3 + ARRIVED * 15)

    run(main())


def test_a_failure_is_paid_for_after_a_restart(ask, tmp_path, monkeypatch):
    """What a failed call has cost is in the journal."""

    async def main() -> None:
        async with Server(half(1000)) as server:
            agent = Agent("a", model=MODEL, budget="$1", retry=None, max_tokens=100)
            path = str(tmp_path / "run.db")
            async with Kernel(path) as kernel:
                with pytest.raises(ModelError):
                    await ask(server, agent, kernel=kernel)
                (pid,) = kernel.processes
                assert int(kernel.processes[pid].budget.used("usd")) == 1000 * 3 + ARRIVED * 15
            async with Kernel(path, programs=[agent]) as kernel:
                assert int(kernel.processes[pid].budget.used("usd")) == 1000 * 3 + ARRIVED * 15

    run(main())


@pytest.mark.parametrize(
    ("given", "is_unreachable"),
    [
        ({}, True),
        ({"kind": "auth"}, True),
        ({"kind": "bad_request"}, False),
        ({"has_answered": True}, False),
        ({"is_last": False}, False),
        ({"retry": Retry(max_attempts=3)}, False),
        ({"retry": Retry(max_attempts=1)}, True),
    ],
)
def test_a_provider_cannot_be_reached_when_nothing_is_left_to_try(given: dict[str, Any], is_unreachable: bool):
    """No model has answered, this one is the last, and it will not be asked again."""
    runtime = SimpleNamespace(has_answered=given.get("has_answered", False))
    retry = given.get("retry")
    call: Any = SimpleNamespace(runtime=runtime, is_last=given.get("is_last", True), retry=retry, attempts=1)
    error = fault(given.get("kind", "connection"), "no route", provider="p")
    assert model_effect._is_unreachable(error, call) is is_unreachable
