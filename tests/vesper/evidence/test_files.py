"""The paths agree on the nodes of files, with and without effects."""

from __future__ import annotations

from pathlib import Path

import pytest

from lyra.vesper.check.judge import program_of
from lyra.vesper.evidence import differential
from lyra.vesper.nodes import load
from lyra.vesper.reference.run import run as reference

FILES = sorted((Path(__file__).parent.parent / "files").glob("*.vsp"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_python_and_direct_agree(path: Path) -> None:
    assert differential.test(program_of(load(path)), 200, seed=1).kept == ()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_reference_and_direct_agree(path: Path) -> None:
    assert differential.test(program_of(load(path)), 40, seed=2, first=reference).kept == ()


def test_there_are_files() -> None:
    assert len(FILES) >= 3
