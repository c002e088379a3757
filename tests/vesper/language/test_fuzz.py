"""Damaged files and expressions: a node, a tree or a LyraError, soon. `make fuzz N=700000` runs 100 000 of each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lyra.core.clock import cpu_time
from lyra.core.ids import ProcessRandom, make_random
from lyra.errors import LyraError
from tests.cases import cases
from verify.fuzz import fuzz, vesper_fuzz

INPUTS = cases(2_000)


@pytest.mark.parametrize("target", [vesper_fuzz.node, vesper_fuzz.expression], ids=["node", "expression"])
def test_damaged_input_gives_an_answer_or_a_lyra_error(target: Callable[[ProcessRandom], None]) -> None:
    """Both occur; any other exception fails with its seed."""
    refused = 0
    for seed in range(INPUTS):
        began = cpu_time()
        try:
            target(make_random(seed))
        except LyraError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
        assert cpu_time() - began < fuzz.SECONDS_MAX, seed
    assert INPUTS // 2 < refused < INPUTS


def test_good_files_are_among_the_inputs() -> None:
    """Without damage, the files are accepted, so that the damage is what is refused."""
    assert fuzz.TARGETS["vesper node"] is vesper_fuzz.node
    assert fuzz.TARGETS["vesper expression"] is vesper_fuzz.expression
    texts = {vesper_fuzz.node_text(make_random(seed)) for seed in range(200)}
    assert len(texts) > 190


def test_an_exception_of_another_kind_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(text: str) -> None:
        raise KeyError(text[:3])

    monkeypatch.setattr(vesper_fuzz, "check_text", broken)
    failures = fuzz.run(len(fuzz.TARGETS), seed=3).failures
    assert any(failure.startswith("vesper node, seed") and "KeyError" in failure for failure in failures)
