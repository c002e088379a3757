"""The official SDKs through the gateway: provider and SDK get the bytes that they get from each other directly."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, NamedTuple

import pytest

from tests.server.gateway.support import (
    ANTHROPIC_KEY,
    OPENAI_KEY,
    SSE,
    FakeProvider,
    Reply,
    ServedGateway,
    chat_answer,
    chat_stream,
    serving_gateway,
)
from tests.server.http.support import in_loop

anthropic: Any = None
openai: Any = None
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 600).decode()
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@pytest.fixture(scope="module", autouse=True)
def sdks() -> None:
    """Import the SDKs in the worker that runs these tests and in no other: that takes seconds."""
    global anthropic, openai
    anthropic, openai = pytest.importorskip("anthropic"), pytest.importorskip("openai")


# ---------------------------------------------------------------- what providers say
def events(*datas: dict[str, Any]) -> tuple[bytes, ...]:
    return tuple(f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode() for data in datas)


MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x", "stop_sequence": None}
TOOL_USE = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Bern"}}
USAGE = {"input_tokens": 20, "output_tokens": 7, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 0}
WHOLE_MESSAGE = json.dumps({**MESSAGE, "content": [TOOL_USE], "stop_reason": "tool_use", "usage": USAGE}).encode()
MESSAGE_EVENTS = events(
    {"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None, "usage": USAGE}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "ping"},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Grüße ☀"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {**TOOL_USE, "input": {}}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"city":"B'}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": 'ern"}'}},
    {"type": "content_block_stop", "index": 1},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": None}, "usage": USAGE},
    {"type": "message_stop"},
)
OUTPUT = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "hello", "annotations": [], "logprobs": []}],
}
RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "gpt-x",
    "status": "completed",
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "metadata": {},
    "output": [OUTPUT],
    "parallel_tool_calls": True,
    "temperature": 1.0,
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "usage": {
        "input_tokens": 20,
        "output_tokens": 7,
        "total_tokens": 27,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens_details": {"reasoning_tokens": 0},
    },
}
_BEGUN = {**RESPONSE, "status": "in_progress", "output": [], "usage": None}
_PLACE: dict[str, Any] = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
RESPONSE_EVENTS = events(
    {"type": "response.created", "sequence_number": 0, "response": _BEGUN},
    {
        "type": "response.output_item.added",
        "sequence_number": 1,
        "output_index": 0,
        "item": {**OUTPUT, "content": [], "status": "in_progress"},
    },
    {
        "type": "response.content_part.added",
        "sequence_number": 2,
        **_PLACE,
        "part": {"type": "output_text", "text": "", "annotations": [], "logprobs": []},
    },
    {"type": "response.output_text.delta", "sequence_number": 3, **_PLACE, "delta": "hello", "logprobs": []},
    {"type": "response.output_text.done", "sequence_number": 4, **_PLACE, "text": "hello", "logprobs": []},
    {"type": "response.output_item.done", "sequence_number": 5, "output_index": 0, "item": OUTPUT},
    {"type": "response.completed", "sequence_number": 6, "response": RESPONSE},
)
EMBEDDINGS = json.dumps(
    {
        "object": "list",
        "model": "text-embedding-3-small",
        "data": [{"object": "embedding", "index": 0, "embedding": base64.b64encode(b"\0\0\x80?" * 8).decode()}],
        "usage": {"prompt_tokens": 8, "total_tokens": 8},
    }
).encode()


# ---------------------------------------------------------------- what SDKs ask
def _dumped(answer: Any) -> Any:
    return answer.model_dump() if hasattr(answer, "model_dump") else [item.model_dump() for item in answer]


CHAT_TOOL = {"type": "function", "function": {"name": "weather", "description": "d", "parameters": SCHEMA}}
CHAT_IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}", "detail": "low"}}
CHAT: dict[str, Any] = {
    "messages": [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Grüße ☀ \u2028"}, CHAT_IMAGE]},
        {
            "role": "assistant",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    ],
    "tools": [CHAT_TOOL],
    "tool_choice": "auto",
    "temperature": 0.25,
    "max_completion_tokens": 100,
    "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}},
    "extra_body": {"a_field_of_tomorrow": {"x": [1, 2.5, None]}},
}
MESSAGES: dict[str, Any] = {
    "max_tokens": 100,
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                {"type": "text", "text": "Grüße ☀"},
            ],
        },
        {"role": "assistant", "content": [TOOL_USE]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"}]},
    ],
    "tools": [{"name": "weather", "description": "d", "input_schema": SCHEMA}],
    "extra_headers": {"anthropic-beta": "a-beta-2026-01-01"},
}
RESPONSES: dict[str, Any] = {
    "input": [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "hello"},
                {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "low"},
            ],
        }
    ],
    "tools": [{"type": "function", "name": "weather", "parameters": SCHEMA, "strict": True}],
    "reasoning": {"effort": "low"},
    "max_output_tokens": 100,
    "store": False,
}


def _stream_messages(client: Any, model: str) -> Any:
    with client.messages.stream(model=model, **MESSAGES) as stream:
        kinds = [event.type for event in stream]
        return [kinds, stream.get_final_message().model_dump()]


class SdkCase(NamedTuple):
    """One call of an SDK, and what the provider answers."""

    vendor: str
    model: str
    ask: Callable[[Any, str], Any]
    reply: Reply


CASES: dict[str, SdkCase] = {
    "chat": SdkCase(
        "openai",
        "gpt-4o-mini",
        lambda client, model: _dumped(client.chat.completions.create(model=model, **CHAT)),
        Reply((chat_answer(),), headers={"x-request-id": "req_1"}),
    ),
    "chat, streamed": SdkCase(
        "openai",
        "gpt-4o-mini",
        lambda client, model: _dumped(
            client.chat.completions.create(model=model, stream=True, stream_options={"include_usage": True}, **CHAT)
        ),
        Reply(chat_stream("one ", "two"), headers=SSE),
    ),
    "messages": SdkCase(
        "anthropic",
        "claude-sonnet-5",
        lambda client, model: _dumped(client.messages.create(model=model, **MESSAGES)),
        Reply((WHOLE_MESSAGE,), headers={"request-id": "req_1"}),
    ),
    "messages, streamed": SdkCase("anthropic", "claude-sonnet-5", _stream_messages, Reply(MESSAGE_EVENTS, headers=SSE)),
    "messages, beta": SdkCase(
        "anthropic",
        "claude-sonnet-5",
        lambda client, model: _dumped(
            client.beta.messages.create(
                model=model, max_tokens=50, messages=[{"role": "user", "content": "hi"}], betas=["a-beta-2026-01-01"]
            )
        ),
        Reply((WHOLE_MESSAGE,)),
    ),
    "responses": SdkCase(
        "openai",
        "gpt-5-mini",
        lambda client, model: _dumped(client.responses.create(model=model, **RESPONSES)),
        Reply((json.dumps(RESPONSE).encode(),)),
    ),
    "responses, streamed": SdkCase(
        "openai",
        "gpt-5-mini",
        lambda client, model: _dumped(client.responses.create(model=model, stream=True, **RESPONSES)),
        Reply(RESPONSE_EVENTS, headers=SSE),
    ),
    "embeddings": SdkCase(
        "openai",
        "text-embedding-3-small",
        lambda client, model: _dumped(client.embeddings.create(model=model, input=["hello", "there"], dimensions=8)),
        Reply((EMBEDDINGS,)),
    ),
}


def recording_client(library: Any, answers: list[bytes]) -> Any:
    """A client of one of the HTTP libraries of the SDKs that keeps the bytes of every answer."""

    class Kept(library.SyncByteStream):  # type: ignore[misc]
        def __init__(self, stream: Any) -> None:
            self.stream = stream

        def __iter__(self) -> Iterator[bytes]:
            for piece in self.stream:
                answers[-1] += piece
                yield piece

        def close(self) -> None:
            self.stream.close()

    class Recording(library.HTTPTransport):  # type: ignore[misc]
        def handle_request(self, request: Any) -> Any:
            response = super().handle_request(request)
            answers.append(b"")
            response.stream = Kept(response.stream)
            return response

    return library.Client(transport=Recording())


def sdk(vendor: str, url: str, key: str) -> tuple[Any, list[bytes]]:
    """A client of a vendor's SDK, and the bytes of the answers that it got."""
    answers: list[bytes] = []
    if vendor == "openai":
        own = recording_client(_library(openai), answers)
        return openai.OpenAI(api_key=key, base_url=f"{url}/v1", max_retries=0, http_client=own), answers
    own = recording_client(_library(anthropic), answers)
    return anthropic.Anthropic(api_key=key, base_url=url, max_retries=0, http_client=own), answers


