"""Models over the wire: what reading one piece of a stream costs, and how far it is from nothing to the first token.

The readers are fed from memory, an event at a time, as a provider sends them. The baseline is `json.loads` of the same
payloads and nothing around it. The first token is that of a fresh interpreter talking to a server on the loopback; the
server's own time is not in it.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.measure import Figure, Row, Size, Stopwatch, Timing, at_most, interleave
from lyra.models.anthropic import AnthropicReader
from lyra.models.openai_chat import ChatReader
from lyra.models.remote import Reader

_START = {
    "type": "message_start",
    "message": {"id": "m", "model": "x", "usage": {"input_tokens": 9, "output_tokens": 1}},
}
_BLOCK = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
_WORD = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": " word"}}
_END: list[dict[str, Any]] = [
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
    {"type": "message_stop"},
]


def _chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "x", "choices": [choice]}


def _anthropic(words: int) -> list[bytes]:
    events: list[dict[str, Any]] = [_START, _BLOCK, *[_WORD] * words, *_END]
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]


def _chat(words: int) -> list[bytes]:
    events = [_chunk({"role": "assistant"}), *[_chunk({"content": " word"})] * words, _chunk({}, "stop")]
    return [f"data: {json.dumps(event)}\n\n".encode() for event in events] + [b"data: [DONE]\n\n"]


def _read(make: Callable[[], Reader], pieces: list[bytes]) -> Timing:
    reader = make()
    with Stopwatch(len(pieces)) as watch:
        for piece in pieces:
            reader.feed(piece)
        reader.close()
    assert reader.done
    return watch.timing


def _bare(pieces: list[bytes]) -> Timing:
    texts = [piece.partition(b"data: ")[2] for piece in pieces if b"[DONE]" not in piece]
    with Stopwatch(len(texts)) as watch:
        for text in texts:
            json.loads(text)
    return watch.timing


# ---------------------------------------------------------------- the first token
_PROGRAM = """
import asyncio, sys
from lyra.models import LLMClient, Message, Request, TextDelta
async def main():
    client = LLMClient({"here": {"base_url": sys.argv[1]}}, env={})
    async for event in client.stream("here/x", Request("x", (Message("user", "hello"),))):
        if isinstance(event, TextDelta):
            break
asyncio.run(main())
"""


@contextmanager
def _server(body: bytes) -> Iterator[str]:
    """A server in a thread of its own: it says `body` to whoever asks."""
    ready = threading.Event()
    port: list[int] = []
    loop = asyncio.new_event_loop()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port.append(server.sockets[0].getsockname()[1])
        ready.set()

    starting = loop.create_task(serve())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    ready.wait()
    try:
        yield f"http://127.0.0.1:{port[0]}"
    finally:
        assert starting.done()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def _first_token(url: str) -> tuple[float, float]:
    """CPU milliseconds and megabytes of a whole process that asks and gets its first token."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", _PROGRAM, url], check=True, env=os.environ)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu_s * 1e3, after.ru_maxrss / 1024


def run(size: Size) -> list[Row]:
    words = size.of(50_000, 50)
    anthropic, chat = _anthropic(words), _chat(words)
    best = interleave(
        {
            "anthropic": lambda: _read(AnthropicReader, anthropic),
            "chat": lambda: _read(ChatReader, chat),
            "anthropic bare": lambda: _bare(anthropic),
            "chat bare": lambda: _bare(chat),
        },
        size.repeats,
    )
    with _server(b"".join(_chat(20))) as url:
        starts = [_first_token(url) for _ in range(size.repeats)]
    per_chunk = at_most(10, "µs")  # 100 000 a second
    return [
        Row(
            "read a piece of an Anthropic stream", best["anthropic"], "json.loads", best["anthropic bare"], (per_chunk,)
        ),
        Row("read a piece of an OpenAI stream", best["chat"], "json.loads", best["chat bare"], (per_chunk,)),
        Row(
            "start of a process to its first token, CPU",
            Figure(min(cpu for cpu, _ in starts), "ms"),
            goals=(at_most(600, "ms"),),
        ),
    ]
