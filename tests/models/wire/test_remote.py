"""What every wire client promises, whatever its format: whole answers or a named error, and never the key."""

from __future__ import annotations

import asyncio
import time
import traceback
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lyra.errors import ModelError
from lyra.models.stream import Finished, Started, TextDelta, ToolDelta, ToolEnd, ToolStart
from lyra.models.wire import http
from tests.cases import cases
from tests.limits import within
from tests.models.server import Reply, Server, run
from tests.models.wires import HELLO, KEY, WIRES, Wire, fold, read

HTML = Reply(b"<html><body>502 Bad Gateway</body></html>", headers={"content-type": "text/html"})


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> Wire:
    return WIRES[request.param]


async def ask(wire: Wire, reply: Reply, **settings: Any) -> Any:
    async with Server(reply) as server:
        provider = wire.provider_at(server.url, **settings)
        try:
            return await provider.complete(HELLO)
        finally:
            await provider.close()


def failure(wire: Wire, reply: Reply, **settings: Any) -> ModelError:
    """The error of a call, after a look at everything about it that could be shown to a person."""
    with pytest.raises(ModelError) as caught:
        run(ask(wire, reply, **settings))
    error = caught.value
    shown = [str(error), repr(error), error.render(), str(error.fields), *traceback.format_exception(error)]
    assert not [text for text in shown if KEY in text], "the key is shown"
    assert error.provider == wire.provider
    assert error.model == "m"
    return error


# ---------------------------------------------------------------- answers
def test_an_answer_over_a_real_connection(wire: Wire) -> None:
    """Text, tokens and the end arrive whole, with the key where the provider wants it and nowhere else."""

    async def main() -> None:
        async with Server(Reply(wire.text)) as server:
            provider = wire.provider_at(server.url)
            answer = await provider.complete(HELLO)
            await provider.close()
        assert answer.text == "Hällo wörld"
        assert answer.stop_reason == "end"
        assert answer.usage.output_tokens > 1
        assert answer.usage.total_input > 1
        asked = server.requests[0]
        assert asked.path == wire.path
        assert KEY in asked.headers.pop(wire.key_header)
        assert KEY not in f"{asked.path} {asked.headers} {asked.body!r}"
        assert asked.data["model"] == "m"
        assert asked.data["stream"] is True

    run(main())


def test_bytes_one_by_one_give_the_same(wire: Wire) -> None:
    """Pieces may end anywhere, also inside a character."""
    assert run(ask(wire, Reply(wire.calls, split=1))) == run(ask(wire, Reply(wire.calls)))


@settings(max_examples=cases(60), deadline=None)
@given(cuts=st.lists(st.integers(0, 10_000), max_size=40), name=st.sampled_from(sorted(WIRES)), crlf=st.booleans())
def test_any_cut_gives_the_same_events(cuts: list[int], name: str, *, crlf: bool) -> None:
    """The events do not depend on how the network cut the bytes, nor on how lines end."""
    for data in (WIRES[name].text, WIRES[name].calls):
        sent = data.replace(b"\n", b"\r\n") if crlf else data
        assert read(WIRES[name].reader(), sent, cuts) == read(WIRES[name].reader(), data)


def test_the_grammar_of_events(wire: Wire) -> None:
    """Started first, Finished last and once, and a ToolEnd with a whole call for each ToolStart."""
    events = read(wire.reader(), wire.calls)
    assert isinstance(events[0], Started)
    assert isinstance(events[-1], Finished)
    assert sum(isinstance(event, Finished) for event in events) == 1
    starts = [event for event in events if isinstance(event, ToolStart)]
    ends = {event.index: event.call for event in events if isinstance(event, ToolEnd)}
    assert [start.name for start in starts] == ["get_weather", "get_weather"]
    assert [ends[start.index].arguments for start in starts] == [{"city": "Paris", "days": 2}, {"city": "Röme"}]
    assert [ends[start.index].id for start in starts] == [start.id for start in starts]
    assert any(isinstance(event, ToolDelta) for event in events), "arguments are shown as they come"
    answer = fold(events)
    assert answer.stop_reason == "tool_calls"
    assert answer.text == "Let me look."


