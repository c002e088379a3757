"""A message whose sender was told that it failed is never carried out, also not by a later kernel on the store."""

from __future__ import annotations

import asyncio
import signal
import textwrap
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lyra import Agent, Kernel, tool
from lyra.agents.acp.agent_sessions import AgentEditorSession
from lyra.agents.session.shared import runtime_of, stop_turn
from lyra.errors import AgentFailed, Conflict, DeadlineExceeded, ProcessExit
from lyra.kernel.journal.history import Fold
from lyra.models.sim import SimProvider
from lyra.server.http.api.agents import cancel_answer
from tests import warm
from tests.agents.support import calls, run, says
from tests.kernel.conftest import Crash, settle

ROOT = Path(__file__).parents[3]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "run.db")


class Shop:
    """An agent whose first turn takes long, and which charges whatever it is told to charge."""

    def __init__(self, **settings: Any) -> None:
        self.charged: list[str] = []
        self.is_slow = True
        self.began = 0

        @tool
        async def charge(what: str) -> str:
            self.charged.append(what)
            return "charged"

        @tool(idempotent=True)
        async def look() -> str:
            self.began += 1
            if self.is_slow:
                await asyncio.sleep(60)
            return "looked"

        def answer(request):
            last = request.messages[-1]
            if last.role == "tool":
                return "done"
            return calls("look") if last.text == "look" else calls("charge", what=last.text)

        self.agent = Agent("shop", model=SimProvider(answer), tools=[charge, look], **settings)

    async def busy(self, kernel: Kernel) -> Any:
        """The agent's process, with a turn under way that takes a minute."""
        process = await kernel.spawn(self.agent, pid="shop")
        process.send_async("look")
        while not self.began:
            await asyncio.sleep(0.001)
        return process

    async def after_restart(self, path: str) -> list[str]:
        """What a later kernel charges, once it has done all there is to do."""
        self.is_slow = False
        async with Kernel(path, programs=[self.agent]) as kernel:
            process = await kernel.spawn(self.agent, pid="shop")
            await process.send("the last one", timeout=5)
        return self.charged


async def send_with_timeout(process) -> None:
    with pytest.raises(DeadlineExceeded):
        await process.send("bread", timeout=0.05)


async def cancelled_wait_for(process) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(process.send("bread"), 0.05)


async def cancelled_pending(process) -> None:
    pending = process.send_async("bread")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(pending, 0.05)


async def seconds_of_a_budget(process) -> None:
    with pytest.raises(DeadlineExceeded):
        await process.send("bread", budget={"seconds": 0.05})


async def stream_that_was_left(process) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            async for _ in process.stream("bread"):
                pass


async def stream_that_was_closed(process) -> None:
    async with aclosing(aiter(process.stream("bread"))) as pieces:
        reading = asyncio.ensure_future(anext(pieces))
        await asyncio.wait([reading], timeout=0.05)
        reading.cancel()
        await asyncio.wait([reading])


async def stream_that_was_left_at_a_piece(process) -> None:
    async with aclosing(process.stream("bread")) as stream:
        await stream.begin()
        await process.kernel.durable()  # and its reader is left where no `finally` of its own runs


async def pending_that_was_cancelled(process) -> None:
    pending = process.send_async("bread")
    await asyncio.sleep(0.05)
    pending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pending


async def whole_stream_that_was_given_up(process) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(process.stream("bread"), 0.05)


WAYS = [
    send_with_timeout,
    cancelled_wait_for,
    cancelled_pending,
    seconds_of_a_budget,
    stream_that_was_left,
    stream_that_was_closed,
    stream_that_was_left_at_a_piece,
    whole_stream_that_was_given_up,
    pending_that_was_cancelled,
]


@pytest.mark.parametrize("supervision", [None, "restart"])
@pytest.mark.parametrize("way", WAYS)
def test_a_message_that_timed_out_is_not_carried_out_after_a_crash(path, way, supervision):
    """Queued behind a long turn, given up by its sender, then kill -9: the next kernel does not do it."""
    shop = Shop(**({"supervision": supervision} if supervision else {}))

    async def first():
        async with Crash(Kernel(path)) as kernel:
            await way(await shop.busy(kernel))

    run(first())
    assert run(shop.after_restart(path)) == ["the last one"]


