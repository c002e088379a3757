"""A key of a provider that the provider quotes never reaches a client; every other byte of an answer does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lyra.core.secrets.known_keys import KnownKeys
from lyra.server.gateway.call import AnswerFilter
from tests.server.gateway.support import OPENAI_KEY, SSE, Reply, chat_answer, chat_stream, serving_gateway
from tests.server.http.support import in_loop

PATH = "/v1/chat/completions"
BODY: dict[str, Any] = {
    "model": "openai/gpt-4o-mini",
    "messages": [{"role": "user", "content": "hello"}],
    "max_completion_tokens": 50,
}


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


@pytest.mark.parametrize("size", [1, 2, 7, 29, 30, 1_000])
def test_a_key_is_masked_across_pieces(size: int) -> None:
    """However the bytes are cut, the key is masked, nothing else changes, and no more than a key is held back."""
    keys = KnownKeys.prepare([OPENAI_KEY])
    longest = max(map(len, keys.wholes))
    before, after = b"\xff\x00sk-provider-open\xc3", b"\x80 sk-provider \xe2\x82 sk-pro"
    data = before + OPENAI_KEY.encode() + after
    answer_filter, passed, fed = AnswerFilter(keys), b"", 0
    for piece in pieces(data, size):
        fed += len(piece)
        passed += answer_filter.feed(piece)
        assert fed - len(passed) <= longest + len(OPENAI_KEY)
    assert passed + answer_filter.flush() == before + b"***" + after


@pytest.mark.parametrize("size", [5, 64, 10_000])
@pytest.mark.parametrize("stream", [True, False])
def test_a_quoted_key_does_not_reach_the_client(stream: bool, size: int) -> None:
    """In an error inside a stream, in an answer's text: the key is masked, and the rest is as it came."""

    async def main() -> None:
        quoted = json.dumps({"error": {"type": "server_error", "message": f"not with {OPENAI_KEY}!"}}).encode()
        data = b"".join(chat_stream("sk-", OPENAI_KEY, "ä")) if stream else chat_answer(f"{OPENAI_KEY} sk-provider")
        data = b": " + quoted + b"\n\n" + data if stream else data
        async with serving_gateway(Reply(tuple(pieces(data, size)), headers=SSE if stream else {})) as served:
            key = await served.key()
            options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
            async with served.client(key) as client:
                answer = await client.post(PATH, json={**BODY, **options})
            assert answer.content == data.replace(OPENAI_KEY.encode(), b"***")

    in_loop(main())
