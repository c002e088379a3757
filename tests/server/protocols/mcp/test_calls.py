"""Calls over MCP that are cancelled, refused, limited or slow, with the official SDK's client."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from lyra import tool
from lyra.server.protocols.mcp import agent_tools
from tests.server.http.support import ADA, VIEWER, Served, echo, in_loop, scripted, serving
from tests.server.protocols.mcp.test_mcp import asking

ACCEPT = {"accept": "application/json, text/event-stream"}
SLOW = {"text": "word " * 4_000, "chunk_s": 0.05}


async def working(served: Served) -> Any:
    """The process of the chat that is at work."""
    async with asyncio.timeout(30):
        while True:
            for pid in [pid for pid in served.kernel.processes if pid.startswith("chat-")]:
                if served.kernel.agent(pid).current is not None:
                    return served.kernel.agent(pid)
            await asyncio.sleep(0.01)


async def until_idle(process: Any) -> None:
    """Wait until it has stopped: at once, and not at the next sign of life of the stream, which comes after 15 s."""
    async with asyncio.timeout(10):
        while process.current is not None:
            await asyncio.sleep(0.01)


def test_a_call_that_the_client_cancels_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    """The agent stops working and nothing of the turn is kept; the client goes on with its next call. The server logs
    no failure."""

    async def main() -> None:
        async with serving(scripted("slow", SLOW), echo()) as served, asking(served, ADA) as client:
            call = asyncio.ensure_future(client.call_tool("slow", {"message": "x"}))
            process = await working(served)
            call.cancel()
            await asyncio.wait([call])
            await until_idle(process)
            assert process.messages == ()
            assert (await client.call_tool("echo", {"message": "still here"})).content[0].text == "still here"

    in_loop(main(), 60)
    assert [row.getMessage() for row in caplog.records if "failed" in row.getMessage()] == []


def test_a_call_that_takes_too_long_for_the_client_is_given_up() -> None:
    """The time-out of the SDK's client stops the agent, too."""

    async def main() -> None:
        async with serving(scripted("slow", SLOW)) as served, asking(served, ADA) as client:
            call = asyncio.ensure_future(client.call_tool("slow", {"message": "x"}, read_timeout_seconds=0.5))
            process = await working(served)
            with pytest.raises(MCPError, match="timed out"):
                await call
            await until_idle(process)
            assert process.messages == ()

    in_loop(main(), 60)


def test_a_viewer_lists_the_tools_and_calls_none() -> None:
    """A viewer sees everything and changes nothing; the refused call is told to the audit log, the list is not."""

    async def main() -> None:
        acts: list[Any] = []
        async with serving(echo()) as served, asking(served, VIEWER) as client:
            served.kernel.on_event(lambda event: acts.append(event.data), kinds=("person.acted",))
            assert [row.name for row in (await client.list_tools()).tools] == ["echo"]
            refused = await client.call_tool("echo", {"message": "x"})
            assert refused.is_error
            assert "changes nothing" in refused.content[0].text
            assert not [pid for pid in served.kernel.processes if pid.startswith("chat-")]
        assert [(row["person"], row["act"], row["outcome"]) for row in acts] == [("vera", "mcp.call", "denied")]

    in_loop(main())


def test_limits_of_the_kernel_hold_for_calls_and_not_for_looking() -> None:
    """A user's limit counts calls; the handshake and the list of tools are not work."""

    async def main() -> None:
        async with serving(echo()) as served:
            served.kernel.rate_limiter.set_user_limits("ada", {"requests_per_minute": 1, "burst_size": 1})
            async with asking(served, ADA) as client:
                for _ in range(3):
                    await client.list_tools()
                assert not (await client.call_tool("echo", {"message": "one"})).is_error
                second = await client.call_tool("echo", {"message": "two"})
                assert second.is_error
                assert "too many requests" in second.content[0].text

    in_loop(main())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"message": "x", "user_id": "bob"}, "no argument 'user_id'"),
        ({"message": 5}, "are texts"),
        ({}, "are texts"),
        ({"message": " "}, "empty"),
        ({"message": "x", "session_id": "../x"}, "session_id is 1 to 64"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments: dict[str, Any], words: str) -> None:
    """By a sentence that says what does, and before there is a session."""

    async def main() -> None:
        async with serving(echo()) as served, asking(served, ADA) as client:
            refused = await client.call_tool("echo", arguments)
            assert refused.is_error
            assert words in refused.content[0].text

    in_loop(main())


