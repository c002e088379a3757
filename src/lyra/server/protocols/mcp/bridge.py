"""From a checked request to the SDK's own handling of streamable HTTP, and back to an answer of the server.

The SDK reads and writes ASGI messages. It runs in a task of its own, for one request; its answer is given as it comes,
and the task is cancelled when the client leaves. There are no sessions of the transport: each request stands for itself
and brings its token, so that none can be taken over, and a restart of the server ends none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, Final

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from lyra.errors import InternalError
from lyra.server.http.endpoint import RawAnswer, Streamed
from lyra.server.http.problems import HttpRefusal

if TYPE_CHECKING:
    from mcp.server.lowlevel.server import Server

    from lyra.server.http.endpoint import HttpCall


_STREAM: Final = "text/event-stream"
_JSON: Final = "application/json"
_REFUSAL_CHARS_MAX: Final = 200
_PASSED_ON: Final = frozenset({"accept", "content-type"})  # with those that begin with `mcp-`
_WAITING_MAX: Final = 256  # pieces of an answer for a slow client


async def answer_by_sdk(call: HttpCall, server: Server[Any]) -> RawAnswer | Streamed:
    """The answer to one request."""
    messages: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue(_WAITING_MAX)
    task = call.kernel.tasks.start(_run(call, server, messages), name="lyra-mcp")
    try:
        start = await messages.get()
        if start is None:
            raise InternalError("the request was not answered")
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in start["headers"]}
        media = headers.get("content-type", "")
        if media.startswith(_STREAM):
            return Streamed(_pieces(messages, task))
        body = b"".join([piece async for piece in _pieces(messages, task)])
        if start["status"] >= 400 and not media.startswith(_JSON):
            raise HttpRefusal(start["status"], body.decode(errors="replace")[:_REFUSAL_CHARS_MAX])
        return RawAnswer(body, media or _JSON, start["status"])
    except BaseException:
        task.cancel()
        raise


async def _pieces(
    messages: asyncio.Queue[dict[str, Any] | None], task: asyncio.Task[None]
) -> AsyncGenerator[bytes, None]:
    try:
        while (message := await messages.get()) is not None:
            if message.get("body"):
                yield message["body"]
    finally:
        task.cancel()


async def _run(call: HttpCall, server: Server[Any], messages: asyncio.Queue[dict[str, Any] | None]) -> None:
    bodies: list[dict[str, Any]] = [{"type": "http.request", "body": call.raw_body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if bodies:
            return bodies.pop()
        return await asyncio.Future()  # the client's leaving cancels this task

    size = len(call.raw_body) + 1  # the guard has checked it
    manager = StreamableHTTPSessionManager(server, stateless=True, max_request_body_size=size)
    is_cancelled = True
    try:
        async with manager.run():
            await manager.handle_request(_scope(call), receive, messages.put)  # type: ignore[arg-type]
        is_cancelled = False
    except Exception:
        is_cancelled = False
        raise
    finally:
        if is_cancelled and messages.full():  # its reader has left, and would never make room for the end
            messages.get_nowait()
        await messages.put(None)


def _scope(call: HttpCall) -> dict[str, Any]:
    wanted = [(name, value) for name, value in call.headers.items() if name in _PASSED_ON or name.startswith("mcp-")]
    return {
        "type": "http",
        "http_version": "1.1",
        "method": call.endpoint.method,
        "scheme": "http",
        "path": call.endpoint.path,
        "query_string": b"",
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in wanted],
    }
