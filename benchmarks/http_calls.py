"""Requests over HTTP beside a bare echo application of uvicorn, both in one server process on loopback.

The figure is CPU time of the server for one request, and wall time of a request with sixteen connections at once. The
echo application gives back the bytes that it got: no token, no route, no kernel. `note` is a service whose handler
charges a process: with a store the answer waits until that is durable. The streams are readers of `/api/events`: what
one event costs for all of them, and the memory that they need. At the end stands what is left of the memory of many
requests and of streams that were opened and closed.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, Final

from benchmarks.child_server import ChildServer, http_request, read_answer
from benchmarks.measure import Figure, Row, Size, Timing, at_most, interleave, ratio_at_most

_TOKEN: Final = "benchmark-token-0123456789"
_PROCESSES: Final = 10_000
_STREAMS: Final = 1_000


async def _echo(scope: Any, receive: Any, send: Any) -> None:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
    del scope


async def _serve(processes: int, store: str) -> None:
    """Both servers, until the standard input ends; prints their ports."""
    import socket

    import uvicorn

    from lyra import Agent
    from lyra.core.address import Address
    from lyra.kernel import Kernel
    from lyra.server.http.face import HttpFace
    from lyra.server.identity import TokenTable
    from lyra.server.settings import ServeSettings

    # With its protocol named: asyncio switches Nagle's algorithm off for such sockets alone.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(1000)
    bare = uvicorn.Server(uvicorn.Config(_echo, lifespan="off", log_level="error", access_log=False, ws="none"))

    async def note(request: Any) -> dict[str, Any]:
        await kernel.record_usage("p98", llm_calls=1)
        return dict(request.metadata)

    async with Kernel(store, programs=[Agent("echo", model="sim/echo")]) as kernel:
        for number in range(processes):
            kernel.submit(f"p{number}", user_id="bench")
        kernel.register_service({"name": "note", "service_type": "worker", "max_concurrent": 1000})
        kernel.register_handler("note", note)
        settings = ServeSettings(TokenTable({_TOKEN: ""}), http=Address("127.0.0.1", 0), connections_max=10_000)
        face = HttpFace(kernel, settings)
        address = await face.start()
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(bare.serve(sockets=[listener]))
            print(listener.getsockname()[1], address.port, flush=True)
            await asyncio.to_thread(sys.stdin.read)
            bare.should_exit = True
            await serving
        await face.stop(1.0)


class _HttpServers(ChildServer):
    """The process with both servers."""

    def __init__(self, processes: int, store: str = "memory") -> None:
        super().__init__("benchmarks.http_calls", str(processes), store)
        self.bare, self.lyra = (int(port) for port in self.words)


def _request(method: str, path: str, body: bytes = b"") -> bytes:
    return http_request(method, path, _TOKEN, body)


async def _list(servers: _HttpServers, processes: int) -> tuple[float, float]:
    """Milliseconds of one request for all processes: CPU of the server, and until its answer is read."""
    reader, writer = await asyncio.open_connection("127.0.0.1", servers.lyra, limit=2**26)
    began, cpu = time.perf_counter(), servers.cpu_s()
    writer.write(_request("GET", f"/api/processes?limit={processes}"))
    await read_answer(reader)
    taken = (servers.cpu_s() - cpu) * 1000, (time.perf_counter() - began) * 1000
    writer.close()
    return taken


async def _streams(servers: _HttpServers, count: int) -> tuple[float, float]:
    """What many readers of events cost the server: MiB of memory, and milliseconds of CPU for one event to all."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2 * count + 100)), hard))
    before = servers.memory_mib()

    async def opened() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", servers.lyra)
        writer.write(_request("GET", "/api/events?kinds=process.terminated"))
        await reader.readuntil(b": open\n\n")
        return reader, writer

    streams = [await opened() for _ in range(count)]
    cpu, events = servers.cpu_s(), 10
    asker, sender = await asyncio.open_connection("127.0.0.1", servers.lyra)
    for number in range(events):
        sender.write(_request("DELETE", f"/api/processes/p{number}"))
        await read_answer(asker)
        await asyncio.gather(*(reader.readuntil(b"event: process.terminated") for reader, _ in streams))
    taken = (servers.cpu_s() - cpu) * 1000 / events, servers.memory_mib() - before
    for _, writer in [*streams, (asker, sender)]:
        writer.close()
    return taken


