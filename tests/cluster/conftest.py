"""Clusters of real host processes around one real PostgreSQL server; each test file has one in a schema of its own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests.store.conftest import postgres_server  # noqa: F401 - a fixture
from verify.cluster.hosts import TestCluster
from verify.servers import PostgresServer

LEASE_S = 1.0
SHARDS = 4

_schemas = count(1)


@pytest.fixture(scope="module")
def pair(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestCluster]:  # noqa: F811
    """Two hosts, `a` and `b`; a test that ends one starts it again."""
    folder = tmp_path_factory.mktemp("hosts")
    with TestCluster(new_url(postgres_server), folder, shards=SHARDS, lease_s=LEASE_S) as cluster:
        cluster.start("a", "b")
        yield cluster


def new_url(server: PostgresServer) -> str:
    return f"{server.url}&schema=cluster_{next(_schemas)}"
