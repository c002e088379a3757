"""Providers that fail: tries, fallbacks, circuit breakers, and what the client is told."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from lyra import LLMProvider
from lyra.agents.session.shared import runtime_of
from lyra.models.provider import Request
from lyra.models.stream import Finished, StreamEvent, TextDelta
from tests.server.gateway.support import SSE, Received, Reply, chat_answer, chat_stream, serving_gateway
from tests.server.http.support import in_loop

PATH = "/v1/chat/completions"
BODY: dict[str, Any] = {
    "model": "openai/gpt-4o-mini",
    "messages": [{"role": "user", "content": "hello"}],
    "max_completion_tokens": 50,
}
BUSY = json.dumps({"error": {"message": "busy", "type": "server_error", "code": None}}).encode()


def test_a_provider_that_fails_once_is_tried_again() -> None:
    """The client sees the answer of the second try, and pays for one."""

    async def main() -> None:
        def reply(_: Received) -> Reply:
            return Reply((BUSY,), status=503) if len(served.provider.received) == 1 else Reply((chat_answer(),))

        async with serving_gateway(reply) as served:
            key = await served.key(budget="$1")
            async with served.client(key) as client:
                answer = await client.post(PATH, json=BODY)
            assert (answer.status_code, len(served.provider.received)) == (200, 2)
            assert (await served.view())["calls"] == 1

    in_loop(main())


def test_a_request_that_is_wrong_is_not_tried_again() -> None:
    """A 400 comes back at once, also where there are fallbacks."""

    async def main() -> None:
        async with serving_gateway(Reply((BUSY,), status=400)) as served:
            key = await served.key(fallbacks=["other/spare"])
            async with served.client(key) as client:
                answer = await client.post(PATH, json=BODY)
            assert (answer.status_code, answer.content) == (400, BUSY)
            assert len(served.provider.received) == 1

    in_loop(main())


def test_a_long_pause_is_told_to_the_client() -> None:
    """A provider that asks for a minute is not waited for."""

    async def main() -> None:
        async with serving_gateway(Reply((BUSY,), status=429, headers={"retry-after": "60"})) as served:
            key = await served.key()
            async with served.client(key) as client:
                answer = await client.post(PATH, json=BODY)
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "60")
            assert len(served.provider.received) == 1

    in_loop(main())


def test_a_fallback_answers_for_a_model_that_is_down() -> None:
    """The key's fallbacks are asked in order, also those of another format; only the answer is paid for."""

    async def main() -> None:
        def reply(received: Received) -> Reply:
            if received.data["model"] == "gpt-4o-mini":
                return Reply((BUSY,), status=500)
            if received.data["model"] == "claude-sonnet-5":
                return Reply((b'{"type":"error","error":{"type":"overloaded_error","message":"m"}}',), status=529)
            return Reply(chat_stream("spare"), headers=SSE)

        async with serving_gateway(reply) as served:
            names = ["anthropic/claude-sonnet-5", "openai/gpt-4.1-mini"]
            key = await served.key(models=["openai/gpt-4o-mini"], fallbacks=names, budget="$1")
            async with served.client(key) as client:
                answer = await client.post(PATH, json={**BODY, "stream": True})
            assert "spare" in answer.text
            assert [received.data["model"] for received in served.provider.received] == [
                *["gpt-4o-mini"] * 2,
                *["claude-sonnet-5"] * 2,
                "gpt-4.1-mini",
            ]
            assert (await served.view())["calls"] == 1

    in_loop(main())


def test_a_fallback_that_cannot_take_the_request_is_passed_over() -> None:
    """The client is told what its model's provider said."""

    async def main() -> None:
        async with serving_gateway(Reply((BUSY,), status=503)) as served:
            key = await served.key(fallbacks=["anthropic/claude-sonnet-5"])
            async with served.client(key) as client:
                answer = await client.post(PATH, json={**BODY, "logit_bias": {"1": 1}})
            assert (answer.status_code, answer.content) == (503, BUSY)

    in_loop(main())


