"""A stream of messages answers its callers, and ends at anything that is no message."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from lyra.sage.project.diagnostics.after_edit import MessageStream, StreamEnded

pytestmark = pytest.mark.anyio


class Writer:
    """Takes what is sent."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def write(self, data: bytes) -> None:
        head, _, body = data.partition(b"\r\n\r\n")
        assert head == b"Content-Length: %d" % len(body)
        self.sent.append(json.loads(body))

    async def drain(self) -> None: ...


def framed(message: Any, head: str = "Content-Length: {}\r\n\r\n") -> bytes:
    body = json.dumps(message).encode()
    return head.format(len(body)).encode() + body


def stream() -> tuple[MessageStream, asyncio.StreamReader, Writer, list[tuple[str, Any]]]:
    reader, writer, told = asyncio.StreamReader(), Writer(), []
    notify = lambda method, params: told.append((method, params))  # noqa: E731
    return MessageStream(reader, writer, notify), reader, writer, told  # type: ignore[arg-type]


async def test_answers_reach_their_callers_in_any_order():
    messages, reader, writer, told = stream()
    both = asyncio.gather(messages.request("one", {}), messages.request("two", {}))
    await asyncio.sleep(0)
    reader.feed_data(framed({"id": 2, "result": "b"}) + framed({"method": "news", "params": [1]}))
    reader.feed_data(framed({"id": 9, "result": "of no call"}) + framed({"id": 1, "error": {"code": 1}}))
    reader.feed_eof()
    await messages.receive()
    assert list(await both) == [None, "b"]
    assert told == [("news", [1])]
    assert [message["method"] for message in writer.sent] == ["one", "two"]


async def test_requests_of_a_server_are_answered():
    messages, reader, writer, _ = stream()
    reader.feed_data(framed({"id": "a", "method": "workspace/configuration", "params": {"items": [1, 2]}}))
    reader.feed_data(framed({"id": "b", "method": "workspace/configuration", "params": [3]}))
    reader.feed_data(framed({"id": "c", "method": "client/registerCapability", "params": {}}))
    reader.feed_data(framed({"id": "d", "method": "do/something", "params": {}}))
    reader.feed_eof()
    await messages.receive()
    assert [message.get("result", "error") for message in writer.sent] == [[None, None], [], None, "error"]


@pytest.mark.parametrize(
    "data",
    [
        b"hello\r\n\r\n",
        b"Content-Length: x\r\n\r\n{}",
        b"Content-Length: -1\r\n\r\n",
        b"Content-Length: 99999999999\r\n\r\n",
        b"Content-Length: 2\r\n\r\n[]",
        b"Content-Length: 3\r\n\r\nabc",
        b"A: b\r\n" * 30,
        b"Content-Length: 40000\r\n\r\n" + b"[" * 40_000,
        b"x" * 70_000,
    ],
)
async def test_what_is_no_message_ends_the_stream(data):
    messages, reader, _, _ = stream()
    waiting = asyncio.ensure_future(messages.request("one", {}))
    await asyncio.sleep(0)
    reader.feed_data(data)
    reader.feed_eof()
    await messages.receive()
    with pytest.raises(StreamEnded, match="it "):
        await waiting
    with pytest.raises(StreamEnded):
        await messages.notify("two", {})


async def test_a_server_whose_pipe_is_closed_has_ended(monkeypatch):
    messages, _, writer, _ = stream()

    async def broken() -> None:
        raise BrokenPipeError

    monkeypatch.setattr(writer, "drain", broken)
    with pytest.raises(StreamEnded, match="it has ended"):
        await messages.notify("one", {})


async def test_the_end_is_told_to_every_caller():
    messages, reader, _, _ = stream()
    waiting = asyncio.ensure_future(messages.request("one", {}))
    await asyncio.sleep(0)
    reader.feed_eof()
    await messages.receive()
    with pytest.raises(StreamEnded, match="it has ended"):
        await waiting
