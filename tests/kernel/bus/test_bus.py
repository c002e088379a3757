"""The message bus: events to all, commands and queries to one, middleware around them."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from lyra.errors import (
    CircuitOpen,
    ConfigError,
    DeadlineExceeded,
    Denied,
    NameTaken,
    NoSuchHandler,
    Overloaded,
    ProcessError,
)
from lyra.kernel import BusMessage, CircuitBreakerMiddleware, Kernel
from tests.kernel.conftest import run, settle


def reported(loop: asyncio.AbstractEventLoop) -> list[str]:
    """What reaches the loop's exception handler, from now on."""
    seen: list[str] = []
    loop.set_exception_handler(lambda _loop, context: seen.append(str(context.get("exception"))))
    return seen


def test_an_event_reaches_every_subscriber():
    """Plain and async subscribers are all called, with one message each; publish gives their number."""

    async def main():
        async with Kernel() as kernel:
            got: list[Any] = []

            async def later(message):
                await asyncio.sleep(0)
                got.append(("async", message))

            kernel.bus.subscribe("tick", lambda message: got.append(("plain", message)))
            kernel.bus.subscribe("tick", later)
            kernel.bus.subscribe("tock", got.append)
            assert await kernel.bus.publish("tick", {"n": 1}) == 2
            assert [who for who, _ in got] == ["plain", "async"]
            message = got[0][1]
            assert (message.category, message.type, message.payload, message.trust) == (
                "event",
                "tick",
                {"n": 1},
                "trusted",
            )
            assert message.id.startswith("msg_")
            assert message.timestamp > 0
            assert (message["n"], message.get("m", 5), "n" in message, message == {"n": 1}) == (1, 5, True, True)
            assert message == got[1][1]
            assert hash(message) == hash(got[1][1])
            assert await kernel.bus.publish("no subscriber") == 0

    run(main())


def test_async_subscribers_run_side_by_side():
    """None waits for another, each is called in the order of publication, and publish waits for all."""

    async def main():
        async with Kernel() as kernel:
            both = asyncio.Barrier(2)
            order: list[Any] = []

            async def meets(message):
                order.append(message.payload)
                await both.wait()

            kernel.bus.subscribe("t", meets)
            kernel.bus.subscribe("t", meets)
            assert await asyncio.wait_for(kernel.bus.publish("t", 1), 5) == 2
            await asyncio.gather(*(kernel.bus.publish("t", n) for n in range(2, 6)))
            assert order == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]

    run(main())


def test_a_subscriber_that_fails_harms_no_other():
    """Its error goes to the loop's exception handler, never to the publisher or to the other subscribers."""

    async def main():
        async with Kernel() as kernel:
            seen = reported(kernel.loop)
            got: list[Any] = []

            def fails(message):
                raise ValueError("plain")

            async def fails_later(message):
                raise ValueError("async")

            kernel.bus.subscribe("t", fails)
            kernel.bus.subscribe("t", fails_later)
            kernel.bus.subscribe("t", got.append)
            assert await kernel.bus.publish("t", 7) == 3
            assert got == [7]
            assert seen == ["plain", "async"]

    run(main())


def test_unsubscribing_is_idempotent_and_immediate():
    """Ended twice is ended; a subscriber that an earlier one ends does not see the very message."""

    async def main():
        async with Kernel() as kernel:
            got: list[Any] = []
            kernel.bus.subscribe("t", lambda message: end())
            end = kernel.bus.subscribe("t", got.append)
            keep = kernel.bus.subscribe("t", got.append)
            assert kernel.bus.subscribers("t") == 3
            assert await kernel.bus.publish("t") == 2
            end()
            keep()
            keep()
            assert kernel.bus.subscribers("t") == 1
            assert len(got) == 1

    run(main())


