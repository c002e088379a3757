"""A short soak of a cluster; the long one is `make soak`."""

from __future__ import annotations

import pytest

from tests.limits import within
from verify.cluster import soak
from verify.servers import postgres_missing


@pytest.mark.slow
@pytest.mark.long
def test_hosts_are_killed_for_forty_seconds():
    """Four hosts are killed one after the other under load: every program ends, no charge and no message is lost or
    counted twice, and the shards of a killed host are open again within the lease and 1.5 s."""
    missing = postgres_missing()
    if missing:
        pytest.skip(missing)
    result = soak.run(40.0, 10.0)
    assert result.failures == []
    assert result.kills == 4
    assert result.repeated >= 1  # charges were under way when a host was killed
    within(result.slowest_s, 3.0 + 1.5)