def test_pings_comments_and_unknown_events_are_passed_over(wire: Wire) -> None:
    noise = (
        b': keep-alive\n\nevent: ping\ndata: {"type": "ping"}\n\nevent: new\ndata: {"type": "new.kind", "delta": 7}\n\n'
    )
    if "chat" in wire.name or wire.name in ("azure-v1", "compatible"):
        noise = b': keep-alive\n\nretry: 10\nid: 7\n\ndata: {"object": "new.kind", "choices": []}\n\n'
    first, rest = wire.text.split(b"\n\n", 1)
    noisy = read(wire.reader(), first + b"\n\n" + noise + rest)
    assert noisy == read(wire.reader(), wire.text)


# ---------------------------------------------------------------- streams that go wrong
def test_no_beginning_of_an_answer_is_an_answer(wire: Wire) -> None:
    """Cut after any event but the last, a stream is an error, and what was said so far is not taken for an answer."""
    events = wire.calls.split(b"\n\n")
    whole = read(wire.reader(), wire.calls)
    # Chat completions are whole with their finish reason, even if the tokens and [DONE] do not follow.
    first_whole = len(events) - (3 if events[-2] == b"data: [DONE]" else 1)
    for kept in range(len(events)):
        data = b"\n\n".join(events[:kept]) + b"\n\n"
        if kept < first_whole:
            with pytest.raises(ModelError) as caught:
                read(wire.reader(), data)
            assert caught.value.kind == "stream_truncated"
        else:
            assert fold(read(wire.reader(), data)).message == fold(whole).message


