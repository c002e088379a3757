"""Models over the wire: what reading one piece of a stream costs, and how far it is from nothing to the first token.

The readers are fed from memory, an event at a time, as a provider sends them. The baseline is `json.loads` of the same
payloads and nothing around it. The first token is that of a fresh interpreter, and of a running one, talking to a
server on the loopback; the server's own CPU time is not in the former.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import struct
import subprocess
import sys
import threading
import time
from binascii import crc32
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from benchmarks.measure import Figure, Row, Size, Stopwatch, Timing, at_most, interleave
from lyra.core.message import Message
from lyra.models.client import LLMClient
from lyra.models.provider import Request
from lyra.models.providers.anthropic import AnthropicReader
from lyra.models.providers.bedrock import BedrockReader
from lyra.models.providers.gemini import GeminiReader
from lyra.models.providers.ollama import OllamaReader
from lyra.models.providers.openai_chat import ChatReader
from lyra.models.stream import TextDelta
from lyra.models.wire.remote import Reader

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


def _gemini(words: int) -> list[bytes]:
    """Google counts tokens in every chunk."""
    counts = {"promptTokenCount": 9, "candidatesTokenCount": 9, "totalTokenCount": 18}
    part = {"content": {"parts": [{"text": " word"}], "role": "model"}, "index": 0}
    chunk = {"candidates": [part], "usageMetadata": counts, "modelVersion": "x", "responseId": "r"}
    last = {**chunk, "candidates": [{**part, "finishReason": "STOP"}]}
    return [f"data: {json.dumps(event)}\r\n\r\n".encode() for event in (*[chunk] * words, last)]


def _bedrock(words: int) -> list[bytes]:
    word = _frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": " word"}, "p": "abcdefgh"})
    counts = {"usage": {"inputTokens": 9, "outputTokens": 9, "totalTokens": 18}, "metrics": {"latencyMs": 1}}
    end = [_frame("messageStop", {"stopReason": "end_turn"}), _frame("metadata", counts)]
    return [_frame("messageStart", {"role": "assistant"}), *[word] * words, *end]


def _frame(name: str, data: Any) -> bytes:
    named = {":event-type": name, ":content-type": "application/json", ":message-type": "event"}
    head = b"".join(
        bytes([len(key)]) + key.encode() + b"\x07" + struct.pack("!H", len(value)) + value.encode()
        for key, value in named.items()
    )
    payload = json.dumps(data).encode()
    prelude = struct.pack("!II", len(head) + len(payload) + 16, len(head))
    message = prelude + struct.pack("!I", crc32(prelude)) + head + payload
    return message + struct.pack("!I", crc32(message))


def _ollama(words: int) -> list[bytes]:
    line = {
        "model": "x",
        "created_at": "2026-01-01T00:00:00Z",
        "message": {"role": "assistant", "content": " w"},
        "done": False,
    }
    last = {**line, "done": True, "done_reason": "stop", "prompt_eval_count": 9, "eval_count": 9}
    return [json.dumps(part).encode() + b"\n" for part in (*[line] * words, last)]


def _read(make: Callable[[], Reader], pieces: list[bytes]) -> Timing:
    reader = make()
    with Stopwatch(len(pieces)) as watch:
        for piece in pieces:
            reader.feed(piece)
        reader.close()
    assert reader.done
    return watch.timing


def _bare(pieces: list[bytes]) -> Timing:
    """Of server-sent events, lines and frames alike: the JSON is from the first brace to the last."""
    texts = [piece[piece.index(b'{"') : piece.rindex(b"}") + 1] for piece in pieces if b"[DONE]" not in piece]
    with Stopwatch(len(texts)) as watch:
        for text in texts:
            json.loads(text)
    return watch.timing


_WIRES: dict[str, tuple[Callable[[], Reader], Callable[[int], list[bytes]]]] = {
    "Anthropic": (AnthropicReader, _anthropic),
    "OpenAI": (ChatReader, _chat),
    "Gemini": (GeminiReader, _gemini),
    "Bedrock": (BedrockReader, _bedrock),
    "Ollama": (OllamaReader, _ollama),
}


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
    """A server in a thread of its own: it answers every request with `body`."""
    ready = threading.Event()
    port: list[int] = []
    loop = asyncio.new_event_loop()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        response_head = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {len(body)}\r\n\r\n"
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n")[0]))
                writer.write(response_head.encode() + body)
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


async def _delays(url: str, calls: int) -> list[float]:
    """Milliseconds from asking to the first token, call after call over one connection."""
    request = Request("x", (Message("user", "hello"),))
    delays_ms: list[float] = []
    async with LLMClient({"here": {"base_url": url}}, env={}) as client:
        for _ in range(calls):
            began, first = time.perf_counter(), 0.0
            async for event in client.stream("here/x", request):
                if not first and isinstance(event, TextDelta):
                    first = time.perf_counter()
            delays_ms.append((first - began) * 1e3)
    return sorted(delays_ms[calls // 10 :])  # the first ones import and connect


def run(size: Size) -> list[Row]:
    words = size.of(50_000, 50)
    streams = {name: (make, pieces(words)) for name, (make, pieces) in _WIRES.items()}
    best = interleave(
        {
            **{name: partial(_read, make, pieces) for name, (make, pieces) in streams.items()},
            **{f"{name} bare": partial(_bare, pieces) for name, (_, pieces) in streams.items()},
        },
        size.repeats,
    )
    with _server(b"".join(_chat(20))) as url:
        starts = [_first_token(url) for _ in range(size.repeats)]
        delays = asyncio.run(_delays(url, size.of(1_000, 20)))
    per_chunk = at_most(10, "µs")  # 100 000 a second
    return [
        *(
            Row(f"read a piece of an answer: {name}", best[name], "json.loads", best[f"{name} bare"], (per_chunk,))
            for name in _WIRES
        ),
        Row(
            "start of a process to its first token, CPU",
            Figure(min(cpu for cpu, _ in starts), "ms"),
            goals=(at_most(600, "ms"),),
        ),
        Row(
            "ask to first token in a running process, p95, wall",
            Figure(delays[len(delays) * 95 // 100], "ms"),
            goals=(at_most(20, "ms"),),
        ),
    ]