def _library(vendor: Any) -> Any:
    """The HTTP library that an SDK is made with."""
    modules = [base.__module__ for base in vendor.DefaultHttpxClient.__mro__]
    return import_module(next(module for module in modules if module.startswith("httpx")).partition(".")[0])


async def run_case(case: SdkCase, url: str, key: str, model: str) -> tuple[Any, bytes]:
    """What the SDK gives, and the bytes that it got."""
    client, answers = sdk(case.vendor, url, key)
    with client:
        result = await asyncio.to_thread(case.ask, client, model)
    return result, answers[-1]


@pytest.mark.parametrize("name", CASES)
def test_an_sdk_sees_no_difference(name: str) -> None:
    """Directly and through the gateway: the same bytes arrive at the provider, and the same bytes come back."""
    case = CASES[name]

    async def main() -> None:
        async with serving_gateway(case.reply) as served:
            key = await served.key(budget="$5")
            own = OPENAI_KEY if case.vendor == "openai" else ANTHROPIC_KEY
            direct = await run_case(case, served.provider.url, own, case.model)
            through = await run_case(case, served.url, key, f"{case.vendor}/{case.model}")
            assert through == direct
            ours, theirs = served.provider.received[-1], served.provider.received[0]
            assert ours.body == theirs.body
            assert ours.path == theirs.path
            for header in ("anthropic-beta", "anthropic-version", "content-type"):
                assert ours.headers.get(header) == theirs.headers.get(header)
            assert own in ours.headers.get("x-api-key" if case.vendor == "anthropic" else "authorization", "")
            assert key not in str(ours.headers)
            await check_charged(served)

    in_loop(main())


