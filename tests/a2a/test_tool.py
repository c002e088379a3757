"""A remote agent as a tool: asked by an agent's model, decided on, charged, journaled, and its words not trusted."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lyra import Agent, Kernel, a2a
from lyra.a2a import connection
from lyra.a2a.remote_agent import RemoteOrder
from lyra.errors import BudgetExceeded, CapabilityDenied, ConfigError, EffectFailed, OutcomeUnknown
from lyra.models.sim import SimProvider
from tests import warm
from tests.a2a.support import SdkServer, asking, in_loop
from tests.server.protocols.a2a.support import ADA, serving

SECRET = "secret-token-of-the-remote"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SdkServer]:
    with SdkServer(tmp_path_factory.mktemp("sdk")) as running:
        yield running


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SdkServer]:
    with SdkServer(tmp_path_factory.mktemp("sdk03"), "0.3") as running:
        yield running


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SdkServer]:
    """One that is reached over HTTP+JSON alone."""
    with SdkServer(tmp_path_factory.mktemp("sdkrest"), "rest") as running:
        yield running


async def tool_output(server: SdkServer, *texts: str, **settings: Any) -> str:
    """What the model was told by the tool."""
    remote = server.remote(**settings.pop("remote", {}))
    async with Kernel() as kernel:
        process = await kernel.spawn(asking(remote, *texts, **settings))
        await process.send("go")
        results = [row for row in process.messages if row.role == "tool"]
        return str(results[-1].tool_results[0].output)


async def refused_call(server: SdkServer) -> str:
    """What a model is told that names a task which is not there."""
    calls = {"user": "go", "tool_calls": [{"name": "a2a__worker", "arguments": {"message": "x", "task": "none"}}]}
    model = SimProvider(script={"replies": [calls, {"tool": "a2a__worker", "text": "{result}"}]})
    lead = Agent("lead", model=model, tools=[server.remote()], permissions={"allow": ["a2a__worker"]})
    async with Kernel() as kernel:
        return str(await (await kernel.spawn(lead)).send("go"))


@pytest.mark.slow
@pytest.mark.parametrize("fixture", ["server", "earlier", "rest"])
def test_an_agent_asks_a_remote_agent(fixture: str, request: pytest.FixtureRequest) -> None:
    """The model calls the tool; the answer of a server of the SDK, of either version and
    binding of the protocol, is its result, and so are its errors."""
    running: SdkServer = request.getfixturevalue(fixture)
    assert in_loop(tool_output(running, "echo hello")) == "done: echo hello"
    assert in_loop(tool_output(running, "slow 0.4")) == "done: slow 0.4"
    assert in_loop(tool_output(running, "message quick")) == "quick"
    assert "no paper left" in in_loop(tool_output(running, "fail no paper left"))
    assert "refused" in in_loop(refused_call(running))


def test_a_failed_task_is_told_to_the_model(server: SdkServer) -> None:
    """The words of the remote agent are the tool's error."""
    assert "no paper left" in in_loop(tool_output(server, "fail no paper left"))


def test_a_question_is_answered_by_a_call_with_the_task(server: SdkServer) -> None:
    """The model is told the question and the id of the task; a second call with that id answers it."""

    async def main() -> None:
        remote = server.remote()
        async with Kernel() as kernel:
            process = await kernel.spawn(asking(remote, "ask colour"))
            told = str(await process.send("go"))
            assert "Which colour?" in told
            task = told.partition("task='")[2].partition("'")[0]
            script = {
                "user": "reply",
                "tool_calls": [{"name": "a2a__worker", "arguments": {"message": "red", "task": task}}],
            }
            model = SimProvider(script={"replies": [script, {"tool": "a2a__worker", "text": "{result}"}]})
            second = await kernel.spawn(
                Agent("second", model=model, tools=[remote], permissions={"allow": ["a2a__worker"]})
            )
            assert await second.send("reply") == "done: red"

    in_loop(main())


def test_the_tool_is_guarded_and_taints(server: SdkServer) -> None:
    """Without a rule a person is asked; afterwards the session has read text from outside, of the card already."""

    async def main() -> None:
        remote = await a2a.connect(server.url, inside=[server.place])
        offered = remote.__lyra_tool__()
        assert (offered.guarded, offered.untrusted, offered.foreign, offered.idempotent) == (True, True, True, False)
        assert "Does what the first word says." in offered.description
        async with Kernel() as kernel:
            process = await kernel.spawn(asking(remote, "echo hi", permissions={"attended": True}))
            pending = process.send_async("go")
            while not kernel.interrupts.pending(process.pid):
                await asyncio.sleep(0.01)
            count = len(server.messages)
            await kernel.resolve_interrupt(kernel.interrupts.pending(process.pid)[0].id, {"approved": False})
            await pending
            assert len(server.messages) == count
            assert kernel.taint.is_tainted(process.pid)

    in_loop(main())


