"""Bad input to rules, lines and settings: a LyraError or an answer, soon."""

from __future__ import annotations

from tests.cases import cases
from verify.fuzz import fuzz


def test_random_inputs():
    """And the figures are about real work: some inputs are refused, some not."""
    result = fuzz.run(cases(4_000), seed=1)
    assert not result.failures
    assert 0 < result.refused < result.inputs
    assert result.slowest_s < fuzz.SECONDS_MAX


def test_a_failure_is_found(monkeypatch):
    """Any other exception is one, with the seed to see it again."""

    def broken(rng):
        raise KeyError(rng.random() > 2)

    monkeypatch.setitem(fuzz.TARGETS, "shell", broken)
    assert "shell, seed 7: KeyError" in fuzz.run(3, seed=7).failures[0]
