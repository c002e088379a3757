"""Whatever bytes come, a reader gives an answer or a ModelError: no other exception, no hang, no half answer."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lyra.errors import ModelError
from lyra.models.stream import Finished, Started
from tests.cases import cases
from tests.models.server import Reply, sse
from tests.models.wire.test_remote import failure
from tests.models.wires import WIRES, fold, read

READERS = ("anthropic", "openai-chat", "openai-responses")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
WORDS = st.sampled_from(
    (
        *("type", "index", "delta", "message", "usage", "error", "choices", "finish_reason", "content_block", "item"),
        *("response", "output_index", "tool_calls", "function", "arguments", "id", "name", "text", "stop_reason"),
    )
)
KINDS = st.sampled_from(
    (
        *("message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta"),
        *("message_stop", "error", "tool_use", "text_delta", "input_json_delta", "response.created", "function_call"),
        *("response.output_text.delta", "response.output_item.added", "response.function_call_arguments.delta"),
        *("response.output_item.done", "response.completed", "response.incomplete", "response.failed"),
    )
)
EVENTS = st.recursive(
    JSON | KINDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner | KINDS, max_size=6),
    max_leaves=12,
)


def judged(name: str, data: bytes) -> None:
    try:
        events = read(WIRES[name].reader(), data)
    except ModelError:
        return
    assert isinstance(events[0], Started)
    assert isinstance(events[-1], Finished)
    assert sum(isinstance(event, Finished) for event in events) == 1


@settings(max_examples=cases(300), deadline=None)
@given(
    name=st.sampled_from(READERS),
    which=st.sampled_from(("text", "calls", "broken_call", "error")),
    edits=st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 12), st.binary(max_size=12)), min_size=1, max_size=4),
)
def test_damaged_streams(name: str, which: str, edits: list[tuple[int, int, bytes]]) -> None:
    data = getattr(WIRES[name], which)
    for place, removed, added in edits:
        offset = place % (len(data) + 1)
        data = data[:offset] + added + data[offset + removed :]
    judged(name, data)


@settings(max_examples=cases(300), deadline=None)
@given(name=st.sampled_from(READERS), events=st.lists(EVENTS, max_size=6))
def test_events_of_any_shape(name: str, events: list[object]) -> None:
    for start in (b"", WIRES[name].calls[:900].rpartition(b"\n\n")[0] + b"\n\n"):
        judged(name, start + sse(*events))


@settings(max_examples=cases(100), deadline=None)
@given(name=st.sampled_from(READERS), order=st.randoms(use_true_random=False))
def test_events_in_any_order(name: str, order: object) -> None:
    events = WIRES[name].calls.split(b"\n\n")[:-1]
    order.shuffle(events)  # type: ignore[attr-defined]  # hypothesis gives a Random
    judged(name, b"\n\n".join(events) + b"\n\n")


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("bomb", ["[" * 200_000, '{"a":' * 200_000, '{"delta":' * 200_000])
def test_nesting_without_end_is_an_error(name: str, bomb: str) -> None:
    with pytest.raises(ModelError):
        read(WIRES[name].reader(), sse(bomb))
    assert failure(WIRES[name], Reply(bomb.encode(), status=400)).kind == "bad_request"
    assert failure(WIRES[name], Reply(bomb.encode()[:4000])).kind == "bad_response"


@pytest.mark.parametrize("name", READERS)
def test_arguments_nested_without_end_are_broken(name: str) -> None:
    data = WIRES[name].broken_call.replace(b'{\\"city\\": ', b'{\\"a\\":' * 100_000)
    assert len(data) > 100_000
    with pytest.raises(ModelError) as caught:
        fold(read(WIRES[name].reader(), data))
    assert caught.value.tool == "get_weather"