def test_a_process_without_the_right_to_reach_the_host_cannot_call(server: SdkServer) -> None:
    """The Grant of the process decides, whatever the model wants."""

    async def main() -> None:
        async with Kernel() as kernel:
            count = len(server.messages)
            process = await kernel.spawn(
                asking(server.remote(), "echo hi"), grant={"deny": ["net.http:**"], "allow": ["*"]}
            )
            answer = str(await process.send("go"))
            assert "net.http" in answer
            assert len(server.messages) == count

    in_loop(main())


def test_addresses_of_this_network_are_refused_unless_named(server: SdkServer) -> None:
    """A remote agent inside this network is reached only where the program names its address."""

    async def main() -> None:
        with pytest.raises(CapabilityDenied, match="this machine"):
            await a2a.connect(server.url)
        with pytest.raises(ConfigError, match="unencrypted"):
            await a2a.connect("http://agents.example.org/a2a/x", token="t" * 20)
        for url in ("ftp://a/b", "https://user:pw@host/x", "https://host/x?token=1", "nonsense"):
            with pytest.raises(ConfigError):
                a2a.RemoteAgent(url, name="x")

    in_loop(main())


def test_the_token_goes_to_its_origin_and_is_masked_everywhere(server: SdkServer, tmp_path: Path) -> None:
    """A server that sends the token back does not get it into the conversation or the journal."""
    store = tmp_path / "store.db"

    async def main() -> None:
        async with Kernel(store) as kernel:
            process = await kernel.spawn(asking(server.remote(token=SECRET), "token please"))
            answer = await process.send("go")
            assert answer == "done: Bearer ***"

    in_loop(main())
    assert SECRET.encode() not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


def test_a_card_cannot_lead_requests_to_another_origin(server: SdkServer) -> None:
    """An interface of another origin is not used: the token would go there."""
    from a2a.types import a2a_pb2 as pb

    here = connection.RemoteConnection(server.url, token=None, inside=[server.place])
    card = pb.AgentCard(
        supported_interfaces=[
            pb.AgentInterface(url="https://evil.example/rpc", protocol_binding="JSONRPC", protocol_version="1.0")
        ]
    )
    with pytest.raises(EffectFailed, match="own origin"):
        here._with_own_interfaces(card)


def test_what_the_other_side_says_that_it_cost_is_charged(server: SdkServer) -> None:
    """A told cost counts in the budget of the agent; `max_cost` is reserved before, and the most that is charged."""

    async def main() -> None:
        async with Kernel() as kernel:
            process = await kernel.spawn(asking(server.remote(), "cost much"), budget="$1")
            await process.send("go")
            assert int(process.budget.used("usd")) == 250_000
            capped = await kernel.spawn(asking(server.remote(max_cost="$0.10"), "cost much"), budget="$1")
            await capped.send("go")
            assert int(capped.budget.used("usd")) == 100_000
            count = len(server.messages)
            poor = await kernel.spawn(asking(server.remote(max_cost="$2"), "cost much"), budget="$1")
            with pytest.raises(BudgetExceeded):
                await poor.send("go")
            assert len(server.messages) == count

    in_loop(main())


def test_a_task_that_takes_too_long_is_cancelled(server: SdkServer) -> None:
    """The time-out is the tool's error, and the remote task is stopped."""
    told = in_loop(tool_output(server, "slow 60", remote={"timeout_s": 0.5}))
    assert "took longer than 0.5 s" in told
    assert server.messages[-1] == "cancelled"


