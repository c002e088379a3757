"""Changes of a store's file by a program without the user's key."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from verify.attacks import stores
from verify.attacks.stores.victim import Place


@pytest.mark.parametrize(
    ("places", "fewest"), [(stores.PLACES[:1], 50), pytest.param(stores.PLACES, 200, marks=pytest.mark.long)]
)
def test_no_change_of_a_file_has_an_effect(places: Sequence[Place], fewest: int) -> None:
    """Each is refused when a kernel opens the store, or changes nothing; in the rows, the snapshot and in runs."""
    report = stores.run(places=places)
    assert report.failures == []
    assert len(stores.ATTEMPTS) >= 70
    assert report.tried >= fewest
    assert report.refused + report.without_effect == report.tried


@pytest.mark.long
def test_without_signatures_they_succeed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that never fails shows nothing: a user without a key has no protection against them."""
    monkeypatch.setenv("HOME", "")
    report = stores.run(places=stores.PLACES[:2])
    assert len(report.failures) >= 60