async def check_charged(served: ServedGateway) -> None:
    view = await served.view()
    assert view["calls"] == 1
    assert view["spent_micro_usd"] > 0
    assert view["reserved_micro_usd"] == 0


def test_a_stream_without_the_wish_for_usage_has_none() -> None:
    """The provider is asked for the usage, for the budget; the SDK does not see the chunk that tells it."""

    async def main() -> None:
        async with serving_gateway(Reply(chat_stream("one ", "two"), headers=SSE)) as served:
            key = await served.key(budget="$5")
            client, answers = sdk("openai", served.url, key)

            def ask() -> list[Any]:
                messages = [{"role": "user", "content": "hi"}]
                return list(client.chat.completions.create(model="openai/gpt-4o-mini", stream=True, messages=messages))

            with client:
                chunks = await asyncio.to_thread(ask)
            assert all(chunk.choices for chunk in chunks)
            assert answers[-1].endswith(b"data: [DONE]\n\n")
            assert served.provider.received[0].data["stream_options"] == {"include_usage": True}
            await check_charged(served)

    in_loop(main())


ERROR = {"error": {"message": "Unknown field é", "type": "invalid_request_error", "param": "x", "code": "unknown"}}
ANTHROPIC_ERROR = {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}, "request_id": "r"}


def test_errors_of_a_provider_reach_the_sdk_as_they_are() -> None:
    """The SDK raises what it raises directly, with the provider's own body; nothing is charged."""

    async def failed(served: ServedGateway, vendor: str, reply: Reply) -> Any:
        served.provider.reply = reply
        key = await served.key(f"{vendor}-{reply.status}", budget="$5")
        client, _ = sdk(vendor, served.url, key)
        case = CASES["chat" if vendor == "openai" else "messages"]
        with client, pytest.raises((openai.APIStatusError, anthropic.APIStatusError)) as caught:
            await asyncio.to_thread(case.ask, client, f"{vendor}/{case.model}")
        assert (await served.view(f"{vendor}-{reply.status}"))["spent_micro_usd"] == 0
        return caught.value

    async def main() -> None:
        async with serving_gateway() as served:
            error = await failed(served, "openai", Reply((json.dumps(ERROR).encode(),), status=400))
            assert isinstance(error, openai.BadRequestError)
            assert error.response.content == json.dumps(ERROR).encode()
            headers = {"retry-after": "30"}
            error = await failed(served, "anthropic", Reply((json.dumps(ANTHROPIC_ERROR).encode(),), 429, headers))
            assert isinstance(error, anthropic.RateLimitError)
            assert error.response.headers["retry-after"] == "30"
            body = json.dumps({"error": {"message": f"wrong key {OPENAI_KEY}", "code": "invalid_api_key"}}).encode()
            error = await failed(served, "openai", Reply((body,), status=401))
            assert isinstance(error, openai.InternalServerError)  # 502: it is the server's key, not the client's
            assert OPENAI_KEY not in error.response.text

    in_loop(main())


