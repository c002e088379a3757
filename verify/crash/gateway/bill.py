"""The provider of the campaigns: a server of chat completions that keeps a bill.

A request says in `user` what is to be done with it: `MODE.ID`. The bill has a row for each request that came, with the
tokens that a provider charges for: the input, and each token of output that it has made, whether or not the client is
still there. Output goes on to be made while the connection takes it.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from lyra.models.pricing import price_of
from lyra.models.stream import TokenUsage

__all__ = ["MODEL", "MODES", "BilledProvider", "BilledRequest", "cost_of"]

MODEL: Final = "gpt-4o-mini"
TOKENS_IN: Final = 40
MODES: Final = (
    "stream",  # pieces with pauses
    "whole",  # one JSON document
    "fail",  # 500 at first, then a stream
    "limit",  # 429 with a pause of nothing at first, then a stream
    "cut",  # breaks the connection off after some pieces
    "silent",  # hidden tokens are made before the first piece comes
    "hold",  # begins, and waits until `release`
)
_PAUSE_S: Final = 0.01
_HEAD: Final = {"id": "chatcmpl-1", "created": 1, "model": MODEL}
_price: Final = price_of(f"openai/{MODEL}")
assert _price is not None


def cost_of(tokens_in: int, tokens_out: int) -> int:
    """Micro-dollars."""
    assert _price is not None
    return _price.cost(TokenUsage(tokens_in, tokens_out))


class BilledRequest:
    """One row of the bill."""

    __slots__ = ("id", "is_sent", "mode", "tokens_in", "tokens_out", "tries")

    def __init__(self, name: str) -> None:
        self.mode, _, self.id = name.partition(".")
        self.tries = 1
        self.tokens_in = 0
        self.tokens_out = 0
        self.is_sent = False  # the whole answer, with its usage

    @property
    def micro_usd(self) -> int:
        return cost_of(self.tokens_in, self.tokens_out) if self.tokens_in else 0


class BilledProvider:
    """See the module."""

    def __init__(self) -> None:
        self.bill: dict[str, BilledRequest] = {}
        self.tokens_out = 12  # of an answer without a lower bound
        self.pause_s = _PAUSE_S
        self.hidden_s = 0.1  # between tokens that are made and not shown and what comes next
        self.pieces = 0  # that were written in all
        self._released = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> BilledProvider:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=2**22, backlog=1_000)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self.release()
        self._server.close()
        for task in list(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    def release(self) -> None:
        """Let the answers that are held go on."""
        self._released.set()

    @property
    def micro_usd(self) -> int:
        """What the provider bills in all."""
        return sum(row.micro_usd for row in self.bill.values())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                body = await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0]))
                await self._answer(json.loads(body), writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the other side has left, or the campaign has ended
        finally:
            self._serving.discard(task)
            writer.close()

    async def _answer(self, asked: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        row = self.bill.get(asked["user"])
        if row is None:
            row = self.bill[asked["user"]] = BilledRequest(asked["user"])
        else:
            row.tries += 1
        if row.mode in ("fail", "limit") and row.tries == 1:
            status, more = (b"500 Failed", b"") if row.mode == "fail" else (b"429 Later", b"retry-after: 0\r\n")
            body = b'{"error": {"message": "not now", "type": "server_error"}}'
            head = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\n%scontent-length: %d\r\n\r\n"
            writer.write(head % (status, more, len(body)) + body)
            await writer.drain()
            return
        bound = asked.get("max_completion_tokens", 0) or asked.get("max_tokens", 0)
        count = min(self.tokens_out, bound)
        row.tokens_in += TOKENS_IN
        if row.mode == "whole":
            await self._answer_whole(row, count, writer)
        else:
            await self._answer_stream(row, count, writer)

    async def _answer_whole(self, row: BilledRequest, count: int, writer: asyncio.StreamWriter) -> None:
        row.tokens_out += count
        await asyncio.sleep(self.hidden_s)
        choice = {"index": 0, "message": {"role": "assistant", "content": "word " * count}, "finish_reason": "stop"}
        body = json.dumps({**_HEAD, "object": "chat.completion", "choices": [choice], "usage": _usage(count)}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body))
        writer.write(body)
        await writer.drain()
        row.is_sent = True

    async def _answer_stream(self, row: BilledRequest, count: int, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        await _write(writer, _chunk({"role": "assistant", "content": ""}))
        if row.mode == "silent":
            row.tokens_out += count  # made, billed, and never shown
            await asyncio.sleep(self.hidden_s)
        else:
            for number in range(count):
                row.tokens_out += 1
                self.pieces += 1
                await _write(writer, _chunk({"content": "word "}))
                if row.mode == "cut" and number == count // 2:
                    writer.transport.abort()
                    raise ConnectionError
                if row.mode == "hold":
                    await self._released.wait()
                await asyncio.sleep(self.pause_s)
        await _write(writer, _chunk({}, finish_reason="stop"))
        await _write(writer, {"choices": [], "usage": _usage(row.tokens_out)})
        writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        await writer.drain()
        row.is_sent = True


def _usage(tokens_out: int) -> dict[str, int]:
    return {"prompt_tokens": TOKENS_IN, "completion_tokens": tokens_out, "total_tokens": TOKENS_IN + tokens_out}


def _chunk(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


async def _write(writer: asyncio.StreamWriter, fields: dict[str, Any]) -> None:
    piece = b"data: %s\n\n" % json.dumps({**_HEAD, "object": "chat.completion.chunk", **fields}).encode()
    writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
    await writer.drain()
