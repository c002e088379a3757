"""Real SIGKILL, random edits, `vega resume --program`: what is accepted goes on as the oracle says, line by line."""

from __future__ import annotations

import os

import pytest

from lyra.vega.migrate import migration
from verify.crash.vega import edits

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")]


@pytest.mark.parametrize("count", [2, pytest.param(8, marks=pytest.mark.long)])
def test_random_edits_are_refused_or_go_on_as_the_oracle_says(count):
    """No finished call is made again, none in flight is asked another way, and no accepted program diverges."""
    result = edits.run(count, seed=7)
    assert result.failures == []
    assert result.accepted + result.refused > count
    if count == 8:
        assert min(result.accepted, result.refused) > 5
        assert result.again > 0


@pytest.mark.long
def test_edits_that_are_not_checked_are_found_out(monkeypatch: pytest.MonkeyPatch):
    """With the check switched off, the same kind of edits ends in divergences and wrong lines."""
    monkeypatch.setattr(migration._Case, "is_safe", lambda _: True)
    assert edits.run(4, seed=7).failures != []


def test_the_oracle_knows_every_line():
    plan = edits.Plan((edits.Step("loop", 1), edits.Step("tool", 2, 3)))
    assert plan.lines() == ["LOO1 v0 0", "LOO1 v0 1", "LOO1 v0 2", "[result TOO2 v3 4] (3)"]
    assert 'return "TOO2 v3 ${n}"' in plan.text()
