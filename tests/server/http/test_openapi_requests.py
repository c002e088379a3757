"""Requests made from the OpenAPI document get the answers that it declares."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from lyra.server.http.api.system import openapi_document
from lyra.server.site import site
from tests.cases import ALL
from tests.server.http.support import OPERATOR, echo, serving

schema = schemathesis.openapi.from_dict(openapi_document(site()))


@schema.auth()
class OperatorToken:
    def get(self, case: Any, context: Any) -> str:
        return OPERATOR

    def set(self, case: Any, data: str, context: Any) -> None:
        case.headers = {**(case.headers or {}), "Authorization": f"Bearer {data}"}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A server in a thread of its own; its URL."""
    started, urls, stopped = threading.Event(), [], []

    async def main() -> None:
        async with serving(echo()) as parts:
            urls.append(parts.url)
            stop = asyncio.Event()
            stopped.append((asyncio.get_running_loop(), stop))
            started.set()
            await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(main(),), daemon=True)
    thread.start()
    assert started.wait(30)
    yield urls[0]
    loop, stop = stopped[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join(30)


@pytest.mark.slow
@schema.exclude(operation_id="events.follow").parametrize()  # the feed of events has no end
@settings(
    max_examples=50 if ALL else 4,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_requests_made_from_the_document_are_answered_as_it_says(case: Any, server: str) -> None:
    """Valid and invalid requests: no server error, only declared statuses, media types and bodies; nothing without the
    token; wrong methods and wrong data are refused. That all data of the right shape is taken is not claimed: the last
    message must be the user's, a cursor one that the server gave."""
    case.call_and_validate(base_url=server, timeout=30, excluded_checks=[positive_data_acceptance])
