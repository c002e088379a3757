"""Readers: what came before an error is told before it, whatever way the bytes were cut."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lyra.errors import ModelError
from lyra.models.providers.anthropic import AnthropicReader
from lyra.models.providers.bedrock import BedrockReader
from lyra.models.providers.gemini import GeminiReader
from lyra.models.providers.ollama import OllamaReader
from lyra.models.providers.openai_chat import ChatReader
from lyra.models.providers.openai_responses import ResponsesReader
from lyra.models.stream import Started, TextDelta, ToolEnd, UsageSeen
from lyra.models.wire.remote import Reader
from tests.models.providers.test_bedrock import ended, event, started, thrown
from tests.models.server import sse
from tests.models.wires import (
    anthropic_events,
    call_item,
    chat_events,
    chunk,
    fold,
    message_item,
    read,
    read_until,
    responses_events,
    text_block,
    tool_block,
)


def lines(*objects: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in objects)


def text_line(text: str) -> bytes:
    return event("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": text}})


GEMINI = {"candidates": [{"content": {"parts": [{"text": "Hello"}]}}], "usageMetadata": {"promptTokenCount": 3}}

# An answer that says Hello and then breaks: the reader, the bytes, the kind of the error, whether tokens were told.
BROKEN: dict[str, tuple[Callable[[], Reader], bytes, str, bool]] = {
    "anthropic": (
        AnthropicReader,
        sse(
            *anthropic_events(text_block("Hello"))[:-2],
            {"type": "error", "error": {"type": "overloaded_error", "message": "no room"}},
        ),
        "overloaded",
        True,
    ),
    "chat": (
        ChatReader,
        sse(
            chunk({"content": "Hello"}),
            {"choices": [], "usage": {"prompt_tokens": 1000, "completion_tokens": 500}},
            {"error": {"message": "boom", "code": "server_error"}},
        ),
        "temporary",
        True,
    ),
    "responses": (
        ResponsesReader,
        sse(
            *responses_events(message_item("Hello"))[:-1],
            {
                "type": "response.failed",
                "response": {"usage": {"input_tokens": 3}, "error": {"code": "server_error", "message": "boom"}},
            },
        ),
        "temporary",
        True,
    ),
    "gemini": (GeminiReader, sse(GEMINI, {"error": {"code": 503, "message": "no room"}}), "overloaded", True),
    "ollama": (OllamaReader, lines({"message": {"content": "Hello"}}, {"error": "boom"}), "temporary", False),
    "bedrock": (
        BedrockReader,
        started() + text_line("Hello") + thrown("throttlingException", "slow"),
        "rate_limit",
        False,
    ),
    "bedrock, a broken frame": (BedrockReader, started() + text_line("Hello") + b"\x00" * 16, "malformed", False),
}


@pytest.mark.parametrize("name", BROKEN)
@settings(max_examples=25, deadline=None)
@given(cuts=st.lists(st.integers(0, 5_000), max_size=6))
def test_what_came_before_an_error_is_told_before_it(name: str, cuts: list[int]) -> None:
    """Text and tokens, in one packet with the error as in many."""
    reader, data, kind, counted = BROKEN[name]
    events, error = read_until(reader(), data, cuts)
    assert isinstance(events[0], Started)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Hello"
    assert any(isinstance(event, UsageSeen) for event in events) == counted
    assert error.kind == kind


def test_a_reader_that_found_an_error_reads_no_more() -> None:
    reader, data, _, _ = BROKEN["chat"]
    reader_ = reader()
    assert reader_.feed(data)
    for more in (lambda: reader_.feed(sse(chunk({"content": "x"}))), reader_.close):
        with pytest.raises(ModelError, match="boom"):
            more()


def test_tokens_are_counted_where_a_call_is_broken() -> None:
    """They were paid for."""
    for reader, data, tokens in (
        (AnthropicReader(), sse(*anthropic_events(tool_block("t", "now", '{"a": '), stop="tool_use")), 25),
        (ResponsesReader(), sse(*responses_events(call_item("c", "now", '{"a": '))[:-2], RESPONSE_DONE), 9),
    ):
        events = read(reader, data)
        assert [event.call.problem[:13] for event in events if isinstance(event, ToolEnd)] == ["its arguments"]
        seen = [event for event in events if isinstance(event, UsageSeen)]
        assert seen
        assert seen[-1].usage.output_tokens == tokens


RESPONSE_DONE = {"type": "response.completed", "response": {"usage": {"input_tokens": 2, "output_tokens": 9}}}


# ---------------------------------------------------------------- reasons to stop
def stopped(name: str, reason: str) -> tuple[Reader, bytes]:
    gemini = {"candidates": [{"content": {"parts": [{"text": "x"}]}, "finishReason": reason}]}
    return {
        "anthropic": (AnthropicReader(), sse(*anthropic_events(text_block("x"), stop=reason))),
        "chat": (ChatReader(), sse(*chat_events({"content": "x"}, finish=reason), done=True)),
        "gemini": (GeminiReader(), sse(gemini)),
        "ollama": (OllamaReader(), lines({"message": {"content": "x"}, "done": True, "done_reason": reason})),
        "bedrock": (BedrockReader(), started() + text_line("x") + ended(reason)),
    }[name]


@pytest.mark.parametrize("name", ["anthropic", "chat", "gemini", "ollama", "bedrock"])
@pytest.mark.parametrize(
    ("reason", "kind"),
    [("something_new", "malformed"), ("FINISH_REASON_UNSPECIFIED", "malformed"), ("error", "temporary")],
)
def test_an_unknown_reason_to_stop_is_an_error_that_names_it(name: str, reason: str, kind: str) -> None:
    """An answer with an unknown stop reason is never taken for a whole one; its text is still sent."""
    events, error = read_until(*stopped(name, reason))
    assert TextDelta("x") in events
    assert error.kind == kind
    assert reason in error.message


@pytest.mark.parametrize("reason", ["eos", "end_turn", "stop_sequence", "max_tokens", "tool_use"])
def test_words_of_compatible_servers_are_known(reason: str) -> None:
    assert fold(read(*stopped("chat", reason))).text == "x"


# ---------------------------------------------------------------- half a piece
@pytest.mark.parametrize(
    ("reader", "data"),
    [
        (GeminiReader, sse(GEMINI) + b'data: {"candidates": [{"con'),
        (OllamaReader, lines({"message": {"content": "x"}}) + b'{"message": {"con'),
        (ChatReader, sse(chunk({"content": "x"})) + b'data: {"choi'),
    ],
)
def test_half_a_piece_at_the_end_is_a_stream_that_broke_off(reader: Callable[[], Reader], data: bytes) -> None:
    _, error = read_until(reader(), data)
    assert error.kind == "stream_truncated"


@pytest.mark.parametrize("cuts", [(), (1,), (2,), (1, 2), (3,)])
def test_a_byte_order_mark_is_no_part_of_the_first_piece(cuts: tuple[int, ...]) -> None:
    mark = b"\xef\xbb\xbf"
    assert fold(read(ChatReader(), mark + sse(*chat_events({"content": "x"}), done=True), cuts)).text == "x"
    last = {"message": {"content": "x"}, "done": True}
    assert fold(read(OllamaReader(), mark + lines(last), cuts)).text == "x"
