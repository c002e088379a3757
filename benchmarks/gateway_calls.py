"""Calls through the gateway beside the same calls made directly, to a fake provider in a process of its own.

The figure is the median time until an answer is whole, one call after the other on a kept connection; the goal is on
the added delay. The last rows are sixteen at a time: wall time of a call, and CPU time of the gateway's process.
Gateway and provider each have a process of their own; the store is SQLite, so that each call waits for its rows.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from typing import Final

import msgspec

from benchmarks.child_server import ChildServer, http_request, read_answer
from benchmarks.gateway_load import stream_pieces, whole_answer
from benchmarks.measure import Figure, Row, Size, at_most

_MODULE: Final = "benchmarks.gateway_calls"
_TOKEN: Final = "benchmark-token-0123456789"
_MODEL: Final = "openai/gpt-4o-mini"
_WORDS: Final = 20


async def _provide() -> None:
    """The fake provider: it reads a request and writes an answer that was made before."""
    answers = [whole_answer(_WORDS), b"".join(stream_pieces(_WORDS))]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
                body = await reader.readexactly(length)
                writer.write(answers[b'"stream":true' in body.replace(b" ", b"")])
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


async def _serve(provider_port: int, store: str) -> None:
    """The gateway, until the standard input ends; prints its port and a key."""
    from lyra.core.address import Address
    from lyra.kernel import Kernel
    from lyra.models.client import LLMClient
    from lyra.server.gateway.routes import gateway_of
    from lyra.server.http.face import HttpFace
    from lyra.server.identity import TokenTable
    from lyra.server.settings import ServeSettings
    from lyra.server.site import site

    settings = {"base_url": f"http://127.0.0.1:{provider_port}/v1", "api_key": "sk-benchmark-provider-key"}
    kernel = Kernel(store)
    kernel.parts["models"] = LLMClient({"openai": settings}, env={})
    async with kernel:
        serve = ServeSettings(TokenTable({_TOKEN: ""}), http=Address("127.0.0.1", 0), gateway=True)
        face = HttpFace(kernel, serve, endpoints=site(gateway=True))
        address = await face.start()
        _, key = await gateway_of(face.app.parts).keys.create(name="benchmark", budget="$1000")
        print(address.port, key, flush=True)
        await asyncio.to_thread(sys.stdin.read)
        await face.stop(1.0)


def _request(key: str, *, model: str, stream: bool) -> bytes:
    more = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    messages = [{"role": "user", "content": "Say word twenty times. " * 20}]
    body = msgspec.json.encode({"model": model, "messages": messages, "max_completion_tokens": 100, **more})
    return http_request("POST", "/v1/chat/completions", key, body)


async def _one_by_one(contenders: dict[str, tuple[int, bytes]], count: int) -> dict[str, float]:
    """Median milliseconds of a call of each, interleaved call by call."""
    streams = {name: await asyncio.open_connection("127.0.0.1", port) for name, (port, _) in contenders.items()}
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(count + 20):
        for name, (_, request) in contenders.items():
            reader, writer = streams[name]
            began = time.perf_counter()
            writer.write(request)
            await read_answer(reader)
            if number >= 20:
                times[name].append((time.perf_counter() - began) * 1000)
    for _, writer in streams.values():
        writer.close()
    return {name: statistics.median(taken) for name, taken in times.items()}


def run(size: Size) -> list[Row]:
    count = size.of(1_000, 20)
    with tempfile.TemporaryDirectory() as folder, ChildServer(_MODULE, "provider") as provider:
        port = provider.words[0]
        with ChildServer(_MODULE, "gateway", port, f"{folder}/gateway.db") as gateway:
            gateway_port, key = int(gateway.words[0]), gateway.words[1]
            requests = {
                "direct": (int(port), _request(key, model="gpt-4o-mini", stream=False)),
                "gateway": (gateway_port, _request(key, model=_MODEL, stream=False)),
                "direct stream": (int(port), _request(key, model="gpt-4o-mini", stream=True)),
                "gateway stream": (gateway_port, _request(key, model=_MODEL, stream=True)),
            }
            median = asyncio.run(_one_by_one(requests, count))
            load = {
                name: asyncio.run(gateway.requests(*requests[name], size.of(4_000, 64)))
                for name in ("gateway", "gateway stream")
            }
            memory = gateway.memory_mib()

    def added(what: str, name: str, direct: str) -> Row:
        added_ms = median[name] - median[direct]
        note = f"{median[name]:.2f} ms beside {median[direct]:.2f} ms directly: {median[name] / median[direct]:.1f}×"
        return Row(what, Figure(added_ms, "ms"), goals=(at_most(5.0, "ms"),), note=note)

    def loaded(what: str, name: str) -> Row:
        cpu_s, wall_s, calls = load[name]
        cpu_ms, wall_ms = cpu_s * 1000 / calls, wall_s * 1000 / calls
        return Row(what, Figure(cpu_ms, "ms", wall_ms), note=f"{1000 / wall_ms:.0f} calls a second")

    return [
        added("Delay that the gateway adds to an answer, p50", "gateway", "direct"),
        added("Delay that it adds to a streamed answer, p50", "gateway stream", "direct stream"),
        loaded("A call, sixteen at a time", "gateway"),
        loaded("A streamed call, sixteen at a time", "gateway stream"),
        Row("Memory of the gateway's process afterwards", Figure(memory, "MiB")),
    ]


if __name__ == "__main__":
    asyncio.run(_provide() if sys.argv[1] == "provider" else _serve(int(sys.argv[2]), sys.argv[3]))
