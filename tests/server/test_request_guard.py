"""Each request of another application has a budget, a rate limit and a span of its own."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

import lyra
from lyra import Agent, Kernel
from lyra.core.trace_context import current_span
from lyra.errors import ConfigError
from lyra.models.sim import SimProvider
from lyra.server import RequestGuard
from lyra.testing import SimClock
from tests.server.http.support import in_loop

PRICED = {"price": {"input_usd_per_mtok": 1000, "output_usd_per_mtok": 1000}, "replies": ["fine, thank you"]}


def agent() -> Agent[Any]:
    return Agent("priced", model=SimProvider(script=PRICED), max_tokens=20)


async def get(app: Any, path: str = "/", **headers: str) -> httpx.Response:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return await client.get(path, headers=headers)


def test_agents_draw_on_the_budget_of_the_request() -> None:
    """One call fits; the second is refused, and the answer is 402; the next request has a budget of its own."""

    async def main() -> None:
        async with Kernel() as kernel:
            app = FastAPI()

            @app.get("/{count}")
            async def ask(count: int) -> dict[str, Any]:
                for _ in range(count):
                    await lyra.run(agent(), "how are you?", on=kernel)
                return {"fine": True}

            app.add_middleware(RequestGuard, budget="$0.30")
            for _ in range(2):
                assert (await get(app, "/1")).status_code == 200
                refused = await get(app, "/90")
                assert refused.status_code == 402, refused.text
                assert refused.json()["error"]["code"] == "budget_exceeded"

    in_loop(main())


def test_requests_are_counted_by_caller() -> None:
    clock = SimClock(1000.0)
    routes = [Route("/", lambda request: PlainTextResponse("x"))]

    def caller(scope: Any) -> str:
        return str(dict(scope["headers"]).get(b"x-tenant", b"").decode())

    app = RequestGuard(Starlette(routes=routes), requests_per_minute=2, caller=caller, clock=clock)

    async def main() -> None:
        statuses = [(await get(app, **{"x-tenant": "a"})).status_code for _ in range(3)]
        assert statuses == [200, 200, 429]
        assert (await get(app, **{"x-tenant": "b"})).status_code == 200
        refused = await get(app, **{"x-tenant": "a"})
        assert int(refused.headers["retry-after"]) <= 60
        clock.advance(121)
        assert (await get(app, **{"x-tenant": "a"})).status_code == 200

    in_loop(main())


def test_the_work_of_a_request_continues_the_trace_of_its_client() -> None:
    app = FastAPI()
    trace_id = "0af7651916cd43dd8448eb211c80319c"

    @app.get("/")
    async def show(request: Request) -> str:
        span = current_span.get()
        return span.trace_id if span is not None else ""

    app.add_middleware(RequestGuard)

    async def main() -> None:
        assert (await get(app, traceparent=f"00-{trace_id}-b7ad6b7169203331-01")).json() == trace_id
        assert (await get(app)).json() == ""
        assert current_span.get() is None

    in_loop(main())


def test_a_wrong_budget_is_refused_when_the_application_is_made() -> None:
    with pytest.raises(ConfigError):
        RequestGuard(FastAPI(), budget="many dollars")
