"""Fixtures of the tests of Vesper."""

from __future__ import annotations

import pytest

from lyra.vesper.evidence import differential


@pytest.fixture
def unshrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave as they are the inputs that a comparison finds, for tests that only ask whether the paths agree. Making
    inputs small that break a contract of the node takes several times as long as the comparison."""
    monkeypatch.setattr(differential, "shrink", lambda inputs, _still_fails: inputs)