def test_an_answer_without_end_is_cut(server: SdkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer over the limit is an error, not memory."""
    monkeypatch.setattr(connection, "ANSWER_BYTES_MAX", 300)
    told = in_loop(tool_output(server, "echo hello"))
    assert "more than 300 bytes" in told


def test_a_server_that_is_not_there_is_told(tmp_path: Path) -> None:
    """`connect` and a call fail with a sentence that names the place."""
    with SdkServer(tmp_path) as gone:
        pass

    async def main() -> None:
        with pytest.raises(EffectFailed, match=gone.place):
            await a2a.connect(gone.url, inside=[gone.place])

    in_loop(main())
    assert gone.place in in_loop(tool_output(gone, "echo hi"))


KILLED = """
import asyncio, sys
from pathlib import Path
from lyra import Kernel
from lyra.a2a import RemoteAgent
from lyra.models.sim import SimProvider
from tests.a2a.support import asking

url, place, store, text = sys.argv[1:5]

async def main():
    remote = RemoteAgent(url, name="worker", inside=[place])
    async with Kernel(store, programs=[asking(remote, text)]) as kernel:
        process = await kernel.spawn(asking(remote, text), pid="lead")
        if process.current is None:
            print(await process.send("go", wait_for_person=True), flush=True)
        else:
            print("resumed", flush=True)
            for _ in range(3000):
                doubts = kernel.interrupts.pending("lead")
                if doubts:
                    print("in doubt", doubts[0].kind, flush=True)
                    return
                for last in process.messages[-1:]:
                    if last.role == "assistant" and not last.tool_calls:
                        print(last.text, flush=True)
                        return
                await asyncio.sleep(0.01)

asyncio.run(main())
"""


def run_program(server: SdkServer, folder: Path, text: str) -> Any:
    program = folder / "program.py"
    program.write_text(KILLED)
    words = [server.url, server.place, str(folder / "store.db"), text]
    return warm.start(str(program), words, stdout=subprocess.PIPE)


def kill_when_received(server: SdkServer, folder: Path, text: str) -> None:
    """Run the program and kill it once the remote agent has the message."""
    process = run_program(server, folder, text)
    while text not in server.messages:
        assert process.poll() is None
    if text.startswith("slow"):  # the task's id is in the journal a moment later
        in_loop(asyncio.sleep(0.5))
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


@pytest.mark.slow
def test_a_killed_program_looks_the_task_up_and_does_not_send_it_again(server: SdkServer, tmp_path: Path) -> None:
    """After kill -9 in the middle of a task, the resumed process follows the same task to its end."""
    text = "slow 2.5"
    kill_when_received(server, tmp_path, text)
    again = run_program(server, tmp_path, text)
    told = again.communicate()[0].decode()
    assert told.splitlines() == ["resumed", "done: slow 2.5"]
    assert server.messages.count(text) == 1


@pytest.mark.slow
def test_a_message_without_an_answer_yet_is_found_by_its_context(server: SdkServer, tmp_path: Path) -> None:
    """Killed before the id of the task came back: the task is found by the context that the message had."""
    kill_when_received(server, tmp_path, "late first")
    (server.log.parent / "first").touch()
    again = run_program(server, tmp_path, "late first")
    told = again.communicate()[0].decode()
    assert told.splitlines() == ["resumed", "done: late first"]
    assert server.messages.count("late first") == 1


@pytest.mark.slow
def test_a_message_that_the_other_side_cannot_look_up_is_in_doubt(earlier: SdkServer, tmp_path: Path) -> None:
    """Version 0.3 has no list of tasks: a person is asked, and nothing is sent twice."""
    kill_when_received(earlier, tmp_path, "late second")
    again = run_program(earlier, tmp_path, "late second")
    told = again.communicate()[0].decode()
    (earlier.log.parent / "second").touch()
    assert told.splitlines() == ["resumed", "in doubt in_doubt"]
    assert earlier.messages.count("late second") == 1


def test_a_message_without_a_task_is_sent_again_only_where_that_is_safe(server: SdkServer) -> None:
    """A server that takes a message once under its id gets it again; of any other, the outcome is unknown."""

    async def main() -> None:
        order = RemoteOrder("message-7", "context-7", "echo safe")
        with pytest.raises(OutcomeUnknown, match="may yet begin"):
            await server.remote()._calls.find_out(order)
        assert "echo safe" not in server.messages
        async with serving() as served:
            place = served.url.removeprefix("http://")
            remote = a2a.RemoteAgent(f"{served.url}/a2a/echo", name="echo", token=ADA, inside=[place])
            answers = [(await remote._calls.find_out(order)).value["task_id"] for _ in range(2)]
            assert answers[0] == answers[1] != ""
            later = RemoteOrder("message-8", "context-7", "echo other", is_first=False)
            assert (await remote._calls.find_out(later)).value["task_id"] != answers[0]

    in_loop(main())


def test_a_finished_call_is_not_made_again(server: SdkServer, tmp_path: Path) -> None:
    """A process that is resumed after the call has the answer from its journal."""
    store, text, remote = tmp_path / "store.db", "echo journaled", server.remote()

    async def program(ctx: Any) -> str:
        ended = await ctx.spawn(remote, text).wait()
        await ctx.receive()
        return str(ended.result)

    async def main() -> None:
        async with Kernel(store, programs=[program, remote]) as kernel:
            kernel.spawn(program, pid="main")
            while text not in server.messages or kernel.processes["main"].state != "waiting":
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)
        async with Kernel(store, programs=[program, remote]) as kernel:
            await kernel.send("main", "go on")
            assert (await kernel.process("main").wait()).result == "done: echo journaled"

    in_loop(main())
    assert server.messages.count(text) == 1


@pytest.mark.slow
def test_a_remote_agent_that_dies_is_a_tool_error(tmp_path: Path) -> None:
    """The server dies in the middle of a task: the model is told that the agent does not answer."""
    with SdkServer(tmp_path) as server:
        told = in_loop(tool_output(server, "die now"))
        assert server.place in told