def test_a_command_has_one_handler():
    """Send returns when it is done, and raises what went wrong; no handler is an error, and so is a second one."""

    async def main():
        async with Kernel() as kernel:
            done: list[Any] = []

            async def handler(message):
                if message.payload == "bad":
                    raise ValueError("bad")
                done.append(message.payload)
                return "not for the sender"

            with pytest.raises(NoSuchHandler, match="no handler registered for work"):
                await kernel.bus.send("work", 1)
            kernel.bus.register_handler("work", handler)
            with pytest.raises(NameTaken):
                kernel.bus.register_handler("work", done.append)
            await kernel.bus.send("work", 1)
            with pytest.raises(ValueError, match="bad"):
                await kernel.bus.send("work", "bad")
            assert done == [1]
            assert kernel.bus.has_handler("work")
            kernel.bus.unregister_handler("work")
            with pytest.raises(NoSuchHandler):
                kernel.bus.unregister_handler("work")
            with pytest.raises(NoSuchHandler):
                await kernel.bus.send("work", 1)

    run(main())


def test_a_query_is_answered_in_time(clock):
    """The handler's result, or NoSuchHandler, or DeadlineExceeded on the kernel's clock; cancelling it is possible."""

    async def main():
        async with Kernel("memory", clock) as kernel:
            ended = []

            async def slow(message):
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.append(message.payload)

            kernel.bus.register_handler("double", lambda message: message["n"] * 2)
            kernel.bus.register_handler("slow", slow)
            assert await kernel.bus.query("double", {"n": 4}) == 8
            assert await kernel.bus.query("double", {"n": 4}, timeout_s=None) == 8
            with pytest.raises(NoSuchHandler, match="no handler registered for nothing"):
                await kernel.bus.query("nothing")
            cases: list[tuple[dict[str, Any], float, str]] = [({}, 30, "30.00s"), ({"timeout_s": 1.5}, 1.5, "1.50s")]
            for options, seconds, text in cases:
                work = asyncio.ensure_future(kernel.bus.query("slow", text, **options))
                await settle(kernel)
                clock.advance(seconds)
                with pytest.raises(DeadlineExceeded, match=f"query slow timed out after {text}"):
                    await work
            work = asyncio.ensure_future(kernel.bus.query("slow", "cancelled"))
            await settle(kernel)
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
            assert ended == ["30.00s", "1.50s", "cancelled"]
            with pytest.raises(ConfigError):
                await kernel.bus.query("double", {"n": 1}, timeout_s=0)

    run(main())


class Noting:
    """Writes down what passes, and does to it what it is told to."""

    def __init__(self, name, log, before=lambda message: message, after=lambda result, error: None):
        self.name, self.log, self._before, self._after = name, log, before, after

    async def before(self, message):
        self.log.append(f"before {self.name}")
        return self._before(message)

    async def after(self, message, result, error):
        self.log.append(f"after {self.name}")
        return self._after(result, error)


def test_middleware_wraps_in_order():
    """Before in order, after in reverse; it may change the message, the result and the error; it can be taken out."""

    async def main():
        async with Kernel() as kernel:
            log: list[str] = []

            def shouts(message):
                return BusMessage(message.category, message.type, message.payload.upper(), id=message.id)

            def repairs(result, error):
                return ("repaired", None) if error is not None else None

            def fails(message):
                raise ValueError(message.payload)

            kernel.bus.register_handler("echo", lambda message: message.payload)
            kernel.bus.register_handler("fail", fails)
            remove = kernel.bus.use(Noting("a", log, after=repairs))
            kernel.bus.use(Noting("b", log, before=shouts))
            kernel.bus.use(Noting("c", log, after=lambda result, error: None if result is None else result + "!"))
            assert await kernel.bus.query("echo", "hi") == "HI!"
            assert log == ["before a", "before b", "before c", "after c", "after b", "after a"]
            assert await kernel.bus.query("fail", "x") == "repaired"
            await kernel.bus.send("fail", "x")
            remove()
            remove()
            with pytest.raises(ValueError, match="X"):
                await kernel.bus.send("fail", "x")
            got: list[Any] = []
            kernel.bus.subscribe("t", got.append)
            await kernel.bus.publish("t", "news")
            assert got == ["NEWS"]

    run(main())


def test_middleware_may_stop_a_message():
    """None stops it: an event or a command is quietly done, a query has no handler; those before it hear of the end."""

    async def main():
        async with Kernel() as kernel:
            log: list[str] = []
            ends: list[Any] = []
            got: list[Any] = []
            kernel.bus.use(Noting("a", log, after=lambda result, error: ends.append(type(error))))
            kernel.bus.use(Noting("b", log, before=lambda message: None))
            kernel.bus.use(Noting("c", log))
            kernel.bus.subscribe("t", got.append)
            kernel.bus.register_handler("t", got.append)
            assert await kernel.bus.publish("t") == 0
            await kernel.bus.send("t")
            with pytest.raises(NoSuchHandler):
                await kernel.bus.query("t")
            assert got == []
            assert log == ["before a", "before b", "after a"] * 3
            assert ends == [NoSuchHandler] * 3

    run(main())


