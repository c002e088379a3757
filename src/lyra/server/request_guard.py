"""RequestGuard: an ASGI middleware that gives each request of one's own application a budget, a rate limit and a span.

    app = FastAPI()
    app.add_middleware(RequestGuard, budget="$0.10", requests_per_minute=60)

Inside a request every `lyra.run` and every agent that is asked draws on the request's budget; one that runs out is
answered with 402, unless the application catches it. The rate counts by caller: the client's address, or what `caller`
makes of the request. The span continues the trace of the client. Works with every ASGI application; it reads no body
and changes no answer.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.agents.sdk import budget as budget_scope
from lyra.core.clock import Clock, SystemClock
from lyra.errors import BudgetExceeded
from lyra.observe.otel.requests import request_span
from lyra.server.token_limit import RequestWindow

if TYPE_CHECKING:
    from lyra.core.budgets.budget import Limits


Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
_JSON: Final = (b"content-type", b"application/json")


class RequestGuard:
    """See the module. `budget` is as for `lyra.budget`; None for no limit. `caller` is a function of the ASGI scope and
    gives the name by which requests are counted."""

    def __init__(
        self,
        app: Callable[[Scope, Receive, Send], Awaitable[None]],
        *,
        budget: Limits | None = None,
        requests_per_minute: int | None = None,
        caller: Callable[[Scope], str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        budget_scope(budget)  # a wrong limit is refused here, not at the first request
        self._app = app
        self._budget = budget
        self._caller = caller or _client_address
        self._window = RequestWindow(requests_per_minute, clock or SystemClock())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        wait_s = self._window.admit(self._caller(scope))
        if wait_s:
            retry = (b"retry-after", str(math.ceil(wait_s)).encode())
            await _refuse(send, 429, "rate_limited", "too many requests", retry)
            return
        await self._guard(scope, receive, send)

    async def _guard(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = 0

        async def watch_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        attributes = {"http.request.method": scope["method"]}
        with request_span(scope["method"], headers, attributes) as span, budget_scope(self._budget):
            try:
                await self._app(scope, receive, watch_status)
            except BudgetExceeded as error:
                if status:  # the answer has begun: the server cuts it off
                    raise
                status = 402
                await _refuse(send, status, error.code, error.message)
            _name_span(span, scope, status)


def _name_span(span: Any, scope: Scope, status: int) -> None:
    """Say the route, where the application has set it, and the status."""
    route = getattr(scope.get("route"), "path", "")
    attributes: dict[str, Any] = {"http.response.status_code": status}
    if route:
        attributes["http.route"] = route
    span.end_with(attributes, error=str(status) if status >= 500 else "")


def _client_address(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


async def _refuse(send: Send, status: int, code: str, message: str, *headers: tuple[bytes, bytes]) -> None:
    body = msgspec.json.encode({"error": {"code": code, "message": message, "hint": ""}})
    lines = [_JSON, (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": body})
