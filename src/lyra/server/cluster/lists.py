"""What all shards are asked together: lists, which `merge` puts together, and the stream of all events.

A list waits for shards that are open nowhere no longer than the front allows, and says which are missing. The stream
goes on while shards move: that of a shard is begun again where it is open next, and the reader is told that it may have
missed something.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import msgspec

from lyra.core.limits import FRONT_ANSWERS_S
from lyra.errors import LyraError
from lyra.server.cluster import merge
from lyra.server.cluster.forwarding import AnswerStart, SentRequest, write_answer
from lyra.server.http.app import headers_of, query_of
from lyra.server.http.sse import sse_event

if TYPE_CHECKING:
    from lyra.server.cluster.front import Front, ShardAnswer
    from lyra.server.http.sse import Send

_PIECES_MAX: Final = 64  # that shards may be ahead of the reader of a stream
_AGAIN_S: Final = 0.5  # until the stream of a shard is begun again
_OPENED: Final = (b"", b": open")
_EVENT_ID: Final = b"last-event-id"


async def read_list(
    front: Front, name: str, shards: Sequence[str], request: SentRequest
) -> tuple[ShardAnswer, list[str]]:
    """Return one answer for all shards, and which are missing from it. An error of one shard is that of all."""
    if name == "a2a.request":
        return await _read_tasks(front, shards, request)
    query = dict(query_of(request.scope["query_string"]))
    answers, missing = await _ask(front, name, query, shards, request)
    failed = next((answer for answer in answers if answer.head.status != 200), None)
    if failed is not None:
        return failed, missing
    told = _decode(answers)
    if merge.must_ask_again(name, query, told):
        query = merge.restart(query)
        answers, missing = await _ask(front, name, query, shards, request)
        told = _decode([answer for answer in answers if answer.head.status == 200])
    joined = merge.join(name, query, told, missing)
    body = joined.encode() if isinstance(joined, str) else msgspec.json.encode(joined)
    return answers[0]._replace(body=body), missing


async def _ask(
    front: Front, name: str, query: merge.Query, shards: Sequence[str], request: SentRequest
) -> tuple[list[ShardAnswer], list[str]]:
    asked = merge.begin(name, query, shards)
    requests = {
        shard: SentRequest({**request.scope, "query_string": urlencode(asked[shard]).encode()}, request.body)
        for shard in shards
    }
    return await front.ask_all(requests, FRONT_ANSWERS_S)


def _decode(answers: Sequence[ShardAnswer]) -> dict[str, Any]:
    return {
        answer.shard: msgspec.json.decode(answer.body)
        if answer.head.header(b"content-type").startswith(b"application/json")
        else answer.body.decode()
        for answer in answers
    }


async def _read_tasks(front: Front, shards: Sequence[str], request: SentRequest) -> tuple[ShardAnswer, list[str]]:
    """Return the tasks of all shards to a request of A2A's JSON-RPC."""
    whole = msgspec.json.decode(request.body)
    params = whole["params"] if isinstance(whole.get("params"), dict) else {}
    query = {name: str(params[name]) for name in ("pageToken", "pageSize") if params.get(name)}
    requests = {}
    for shard, asked in merge.begin("a2a.list_tasks", query, shards).items():
        token = {"pageToken": asked["pageToken"]} if "pageToken" in asked else {}
        body = msgspec.json.encode({**whole, "params": {**params, **token}})
        length = [(name, value) for name, value in request.scope["headers"] if name != b"content-length"]
        headers = [*length, (b"content-length", str(len(body)).encode())]
        requests[shard] = SentRequest({**request.scope, "headers": headers}, body)
    answers, missing = await front.ask_all(requests, FRONT_ANSWERS_S)
    told = _decode(answers)
    for answer in answers:
        if answer.head.status != 200 or "result" not in told[answer.shard]:
            return answer, missing
    results = {shard: answer["result"] for shard, answer in told.items()}
    first = answers[0]
    joined = {**told[first.shard], "result": merge.join("a2a.list_tasks", query, results, missing)}
    return first._replace(body=msgspec.json.encode(joined)), missing


# ---------------------------------------------------------------- the stream of all events


async def follow_events(front: Front, shards: Sequence[str], request: SentRequest, send: Send) -> None:
    """Write the events of all shards as one stream, until the client leaves or its login ends."""
    stream = EventMerge(front, request, shards)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(stream.follow(shard)) for shard in shards]
        head = await stream.head
        async with aclosing(stream.read()) as pieces:
            await write_answer(head, pieces, send)
        for task in tasks:
            task.cancel()


class EventMerge:
    """The streams of all shards as they come. `head` is that of the first that begins, or refuses."""

    def __init__(self, front: Front, request: SentRequest, shards: Sequence[str]) -> None:
        self._front = front
        self._request = request
        event_id = headers_of(request.scope).get(_EVENT_ID.decode(), "")
        self._places = merge.EventPlaces(merge.begin_events(event_id, shards))
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue(_PIECES_MAX)
        self.head: asyncio.Future[AnswerStart] = asyncio.get_running_loop().create_future()

    async def follow(self, shard: str) -> None:
        """Read the stream of one shard, again wherever it is open next."""
        is_again = False
        while True:
            with suppress(LyraError):
                async with aclosing(self._front.read(shard, self._request_for(shard), wait_s=0.0)) as pieces:
                    if not await self._pass_on(shard, pieces, is_again=is_again):
                        return
            is_again = True
            await asyncio.sleep(_AGAIN_S)

    async def _pass_on(self, shard: str, pieces: AsyncGenerator[Any, None], *, is_again: bool) -> bool:
        """Pass the events of one connection on; returns whether another one is to follow it."""
        head = await anext(pieces)
        if not self.head.done():
            self.head.set_result(head)
        if head.status != 200:  # who asks is not known, or not any more
            if self.head.result() is head:
                async for piece in pieces:
                    await self._pieces.put(bytes(piece))
            await self._pieces.put(None)
            return False
        if is_again:
            await self._pieces.put(sse_event({"shard": shard}, event="missed"))
        rest = b""
        async for piece in pieces:
            *events, rest = (rest + bytes(piece)).split(b"\n\n")
            told = b"".join(self._places.tell(shard, event) + b"\n\n" for event in events if event not in _OPENED)
            if told:
                await self._pieces.put(told)
        return True

    def _request_for(self, shard: str) -> SentRequest:
        place = self._places.place_of(shard)
        headers = [(name, value) for name, value in self._request.scope["headers"] if name != _EVENT_ID]
        if place:
            headers.append((_EVENT_ID, place.encode()))
        return SentRequest({**self._request.scope, "headers": headers}, b"")

    async def read(self) -> AsyncGenerator[bytes, None]:
        """Yield what comes, of all shards."""
        if self.head.result().status == 200:
            yield b": open\n\n"
        while (piece := await self._pieces.get()) is not None:
            yield piece
