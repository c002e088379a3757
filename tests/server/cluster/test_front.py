"""What the front asks of several shards, where one of them answers late, otherwise, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, cast

import pytest

from lyra.errors import Overloaded, Unreachable
from lyra.kernel.base.tasks import Tasks
from lyra.server.cluster.forwarding import AnswerStart, SentRequest
from lyra.server.cluster.front import Front, add_webhook_to_each
from lyra.server.cluster.places import Asked, Destination, Shards
from lyra.server.cluster.reach import ShardAnswer, follow_all
from lyra.server.http.app import COUNTED
from lyra.testing import run_in_virtual_time

NAMES = ("s1", "s2", "s3")
STREAM = [(b"content-type", b"text/event-stream")]


def request(method: str, path: str) -> SentRequest:
    scope = {"method": method, "path": path, "raw_path": path.encode(), "query_string": b"", "headers": []}
    return SentRequest(scope, b"{}")


class Told:
    """Shards that answer what a test says; notes what they are asked."""

    def __init__(self, answer: Callable[[str, SentRequest], Any]) -> None:
        self._answer = answer
        self.sites = self
        self.tasks = Tasks()
        self.asked: list[tuple[str, str, bool]] = []

    def _ask(self, shard: str, request: SentRequest) -> Any:
        self.asked.append((request.scope["method"], shard, COUNTED in request.scope))
        answer = self._answer(shard, request)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def ask(self, shard: str, request: SentRequest) -> ShardAnswer:
        return ShardAnswer(shard, AnswerStart(self._ask(shard, request), []), b"{}")

    async def read(self, shard: str, request: SentRequest, *, wait_s: float | None = None) -> AsyncGenerator[Any, None]:
        del wait_s
        status, pieces = self._ask(shard, request)
        yield AnswerStart(status, STREAM)
        for piece in pieces:
            if isinstance(piece, asyncio.Event):
                await piece.wait()
            else:
                yield piece


@pytest.mark.parametrize(
    ("of_s2", "undone"),
    [
        (Unreachable("it died"), {"s1", "s2", "s3"}),  # it may have it: another host opens it with the webhook
        (Overloaded("open nowhere", unsent=True), {"s1", "s3"}),
        (403, {"s1", "s3"}),
    ],
)
def test_a_webhook_is_on_all_shards_or_none(of_s2: Any, undone: set[str]) -> None:
    def answer(shard: str, request: SentRequest) -> Any:
        return 200 if request.scope["method"] == "DELETE" else of_s2 if shard == "s2" else 201

    async def main() -> None:
        reach: Any = Told(answer)
        adding = add_webhook_to_each(reach, NAMES, request("POST", "/api/webhooks"))
        (told,) = await asyncio.gather(adding, return_exceptions=True)
        assert told is of_s2 or told.start.status == of_s2
        assert {shard for method, shard, _ in reach.asked if method == "DELETE"} == undone
        assert [(method, shard) for method, shard, counted in reach.asked if not counted] == [("POST", "s1")]

    asyncio.run(main())


@pytest.mark.parametrize("found", [True, False])
def test_nothing_is_unknown_while_a_shard_is_open_nowhere(found: bool) -> None:
    """What another shard has is told; else the shard that does not answer may have it: 503, and not 404."""
    away = Overloaded("open nowhere", unsent=True)

    def answer(shard: str, _request: SentRequest) -> Any:
        return away if shard == "s1" else (200 if found and shard == "s2" else 404, [b"told"])

    async def main() -> list[Any]:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        front = object.__new__(Front)
        front._reach = cast("Any", Told(answer))
        asked = Asked("runs.get", {}, [], {}, b"", Shards(NAMES, lambda: NAMES))
        asked.tells_processes = False
        await front._send_to_first(Destination("first", NAMES), asked, request("GET", "/api/runs/x"), send)
        return sent

    if found:
        assert asyncio.run(main())[0]["status"] == 200
    else:
        with pytest.raises(Overloaded):
            asyncio.run(main())


async def _follow(reach: Any, until: Callable[[list[Any]], bool] = lambda _sent: False) -> list[Any]:
    """Return what a client is sent until the stream ends, or it has seen enough."""
    sent: list[Any] = []
    enough = asyncio.Event()

    async def send(message: Any) -> None:
        sent.append(message)
        if until(sent):
            enough.set()

    following = asyncio.ensure_future(follow_all(reach, NAMES, request("GET", "/api/events"), send))
    seen = asyncio.ensure_future(enough.wait())
    await asyncio.wait((following, seen), return_when=asyncio.FIRST_COMPLETED)
    for task in (following, seen):
        task.cancel()
    await asyncio.gather(following, seen, return_exceptions=True)
    await reach.tasks.close()
    return sent


def test_a_stream_of_all_goes_on_whatever_one_shard_meets() -> None:
    """One that is about to move answers 503, one fails in an unforeseen way: both are read on, and the caller has made
    one request."""
    troubles: dict[str, list[Any]] = {"s2": [(503, [b"busy"]), ValueError("a fault")], "s3": [ValueError("a fault")]}

    def answer(shard: str, _request: SentRequest) -> Any:
        if troubles.get(shard):
            return troubles[shard].pop(0)
        return 200, [b'id: 1\ndata: "of %s"\n\n' % shard.encode(), asyncio.Event()]

    async def main() -> None:
        reach: Any = Told(answer)
        sent = await _follow(reach, lambda sent: len(sent) == 4)
        assert [message.get("status") for message in sent] == [200, None, None, None]
        body = b"".join(message.get("body", b"") for message in sent)
        assert all(b"of " + shard.encode() in body for shard in NAMES)
        assert b"busy" not in body
        assert [shard for _, shard, counted in reach.asked if not counted] == ["s1"]

    run_in_virtual_time(main())


def test_a_caller_that_asks_too_often_is_refused_before_a_stream_begins() -> None:
    """A refusal in the middle of a stream, as of a login that has ended, ends it without a word."""

    def refuse(shard: str, request: SentRequest) -> Any:
        return (200, [asyncio.Event()]) if COUNTED in request.scope else (429, [b"too often"])

    ended = asyncio.Event()
    answers = [(200, [b'id: 1\ndata: "x"\n\n']), (401, [b"who?"])]

    def end(shard: str, request: SentRequest) -> Any:
        return answers.pop(0) if shard == "s1" else (200, [ended])

    async def main() -> None:
        sent = await _follow(Told(refuse))
        assert [sent[0]["status"], sent[1]["body"]] == [429, b"too often"]
        sent = await _follow(Told(end))
        assert sent[0]["status"] == 200
        assert sent[-1] == {"type": "http.response.body", "body": b""}
        assert b"who?" not in b"".join(message.get("body", b"") for message in sent)

    run_in_virtual_time(main())
