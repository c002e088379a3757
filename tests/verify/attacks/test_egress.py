"""Commands that try to reach hosts that no rule names (`verify.attacks.egress`)."""

from __future__ import annotations

import pytest

from lyra.agents.headless import setup
from verify.attacks import egress
from verify.attacks.egress import ATTEMPTS


def test_no_mode_and_no_wide_rule_opens_hosts_to_commands():
    """In each tier that works; a host that a rule names is reached."""
    report = egress.run([attempt for attempt in ATTEMPTS if "proxy" in attempt.name][::3])
    assert report.failures == []
    assert report.attempts >= 7


def test_hosts_of_a_mode_would_be_noticed(monkeypatch: pytest.MonkeyPatch):
    """Planted: the mode `bypass` opens every host to commands, as it does to WebFetch."""
    own = setup._hosts
    monkeypatch.setattr(setup, "_hosts", lambda permissions, *, whole=False: own(permissions))
    assert egress.run(ATTEMPTS[:1]).failures
