"""Bytes into lines and server-sent events, whatever way the network cuts them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lyra.errors import ModelError
from lyra.models.wire.sse import LINE_BYTES_MAX, LineSplitter, ServerEvent, ServerEvents

FRAGMENTS = [
    *("data: x", "data:y", 'data: {"a": 1}', "data", "data:  two spaces", "event: e", "event:f", "event", ": comment"),
    *(
        "id: 7",
        "retry: 1",
        "ünïcode: ☃",
        "data: ☃😀",
        "\ufeffdata: bom",
        "\n",
        "\n",
        "\n",
        "\n\n",
        "\r\n",
        "\r",
        "\r\n\r\n",
    ),
]
TEXTS = st.lists(st.sampled_from(FRAGMENTS), max_size=30).map("".join)


def events(data: bytes, size: int) -> list[ServerEvent]:
    reader = ServerEvents()
    read = [event for start in range(0, len(data), size) for event in reader.feed(data[start : start + size])]
    return read + reader.close()


@given(text=TEXTS, size=st.integers(1, 9))
def test_events_do_not_depend_on_the_cut(text: str, size: int) -> None:
    """Whole events are read a quicker way than pieces of them, and mean the same."""
    data = text.encode()
    assert events(data, size) == events(data, len(data) or 1)
    assert events(data + b"\n\n", len(data) + 2) == events(data + b"\n\n", 1)


@given(text=TEXTS)
def test_events_do_not_depend_on_how_lines_end(text: str) -> None:
    data = text.replace("\r\n", "\n").replace("\r", "\n").encode()
    assert events(data.replace(b"\n", b"\r\n"), 5) == events(data, 5) == events(data.replace(b"\n", b"\r"), 3)


def test_what_an_event_is() -> None:
    sent = b": hi\n\nevent: a\ndata: 1\ndata: 2\nid: 9\n\nevent: no data\n\ndata:3\n\ndata: last"
    assert events(sent, 4) == [ServerEvent("a", "1\n2"), ServerEvent("", "3"), ServerEvent("", "last")]


@given(st.binary(max_size=200), st.integers(1, 7))
def test_any_bytes_are_lines(data: bytes, size: int) -> None:
    """No bytes are an exception; what is no UTF-8 is replaced."""
    lines, pieces = LineSplitter(), LineSplitter()
    whole = lines.feed(data) + lines.close()
    cut = [
        line for start in range(0, len(data), size) for line in pieces.feed(data[start : start + size])
    ] + pieces.close()
    assert whole == cut
    assert events(data, size) == events(data, len(data) or 1)


def test_a_line_without_an_end_is_refused() -> None:
    lines = LineSplitter()
    with pytest.raises(ModelError, match="larger than"):
        for _ in range(LINE_BYTES_MAX // (1 << 20) + 1):
            lines.feed(b"x" * (1 << 20))
