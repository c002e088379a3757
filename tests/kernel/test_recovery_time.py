"""A tenth of the journal that `make recovery` opens; the long version asks for 100 000 events in three seconds."""

from __future__ import annotations

import os

import pytest

from verify.load.recovery_time import RECOVERY_S_MAX, recovery


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_ten_thousand_events_of_two_hundred_processes_are_recovered_in_time():
    measured = recovery(events=10_000, processes=200)
    assert measured.events >= 9_000
    assert measured.processes == 201
    assert measured.opened_s < RECOVERY_S_MAX
    assert measured.replayed_s < RECOVERY_S_MAX