@pytest.mark.parametrize("way", WAYS)
def test_a_message_that_timed_out_is_not_carried_out_after_a_clean_close(path, way):
    """The same when the kernel is closed in order."""
    shop = Shop()

    async def first():
        async with Kernel(path) as kernel:
            await way(await shop.busy(kernel))
            kernel.core.in_flight = 0  # the tool hangs: the drain need not wait for it

    run(first())
    assert run(shop.after_restart(path)) == ["the last one"]


def test_a_queued_message_whose_sender_is_told_at_close_is_withdrawn(path):
    """Its sender gets AgentFailed, and the next kernel does not carry it out. The turn under way goes on, as its
    sender is told."""
    shop = Shop()

    async def first():
        kernel = Kernel(path)
        await kernel.start()
        process = await kernel.spawn(shop.agent, pid="shop")
        under_way = process.send_async("look")
        while not shop.began:
            await asyncio.sleep(0.001)
        queued = process.send_async("bread")
        await kernel.durable()
        await kernel.close(drain_s=0)
        with pytest.raises(AgentFailed, match="withdrawn"):
            await queued
        with pytest.raises(ProcessExit, match="goes on"):
            await under_way

    run(first())
    assert run(shop.after_restart(path)) == ["the last one"]


def test_a_stream_is_closed_when_the_store_has_it(path):
    """`aclose` before the reading has begun does nothing; then it withdraws the message for good, and again nothing."""
    shop = Shop()

    async def first():
        async with Crash(Kernel(path)) as kernel:
            stream = (await shop.busy(kernel)).stream("bread")
            await stream.aclose()
            pending = await stream.begin()
            await kernel.durable()
            for _ in range(2):
                await stream.aclose()
            assert pending.cancelled()

    run(first())
    assert run(shop.after_restart(path)) == ["the last one"]


def test_a_turn_that_was_given_up_is_not_gone_on_with_after_a_crash(path):
    """The sender is told while a tool of its turn runs, and the kernel dies before the turn has ended."""
    shop = Shop()

    async def first():
        async with Crash(Kernel(path)) as kernel:
            process = await kernel.spawn(shop.agent, pid="shop")
            pending = process.send_async("look")
            while not shop.began:
                await asyncio.sleep(0.001)
            kernel.scheduler.stopped = True  # nothing but the withdrawal itself is written from here on
            pending.cancel()
            kernel.journal.flush()

    async def second():
        shop.is_slow = False
        async with Kernel(path, programs=[shop.agent]) as kernel:
            process = await kernel.spawn(shop.agent, pid="shop")
            await settle(kernel)
            assert not kernel.interrupts.pending()
            assert await process.send("milk") == "done"
            return [message.text for message in process.messages if message.role == "user"]

    run(first())
    assert run(second()) == ["milk"]
    assert shop.began == 1
    assert run(second()) == ["milk", "milk"]  # a third life reads the same
    assert shop.charged == ["milk", "milk"]


def test_a_turn_of_an_earlier_life_that_was_stopped_is_not_gone_on_with_after_a_crash(path):
    """Its caller is gone with the first kernel; a face stops it in the second, and that kernel dies at once: the third
    does not do it."""
    shop = Shop()

    async def first():
        async with Crash(Kernel(path)) as kernel:
            await shop.busy(kernel)
            await kernel.durable()

    async def second():
        async with Crash(Kernel(path, programs=[shop.agent])) as kernel:
            while shop.began < 2:
                await asyncio.sleep(0.001)
            kernel.scheduler.stopped = True  # nothing but the withdrawal itself is written from here on
            assert stop_turn(kernel, "shop")
            kernel.journal.flush()

    run(first())
    run(second())
    assert run(shop.after_restart(path)) == ["the last one"]
    assert shop.began == 2


def test_a_server_tells_that_an_answer_is_cancelled_when_the_store_has_it(path):
    """The request of a chat's user, right before a crash of the server: a later one does not carry it out."""
    shop = Shop()

    async def first():
        async with Crash(Kernel(path)) as kernel:
            process = await shop.busy(kernel)
            queued = process.send_async("bread")
            await kernel.durable()
            chats = SimpleNamespace(cancel=lambda *_: queued.cancel())
            request: Any = SimpleNamespace(
                kernel=kernel, parts=SimpleNamespace(chats=chats), path={"session_id": "s"}, caller=None
            )
            assert (await cancel_answer(request)).cancelled == 1

    run(first())
    assert run(shop.after_restart(path)) == ["the last one"]