async def _left_over(servers: _HttpServers, count: int) -> float:
    """MiB that the server keeps of so many requests, and of a tenth as many streams, once they are over."""
    get = _request("GET", "/api/processes/p99")

    async def round_of_all() -> None:
        await servers.requests(servers.lyra, get, count)
        for _ in range(count // 1_000):
            streams = [await asyncio.open_connection("127.0.0.1", servers.lyra) for _ in range(100)]
            for reader, writer in streams:
                writer.write(_request("GET", "/api/events"))
                await reader.readuntil(b": open\n\n")
            for _, writer in streams:
                writer.close()
        await asyncio.sleep(0.5)

    await round_of_all()  # what is kept once, such as pools and caches, is there afterwards
    before = servers.memory_mib()
    await round_of_all()
    return max(0.0, servers.memory_mib() - before)


def _durable(size: Size, count: int) -> tuple[Figure, Figure]:
    """A request that writes, with SQLite as the store, and the echo of the same run."""
    with tempfile.TemporaryDirectory() as folder, _HttpServers(100, f"{folder}/server.db") as servers:
        data = {
            "echo": (servers.bare, _request("POST", "/echo", b"{}")),
            "note": (servers.lyra, _request("POST", "/api/services/note/dispatch", b"{}")),
        }

        def contender(port: int, request: bytes) -> Callable[[], Timing]:
            return lambda: asyncio.run(servers.requests(port, request, count))

        best = interleave({name: contender(*given) for name, given in data.items()}, min(size.repeats, 3))
    return best["note"], best["echo"]


def run(size: Size) -> list[Row]:
    count, processes = size.of(4_000, 64), size.of(_PROCESSES, 100)
    readers = size.of(_STREAMS, 20)
    durable, durable_echo = _durable(size, count)
    with _HttpServers(processes) as servers:

        def requests(port: int, method: str, path: str, body: bytes = b"") -> Callable[[], Timing]:
            return lambda: asyncio.run(servers.requests(port, _request(method, path, body), count))

        chat = b'{"message": "hello"}'
        best = interleave(
            {
                "echo": requests(servers.bare, "POST", "/echo", chat),
                "health": requests(servers.lyra, "GET", "/healthz"),
                "get": requests(servers.lyra, "GET", "/api/processes/p99"),
                "note": requests(servers.lyra, "POST", "/api/services/note/dispatch", b"{}"),
                "chat": requests(servers.lyra, "POST", "/api/agents/echo/chat", chat),
            },
            min(size.repeats, 3),
        )
        listed = [asyncio.run(_list(servers, processes)) for _ in range(size.repeats)]
        event_ms, memory_mib = asyncio.run(_streams(servers, readers))
        left_mib = asyncio.run(_left_over(servers, size.of(10_000, 160)))
    cpu, wall = zip(*listed, strict=True)

    def row(what: str, name: str, limit: float | None = None) -> Row:
        rate = (best["echo"].wall or 0.0) / (best[name].wall or 1.0)
        goals = () if limit is None else (ratio_at_most(limit),)
        return Row(what, best[name], "an echo", best["echo"], goals, note=f"{rate:.2f}× of the echo's rate")

    return [
        row("GET /healthz", "health", 2.5),
        row("GET /api/processes/{pid}", "get", 3.0),
        row("A dispatch that writes, in memory", "note"),
        Row("A dispatch that writes, in SQLite", durable, "an echo", durable_echo),
        row("A chat in a session of its own, with the simulated model", "chat"),
        Row(f"A list of {processes} processes", Figure(min(cpu), "ms", min(wall)), goals=(at_most(200, "ms"),)),
        Row(f"One event to {readers} readers", Figure(event_ms, "ms")),
        Row(f"Memory of {readers} readers", Figure(memory_mib, "MiB"), goals=(at_most(100, "MiB"),)),
        Row("Memory left of 10000 requests and 1000 streams", Figure(left_mib, "MiB"), goals=(at_most(10, "MiB"),)),
    ]


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), sys.argv[2]))
