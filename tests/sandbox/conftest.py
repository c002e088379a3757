"""A sandbox of each tier that works here."""

from __future__ import annotations

import asyncio

import pytest

from lyra.sandbox import Sandbox
from lyra.sandbox.sandbox import examine

TIERS = {state.name: state.problem for state in asyncio.run(examine())}


@pytest.fixture(params=list(TIERS), scope="session")
def tier(request) -> str:
    name: str = request.param
    problem = TIERS[name]
    if problem:
        pytest.skip(problem)
    return name


@pytest.fixture(scope="session")
def sandbox(tier, tmp_path_factory) -> Sandbox:
    return Sandbox(tiers=(tier,), spill_folder=str(tmp_path_factory.mktemp("spill")))