def test_an_editor_is_told_that_a_prompt_is_cancelled_when_the_store_has_it(path):
    """`session/cancel` of an editor, right before a crash of the program."""
    shop = Shop()

    async def first():
        async with Crash(Kernel(path)) as kernel:
            process = await shop.busy(kernel)
            session: Any = AgentEditorSession.__new__(AgentEditorSession)
            session._is_cancelled = True
            answer = await process.stream("bread", events=True).begin()
            await kernel.durable()
            answer.cancel()
            assert (await AgentEditorSession._run(session, answer)).stop_reason == "cancelled"

    run(first())
    assert run(shop.after_restart(path)) == ["the last one"]


def test_what_the_turn_has_asked_another_agent_is_withdrawn_with_it(path):
    """A tool asks a busy shop; the asker of the whole is told that it failed, and the kernel dies before the tool is
    cancelled: the shop does not charge in its next life."""
    shop = Shop()

    @tool
    async def order(what: str) -> str:
        """Order something from the shop."""
        return str(await kernels[0].agent("shop").send(what))

    kernels: list[Kernel] = []
    clerk = Agent("clerk", model=says(calls("order", what="bread"), "ordered"), tools=[order])

    async def first():
        async with Crash(Kernel(path, programs=[shop.agent, clerk])) as kernel:
            kernels.append(kernel)
            await shop.busy(kernel)
            process = await kernel.spawn(clerk, pid="clerk")
            pending = process.send_async("go")
            while not [other for other in runtime_of(kernel).questions.pending.values() if other.asker == "clerk"]:
                await asyncio.sleep(0.001)
            pending.cancel()  # what follows runs in the same step: nothing is cancelled yet
            inner = next(other for other in runtime_of(kernel).questions.pending.values() if other.asker == "clerk")
            assert kernel.withdrawals.holds(kernel.processes["shop"], inner.id)
            await kernel.durable()

    run(first())
    assert run(shop.after_restart(path)) == ["the last one"]


def test_senders_are_told_when_the_store_is_lost(path):
    """Another kernel has it now: no answer will come here, also not to a message that is sent later."""
    shop = Shop()

    async def main():
        async with Kernel(path) as kernel:
            process = await shop.busy(kernel)
            queued = process.send_async("bread")
            kernel.core.abort(Conflict("another kernel has the store"))
            with pytest.raises(Conflict, match="another kernel has"):
                await asyncio.wait_for(queued, 5)
            with pytest.raises(Conflict, match="another kernel has"):
                await asyncio.wait_for(process.send("milk"), 5)

    run(main())
    assert shop.charged == []


def test_a_snapshot_keeps_what_was_withdrawn(path):
    """A withdrawal is in the snapshot, so that it holds when its row is compacted away."""
    shop = Shop()

    async def first():
        async with Crash(Kernel(path, retention_s=0.0)) as kernel:
            process = await shop.busy(kernel)
            await send_with_timeout(process)
            await kernel._snapshots.write()

    run(first())
    assert run(shop.after_restart(path)) == ["the last one"]


def test_a_withdrawal_is_forgotten_once_the_agent_has_passed_it(path):
    """What was withdrawn does not pile up."""

    async def main():
        agent = Agent("helper", model=says({"text": "slow", "first_s": 0.2}, "quick", {"text": "slow", "first_s": 9}))
        async with Kernel(path) as kernel:
            process = await kernel.spawn(agent, pid="helper")
            slow = process.send_async("one")
            for _ in range(5):
                with pytest.raises(DeadlineExceeded):
                    await process.send("two", timeout=0.001)
            assert len(kernel.withdrawals.state.requests["helper"]) == 5
            assert await slow == "slow"
            assert await process.send("three") == "quick"
            await settle(kernel)
            assert not kernel.withdrawals.state.requests
            with pytest.raises(DeadlineExceeded):
                await process.send("four", timeout=0.01)
            await process.stop()
            await settle(kernel)
            assert not kernel.withdrawals.state.requests

    run(main())


def test_the_withdrawal_is_durable_before_the_sender_is_told(path):
    """At the moment of DeadlineExceeded the store itself has the row."""
    shop = Shop()

    async def main():
        async with Crash(Kernel(path)) as kernel:
            process = await shop.busy(kernel)
            with pytest.raises(DeadlineExceeded):
                await process.send("bread", timeout=0.05)
            fold: Any = Fold(type(state)() for state in kernel.states.values())
            fold.add_all(kernel.journal.store.read(after=0))
            assert fold.states["~withdrawals"].requests["shop"]

    run(main())


