"""A model provider that speaks Anthropic's format over HTTP and keeps count of what it was asked, by idempotency key.

What it answers depends on the conversation alone: the same question has the same answer in every life of a run. It runs
in a thread of its own, so that the code which kills and resumes runs need not be async.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from typing import Any, Final, NamedTuple, Self

__all__ = ["Asked", "Provider", "billed"]

_PAUSES_S: Final = (0.0, 0.001, 0.003, 0.006)
_LONG_S: Final = {"slowly": 0.6, "takes a while": 0.15}  # for those who kill while a call is under way
_PIECES_S: Final = {"piece by piece": 0.4}  # for those who kill between two pieces of an answer
_FAILS: Final = {"please fail": "400 Bad Request", "be down": "503 Service Unavailable"}
_KEY: Final = "idempotency-key"
_TOKENS_OUT: Final = 5


class Asked(NamedTuple):
    """One request: its key, what was asked, and whether its answer was given to the end."""

    key: str
    question: str
    answered: bool


class Provider:
    def __init__(self, *, pace: float = 1.0) -> None:
        """`pace` is how much slower it answers than it could. While `held` is set, it does not answer what has that
        text in its last message."""
        self.held = ""
        self._pace = pace
        self._lock = threading.Lock()
        self._asked: list[Asked] = []
        self._at_once = 0
        self.most = 0  # requests at one time
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True, name="vega-crash-provider")
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def asked(self) -> int:
        """How many requests came since the last look."""
        with self._lock:
            return len(self._asked)

    def take(self) -> list[Asked]:
        """What was asked since the last look."""
        with self._lock:
            asked, self._asked = self._asked, []
        return asked

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._talk, "127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
                body = json.loads(await reader.readexactly(int(headers["content-length"])))
                await self._answer(headers.get(_KEY, ""), body, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _answer(self, key: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        self._at_once += 1
        self.most = max(self.most, self._at_once)
        try:
            await self._say(key, body, writer)
        finally:
            self._at_once -= 1

    async def _say(self, key: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        question = json.dumps([body["messages"], body.get("system"), [tool["name"] for tool in body.get("tools", ())]])
        with self._lock:
            number = len(self._asked)
            asked = self._asked
            asked.append(Asked(key, question, False))
        pause_s = self._pace * _PAUSES_S[hashlib.sha256(question.encode()).digest()[0] % len(_PAUSES_S)]
        latest = _last(body["messages"])
        await asyncio.sleep(next((long_s for words, long_s in _LONG_S.items() if words in latest), pause_s))
        while self.held and self.held in latest:  # noqa: ASYNC110 - set by another thread
            await asyncio.sleep(0.01)
        between_s = next((long_s for words, long_s in _PIECES_S.items() if words in latest), pause_s / 2)
        status = next((status for words, status in _FAILS.items() if words in latest), "")
        if status:
            data = json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": "no"}}).encode()
            writer.write(f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n".encode())
            writer.write(f"content-length: {len(data)}\r\n\r\n".encode() + data)
            await writer.drain()
        else:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            for event in _events(latest, len(body["messages"]), body["messages"]):
                data = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
                writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                await writer.drain()
                if event["type"] == "content_block_delta":
                    await asyncio.sleep(between_s)
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        with self._lock:
            if self._asked is asked:
                asked[number] = asked[number]._replace(answered=True)


def billed(question: str) -> tuple[int, str]:
    """What a request costs in micro-dollars, answered or not, at the price of the scenes' model; and its last text."""
    messages = json.loads(question)[0]
    usage = _usage(len(messages))
    return 3 * usage["input_tokens"] + 15 * _TOKENS_OUT, _last(messages)


def _usage(count: int) -> dict[str, int]:
    return {"input_tokens": 10 * count, "output_tokens": 1}


def _last(messages: list[dict[str, Any]]) -> str:
    """The text of the last message; of a tool's result, what it gave."""
    content = messages[-1]["content"]
    if isinstance(content, str):
        return content
    part = content[-1]
    if part["type"] == "tool_result":
        inner = part["content"]
        return "result " + (inner if isinstance(inner, str) else "".join(block.get("text", "") for block in inner))
    return str(part.get("text", ""))


def _events(question: str, count: int, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    usage = _usage(count)
    begin = {"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "usage": usage}}
    call = _call(question)
    if call is not None:
        inside = {"type": "tool_use", "id": f"call_{len(messages)}", "name": call[0], "input": {}}
        delta: list[dict[str, Any]] = [{"type": "input_json_delta", "partial_json": json.dumps(call[1])}]
        reason = "tool_use"
    else:
        inside = {"type": "text", "text": ""}
        pieces = f"[{question}] ({count})".split(" ")
        texts = [piece + " " for piece in pieces[:-1]] + pieces[-1:]
        delta = [{"type": "text_delta", "text": text} for text in texts]
        reason = "end_turn"
    return [
        begin,
        {"type": "content_block_start", "index": 0, "content_block": inside},
        *({"type": "content_block_delta", "index": 0, "delta": part} for part in delta),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": _TOKENS_OUT}},
        {"type": "message_stop"},
    ]


def _call(question: str) -> tuple[str, dict[str, Any]] | None:
    """The tool that a question asks for; what a tool gave asks for none."""
    words = question.split()
    if question.startswith("use double"):
        return "double", {"n": int(words[2])}
    if question.startswith("use note"):
        return "note", {"text": words[2]}
    if question.startswith("ask the user"):
        return "AskUser", {"question": f"Which {words[-1]}?"}
    return None
