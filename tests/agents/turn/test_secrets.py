"""A planted key is nowhere: not in the journal, a trace, an event, an error, a prompt, a transcript or a recording."""

from __future__ import annotations

import asyncio
import base64
import logging
from pathlib import Path
from typing import Any

import pytest

import lyra
from lyra import Agent, Kernel, tool
from lyra.agents.session.shared import runtime_of
from lyra.agents.turn.model_effect import StreamKeyFilter
from lyra.core.secrets.known_keys import KnownKeys
from lyra.core.secrets.secret import MASK
from lyra.errors import LyraError
from lyra.models.sim import SimProvider
from tests.models.server import Reply, Server, run

KEY = "sk-ant-planted-5f2a9c81b7d64e03"
OTHER = "planted-openai-key-7c1d44aa90ef"
MODEL = "anthropic/claude-sonnet-4-20250514"


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_API_KEY", OTHER)


@tool
def leak() -> str:
    """Says what it should not."""
    return f"the key is {KEY} and {OTHER}"


@tool
def leak_data() -> dict[str, Any]:
    """The same, deeper."""
    return {"environment": [{"name": "OPENAI_API_KEY", "value": OTHER}], KEY: 1}


@tool
async def leak_error() -> str:
    """The same, as an error."""
    raise RuntimeError(f"401 for {KEY}")


def scripted(seen: list[Any]) -> SimProvider:
    """A model that calls each tool once, then answers, and keeps what it was shown."""

    def answer(request: Any) -> Any:
        seen.append(repr(request))
        turn = sum(message.role == "assistant" for message in request.messages)
        if turn < 3:
            return {"tool_calls": [{"name": ("leak", "leak_data", "leak_error")[turn], "arguments": {}}]}
        return "done"

    return SimProvider(script=answer)


