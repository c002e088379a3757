"""Attacks on Sage's own faces: none has an effect, and the suites would see one if a protection were missing."""

from __future__ import annotations

import pytest

from lyra.core.secrets.known_keys import KnownKeys
from verify.attacks.sage import exposed_keys

QUICK_KEYS = ("in a prompt", "in the output of tools", "in titles and forks", "in what an editor is told")


@pytest.mark.slow
def test_no_key_is_kept_or_shown() -> None:
    assert exposed_keys.run(QUICK_KEYS).effects == []


@pytest.mark.slow
def test_without_the_search_for_keys_they_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted hole: known keys are not searched for in texts."""
    monkeypatch.setattr(KnownKeys, "mask", lambda _self, text, **_more: text)
    monkeypatch.setattr(KnownKeys, "may_be_in", lambda _self, _data: False)
    effects = exposed_keys.run(QUICK_KEYS).effects
    assert {effect.partition(":")[0] for effect in effects} == set(QUICK_KEYS)
    assert any("session.db" in effect for effect in effects)
    assert any("was shown" in effect for effect in effects)
