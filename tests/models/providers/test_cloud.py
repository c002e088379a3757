"""What the clients of Google, Amazon and Ollama promise alike over a real connection: time, size, the line, the key."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lyra.core.message import Message
from lyra.errors import ModelError
from lyra.models.client import LLMClient
from lyra.models.provider import LLMProvider, Request
from lyra.models.providers.bedrock import BedrockReader
from lyra.models.providers.gemini import GeminiReader
from lyra.models.providers.ollama import OllamaReader
from lyra.models.stream import TextDelta, ToolEnd
from lyra.models.wire import http
from lyra.models.wire.remote import Reader
from tests.cases import cases
from tests.limits import within
from tests.models.providers import test_bedrock, test_gemini, test_ollama
from tests.models.server import Reply, Server, run, sse
from tests.models.wires import read

KEY = "planted-key-0123456789abcdef"
ASKING = Request("m", (Message("user", "hello"),))


@dataclass(frozen=True)
class Wire:
    """`half` is an answer that has not ended yet, `whole` is "one two"."""

    provider: str
    half: bytes
    rest: bytes
    headers: Mapping[str, str]
    noise: bytes  # what is no answer however much of it there is
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def whole(self) -> bytes:
        return self.half + self.rest

    def reply(self, body: Any, **more: Any) -> Reply:
        return Reply(body, headers=self.headers, **more)

    def provider_at(self, url: str, **more: Any) -> LLMProvider:
        given = {"api_key": KEY, "base_url": url, **self.settings, **more}
        return LLMClient({self.provider: given}, env={}).provider(self.provider)


SSE = {"content-type": "text/event-stream"}
LINES = {"content-type": "application/x-ndjson"}
_HALF = sse(test_gemini.chunk({"text": "one "}))
_REST = sse(test_gemini.chunk({"text": "two"}, finish="STOP", usage={"promptTokenCount": 4, "candidatesTokenCount": 2}))
_PAD = b": " + b"x" * (1 << 20) + b"\n"
_IGNORED = test_bedrock.event("unknownEvent", {"x": "y" * (1 << 20)})
WIRES = {
    wire.provider: wire
    for wire in (
        Wire("gemini", _HALF, _REST, SSE, _PAD),
        Wire("vertex", _HALF, _REST, SSE, _PAD, {"project": "p1"}),
        Wire(
            "bedrock",
            test_bedrock.started() + test_bedrock.delta(0, text="one "),
            test_bedrock.text(0, "two") + test_bedrock.ended(),
            test_bedrock.STREAM,
            _IGNORED,
            {"region": "us-east-1"},
        ),
        Wire(
            "ollama",
            test_ollama.lines(test_ollama.line("one ")),
            test_ollama.lines(test_ollama.line("two"), test_ollama.last()),
            LINES,
            test_ollama.lines(test_ollama.line("", padding="y" * (1 << 20))),
        ),
    )
}


STREAMS: dict[str, tuple[Callable[[], Reader], bytes]] = {
    **{f"gemini {name}": (GeminiReader, data) for name, data in test_gemini.STREAMS.items()},
    **{f"bedrock {name}": (BedrockReader, data) for name, data in test_bedrock.STREAMS.items()},
    **{f"ollama {name}": (OllamaReader, data) for name, data in test_ollama.STREAMS.items()},
}


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> Wire:
    return WIRES[request.param]


async def ask(wire: Wire, reply: Reply, **settings: Any) -> Any:
    async with Server(reply) as server:
        provider = wire.provider_at(server.url, **settings)
        try:
            return await provider.complete(ASKING)
        finally:
            await provider.close()


def failure(wire: Wire, reply: Reply, **settings: Any) -> ModelError:
    """The error of a call, after a look at everything about it that could be shown to a person."""
    with pytest.raises(ModelError) as caught:
        run(ask(wire, reply, **settings))
    error = caught.value
    shown = [str(error), repr(error), error.render(), str(error.fields), *traceback.format_exception(error)]
    assert not [text for text in shown if KEY in text], "the key is shown"
    assert (error.provider, error.model) == (wire.provider, "m")
    return error


def test_an_answer_over_a_real_connection(wire: Wire) -> None:
    """Whole, byte by byte too."""
    whole = run(ask(wire, wire.reply(wire.whole)))
    assert (whole.text, whole.stop_reason) == ("one two", "end")
    assert whole.usage.output_tokens > 1
    assert run(ask(wire, wire.reply(wire.whole, split=1))) == whole


def test_a_stream_that_ends_early_is_truncated(wire: Wire) -> None:
    """Ended well, broken off, or never begun."""
    assert failure(wire, wire.reply(wire.half)).kind == "stream_truncated"
    assert failure(wire, wire.reply(wire.half, cut=True)).kind == "stream_truncated"
    assert failure(wire, wire.reply(b"")).kind == "stream_truncated"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "bad_request"),
        (401, "auth"),
        (403, "auth"),
        (404, "not_found"),
        (408, "timeout"),
        (413, "context_overflow"),
        (429, "rate_limit"),
        (500, "temporary"),
        (503, "overloaded"),
    ],
)
def test_every_status_has_its_kind(wire: Wire, status: int, kind: str) -> None:
    """Whatever the body says, or whether it says anything."""
    for reply in (
        Reply.json({"error": {"message": f"no: {KEY}"}}, status=status),
        Reply(b"<html>no</html>", status=status, headers={"content-type": "text/html"}),
        Reply(b"", status=status),
    ):
        error = failure(wire, reply)
        assert (error.kind, error.status) == (kind, status)
        assert error.hint or kind not in ("auth", "not_found")


def test_the_pause_that_a_server_asks_for(wire: Wire) -> None:
    """In a header, for all of them."""
    reply = Reply.json({"error": {"message": "slow down"}}, status=429, headers={"retry-after": "7"})
    assert failure(wire, reply).retry_after_s == 7.0


def test_an_answer_without_an_end_is_refused_early(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory stays bounded: reading stops at the limit."""
    monkeypatch.setattr(http, "ANSWER_BYTES_MAX", 8 << 20)
    sent = 0

    def endless() -> Any:
        nonlocal sent
        while sent < 32 << 20:
            sent += len(wire.noise)
            yield wire.noise

    error = failure(wire, wire.reply(endless()))
    assert error.kind == "bad_response"
    assert sent < 16 << 20  # with what the sockets hold