def test_middleware_may_be_partial_plain_or_wrong():
    """One of the two methods is enough, plain functions too; what they raise is raised; what they give is checked."""

    async def main():
        async with Kernel() as kernel:

            class After:
                def after(self, message, result, error):
                    if message.payload == "stop":
                        raise PermissionError("stop")
                    return (result, None) if message.payload == "pair" else None

            class Before:
                def before(self, message):
                    if message.payload == "refuse":
                        raise PermissionError("refuse")
                    return "rubbish" if message.payload == "rubbish" else message

            kernel.bus.use(After())
            kernel.bus.use(Before())
            kernel.bus.register_handler("t", lambda message: message.payload)
            assert await kernel.bus.query("t", "fine") == "fine"
            assert await kernel.bus.query("t", "pair") == "pair"
            for word in ("stop", "refuse"):
                with pytest.raises(PermissionError, match=word):
                    await kernel.bus.query("t", word)
            with pytest.raises(ConfigError, match="gave str"):
                await kernel.bus.query("t", "rubbish")
            with pytest.raises(ConfigError):
                kernel.bus.use(object())

    run(main())


def test_cancellation_is_never_swallowed():
    """A middleware hears that a query was cancelled, and cannot make it anything else."""

    async def main():
        async with Kernel() as kernel:
            heard: list[Any] = []

            def repairs(result, error):
                heard.append(type(error))
                return ("all is well", None)

            async def hangs(message):
                await asyncio.Event().wait()

            kernel.bus.use(Noting("a", [], after=repairs))
            kernel.bus.register_handler("t", hangs)
            work = asyncio.ensure_future(kernel.bus.query("t"))
            await settle(kernel)
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
            assert heard == [asyncio.CancelledError]

    run(main())


def test_the_circuit_breaker_is_one_a_type(clock):
    """After so many failures in a row a type is refused for a while, then probed; excluded types and 0 never are."""

    async def main():
        async with Kernel("memory", clock) as kernel:
            healthy = False

            def handler(message):
                if not healthy:
                    raise ConnectionError("down")
                return "ok"

            for name in ("a", "b", "free"):
                kernel.bus.register_handler(name, handler)
            breaker = CircuitBreakerMiddleware(threshold=2, reset_after=10, exclude=["free"])
            kernel.bus.use(breaker)

            async def fails(name, error):
                with pytest.raises(error):
                    await kernel.bus.query(name)

            await fails("a", ConnectionError)
            await fails("a", ConnectionError)
            await fails("a", CircuitOpen)
            await fails("b", ConnectionError)
            assert (breaker.state("a"), breaker.state("b"), breaker.state("c")) == ("open", "closed", "closed")
            for _ in range(5):
                await fails("free", ConnectionError)
            clock.advance(10)
            await fails("a", ConnectionError)  # the probe
            await fails("a", CircuitOpen)
            clock.advance(10)
            healthy = True
            assert await kernel.bus.query("a") == "ok"
            assert breaker.state("a") == "closed"

    run(main())


def test_a_circuit_breaker_may_be_told_never_to_open():
    """Threshold 0 never opens; mistakes of the caller do not count; its settings are checked."""

    async def main():
        async with Kernel() as kernel:
            kernel.bus.use(CircuitBreakerMiddleware({"threshold": 0}))
            second = CircuitBreakerMiddleware(threshold=1)
            kernel.bus.use(second)

            def handler(message):
                raise message.payload

            kernel.bus.register_handler("t", handler)
            for _ in range(5):
                with pytest.raises(ValueError, match="mine"):
                    await kernel.bus.send("t", ValueError("mine"))
            assert second.state("t") == "closed"
            with pytest.raises(ConfigError, match="threshhold"):
                CircuitBreakerMiddleware(threshhold=1)
            with pytest.raises(ConfigError, match="not both"):
                CircuitBreakerMiddleware({"threshold": 1}, threshold=1)
            with pytest.raises(ConfigError, match="clock"):
                CircuitBreakerMiddleware(threshold=1).before(BusMessage("query", "t"))

    run(main())