def test_a_stream_that_just_ends_is_truncated(wire: Wire) -> None:
    assert failure(wire, Reply(wire.text[: len(wire.text) // 2])).kind == "stream_truncated"


def test_a_connection_that_breaks_is_truncated(wire: Wire) -> None:
    assert failure(wire, Reply(wire.text[: len(wire.text) // 2], cut=True)).kind == "stream_truncated"


def test_an_empty_answer_is_truncated(wire: Wire) -> None:
    assert failure(wire, Reply(b"")).kind == "stream_truncated"


def test_a_piece_that_is_no_json_is_an_error(wire: Wire) -> None:
    """Skipping it would lose a part of the answer without a word."""
    first, rest = wire.text.split(b"\n\n", 1)
    error = failure(wire, Reply(first + b'\n\ndata: {"choices": [{"delta"\n\n' + rest))
    assert error.kind == "malformed"


def test_a_broken_call_names_its_tool_and_is_never_given(wire: Wire) -> None:
    """A reader that cannot tell the model gets an error; one that can, a call with a problem and no arguments."""
    given: list[Any] = []
    reader = wire.reader()
    for byte in wire.broken_call:
        given += reader.feed(bytes([byte]))
    given += reader.close()
    calls = [event.call for event in given if isinstance(event, ToolEnd)]
    assert [(call.name, call.arguments, bool(call.problem)) for call in calls] == [("get_weather", {}, True)]
    error = failure(wire, Reply(wire.broken_call))
    assert (error.kind, error.tool) == ("malformed", "get_weather")


def test_an_error_inside_a_stream(wire: Wire) -> None:
    error = failure(wire, Reply(wire.error))
    assert error.kind == ("overloaded" if wire.name == "anthropic" else "temporary")
    assert "***" in error.message


def test_events_before_an_error_are_given(wire: Wire) -> None:
    """The consumer gets the events before the error, then the error."""

    async def main() -> None:
        seen: list[Any] = []
        async with Server(Reply(wire.text[: len(wire.text) * 2 // 3])) as server:
            provider = wire.provider_at(server.url)
            with pytest.raises(ModelError):
                async for event in provider.stream(HELLO):
                    seen += [event]
            await provider.close()
        assert any(isinstance(event, TextDelta) for event in seen)

    run(main())


# ---------------------------------------------------------------- answers that are none
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
        (502, "temporary"),
        (503, "overloaded"),
        (529, "overloaded"),
    ],
)
def test_every_status_has_its_kind(wire: Wire, status: int, kind: str) -> None:
    reply = Reply.json({"error": {"type": "some_error", "message": f"no: {KEY}"}}, status=status)
    error = failure(wire, reply)
    assert error.kind == kind
    assert error.status == status
    assert error.message == "no: ***"


def test_a_wrong_key_and_an_unknown_model_have_hints(wire: Wire) -> None:
    for status in (401, 404):
        error = failure(wire, Reply.json({"error": {"message": "no"}}, status=status))
        assert error.hint


@pytest.mark.parametrize(
    ("headers", "seconds"), [({"retry-after": "7"}, 7.0), ({"retry-after-ms": "250"}, 0.25), ({}, None)]
)
def test_the_pause_that_a_server_asks_for(wire: Wire, headers: dict[str, str], seconds: float | None) -> None:
    error = failure(wire, Reply.json({"error": {"message": "slow down"}}, status=429, headers=headers))
    assert error.fields.get("retry_after_s") == seconds


def test_a_conversation_that_is_too_long(wire: Wire) -> None:
    message = "This model's maximum context length is 8192 tokens. prompt is too long"
    error = failure(wire, Reply.json({"error": {"message": message}}, status=400))
    assert error.kind == "context_overflow"
    assert "compact" in str(error.hint)


def test_a_web_page_is_no_answer(wire: Wire) -> None:
    error = failure(wire, HTML)
    assert error.kind == "bad_response"
    assert "base URL" in str(error.hint)


def test_a_web_page_that_says_it_is_a_stream(wire: Wire) -> None:
    error = failure(wire, Reply(b"<html><body>hello</body></html>"))
    assert error.kind == "bad_response"
    assert "<html>" in error.message


def test_a_web_page_with_an_error_status(wire: Wire) -> None:
    error = failure(wire, Reply(b"<html>Bad gateway</html>", status=502, headers={"content-type": "text/html"}))
    assert error.kind == "temporary"
    assert "502" in error.message


def test_an_error_with_a_good_status(wire: Wire) -> None:
    """Some gateways answer 200 and put the error into the body."""
    body = {"error": {"code": "rate_limit_exceeded", "message": "slow down"}}
    assert failure(wire, Reply.json(body)).kind == "rate_limit"


def test_an_answer_without_an_end_is_refused_early(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory stays bounded: reading stops at the limit, far before the end."""
    assert http.ANSWER_BYTES_MAX <= 64 << 20
    monkeypatch.setattr(http, "ANSWER_BYTES_MAX", 8 << 20)
    sent = 0

    def endless() -> Any:
        nonlocal sent
        piece = b": " + b"x" * (1 << 20) + b"\n"
        while sent < 32 << 20:
            sent += len(piece)
            yield piece

    error = failure(wire, Reply(endless()))
    assert error.kind == "bad_response"
    assert "larger" in error.message
    assert sent < 16 << 20  # with what the sockets hold


def test_a_line_without_an_end_is_refused(wire: Wire) -> None:
    reply = Reply(b"x" * (1 << 20) for _ in range(40))
    assert failure(wire, reply).kind == "bad_response"


def test_a_refused_connection(wire: Wire) -> None:
    async def main() -> None:
        async with Server(Reply()) as server:
            url = server.url
        provider = wire.provider_at(url)
        with pytest.raises(ModelError) as caught:
            await provider.complete(HELLO)
        await provider.close()
        assert caught.value.kind == "connection"
        assert caught.value.hint == "is the address right and the server up?"

    run(main())


# ---------------------------------------------------------------- time
def test_no_answer_in_time(wire: Wire) -> None:
    error = failure(wire, Reply(wire.text, delay_s=5), timeouts={"first_s": 0.05})
    assert error.kind == "timeout"
    assert "0.05 s" in error.message


def test_no_next_piece_in_time(wire: Wire) -> None:
    reply = Reply(wire.text[: len(wire.text) // 2], hang=True)
    error = failure(wire, reply, timeouts={"first_s": 5, "idle_s": 0.05})
    assert error.kind == "timeout"
    assert "next piece" in error.message


def test_an_answer_that_takes_too_long(wire: Wire) -> None:
    """Every piece is in time and the whole is not."""
    reply = Reply(wire.text, split=8, pause_s=0.02)
    error = failure(wire, reply, timeouts={"idle_s": 5, "total_s": 0.1})
    assert error.kind == "timeout"
    assert "longer than 0.1 s" in error.message


def test_a_slow_consumer_is_not_cancelled(wire: Wire) -> None:
    """Time-outs are about the provider; who reads slowly gets everything that was sent."""

    async def main() -> None:
        texts: list[str] = []
        async with Server(Reply(wire.text)) as server:
            provider = wire.provider_at(server.url, timeouts={"idle_s": 0.05, "first_s": 0.5})
            async for event in provider.stream(HELLO):
                if isinstance(event, TextDelta):
                    texts.append(event.text)
                    await asyncio.sleep(0.12)
            await provider.close()
        assert "".join(texts) == "Hällo wörld"

    run(main())


@pytest.mark.timed
def test_cancelling_closes_the_connection_at_once(wire: Wire) -> None:
    async def main() -> None:
        async with Server(Reply(wire.text[: len(wire.text) // 2], hang=True)) as server:
            provider = wire.provider_at(server.url)
            begun = asyncio.Event()

            async def consume() -> None:
                async for _ in provider.stream(HELLO):
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


def test_leaving_the_stream_closes_the_connection(wire: Wire) -> None:
    async def main() -> None:
        async with Server(Reply(wire.text[: len(wire.text) // 2], hang=True)) as server:
            provider = wire.provider_at(server.url)
            events: Any = provider.stream(HELLO)
            async with aclosing(events):
                async for _ in events:
                    break
            await asyncio.wait_for(server.hung_up.wait(), 1)
            await provider.close()

    run(main())


def test_a_server_that_lingers_after_the_end_is_left(wire: Wire) -> None:
    """The answer is whole: the call does not wait for a connection that does not end."""

    async def main() -> None:
        async with Server(Reply(wire.text, hang=True)) as server:
            provider = wire.provider_at(server.url)
            start = time.perf_counter()
            assert (await provider.complete(HELLO)).text == "Hällo wörld"
            assert time.perf_counter() - start < 2
            await provider.close()

    run(main())


def test_a_connection_that_breaks_after_the_end_takes_no_answer_back(wire: Wire) -> None:
    """The last event had come: the answer is whole, also where the server does not end the body as HTTP wants it."""

    async def main() -> None:
        async with Server(Reply(wire.text, cut=True)) as server:
            provider = wire.provider_at(server.url)
            assert (await provider.complete(HELLO)).text == "Hällo wörld"
            await provider.close()

    run(main())


def test_connections_are_used_again(wire: Wire) -> None:
    async def main() -> None:
        async with Server(Reply(wire.text)) as server:
            provider = wire.provider_at(server.url)
            for _ in range(3):
                await provider.complete(HELLO)
            assert len(server._tasks) == 1
            await provider.close()

    run(main())


def test_headers_of_ones_own_are_sent_and_hidden(wire: Wire) -> None:
    async def main() -> None:
        async with Server(Reply.json({"error": {"message": "saw s3cr3t-header"}}, status=400)) as server:
            provider = wire.provider_at(server.url, headers={"X-Team": "s3cr3t-header"})
            with pytest.raises(ModelError) as caught:
                await provider.complete(HELLO)
            await provider.close()
        assert server.requests[0].headers["x-team"] == "s3cr3t-header"
        assert caught.value.message == "saw ***"

    run(main())


def test_redirects_are_not_followed(wire: Wire) -> None:
    """A key goes to the address it was meant for."""
    error = failure(wire, Reply(b"", status=307, headers={"location": "http://127.0.0.1:9/elsewhere"}))
    assert error.status == 307


def test_an_address_that_leads_elsewhere_is_told_and_not_followed(wire: Wire) -> None:
    error = failure(wire, Reply(b"", status=302, headers={"location": "http://127.0.0.1:1/"}))
    assert error.kind == "bad_response"
    assert "base_url" in str(error.hint)