def test_time_outs(wire: Wire) -> None:
    """Until the first piece, between two pieces, and for the whole."""
    first = failure(wire, wire.reply(wire.whole, delay_s=5), timeouts={"first_s": 0.05})
    idle = failure(wire, wire.reply(wire.half, hang=True), timeouts={"idle_s": 0.05})
    total = failure(wire, wire.reply(wire.whole, split=8, pause_s=0.02), timeouts={"total_s": 0.1})
    assert {first.kind, idle.kind, total.kind} == {"timeout"}


@pytest.mark.timed
def test_cancelling_closes_the_connection_at_once(wire: Wire) -> None:
    """The server notices within a tenth of a second."""

    async def main() -> None:
        async with Server(wire.reply(wire.half, hang=True)) as server:
            provider = wire.provider_at(server.url)
            begun = asyncio.Event()

            async def consume() -> None:
                async for event in provider.stream(ASKING):
                    if isinstance(event, TextDelta):
                        begun.set()

            task = asyncio.create_task(consume())
            await begun.wait()
            start = time.perf_counter()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.wait_for(server.hung_up.wait(), 1)
            within(time.perf_counter() - start, 0.1)
            await provider.close()

    run(main())


def test_a_server_that_lingers_after_the_end_is_left(wire: Wire) -> None:
    """The answer is whole: the call does not wait for a connection that does not end."""

    async def main() -> None:
        async with Server(wire.reply(wire.whole, hang=True)) as server:
            provider: Any = wire.provider_at(server.url)
            provider.settle_s = min(provider.settle_s, 0.1)
            start = time.perf_counter()
            assert (await provider.complete(ASKING)).text == "one two"
            assert time.perf_counter() - start < 2
            await provider.close()

    run(main())


def test_connections_are_used_again(wire: Wire) -> None:
    """Three calls, one connection."""

    async def main() -> None:
        async with Server(wire.reply(wire.whole)) as server:
            provider = wire.provider_at(server.url)
            for _ in range(3):
                await provider.complete(ASKING)
            assert len(server._tasks) == 1
            await provider.close()

    run(main())


def test_headers_of_ones_own_are_sent_and_hidden(wire: Wire) -> None:
    """They may hold secrets."""

    async def main() -> None:
        async with Server(Reply.json({"error": {"message": "saw s3cr3t-header"}}, status=400)) as server:
            provider = wire.provider_at(server.url, headers={"X-Team": "s3cr3t-header"})
            with pytest.raises(ModelError) as caught:
                await provider.complete(ASKING)
            await provider.close()
        assert server.requests[0].headers["x-team"] == "s3cr3t-header"
        assert caught.value.message == "saw ***"

    run(main())


# ---------------------------------------------------------------- whatever comes
@settings(max_examples=cases(150), deadline=None)
@given(
    name=st.sampled_from(sorted(STREAMS)),
    damage=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 3), st.binary(max_size=6)), max_size=4),
    cuts=st.lists(st.integers(0, 10_000), max_size=4),
)
def test_whatever_comes_is_events_or_a_model_error(
    name: str, damage: list[tuple[int, int, bytes]], cuts: list[int]
) -> None:
    """Bytes changed, left out or put in anywhere: never another exception, never a call that is not whole."""
    make, data = STREAMS[name]
    for place, removed, put in damage:
        offset = place % (len(data) + 1)
        data = data[:offset] + put + data[offset + removed :]
    events: list[Any] = []
    with suppress(ModelError):
        events = read(make(), data, cuts)
    for event in events:
        assert not isinstance(event, ToolEnd) or isinstance(event.call.arguments, dict)


@settings(max_examples=cases(100), deadline=None)
@given(name=st.sampled_from(sorted(STREAMS)), data=st.binary(max_size=300))
def test_noise_is_a_model_error(name: str, data: bytes) -> None:
    """It is no answer, whatever it is."""
    with pytest.raises(ModelError):
        read(STREAMS[name][0](), data)


@pytest.mark.parametrize("name", ["gemini said", "bedrock said", "ollama said"])
def test_endless_nesting_is_a_model_error(name: str) -> None:
    """Wherever it is."""
    deep = "[" * 100_000
    sent = {
        "gemini said": sse(f'{{"x": {deep}'),
        "bedrock said": test_bedrock.frame({":event-type": "metadata"}, f'{{"x": {deep}'.encode()),
        "ollama said": test_ollama.lines(f'{{"x": {deep}'),
    }
    with pytest.raises(ModelError) as caught:
        read(STREAMS[name][0](), sent[name])
    assert caught.value.kind == "malformed"


def test_nothing_heavy_is_imported_before_the_first_call() -> None:
    """Neither the HTTP library nor those of the clouds."""
    modules = ", ".join(f"lyra.models.providers.{name}" for name in ("gemini", "vertex", "bedrock", "ollama"))
    heavy = "{'httpx2', 'botocore', 'google', 'requests', 'genai_prices'}"
    code = f"import sys, {modules}; print(sorted({heavy} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert shown.stdout == "[]\n"