def test_an_open_breaker_spares_the_provider() -> None:
    """After ten failures in a row a model is not asked for a while; another model is."""

    async def main() -> None:
        def reply(received: Received) -> Reply:
            is_down = received.data["model"] == "gpt-4o-mini"
            return Reply((BUSY,), status=500) if is_down else Reply((chat_answer(),))

        async with serving_gateway(reply) as served:
            key = await served.key()
            async with served.client(key) as client:
                statuses = [(await client.post(PATH, json=BODY)).status_code for _ in range(7)]
                other = await client.post(PATH, json={**BODY, "model": "openai/gpt-4.1-mini"})
            assert (statuses, other.status_code) == ([500] * 5 + [503] * 2, 200)
            assert len(served.provider.received) == 11

    in_loop(main())


def test_a_stream_that_breaks_ends_with_an_errorsse_bytes() -> None:
    """The client gets what came, and an error in the vendor's form; what came is charged, and no other is asked."""

    async def main() -> None:
        async with serving_gateway(Reply(chat_stream("some ", "words")[:3], headers=SSE, cuts=True)) as served:
            key = await served.key(budget="$1", fallbacks=["openai/gpt-4.1-mini"])
            async with served.client(key) as client:
                answer = await client.post(PATH, json={**BODY, "stream": True})
            assert "some " in answer.text
            assert "[DONE]" not in answer.text
            assert '"error"' in answer.text.splitlines()[-2]
            assert len(served.provider.received) == 1
            view = await served.view()
            assert view["spent_micro_usd"] > 0
            assert view["reserved_micro_usd"] == 0

    in_loop(main())


def test_a_connection_that_breaks_after_the_end_takes_no_answer_back() -> None:
    """The client gets the stream to its last event, and pays what the provider told."""

    async def main() -> None:
        pieces = chat_stream("some ", "words")
        async with serving_gateway(Reply(pieces, headers=SSE, cuts=True)) as served:
            key = await served.key(budget="$1")
            body = {**BODY, "stream": True, "stream_options": {"include_usage": True}}
            async with served.client(key) as client:
                answer = await client.post(PATH, json=body)
            assert answer.content == b"".join(pieces)
            assert (await served.view())["spent_micro_usd"] == 5

    in_loop(main())


