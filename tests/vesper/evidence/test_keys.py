"""Evidence is for the code that was compared: a change of any of it begins the evidence anew."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import lyra.vesper
from lyra.vesper.evidence import keys

_HOME = Path(lyra.vesper.__file__).parent
_RUN_BY_PATHS = ("python", "direct", "values", "expressions")


def _modules_that_paths_use() -> set[Path]:
    """Return the modules of Vesper that the code of the paths imports."""
    used = set()
    for folder in _RUN_BY_PATHS:
        for file in _HOME.joinpath(folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lyra.vesper."):
                    used.add(_HOME.joinpath(*str(node.module).split(".")[2:]).with_suffix(".py"))
    return {file for file in used if file.is_file()}


def test_all_that_the_paths_use_is_in_the_key() -> None:
    hashed = {file for part in keys._PARTS for file in (_HOME / part, *_HOME.joinpath(part).rglob("*.py"))}
    assert _modules_that_paths_use() - hashed == set()


@pytest.mark.parametrize("part", keys._PARTS)
def test_every_part_of_the_key_is_there(part: str) -> None:
    """A part that was renamed would be left out without a word."""
    assert _HOME.joinpath(part).exists()
