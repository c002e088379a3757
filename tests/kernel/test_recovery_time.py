"""A tenth of the journal that `make recovery` opens; the long version asks for 100 000 events in three seconds."""

from __future__ import annotations

import os

import pytest

from verify.load.recovery_time import RECOVERY_S_MAX, recovery


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_ten_thousand_events_of_two_hundred_processes_are_recovered_in_time():
    found = recovery(events=10_000, processes=200)
    assert found.events >= 9_000
    assert found.processes == 201
    assert found.opened_s < RECOVERY_S_MAX
    assert found.replayed_s < RECOVERY_S_MAX
