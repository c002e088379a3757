"""Parts of the benchmark of gateways: a fake provider as a process of its own, requests of several shapes, a client.

The provider has its answers made before, so that it is never what is measured; `user` in a request says which one it
gives. The client writes and reads plain sockets for the same reason.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

__all__ = ["SHAPES", "Provider", "ServerProcess", "Target", "one_by_one", "stream_pieces", "under_load", "whole_answer"]

_MODEL: Final = "gpt-4o-mini"
_HEAD: Final = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": _MODEL}
_PAUSE_S: Final = 0.05  # between the first piece of a paused stream and the rest
_BUFFER: Final = 4 * 2**20
_ASKED: Final = re.compile(rb'"user": ?"(\w+)"')
_TICKS: Final = os.sysconf("SC_CLK_TCK")


# ---------------------------------------------------------------- the provider
def _usage(words: int) -> dict[str, int]:
    return {"prompt_tokens": 10, "completion_tokens": words, "total_tokens": 10 + words}


def whole_answer(words: int) -> bytes:
    """An answer that is not streamed, with its head."""
    message = {"role": "assistant", "content": "word " * words}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = msgspec.json.encode({**_HEAD, "choices": [choice], "usage": _usage(words)})
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


def stream_pieces(words: int, word: str = "word ") -> list[bytes]:
    """The pieces of a stream, an event each, as chunks of HTTP: so providers send them."""
    head = {**_HEAD, "object": "chat.completion.chunk"}
    deltas: list[dict[str, Any]] = [{"content": word}] * words
    chunks = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    chunks.append({**head, "choices": [], "usage": _usage(words)})
    pieces = [b"data: %s\n\n" % msgspec.json.encode(chunk) for chunk in chunks] + [b"data: [DONE]\n\n"]
    start = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    framed = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces]
    return [start, *framed, b"0\r\n\r\n"]


async def _body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    """The body of a request: of a length that it tells, in chunks, or none."""
    if b"content-length:" in head:
        return await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0]))
    body = b""
    while b"transfer-encoding: chunked" in head:
        length = int(await reader.readuntil(b"\r\n"), 16)
        body += (await reader.readexactly(length + 2))[:-2]
        if not length:
            break
    return body


async def _provide() -> None:
    whole, stream, long = whole_answer(20), stream_pieces(20), stream_pieces(1_024, "x" * 64)
    answers = {b"whole": whole, b"stream": b"".join(stream), b"long": b"".join(long)}
    begin, rest = b"".join(stream[:2]), b"".join(stream[2:])

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                body = await _body(reader, head)
                asked = _ASKED.search(body)
                name = asked[1] if asked else b"whole"
                if name == b"paused":
                    writer.write(begin)
                    await asyncio.sleep(_PAUSE_S)
                    writer.write(rest)
                else:
                    writer.write(answers[name])
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=_BUFFER)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


class Provider:
    """The fake provider, while the block lasts."""

    def __enter__(self) -> Provider:
        command = [sys.executable, "-m", "benchmarks.gateway_load"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate("")


# ---------------------------------------------------------------- a server that is measured
class ServerProcess:
    """A server with everything that it starts."""

    def __init__(self, command: Sequence[str], *, folder: Path, env: Mapping[str, str], says: bool = False) -> None:
        out = subprocess.PIPE if says else subprocess.DEVNULL
        self._errors = (folder / "errors").open("ab")
        self._process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **env}, stdin=subprocess.DEVNULL, stdout=out, stderr=self._errors
        )
        self._folder = folder

    def first_line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().decode()

    def _pids(self) -> list[int]:
        """It and its children."""
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pid, *map(int, children)]

    def cpu_s(self) -> float:
        fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in self._pids()]
        return sum(int(row[11]) + int(row[12]) for row in fields) / _TICKS

    def memory_mib(self, *, peak: bool = False) -> float:
        name = "VmHWM:" if peak else "VmRSS:"
        lines = [line for pid in self._pids() for line in Path(f"/proc/{pid}/status").read_text().splitlines()]
        return sum(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024

    def require(self) -> None:
        """Stop the benchmark where it has ended."""
        if self._process.poll() is not None:
            raise RuntimeError((self._folder / "errors").read_text(errors="replace")[-3000:])

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()


# ---------------------------------------------------------------- the client
class Target(NamedTuple):
    """Where requests go: a port, a key, and the name that the model has there."""

    port: int
    key: str
    model: str

    def request(self, shape: str) -> bytes:
        body = msgspec.json.encode({"model": self.model, "max_completion_tokens": 2_000, **SHAPES[shape]})
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {self.key}\r\n"
        return f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


def _asking(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def _tool(number: int) -> dict[str, Any]:
    fields = {f"field_{index}": {"type": "string", "description": "What it is. " * 4} for index in range(8)}
    parameters = {"type": "object", "properties": fields, "required": list(fields)}
    function = {"name": f"tool_{number}", "description": "What the tool does. " * 10, "parameters": parameters}
    return {"type": "function", "function": function}


_ASK: Final = _asking("Say word twenty times. " * 20)
_STREAMED: Final = {"stream": True, "stream_options": {"include_usage": True}}
SHAPES: Final[dict[str, dict[str, Any]]] = {
    "whole": {**_ASK, "user": "whole"},
    "stream": {**_ASK, **_STREAMED, "user": "stream"},
    "paused": {**_ASK, **_STREAMED, "user": "paused"},
    "long": {**_ASK, **_STREAMED, "user": "long"},
    "large": {**_asking("A line of a long text, as people paste them.\n" * 4_450), "user": "whole"},
    "tools": {**_ASK, "tools": [_tool(number) for number in range(64)], "user": "whole"},
}


class Answer(NamedTuple):
    """Milliseconds until the first piece, and until the whole."""

    first_ms: float
    whole_ms: float


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> _Connection:
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=_BUFFER))

    async def ask(self, request: bytes) -> Answer:
        began = time.perf_counter()
        self._writer.write(request)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        if not head.startswith(b"http/1.1 200"):
            raise ConnectionError(head + await self._reader.read(2_000))
        first = time.perf_counter()
        if b"content-length:" in head:
            await self._reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0]))
        else:
            await self._reader.readuntil(b"data: ")
            first = time.perf_counter()
            await self._reader.readuntil(b"\r\n0\r\n\r\n")
        return Answer((first - began) * 1e3, (time.perf_counter() - began) * 1e3)

    def close(self) -> None:
        self._writer.close()


async def one_by_one(targets: Mapping[str, Target], shape: str, count: int) -> dict[str, list[Answer]]:
    """The answers of each, one call at a time, interleaved call by call; the first calls do not count."""
    requests = {name: target.request(shape) for name, target in targets.items()}
    connections = {name: await _Connection.open(target.port) for name, target in targets.items()}
    answers: dict[str, list[Answer]] = {name: [] for name in targets}
    warm = min(20, count)
    for number in range(count + warm):
        for name, connection in connections.items():
            answer = await connection.ask(requests[name])
            if number >= warm:
                answers[name].append(answer)
    for connection in connections.values():
        connection.close()
    return answers


async def under_load(target: Target, shape: str, *, connections: int, seconds: float) -> int:
    """How many calls are answered in some seconds, with so many connections that each ask one after the other."""
    request = target.request(shape)
    end = time.perf_counter() + seconds

    async def ask_on() -> int:
        connection = await _Connection.open(target.port)
        count = 0
        while not count or time.perf_counter() < end:
            await connection.ask(request)
            count += 1
        connection.close()
        return count

    return sum(await asyncio.gather(*(ask_on() for _ in range(connections))))


if __name__ == "__main__":
    asyncio.run(_provide())
