"""Confidence is the lower end of Wilson's interval at z = 3.29."""

from __future__ import annotations

import pytest

from lyra.vesper.confidence import lower_bound


@pytest.mark.parametrize(
    ("compared", "divergences", "bound"),
    [(1000, 0, 0.98929), (1000, 10, 0.97320), (1000, 50, 0.92212), (1000, 100, 0.86438), (10_000, 0, 0.99892)],
)
def test_the_bound_of_some_comparisons(compared: int, divergences: int, bound: float) -> None:
    assert lower_bound(compared, divergences) == pytest.approx(bound, abs=5e-6)


@pytest.mark.parametrize(("gate", "runs"), [(0.95, 206), (0.999, 10_814), (0.9999, 108_231)])
def test_a_gate_needs_so_many_clean_runs_and_not_one_fewer(gate: float, runs: int) -> None:
    assert lower_bound(runs, 0, minimum=0) >= gate
    assert lower_bound(runs - 1, 0, minimum=0) < gate


def test_few_runs_prove_nothing() -> None:
    assert lower_bound(999, 0) == 0.0
    assert lower_bound(0, 0, minimum=0) == 0.0


def test_only_divergences_give_no_confidence() -> None:
    assert lower_bound(1000, 1000) == pytest.approx(0.0, abs=1e-12)


def test_more_divergences_than_runs_are_refused() -> None:
    with pytest.raises(ValueError, match="2 divergences of 1"):
        lower_bound(1, 2)
