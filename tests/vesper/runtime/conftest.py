"""Servers of the tests' own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.store.conftest import postgres_server, postgres_url  # noqa: F401 - fixtures
from verify.redis_server import RedisServer, redis_missing


@pytest.fixture(scope="session")
def redis_servers() -> Iterator[dict[str, RedisServer]]:
    """A server that wants no password, and another that does."""
    missing = redis_missing()
    if missing:
        pytest.skip(missing)
    with RedisServer() as unlocked, RedisServer(password="pass word/ü@:#") as locked:
        yield {"unlocked": unlocked, "locked": locked}


@pytest.fixture(params=["unlocked", "locked"])
def redis(request: pytest.FixtureRequest, redis_servers: dict[str, RedisServer]) -> RedisServer:
    server = redis_servers[request.param]
    server.ask("FLUSHALL")
    return server
