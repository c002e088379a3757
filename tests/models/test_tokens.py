"""Estimates of tokens: never too low where the server counts honestly, and cheap however long the conversation is."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lyra.core.message import Message
from lyra.core.tool import Tool, ToolCall, ToolResult
from lyra.models.provider import Request
from lyra.models.stream import TokenUsage
from lyra.models.tokens import IMAGE_TOKENS, Estimator, Measure, Size, text_tokens
from tests.limits import within

PROSE = "The quick brown fox jumps over the lazy dog and runs away into the woods. "
DENSE = "QmFzZTY0IGlzIGRlbnNlIGFuZCBoYXMgbm8gc3BhY2VzIGF0IGFsbA" * 4


def ask(*messages: Message, **settings) -> Request:
    return Request("m", messages, **settings)


def user(text) -> Message:
    return Message("user", text)


def test_the_tokens_of_a_text():
    """Text with spaces counts half a token a byte, dense text and letters beyond ASCII one."""
    assert text_tokens("") == 0
    assert text_tokens(PROSE) == len(PROSE) // 2 + 1
    assert text_tokens(DENSE) == len(DENSE) + 1
    assert text_tokens(f"{PROSE}é") == len(PROSE) // 2 + 2 + 1


def test_everything_that_is_sent_is_counted():
    """Messages, parts, calls, results, system, tools and schema; text with spaces apart from the rest."""
    measure = Measure()
    assert measure.size(ask(user("x" * 10))) == Size(0, 10, 0)
    assert measure.size(ask(user("é" * 10))) == Size(0, 20, 0)
    assert measure.size(ask(user(PROSE))) == Size(len(PROSE), 0, 0)
    assert measure.size(ask(user(DENSE))) == Size(0, len(DENSE), 0)
    picture = {"type": "image", "media_type": "image/png", "data": "A" * 100_000}
    assert measure.size(ask(user(({"type": "text", "text": "abc"}, picture)))) == Size(0, 3, 1)
    call = Message("assistant", "", (ToolCall("id1", "tool", {"a": 1}),))
    assert measure.size(ask(call)).bytes == len('id1tool{"a":1}')
    results = Message("tool", tool_results=(ToolResult("id1", "t", "abc"), ToolResult("id2", "t", [picture])))
    assert measure.size(ask(results)) == Size(0, 9, 1)
    bare = measure.size(ask(user("x")))
    for more in ({"system": "s" * 9}, {"tools": (Tool("t", "d"),)}, {"output_schema": {"type": "object"}}):
        assert measure.size(ask(user("x"), **more)).bytes > bare.bytes + 8


@given(st.lists(st.tuples(st.booleans(), st.text(max_size=80)), min_size=1, max_size=40), st.integers(0, 40))
def test_a_remembered_size_equals_a_fresh_one(steps, edit):
    """Conversations that grow, and conversations changed in the middle: memory never changes the count."""
    measure = Measure()
    messages: tuple[Message, ...] = ()
    for assistant, text in steps:
        messages = (*messages, Message("assistant" if assistant else "user", text))
        assert measure.messages(messages) == Measure().messages(messages)
    changed = (*messages[: edit % len(messages)], user("changed"), *messages[edit % len(messages) + 1 :])
    assert measure.messages(changed) == Measure().messages(changed)
    assert measure.messages(messages) == Measure().messages(messages)


SERVERS = {
    "four bytes a token": lambda size: -(-size.bytes // 4),
    "three bytes a token and marks": lambda size: -(-size.bytes // 3) + 5,
    "dense text by the byte": lambda size: -(-size.wordy // 4) + size.dense,
    "a prompt of its own": lambda size: -(-size.bytes // 4) + 12,
}
_TEXTS = st.one_of(
    st.text(max_size=200),
    st.integers(1, 40).map(lambda count: PROSE * count),
    st.integers(1, 10).map(lambda count: DENSE * count),
)


@pytest.mark.parametrize("server", SERVERS)
@given(st.lists(st.lists(_TEXTS, min_size=1, max_size=8), min_size=1, max_size=4))
def test_an_estimate_is_never_below_an_honest_count(server, conversations):
    """Whatever is said after whatever was learned, over several conversations with the same model."""
    estimator = Estimator()
    for texts in conversations:
        messages: tuple[Message, ...] = ()
        for text in texts:
            messages = (*messages, user(text))
            request = ask(*messages)
            real = SERVERS[server](Measure().size(request))
            assert estimator.estimate("m", request) >= real
            estimator.learn("m", request, TokenUsage(real, 1))
            messages = (*messages, Message("assistant", text[:50]))


def test_what_was_counted_is_not_guessed_again():
    """Of a conversation that goes on only the new part is estimated; another model knows nothing of it."""
    estimator = Estimator()
    first = user(PROSE * 1000)
    estimator.learn("m", ask(first), TokenUsage(18_500, 10))
    longer = ask(first, Message("assistant", "ok"), user("and now?"))
    assert 18_500 < estimator.estimate("m", longer) < 18_600
    assert estimator.estimate("other", longer) > 35_000
    assert estimator.estimate("m", Request("m", longer.messages, system="new")) > 20_000  # not the same any more


def test_a_rate_is_learned():
    """After an answer, new text is estimated near what the model makes of text, with a margin."""
    estimator = Estimator()
    before = estimator.estimate("m", ask(user(PROSE * 100)))
    for _ in range(3):
        request = ask(user(PROSE * 50))
        estimator.learn("m", request, TokenUsage(len(PROSE) * 50 // 4, 1))
    after = estimator.estimate("m", ask(user(PROSE * 100)))
    real = len(PROSE) * 100 // 4
    assert real < after < 1.5 * real < before


def test_a_server_that_counts_more_is_believed():
    """The first time it surprises, the second time the estimate is as high."""
    estimator = Estimator()
    request = ask(user("hello"))
    estimator.learn("m", request, TokenUsage(5_000, 1))
    again = ask(user("hello"))
    assert estimator.estimate("m", again) >= 5_000


def test_cached_tokens_count():
    """A provider that leaves cached tokens out of its number is understood."""
    estimator = Estimator()
    first = user("hello")
    estimator.learn("m", ask(first), TokenUsage(10, 1, 4_000, 500, cached_apart=True))
    assert estimator.estimate("m", ask(first, user("x"))) >= 4_510


def test_images_are_counted_high():
    """An image is as many tokens as the largest."""
    picture = {"type": "image", "url": "https://x/y.png"}
    estimator = Estimator()
    assert estimator.estimate("m", ask(user((picture, picture)))) >= 2 * IMAGE_TOKENS


@pytest.mark.timed
def test_a_thousand_turns_cost_no_more_than_ten():
    """The time for one more turn does not grow with the turns there were."""

    def turn_s(turns: int) -> float:
        estimator = Estimator()
        messages = tuple(user(PROSE * 20) for _ in range(turns))
        estimator.estimate("m", ask(*messages))
        began = time.process_time()
        for _ in range(50):
            messages = (*messages, user(PROSE))
            request = ask(*messages)
            estimator.estimate("m", request)
            estimator.learn("m", request, TokenUsage(100, 1))
        return (time.process_time() - began) / 50

    within(min(turn_s(1000) for _ in range(3)), 200e-6)
