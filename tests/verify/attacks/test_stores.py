"""Changes of a store's file by a program without the user's key."""

from __future__ import annotations

import pytest

from verify.attacks import stores


def test_no_change_of_a_file_has_an_effect() -> None:
    """Each is refused when a kernel opens the store, or changes nothing; in the rows, the snapshot and in runs."""
    report = stores.run()
    assert report.failures == []
    assert len(stores.ATTEMPTS) >= 70
    assert report.tried >= 200
    assert report.refused + report.without_effect == report.tried


def test_without_signatures_they_succeed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that never fails shows nothing: a user without a key has no protection against them."""
    monkeypatch.setenv("HOME", "")
    report = stores.run(places=stores.PLACES[:2])
    assert len(report.failures) >= 60