def test_a_stream_reads_events_of_its_types():
    """In order, from when it was opened; it ends when it is closed, and when the kernel is."""

    async def main():
        async with Kernel() as kernel:
            await kernel.bus.publish("a", 0)
            async with kernel.bus.stream(["a", "b", "a"]) as stream:
                reader = asyncio.ensure_future(anext(stream))
                await settle(kernel)
                with pytest.raises(ProcessError, match="being read"):
                    await anext(stream)
                await kernel.bus.publish("a", 1)
                await kernel.bus.publish("c", 2)
                await kernel.bus.publish("b", 3)
                assert await reader == 1
                assert await anext(stream) == 3
            assert kernel.bus.subscribers("a") == 0
            with pytest.raises(StopAsyncIteration):
                await anext(stream)
            single = kernel.bus.stream("a")
            await kernel.bus.publish("a", 4)
            rest = asyncio.ensure_future(collect(single))
            await settle(kernel)
        assert await rest == [4]
        await single.aclose()

    async def collect(stream):
        return [message.payload async for message in stream]

    run(main())


def test_a_slow_stream_loses_its_oldest_messages():
    """A hundred are kept; each one lost is an Event and counted; the publisher never waits."""

    async def main():
        async with Kernel() as kernel:
            dropped: list[Any] = []
            kernel.on_event(lambda e: dropped.append(e.data["dropped"]) if e.kind == "bus.dropped" else None)
            stream = kernel.bus.stream("t")
            small = kernel.bus.stream("t", size=1)
            for n in range(103):
                await kernel.bus.publish("t", n)
            assert (stream.dropped, small.dropped) == (3, 102)
            assert len(dropped) == 105
            assert await anext(stream) == 3
            assert await anext(small) == 102
            with pytest.raises(ConfigError):
                kernel.bus.stream([])
            for size in (0, 101, True, "9"):
                with pytest.raises(ConfigError):
                    kernel.bus.stream("t", size=size)  # type: ignore[arg-type]

    run(main())


def test_a_stream_without_a_reference_is_gone():
    """Forgetting a stream ends its subscription: nothing is kept for a reader who left."""

    async def main():
        async with Kernel() as kernel:
            stream = kernel.bus.stream("t")
            assert kernel.bus.subscribers("t") == 1
            del stream
            gc.collect()
            assert kernel.bus.subscribers("t") == 0
            assert not kernel.bus._queues

    run(main())


def test_wrong_use_is_named(monkeypatch):
    """Types are words, functions are functions, trust is one of two words; a closed bus carries nothing."""

    async def main():
        kernel = Kernel()
        with pytest.raises(ProcessError):
            await kernel.bus.publish("t")
        async with kernel:
            for wrong in ("", 3, None, "x" * 201, "\ud800"):
                with pytest.raises(ConfigError):
                    kernel.bus.subscribe(wrong, print)  # type: ignore[arg-type]
                with pytest.raises(ConfigError):
                    await kernel.bus.publish(wrong)  # type: ignore[arg-type]
            with pytest.raises(ConfigError):
                kernel.bus.subscribe("t", 3)  # type: ignore[arg-type]
            with pytest.raises(ConfigError):
                kernel.bus.register_handler("t", None)  # type: ignore[arg-type]
            monkeypatch.setattr("lyra.kernel.bus.bus.BUS_SUBSCRIBERS_MAX", 1)
            kernel.bus.subscribe("full", print)
            with pytest.raises(Overloaded):
                kernel.bus.subscribe("full", print)
            with pytest.raises(ConfigError, match="trust"):
                await kernel.bus.publish("t", trust="sure")
            got: list[BusMessage] = []
            kernel.bus.subscribe("t", got.append)
            await kernel.bus.publish("t", trust="UNTRUSTED")
            assert got[0].trust == "untrusted"
        with pytest.raises(ProcessError):
            await kernel.bus.query("t")

    run(main())


