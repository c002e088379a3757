"""Generated code agrees with the two other evaluators on random programs; `make cases` tries more of them."""

from __future__ import annotations

import pytest

from lyra.core.ids import make_random
from lyra.vesper.direct.run import run as direct
from lyra.vesper.evidence import differential
from lyra.vesper.python.run import run as python
from lyra.vesper.reference.run import run as reference
from tests.cases import cases, first
from tests.vesper.random_programs import random_program

OTHERS = [pytest.param(direct, id="direct"), pytest.param(reference, id="reference")]
CHUNK = 10
pytestmark = pytest.mark.usefixtures("unshrunk")


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("effects", [False, True], ids=["pure", "effects"])
@pytest.mark.parametrize("start", first(range(0, cases(60), CHUNK), 1))
def test_python_agrees(start: int, effects: bool, other: differential.RunPath) -> None:
    for seed in range(start, start + CHUNK):
        program = random_program(make_random(seed), effects=effects)
        report = differential.test(program, 20, seed=seed, first=python, second=other, stop_after=1)
        assert report.kept == (), seed
