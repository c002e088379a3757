"""Example nodes on the Python path and on the direct path: equal outcomes for many generated inputs.

The nodes are those of `examples/nodes`, of the tutorial and the documents' payment handler; one with effects acts on
simulated effects, and the requests of both paths are compared. 110 000 accepted inputs without a difference are what
the last gate of a node's modes asks for. `run` gives, for each node, how many inputs were compared, accepted and
succeeded, how many differed, what was not reached and the CPU time. `test_nodes` are all nodes that tests read and the
how-to guides show, too: many of them are there to fail, so of these only a divergence is a problem.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from lyra.vesper.evidence import differential
from lyra.vesper.nodes.model import Node
from lyra.vesper.nodes.sections import read_node

__all__ = ["NodeComparison", "example_nodes", "run", "test_nodes"]

ROOT: Final = Path(__file__).parents[2]
SUCCEEDING_MIN: Final = 0.15  # of the inputs that are compared
TRIED_FOR_EACH: Final = 6  # inputs at most, for each that is to be accepted
_SHOWN: Final = re.compile(r"```yaml\n(node_id: .*?)```", re.DOTALL)


class NodeComparison(NamedTuple):
    node: str
    compared: int
    accepted: int  # distinct inputs past the entry checks
    successes: int  # of them, those with which the node succeeded
    unreached: tuple[str, ...]  # steps, branches and declared errors
    divergences: int
    cpu_s: float
    first: str  # the first divergence, in words
    is_shown: bool = True  # to users, so that it must be reached and succeed, too

    @property
    def per_second(self) -> float:
        return self.accepted / self.cpu_s if self.cpu_s else 0.0

    @property
    def problem(self) -> str:
        """What is wrong, "" where nothing is."""
        if self.divergences:
            return f"{self.divergences} divergences, first {self.first}"
        if not self.is_shown:
            return ""
        if self.unreached:
            return f"not reached: {', '.join(self.unreached)}"
        share = self.successes / self.compared if self.compared else 0.0
        return "" if share >= SUCCEEDING_MIN else f"the node succeeded with {share:.0%} of its inputs only"


def example_nodes() -> Iterator[tuple[str, str]]:
    """The name and text of each node that is shown to users."""
    for path in (*sorted((ROOT / "examples" / "nodes").glob("*.vsp")), ROOT / "tests/vesper/files/payment_handler.vsp"):
        if path.is_file():
            yield path.stem, path.read_text()
    for number, match in enumerate(_SHOWN.finditer((ROOT / "docs/tutorial/vesper.md").read_text())):
        yield f"tutorial_{number}", match[1]


def test_nodes() -> Iterator[tuple[str, str]]:
    """The name and text of each other node that tests read, and of those in the how-to guides, if it is a right one."""
    shown = {text for _, text in example_nodes()}
    files = [*sorted((ROOT / "tests/vesper/files").glob("*.vsp")), *sorted((ROOT / "tests/language").rglob("*.vsp"))]
    texts = [(str(path.relative_to(ROOT / "tests").with_suffix("")), path.read_text()) for path in files]
    for page in sorted((ROOT / "docs/how-to").glob("*.md")):
        found = _SHOWN.finditer(page.read_text())
        texts += [(f"{page.stem}_{number}", match[1]) for number, match in enumerate(found)]
    for name, text in texts:
        if text not in shown and "wrong/" not in name:
            yield name, text


def run(count: int, seed: int, *, with_tests: bool = False) -> Iterator[NodeComparison]:
    """Compare the paths of each node until `count` distinct inputs were accepted, or all of a node that has few; also
    of the nodes of tests, if they are wanted."""
    shown, others = list(example_nodes()), list(test_nodes()) if with_tests else []
    nodes = {name: _read(name, text) for name, text in (*shown, *others)}
    known = {node.node_id: node for node in nodes.values() if node is not None}
    names = {name for name, _ in shown}
    for name, node in nodes.items():
        if node is None:
            continue
        began = time.process_time()
        report = differential.test_node(node, TRIED_FOR_EACH * count, seed, find=known.get, accepted=count)
        cpu_s = time.process_time() - began
        first = str(report.kept[0]) if report.kept else ""
        counts = report.counts
        figures = (report.compared, counts.accepted, counts.successes, report.unreached, report.divergences)
        yield NodeComparison(name, *figures, cpu_s, first, name in names)


def _read(name: str, text: str) -> Node | None:
    """Return the node of a text; None of one that has mistakes."""
    node, issues = read_node(text, name)
    return None if any(issue.severity == "error" for issue in issues) else node