def test_a_program_uses_the_bus_in_an_effect(target):
    """Inside an effect a program publishes, asks, and meets time-outs like anybody else."""

    kernel: Any = None

    async def asks(ctx):
        async def ask(n: int) -> int:
            return int(await kernel.bus.query("double", {"n": n}, timeout_s=5))

        return await ctx.do(ask, 21)

    async def double(message):
        await asyncio.sleep(0)
        return message["n"] * 2

    async def main():
        nonlocal kernel
        async with Kernel(target, programs=[asks]) as kernel:
            kernel.bus.register_handler("double", double)
            assert await kernel.run(asks) == 42

    run(main())


def test_fan_out_is_cheap():
    """A thousand plain subscribers cost a thousand calls and little more."""

    async def main():
        async with Kernel() as kernel:
            count = 0

            def listen(message):
                nonlocal count
                count += 1

            for _ in range(1_000):
                kernel.bus.subscribe("t", listen)
            began = time.process_time()
            for _ in range(20):
                assert await kernel.bus.publish("t", 1) == 1_000
            each_us = (time.process_time() - began) / 20_000 * 1e6
            assert count == 20_000
            assert each_us < 5.0, each_us

    run(main())


# ---------------------------------------------------------------------- as a state machine


class BusMachine(RuleBasedStateMachine):
    """Against a list of who should hear what."""

    types = st.sampled_from(["a", "b"])

    @initialize()
    def begin(self):
        self.loop = asyncio.new_event_loop()
        self.kernel = Kernel("memory", seed=1)
        self.loop.run_until_complete(self.kernel.start())
        self.bus = self.kernel.bus
        self.live: list[tuple[str, list[Any], Any]] = []
        self.handlers: dict[str, int] = {}
        self.number = 0

    @rule(kind=types, later=st.booleans())
    def subscribe(self, kind, later):
        got: list[Any] = []

        async def add(message):
            await asyncio.sleep(0)
            got.append(message.payload)

        self.live.append((kind, got, self.bus.subscribe(kind, add if later else lambda m: got.append(m.payload))))

    @rule(index=st.integers(0, 9))
    def unsubscribe(self, index):
        if index < len(self.live):
            _, _, end = self.live.pop(index)
            end()
            end()

    @rule(kind=types)
    def publish(self, kind):
        self.number += 1
        heard = [got for wanted, got, _ in self.live if wanted == kind]
        assert self.loop.run_until_complete(self.bus.publish(kind, self.number)) == len(heard)
        for wanted, got, _ in self.live:
            assert (got[-1:] == [self.number]) == (wanted == kind)
            assert got == sorted(got)

    @rule(kind=types)
    def handle(self, kind):
        self.number += 1
        number = self.number
        if kind in self.handlers:
            with pytest.raises(NameTaken):
                self.bus.register_handler(kind, lambda message: number)
        else:
            self.bus.register_handler(kind, lambda message: number)
            self.handlers[kind] = number

    @rule(kind=types)
    def unhandle(self, kind):
        if kind in self.handlers:
            self.bus.unregister_handler(kind)
            del self.handlers[kind]
        else:
            with pytest.raises(NoSuchHandler):
                self.bus.unregister_handler(kind)

    @rule(kind=types)
    def ask(self, kind):
        if kind in self.handlers:
            assert self.loop.run_until_complete(self.bus.query(kind)) == self.handlers[kind]
        else:
            with pytest.raises(NoSuchHandler):
                self.loop.run_until_complete(self.bus.query(kind))

    def teardown(self):
        if hasattr(self, "kernel"):
            self.loop.run_until_complete(self.kernel.close())
            self.loop.close()


TestBus = BusMachine.TestCase
TestBus.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)


def test_a_closed_stream_ends_its_subscription():
    """After `aclose` nothing is kept for the stream; what was kept before can still be read, then it ends."""

    async def main():
        async with Kernel() as kernel:
            stream = kernel.bus.stream("t")
            await kernel.bus.publish("t", 1)
            await stream.aclose()
            assert await kernel.bus.publish("t", 2) == 0
            return [message.payload async for message in stream]

    assert run(main()) == [1]


