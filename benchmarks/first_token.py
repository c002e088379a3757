"""An agent and its first token: how long it takes in a running process and from the start of one, and how much memory.

The model is a server on the loopback that speaks Anthropic's format and waits a known time before it answers; what is
measured is what Lyra adds to that. The agent has a budget and tools, so prices are looked up and schemas made. Every
process is measured with its bytecode compiled, as it is after an installation.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.measure import Figure, Row, Size, at_most
from benchmarks.spawn import environment

__all__ = ["Used", "added_delays", "children", "run", "server", "start", "talk", "usual"]

MODEL = "anthropic/claude-sonnet-4-20250514"
DELAY_S = 0.005  # the server's own, before the first byte


class Used(NamedTuple):
    """What a process took from its start to the point of interest; what it takes to end does not count."""

    cpu_ms: float
    peak_mb: float


# ---------------------------------------------------------------- the server
def _said(words: int) -> bytes:
    usage = {"input_tokens": 9, "output_tokens": 9}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "x", "content": [], "usage": usage}
    word = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": " word"}}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *[word] * words,
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]
    return b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events)


@contextmanager
def server(words: int = 20, arrived: Callable[[], object] = lambda: None) -> Iterator[str]:
    """A server in a thread of its own that gives every request the same answer; gives its address. `arrived` is called
    when a request has come whole."""
    body = _said(words)
    response = (
        f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
    )
    ready = threading.Event()
    started: list[Any] = []  # the loop, what stops it, the port

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task that ends cancelled is reported by the streams of asyncio.
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n")[0]))
                arrived()
                await asyncio.sleep(DELAY_S)
                writer.write(response)
                await writer.drain()
        writer.close()

    async def serve() -> None:
        listening = await asyncio.start_server(answer, "127.0.0.1", 0)
        stopped = asyncio.Event()
        started.extend((asyncio.get_running_loop(), stopped, listening.sockets[0].getsockname()[1]))
        ready.set()
        await stopped.wait()
        listening.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    ready.wait()
    loop, stopped, port = started
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join()


def usual(url: str) -> dict[str, str]:
    """The variables with which an agent finds the server."""
    return {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "sk-none"}


# ---------------------------------------------------------------- whole processes
# The peak of the process itself: what its parent held is in its resource usage, not in its status.
_TELL = """
def tell():
    import time
    cpu_s = time.process_time()
    with open("/proc/self/status") as file:
        peak = next(line for line in file if line.startswith("VmHWM:"))
    print(cpu_s, peak.split()[1], flush=True)
"""
_AGENT = """
import lyra
@lyra.tool
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b
agent = lyra.Agent("a", model=%r, system="Be brief.", tools=[add], budget="$5")
"""
_ASK = """
import asyncio
async def main():
    async with lyra.Kernel() as kernel:
        process = await kernel.spawn(agent)
        async for piece in process.stream("hello"):
            tell()
            break
asyncio.run(main())
"""
_TALK = """
import asyncio, sys
async def main():
    async with lyra.Kernel(sys.argv[1]) as kernel:
        process = await kernel.spawn(agent)
        for number in range(int(sys.argv[2])):
            await process.send(f"What about number {number}? " + "word " * 20)
        tell()
asyncio.run(main())
"""
PROGRAMS = {
    name: _TELL + _AGENT % MODEL + then
    for name, then in {"import": "tell()", "first token": _ASK, "talk": _TALK}.items()
}


@contextmanager
def children(url: str) -> Iterator[dict[str, str]]:
    """The environment of children that find the server and, from the second on, their bytecode compiled."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**environment(), **usual(url), "PYTHONPYCACHEPREFIX": folder, "HOME": folder}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        yield env


def start(env: dict[str, str], program: str, *args: str) -> Used:
    """Run a program in a fresh interpreter, whose own start counts."""
    command = [sys.executable, "-c", PROGRAMS[program], *args]
    told = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    return Used(float(told[0]) * 1e3, int(told[1]) / 1024)


def talk(env: dict[str, str], turns: int, store: str) -> Used:
    """A conversation of so many turns with one agent."""
    return start(env, "talk", store, str(turns))


# ---------------------------------------------------------------- in a running process
async def added_delays(calls: int) -> list[float]:
    """Milliseconds from asking an agent to the first token, less the server's own, call after call, sorted."""
    import lyra

    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    short = {"kind": "sliding", "turns": 4}
    agent = lyra.Agent("a", model=MODEL, system="Be brief.", tools=[add], budget="$50", context=short)
    delays_ms: list[float] = []
    async with lyra.Kernel() as kernel:
        process = await kernel.spawn(agent)
        for _ in range(calls + 5):
            began, first = time.perf_counter(), 0.0
            async for _piece in process.stream("hello"):
                first = first or time.perf_counter()
            delays_ms.append((first - began - DELAY_S) * 1e3)
    return sorted(delays_ms[5:])  # the first ones import and connect


@contextmanager
def _set(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def run(size: Size) -> list[Row]:
    turns = size.of(1_000, 5)
    with server() as url, children(url) as env, tempfile.TemporaryDirectory() as folder, _set(usual(url)):
        delays = asyncio.run(added_delays(size.of(200, 5)))
        runs: dict[str, list[Used]] = {"import": [], "first token": []}
        for name, samples in runs.items():
            start(env, name)
            samples += [start(env, name) for _ in range(size.repeats)]
        in_memory = talk(env, turns, "memory")
        durable = talk(env, turns, str(Path(folder) / "talk.db"))
    best = {name: Used(*map(min, zip(*samples, strict=True))) for name, samples in runs.items()}
    return [
        _row("ask an agent to first token, what Lyra adds, p95, wall", delays[len(delays) * 95 // 100], "ms", 20),
        _row("start of a process to an agent's first token, CPU", best["first token"].cpu_ms, "ms", 600),
        _row("the same, resident at most", best["first token"].peak_mb, "MB", 60),
        _row("import lyra and make an agent, CPU", best["import"].cpu_ms, "ms", 150),
        _row("the same, resident at most", best["import"].peak_mb, "MB", 40),
        _row(f"a process that talks for {turns} turns, in memory, resident at most", in_memory.peak_mb, "MB", 150),
        _row(f"a process that talks for {turns} turns, SQLite, resident at most", durable.peak_mb, "MB", 150),
    ]


def _row(what: str, value: float, unit: str, most: float) -> Row:
    return Row(what, Figure(max(value, 0.0), unit), goals=(at_most(most, unit),))
