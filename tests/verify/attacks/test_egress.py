"""Commands that try to reach hosts that no rule names (`verify.attacks.egress`)."""

from __future__ import annotations

import pytest

from lyra.agents.headless import setup
from lyra.core.rights.capability import Capability
from lyra.tools.permissions.decision import Permissions
from verify.attacks import egress
from verify.attacks.egress import ATTEMPTS


def test_no_mode_and_no_wide_rule_opens_hosts_to_commands():
    """In each tier that works; a host that a rule names is reached."""
    report = egress.run([attempt for attempt in ATTEMPTS if "proxy" in attempt.name][::3])
    assert report.failures == []
    assert report.attempts >= 7


def test_hosts_of_a_mode_would_be_noticed(monkeypatch: pytest.MonkeyPatch):
    """Planted: the mode `bypass` opens every host to commands, as it does to WebFetch."""
    hosts = setup._hosts

    def every_host(permissions: Permissions, *, whole: bool = False) -> list[Capability]:
        del whole
        return hosts(permissions)

    monkeypatch.setattr(setup, "_hosts", every_host)
    assert egress.run(ATTEMPTS[:1]).failures
