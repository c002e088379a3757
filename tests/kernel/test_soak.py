"""A short soak: the long one is `make soak`."""

from __future__ import annotations

import pytest

from lyra.testing import soak


@pytest.mark.slow
def test_a_thousand_processes_for_twenty_seconds():
    """Supervised processes crash and come back; memory, loop and table stay as they were."""
    result = soak.run(1_000, 20.0, seed=1)
    assert result.failures == []
    assert result.crashes >= 3
    assert result.effects > 500