def test_refusals_of_the_gateway_are_errors_of_the_sdk() -> None:
    """401, 402, 403, 404 and 429 come in the shape of the vendor whose SDK asks."""

    async def main() -> None:
        async with serving_gateway() as served:
            poor = await served.key("poor", budget="$0.000001")
            slow = await served.key("slow", requests_per_minute=3, models=["openai/*"])

            async def status(vendor: str, key: str, model: str) -> Any:
                case = CASES["chat" if vendor == "openai" else "messages"]
                client, _ = sdk(vendor, served.url, key)
                with client:
                    try:
                        await asyncio.to_thread(case.ask, client, model)
                    except (openai.APIStatusError, anthropic.APIStatusError) as error:
                        return error
                return None

            assert isinstance(await status("openai", "sk-wrong", "openai/gpt-4o-mini"), openai.AuthenticationError)
            assert isinstance(
                await status("anthropic", "sk-wrong", "anthropic/claude-sonnet-5"), anthropic.AuthenticationError
            )
            error = await status("anthropic", poor, "anthropic/claude-sonnet-5")
            assert (error.status_code, error.body["error"]["type"]) == (402, "billing_error")
            error = await status("openai", poor, "openai/gpt-4o-mini")
            assert (error.status_code, error.type) == (402, "insufficient_quota")
            error = await status("anthropic", slow, "anthropic/claude-sonnet-5")
            assert isinstance(error, anthropic.PermissionDeniedError)
            assert isinstance(await status("openai", slow, "openai/"), openai.NotFoundError)
            assert await status("openai", slow, "openai/gpt-4o-mini") is None
            error = await status("openai", slow, "openai/gpt-4o-mini")
            assert isinstance(error, openai.RateLimitError)
            assert 0 < int(error.response.headers["retry-after"]) <= 60

    in_loop(main())


def test_a_fake_provider_answers_directly() -> None:
    """What the comparison above rests on: the fake provider satisfies the SDKs without a gateway."""

    async def main() -> None:
        async with FakeProvider(CASES["chat"].reply) as provider:
            result, raw = await run_case(CASES["chat"], provider.url, OPENAI_KEY, "gpt-4o-mini")
            assert (result["choices"][0]["message"]["content"], raw) == ("hello", chat_answer())

    in_loop(main())