def sse_bytes(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


BROKEN_MESSAGE = (
    sse_bytes("message_start", message={"id": "m", "model": "c", "usage": {"input_tokens": 5, "output_tokens": 1}}),
    sse_bytes("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    sse_bytes("content_block_delta", index=0, delta={"type": "text_delta", "text": "some words"}),
    sse_bytes("error", error={"type": "overloaded_error", "message": "Overloaded"}),
)
MESSAGE: dict[str, Any] = {
    "model": "anthropic/claude-sonnet-4-5",
    "messages": [{"role": "user", "content": "hello"}],
    "max_tokens": 1_000,
    "stream": True,
}


@pytest.mark.parametrize("pieces", [BROKEN_MESSAGE, (b"".join(BROKEN_MESSAGE),)])
def test_an_error_inside_a_stream_is_a_failed_call(pieces: tuple[bytes, ...]) -> None:
    """The client gets the provider's own event, once. The call is charged its reservation, since the usage that came
    before the error is not that of the whole answer, and the answer is not kept in the key's cache."""

    async def main() -> None:
        async with serving_gateway(Reply(pieces, headers=SSE)) as served:
            key = await served.key(budget="$1", cache_s=60)
            async with served.client(key) as client:
                answer = await client.post("/v1/messages", json=MESSAGE)
                assert answer.content == b"".join(pieces)
                assert (await served.view())["spent_micro_usd"] > 15_000  # 1000 tokens out
                again = await client.post("/v1/messages", json=MESSAGE)
                assert again.headers["x-lyra-cache"] == "miss"
            metrics = (await served.operator.get("/metrics")).text
            assert 'llm_requests_total{model="anthropic/claude-sonnet-4-5",status="overloaded"} 2.0' in metrics

    in_loop(main())


def test_an_answer_with_an_event_that_cannot_be_read_passes_and_is_charged_its_reservation() -> None:
    """What the provider counted after that event is not known: the count before it is not that of the whole answer."""

    async def main() -> None:
        pieces = (
            *BROKEN_MESSAGE[:3],
            sse_bytes("content_block_delta", index=7, delta={"type": "text_delta", "text": "of no block"}),
            sse_bytes("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 900}),
            sse_bytes("message_stop"),
        )
        async with serving_gateway(Reply(pieces, headers=SSE)) as served:
            key = await served.key(budget="$1")
            async with served.client(key) as client:
                answer = await client.post("/v1/messages", json=MESSAGE)
            assert answer.content == b"".join(pieces)
            assert (await served.view())["spent_micro_usd"] > 15_000

    in_loop(main())


TOOL_PIECE = {"index": 0, "id": "t", "type": "function", "function": {"name": "f", "arguments": '{"a":'}}
BROKEN_TOOL_CALL = (
    b"data: " + json.dumps({"choices": [{"index": 0, "delta": {"tool_calls": [TOOL_PIECE]}}]}).encode() + b"\n\n",
    b'data: {"error": {"code": "server_overloaded", "message": "busy"}}\n\n',
)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("budget", [None, "$1"])
def test_a_translated_answer_that_has_begun_is_not_begun_again(stream: bool, budget: str | None) -> None:
    """A tool call without text or usage before it is a part of an answer, too: the client never gets two beginnings."""

    async def main() -> None:
        async with serving_gateway(Reply(BROKEN_TOOL_CALL, headers=SSE)) as served:
            key = await served.key(budget=budget)
            body = {**MESSAGE, "model": "openai/gpt-4o-mini", "stream": stream}
            async with served.client(key) as client:
                answer = await client.post("/v1/messages", json=body)
            assert "overloaded_error" in answer.text
            assert answer.text.count("message_start") == 2 * stream  # the name of the event and its type
            assert len(served.provider.received) == 1
            assert (await served.view())["calls"] == 1

    in_loop(main())


def test_a_fallback_that_the_server_has_no_settings_for_is_passed_over() -> None:
    """A provider that the operator removed does not take the models with it that name it as their fallback."""

    async def main() -> None:
        async with serving_gateway() as served:
            key = await served.key(fallbacks=["removed/model", "gemini/gemini-2.5-pro"])
            async with served.client(key) as client:
                assert (await client.post(PATH, json=BODY)).status_code == 200

    in_loop(main())


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"error": {"message": "\xff"}}', b"", b"<html>", b"[null]"])
def test_a_refusal_that_cannot_be_read_is_a_refusal(body: bytes) -> None:
    """It passes with its status, also to a client of another format, which is told the status in its own."""

    async def main() -> None:
        async with serving_gateway(Reply((body,) if body else (), status=422)) as served:
            key = await served.key(budget="$1")
            async with served.client(key) as client:
                answer = await client.post(PATH, json=BODY)
                translated = await client.post("/v1/messages", json={**MESSAGE, "model": BODY["model"]})
            assert (answer.status_code, answer.content) == (422, body)
            assert (translated.status_code, translated.json()["error"]["type"]) == (400, "invalid_request_error")
            assert (await served.view())["spent_micro_usd"] == 0

    in_loop(main())


def test_a_refusal_of_megabytes_is_not_passed_on() -> None:
    """The client is told the status; the rest of the body is not waited for."""

    async def main() -> None:
        async with serving_gateway(Reply((b"x" * 100_000,) * 40, status=400)) as served:
            key = await served.key()
            async with served.client(key) as client:
                answer = await client.post(PATH, json=BODY)
            assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
            assert len(answer.content) < 1_000

    in_loop(main())


def test_an_account_without_credit_is_not_told_as_the_clients_own() -> None:
    """A 402 of the provider is about the server's account: the client's budget is told with 402, so this is a 502."""

    async def main() -> None:
        async with serving_gateway(Reply((BUSY,), status=402)) as served:
            key = await served.key(budget="$1")
            async with served.client(key) as client:
                answer = await client.post(PATH, json=BODY)
            assert (answer.status_code, "key of this server" in answer.text) == (502, True)

    in_loop(main())


def test_a_provider_that_cannot_be_reached_is_a_502_without_its_address() -> None:
    """The client learns that the provider is not there, and nothing of the server's network."""

    async def main() -> None:
        async with serving_gateway() as served:
            await served.provider.__aexit__()
            key = await served.key(budget="$1")
            async with served.client(key) as client:
                answer = await client.post(PATH, json=BODY)
            assert answer.status_code == 502
            assert "127.0.0.1" not in answer.text
            assert (await served.view())["spent_micro_usd"] == 0

    in_loop(main())


HOSTILE = [
    *(b"", b"null", b"[]", b"{", b'"x"', b"\xff\xfe", b'{"model": 1}', b'{"model": ""}', b"{}", b"[" * 100_000),
    *(b'{"model": "openai/gpt-4o-mini", "messages": ' + b"[" * 100_000, b'{"model": "%s"}' % (b"x" * 1000)),
    *(b'{"model": "../../etc"}', b'{"model": "agent/"}', b'{"model": "agent/none"}', b'{"model": "nobody/x"}'),
]


def test_hostile_bodies_are_refused() -> None:
    """Whatever is sent, the answer is an error of the vendor's shape and never a 500."""

    async def main() -> None:
        async with serving_gateway() as served:
            key = await served.key(budget="$1")
            async with served.client(key) as client:
                for path in (PATH, "/v1/messages", "/v1/responses", "/v1/embeddings"):
                    for body in HOSTILE:
                        answer = await client.post(path, content=body)
                        assert answer.status_code in (400, 404), (path, body[:50], answer.text)
                        assert answer.json()["error"]["message"]
            assert served.provider.received == []

    in_loop(main())


def test_a_model_named_twice_is_the_one_that_was_checked() -> None:
    """A provider never reads another model than the one that the key was checked for."""

    async def main() -> None:
        async with serving_gateway() as served:
            key = await served.key(models=["openai/gpt-4o-mini"])
            async with served.client(key) as client:
                sent = (
                    b'{"model":"openai/gpt-5","messages":[{"role":"user","content":"x"}],"mod\\u0065l":"gpt-4o-mini"}'
                )
                assert (await client.post(PATH, content=sent)).status_code == 200
            assert served.provider.received[0].body.count(b"model") == 1
            assert served.provider.received[0].data["model"] == "gpt-4o-mini"

    in_loop(main())


class Own(LLMProvider):
    """A provider that a user wrote, which fails in words of its own."""

    name = "own"

    def __init__(self, *outcomes: Exception | str) -> None:
        self.outcomes = list(outcomes)

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        yield TextDelta(outcome)
        yield Finished()


class Refused(Exception):
    def __init__(self, status_code: int) -> None:
        super().__init__("no")
        self.status_code = status_code


@pytest.mark.parametrize("streams", [False, True])
def test_errors_of_a_provider_that_a_user_wrote_are_sorted(streams: bool) -> None:
    """One that may pass is tried again and falls back; a refused request has its status."""

    async def main() -> None:
        async with serving_gateway() as served:
            body = {**BODY, "model": "own/model", "stream": streams}
            key = await served.key()
            with_fallback = await served.key("second", fallbacks=["openai/gpt-4o-mini"])

            async def ask(key: str, *outcomes: Exception | str) -> httpx.Response:
                runtime_of(served.kernel).client.register("own", Own(*outcomes))
                async with served.client(key) as client:
                    return await client.post(PATH, json=body)

            assert "second try" in (await ask(key, Refused(529), "second try")).text
            assert "hello" in (await ask(with_fallback, RuntimeError("gone"), RuntimeError("gone"))).text
            assert (await ask(key, Refused(400), "not this")).status_code == 400
            assert (await ask(key, Refused(429), Refused(429))).status_code == 429

    in_loop(main())
