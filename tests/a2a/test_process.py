"""A remote agent as a process: asked, supervised, and restarted when the program behind it dies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lyra import Agent, Kernel, a2a
from lyra.a2a import remote_agent
from lyra.core.policies.retry import Backoff, Retry
from lyra.errors import AgentFailed, CapabilityDenied
from lyra.kernel import Child
from tests.a2a.support import SdkServer, in_loop
from tests.server.protocols.a2a.support import ADA, serving
from tests.server.protocols.a2a.test_questions import booked, clerk


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SdkServer]:
    with SdkServer(tmp_path_factory.mktemp("sdk")) as running:
        yield running


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    retry = Retry(max_attempts=2, backoff=Backoff(initial_s=0.05), on=("overloaded", "temporary"))
    monkeypatch.setattr(remote_agent, "_RETRY", retry)


def test_a_process_of_a_remote_agent_is_asked_like_an_agent(server: SdkServer) -> None:
    """`send` gives the answer, one context is one conversation, and the reader is marked as having outside text."""

    async def main() -> None:
        async with Kernel() as kernel:
            process = await kernel.spawn(server.remote())
            answer = await process.send("echo one")
            assert (answer, answer.tainted) == ("done: echo one", True)
            assert await process.send("echo two") == "done: echo two"
            with pytest.raises(AgentFailed, match="no paper"):
                await process.send("fail no paper")
            assert process.alive
            assert kernel.taint.is_tainted(process.pid)
            assert await kernel.agent(process.pid).send("echo three") == "done: echo three"

    in_loop(main())


def test_one_task_is_a_program_with_a_result(server: SdkServer) -> None:
    """Spawned with a task, the process does that and ends with the answer."""

    async def main() -> None:
        async with Kernel() as kernel:
            handle = kernel.spawn(server.remote(), "echo alone")
            assert (await handle.wait()).result == "done: echo alone"
            failed = await kernel.spawn(server.remote(), "fail badly").wait()
            assert "badly" in str(failed.error)

    in_loop(main())


def test_a_process_without_the_right_to_reach_the_host_ends(server: SdkServer) -> None:
    """The Grant of the process decides, before anything is sent."""

    async def main() -> None:
        async with Kernel() as kernel:
            count = len(server.messages)
            grant = {"allow": ["*"], "deny": ["net.http:**"]}
            ended = await kernel.spawn(server.remote(), "echo denied", grant=grant).wait()
            assert isinstance(ended.error, CapabilityDenied)
            assert len(server.messages) == count

    in_loop(main())


def test_a_question_of_the_remote_agent_is_put_to_a_person(server: SdkServer) -> None:
    """The remote agent asks: it is an interrupt of the process, and its answer goes on with the remote task."""

    async def main() -> None:
        async with Kernel() as kernel:
            process = await kernel.spawn(server.remote())
            pending = process.send_async("ask colour", wait_for_person=True)
            while not kernel.interrupts.pending(process.pid):
                await asyncio.sleep(0.01)
            question = kernel.interrupts.pending(process.pid)[0]
            assert "Which colour?" in question.question
            await kernel.resolve_interrupt(question.id, {"text": "red"})
            assert await pending == "done: red"

    in_loop(main())


@pytest.mark.parametrize(
    ("answer", "sent"),
    [({"data": {"colour": "red"}}, '{"colour":"red"}'), ({"approved": True}, "yes"), ({"approved": False}, "no")],
)
def test_an_answer_without_text_is_sent_as_json_or_as_a_word(
    server: SdkServer, answer: dict[str, Any], sent: str
) -> None:
    """What a person answers by data or by yes and no reaches the remote agent in a form that it reads."""

    async def main() -> None:
        async with Kernel() as kernel:
            process = await kernel.spawn(server.remote())
            pending = process.send_async("ask colour", wait_for_person=True)
            while not kernel.interrupts.pending(process.pid):
                await asyncio.sleep(0.01)
            await kernel.resolve_interrupt(kernel.interrupts.pending(process.pid)[0].id, answer)
            assert await pending == f"done: {sent}"

    in_loop(main())


def test_a_caller_that_leaves_gives_up_its_message_only(server: SdkServer) -> None:
    """A cancelled question ends the work on it, one that was not begun is not sent; the process answers the next."""

    async def main() -> None:
        async with Kernel() as kernel:
            process = await kernel.spawn(server.remote())
            pending = process.send_async("slow 60")
            while "slow 60" not in server.messages:
                await asyncio.sleep(0.01)
            queued = process.send_async("echo never")
            assert queued.cancel()
            assert pending.cancel()
            assert await process.send("echo next") == "done: echo next"
            assert "echo never" not in server.messages

    in_loop(main())


@pytest.mark.slow
def test_a_remote_agent_that_is_killed_is_a_crash_that_its_supervisor_handles(tmp_path: Path) -> None:
    """kill -9 in the middle of a task: its caller gets an error, the supervisor starts the process again, and the next
    message is answered once the remote agent is back."""

    async def main(server: SdkServer) -> None:
        restarts: list[Any] = []
        async with Kernel() as kernel:
            kernel.on_event(restarts.append, kinds=("child.restarting",))
            children = [Child("worker", server.remote(), name="worker")]
            backoff = {"kind": "constant", "initial_s": 0.2}
            top = kernel.supervise(children, max_restarts=100, window_s=60, backoff=backoff)
            first = await until_named(kernel, "worker")
            assert await kernel.agent("worker").send("echo alive") == "done: echo alive"
            pending = kernel.agent("worker").send_async("slow 60")
            while "slow 60" not in server.messages:
                await asyncio.sleep(0.01)
            server.kill()
            with pytest.raises(AgentFailed, match="is gone") as caught:
                await pending
            assert caught.value.status == "unreachable"
            server.start()
            while await until_named(kernel, "worker") == first:
                await asyncio.sleep(0.02)
            while True:
                try:
                    assert await kernel.agent("worker").send("echo again") == "done: echo again"
                    break
                except AgentFailed:  # it was started before the remote agent was back
                    await asyncio.sleep(0.05)
            assert restarts
            assert top.alive
            await top.stop()

    with SdkServer(tmp_path) as server:
        in_loop(main(server))


async def until_named(kernel: Kernel, name: str) -> str:
    while (handle := kernel.whereis(name)) is None:
        await asyncio.sleep(0.01)
    return handle.pid


@pytest.mark.slow
def test_a_remote_agent_that_stays_away_ends_its_supervisor(tmp_path: Path) -> None:
    """After more restarts than allowed the supervisor gives up, which is a crash for the one above it."""

    async def main(server: SdkServer) -> None:
        events: list[str] = []
        async with Kernel() as kernel:
            kernel.on_event(lambda event: events.append(event.kind), kinds=("child.restarting", "supervisor.gave_up"))
            inner = Child.supervisor("inner", [Child("worker", server.remote(check_every_s=0.1))], max_restarts=2)
            top = kernel.supervise([inner], max_restarts=1, window_s=60)
            await kernel.process(top.pid).wait()
            assert not top.alive
        assert events.count("supervisor.gave_up") == 3  # inner, inner again, and the one above

    with SdkServer(tmp_path) as server:
        pass
    in_loop(main(server))


@pytest.mark.slow
def test_an_idle_process_notices_that_the_remote_agent_is_gone(tmp_path: Path) -> None:
    """Without any message, the process crashes soon after the remote agent has died."""

    async def main(server: SdkServer) -> None:
        async with Kernel() as kernel:
            process = await kernel.spawn(server.remote(check_every_s=0.1))
            assert await process.send("echo hi") == "done: echo hi"
            server.kill()
            ended = await process.wait()
            assert (ended.error.status, "is gone" in str(ended.error)) == ("unreachable", True)

    with SdkServer(tmp_path) as server:
        in_loop(main(server))


def test_lyra_talks_to_lyra() -> None:
    """A Lyra agent is the remote one: its question, its answer and its cost come back, and a message is taken once."""
    booked.clear()

    async def main() -> None:
        async with serving(clerk(), Agent("echo", model="sim/echo", description="Says it again.")) as served:
            place = served.url.removeprefix("http://")
            echo = await a2a.connect(f"{served.url}/a2a/echo", token=ADA, inside=[place])
            assert (echo.name, echo.description) == ("echo", "Says it again.")
            asker = a2a.RemoteAgent(f"{served.url}/a2a/clerk", name="clerk", token=ADA, inside=[place])
            async with Kernel() as kernel:
                assert await (await kernel.spawn(echo)).send("hello") == "hello"
                process = await kernel.spawn(asker)
                pending = process.send_async("book it", wait_for_person=True)
                while not kernel.interrupts.pending(process.pid):
                    await asyncio.sleep(0.01)
                await kernel.resolve_interrupt(kernel.interrupts.pending(process.pid)[0].id, {"text": "Monday"})
                assert await pending == "It is done: Oslo on Monday"
        assert booked == ["Oslo"]

    in_loop(main())
