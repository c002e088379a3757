"""One PostgreSQL server for all tests of the stores; each test has a schema of its own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from verify.servers import PostgresServer, postgres_missing

_schemas = count(1)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    missing = postgres_missing()
    if missing:
        pytest.skip(missing)
    with PostgresServer() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    return f"{postgres_server.url}&schema=test_{next(_schemas)}"