def test_a_breaker_has_the_clock_it_is_given(clock):
    """It opens again when that clock says so, whatever the kernel's clock does."""

    async def main():
        async with Kernel() as kernel:

            async def fails(message):
                raise RuntimeError("down")

            kernel.bus.use(CircuitBreakerMiddleware(threshold=1, reset_after=10, clock=clock))
            kernel.bus.register_handler("q", fails)
            for expected in (RuntimeError, CircuitOpen):
                with pytest.raises(expected):
                    await kernel.bus.query("q")
            clock.advance(10.0)
            with pytest.raises(RuntimeError):
                await kernel.bus.query("q")

    run(main())


@pytest.mark.parametrize("way", ["publish", "query", "send"])
def test_untrusted_text_is_marked(way):
    """Who gets the message, by any of the three ways, sees it; otherwise it is trusted."""

    async def main():
        async with Kernel() as kernel:
            got: list[str] = []
            kernel.bus.subscribe("t", lambda message: got.append(message.trust))
            kernel.bus.register_handler("t", lambda message: got.append(message.trust))
            await getattr(kernel.bus, way)("t", {"text": "x"}, trust="untrusted")
            await getattr(kernel.bus, way)("t", {"text": "x"})
            return got

    assert run(main()) == ["untrusted", "trusted"]


def test_a_message_is_read_by_its_keys():
    """`get` gives the value of a key of the payload, or the default."""
    message = BusMessage("event", "t", {"n": 1})
    assert (message.get("n"), message.get("m", 5)) == (1, 5)


def test_what_a_process_of_a_user_sends_and_hears_is_that_users():
    """Programs of ann and bob use the same types: events, commands and queries of each stay with each, a handler of no
    user answers those who have none of their own, and neither acts in the name of the other."""
    heard: dict[str, list[Any]] = {"ann": [], "bob": [], "": []}

    async def member(bus: Any, ctx: Any, name: str) -> None:
        bus.subscribe("tick", lambda message: heard[name].append(message.payload))
        bus.register_handler("own", lambda _message: f"the handler of {name}")
        await ctx.receive()
        await bus.publish("tick", f"by {name}")
        heard[name].append(await bus.query("own"))
        heard[name].append(await bus.query("shared"))
        with pytest.raises(Denied):
            await bus.publish("tick", "forged", user_id="ann" if name == "bob" else "bob")
        with pytest.raises(Denied):
            bus.stream("tick", user_id="ann" if name == "bob" else "bob")
        bus.unregister_handler("own")
        assert not bus.has_handler("own")

    async def main():
        async with Kernel() as kernel:

            async def program(ctx: Any, name: str) -> None:
                await member(kernel.bus, ctx, name)

            kernel.register(program)
            kernel.bus.subscribe("tick", lambda message: heard[""].append((message.user_id, message.payload)))
            kernel.bus.register_handler("shared", lambda message: f"asked by {message.user_id}")
            processes = [kernel.as_user(name).spawn(program, name) for name in ("ann", "bob")]
            await settle(kernel)
            assert await kernel.bus.publish("tick", "by nobody") == 1
            assert await kernel.bus.publish("tick", "for ann", user_id="ann") == 2
            assert await kernel.bus.query("own", user_id="bob") == "the handler of bob"
            with pytest.raises(NoSuchHandler):
                await kernel.bus.send("own")
            await kernel.bus.send("own", user_id="ann")
            for process in processes:
                await process.send("go")
            for process in processes:
                await process.wait()

    run(main())
    assert heard["ann"] == ["for ann", "by ann", "the handler of ann", "asked by ann"]
    assert heard["bob"] == ["by bob", "the handler of bob", "asked by bob"]
    assert heard[""] == [("", "by nobody"), ("ann", "for ann"), ("ann", "by ann"), ("bob", "by bob")]


def test_a_middleware_does_not_change_whose_message_it_is():
    """A message that a middleware puts in the place of another belongs to the same user."""

    class Rewrites:
        def before(self, message: BusMessage) -> BusMessage:
            return BusMessage(message.category, message.type, "rewritten")

    async def main():
        async with Kernel() as kernel:
            kernel.bus.use(Rewrites())
            stream = kernel.bus.stream("tick", user_id="ann")
            await kernel.bus.publish("tick", 1, user_id="bob")
            await kernel.bus.publish("tick", 2, user_id="ann")
            message = await anext(stream)
            assert (message.user_id, message.payload) == ("ann", "rewritten")

    run(main())