PROGRAM = """
    import asyncio, sys, os, signal
    from lyra import Agent, Kernel, tool
    from lyra.errors import DeadlineExceeded
    from lyra.models.sim import SimProvider

    @tool
    async def charge(what: str) -> str:
        with open(sys.argv[2], "a") as log:
            print(what, file=log)
        return "charged"

    @tool(idempotent=True)
    async def look() -> str:
        await asyncio.sleep(60 if sys.argv[3] == "first" else 0)
        return "looked"

    def answer(request):
        last = request.messages[-1]
        if last.role == "tool":
            return "done"
        name, arguments = ("look", {}) if last.text == "look" else ("charge", {"what": last.text})
        return {"tool_calls": [{"name": name, "arguments": arguments}]}

    agent = Agent("shop", model=SimProvider(answer), tools=[charge, look])

    async def main():
        async with Kernel(sys.argv[1], programs=[agent]) as kernel:
            process = await kernel.spawn(agent, pid="shop")
            if sys.argv[3] == "first":
                process.send_async("look")
                try:
                    if sys.argv[4] == "send":
                        await process.send("bread", timeout=0.5)
                    async with asyncio.timeout(0.5):
                        async for _ in process.stream("bread"):
                            pass
                except (DeadlineExceeded, TimeoutError):
                    os.kill(os.getpid(), signal.SIGKILL)
            print(await process.send("milk", timeout=20))

    asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["send", "stream"])
def test_kill_9_right_after_the_time_out(tmp_path, how):
    """The program kills itself in the very handler of the time-out, of `send` or around a stream that it reads; what it
    was told had failed is not charged."""
    program, store, log = tmp_path / "program.py", tmp_path / "run.db", tmp_path / "log"
    program.write_text(textwrap.dedent(PROGRAM))
    for word, code in (("first", -signal.SIGKILL), ("second", 0)):
        assert warm.run(str(program), [str(store), str(log), word, how]).returncode == code
    assert log.read_text().split() == ["milk"]


@pytest.mark.parametrize("asked_again", [False, True])
def test_a_question_with_a_key_is_withdrawn_until_it_is_asked_again(path, asked_again):
    """As Vega's `agent <- message` asks: its time-out withdraws the question; a program that comes to the same call
    again after a crash, because the time-out itself was not journaled yet, asks it anew and gets one answer."""
    shop = Shop()

    async def first():
        async with Crash(Kernel(path)) as kernel:
            process = await shop.busy(kernel)
            pending = runtime_of(kernel).ask(process._process, "bread", request_id="~main:7")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(pending, 0.05)

    async def second():
        shop.is_slow = False
        async with Kernel(path) as kernel:
            runtime, process = runtime_of(kernel), kernel.processes["shop"]
            if asked_again:
                runtime.questions.expect("~main:7", process, (), stream=False)
            kernel.register(shop.agent)
            if asked_again:
                assert await runtime.ask(process, "bread", request_id="~main:7") == "done"
            helper = await kernel.spawn(shop.agent, pid="shop")
            await helper.send("milk", timeout=5)
            await settle(kernel)
            assert not kernel.withdrawals.state.requests

    run(first())
    run(second())
    assert shop.charged == (["bread", "milk"] if asked_again else ["milk"])


def test_a_message_that_is_withdrawn_and_passed_is_told(path):
    """The same request, when its sender gave up and when the agent has come past it."""
    shop, heard = Shop(), []

    async def main():
        async with Kernel(path) as kernel:
            kernel.on_event(heard.append, ("message.withdrawn", "message.passed"))
            process = await shop.busy(kernel)
            await send_with_timeout(process)
            await kernel.durable()
            kernel.core.in_flight = 0  # the tool hangs: the drain need not wait for it
        shop.is_slow = False
        kernel = Kernel(path, programs=[shop.agent])
        kernel.on_event(heard.append, ("message.withdrawn", "message.passed"))
        async with kernel:
            process = await kernel.spawn(shop.agent, pid="shop")
            await process.send("the last one", timeout=5)
            await kernel.durable()

    run(main())
    assert [event.kind for event in heard] == ["message.withdrawn", "message.passed"]
    assert heard[0].data["request"]
