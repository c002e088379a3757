"""Programs on a model that fails by a seed: crashes, 429s, answers that never come. Trees behave, nothing leaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from lyra.vega.runtime import processes
from tests.cases import ALL
from verify.compare.vega_faults import SCENES, run

SEEDS = 60 if ALL else 8


@pytest.mark.parametrize("scene", SCENES)
def test_what_is_written_is_what_happens(scene):
    """Every call comes to what it has to, trees start anew as their strategy says, and no process is left."""
    problems = {seed: problem for seed in range(SEEDS) if (problem := SCENES[scene](seed)[0])}
    assert problems == {}


def test_one_restart_too_many_is_noticed(monkeypatch):
    """The model of a page is no mirror of what happens."""
    flags = processes.flags

    def generous(settings: Mapping[str, Any]) -> dict[str, Any]:
        return {**(limits := flags(settings)), "max_restarts": limits["max_restarts"] + 1}

    monkeypatch.setattr(processes, "flags", generous)
    assert len(run(8).failures) > 3


def test_the_same_seed_is_the_same_run():
    assert run(2, 3) == run(2, 3)
