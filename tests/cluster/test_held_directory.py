"""A host that is held in the middle of a change of the directory does not keep the others from theirs."""

from __future__ import annotations

import pytest

from lyra.cluster.directory import HostRow, PostgresDirectory
from lyra.errors import StoreError
from lyra.store.migrations import LATEST
from tests.cluster.started import cluster_url as cluster_url  # noqa: PLC0414 - a fixture
from tests.cluster.started import database as database  # noqa: PLC0414 - a fixture

pytestmark = pytest.mark.slow


def test_a_change_that_stands_still_is_ended_by_the_server(cluster_url: str) -> None:
    """Each change takes the row of the cluster first: without an end to it, no shard would move any more."""
    held, other = PostgresDirectory(cluster_url, shards=1), PostgresDirectory(cluster_url)
    other.join(HostRow("a", "life", "127.0.0.1:1", "1", LATEST))
    with pytest.raises(StoreError, match="cannot be used"), held._transaction() as ask:
        ask("UPDATE cluster SET changes = changes + 1")
        assert other.assign("s1", "a", 0)
        ask("SELECT 1")
    assert held.view().shards["s1"].host == "a"
    assert held.read_silences()["a"] < 60
    held.close()
    other.close()