def test_nothing_that_is_kept_or_shown_has_a_key(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Said by a caller, by a system prompt, by tools in three ways; looked for everywhere afterwards."""
    seen: list[Any] = []
    caplog.set_level(logging.DEBUG)

    async def main() -> None:
        agent = Agent(
            "a",
            model=scripted(seen),
            system=lambda _session: f"use {KEY}",
            tools=[leak, leak_data, leak_error],
        )
        async with Kernel(str(tmp_path / "run.db")) as kernel:
            kernel.on_event(seen.append)
            process = await kernel.spawn(agent)
            events = [event async for event in process.stream(f"my key is {KEY}", events=True)]
            seen.extend([repr(events), repr(process.messages), repr(process.metrics)])
            await process.send([f"and {OTHER}"])

    run(main())
    assert len(seen) > 10
    shown = repr(seen) + caplog.text
    for key in (KEY, OTHER):
        assert key not in shown
    for file in tmp_path.iterdir():
        for key in (KEY, OTHER):
            assert key.encode() not in file.read_bytes(), file.name


@pytest.mark.parametrize("status", [400, 401, 429, 500])
def test_a_server_that_quotes_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    """Its error reaches the caller and the journal without it."""

    async def main() -> None:
        body = {"type": "error", "error": {"type": "x", "message": f"invalid x-api-key {KEY}"}}
        async with Server(Reply.json(body, status=status)) as server:
            monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
            async with Kernel(str(tmp_path / "run.db")) as kernel:
                process = await kernel.spawn(Agent("a", model=MODEL, retry=None))
                with pytest.raises(LyraError) as caught:
                    await process.send("hello")
                error = caught.value
                assert KEY not in error.render() + repr(error) + repr(error.fields) + repr(error.__context__)
            assert server.requests[0].headers["x-api-key"] == KEY

    run(main())
    for file in tmp_path.iterdir():
        assert KEY.encode() not in file.read_bytes(), file.name


def test_a_recording_has_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor has what the mock server was asked."""
    from lyra.testing import record

    path = tmp_path / "tape.jsonl"

    async def main() -> None:
        with record(path, SimProvider(script=lambda request: request.messages[-1].text)) as provider:
            answer = await lyra.run(Agent("a", model=provider, system=f"say {KEY}"), f"hello {OTHER}")
            assert OTHER not in answer

    asyncio.run(main())
    text = path.read_text()
    assert text
    assert KEY not in text
    assert OTHER not in text


@tool
def took(text: str) -> str:
    """Says how long what it was given is."""
    return f"took {len(text)}"


def test_a_key_in_a_models_answer_is_masked_everywhere(tmp_path: Path) -> None:
    """In its words, in pieces too, and in what it calls a tool with; other words stay whole."""
    seen: list[Any] = []

    def answer(request: Any) -> Any:
        if any(message.role == "tool" for message in request.messages):
            return f"It is {KEY}, or {OTHER} or {OTHER[:10]}; and so: {KEY[:12]}"
        return {"text": "I call.", "tool_calls": [{"name": "took", "arguments": {"text": f"curl -H {KEY}"}}]}

    async def main() -> None:
        agent = Agent("a", model=SimProvider(script=answer), tools=[took])
        async with Kernel(str(tmp_path / "run.db")) as kernel:
            kernel.on_event(seen.append)
            process = await kernel.spawn(agent)
            events = [event async for event in process.stream("go", events=True)]
            assert "".join(event.text for event in events if event.type == "text_delta") == (
                f"I call.It is ***, or *** or {OTHER[:10]}; and so: {KEY[:12]}"
            )
            (ended,) = (event for event in events if event.type == "tool_end")
            assert ended.is_error
            assert "took was not run: a key of a model provider is in its arguments" in ended.output
            seen.extend([repr(events), repr(process.messages)])

    run(main())
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"curl -H ***" in kept
    for key in (KEY, OTHER):
        assert key not in repr(seen)
        assert key.encode() not in kept


def test_a_key_in_any_pieces_is_not_shown() -> None:
    text = f"a {KEY} b sk-ant-planted c {KEY[:-1]}"
    for size in range(1, len(text)):
        keys = StreamKeyFilter(KnownKeys.prepare([KEY]))
        shown = [keys.feed(text[start : start + size]) for start in range(0, len(text), size)]
        assert "".join([*shown, keys.flush()]) == f"a *** b sk-ant-planted c {KEY[:-1]}"


def test_a_word_that_stands_for_a_key_blots_out_no_answer(monkeypatch):
    """With ANTHROPIC_API_KEY=test the word `test` in answers is not masked."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test")
    kernel = Kernel()
    runtime = runtime_of(kernel)
    monkeypatch.setattr(runtime.client, "key_holders", ("a provider with keys",))
    monkeypatch.setattr(runtime.client, "secrets", lambda: ("test", KEY))
    assert runtime.clean(f"the latest test, {KEY}") == f"the latest test, {MASK}"


@pytest.mark.parametrize("cut", [8, 12, 20, len(KEY) - 1])
def test_a_server_that_quotes_a_part_of_the_key(monkeypatch: pytest.MonkeyPatch, cut: int) -> None:
    """Or its base64, in a message or as a code: the part is masked, and what is around it is not."""

    async def main() -> None:
        quoted = f"{KEY[:cut]}… and {base64.b64encode(f'user:{KEY}'.encode()).decode()}"
        for body, status in (
            ({"error": {"type": "x", "message": f"invalid key {quoted} given"}}, 401),
            ({"error": {"type": f"bad_{KEY[:cut]}", "message": "no"}}, 400),
            ({"error": {"type": "x", "message": f"{'y' * 480} {KEY}"}}, 400),
        ):
            async with Server(Reply.json({"type": "error", **body}, status=status)) as server:
                monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
                async with Kernel() as kernel:
                    process = await kernel.spawn(Agent("a", model=MODEL, retry=None))
                    with pytest.raises(LyraError) as caught:
                        await process.send("hello")
            told = caught.value.render() + repr(caught.value.fields)
            assert KEY[:8] not in told
            assert base64.b64encode(KEY.encode()).decode()[4:20] not in told
            assert "***" in told

    run(main())


def test_the_error_of_a_provider_of_ones_own_is_masked_too(tmp_path: Path) -> None:
    """It quotes the key in an exception of its own, and the journal gets that."""

    def answer(_request: Any) -> Any:
        raise OSError(f"no route to https://api/?key={KEY} nor {KEY.encode().hex()}")

    async def main() -> str:
        async with Kernel(str(tmp_path / "run.db")) as kernel:
            process = await kernel.spawn(Agent("a", model=SimProvider(script=answer), retry=None))
            with pytest.raises(LyraError) as caught:
                await process.send("hello")
            error = caught.value
            assert "no route to https://api/?key=*** nor ***" in error.message
            return error.render() + repr(error.__cause__)

    assert KEY not in run(main())
    for file in tmp_path.iterdir():
        assert KEY.encode() not in file.read_bytes()
        assert KEY.encode().hex().encode() not in file.read_bytes()


def test_an_error_keeps_what_it_was_raised_with_except_for_keys() -> None:
    """A provider may raise an error of Lyra with more than its message; `repr` and a debugger show all of it."""
    raised = LyraError(f"refused {KEY}")
    raised.args = (raised.message, f"with {KEY}", 401)

    def answer(_request: Any) -> Any:
        raise raised

    with pytest.raises(LyraError) as caught:
        lyra.run(Agent("a", model=SimProvider(script=answer), retry=None), "hello")
    assert caught.value.args == (f"refused {MASK}", f"with {MASK}", 401)


def test_a_refused_call_is_refused_again_on_a_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the key is no longer known: the journal says that the call was not made."""
    store = str(tmp_path / "run.db")
    taken: list[str] = []

    @tool
    def take(text: str) -> str:
        """Take a text."""
        taken.append(text)
        return "took it"

    def answer(request: Any) -> Any:
        results = [result for message in request.messages for result in message.tool_results]
        return (
            str(results[0].output) if results else {"tool_calls": [{"name": "take", "arguments": {"text": f"a {KEY}"}}]}
        )

    agent = Agent("a", model=SimProvider(script=answer), tools=[take])

    async def first() -> tuple[str, str]:
        async with Kernel(store, programs=[agent]) as kernel:
            process = await kernel.spawn(agent)
            return process.pid, await process.send("go")

    async def again(pid: str) -> list[Any]:
        async with Kernel(store, programs=[agent]) as kernel:
            process = kernel.agent(pid)
            assert await process.send("and now?") == told
            return [message.to_data() for message in process.messages]

    pid, told = run(first())
    assert "take was not run" in told
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    messages = run(again(pid))
    assert messages[1]["tool_calls"][0]["masked"] is True
    assert messages[1]["tool_calls"][0]["arguments"] == {"text": f"a {MASK}"}
    assert taken == []
