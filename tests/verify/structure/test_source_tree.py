"""The reader of source trees sees imports of every kind, circles, layers and words."""

from __future__ import annotations

from pathlib import Path

import pytest

from verify.structure.docstrings import stale_names
from verify.structure.figures import crosses_folders, measure, report
from verify.structure.layers import back_up, read_contracts
from verify.structure.source_tree import RUN_TIME, SourceTree, circles

FILES = {
    "__init__.py": '"""The package."""\n',
    "top.py": "import house.low.a\nfrom house.low import b, VALUE\n",
    "low/__init__.py": '"""Low."""\nVALUE = 1\n',
    "low/a.py": "def late():\n    try:\n        pass\n    finally:\n        from house.low.b import name\n",
    "low/b.py": "from typing import TYPE_CHECKING\n\nfrom .a import late\nif TYPE_CHECKING:\n    import house.top\n",
    "high/__init__.py": "",
    "high/c.py": "class Same: ...\n\nclass Other: ...\n\nclass _Private: ...\n",
    "high/d.py": "class Same: ...\n\nclass _Private: ...\n# somebody, or anybody\n# Whoever reads\n",
}
PROJECT = """
[[tool.importlinter.contracts]]
type = "layers"
layers = ["house.top", "house.low | (house.none)"]

[[tool.importlinter.contracts]]
type = "layers"
containers = ["house.low"]
layers = ["a", "b"]

[[tool.importlinter.contracts]]
type = "independence"
modules = ["house.top"]
"""


@pytest.fixture
def house(tmp_path: Path) -> Path:
    root = tmp_path / "house"
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    return root


def test_imports_have_a_source_a_target_and_a_kind(house: Path) -> None:
    """Names resolve to modules where those exist, and to the folder's own file otherwise."""
    imports = {(edge.source, edge.target, edge.kind) for edge in SourceTree(house).imports}
    assert imports == {
        ("house.top", "house.low.a", "top"),
        ("house.top", "house.low.b", "top"),
        ("house.top", "house.low", "top"),
        ("house.low.a", "house.low.b", "function"),
        ("house.low.b", "house.low.a", "top"),
        ("house.low.b", "house.top", "typing"),
    }


def test_circles_through_functions_count_at_run_time_and_typing_imports_do_not(house: Path) -> None:
    tree = SourceTree(house)
    assert tree.circles(["top"]) == []
    assert tree.circles(RUN_TIME) == [["house.low.a", "house.low.b"]]
    assert tree.circles([*RUN_TIME, "typing"]) == [["house.low.a", "house.low.b", "house.top"]]
    assert not crosses_folders(tree, ["house.low.a", "house.low.b"])
    assert crosses_folders(tree, ["house.low.a", "house.top"])


def test_circles_are_whole_components() -> None:
    """Two circles with a shared node are one; a node that only leads to a circle is not part of it."""
    assert circles({"a": "b", "b": "ac", "c": "b", "d": "a", "e": "f", "f": "e", "g": "g"}) == [
        ["a", "b", "c"],
        ["e", "f"],
    ]


def test_contracts_give_the_imports_that_lead_back_up(house: Path) -> None:
    """Both ways to write a contract are read; parts that do not exist yet do not matter."""
    contracts = read_contracts(house.parent / "pyproject.toml")
    assert contracts["house"].layers == (("top",), ("low", "none"))
    upward = {(edge.source, edge.target) for edge in back_up(contracts, SourceTree(house).imports)}
    assert upward == {("house.low.b", "house.top"), ("house.low.b", "house.low.a")}


def test_the_figures_count_files_names_words_and_docstrings(house: Path) -> None:
    figures = measure(SourceTree(house), house.parent / "pyproject.toml")
    assert figures.files_by_folder == {"house": 2, "house.low": 3, "house.high": 3}
    assert figures.repeated_classes == {"Same": ["house.high.c", "house.high.d"]}
    assert [line.partition(": ")[0] for line in figures.vague_lines] == ["house/high/d.py:4", "house/high/d.py:5"]
    assert figures.undocumented_folders == ["house.high"]
    text = "\n".join(report(figures, details=True))
    assert "run-time circles of files: 1\n  2 files: house.low.a, house.low.b" in text
    assert "class names used in two files: 1 of 2\n  Same: house.high.c, house.high.d" in text
    assert "  house.low.b:5 -> house.top (typing)" in text


def test_names_in_docstrings_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    (tmp_path / "house").mkdir()
    for name, text in {
        "__init__.py": '"""Start with `front_door`; `back_door` was put into `front_door`."""\n',
        "front_door.py": '"""Opened by `open_door`; `close_door` is gone."""\ndef open_door(): ...\n',
    }.items():
        (tmp_path / "house" / name).write_text(text)
    tree = SourceTree(tmp_path / "house")
    assert [line for module in tree.modules.values() for line in stale_names(tree, module)] == [
        "house: back_door",
        "house.front_door: close_door",
    ]