def test_a_session_goes_on_with_its_own_agent_only() -> None:
    """The tool of one agent does not go on with the conversation of another, and says so."""

    async def main() -> None:
        async with serving(echo(), scripted("helper", "x")) as served, asking(served, ADA) as client:
            first = await client.call_tool("echo", {"message": "hello"})
            again = {"message": "x", "session_id": first.structured_content["session_id"]}
            refused = await client.call_tool("helper", again)
            assert refused.is_error
            assert "with another agent" in refused.content[0].text

    in_loop(main())


def test_a_question_is_told_as_progress_also_that_of_a_helper() -> None:
    """The client of a call that waits learns for what, and the call ends with the answer of the person."""

    @tool
    async def ask(ctx: Any) -> str:
        """Ask."""
        return str((await ctx.ask("Which day?")).text)

    rules = {"allow": ["ask", "clerk"]}

    async def main() -> None:
        told: list[str] = []

        async with serving(lead) as served, asking(served, ADA) as client:

            async def on_progress(progress: float, total: float | None, message: str | None) -> None:
                told.append(message or "")
                if "Which day?" in told[-1]:
                    question = served.kernel.interrupts.pending()[0]
                    await served.kernel.resolve_interrupt(question.id, {"text": "Friday"})

            answer = await client.call_tool("lead", {"message": "go"}, progress_callback=on_progress)
            assert answer.content[0].text == "on Friday"
        assert told == ["clerk", "waits for a person: Which day?"]

    helper = scripted(
        "clerk",
        {"user": "x", "tool_calls": [{"name": "ask"}]},
        {"tool": "ask", "text": "{result}"},
        tools=[ask],
        permissions=rules,
    )
    lead = scripted(
        "lead",
        {"user": "go", "tool_calls": [{"name": "clerk", "arguments": {"task": "x"}}]},
        {"tool": "clerk", "text": "on {result}"},
        tools=[helper],
        permissions=rules,
    )
    in_loop(main())


def test_a_client_that_stops_reading_leaves_no_task_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer of many pieces whose reader leaves: the work on it ends, also where no room is left for its end."""
    monkeypatch.setattr(agent_tools, "_WAITING_MAX", 2)

    @tool
    async def paint() -> str:
        """Tells progress without end."""
        from lyra.core.tool import report

        while True:
            report("more")
            await asyncio.sleep(0.005)

    agent = scripted("painter", {"user": "x", "tool_calls": [{"name": "paint"}]}, {"text": "done"}, tools=[paint])
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "painter", "arguments": {"message": "x"}, "_meta": {"progressToken": 1}},
    }

    def running() -> list[str]:
        return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("lyra-mcp")]

    async def main() -> None:
        async with serving(agent) as served:
            sent: list[Any] = []
            pieces = [{"type": "http.request", "body": httpx2.Request("POST", "http://x", json=call).content}]
            left = asyncio.Event()

            async def receive() -> dict[str, Any]:
                if pieces:
                    return {**pieces.pop(), "more_body": False}
                await left.wait()
                return {"type": "http.disconnect"}

            async def send(message: Any) -> None:
                sent.append(message)
                if len(sent) > 1:
                    await asyncio.Event().wait()  # the client reads nothing

            headers = {**ACCEPT, "host": "localhost", "content-type": "application/json"}
            headers["authorization"] = served.ada.headers["authorization"]
            scope = {
                "type": "http",
                "method": "POST",
                "path": "/mcp",
                "raw_path": b"/mcp",
                "query_string": b"",
                "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            }
            request = asyncio.ensure_future(served.face.app(scope, receive, send))
            process = await working(served)
            await asyncio.sleep(0.3)  # the answer fills up
            assert running()
            left.set()
            await request
            await until_idle(process)
            async with asyncio.timeout(10):
                while running():
                    await asyncio.sleep(0.01)

    in_loop(main(), 60)


def test_a_server_that_takes_larger_requests_takes_them_over_mcp() -> None:
    """`message_bytes_max` is the limit here as well, and the only one."""
    import lyra.server
    from lyra import Kernel

    async def main() -> None:
        async with Kernel(programs=[echo()]) as kernel:
            app = lyra.server.app(kernel, tokens={ADA: "ada"}, message_bytes_max=8 << 20)
            transport = httpx2.ASGITransport(app)
            headers = {"authorization": f"Bearer {ADA}"}
            async with (
                httpx2.AsyncClient(transport=transport, headers=headers, base_url="http://localhost") as http,
                Client(streamable_http_client("http://localhost/mcp", http_client=http)) as client,
            ):
                answer = await client.call_tool("echo", {"message": "x" * (5 << 20)})
                assert not answer.is_error

    in_loop(main())
