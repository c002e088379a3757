"""`lyra mcp serve`: an `Offer` as an MCP server, over stdio or over HTTP on this machine.

Over stdio only the SDK uses stdout: other output goes to stderr. Over HTTP
every request has to bring the token, the Host has to be this machine's, and a page of another origin is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import sys
from collections.abc import AsyncIterator
from typing import Any, Final

import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server

from lyra._version import __version__
from lyra.mcp.offer import CallResult, Offer

_TOLD_MAX: Final = 100  # progress messages that may wait for a slow client
_PROGRESS_MAX: Final = 0.999  # of a call that has not answered yet


def server_of(offer: Offer) -> Server[Any]:
    """Return the MCP server of an offer."""

    async def list_tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(name=tool.name, description=tool.description, input_schema=tool.schema)
                for tool in offer.tools.values()
            ]
        )

    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        async with progress_of(ctx) as tell:
            return _result(await offer.call(params.name, params.arguments or {}, tell))

    return Server("lyra", version=__version__, on_list_tools=list_tools, on_call_tool=call_tool)


@contextlib.asynccontextmanager
async def progress_of(ctx: Any) -> AsyncIterator[Any]:
    """Provide a function that sends progress in order; at the end the queue is drained."""
    waiting: asyncio.Queue[tuple[str, float | None] | None] = asyncio.Queue(_TOLD_MAX)

    def tell(text: str, fraction: float | None) -> None:
        with contextlib.suppress(asyncio.QueueFull):  # a slow client misses some
            waiting.put_nowait((text, fraction))

    async def pass_on() -> None:
        done = 0.0
        while (told := await waiting.get()) is not None:
            text, fraction = told
            done = _progress_after(done, fraction)
            await ctx.session.report_progress(done, 1.0, text)

    async with asyncio.TaskGroup() as group:
        group.create_task(pass_on())
        try:
            yield tell
        finally:
            await waiting.put(None)


def _progress_after(done: float, fraction: float | None) -> float:
    """Return the progress to tell next. The protocol wants it to grow with each message, so a message without a larger
    fraction moves it by a thousandth of what is left; only the result ends a call, so it stays below 1."""
    return max(done + (1.0 - done) / 1000, min(fraction or 0.0, _PROGRESS_MAX))


def _result(result: CallResult) -> types.CallToolResult:
    parts = result.output if isinstance(result.output, list) else [{"type": "text", "text": result.output}]
    return types.CallToolResult(content=[_part(part) for part in parts], is_error=result.is_error)


def _part(part: Any) -> Any:
    if part.get("type") == "image" and part.get("data"):
        return types.ImageContent(type="image", data=part["data"], mime_type=part["media_type"])
    if part.get("type") == "image":
        return types.TextContent(type="text", text=f"[image {part.get('url', '')}]")
    return types.TextContent(type="text", text=str(part.get("text", "")))


async def serve_stdio(offer: Offer) -> None:
    """Serve until the client closes stdin."""
    server = server_of(offer)
    async with stdio_server() as (reading, writing):
        # The SDK uses the descriptor; Python's buffered output would be written to it at the end.
        sys.stdout = sys.stderr
        await server.run(reading, writing, server.create_initialization_options())


# ---------------------------------------------------------------- HTTP
def http_app(offer: Offer, token: str) -> Any:
    """Return the ASGI application: MCP at `/mcp`, for requests with the token."""
    return _Guard(server_of(offer).streamable_http_app(host="127.0.0.1"), token)


async def serve_http(offer: Offer, port: int, token: str) -> None:
    """Serve on this machine only, until interrupted."""
    import uvicorn

    settings = uvicorn.Config(
        http_app(offer, token), host="127.0.0.1", port=port, log_level="warning", access_log=False, lifespan="on"
    )
    await uvicorn.Server(settings).serve()


class _Guard:
    """Refuses requests without the token."""

    def __init__(self, app: Any, token: str) -> None:
        self._app = app
        self._wanted = f"Bearer {token}".encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and not self._is_authorized(scope):
            body = b'{"error": "unauthorized"}'
            headers = [(b"content-type", b"application/json"), (b"www-authenticate", b"Bearer")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": body})
            return
        await self._app(scope, receive, send)

    def _is_authorized(self, scope: Any) -> bool:
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        return hmac.compare_digest(given, self._wanted)
