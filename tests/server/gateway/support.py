"""A served gateway for tests: a provider that records the bytes it gets and answers with those that the test says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx

from lyra import Kernel
from lyra.core.address import Address
from lyra.models.client import LLMClient
from lyra.server.gateway.routes import Gateway, gateway_of
from lyra.server.http.face import HttpFace
from lyra.server.identity import TokenTable
from lyra.server.settings import ServeSettings
from lyra.server.site import site
from tests.server.http.support import OPERATOR, TOKENS, client

OPENAI_KEY = "sk-provider-openai-0123456789"
ANTHROPIC_KEY = "sk-ant-provider-0123456789"
GEMINI_KEY = "AIzaSy-provider-gemini-0123456789"


class Received(NamedTuple):
    """One request that the provider got."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        return json.loads(self.body)


class Reply(NamedTuple):
    """What the provider answers: whole, or in pieces; `gate` holds the pieces after the first back."""

    pieces: tuple[bytes, ...]
    status: int = 200
    headers: dict[str, str] = {}  # noqa: RUF012 (never changed)
    gate: asyncio.Event | None = None
    cuts: bool = False  # breaks the connection off after the last piece


class FakeProvider:
    """A server of bytes. `reply` is a Reply, or a function of a Received that gives one."""

    def __init__(self, reply: Reply | Callable[[Received], Reply]) -> None:
        self.reply = reply
        self.received: list[Received] = []
        self.left = 0  # clients that closed the connection in the middle of an answer
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> FakeProvider:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
                headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                raw = dict(line.split(": ", 1) for line in head[1:] if line)
                received = Received(head[0].split(" ")[1], {name.lower(): raw[name] for name in raw}, body)
                self.received.append(received)
                await self._answer(received, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client left, or the test is over
        finally:
            writer.close()

    async def _answer(self, received: Received, writer: asyncio.StreamWriter) -> None:
        reply = self.reply(received) if callable(self.reply) else self.reply
        headers = {"content-type": "application/json", **reply.headers, "transfer-encoding": "chunked"}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 {reply.status} X\r\n{lines}\r\n".encode())
        for number, piece in enumerate(reply.pieces):
            if number and reply.gate is not None:
                await reply.gate.wait()
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            try:
                await writer.drain()
            except ConnectionError:
                self.left += 1
                raise
        if reply.cuts:
            writer.transport.abort()
            raise ConnectionError
        writer.write(b"0\r\n\r\n")
        await writer.drain()


def chat_answer(text: str = "hello", tokens_in: int = 10, tokens_out: int = 5) -> bytes:
    """A whole answer, with spaces that a client's library would not write."""
    return json.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "gpt-4o-mini-2024",
            "choices": [
                {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop", "x": None}
            ],
            "usage": {"prompt_tokens": tokens_in, "completion_tokens": tokens_out, "total_tokens": 0},
        },
        indent=1,
    ).encode()


def chat_stream(*words: str, tokens_in: int = 10, tokens_out: int = 5) -> tuple[bytes, ...]:
    """The pieces of a streamed answer that tells its usage."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o-mini-2024"}

    def chunk(**fields: Any) -> bytes:
        return b"data: " + json.dumps({**head, **fields}).encode() + b"\n\n"

    pieces = [chunk(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])]
    pieces += [chunk(choices=[{"index": 0, "delta": {"content": word}, "finish_reason": None}]) for word in words]
    pieces.append(chunk(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}]))
    usage = {"prompt_tokens": tokens_in, "completion_tokens": tokens_out, "total_tokens": tokens_in + tokens_out}
    pieces.append(chunk(choices=[], usage=usage))
    pieces.append(b"data: [DONE]\n\n")
    return tuple(pieces)


SSE = {"content-type": "text/event-stream; charset=utf-8"}


class ServedGateway(NamedTuple):
    """A gateway behind HTTP, its provider, and the operator's client."""

    kernel: Kernel
    gateway: Gateway
    provider: FakeProvider
    url: str
    address: Address
    operator: httpx.AsyncClient

    async def key(self, name: str = "ci", **settings: Any) -> str:
        answer = await self.operator.post("/api/keys", json={"name": name, **settings})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["key"])

    async def view(self, name: str = "ci") -> dict[str, Any]:
        answer = await self.operator.get(f"/api/keys/{name}")
        assert answer.status_code == 200, answer.text
        view: dict[str, Any] = answer.json()
        return view

    def client(self, key: str, **headers: str) -> httpx.AsyncClient:
        return client(self.address, key, **headers)


@asynccontextmanager
async def serving_gateway(
    reply: Reply | Callable[[Received], Reply] = Reply((chat_answer(),)),  # noqa: B008 (unchanging)
    *,
    store: Any = "memory",
    programs: tuple[Any, ...] = (),
    **settings: Any,
) -> AsyncIterator[ServedGateway]:
    """A gateway to one fake provider under the names openai, anthropic and gemini."""
    async with FakeProvider(reply) as provider:
        kernel = Kernel(store, programs=programs)
        kernel.parts["models"] = LLMClient(
            {
                "openai": {"base_url": f"{provider.url}/v1", "api_key": OPENAI_KEY},
                "anthropic": {"base_url": provider.url, "api_key": ANTHROPIC_KEY},
                "gemini": {"base_url": provider.url, "api_key": GEMINI_KEY},
                "other": {"base_url": f"{provider.url}/v1", "api_key": OPENAI_KEY},
                "newer": {"base_url": f"{provider.url}/v1", "api_key": OPENAI_KEY, "api": "responses"},
            },
            env={},
        )
        async with kernel:
            options = {"tokens": TokenTable(TOKENS), "http": Address("127.0.0.1", 0), "gateway": True, **settings}
            face = HttpFace(kernel, ServeSettings(**options), webhook_key=b"k" * 32, endpoints=site(gateway=True))
            address = await face.start()
            try:
                async with client(address, OPERATOR) as operator:
                    gateway = gateway_of(face.app.parts)
                    yield ServedGateway(kernel, gateway, provider, f"http://{address}", address, operator)
            finally:
                await face.stop(5.0)
                await kernel.close(drain_s=0.3)
