"""The nodes below tests/language/vesper, and what their files say about running them.

A file is a node with test cases. `wrong/` has nodes that must be refused; each expected remark is a comment
`# expect: SEVERITY[CODE] LINE:COLUMN`. A node that acts outside may say in comments what it needs:

    # sql: CREATE TABLE …            run on the database before the first case
    # rows: SELECT … => JSON         what the database holds after the last case
    # grant: CAPABILITY …            rights in place of those that the node asks for
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from lyra.vesper.check.judge import program_of
from lyra.vesper.ir import NodeProgram
from lyra.vesper.nodes import Node, load
from lyra.vesper.nodes.model import TestCase

__all__ = ["FOLDER", "Case", "cases", "comments", "effectful", "files", "node_of", "program", "pure", "wrong"]

_ACT = re.compile(r"operation: *(transaction|call_node|custom|database_|event_|external_|state_machine_)")

FOLDER = Path(__file__).parents[2] / "language" / "vesper"


class Case(NamedTuple):
    """One test case of a file."""

    path: Path
    case: TestCase

    @property
    def id(self) -> str:
        return f"{name_of(self.path)}:{self.case.name}"


def name_of(path: Path) -> str:
    return str(path.relative_to(FOLDER).with_suffix(""))


def files() -> list[Path]:
    """All nodes that must be accepted."""
    return [path for path in sorted(FOLDER.glob("**/*.vsp")) if "wrong" not in path.parts]


def wrong() -> list[Path]:
    return sorted(FOLDER.glob("wrong/*.vsp"))


@cache
def node_of(path: Path) -> Node:
    return load(path)


@cache
def program(path: Path) -> NodeProgram:
    return program_of(node_of(path))


def cases(paths: list[Path]) -> list[Case]:
    return [Case(path, case) for path in paths for case in node_of(path).testing.test_cases]


def pure() -> list[Path]:
    """By their text, so that no node is checked before the first test; a test compares it with the programs."""
    return [path for path in files() if not _acts(path)]


def effectful() -> list[Path]:
    """Nodes that act outside and have cases."""
    return [path for path in files() if _acts(path) and "test_cases:" in path.read_text()]


def _acts(path: Path) -> bool:
    return _ACT.search(path.read_text()) is not None


def comments(path: Path, word: str) -> list[str]:
    """The texts of `# word: …` in a file."""
    return re.findall(rf"^# {word}: (.*)$", path.read_text(), re.MULTILINE)
